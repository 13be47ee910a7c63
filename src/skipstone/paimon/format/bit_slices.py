"""Bit slices: which rows have bit j of their code set. Comparing, choosing the k first, writing.

A ``range-bitmap`` and each half of a ``bsi`` hold, for codes of m bits, the set of rows that exist
(``ebm``) and one set per bit. Source of the algorithms: O'Neil and Quass, Improved query
performance with variant indexes, SIGMOD 1997.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap

from . import roaring
from .roaring import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .row_planes import Planes

__all__ = ["Slices", "compare_bits", "planes_of"]

# Rows whose bits are taken apart in one go, a multiple of 65,536.
_BATCH = 1 << 22


def compare_bits(code: int, bits: int) -> list[int]:
    """Which slices tell whether a code is ``code`` or more: without the lowest zeros."""
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
        """Rows whose code is ``code`` or more. From the lowest bit that is set upwards: where the
        bit is 1 a row needs it and what was found so far, where it is 0 either will do."""
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
        """Rows with this code: in every slice whose bit it has, and in none of the others."""
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
        the largest; all if there are fewer. Of rows that tie for the last places those with the
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
        # Containers that no row of the batch falls into cost words, but nothing in the file.
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
