"""What one piece of work reads, whoever else reads the same storage meanwhile.

A ``Meter`` counts the reads that are made while it is installed (``metered``), on the thread that
installed it and on those that were given work by it through ``carried``.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Meter", "carried", "count_read", "metered"]

T = TypeVar("T")
R = TypeVar("R")


class Meter:
    """``requests`` and ``bytes_read`` so far, and the ``paths`` that they were made to.

    A request is a read of consecutive bytes; to look a file's identity up is none.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_read = 0
        self.paths: set[str] = set()
        self._lock = Lock()

    def add(self, path: str, length: int) -> None:
        """One request, which gave so many bytes."""
        with self._lock:
            self.requests += 1
            self.bytes_read += length
            self.paths.add(path)


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def count_read(path: str, length: int) -> None:
    """Told by storages after each read."""
    meter = _METER.get()
    if meter is not None:
        meter.add(path, length)


@contextmanager
def metered() -> Iterator[Meter]:
    """Counts what is read within; of two around each other the inner one counts."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def carried(call: Callable[[T], R]) -> Callable[[T], R]:
    """``call`` as it is to be made on another thread: what it reads counts for this one."""
    meter = _METER.get()
    if meter is None:
        return call

    def counted(item: T) -> R:
        token = _METER.set(meter)
        try:
            return call(item)
        finally:
            _METER.reset(token)

    return counted
