"""Every evidence over every type, against the rows: no row is lost, ``must`` holds of all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from skipstone.parquet.format.metadata import ColumnOrder
from skipstone.parquet.thrift.structs import Empty
from skipstone.predicate.binding import bind
from skipstone.predicate.literals import stored
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.types import spark_type
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.parquet.evidence.written import Written, rewritten, with_chunks, write
from tests.predicate.bound_rows import opaques, rows_of_bound
from tests.pruning.test_bounds_property import leaves
from tests.strategies import ARROW_TYPES, columns, predicates, tables

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import ColumnMetaData, FileMetaData
    from skipstone.predicate.tree import Leaf

TYPES = (*ARROW_TYPES, pa.binary(3), pa.float16())
MANY = settings(max_examples=2 * settings().max_examples)


@st.composite
def arrays(draw: st.DrawFn, type: pa.DataType, size: int) -> pa.Array:
    if pa.types.is_fixed_size_binary(type):
        one: st.SearchStrategy[bytes | None] = st.none() | st.binary(min_size=3, max_size=3)
        return pa.array(draw(st.lists(one, min_size=size, max_size=size)), type)
    if pa.types.is_float16(type):
        wide = draw(columns(pa.float32(), size))
        halves = [None if v is None else np.float16(v) for v in _quietly(wide.to_pylist())]
        return pa.array(halves, type)
    return draw(columns(type, size))


def _quietly(values: list[Any]) -> list[Any]:
    return [v if v is None or v != v or abs(v) < 60_000 else float("inf") for v in values]


@st.composite
def options(draw: st.DrawFn, table: pa.Table) -> dict[str, Any]:
    """Ways to write it."""
    flat = [
        field.name
        for field in table.schema
        if not pa.types.is_boolean(field.type) and not pa.types.is_struct(field.type)
    ]
    found: dict[str, Any] = {
        "use_dictionary": bool(draw(st.integers(0, 1))),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "store_decimal_as_integer": draw(st.booleans()),
        "version": draw(st.sampled_from(["1.0", "2.4", "2.6"])),
        "compression": draw(st.sampled_from(["none", "snappy"])),
    }
    if bool(flat) and draw(st.integers(0, 1)):
        found["bloom_filter_options"] = {
            name: {"ndv": draw(st.integers(1, 200)), "fpp": 0.05}
            for name in flat
            if "." not in name
        }
    return found


def check(written: Written, leaf: Leaf, rows: list[pa.Array]) -> None:
    """``must`` and ``may`` of every unit of every evidence, against the rows of the unit."""
    for name in ("statistics", "bloom filter", "dictionary", "page index"):
        if written.evidence(leaf.column, name) is None:
            continue
        units = written.units(frozenset((leaf.column,)), pages=name == "page index")
        answer = written.ask(name, leaf, units)
        if answer.bounds is None:
            assert answer.reasons
            continue
        places = zip(
            units.file.tolist(),
            units.first_row.tolist(),
            units.rows.tolist(),
            answer.bounds.may.tolist(),
            answer.bounds.must.tolist(),
            strict=True,
        )
        for file, first, count, may, must in places:
            part = rows[file].slice(first, count)
            matching = len(rows_of_bound(leaf, pa.table({"c": part}), opaque=True))
            if matching:
                assert may, f"{name}: {leaf} loses a row of {part.to_pylist()}"
            if must:
                assert matching == count, f"{name}: {leaf} is not all of {part.to_pylist()}"
        some = np.arange(len(units)) % 2 == 0
        part_answer = written.ask(name, leaf, units.where(some)).bounds
        if part_answer is not None:
            assert part_answer.may.tolist() == answer.bounds.may[some].tolist()


@MANY
@given(type=st.sampled_from(TYPES), data=st.data())
def test_evidence_is_true_of_the_rows(type: pa.DataType, data: st.DataObject) -> None:
    read = spark_type(type)
    assert read is not None
    files, rows = [], []
    for _ in range(data.draw(st.integers(1, 2))):
        array = data.draw(arrays(type, data.draw(st.integers(0, 12))))
        table = pa.table({"c": array})
        files.append(
            write(
                table,
                group=data.draw(st.integers(1, 6)),
                page=data.draw(st.sampled_from([None, 1, 2, 3])),
                **data.draw(options(table)),
            )
        )
        rows.append(stored(array, read))
    everything = pa.concat_arrays(rows)
    if pa.types.is_timestamp(read):
        everything = everything.cast(pa.int64())
    elif pa.types.is_date(read):
        everything = everything.cast(pa.int32())
    leaf = data.draw(leaves(read, [v for v in everything.to_pylist() if v is not None]))
    note(str(leaf))
    check(Written(*files), leaf, rows)


@MANY
@given(
    type=st.sampled_from([pa.float32(), pa.float64(), pa.float16()]),
    order=st.sampled_from(["type", "ieee", "none"]),
    counted=st.booleans(),
    data=st.data(),
)
def test_evidence_about_floats_by_other_writers(
    type: pa.DataType, order: str, counted: bool, data: st.DataObject
) -> None:
    """A count of NaN in every order that bounds may have."""
    array = data.draw(arrays(type, data.draw(st.integers(0, 12))))
    group = data.draw(st.integers(1, 6))
    file = write(pa.table({"c": array}), group=group)
    nans = [
        int(pc.sum(pc.is_nan(array.slice(at, group).drop_null().cast(pa.float64()))).as_py() or 0)
        for at in range(0, len(array), group)
    ]

    def change(metadata: FileMetaData) -> FileMetaData:
        def count(r: int, c: int, chunk: ColumnMetaData) -> ColumnMetaData:
            if chunk.statistics is None:  # no rows
                return chunk
            return replace(chunk, statistics=replace(chunk.statistics, nan_count=nans[r]))

        if order == "ieee":
            ieee = ColumnOrder(IEEE_754_TOTAL_ORDER=Empty())
            metadata = replace(metadata, column_orders=(ieee,))
        elif order == "none":
            metadata = replace(metadata, column_orders=None)
        return with_chunks(metadata, count) if counted else metadata

    read = stored(array, pa.float64())
    leaf = data.draw(leaves(pa.float64(), [v for v in read.to_pylist() if v is not None]))
    if pa.types.is_float64(type):
        check(Written(rewritten(file, change)), leaf, [read])
    else:  # the table's type is wider than the file's
        narrow = stored(array, pa.float32())
        written = Written(rewritten(file, change))
        check(written, leaf, [narrow.cast(pa.float64())])


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, Any]:
    table = draw(tables(ARROW_TYPES, max_rows=16))
    return table, draw(predicates(table))


@MANY
@given(question=questions(), data=st.data())
def test_plans_lose_no_row(question: tuple[pa.Table, Any], data: st.DataObject) -> None:
    table, expr = question
    canonical = pa.table(
        {
            field.name: table.column(i)
            if pa.types.is_struct(field.type)
            else stored(table.column(i), field.type)
            for i, field in enumerate(table.schema)
        }
    )
    bound = bind(expr, canonical.schema)
    note(str(bound))
    try:
        expected = set(matching_rows(canonical, expr))
    except (SparkError, NotModelled):
        return
    cut = data.draw(st.integers(0, len(table)))
    parts = [table.slice(0, cut), table.slice(cut)]
    try:
        files = [
            write(
                part,
                group=data.draw(st.integers(1, 8)),
                page=data.draw(st.sampled_from([None, 1, 2, 5])),
                **data.draw(options(table)),
            )
            for part in parts
        ]
    except pa.ArrowIndexError:  # Arrow cannot write an empty dictionary below a struct that is null
        return
    written = Written(*files)
    plan = written.plan(bound)
    assert not [reason for reason in plan.reasons if "not looked at" in reason.text]
    first, second = written.kept(plan)
    kept = {*first.tolist(), *(second + cut).tolist()}
    assert expected <= kept
    if not opaques(bound):
        for file, (start, part) in enumerate(((0, parts[0]), (cut, parts[1]))):
            if plan.must[file]:
                assert set(range(start, start + len(part))) <= expected
            detail = plan.details.get(file)
            if detail is not None and detail.exact and detail.rows is not None:
                assert set((detail.rows.positions() + start).tolist()) <= expected


@pytest.mark.parametrize("page", [None, 2])
def test_a_table_without_rows(page: int | None) -> None:
    table = pa.table({"c": pa.array([], pa.int64())})
    written = Written(write(table, page=page), write(pa.table({"c": [1, 2]}), page=page))
    plan = written.plan(bind(parse_sql("c = 2"), table.schema))
    assert plan.keep.tolist() == [False, True]
