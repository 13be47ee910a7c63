"""Rows, counts and orders of a table by the embedded engine, against brute force.

Every combination of indexes, layouts and writers' settings must give the rows of the oracle; a plan
is advice and may only change how they are come by.
"""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from skipstone.predicate.render import to_sql
from skipstone.pruning import costs as cost
from tests.table.brute_force import (
    Question,
    indexed,
    picked,
    plain,
    questions,
    quoted,
    rows_of,
    skipstone_name,
)

if TYPE_CHECKING:
    import pyarrow as pa


@given(questions(), st.booleans())
def test_rows_are_those_of_brute_force(question: Question, always: bool) -> None:
    where = question[1]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if always:  # or else small files are not looked into
            patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
        found = indexed(Path(folder) / "t", question)
        if found is None:
            return
        table, whole, expected = found
        text = to_sql(where)
        assert rows_of(table.query(text)) == rows_of(picked(whole, expected))
        assert table.count(text) == len(expected)
        one = whole.column_names[-1]
        assert rows_of(table.query(text, columns=[skipstone_name(one)])) == rows_of(
            picked(whole, expected).select([one])
        )
        few = table.query(text, limit=3)
        assert rows_of(few) == rows_of(picked(whole, expected[:3]))
        assert sum(batch.num_rows for batch in table.scan(text).to_batches()) == len(expected)


@given(questions())
def test_extremes_are_those_of_brute_force(
    question: Question,
) -> None:
    files, where, _, _ = question
    name = next((n for n in files[0].rows.column_names if n != "nest"), None)
    assume(name is not None)
    assert name is not None
    with tempfile.TemporaryDirectory() as folder:
        found = indexed(Path(folder) / "t", question)
        if found is None:
            return
        table, whole, matching = found
        expected = picked(whole, matching)
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


@given(
    questions(),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=2),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_order_and_limit_are_those_of_brute_force(
    question: Question,
    ways: list[tuple[bool, bool]],
    limit: int | None,
) -> None:
    files, where, _, _ = question
    names = [n for n in files[0].rows.column_names if n != "nest"][: len(ways)]
    orders = [
        f"{quoted(name)} {'desc' if down else 'asc'} nulls {'first' if first else 'last'}"
        for name, (down, first) in zip(names, ways, strict=False)
    ]
    note(f"{orders} {limit}")
    with tempfile.TemporaryDirectory() as folder:
        found = indexed(Path(folder) / "t", question)
        if found is None:
            return
        table, whole, matching = found
        expected = picked(whole, matching)
        answer = table.query(to_sql(where), order_by=orders, limit=limit)

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
        got = keys(answer)
        assert [[plain(x) for x in row] for row in got] == [[plain(x) for x in r] for r in ordered]
        # Each row that is given is one that matches, as often as it does.
        pool = rows_of(expected)
        for row in rows_of(answer):
            assert row in pool
            pool.remove(row)
