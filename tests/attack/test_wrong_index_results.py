"""Where Xskipper loses rows, this does not: the cases of its own golden data, over single kinds.

1. ``<>`` over bounds; 2. NaN and bounds; 3. zeros in value lists; 4. a column indexed as one type
and asked as another; 5. what only identity can tell is proved with the fact store.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from skipstone.indexes.minmax import MinMax
from skipstone.indexes.valuelist import ValueList
from skipstone.predicate.tree import Op
from tests.build.built import Indexed


@pytest.mark.parametrize("kind", [MinMax, ValueList])
def test_unequal_loses_no_file_that_has_another_value(kind: type[MinMax] | type[ValueList]) -> None:
    # File 0 holds 0 to 10, file 1 nothing but 5. The original skipped file 0 on `id <> 5`.
    indexed = Indexed(kind("id"), [pa.array(range(11)), pa.array([5, 5])])
    assert indexed.may(Op.NE, 5) == [0]
    assert indexed.may(Op.NE_OR_NULL, 5) == [0]
    assert indexed.may(Op.NOT_IN, 5) == [0]


def test_nan_is_above_every_bound() -> None:
    # File 0 holds 1.0 and NaN, file 1 nothing but NaN. The original skipped both on `d > 100`.
    nan = float("nan")
    indexed = Indexed(MinMax("d"), [pa.array([1.0, nan]), pa.array([nan, nan]), pa.array([1.0])])
    assert indexed.may(Op.GT, 100.0) == [0, 1]
    assert indexed.may(Op.EQ, nan) == [0, 1]
    assert indexed.may(Op.IN, nan, 7.0) == [0, 1]


def test_bounds_without_counts_are_not_taken_for_all_null() -> None:
    # As the original stored a file of NaN alone, from Parquet's statistics: two nulls.
    indexed = Indexed(MinMax("d"), [pa.array([None], pa.float64())], foreign=True)
    assert indexed.may(Op.GT, 100.0) == [0]


def test_zeros_of_both_signs_are_one_value() -> None:
    # File 0 holds -0.0, file 1 holds 0.0. The original skipped file 0 on `d = 0.0`.
    indexed = Indexed(ValueList("d"), [pa.array([-0.0]), pa.array([0.0]), pa.array([1.0])])
    assert indexed.may(Op.EQ, 0.0) == [0, 1]
    assert indexed.may(Op.EQ, -0.0) == [0, 1]
    assert indexed.may(Op.NE, 0.0) == [2]


@pytest.mark.parametrize("kind", [MinMax, ValueList])
def test_a_column_of_another_type_now_is_not_asked(kind: type[MinMax] | type[ValueList]) -> None:
    # Indexed as int: 2 and 10. Asked as string: "10" < "2", and the original skipped the file.
    indexed = Indexed(kind("c"), [pa.array([2, 10], pa.int32())])
    answer = indexed.ask(indexed.leaf(Op.LT, "2", type=pa.string()))
    assert answer.bounds is None
    assert "was int32" in answer.reasons[0].text
