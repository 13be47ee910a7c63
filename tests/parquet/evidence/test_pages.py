"""Pages: units between the borders of any predicate column, and what the page index skips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.format.enums import BoundaryOrder
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.page_index import ColumnIndex, OffsetIndex
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Cause
from tests.parquet.evidence.written import Written, rewritten, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.format.metadata import ColumnChunk, FileMetaData


def equals(value: int) -> Leaf:
    return Leaf("c", pa.int64(), Op.EQ, (value,))


def mixed(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Numbers below ``count`` in an order that no page bounds narrow."""
    return np.arange(count) * 7919 % count


def test_pages_of_a_sorted_column() -> None:
    """Two row groups of fifty ascending numbers, five to a page."""
    table = pa.table({"c": np.arange(100)})
    written = Written(write(table, group=50, page=5))
    plan = written.plan(bind(parse_sql("c = 42"), table.schema))
    detail = plan.details[0]
    assert detail.rows is not None
    assert detail.rows.positions().tolist() == [40, 41, 42, 43, 44]
    assert detail.row_groups == (0,)
    # Both indexes of one row group, in one wave, and nothing of the other.
    assert len(written.fetching.asked) == 2
    assert written.pages.requests == 2
    assert written.pages.bytes_read == sum(each.length for each in written.fetching.asked)
    again = written.plan(bind(parse_sql("c BETWEEN 38 AND 41"), table.schema)).details[0]
    assert again.rows is not None
    assert again.rows.positions().tolist() == list(range(35, 45))
    assert len(written.fetching.asked) == 2
    exact = written.plan(bind(parse_sql("c BETWEEN 35 AND 44"), table.schema)).details[0]
    assert exact.exact


def test_units_lie_in_one_page_of_every_column() -> None:
    """Two columns, pages of four rows and of ten bytes or so: their borders differ."""
    table = pa.table({"a": np.arange(40), "b": [f"{i:05}" * (i % 7) for i in range(40)]})
    data = write(table, group=20, page=20, data_page_size=64, use_dictionary=False)
    written = Written(data)
    columns = frozenset(("a", "b"))
    written.units(columns, pages=True)
    borders = {
        column: written.files[0].first_rows(1, written.files[0].columns[column])
        for column in columns
    }
    assert borders["a"] is not None
    assert borders["b"] is not None
    assert borders["a"].tolist() != borders["b"].tolist()
    units = written.units(columns, pages=True)
    second = units.where(units.ordinal == 1)
    assert (second.first_row - 20).tolist() == sorted(
        {*borders["a"].tolist(), *borders["b"].tolist()}
    )
    assert second.rows.sum() == 20
    # One column alone is cut at its own borders only.
    alone = written.units(frozenset("a"), pages=True)
    assert len(alone.where(alone.ordinal == 1)) == len(borders["a"])
    for text in (
        "a = 33",
        "b = '00033000330003300033'",
        "a > 30 OR b < '00005'",
        "a <> 3 AND b <> ''",
    ):
        plan = written.plan(bind(parse_sql(text), table.schema))
        kept = set(written.kept(plan)[0].tolist())
        expected = {
            i for i, row in enumerate(table.to_pylist()) if _TRUTH[text](row["a"], row["b"])
        }
        assert expected <= kept


_TRUTH: dict[str, Callable[[int, str], bool]] = {
    "a = 33": lambda a, b: a == 33,
    "b = '00033000330003300033'": lambda a, b: b == "00033" * 4,
    "a > 30 OR b < '00005'": lambda a, b: a > 30 or b < "00005",
    "a <> 3 AND b <> ''": lambda a, b: a != 3 and b != "",
}


