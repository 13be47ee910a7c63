"""A published store in the hands of Xskipper: asked by its rules, it never loses a row.

The rules are those of its metadata queries, written down here by themselves: a file is skipped when
the negation of a clause is true of its row, and a null stands for "no value in this file". Bounds
compare as Spark does, value lists as sets of boxed values, where -0.0 and 0.0 differ. ``<>`` is not
among the rules for bounds: what the original concludes there is wrong of any bounds.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.predicate.tree import ColumnRef, Comparison, Literal, Membership, Not
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.part import read_part
from tests.oracle import compare, kind_of, matching_rows, values_of
from tests.oracle_values import Typed
from tests.strategies import TIMESTAMP, columns
from tests.xskipper.format.reference_bloom import might_contain

TYPES: tuple[pa.DataType, ...] = (
    pa.int8(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(18, 6),
    pa.decimal128(38, 10),
    pa.string(),
    pa.bool_(),
    pa.date32(),
    TIMESTAMP,
)
UTC = ZoneInfo("UTC")
FILTERED = (pa.int8(), pa.int64(), pa.string())


def boxed(value: Any) -> Any:
    """Equal where Java's boxed values are: NaN is, zeros of different signs are not."""
    return repr(value) if isinstance(value, float) else value


class Row:
    """One row of the published store: what Xskipper knows of one file."""

    def __init__(self, table: pa.Table, at: int, type: pa.DataType) -> None:
        self.type = type
        ends = table.column("c_minmax_1").slice(at, 1).combine_chunks().flatten()
        self.low, self.high = (values_of(end)[0] for end in ends)
        lists = table.column("c_valuelist_1").slice(at, 1).combine_chunks()
        self.values = values_of(lists.flatten())
        self.filter = None
        if "c_bloomfilter_1" in table.column_names:
            blob = table.column("c_bloomfilter_1")[at].as_py()
            self.filter = BloomFilterMetaData.from_bytes(blob).filter

    def _holds(self, op: str, end: Any, value: Any) -> bool:
        kind = kind_of(self.type)
        return compare(op, Typed(end, *kind), Typed(value, *kind), UTC) is True

    def bounds_allow(self, op: str, value: Any) -> bool:
        if self.low is None or self.high is None:
            return False
        if op in (">", ">="):
            return self._holds(op, self.high, value)
        if op in ("<", "<="):
            return self._holds(op, self.low, value)
        return self._holds("<=", self.low, value) and self._holds(">=", self.high, value)

    def list_allows(self, wanted: list[Any]) -> bool:
        return not {boxed(value) for value in self.values}.isdisjoint(map(boxed, wanted))

    def list_allows_not(self, unwanted: list[Any]) -> bool:
        return not {boxed(v) for v in self.values} <= {boxed(v) for v in unwanted}

    def filter_allows(self, wanted: list[Any]) -> bool:
        if self.filter is None:
            return True
        array = pa.array([int(v) if self.type != pa.string() else v for v in wanted])
        return bool(might_contain(self.filter, array).any())


@st.composite
def files(draw: st.DrawFn, type: pa.DataType) -> list[pa.Array]:
    count = draw(st.integers(1, 3))
    return [draw(columns(type, draw(st.integers(0, 6)))) for _ in range(count)]


def literal(value: Any, type: pa.DataType) -> Literal:
    """The literal of a value as the oracle has it, exactly and in the column's own type."""
    if pa.types.is_decimal(type):
        return Literal(int(value * 10**type.scale), type)
    return Literal(int(value) if pa.types.is_integer(type) else value, type)


@pytest.mark.parametrize("type", TYPES, ids=str)
@settings(max_examples=12)  # each one builds a table
@given(data=st.data())
def test_what_xskipper_skips_holds_no_match(type: pa.DataType, data: st.DataObject) -> None:
    drawn = data.draw(files(type))
    present = [value for column in drawn for value in values_of(column) if value is not None]
    extra = [v for v in values_of(data.draw(columns(type, 3))) if v is not None]
    wanted = data.draw(st.lists(st.sampled_from([*present, *extra, None]), min_size=1, max_size=4))
    chosen = [value for value in wanted if value is not None]
    with tempfile.TemporaryDirectory() as home:
        rows = published_rows(Path(home), drawn, type)
    column = ColumnRef(("c",))
    for at, row in rows.items():
        values = drawn[at]
        table = pa.table({"c": values})
        for value in chosen:
            for op in ("=", "<", "<=", ">", ">="):
                match = matching_rows(table, Comparison(op, column, literal(value, type)))
                if match:
                    assert row.bounds_allow(op, value)
                if match and op == "=":
                    assert row.list_allows([value])
                    assert row.filter_allows([value])
        if not chosen:
            continue
        members = Membership(column, tuple(literal(value, type) for value in chosen))
        if matching_rows(table, members):
            assert row.list_allows(chosen)
            assert row.filter_allows(chosen)
        if matching_rows(table, Not(members)):
            assert row.list_allows_not(chosen)


def published_rows(home: Path, drawn: list[pa.Array], type: pa.DataType) -> dict[int, Row]:
    """What is published of files with these columns; one that has no row is read in full."""
    (home / "t").mkdir()
    for at, values in enumerate(drawn):
        path = home / "t" / f"{at}.parquet"
        pq.write_table(pa.table({"c": values}), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    kinds = "minmax,valuelist,bloom" if type in FILTERED else "minmax,valuelist"
    table = skipstone.Table(str(home / "t"))
    table.build(None, [f"c:{kinds}"])
    try:
        report = table.export()
    except UnsupportedError:  # of dates before 1582 nothing is indexed
        assert pa.types.is_date(type)
        return {}
    assert report.files == len(drawn) or report.left_out
    [file] = Path(report.destination).iterdir()
    part = read_part(file.read_bytes())
    paths = [name.rpartition("/")[2] for name in part.table.column("obj_name").to_pylist()]
    return {int(name.partition(".")[0]): Row(part.table, at, type) for at, name in enumerate(paths)}


def test_both_zeros_and_nan_are_in_the_lists(tmp_path: Path) -> None:
    nan = float("nan")
    rows = published_rows(
        tmp_path, [pa.array([-0.0]), pa.array([0.0, nan]), pa.array([1.0])], pa.float64()
    )
    assert [row.list_allows([0.0]) for row in rows.values()] == [True, True, False]
    assert [row.list_allows([-0.0]) for row in rows.values()] == [True, True, False]
    assert [row.list_allows([nan]) for row in rows.values()] == [False, True, False]
    assert [row.bounds_allow(">", 100.0) for row in rows.values()] == [False, True, False]


def test_long_strings_have_bounds_that_are_inclusive(tmp_path: Path) -> None:
    long, last = "é" * 100, "\U0010ffff" * 40
    rows = published_rows(tmp_path, [pa.array([long]), pa.array(["a", long + "b"])], pa.string())
    assert all(row.bounds_allow("=", long) for row in rows.values())
    assert all(row.bounds_allow(">=", long) for row in rows.values())
    assert rows[0].low < long < rows[0].high
    # Nothing sorts above all that begins so: such a file has no upper bound, and no row.
    home = tmp_path / "no bound"
    home.mkdir()
    with pytest.raises(skipstone.SkipstoneError, match="too many files lack it"):
        only_bounds(home, last)


def only_bounds(home: Path, text: str) -> None:
    (home / "t").mkdir()
    path = home / "t" / "f.parquet"
    pq.write_table(pa.table({"c": [text]}), path)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    table = skipstone.Table(str(home / "t"))
    table.build(None, ["c:minmax"])
    table.export()
