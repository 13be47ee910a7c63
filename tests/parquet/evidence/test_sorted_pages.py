"""Sorted columns without bounds: a few pages are looked into, and no row is lost."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, note, settings
from hypothesis import strategies as st

from skipstone.predicate.literals import order_keys, stored
from skipstone.predicate.tree import Leaf, Op
from skipstone.predicate.types import TIMESTAMP_NTZ, spark_type
from skipstone.pruning import Cause
from tests.parquet.evidence.test_pages import with_index
from tests.parquet.evidence.written import Written
from tests.predicate.bound_rows import rows_of_bound
from tests.pruning.test_bounds_property import leaves
from tests.strategies import ARROW_TYPES, columns

MANY = settings(max_examples=4 * settings().max_examples)


def sorted_file(
    column: pa.Array,
    page: int,
    *,
    descending: bool = False,
    nulls_first: bool = False,
    **options: Any,
) -> bytes:
    """One row group that says it is sorted."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"c": column}),
        sink,
        max_rows_per_page=page,
        write_batch_size=1,
        write_page_index=True,
        compression="none",
        sorting_columns=[pq.SortingColumn(0, descending=descending, nulls_first=nulls_first)],
        **options,
    )
    return sink.getvalue()


def opened(data: bytes, *, verified: bool = True) -> Written:
    written = Written(data)
    if verified:
        written.files[0].verified.add((0, 0))
    written.units(frozenset("c"), pages=True)  # reads the page index
    written.fetching.asked.clear()
    return written


def instants(count: int) -> pa.Array:
    return pa.array(np.arange(count) * 1_000_000, pa.timestamp("us"))


def int96(count: int, page: int) -> bytes:
    return sorted_file(instants(count), page, use_deprecated_int96_timestamps=True)


def at(op: Op, *seconds: int) -> Leaf:
    return Leaf("c", TIMESTAMP_NTZ, op, tuple(1_000_000 * each for each in seconds))


def test_an_instant_in_a_sorted_column_of_int96() -> None:
    """A hundred pages of ten seconds each; INT96 has no column index."""
    written = opened(int96(1000, 10))
    assert written.ask("page index", at(Op.EQ, 423)).bounds is None
    kept = np.flatnonzero(written.may("sorted", at(Op.EQ, 423))).tolist()
    assert 42 in kept
    assert len(kept) <= 2
    assert len(written.fetching.asked) <= 15
    # What the pages hold is remembered.
    written.fetching.asked.clear()
    assert np.flatnonzero(written.may("sorted", at(Op.EQ, 423))).tolist() == kept
    assert written.fetching.asked == []
    after = np.flatnonzero(written.may("sorted", at(Op.GE, 777))).tolist()
    assert after[0] in (76, 77)
    assert after[-1] == 99
    # Arrow counts no nulls of INT96: the pages after the last one seen may end with some.
    assert sum(written.must("sorted", at(Op.GE, 777))) >= 10
    plan = written.plan(at(Op.LT, 15))
    assert {*range(15)} <= set(written.kept(plan)[0].tolist()) <= {*range(40)}


def test_thousands_of_pages_take_few_rounds() -> None:
    """Three thousand pages of one row each, of which the planner sees to eight rounds."""
    written = opened(int96(3000, 1))
    plan = written.plan(at(Op.IN, 5, 1234, 2999))
    assert {5, 1234, 2999} <= set(written.kept(plan)[0].tolist())
    assert len(written.kept(plan)[0]) <= 15
    assert not [reason for step in plan.steps for reason in step.reasons if "rounds" in reason.text]


def test_nothing_is_searched_that_nobody_has_verified() -> None:
    written = opened(int96(100, 10), verified=False)
    assert written.evidence("c", "sorted") is None


def test_columns_with_bounds_need_no_search() -> None:
    written = opened(sorted_file(pa.array(np.arange(100)), 10))
    answer = written.ask("sorted", Leaf("c", pa.int64(), Op.EQ, (5,)))
    assert answer.bounds is None
    assert answer.reasons[0].cause is Cause.ABSENT
    assert written.fetching.asked == []


def test_damaged_pages_say_nothing() -> None:
    data = bytearray(int96(100, 10))
    data[4:1500] = bytes(1496)
    written = opened(bytes(data))
    answer = written.ask("sorted", at(Op.EQ, 42))
    assert answer.bounds is None
    assert answer.reasons[0].cause is Cause.CORRUPT


def _ascending(array: pa.Array, type: pa.DataType) -> list[int]:
    keys = order_keys(array, type).to_list()
    return sorted(range(len(array)), key=lambda i: keys[i])  # type: ignore[arg-type,return-value]


@MANY
@given(type=st.sampled_from(ARROW_TYPES), data=st.data())
def test_searches_lose_no_row(type: pa.DataType, data: st.DataObject) -> None:
    drawn = data.draw(columns(type, data.draw(st.integers(0, 20))))
    if pa.types.is_dictionary(drawn.type):
        drawn = drawn.dictionary_decode()
    read = spark_type(type)
    assert read is not None
    values = drawn.drop_null()
    values = values.take(pa.array(_ascending(values, type), pa.int64()))
    descending, nulls_first = (bool(data.draw(st.integers(0, 1))) for _ in range(2))
    if descending:
        values = values.take(pa.array(range(len(values) - 1, -1, -1), pa.int64()))
    nulls = pa.nulls(drawn.null_count, drawn.type)
    column = pa.concat_arrays([nulls, values] if nulls_first else [values, nulls])
    whole = sorted_file(
        column,
        data.draw(st.sampled_from([1, 2, 3])),
        descending=descending,
        nulls_first=nulls_first,
        use_dictionary=bool(data.draw(st.integers(0, 1))),
    )
    rows = stored(column, read)
    written = opened(with_index(whole, _none, lambda oi: oi) if len(column) else whole)
    present = values if not pa.types.is_timestamp(type) else stored(values, read).cast(pa.int64())
    if pa.types.is_unsigned_integer(type):
        present = stored(values, read)
    elif pa.types.is_date(type):
        present = values.cast(pa.int32())
    leaf = data.draw(leaves(read, present.to_pylist()))
    note(str(leaf))
    units = written.units(frozenset("c"), pages=True)
    if not len(units):
        return
    for _ in range(2):  # the second time from what is remembered
        bounds = written.ask("sorted", leaf, units).bounds
        if bounds is None:
            return
        for i, (first, count) in enumerate(
            zip(units.first_row.tolist(), units.rows.tolist(), strict=True)
        ):
            part = rows.slice(first, count)
            matching = len(rows_of_bound(leaf, pa.table({"c": part}), opaque=True))
            assert bounds.may[i] or not matching
            assert not bounds.must[i] or matching == count


def _none(index: Any) -> None:
    return None
