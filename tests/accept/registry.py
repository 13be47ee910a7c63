"""The points: where they are noted down, how they are found, and how one is run."""

from __future__ import annotations

import importlib
import pkgutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.accept.workbench import Workbench


class Missing(Exception):
    """What a point needs is not on this machine; its text says what. The point is not tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a point went: `reason` is empty exactly when the promise was kept."""

    name: str
    seconds: float
    reason: str = ""
    tried: bool = True

    @property
    def kept(self) -> bool:
        return self.tried and not self.reason

    def __str__(self) -> str:
        word = "ok" if self.kept else "FAIL" if self.tried else "skip"
        because = f": {self.reason}" if self.reason else ""
        return f"{word:<5} {self.name}{because}"


@dataclass(frozen=True, slots=True)
class Point:
    """One promise, "area: what holds", and the function that tries it."""

    name: str
    check: Callable[[Workbench], None]

    @property
    def area(self) -> str:
        return self.name.partition(":")[0]

    def run(self, bench: Workbench) -> Outcome:
        """Try the promise. Every exception is the promise broken, and its first line the reason."""
        start = time.perf_counter()
        reason, tried = "", True
        try:
            self.check(bench)
        except Missing as missing:
            reason, tried = _one_line(missing), False
        except AssertionError as wrong:
            reason = _one_line(wrong)
        except Exception as error:
            reason = f"{type(error).__name__}: {_one_line(error)}"
        return Outcome(self.name, time.perf_counter() - start, reason, tried)


def _one_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or f"{type(error).__name__} without text"


class Registry:
    """Points by name, in the order in which they were noted down."""

    def __init__(self) -> None:
        self._points: dict[str, Point] = {}

    def point(
        self, name: str
    ) -> Callable[[Callable[[Workbench], None]], Callable[[Workbench], None]]:
        """Note the decorated function down as the way to try the promise `name`."""
        area, colon, promise = name.partition(": ")
        if not (area and colon and promise) or "\n" in name:
            raise ValueError(f"a point is named 'area: what holds' in one line, not {name!r}")

        def note(check: Callable[[Workbench], None]) -> Callable[[Workbench], None]:
            if name in self._points:
                raise ValueError(f"two points are named {name!r}")
            self._points[name] = Point(name, check)
            return check

        return note

    def __len__(self) -> int:
        return len(self._points)

    def select(self, words: list[str]) -> Iterator[Point]:
        """The points whose name contains one of the words, in any case; all where none is given."""
        lowered = [word.casefold() for word in words]
        for name, found in self._points.items():
            if not lowered or any(word in name.casefold() for word in lowered):
                yield found


_registry = Registry()
point = _registry.point


def find() -> Registry:
    """Import every `points_*.py` beside this module, by name, and return what they noted down."""
    folder = Path(__file__).parent
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda found: found.name):
        if module.name.startswith("points_"):
            importlib.import_module(f"tests.accept.{module.name}")
    return _registry
