"""``minmax``, ``valuelist`` and ``bloomfilter`` as a foreign store has them: only what is certain.

A row of such a store says nothing of the schema and the reader's options that the file was read
with. So a column is compared only where its type in the query is exactly the type of the stored
values; the one of a Bloom filter is not stored, but Xskipper builds them over integers (which it
widens to 64 bits) and over strings only, and the two never meet in one column of one Parquet file.

Counts of rows and nulls are not stored either. A row of no value at all is told by a null count
equal to a row count of 1: that all of its rows are null, however many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.bounds import Answer, Cause, Reason
from skipstone.formats.xskipper.rows import BloomRows, MinMaxRows, ValueListRows
from skipstone.index.bloom import Bloom
from skipstone.index.minmax import MinMax
from skipstone.index.perfile import PerFile, Rows
from skipstone.index.valuelist import ValueList
from skipstone.predicate.types import spark_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.bounds import BoolArray
    from skipstone.formats.xskipper.rows import IndexRows
    from skipstone.predicate.tree import Leaf

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


def stored_values(rows: IndexRows) -> tuple[list[pa.Array], BoolArray]:
    """The values as the kind stores them, in pieces, null where nothing is known; and where there
    is no value at all in the file.

    Columns that were not understood give no pieces.
    """
    if isinstance(rows, MinMaxRows):
        ends = [rows.minimum, rows.maximum]
        known = rows.empty | np.any([end.is_valid().to_numpy(False) for end in ends], axis=0)
        fields = [pa.field(name, ends[0].type) for name in ("min", "max")]
        return [pa.StructArray.from_arrays(ends, fields=fields, mask=pa.array(~known))], rows.empty
    if isinstance(rows, ValueListRows):
        return [rows.values], rows.empty
    if isinstance(rows, BloomRows):
        return rows.blobs.chunks, np.zeros(len(rows.blobs), np.bool_)
    return [], np.zeros(0, np.bool_)


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
