"""A column turned around: each distinct key once, in order, with its rows.

Sorting is by counting, 16 bits of the key at a time, strings by their place among the distinct
ones. Memory is some 30 bytes per row beside the column; there is no object per row or per value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.parquet.encodings.values import ByteArrays

from .keys import Keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .column_keys import KeyColumn
    from .keys import I64
    from .types import PaimonType

__all__ = ["Factors", "factorise", "factors_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """C distinct ``keys``, ascending; those rows hold key c that lie in
    ``rows[starts[c]:starts[c + 1]]`` (uint32, ascending); ``nulls`` hold none."""

    row_count: int
    keys: Keys
    starts: I64
    rows: NDArray[np.uint32]
    nulls: NDArray[np.uint32]

    @property
    def type(self) -> PaimonType:
        """The column's type."""
        return self.keys.type

    def codes(self) -> NDArray[np.int32]:
        """The place of each row's key among the keys, -1 for nulls."""
        codes = np.full(self.row_count, -1, np.int32)
        codes[self.rows] = np.repeat(
            np.arange(len(self.keys), dtype=np.int32), np.diff(self.starts)
        )
        return codes


def factorise(column: KeyColumn) -> Factors:
    """Group the rows by key."""
    values = column.keys.values
    if isinstance(values, np.ndarray):
        low = int(values.min()) if len(values) else 0
        span = int(values.max()) - low if len(values) else 0
        # Unsigned wrap-around gives the distance even where it exceeds 63 bits.
        distance = values.view(np.uint64) - np.uint64(low % 2**64)
        order = _order(distance, span.bit_length())
        ordered = distance[order]
        starts = _starts(ordered)
        keys = Keys(column.type, (ordered[starts[:-1]] + np.uint64(low % 2**64)).view(np.int64))
    else:
        distinct, places = _distinct(values)
        order = _order(places, max(len(distinct) - 1, 0).bit_length())
        starts = _starts(places[order])
        keys = Keys(column.type, distinct)
    return Factors(column.row_count, keys, starts, column.rows[order], column.nulls())


def factors_of(keys: Keys, codes: NDArray[np.int32]) -> Factors:
    """The same from each row's place among the ascending ``keys``, -1 for nulls; every key must
    have a row."""
    rows = np.flatnonzero(codes >= 0)
    order = _order(codes[rows].astype(np.uint64), max(len(keys) - 1, 0).bit_length())
    counts = np.bincount(codes[rows], minlength=len(keys)) if len(rows) else np.empty(0, np.int64)
    starts = np.append(0, np.cumsum(counts)).astype(np.int64)
    nulls = np.flatnonzero(codes < 0).astype(np.uint32)
    return Factors(len(codes), keys, starts, rows[order].astype(np.uint32), nulls)


def _starts(ordered: NDArray[np.uint64]) -> I64:
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return np.append(np.flatnonzero(first), len(ordered))


def _order(values: NDArray[np.uint64], bits: int) -> I64:
    """The stable order of values below ``2 ** bits``. NumPy counts 16-bit values, no wider ones."""
    order = np.arange(len(values)) if not bits else None
    for shift in range(0, bits, 16):
        digit = (values >> np.uint64(shift)).astype(np.uint16)
        if order is None:
            order = np.argsort(digit, kind="stable")
        else:
            order = order[np.argsort(digit[order], kind="stable")]
    return np.asarray(order)


def _distinct(values: ByteArrays) -> tuple[ByteArrays, NDArray[np.uint64]]:
    """The distinct strings in order, and the place of each string among them."""
    import pyarrow.compute as pc

    encoded = values.to_arrow().dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    place = np.empty(len(order), np.uint64)
    place[np.asarray(order)] = np.arange(len(order), dtype=np.uint64)
    distinct = ByteArrays.from_arrow(encoded.dictionary.take(order))
    return distinct, place[np.asarray(encoded.indices)]
