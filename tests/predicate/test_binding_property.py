"""Binding never changes which rows match: random tables and trees against the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given, note
from hypothesis import strategies as st

from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.sql import parse_sql
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques, rows_of_bound
from tests.strategies import ARROW_TYPES, layouts, predicates, tables

if TYPE_CHECKING:
    from skipstone.predicate.tree import Expr

ZONES = ["UTC", "Europe/Berlin", "America/Los_Angeles", "Pacific/Apia", "+05:30"]


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, Expr, str]:
    table = draw(tables(ARROW_TYPES))
    return table, draw(predicates(table)), draw(st.sampled_from(ZONES))


def check(table: pa.Table, expr: Expr, session_zone: str) -> None:
    bound = bind(expr, table.schema, session_zone=session_zone)
    note(f"{to_sql(expr)}  =>  {bound}")
    oracle_zone = "UTC" if session_zone == "+05:30" else session_zone
    if session_zone == "+05:30":
        oracle_zone = "Asia/Kolkata"
    try:
        expected = matching_rows(table, expr, session_zone=oracle_zone)
    except (SparkError, NotModelled):
        # Spark fails the query, or nobody here knows: then at least something must be opaque, or
        # a part that decides alone.
        return
    if not opaques(bound):
        assert rows_of_bound(bound, table, opaque=False) == expected
    else:
        assert set(rows_of_bound(bound, table, opaque=False)) <= set(expected)
        assert set(expected) <= set(rows_of_bound(bound, table, opaque=True))


@given(questions())
def test_bound_tree_is_true_for_the_rows_of_the_oracle(
    question: tuple[pa.Table, Expr, str],
) -> None:
    check(*question)


@given(questions())
def test_text_of_both_trees_reads_back_as_the_same_rows(
    question: tuple[pa.Table, Expr, str],
) -> None:
    table, expr, session_zone = question
    bound = bind(expr, table.schema, session_zone=session_zone)
    for text in (to_sql(expr), to_sql(bound)):
        note(text)
        again = bind(parse_sql(text), table.schema, session_zone=session_zone, text=text)
        # An opaque piece stays one: what it says is its text, which does not change.
        assert bool(opaques(again)) == bool(opaques(bound)) or not opaques(again)
        for opaque in (False, True):
            if not opaques(bound):
                assert rows_of_bound(again, table, opaque=opaque) == rows_of_bound(
                    bound, table, opaque=opaque
                )


@given(st.data())
def test_a_layout_holds_the_rows_of_its_table_in_order(data: st.DataObject) -> None:
    table = data.draw(tables(ARROW_TYPES))
    files = data.draw(layouts(table))
    together = pa.concat_tables([file.rows for file in files])
    assert len({file.name for file in files}) == len(files)
    assert [str(row) for row in together.to_pylist()] == [str(row) for row in table.to_pylist()]
