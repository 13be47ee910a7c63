"""Rows and counts by predicate, against brute force: all types that writers leave in files.

Strings share a prefix longer than what statistics keep of them, or begin with the largest
character; timestamps have nanoseconds and parts of them; dictionaries run full within a chunk; what
is sorted is claimed so, and what is not as well.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given, note
from hypothesis import strategies as st

from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.row_ranges import take_rows
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.parquet.whole_file import with_instants
from tests.predicate.bound_rows import opaques
from tests.strategies import ARROW_TYPES, predicates, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.predicate.tree import Expr

PREFIX, LARGEST = "P" * 66, "\U0010ffff" * 16


def stretched(draw: st.DrawFn, column: pa.Array) -> pa.Array:
    """The column as it is, or of a kindred type, or with other values."""
    t, type = pa.types, column.type
    each: Callable[[Any], Any]
    if t.is_string(type):
        before = draw(st.sampled_from(["", PREFIX, LARGEST]))
        view = draw(st.integers(0, 3)) == 0
        each, type = (lambda x: before + x), pa.string_view() if view else type
    elif t.is_binary(type):
        wide = draw(st.booleans())
        each = (lambda x: (x + bytes(4))[:4]) if wide else (lambda x: b"\xff" * 64 + x)
        type = pa.binary(4) if wide else type
    elif t.is_float32(type) and draw(st.booleans()):
        with np.errstate(over="ignore"):
            each, type = np.float16, pa.float16()
            return pa.array([None if x is None else each(x) for x in column.to_pylist()], type)
    elif t.is_timestamp(type) and type.unit == "us" and draw(st.booleans()):
        ticks = column.cast(pa.int64()).to_pylist()
        parts = draw(st.sampled_from([0, 1, 500, 999]))
        made = [None if x is None else 1000 * x + parts for x in ticks]
        return pa.array(made, pa.int64()).cast(pa.timestamp("ns", type.tz))
    else:
        return column
    return pa.array([None if x is None else each(x) for x in column.to_pylist()], type)


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, Expr, dict[str, Any]]:
    drawn = draw(tables(ARROW_TYPES, max_rows=30))
    where = draw(predicates(drawn))
    columns = [stretched(draw, each.combine_chunks()) for each in drawn.columns]
    table = pa.table(columns, names=drawn.column_names)
    plain = [
        field.name
        for field in table.schema
        if not (pa.types.is_nested(field.type) or pa.types.is_boolean(field.type))
    ]
    blooms = {name: {"ndv": 8, "fpp": 0.01} for name in plain if draw(st.booleans())}
    claim: list[pq.SortingColumn] | None = None
    if draw(st.booleans()) and plain:
        at = table.column_names.index(draw(st.sampled_from(plain)))
        claim = [pq.SortingColumn(at, draw(st.booleans()), draw(st.booleans()))]
    return (
        table,
        where,
        {
            "row_group_size": draw(st.sampled_from([1, 3, 8, 1000])),
            "max_rows_per_page": draw(st.integers(1, 9)),
            "write_batch_size": 1,
            "dictionary_pagesize_limit": draw(st.sampled_from([1, 20, 1 << 20])),
            "write_page_index": draw(st.booleans()),
            "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
            "version": draw(st.sampled_from(["1.0", "2.4", "2.6"])),
            "use_dictionary": draw(st.booleans()),
            "compression": draw(st.sampled_from(["none", "snappy", "zstd", "lz4"])),
            "store_schema": draw(st.booleans()),
            "use_deprecated_int96_timestamps": draw(st.integers(0, 4)) == 0,
            "store_decimal_as_integer": draw(st.booleans()),
            "allow_truncated_timestamps": True,
            "bloom_filter_options": blooms or None,
            "sorting_columns": claim,
        },
    )


@given(questions(), st.booleans())
def test_rows_are_those_of_brute_force(
    question: tuple[pa.Table, Expr, dict[str, Any]], verified: bool
) -> None:
    table, where, settings = question
    note(to_sql(where))
    note(str(settings))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        try:
            pq.write_table(table, path, **settings)
        except (pa.ArrowException, OverflowError):
            assume(False)  # of an empty dictionary, or a timestamp that INT96 does not hold
        read = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        whole = with_instants(read.read(), read.schema)
        try:
            expected = matching_rows(whole, where)
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        file = ParquetFile(str(path))
        if opaques(bind(where, file.schema)):
            return
        if verified:  # sorting columns that hold are searched from now on
            file.verify()
        rows = take_rows(whole, np.array(expected, np.int64))
        assert file.count(where) == len(expected)
        assert repr(file.query(where).to_pylist()) == repr(rows.to_pylist())
        first = whole.column_names[:1]
        assert repr(file.query(where, first).to_pylist()) == repr(rows.select(first).to_pylist())