def test_null_pages() -> None:
    """Pages of two rows: numbers, nulls, one of each, numbers."""
    table = pa.table({"c": pa.array([1, 2, None, None, 5, None, 7, 8], pa.int64())})
    written = Written(write(table, page=2))
    for op, values, may, must in (
        (Op.IS_NULL, (), [0, 1, 1, 0], [0, 1, 0, 0]),
        (Op.NOT_NULL, (), [1, 0, 1, 1], [1, 0, 0, 1]),
        (Op.LT, (6,), [1, 0, 1, 0], [1, 0, 0, 0]),
        (Op.NE_OR_NULL, (5,), [1, 1, 1, 1], [1, 1, 0, 1]),
        (Op.EQ, (5,), [0, 0, 1, 0], [0, 0, 0, 0]),
    ):
        asked = Leaf("c", pa.int64(), op, values)
        assert written.may("page index", asked) == list(map(bool, may)), op
        assert written.must("page index", asked) == list(map(bool, must)), op


def test_a_boundary_order_never_makes_pages_disjoint() -> None:
    """Ascending bounds that overlap: 0 to 9, 5 to 14, 9 to 20; 9 may be in all of them."""
    table = pa.table({"c": [0, 9, 5, 14, 9, 20]})
    data = write(table, page=2)
    written = Written(data)
    assert written.may("page index", equals(9)) == [True] * 3
    index = written.files[0].column_indexes[0, 0]
    assert getattr(index, "boundary_order", None) is BoundaryOrder.ASCENDING
    # An order that nobody knows changes nothing.
    other = with_index(data, lambda ci: replace(ci, boundary_order=7), lambda oi: oi)
    assert Written(other).may("page index", equals(3)) == [True, False, False]


def with_index(
    data: bytes,
    bounds: Callable[[ColumnIndex], ColumnIndex | None],
    places: Callable[[OffsetIndex], OffsetIndex | None],
) -> bytes:
    """The file with another page index of its first column, before another footer."""
    chunk = read_metadata(data).row_groups[0].columns[0]
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert chunk.offset_index_offset is not None
    index = None
    if chunk.column_index_offset is not None:
        index = bounds(ColumnIndex.from_bytes(data[chunk.column_index_offset :]))
    offsets = places(OffsetIndex.from_bytes(data[chunk.offset_index_offset :]))
    one = b"" if index is None else index.to_bytes()
    two = b"" if offsets is None else offsets.to_bytes()

    def change(metadata: FileMetaData) -> FileMetaData:
        group = metadata.row_groups[0]
        first: ColumnChunk = replace(
            group.columns[0],
            column_index_offset=None if index is None else end,
            column_index_length=None if index is None else len(one),
            offset_index_offset=None if offsets is None else end + len(one),
            offset_index_length=None if offsets is None else len(two),
        )
        return replace(
            metadata,
            row_groups=(
                replace(group, columns=(first, *group.columns[1:])),
                *metadata.row_groups[1:],
            ),
        )

    made = rewritten(data, change)
    return made[:end] + one + two + made[end:]


def test_an_offset_index_alone_cuts_and_says_nothing() -> None:
    table = pa.table({"c": np.arange(10)})
    written = Written(with_index(write(table, page=2), lambda ci: None, lambda oi: oi))
    assert len(written.units(frozenset("c"), pages=True)) == 5
    answer = written.ask("page index", equals(3))
    assert answer.bounds is None
    assert answer.reasons[0].cause is Cause.ABSENT


def test_a_column_index_alone_is_of_no_use() -> None:
    table = pa.table({"c": np.arange(10)})
    written = Written(with_index(write(table, page=2), lambda ci: ci, lambda oi: None))
    assert len(written.units(frozenset("c"), pages=True)) == 0
    plan = written.plan(bind(parse_sql("c = 3"), table.schema))
    assert plan.keep.tolist() == [True]


