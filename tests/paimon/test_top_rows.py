"""Top-N over several files, against sorting all of their rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from skipstone.paimon.format.column_keys import column_of, type_of
from skipstone.paimon.format.range_bitmap import write_range_bitmap
from skipstone.paimon.top_rows import TopCandidate, TopFile, TopRows, top_rows
from skipstone.pruning import RowSet
from skipstone.pruning.kind import Blob
from skipstone.pruning.plan import SortKey
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage import ByteRange

VALUES = {
    pa.int32(): st.integers(-4, 4),
    pa.float64(): st.sampled_from([math.nan, 0.0, -0.0, 1.5, math.inf, -math.inf]),
    pa.string(): st.sampled_from(["", "a", "ab", "b", "é", "𝄞"]),
    pa.bool_(): st.booleans(),
}


class Files:
    """Indexes at paths, and which bytes of them were read."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.columns = columns
        self.blobs = [
            write_range_bitmap(coded(column_of(type_of(each.type), each))) for each in columns
        ]
        self.read: list[ByteRange] = []

    def fetch(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, bytes]:
        self.read += ranges
        return {
            each: self.blobs[int(each.path)][each.offset : each.offset + each.length]
            for each in ranges
        }

    def candidates(
        self, among: Sequence[RowSet | None] = (), lacking: frozenset[int] = frozenset()
    ) -> list[TopCandidate]:
        return [
            TopCandidate(
                file=at,
                rows=len(column),
                among=among[at] if among else None,
                index=None
                if at in lacking
                else TopFile(
                    blob=Blob(path=str(at), length=len(self.blobs[at])),
                    type=type_of(column.type),
                    row_count=len(column),
                ),
                no_nulls=not column.null_count,
            )
            for at, column in enumerate(self.columns)
        ]


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


def ordered(rows: list[tuple[int, int]], columns: Sequence[pa.Array], order: SortKey) -> list[Any]:
    """The sort key of each of these rows, first to last: ``(null, rank)``."""
    values = [columns[file][row].as_py() for file, row in rows]
    present = sorted((rank(v) for v in values if v is not None), reverse=order.descending)
    nulls = [None] * (len(values) - len(present))
    return [*nulls, *present] if order.nulls_first else [*present, *nulls]


def chosen(found: TopRows) -> list[tuple[int, int]]:
    return [
        (file, row)
        for file, rows in found.rows.items()
        for row in (rows.positions().tolist() if rows is not None else ())
    ]


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[pa.Array], int, SortKey]:
    type = draw(st.sampled_from(list(VALUES)))
    columns = [
        pa.array(values, type)
        for values in draw(
            st.lists(st.lists(st.none() | VALUES[type], max_size=12), min_size=1, max_size=5)
        )
    ]
    order = SortKey("c", draw(st.booleans()), draw(st.booleans()))
    return columns, draw(st.integers(0, 15)), order


@given(questions(), st.booleans())
def test_exactly_the_first_rows(question: Any, ties: bool) -> None:
    columns, limit, order = question
    found = top_rows(
        Files(columns).candidates(), limit, order, ties=ties, fetch=Files(columns).fetch
    )
    every = [(file, row) for file, each in enumerate(columns) for row in range(len(each))]
    expected = ordered(every, columns, order)
    rows = chosen(found)
    assert len(set(rows)) == len(rows)
    got = ordered(rows, columns, order)
    if not ties:
        assert found.exact
        assert got == expected[:limit]
        return
    assert not found.exact
    assert got[:limit] == expected[:limit]
    if limit and len(every) > limit:  # all that tie with the last are there
        last = expected[limit - 1]
        assert got.count(last) == expected.count(last)


@given(questions(), st.data())
def test_among_some_rows_and_with_files_that_have_no_index(
    question: Any, data: st.DataObject
) -> None:
    columns, limit, order = question
    among = [
        data.draw(
            st.none() | st.sets(st.integers(0, max(0, len(each) - 1))).map(RowSet.of)
            if len(each)
            else st.none()
        )
        for each in columns
    ]
    lacking = frozenset(data.draw(st.sets(st.integers(0, len(columns) - 1))))
    files = Files(columns)
    found = top_rows(files.candidates(among, lacking), limit, order, fetch=files.fetch)
    every = [
        (file, row)
        for file, each in enumerate(columns)
        for row in range(len(each))
        if among[file] is None or row in among[file]  # type: ignore[operator]
    ]
    rows = chosen(found)
    assert set(rows) <= set(every)
    assert ordered(rows, columns, order)[:limit] == ordered(every, columns, order)[:limit]
    assert found.exact == (not lacking or not limit)


