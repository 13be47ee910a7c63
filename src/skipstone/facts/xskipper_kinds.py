"""``minmax``, ``valuelist`` and ``bloomfilter`` of a foreign store as evidence: only certain facts.

A row of such a store does not say with which schema and reader options the file was read. So a
column is compared only where its type in the query is exactly the type of the stored values. The
type behind a Bloom filter is not stored, but Xskipper builds them only over integers (which it
widens to 64 bits) and strings, and one column of one Parquet file never has both.

Counts of rows and nulls are not stored either. A file without any value gets a row count and a null
count of 1: all of its rows are null, however many there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.indexes.bloom import Bloom
from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.types import spark_name
from skipstone.pruning import Answer, Cause, Reason
from skipstone.pruning.kind import PerFile, Rows

if TYPE_CHECKING:
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray


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
