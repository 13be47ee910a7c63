"""Predicates over one file: equal rows as brute force, and only what may match is read."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from skipstone.errors import PredicateError, UnsupportedError
from skipstone.parquet.reading.file import ParquetFile
from skipstone.planning.explain import Explanation
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.parquet.reading.tables import write, writer_settings
from tests.predicate.bound_rows import opaques
from tests.strategies import predicates, tables

if TYPE_CHECKING:
    from skipstone.predicate.tree import Expr


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, Expr, dict[str, Any]]:
    table = draw(tables(max_rows=40))
    settings = draw(writer_settings())
    settings["bloom_filter_options"] = draw(
        st.sampled_from([None, dict.fromkeys(_filterable(table), True)])
    )
    return table, draw(predicates(table)), settings


def _filterable(table: pa.Table) -> list[str]:
    return [f.name for f in table.schema if pa.types.is_int64(f.type) or pa.types.is_string(f.type)]


@given(questions())
def test_rows_are_those_of_brute_force(question: tuple[pa.Table, Expr, dict[str, Any]]) -> None:
    table, where, settings = question
    note(to_sql(where))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        write(table, path, settings)
        whole = pq.ParquetFile(path).read()
        file = ParquetFile(str(path))
        try:
            expected = matching_rows(whole, where)
        except (SparkError, NotModelled):
            assume(False)
        if opaques(bind(where, file.schema)):
            return
        found = file.query(where)
        assert repr(found.to_pylist()) == repr(
            whole.take(pa.array(expected, pa.int64())).to_pylist()
        )
        assert file.count(where) == len(expected)


@pytest.fixture
def numbers(tmp_path: Path) -> ParquetFile:
    """10 row groups of 1,000 rows in pages of 100; ``id`` ascends, ``key`` is scattered over all
    row groups and has a Bloom filter, ``text`` is 1,000 bytes long."""
    rows = range(10_000)
    table = pa.table(
        {
            "id": pa.array(rows),
            "key": pa.array([(7_919 * n) % 10_007 * 2 for n in rows]),
            "text": pa.array([f"{n:01000}" for n in rows]),
        }
    )
    path = tmp_path / "numbers.parquet"
    pq.write_table(
        table, path, row_group_size=1_000, max_rows_per_page=100, write_batch_size=100,
        use_dictionary=False, compression="none", write_page_index=True,
        bloom_filter_options={"key": {"ndv": 1_000, "fpp": 0.001}},
    )  # fmt: skip
    return ParquetFile(str(path))


def test_a_point_reads_one_page_of_each_column(numbers: ParquetFile) -> None:
    assert numbers.query("id = 4711", ["text"]).to_pylist() == [{"text": f"{4711:01000}"}]
    before = numbers.bytes_read
    found = numbers.query("id = 4712")
    assert found.column("id").to_pylist() == [4712]
    # A page of text is 100 kB, one of numbers 0.8 kB.
    assert 101_600 < numbers.bytes_read - before < 106_000


def test_an_absent_key_reads_one_block_of_each_filter(numbers: ParquetFile) -> None:
    assert numbers.query("key = 7").num_rows == 0
    before = numbers.bytes_read
    assert numbers.count("key = 9") == 0
    assert numbers.bytes_read - before <= 10 * 32


def test_other_columns_are_read_where_rows_match_only(numbers: ParquetFile) -> None:
    """Every page may hold an even key below 40; the texts of 20 rows lie in 20 pages at most."""
    numbers.count("key < 40")
    before = numbers.bytes_read
    found = numbers.query("key < 40", ["text"])
    assert 15 < found.num_rows <= 20
    assert numbers.bytes_read - before < found.num_rows * 101_000 + 100 * 1_000


def test_indexes_alone_count_where_they_decide(numbers: ParquetFile) -> None:
    before = numbers.bytes_read
    assert numbers.count("id >= 3000 AND id < 7000") == 4_000
    assert numbers.count() == 10_000
    assert numbers.bytes_read == before


def test_the_plan_says_what_is_read_and_why(numbers: ParquetFile) -> None:
    plan = numbers.plan("id BETWEEN 4250 AND 4349")
    (file,) = plan.files
    assert file.detail.row_groups == (4,)
    assert file.detail.rows is not None
    assert file.detail.rows.ranges()[0].tolist() == [4_200]
    assert file.detail.rows.ranges()[1].tolist() == [4_400]
    assert "statistics" in str(Explanation(plan))
    assert "page index" in str(Explanation(plan))


def test_nan_and_zero_are_found_where_engines_lose_them(tmp_path: Path) -> None:
    """The footer says max 50 and leaves NaN out; DuckDB and DataFusion skip the row group."""
    path = str(tmp_path / "t.parquet")
    values = [1.0, math.nan, -0.0, 50.0, None]
    pq.write_table(pa.table({"f": values}), path, write_page_index=True)
    file = ParquetFile(path)
    assert [math.isnan(v) for v in file.query("f > 100").column("f").to_pylist()] == [True]
    assert file.count("f = 0.0") == 1
    assert file.count("f >= 0") == 4
    assert file.count("f = CAST('NaN' AS DOUBLE)") == 1
    assert file.count("f <> 1") == 3
    assert file.count("f IS NULL") == 1


def test_struct_fields_and_folded_names(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    rows = [{"s": {"x": 1, "y": "a"}}, {"s": None}, {"s": {"x": None, "y": "b"}}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    file = ParquetFile(path)
    assert file.query("S.X = 1").to_pylist() == rows[:1]
    assert file.query("s.x IS NULL", ["s.y"]).to_pylist() == [{"s": None}, {"s": {"y": "b"}}]


def test_names_with_dots_and_names_that_occur_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    columns = [
        pa.array([1, 2, 3]),
        pa.array([{"b": 30}, {"b": 20}, {"b": 10}]),
        pa.array([7, 8, 9]),
    ]
    pq.write_table(pa.table(columns, names=["a.b", "a", "c"]), path)
    file = ParquetFile(path)
    assert file.query("a.b = 20", ["c"]).to_pylist() == [{"c": 8}]
    assert file.query("`a.b` = 3", ["c"]).to_pylist() == [{"c": 9}]
    assert file.query("`a.b` = 3 OR a.b = 30", ["a.b"]).to_pylist() == [{"a.b": 1}, {"a.b": 3}]
    pq.write_table(pa.table([columns[0], columns[2], columns[2]], names=["x", "x", "y"]), path)
    file = ParquetFile(path)
    assert [c.to_pylist() for c in file.query("y > 7").columns] == [[2, 3], [8, 9], [8, 9]]
    with pytest.raises(PredicateError):
        file.query("x = 1")


def test_what_cannot_be_decided_is_said(numbers: ParquetFile) -> None:
    with pytest.raises(UnsupportedError, match="cannot decide"):
        numbers.query("soundex(text) = 'A' AND id < 5")
    with pytest.raises(PredicateError, match="idd"):
        numbers.query("idd = 3")
    assert numbers.query([("id", "=", 3)], ["id"]).to_pylist() == [{"id": 3}]
