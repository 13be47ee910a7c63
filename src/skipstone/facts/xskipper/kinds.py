"""``minmax``, ``valuelist`` and ``bloomfilter`` as a foreign store has them: only what is certain.

A row of such a store says nothing of the schema and the reader's options that the file was read
with. So a column is compared only where its type in the query is exactly the type of the stored
values; the one of a Bloom filter is not stored, but Xskipper builds them over integers (which it
widens to 64 bits) and over strings only, and the two never meet in one column of one Parquet file.

Dates before 1582-10-15 and timestamps before 1900 may have been read from files in the hybrid
calendar, as the session of then saw them. A row with one says nothing about its column.

Counts of rows and nulls are not stored either. A row of no value at all is told by a null count
equal to a row count of 1: that all of its rows are null, however many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.types import spark_name
from skipstone.pruning import Answer, Cause, Reason
from skipstone.pruning.calendar import FIRST_DATE, FIRST_TIMESTAMP
from skipstone.pruning.kind import PerFile, Rows
from skipstone.xskipper.format.rows import BloomRows, MinMaxRows, ValueListRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray
    from skipstone.xskipper.format.rows import IndexRows

__all__ = ["foreign_index", "same_values", "stored_values"]

_FILTERED = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())


class _SameType(PerFile):
    """Answers of leaves whose type is that of the stored values, and of no others."""

    def _answer(
        self, leaf: Leaf, rows: Rows, held: BoolArray, lacking: tuple[Reason, ...]
    ) -> Answer:
        type_ = rows.stored.type
        if pa.types.is_null(type_) and leaf.type in _FILTERED:
            rows = Rows(replace(rows.stored, type=leaf.type), rows.at)
        elif leaf.type != type_:
            stored = "integers or strings" if pa.types.is_null(type_) else spark_name(type_)
            text = f"over {stored}, and the column is {spark_name(leaf.type)} here"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text)
        return super()._answer(leaf, rows, held, lacking)


class _MinMax(_SameType, MinMax):
    pass


class _ValueList(_SameType, ValueList):
    pass


class _Bloom(_SameType, Bloom):
    pass


_KINDS: dict[str, type[_MinMax | _ValueList | _Bloom]] = {
    kind.name: kind for kind in (_MinMax, _ValueList, _Bloom)
}


def foreign_index(kind: str, column: str) -> _MinMax | _ValueList | _Bloom | None:
    """The evidence of ``kind`` over ``column``, not read back; ``None`` for other kinds."""
    found = _KINDS.get(kind)
    return None if found is None else found(column)


def stored_values(rows: IndexRows, *, own: bool) -> tuple[list[pa.Array], BoolArray]:
    """The values as the kind stores them, in pieces, null where nothing is known; and where there
    is no value at all in the file. ``own``: Skipstone wrote them, so nothing ancient is doubtful.

    Columns that were not understood give no pieces.
    """
    if isinstance(rows, MinMaxRows):
        ends = [rows.minimum, rows.maximum]
        known = rows.empty | ~_nulls(ends[0]) | ~_nulls(ends[1])
        if not own:
            known &= ~_ancient(rows.minimum)
        fields = [pa.field(name, ends[0].type) for name in ("min", "max")]
        return [pa.StructArray.from_arrays(ends, fields=fields, mask=pa.array(~known))], rows.empty
    if isinstance(rows, ValueListRows):
        return [rows.values if own else _modern_lists(rows.values)], rows.empty
    if isinstance(rows, BloomRows):
        return rows.blobs.chunks, np.zeros(len(rows.blobs), np.bool_)
    return [], np.zeros(0, np.bool_)


def _ancient(values: pa.Array) -> BoolArray:
    if pa.types.is_date32(values.type):
        older = pc.less(values.view(pa.int32()), FIRST_DATE)
    elif pa.types.is_timestamp(values.type):
        older = pc.less(values.view(pa.int64()), FIRST_TIMESTAMP)
    else:
        return np.zeros(len(values), np.bool_)
    return np.asarray(pc.fill_null(older, False).to_numpy(zero_copy_only=False), np.bool_)


def _modern_lists(lists: pa.ListArray) -> pa.Array:
    """The lists, null where one of its values is ancient."""
    ancient = _ancient(lists.flatten())
    if not ancient.any():
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    doubtful = np.zeros(len(lists), np.bool_)
    doubtful[np.repeat(np.arange(len(lists)), lengths)[ancient]] = True
    return pc.if_else(pa.array(doubtful), pa.scalar(None, lists.type), lists)


def same_values(values: pa.Array, a: NDArray[np.int64], b: NDArray[np.int64]) -> BoolArray:
    """For each pair of positions: are the values surely the same? Nulls are; a NaN is not."""
    type_ = values.type
    if pa.types.is_struct(type_):
        children = [same_values(pc.struct_field(values, i), a, b) for i in range(len(type_))]
        both = _nulls(values)[a] == _nulls(values)[b]
        return np.asarray(np.all([both, *children], axis=0), np.bool_)
    left, right = values.take(pa.array(a)), values.take(pa.array(b))
    if not pa.types.is_list(type_):
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
        return np.asarray(equal | (_nulls(left) & _nulls(right)), np.bool_)
    lengths = [pc.list_value_length(each) for each in (left, right)]
    same = same_values(pa.concat_arrays(lengths), np.arange(len(a)), np.arange(len(a)) + len(a))
    at = np.flatnonzero(same & ~_nulls(left))
    flat = [each.take(pa.array(at)).flatten() for each in (left, right)]
    count = len(flat[0])
    apart = ~same_values(pa.concat_arrays(flat), np.arange(count), np.arange(count) + count)
    owner = np.repeat(at, lengths[0].take(pa.array(at)).to_numpy(zero_copy_only=False))
    same[owner[apart]] = False
    return same


def _nulls(array: pa.Array) -> BoolArray:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
