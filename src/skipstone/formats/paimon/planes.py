"""Sets of rows for bit slices: dense words where slices are bitsets, Roaring where they are not.

Comparing codes with a constant takes one operation per slice over all rows of a file. Where the
slices are bitsets, as they are for values in no order, NumPy works on their words where they lie in
the file, without a copy or a check per container. Where they are runs or sparse, as in sorted
files, words would be far larger than the file: then sets stay Roaring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pyroaring import BitMap

from skipstone.errors import FormatError

from . import roaring
from .roaring import BITSET, RUNS, SERIAL_COOKIE_NO_RUNS, WORDS, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Dense", "Planes", "Sparse", "planes_for"]

# Words may take so many times the bytes that were read.
_SPREAD = 4


class Planes(Protocol):
    """Operations on sets of rows of one file; a set is whatever ``load`` gives."""

    def load(self, data: bytes | memoryview) -> Any:
        """A serialised bitmap, checked; ``FormatError``."""

    def of(self, rows: BitMap) -> Any:
        """A bitmap; rows that ``existing`` lacks may be dropped."""

    def meet(self, a: Any, b: Any) -> Any:
        """a ∩ b."""

    def join(self, a: Any, b: Any) -> Any:
        """a ∪ b."""

    def minus(self, a: Any, b: Any) -> Any:
        """a without b."""

    def count(self, a: Any) -> int:
        """|a|."""

    def rows(self, a: Any) -> BitMap:
        """The set as a bitmap."""


def planes_for(existing: bytes | memoryview, sizes: Sequence[int], rows: int) -> Planes:
    """Dense or sparse, by the bytes of the slices that will be loaded and of ``existing``, the
    serialised set of all rows that may be in any of them."""
    layout = Layout.from_bytes(existing)
    words = len(layout.highs) * 8 * WORDS
    if words and words * max(len(sizes), 1) <= _SPREAD * (sum(sizes) + len(existing)):
        if (int(layout.highs[-1]) << 16) >= rows:
            raise FormatError("a row past the last", expected=f"below {rows}")
        return Dense(layout.highs, rows)
    return Sparse(rows)


class Sparse:
    """Sets are ``BitMap``."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def load(self, data: bytes | memoryview) -> BitMap:
        return roaring.read(data, self._rows)

    def of(self, rows: BitMap) -> BitMap:
        return rows

    def meet(self, a: BitMap, b: BitMap) -> BitMap:
        return a & b

    def join(self, a: BitMap, b: BitMap) -> BitMap:
        return a | b

    def minus(self, a: BitMap, b: BitMap) -> BitMap:
        return a - b

    def count(self, a: BitMap) -> int:
        return len(a)

    def rows(self, a: BitMap) -> BitMap:
        return a


class Dense:
    """Sets are uint64 arrays ``(n, 1024)``: one line per container with high half ``highs[i]``."""

    def __init__(self, highs: NDArray[np.int64], rows: int) -> None:
        self._highs, self._rows = highs, rows
        self._raw_highs = highs.astype("<u2").tobytes()

    def load(self, data: bytes | memoryview) -> NDArray[np.uint64]:
        count = len(self._highs)
        if len(data) == 8 + (8 + 8 * WORDS) * count:
            # All containers are bitsets, and the same ones: the usual case, without a walk.
            head = np.frombuffer(data, "<u4", 2).tolist()
            table = np.frombuffer(data, "<u2", 2 * count, 8).reshape(count, 2)
            same = table[:, 0].tobytes() == self._raw_highs
            if head == [SERIAL_COOKIE_NO_RUNS, count] and same and table[:, 1].min() >= 4096:
                return np.frombuffer(data, "<u8", WORDS * count, 8 + 8 * count).reshape(-1, WORDS)
        layout = Layout.from_bytes(data)
        if layout.length != len(data):
            raise FormatError(
                "a bitmap of another length", expected=f"{len(data)} bytes", got=layout.length
            )
        at = np.searchsorted(self._highs, layout.highs)
        if len(at) and (at[-1] == count or not np.array_equal(self._highs[at], layout.highs)):
            raise FormatError("a slice holds rows that the index does not")
        words = np.zeros((count, WORDS), np.uint64)
        for container, line in enumerate(at.tolist()):
            words[line] = _words(data, layout, container)
        return words

    def of(self, rows: BitMap) -> NDArray[np.uint64]:
        mask = np.zeros((len(self._highs), 1 << 16), np.bool_)
        for line, high in enumerate((self._highs << 16).tolist()):
            inner = rows & BitMap(range(high, high + (1 << 16)))
            mask[line, np.array(inner.to_array(), np.int64) - high] = True
        return np.packbits(mask, axis=1, bitorder="little").view("<u8")

    def meet(self, a: Any, b: Any) -> Any:
        return a & b

    def join(self, a: Any, b: Any) -> Any:
        return a | b

    def minus(self, a: Any, b: Any) -> Any:
        return a & ~b

    def count(self, a: Any) -> int:
        return int(np.bitwise_count(a).sum(dtype=np.int64))

    def rows(self, a: NDArray[np.uint64]) -> BitMap:
        found = roaring.of_words(a, self._highs)
        if found and found.max() >= self._rows:
            raise FormatError("a row past the last", expected=f"below {self._rows}")
        return found


def _words(data: bytes | memoryview, layout: Layout, container: int) -> NDArray[np.uint64]:
    start, kind = int(layout.starts[container]), int(layout.kinds[container])
    if kind == BITSET:
        return np.frombuffer(data, "<u8", WORDS, start)
    if kind == RUNS:
        firsts, lasts = roaring.runs_of(data, start)
        if len(lasts) and int(lasts.max()) > 0xFFFF:
            raise FormatError("a run ends past its container")
        change = np.zeros((1 << 16) + 1, np.int32)
        np.add.at(change, firsts, 1)
        np.add.at(change, lasts + 1, -1)
        mask = np.cumsum(change[:-1]) > 0
    else:
        mask = np.zeros(1 << 16, np.bool_)
        mask[np.frombuffer(data, "<u2", int(layout.cards[container]), start)] = True
    return np.packbits(mask, bitorder="little").view("<u8")