DAMAGED: list[Callable[[ColumnIndex], ColumnIndex]] = [
    # One page less than the offset index has.
    lambda ci: replace(
        ci,
        null_pages=ci.null_pages[1:],
        min_values=ci.min_values[1:],
        max_values=ci.max_values[1:],
        null_counts=ci.null_counts[1:] if ci.null_counts else None,
        definition_level_histograms=None,
    ),
    lambda ci: replace(ci, min_values=ci.min_values[1:]),
    lambda ci: replace(ci, null_counts=(1,)),
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_column_index_that_contradicts_the_pages_says_nothing(
    damage: Callable[[ColumnIndex], ColumnIndex],
) -> None:
    table = pa.table({"c": np.arange(10)})
    written = Written(with_index(write(table, page=2), damage, lambda oi: oi))
    answer = written.ask("page index", equals(3))
    assert answer.bounds is None
    assert answer.reasons[0].cause is Cause.CORRUPT
    plan = written.plan(bind(parse_sql("c = 3"), table.schema))
    assert written.kept(plan)[0].tolist() == list(range(10))


def test_null_pages_that_are_none() -> None:
    """A writer without statistics calls every page a null page, and counts -1 nulls."""
    table = pa.table({"c": np.arange(10)})
    for counts in ((-1,) * 5, (0,) * 5, (1,) * 5):

        def lie(ci: ColumnIndex, counts: tuple[int, ...] = counts) -> ColumnIndex:
            return replace(
                ci,
                null_pages=(True,) * 5,
                min_values=(b"",) * 5,
                max_values=(b"",) * 5,
                null_counts=counts,
                definition_level_histograms=None,
            )

        data = with_index(write(table, page=2), lie, lambda oi: oi)
        if counts[0] > 0:
            # The chunk counts none: the index is not its own.
            assert Written(data).ask("page index", equals(3)).bounds is None
        else:
            assert written_may(data, equals(3)) == [True] * 5
    # In a column that cannot be null no page is.
    fields = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    required = write(table.cast(fields), page=2)
    data = with_index(
        required,
        lambda ci: replace(ci, null_pages=(True,) * 5, null_counts=None),
        lambda oi: oi,
    )
    assert written_may(data, equals(3)) == [True] * 5


def written_may(data: bytes, leaf: Leaf) -> list[bool]:
    return Written(data).may("page index", leaf)


def test_places_outside_the_file_or_the_rows_are_not_used() -> None:
    table = pa.table({"c": np.arange(10)})
    data = write(table, page=2)

    def far(oi: OffsetIndex) -> OffsetIndex:
        last = replace(oi.page_locations[-1], offset=1 << 40)
        return replace(oi, page_locations=(*oi.page_locations[:-1], last))

    def late(oi: OffsetIndex) -> OffsetIndex:
        last = replace(oi.page_locations[-1], first_row_index=11)
        return replace(oi, page_locations=(*oi.page_locations[:-1], last))

    for places in (far, late):
        written = Written(with_index(data, lambda ci: ci, places))
        assert len(written.units(frozenset("c"), pages=True)) == 0
        plan = written.plan(bind(parse_sql("c = 3"), table.schema))
        assert written.kept(plan)[0].tolist() == list(range(10))


def test_bytes_that_do_not_come_lose_nothing() -> None:
    table = pa.table({"c": mixed(100)})
    written = Written(write(table, page=10))

    def broken(ranges: Any) -> Any:
        raise OSError("the store is down")

    written.pages.fetch = broken
    plan = written.plan(bind(parse_sql("c = 3"), table.schema))
    assert written.kept(plan)[0].tolist() == list(range(100))
    # Nothing was remembered: the next one reads it.
    written.pages.fetch = written.fetching
    table_sorted = Written(write(pa.table({"c": np.arange(100)}), page=10))
    table_sorted.pages.fetch = broken
    table_sorted.plan(bind(parse_sql("c = 3"), table.schema))
    table_sorted.pages.fetch = table_sorted.fetching
    plan = table_sorted.plan(bind(parse_sql("c = 3"), table.schema))
    assert len(table_sorted.kept(plan)[0]) == 10


def test_several_files_at_once() -> None:
    """Files of 0 to 99, of 100 to 199 without a page index, and of 50 to 149."""
    parts = [np.arange(0, 100), np.arange(100, 200), np.arange(50, 150)]
    tables = [pa.table({"c": part}) for part in parts]
    written = Written(
        write(tables[0], group=50, page=5),
        write(tables[1], group=50),
        write(tables[2], group=20, page=10),
    )
    plan = written.plan(bind(parse_sql("c BETWEEN 97 AND 112"), tables[0].schema))
    kept = written.kept(plan)
    assert kept[0].tolist() == list(range(95, 100))
    assert kept[1].tolist() == list(range(50))
    assert kept[2].tolist() == list(range(40, 70))
