"""Bounds and null counts of one column over the row groups of many ``_pm``s at once.

What ``index/parquet/chunk_bounds.py`` concludes of a footer is concluded here of CHUNKs, by the
same rules: a chunk that does not hold one value per row contradicts itself, and so does one that
has bounds and nothing but nulls; decimals in byte arrays count where their bounds are exact. Bounds
are in Parquet's own order of the type (a ``_pm`` has no other), NaN is not counted. All files whose
column is stored alike are one array; only what lies out of line is gathered file by file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.evidence.stored_values import Form, no_keys
from skipstone.parquet.evidence.value_bounds import Order, ValueBounds
from skipstone.parquet.format.enums import Type
from skipstone.questdb.format.statistics import ChunkStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.predicate.literals import Keys
    from skipstone.questdb.format.layout import Bools, Bytes, Ints
    from skipstone.questdb.format.statistics import End

__all__ = ["chunk_bounds"]

_WIDTHS = {Type.BOOLEAN: 1, Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}
_BYTES = (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)


def chunk_bounds(stored: Stored, parts: Sequence[ChunkStats], rows: Ints) -> ValueBounds:
    """Bounds of the row groups of all ``parts``, in their order; each part is one column of a file,
    of shape (row groups, 1). ``rows`` int64 are those of all row groups.

    ``FormatError`` where a statistic lies outside its file.
    """
    whole = parts[0] if len(parts) == 1 else _side_by_side(parts)
    chunks = whole.chunks
    one_each = chunks["NUM_VALUES"][:, 0] == rows.astype(np.uint64)
    counts, counted = whole.null_count()
    nulls = counts[:, 0].astype(np.int64)
    if not stored.column.max_definition_level:
        nulls = np.zeros_like(rows)
        counted = np.ones_like(counted)
    sure = counted[:, 0] & one_each
    if not sure.all():
        nulls = np.where(sure, nulls, -1)
    low, known_low = _bytes(stored, "MIN", whole, parts)
    high, known_high = _bytes(stored, "MAX", whole, parts)
    if stored.form is Form.DECIMAL and stored.column.type in _BYTES:
        known_low &= whole.exact("MIN")[:, 0]
        known_high &= whole.exact("MAX")[:, 0]
    odd = (nulls == rows) & (rows > 0) & (known_low | known_high)
    if odd.any():
        nulls = np.where(odd, -1, nulls)
    sound = one_each & ~odd
    known_low, known_high = known_low & sound, known_high & sound
    return ValueBounds.of(
        stored,
        Order.TYPE,
        lo=_keys(stored, low, known_low, upper=False),
        hi=_keys(stored, high, known_high, upper=True),
        rows=rows,
        nulls=nulls,
        nans=np.full(len(rows), -1, np.int64),
    )


def _side_by_side(parts: Sequence[ChunkStats]) -> ChunkStats:
    """The chunks of all parts. What lies out of line lies in as many files."""
    chunks = np.concatenate([part.chunks for part in parts])
    none = np.zeros(len(chunks), np.int64)
    return ChunkStats(chunks=chunks, out_of_line=none, data=memoryview(b""), end=0)


def _keys(stored: Stored, found: ByteArrays | Bytes, known: Bools, *, upper: bool) -> Keys:
    if isinstance(found, ByteArrays):
        return stored.keys(found, known, upper=upper)
    if stored.form is Form.NONE:
        return no_keys(stored.type, len(found))
    return stored.fixed_keys(found, known, upper=upper)


def _bytes(
    stored: Stored, end: End, whole: ChunkStats, parts: Sequence[ChunkStats]
) -> tuple[ByteArrays | Bytes, Bools]:
    """The bytes of one bound of each row group, ``(row groups, width)`` where they are as many of
    each, and where there is one."""
    width = _WIDTHS.get(stored.column.type, 0)
    if stored.column.type is Type.FIXED_LEN_BYTE_ARRAY and stored.column.type_length <= 8:
        width = stored.column.type_length
    if width:
        slots, valid = whole.fixed_bytes(end, width)
        if stored.column.type is not Type.FIXED_LEN_BYTE_ARRAY:
            return np.ascontiguousarray(slots[:, 0]), valid[:, 0]
        offsets = np.arange(0, width * len(valid) + 1, width, dtype=np.int64)
        return ByteArrays(np.ascontiguousarray(slots).reshape(-1), offsets), valid[:, 0]
    found = [part.blobs(end) for part in parts]
    joined = ByteArrays.concat([ByteArrays(data, offsets) for data, offsets, _ in found])
    return joined, np.concatenate([valid[:, 0] for _, _, valid in found])
