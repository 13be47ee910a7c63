"""Rows, counts and orders of a table by the embedded engine, against brute force.

Every combination of indexes, layouts and writers' settings must give the rows of the oracle; a plan
is advice and may only change how they are come by.
"""

from __future__ import annotations

import math
import os
import tempfile
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import skipstone
from skipstone.errors import SkipstoneError
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.types import column_name
from skipstone.pruning import costs as cost
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.strategies import SPARK_TYPES, layouts, predicates, tables

if TYPE_CHECKING:
    from skipstone.predicate.tree import Expr
    from tests.strategies import DataFile

INDEXES = ("minmax", "valuelist", "bloomfilter", "bitmap", "rangebitmap", "paimonbloom")


def skipstone_name(column: str) -> str:
    return column_name((column,))


def quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[DataFile], Expr, dict[str, Any], list[str]]:
    table = draw(tables(SPARK_TYPES, max_rows=40))
    files = [each for each in draw(layouts(table)) if "p=" not in each.name]
    assume(files)
    settings = {
        "row_group_size": draw(st.sampled_from([1, 3, 8, 1000])),
        "max_rows_per_page": draw(st.integers(1, 9)),
        "write_batch_size": 1,
        "write_page_index": draw(st.booleans()),
        "use_dictionary": draw(st.booleans()),
        "store_schema": draw(st.booleans()),
    }
    names = [n for n in table.column_names if n != "nest"]
    indexes = [
        f"{skipstone_name(name)}:{kind}"
        for name in names
        for kind in INDEXES
        if draw(st.integers(0, 3)) == 0
    ]
    return files, draw(predicates(table)), settings, indexes


def lay(root: Path, files: list[DataFile], settings: dict[str, Any]) -> pa.Table:
    """Write the files, long ago; the rows in the order of the listing."""
    for each in files:
        path = root / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(each.rows, path, **settings)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    listed = sorted(files, key=lambda each: f"{root}/{each.name}")
    return pa.concat_tables([each.rows for each in listed])


def plain(value: Any) -> Any:
    """A value that is equal to itself, and both zeros alike."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def picked(table: pa.Table, rows: list[int]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))


def rows_of(table: pa.Table) -> list[list[Any]]:
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def build(table: skipstone.Table, indexes: list[str]) -> None:
    """Those of ``indexes`` that the types of their columns have."""
    good = []
    for each in indexes:
        try:
            table.build(indexes=[each])
        except SkipstoneError:
            continue
        good.append(each)
    note(str(good))


@settings(max_examples=60)
@given(questions(), st.booleans())
def test_rows_are_those_of_brute_force(
    question: tuple[list[DataFile], Expr, dict[str, Any], list[str]], always: bool
) -> None:
    files, where, written, indexes = question
    note(to_sql(where))
    note(str(written))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if always:  # or else small files are not looked into
            patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
        root = Path(folder) / "t"
        whole = lay(root, files, written)
        try:
            expected = matching_rows(whole, where)
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assume(schema.names == whole.column_names)
        if opaques(bind(where, schema)):
            return
        build(table, indexes)
        text = to_sql(where)
        found = table.query(text)
        assert rows_of(found) == rows_of(picked(whole, expected))
        assert table.count(text) == len(expected)
        one = whole.column_names[-1]
        assert rows_of(table.query(text, columns=[skipstone_name(one)])) == rows_of(
            picked(whole, expected).select([one])
        )
        few = table.query(text, limit=3)
        assert rows_of(few) == rows_of(picked(whole, expected[:3]))
        assert sum(batch.num_rows for batch in table.scan(text).to_batches()) == len(expected)


@settings(max_examples=40)
@given(questions())
def test_extremes_are_those_of_brute_force(
    question: tuple[list[DataFile], Expr, dict[str, Any], list[str]],
) -> None:
    files, where, written, indexes = question
    name = next((n for n in files[0].rows.column_names if n != "nest"), None)
    assume(name is not None)
    assert name is not None
    note(to_sql(where))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        whole = lay(root, files, written)
        try:
            expected = picked(whole, matching_rows(whole, where))
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        table = skipstone.Table(str(root))
        assume(table.schema(table.listing()).names == whole.column_names)
        if opaques(bind(where, table.schema(table.listing()))):
            return
        build(table, indexes)
        for condition, rows in ((to_sql(where), expected), (None, whole)):
            values = [value for value in rows[name].to_pylist() if value is not None]
            ordered = sorted(values, key=cmp_to_key(spark_order))
            least = table.min(quoted(name), condition)
            greatest = table.max(quoted(name), condition)
            assert plain(least) == (plain(ordered[0]) if ordered else None)
            assert plain(greatest) == (plain(ordered[-1]) if ordered else None)


def spark_order(a: Any, b: Any) -> int:
    """-1, 0, 1 of two values that are no nulls: NaN is the largest, texts by their bytes."""
    if isinstance(a, float):
        a, b = ((1, 0.0) if math.isnan(x) else (0, x) for x in (a, b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, Decimal):
        return int(a.compare(b))
    return int(a > b) - int(a < b)


@settings(max_examples=60)
@given(
    questions(),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=2),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_order_and_limit_are_those_of_brute_force(
    question: tuple[list[DataFile], Expr, dict[str, Any], list[str]],
    ways: list[tuple[bool, bool]],
    limit: int | None,
) -> None:
    files, where, written, indexes = question
    names = [n for n in files[0].rows.column_names if n != "nest"][: len(ways)]
    orders = [
        f"{quoted(name)} {'desc' if down else 'asc'} nulls {'first' if first else 'last'}"
        for name, (down, first) in zip(names, ways, strict=False)
    ]
    note(to_sql(where))
    note(f"{orders} {limit} {written}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        whole = lay(root, files, written)
        try:
            expected = picked(whole, matching_rows(whole, where))
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        table = skipstone.Table(str(root))
        assume(table.schema(table.listing()).names == whole.column_names)
        if opaques(bind(where, table.schema(table.listing()))):
            return
        build(table, indexes)
        found = table.query(to_sql(where), order_by=orders, limit=limit)

        def keys(rows: pa.Table) -> list[list[Any]]:
            return [
                list(row) for row in zip(*(rows.column(n).to_pylist() for n in names), strict=True)
            ]

        def before(a: list[Any], b: list[Any]) -> int:
            for x, y, (down, first) in zip(a, b, ways, strict=False):
                if x is None or y is None:
                    if x is not y:
                        return (-1 if first else 1) if x is None else (1 if first else -1)
                    continue
                ordered = spark_order(x, y)
                if ordered:
                    return int(-ordered if down else ordered)
            return 0

        ordered = sorted(keys(expected), key=cmp_to_key(before))[:limit]
        got = keys(found)
        assert [[plain(x) for x in row] for row in got] == [[plain(x) for x in r] for r in ordered]
        # Each row that is given is one that matches, as often as it does.
        pool = rows_of(expected)
        for row in rows_of(found):
            assert row in pool
            pool.remove(row)