def sorted_files(count: int, rows: int) -> Files:
    """File i holds the numbers from i * rows on."""
    return Files([pa.array(np.arange(rows) + at * rows) for at in range(count)])


def test_files_whose_bounds_are_worse_are_not_asked() -> None:
    """40 files that follow each other: the first wave of 16 has all that is wanted."""
    files = sorted_files(40, 1_000)
    found = top_rows(files.candidates(), 10, SortKey("c", nulls_first=False), fetch=files.fetch)
    assert (found.asked, found.passed, found.total) == (16, 24, 40)
    assert {file: len(rows or ()) for file, rows in found.rows.items()} == {0: 10}
    last = top_rows(files.candidates(), 10, SortKey("c", True, False), fetch=files.fetch)
    assert list(last.rows) == [39]


def test_of_a_file_that_is_passed_over_only_the_head_is_read() -> None:
    files = sorted_files(40, 1_000)
    top_rows(files.candidates(), 10, SortKey("c", nulls_first=False), fetch=files.fetch)
    heads = [each for each in files.read if each.path == "39"]
    assert sum(each.length for each in heads) < len(files.blobs[39]) // 2


def test_where_values_tie_the_last_rows_win() -> None:
    files = Files([pa.array([1, 1, 1, 0])])
    found = top_rows(files.candidates(), 2, SortKey("c"), fetch=files.fetch)
    assert chosen(found) == [(0, 2), (0, 3)]


def test_zeros_of_either_sign_tie() -> None:
    files = Files([pa.array([0.0, -0.0, 5.0]), pa.array([-0.0, 7.0])])
    found = top_rows(files.candidates(), 1, SortKey("c"), ties=True, fetch=files.fetch)
    assert chosen(found) == [(0, 0), (0, 1), (1, 0)]


def test_a_damaged_index_leaves_the_whole_file() -> None:
    files = sorted_files(3, 100)
    files.blobs[1] = b"\0" * len(files.blobs[1])
    found = top_rows(files.candidates(), 5, SortKey("c", nulls_first=False), fetch=files.fetch)
    assert not found.exact
    assert found.rows[1] == RowSet.all(100)
    assert len(found.rows[0] or ()) == 5
    assert len(found.reasons) == 1


def test_bytes_that_do_not_arrive_leave_the_whole_file() -> None:
    files = sorted_files(3, 100)

    def fetch(ranges: Sequence[ByteRange]) -> dict[ByteRange, bytes]:
        return {k: v for k, v in files.fetch(ranges).items() if k.path != "2"}

    found = top_rows(files.candidates(), 5, SortKey("c", True, False), fetch=fetch)
    assert found.rows[2] == RowSet.all(100)
    assert not found.exact


def test_keys_of_other_types_are_not_compared() -> None:
    """Two files of doubles, one of floats: their keys have another order."""
    files = Files([pa.array([1.0]), pa.array([2.0]), pa.array([0.5], pa.float32())])
    found = top_rows(files.candidates(), 1, SortKey("c", nulls_first=False), fetch=files.fetch)
    assert found.rows[2] == RowSet.all(1)
    assert chosen(found) == [(0, 0), (2, 0)]
    widened = Files([pa.array([3], pa.int32()), pa.array([2], pa.int64())])
    narrow = top_rows(widened.candidates(), 1, SortKey("c", nulls_first=False), fetch=widened.fetch)
    assert (chosen(narrow), narrow.exact) == ([(1, 0)], True)


@pytest.mark.parametrize("limit", [0, 3])
def test_no_files(limit: int) -> None:
    found = top_rows([], limit, SortKey("c"), fetch=Files([]).fetch)
    assert (found.rows, found.exact) == ({}, True)


def test_rows_of_several_containers() -> None:
    """200,000 rows in no order, nulls among them, spread over Roaring containers."""
    values = np.random.default_rng(3).permutation(200_000)
    column = pa.array(values, mask=values % 10 == 3)
    files = Files([column.slice(0, 150_000), column.slice(150_000)])
    found = top_rows(files.candidates(), 100, SortKey("c", True, False), fetch=files.fetch)
    got = sorted(files.columns[file][row].as_py() for file, row in chosen(found))
    assert got == sorted(v for v in values.tolist() if v % 10 != 3)[-100:]
    assert BitMap(row for file, row in chosen(found) if file == 0)
