"""Row groups and rows under hostile tables: types that drift from file to file, a `_pm` of columns
that only a footer can tell, directories of a live table that were moved by hand.

Whatever is known of files of other types, of missing columns and in another order, no row is lost
and none is counted twice.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import skipstone
from skipstone.errors import FormatError, PredicateError, SkipstoneError
from skipstone.live import LiveTable
from skipstone.planning.explain import Explanation
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.types import column_name
from skipstone.pruning import costs as cost
from tests.live.tables import DAY, rows
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.questdb.evidence.written import with_ids
from tests.strategies import TIMESTAMP, TIMESTAMP_NTZ, columns, predicates
from tests.table.brute_force import build, picked, rows_of

if TYPE_CHECKING:
    from skipstone.predicate.tree import Expr

OLD = (1_700_000_000, 1_700_000_000)

# -- types that drift ------------------------------------------------------------------------------

D = pa.decimal128
#: What files may store where the table has the key.
DRIFT: dict[pa.DataType, list[pa.DataType]] = {
    pa.int64(): [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
    pa.int32(): [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()],
    pa.float64(): [pa.float32(), pa.float64(), pa.int32(), pa.int16()],
    D(20, 0): [D(20, 0), D(9, 0), D(18, 0), pa.uint64(), pa.int64(), pa.uint32()],
    D(12, 4): [D(12, 4), D(5, 2), D(9, 4), D(8, 0), pa.int16()],
    D(38, 10): [D(38, 10), D(20, 0), D(18, 6), D(5, 2), pa.int64()],
    TIMESTAMP_NTZ: [TIMESTAMP_NTZ, pa.date32(), pa.timestamp("ms")],
    TIMESTAMP: [TIMESTAMP, pa.timestamp("ms", "UTC")],
    pa.string(): [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    pa.date32(): [pa.date32()],
}
NAMES = ("c0", "Amount", "with blank", "é", "dot.ted", "x`y")
KINDS = ("minmax", "valuelist", "bloomfilter", "bitmap", "rangebitmap", "paimonbloom")
FILTERABLE = (pa.int32(), pa.int64(), pa.uint32(), pa.string())


@st.composite
def drifting(draw: st.DrawFn) -> tuple[list[tuple[pa.Table, dict[str, Any]]], pa.Table]:
    """Files with their writer's settings, and all rows in the table's types."""
    wide = draw(st.lists(st.sampled_from(list(DRIFT)), min_size=1, max_size=3))
    count = len(wide)
    names = draw(st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True))
    types = dict(zip(names, wide, strict=True))
    files, parts = [], []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 10))
        # The first has every column in its widest type, so that the table's schema is known.
        kept = [n for n in draw(st.permutations(names)) if not number or draw(st.integers(0, 5))]
        table = pa.table(
            {
                name: draw(
                    columns(
                        draw(st.sampled_from(DRIFT[types[name]])) if number else types[name], size
                    )
                )
                for name in kept or names[:1]
            }
        )
        if draw(st.booleans()):
            table = with_ids(table)
        filters = {f.name: {"ndv": 64} for f in table.schema if f.type in FILTERABLE}
        files.append(
            (
                table,
                {
                    "row_group_size": draw(st.sampled_from([1, 3, 8, 1000])),
                    "use_dictionary": draw(st.booleans()),
                    "store_schema": draw(st.booleans()),
                    "store_decimal_as_integer": draw(st.booleans()),
                    "write_page_index": draw(st.booleans()),
                    "bloom_filter_options": draw(st.sampled_from([None, filters or None])),
                },
            )
        )
        there = set(table.column_names)
        parts.append(
            pa.table(
                {
                    name: pc.cast(table.column(name), type)
                    if name in there
                    else pa.nulls(size, type)
                    for name, type in types.items()
                }
            )
        )
    return files, pa.concat_tables(parts)


@st.composite
def drifted_questions(
    draw: st.DrawFn,
) -> tuple[list[tuple[pa.Table, dict[str, Any]]], pa.Table, Expr, list[str], Any]:
    files, whole = draw(drifting())
    indexes = [
        f"{column_name((name,))}:{kind}"
        for name in whole.column_names
        for kind in KINDS
        if draw(st.integers(0, 3)) == 0
    ]
    mode = draw(st.sampled_from(["external", "inlined", "none"]))
    return files, whole, draw(predicates(whole)), indexes, mode


def check_plan(
    plan: skipstone.Plan, files: list[tuple[pa.Table, dict[str, Any]]], expected: list[int]
) -> None:
    """No matching row lies in what the plan leaves out."""
    start = 0
    for file, (table, written) in enumerate(files):
        mine = {row - start for row in expected if start <= row < start + len(table)}
        start += len(table)
        if not mine:
            continue
        assert plan.keep[file]
        detail = plan.details.get(file)
        if detail is not None and detail.row_groups is not None:
            assert {row // written["row_group_size"] for row in mine} <= set(detail.row_groups)
        if detail is not None and detail.rows is not None:
            low, high = detail.rows.ranges()
            kept = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
            assert mine <= set(kept.tolist())
    assert plan.count() in (None, len(expected))


@given(drifted_questions(), st.booleans())
def test_no_row_is_lost_where_types_drift(
    question: tuple[list[tuple[pa.Table, dict[str, Any]]], pa.Table, Expr, list[str], Any],
    always: bool,
) -> None:
    files, whole, where, indexes, mode = question
    note(f"{to_sql(where)} {indexes} {mode}")
    try:
        expected = matching_rows(whole, where)
    except (SparkError, NotModelled, OverflowError):
        assume(False)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if always:  # or else small files are not looked into
            patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
        root = Path(folder) / "t"
        root.mkdir()
        for number, (rows_, written) in enumerate(files):
            path = root / f"{number}.parquet"
            pq.write_table(rows_, path, **written)
            os.utime(path, OLD)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assert set(schema.names) == set(whole.column_names)
        assert all(schema.field(each.name).type == each.type for each in whole.schema)
        if opaques(bind(where, schema)):
            return
        text = to_sql(where)
        for _ in range(2):
            check_plan(table.plan(text, inside=False), files, expected)
            assert table.count(text) == len(expected)
            found = table.query(text, columns=[column_name((n,)) for n in whole.column_names])
            assert rows_of(found) == rows_of(picked(whole, expected))
            build(table, indexes, pm=mode)


def test_first_rows_by_no_key(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(PredicateError, match="no sort key"):
        skipstone.Table(str(tmp_path)).top([], 1)


def test_nothing_is_skipped_where_more_may_be_read_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may be read is a bound, and can be more than the files together."""
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "y.parquet")
    plan = skipstone.Table(str(tmp_path)).plan("a > 1")
    more = property(lambda self: self.bytes_total * 3 // 2)
    monkeypatch.setattr("skipstone.pruning.plan.Plan.bytes_kept", more)
    assert "(0 % skipped)" in str(Explanation(plan))


# -- live tables -----------------------------------------------------------------------------------


def test_a_writer_removes_nothing_where_committed_bytes_are_gone(tmp_path: Path) -> None:
    """The only copy of the rows, under a name that looks as if it had never been committed."""
    root = str(tmp_path / "live")
    skipstone.ingest(rows(1, 2, DAY), root, timestamp="ts", partition_by="day")
    before = (tmp_path / "live" / "1970-01-01" / "data.parquet").read_bytes()
    (tmp_path / "live" / "1970-01-01").rename(tmp_path / "live" / "1970-01-09")
    with pytest.raises(FormatError, match="without its file"):
        skipstone.ingest(rows(3), root)
    assert (tmp_path / "live" / "1970-01-09" / "data.parquet").read_bytes() == before
    (tmp_path / "live" / "1970-01-09").rename(tmp_path / "live" / "1970-01-01")
    skipstone.ingest(rows(3), root)
    assert skipstone.Table(root).count() == 4


@pytest.mark.parametrize("batch_id", [-1, 2**63, "7", 1.5])
def test_a_batch_that_txn_cannot_hold_is_refused(tmp_path: Path, batch_id: Any) -> None:
    root = str(tmp_path / "live")
    skipstone.ingest(rows(1), root, timestamp="ts")
    with LiveTable.open(root) as table, pytest.raises(SkipstoneError, match="batch_id"):
        table.append(rows(2), batch_id=batch_id)
    assert skipstone.Table(root).count() == 1
    with LiveTable.open(root) as table:
        assert table.append(rows(2), batch_id=2**63 - 1).applied
