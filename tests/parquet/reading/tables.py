"""Tables and writer settings for page fetch: every kind of type, nested too, in small pages."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import reject
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path


_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5, -2.25])),
    (pa.float16(), st.sampled_from([0.0, 1.5, -2.25])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=6)),
    (pa.binary(4), st.binary(min_size=4, max_size=4)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "é"])),
    (pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))),
    (
        pa.timestamp("us", tz="Europe/Berlin"),
        st.datetimes(
            datetime.datetime(1950, 1, 1),
            datetime.datetime(2050, 1, 1),
            timezones=st.just(datetime.UTC),
        ),
    ),
    (pa.duration("ms"), st.integers(0, 10**6).map(lambda ms: datetime.timedelta(milliseconds=ms))),
    (
        pa.decimal128(9, 2),
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2)),
    ),
]


def _types(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    leaves = st.sampled_from(_LEAVES)
    if not depth:
        return leaves
    inner = _types(depth - 1)

    def to_list(made: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        return pa.list_(made[0]), st.lists(_maybe(made[1]), max_size=3)

    def to_large_list(made: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        return pa.large_list(made[0]), st.lists(_maybe(made[1]), max_size=3)

    def to_struct(made: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        names = ["x", "y", "z.z"][: len(made)]
        type = pa.struct([(name, each[0]) for name, each in zip(names, made, strict=True)])
        return type, st.fixed_dictionaries(
            {name: _maybe(each[1]) for name, each in zip(names, made, strict=True)}
        )

    def to_map(made: tuple[pa.DataType, st.SearchStrategy[Any]]) -> Any:
        pairs = st.lists(st.tuples(st.text(max_size=2), _maybe(made[1])), max_size=3)
        return pa.map_(pa.string(), made[0]), pairs

    return st.one_of(
        leaves,
        inner.map(to_list),
        inner.map(to_large_list),
        st.lists(inner, min_size=1, max_size=3).map(to_struct),
        inner.map(to_map),
    )


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values, values, values)


@st.composite
def tables(draw: st.DrawFn, depth: int = 2) -> pa.Table:
    """A table of one to four columns; half of them repeat few rows many times."""
    rows = draw(st.integers(0, 40))
    columns, fields = [], []
    for at in range(draw(st.integers(1, 4))):
        type, values = draw(_types(depth))
        nullable = draw(st.booleans())
        few = draw(st.lists(_maybe(values) if nullable else values, min_size=1, max_size=6))
        picks = draw(st.lists(st.integers(0, len(few) - 1), min_size=rows, max_size=rows))
        columns.append(pa.array([few[pick] for pick in picks], type))
        fields.append(pa.field(["a", "b c", "é.f", "d"][at], type, nullable))
    return pa.table(columns, schema=pa.schema(fields))


@st.composite
def writer_settings(draw: st.DrawFn) -> dict[str, Any]:
    """How it is written: page index or none, both page versions, dictionaries, codecs."""
    return {
        "row_group_size": draw(st.integers(5, 50)),
        "max_rows_per_page": draw(st.integers(1, 9)),
        "write_batch_size": 1,
        "data_page_size": draw(st.sampled_from([1, 30, 1 << 20])),
        "write_page_index": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": draw(st.booleans()),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        "store_schema": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
    }


def write(table: pa.Table, path: Path, settings: dict[str, Any]) -> None:
    """One file; not of an empty dictionary below nulls, which Arrow builds and does not write."""
    try:
        pq.write_table(table, path, **settings)
    except pa.ArrowIndexError:
        reject()


def row_ranges(rows: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Ranges of rows in any order, overlapping, empty and past the end ones too."""
    place = st.integers(0, rows + 3)
    pair = st.tuples(place, place).map(lambda pair: (min(pair), max(pair)))
    return st.lists(pair, max_size=5)


def sliced(whole: pa.Table, ranges: list[tuple[int, int]]) -> pa.Table:
    """Those rows of the table, each once, in order."""
    rows = sorted({row for start, stop in ranges for row in range(start, min(stop, len(whole)))})
    return whole.take(pa.array(rows, pa.int64()))
