"""Arrays made and read without ``pa.array`` and ``to_numpy`` are those of Arrow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import _arrays
from skipstone.facts.match import units_per_second
from skipstone.parquet.reading.row_ranges import take_rows

if TYPE_CHECKING:
    from pathlib import Path


def test_units_of_times() -> None:
    units = pa.chunked_array([["ns", "s"], [None, "weeks", "us", "ms"]], pa.large_string())
    assert units_per_second(units).tolist() == [10**9, 1, 0, 0, 10**6, 10**3]


STRINGS = ["long " * 5, None, "x", "", "y", "long " * 6]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3, 4, 5, 6]),
        pa.array(STRINGS),
        pa.array(STRINGS, pa.string_view()),
        pa.array(STRINGS).dictionary_encode(),
        pa.array([[1], None, [], [2, 3], [4], [None]]),
        pa.array([{"a": 1}, None, {"a": None}, {"a": 2}, {"a": 3}, {"a": 4}]),
        pa.array([None] * 6),
        pa.array([True, None, False, True, True, False]),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("at", [[], [0], [5, 1], [2, 2, 3, 0]], ids=str)
def test_rows_are_taken(column: pa.Array, at: list[int]) -> None:
    table = pa.table({"c": pa.chunked_array([column.slice(0, 2), column.slice(2)])})
    taken = take_rows(table, np.array(at, np.int64))
    values = column.to_pylist()
    assert taken.schema == table.schema
    assert taken.column(0).to_pylist() == [values[row] for row in at]
    taken.validate(full=True)


def test_facts_match_a_listing(tmp_path: Path) -> None:
    """Ten files in several parts: one is gone, one replaced, one new and without facts."""
    root = tmp_path / "t"
    root.mkdir()
    for number in range(10):
        pq.write_table(pa.table({"x": [number]}), root / f"{number}.parquet")
        if number in (3, 6, 9):
            skipstone.Table(str(root)).build(indexes=["x:minmax"])
    (root / "0.parquet").unlink()
    pq.write_table(pa.table({"x": [1, 50]}), root / "1.parquet")
    pq.write_table(pa.table({"x": [8]}), root / "new.parquet")
    table = skipstone.Table(str(root))
    plan = table.plan("x >= 8", inside=False)
    assert [os.path.basename(path) for path in plan.paths] == [  # noqa: PTH119
        "1.parquet",
        "8.parquet",
        "9.parquet",
        "new.parquet",
    ]
    assert (plan.facts_fresh, plan.facts_stale, plan.facts_missing) == (8, 1, 1)
    assert table.store.snapshot().match(table.listing()).orphaned == 1
    assert sorted(table.query("x >= 8")["x"].to_pylist()) == [8, 8, 9, 50]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5, dtype=np.int64),
        np.arange(0, dtype=np.int32),
        np.array([True, False, True] * 5),
        np.array([0.5, np.nan, -0.0]),
        np.arange(10, dtype=np.uint8)[::2],
    ],
    ids=lambda values: f"{values.dtype}-{len(values)}",
)
def test_arrays_are_those_of_arrow(values: Any) -> None:
    made = _arrays.arrow(values)
    made.validate(full=True)
    assert made.type == pa.array(values).type
    np.testing.assert_array_equal(_arrays.numbers(made), values)
    np.testing.assert_array_equal(_arrays.numbers(made.slice(1)), values[1:])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3, None], pa.int16()),
        pa.array([None, 0.5, None, 1.5]),
        pa.array([True, None, False, None]),
        pa.nulls(4, pa.int64()),
        pa.array([1, 2, 3, 4], pa.uint32()),
    ],
    ids=str,
)
@pytest.mark.parametrize("start", [0, 1, 4])
def test_nulls_become_a_number(column: pa.Array, start: int) -> None:
    piece = column.slice(start)
    expected = [value if value is not None else 0 for value in piece.to_pylist()]
    assert _arrays.numbers(piece).tolist() == expected
    assert _arrays.validity(piece).tolist() == [v is not None for v in piece.to_pylist()]


def test_validity_of_other_arrays() -> None:
    assert _arrays.validity(pa.nulls(2)).tolist() == [False, False]
    assert _arrays.validity(pa.array(["a", None, "b"]).slice(1)).tolist() == [False, True]
    assert _arrays.validity(pa.array([], pa.string())).tolist() == []


def test_distinct_values_and_where_each_is_first() -> None:
    values, first = _arrays.distinct_at(np.array([3, 1, 3, 2, 1]))
    assert (values.tolist(), first.tolist()) == ([1, 2, 3], [1, 3, 0])
    values, first = _arrays.distinct_at(np.array([], np.int64))
    assert (values.tolist(), first.tolist()) == ([], [])


def test_byte_strings_as_arrow() -> None:
    assert _arrays.arrow_bytes([b"a", b"", b"long"]).to_pylist() == [b"a", b"", b"long"]
    assert _arrays.arrow_bytes([]).to_pylist() == []


def test_a_table_without_rows() -> None:
    schema = pa.schema([pa.field("a", pa.int8(), metadata={"k": "v"})], {"m": "n"})
    assert _arrays.no_rows(schema).equals(schema.empty_table(), check_metadata=True)
    assert _arrays.whole(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))


@pytest.mark.parametrize("type", [pa.string(), pa.large_string()])
def test_letters_change_their_case_wherever_an_array_lies(type: pa.DataType) -> None:
    """A slice that was cast begins at its data's middle: Arrow's kernels read outside of it."""
    words = pa.array(["Éa", None, "aBc", "ABC", "", "xyZ"])
    for start in range(len(words)):
        for count in range(len(words) - start):
            part = words.slice(start, count)
            for array in (part, part.cast(type), part.view(pa.binary()).cast(type)):
                for upper in (False, True):
                    found = _arrays.in_ascii_case(array, upper=upper)
                    found.validate(full=True)
                    ascii = [word and word.replace("É", "?") for word in part.to_pylist()]
                    wanted = [word and (word.upper() if upper else word.lower()) for word in ascii]
                    assert [w and w.replace("É", "?") for w in found.to_pylist()] == wanted
