"""Bit slices: which rows have bit j of their code set. Comparing, choosing the first k, writing.

A ``range-bitmap`` and each half of a ``bsi`` hold, for codes of m bits, the set of rows that exist
(``ebm``) and one set per bit. Source of the algorithms: O'Neil and Quass, Improved query
performance with variant indexes, SIGMOD 1997.

Comparing codes with a constant takes one operation per slice over all rows of a file. ``Dense``
sets are words: if the slices are bitsets, as for values in no order, NumPy works on the words of
the file, without a copy or a check per container. ``Sparse`` sets are Roaring: slices of runs, as
in sorted files, would be far larger as words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

from . import roaring
from .roaring import BITSET, RUNS, SERIAL_COOKIE_NO_RUNS, WORDS, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


# Rows whose bits are split at once, a multiple of 65,536.
_BATCH = 1 << 22


def compare_bits(code: int, bits: int) -> list[int]:
    """The slices that decide whether a code is ``code`` or more: all from its lowest set bit on."""
    low = (code & -code).bit_length() - 1 if code else bits
    return list(range(low, bits))


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """``bits`` slices over the rows ``existing``; ``slice(j)`` gives the rows whose bit j is
    set. All sets are those of ``planes``."""

    planes: Planes
    existing: Any
    bits: int
    slice: Callable[[int], Any]

    def at_least(self, code: int) -> Any:
        """Rows whose code is ``code`` or more. From the lowest set bit upwards: where the bit is 1,
        a row needs it and the previous result; where it is 0, either is enough."""
        if code <= 0:
            return self.planes.copy(self.existing)
        if code >> self.bits:
            return self.planes.none()
        found = None
        for bit in compare_bits(code, self.bits):
            rows = self.slice(bit)
            if found is None:
                found = self.planes.copy(rows)
            elif code >> bit & 1:
                found = self.planes.meet(found, rows)
            else:
                found = self.planes.join(found, rows)
        return self.planes.meet(found, self.existing)

    def equal(self, code: int) -> Any:
        """Rows with this code: those in every slice of its set bits, and in no other slice."""
        if code < 0 or code >> self.bits:
            return self.planes.none()
        found, others = self.planes.copy(self.existing), None
        for bit in range(self.bits):
            rows = self.slice(bit)
            if code >> bit & 1:
                found = self.planes.meet(found, rows)
            elif others is None:
                others = self.planes.copy(rows)
            else:
                others = self.planes.join(others, rows)
        return found if others is None else self.planes.minus(found, others)

    def between(self, low: int, stop: int, cardinality: int) -> Any:
        """Rows whose code is from ``low`` to before ``stop``; codes are below ``cardinality``."""
        if low >= stop:
            return self.planes.none()
        if low + 1 == stop and (low > 0 or stop < cardinality):
            return self.equal(low)
        found = self.at_least(low)
        return found if stop >= cardinality else self.planes.minus(found, self.at_least(stop))

    def first(self, k: int, base: Any, *, largest: bool, ties: bool) -> BitMap:
        """The ``k`` rows of ``base`` (a subset of the existing ones) with the smallest codes, or
        the largest; all if there are fewer. If rows tie for the last places, those with the
        greatest positions are taken, or all of them with ``ties``."""
        planes = self.planes
        sure = self.planes.none()
        tied = planes.copy(base)
        taken = 0
        for bit in reversed(range(self.bits)):
            rows = self.slice(bit)
            ahead = planes.copy(tied)
            ahead = planes.meet(ahead, rows) if largest else planes.minus(ahead, rows)
            count = taken + planes.count(ahead)
            if count > k:
                tied = ahead
                continue
            sure, taken = planes.join(sure, ahead), count
            tied = planes.minus(tied, ahead)
            if count == k:
                return planes.rows(sure)
        found, last = planes.rows(sure), planes.rows(tied)
        surplus = taken + len(last) - k
        if surplus > 0 and not ties:
            last = BitMap(last[surplus:]) if surplus < len(last) else BitMap()
        return found | last


def planes_of(
    codes: NDArray[np.integer], rows: NDArray[np.uint32], row_count: int, bits: int
) -> tuple[BitMap, Sequence[BitMap]]:
    """The set of ``rows`` (ascending), and for each bit the set of those whose code has it."""
    existing = BitMap()
    found = [BitMap() for _ in range(bits)]
    at = 0
    for start in range(0, row_count, _BATCH):
        stop = int(np.searchsorted(rows, np.uint64(start + _BATCH)))
        if stop == at:
            continue
        # Containers without a row of the batch cost words in memory, but nothing in the file.
        containers = -(-min(_BATCH, row_count - start) // 65536)
        highs = np.arange(containers) + (start >> 16)
        places = rows[at:stop] - np.uint32(start)
        own = codes[at:stop]
        full = np.zeros(containers << 16, own.dtype)
        mask = np.zeros(containers << 16, np.bool_)
        full[places], mask[places] = own, True
        existing |= roaring.of_words(_pack(mask), highs)
        for bit in range(bits):
            found[bit] |= roaring.of_words(_pack((full >> bit) & 1), highs)
        at = stop
    return existing, found


def _pack(bits: NDArray[Any]) -> NDArray[np.uint64]:
    return np.packbits(bits.astype(np.bool_), bitorder="little").view("<u8").reshape(-1, WORDS)


# Words may take at most this many times the bytes that were read.
_SPREAD = 4


class Planes(Protocol):
    """Operations on sets of rows of one file. A set from ``load`` must not be changed. ``meet``,
    ``join`` and ``minus`` change their first set, so it must come from ``of``, ``copy`` or them."""

    def load(self, data: bytes | memoryview) -> Any:
        """A serialised bitmap, checked; ``FormatError``."""

    def none(self) -> Any:
        """A new empty set."""

    def copy(self, a: Any) -> Any:
        """A new set with the same rows."""

    def of(self, rows: BitMap) -> Any:
        """The set of these rows, all of which must exist."""

    def meet(self, a: Any, b: Any) -> Any:
        """``a`` becomes a ∩ b."""

    def join(self, a: Any, b: Any) -> Any:
        """``a`` becomes a ∪ b."""

    def minus(self, a: Any, b: Any) -> Any:
        """``a`` becomes a without b."""

    def count(self, a: Any) -> int:
        """|a|."""

    def rows(self, a: Any) -> BitMap:
        """The set as a bitmap."""


def planes_for(existing: bytes | memoryview, sizes: Sequence[int], rows: int) -> tuple[Planes, Any]:
    """The operations, dense or sparse, and ``existing`` loaded by them. ``sizes`` are the bytes of
    the slices that will be loaded; ``existing`` is the serialised set of all rows in them."""
    layout = Layout.from_bytes(existing)
    words = len(layout.highs) * 8 * WORDS
    if words and words * max(len(sizes), 1) <= _SPREAD * (sum(sizes) + len(existing)):
        if (int(layout.highs[-1]) << 16) >= rows:
            raise FormatError("a row past the last", expected=f"below {rows}")
        dense = Dense(layout.highs, rows)
        return dense, dense.of_layout(existing, layout)
    sparse = Sparse(rows)
    return sparse, sparse.load(existing)


class Sparse:
    """Sets are ``BitMap``."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def load(self, data: bytes | memoryview) -> BitMap:
        return roaring.read(data, self._rows)

    def none(self) -> BitMap:
        return BitMap()

    def copy(self, a: BitMap) -> BitMap:
        return a.copy()

    def of(self, rows: BitMap) -> BitMap:
        return rows.copy()

    def meet(self, a: BitMap, b: BitMap) -> BitMap:
        a &= b
        return a

    def join(self, a: BitMap, b: BitMap) -> BitMap:
        a |= b
        return a

    def minus(self, a: BitMap, b: BitMap) -> BitMap:
        a -= b
        return a

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
        return self.of_layout(data, Layout.from_bytes(data))

    def among(
        self,
        existing: NDArray[np.uint64],
        slices: Sequence[NDArray[np.uint64]],
        wanted: NDArray[np.bool_],
    ) -> BitMap:
        """Rows whose code ``wanted`` marks: every code is assembled from its bits, which is faster
        than a comparison for each of many wanted ones."""
        found = [np.empty(0, np.uint32)]
        for line, high in enumerate(self._highs.tolist()):
            codes, shifted = np.zeros((2, 1 << 16), np.int32)
            for bit, words in enumerate(slices):
                np.left_shift(_bits(words[line]), np.int32(bit), out=shifted)
                codes |= shifted
            there = _bits(existing[line]).view(np.bool_)
            codes[~there] = 0
            if int(codes.max()) >= len(wanted):
                raise FormatError("a code past the last", expected=f"below {len(wanted)}")
            there &= wanted[codes]
            found.append((np.flatnonzero(there) + (high << 16)).astype(np.uint32))
        rows_found = np.concatenate(found)
        if len(rows_found) and int(rows_found[-1]) >= self._rows:
            raise FormatError("a row past the last", expected=f"below {self._rows}")
        return BitMap(rows_found.data)

    def of_layout(self, data: bytes | memoryview, layout: Layout) -> NDArray[np.uint64]:
        """A serialised bitmap whose layout is known."""
        count = len(self._highs)
        if layout.length != len(data):
            raise FormatError(
                "a bitmap of another length", expected=f"{len(data)} bytes", got=layout.length
            )
        at = np.searchsorted(self._highs, layout.highs)
        if len(at) and (at[-1] == count or not np.array_equal(self._highs[at], layout.highs)):
            raise FormatError("a slice holds rows that the index does not")
        words = np.zeros((count, WORDS), np.uint64)
        flat = layout.kinds == BITSET
        if bool(flat.any()):  # bitsets that follow each other are copied together
            breaks = np.flatnonzero(~flat | (np.diff(at, prepend=-1) != 1))
            for group in np.split(np.arange(len(at)), breaks):
                inner = group[flat[group]]
                if len(inner):
                    start, lines = int(layout.starts[inner[0]]), int(at[inner[0]])
                    raw = np.frombuffer(data, "<u8", WORDS * len(inner), start)
                    words[lines : lines + len(inner)] = raw.reshape(-1, WORDS)
        for container in np.flatnonzero(~flat).tolist():
            words[at[container]] = _words(data, layout, container)
        return words

    def of(self, rows: BitMap) -> NDArray[np.uint64]:
        data = bytes(rows.serialize())
        return self.of_layout(data, Layout.from_bytes(data))

    def none(self) -> Any:
        return np.zeros((len(self._highs), WORDS), np.uint64)

    def copy(self, a: Any) -> Any:
        return a.copy()

    def meet(self, a: Any, b: Any) -> Any:
        return np.bitwise_and(a, b, out=a)

    def join(self, a: Any, b: Any) -> Any:
        return np.bitwise_or(a, b, out=a)

    def minus(self, a: Any, b: Any) -> Any:
        return np.bitwise_and(a, ~b, out=a)

    def count(self, a: Any) -> int:
        return int(np.bitwise_count(a).sum(dtype=np.int64))

    def rows(self, a: NDArray[np.uint64]) -> BitMap:
        found = roaring.of_words(a, self._highs)
        if found and found.max() >= self._rows:
            raise FormatError("a row past the last", expected=f"below {self._rows}")
        return found


def _bits(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(words.view(np.uint8), bitorder="little")


def _words(data: bytes | memoryview, layout: Layout, container: int) -> NDArray[np.uint64]:
    """The words of an array or of runs."""
    start = int(layout.starts[container])
    if layout.kinds[container] == RUNS:
        firsts, lasts = roaring.runs_of(data, start)
        if len(lasts) and (int(lasts[-1]) > 0xFFFF or not np.all(firsts[1:] > lasts[:-1] + 1)):
            raise FormatError("runs of a bitmap touch, overlap, or end past their container")
        edges = np.zeros(2 * len(firsts) + 2, np.int64)  # 0, first, after last, first … 65,536
        edges[1:-1:2], edges[2:-1:2], edges[-1] = firsts, lasts + 1, 1 << 16
        inside = np.arange(len(edges) - 1) % 2 == 1
        mask = np.repeat(inside, np.diff(edges))
    else:
        mask = np.zeros(1 << 16, np.bool_)
        mask[np.frombuffer(data, "<u2", int(layout.cards[container]), start)] = True
    return np.packbits(mask, bitorder="little").view("<u8")
