"""A figure: one measured number, its target, and its peer from the same run; one JSON line each."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figure", "Peer", "interleaved", "median", "timed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a figure is compared with, and that one's figure in the same unit."""

    what: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the bench.

    ``value`` is in ``unit``; ``ratio`` is against ``peer`` (what it divides by what, ``target``
    says); ``met`` is ``None`` for a figure that is reported and has no target.
    """

    name: str
    value: float
    unit: str
    peer: Peer | None = None
    ratio: float | None = None
    target: str | None = None
    met: bool | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The line, without its end."""
        peer = None
        if self.peer is not None:
            peer = {"what": self.peer.what, "value": _short(self.peer.value)}
        return json.dumps(
            {
                "name": self.name,
                "value": _short(self.value),
                "unit": self.unit,
                "peer": peer,
                "ratio": None if self.ratio is None else _short(self.ratio),
                "target": self.target,
                "met": self.met,
                "details": {key: _short(value) for key, value in self.details.items()},
            },
            ensure_ascii=False,
        )


def _short(value: Any) -> Any:
    """Floats to four digits: what is behind them is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {str(key): _short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return value


def median(samples: list[float]) -> float:
    """The middle of the samples."""
    return statistics.median(samples)


def timed(work: Callable[..., object], *arguments: Any) -> float:
    """Seconds that ``work`` of ``arguments`` takes by the wall."""
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def interleaved(
    runs: int, works: Mapping[str, Callable[[], object]], *, warm: int = 1
) -> dict[str, list[float]]:
    """Seconds of every work, ``runs`` times each and in turns, so that a busy moment hits all.

    ``warm`` rounds come before and do not count; a single run needs none.
    """
    warm = warm if runs > 1 else 0
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(warm + runs):
        gc.collect()
        for name, work in works.items():
            seconds = timed(work)
            if turn >= warm:
                taken[name].append(seconds)
    return taken
