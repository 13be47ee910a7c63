"""Columns that are easily taken for others, or that Arrow cannot take rows from."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import skipstone
from skipstone.cli import cli
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 200
VIEWS: dict[str, pa.Array] = {
    "string_view": pa.array([f"{n}" * (n % 9) or None for n in range(ROWS)], pa.string_view()),
    "binary_view": pa.array([b"%d" % n * (n % 9) for n in range(ROWS)], pa.binary_view()),
    "list_view": pa.array([[n] * (n % 3) or None for n in range(ROWS)], pa.list_view(pa.int64())),
    "large_list_view": pa.array(
        [[n] * (n % 3) for n in range(ROWS)], pa.large_list_view(pa.int16())
    ),
    "list of string_view": pa.array([[f"{n}"] for n in range(ROWS)], pa.list_(pa.string_view())),
}


def written(table: pa.Table, path: Path) -> ParquetFile:
    """Row groups of 50 rows, pages of 5."""
    pq.write_table(
        table, path, row_group_size=50, max_rows_per_page=5, write_batch_size=5,
        write_page_index=True,
    )  # fmt: skip
    return ParquetFile(str(path))


@pytest.mark.parametrize("name", VIEWS)
def test_views_read_as_arrow_reads_them(name: str, tmp_path: Path) -> None:
    """Many single rows and few long runs of them; Arrow has no ``take`` for views."""
    values = VIEWS[name].to_pylist()
    file = written(pa.table({"v": VIEWS[name], "k": range(ROWS)}), tmp_path / "t.parquet")
    assert file.schema.field("v").type == VIEWS[name].type
    scattered = list(range(0, ROWS, 4))
    found = file.read_rows(["v"], [(n, n + 1) for n in scattered])
    assert found.column("v").to_pylist() == [values[n] for n in scattered]
    assert found.column("v").type == VIEWS[name].type
    wanted = ", ".join(map(str, scattered))
    assert file.query(f"k IN ({wanted})", ["v"]).equals(found)
    assert file.read_rows(["v"], [(3, 5), (60, 160)]).column("v").to_pylist() == [
        values[n] for n in (3, 4, *range(60, 160))
    ]
    assert file.read_rows(["v"]).column("v").to_pylist() == values


def test_a_predicate_over_views_gives_its_rows(tmp_path: Path) -> None:
    table = pa.table({"v": VIEWS["string_view"], "k": range(ROWS)})
    file = written(table, tmp_path / "t.parquet")
    expected = [row for row in table.to_pylist() if row["v"] is not None and "7" in row["v"]]
    assert len(expected) > 20
    assert file.query("v LIKE '%7%'").to_pylist() == expected
    assert file.query("v = '77'").to_pylist() == []
    assert file.query(f"v = '{'7' * 7}'", ["v"]).to_pylist() == [{"v": "7" * 7}]


def test_rows_without_columns_are_counted(tmp_path: Path) -> None:
    table = pa.table({"k": range(ROWS), "odd": [n % 2 for n in range(ROWS)]})
    file = written(table, tmp_path / "t.parquet")
    assert file.query("odd = 1", []).num_rows == ROWS // 2
    assert file.query("odd = 1 AND k < 60", []).num_rows == 30
    assert file.query("k < 60", []).num_rows == 60
    assert file.query("k < 0", []).num_rows == 0
    assert file.read_rows([], [(10, 20), (49, 52)]).num_rows == 13
    assert sum(batch.num_rows for batch in file.iter_rows([], [(10, 20), (49, 52)])) == 13
    assert sum(batch.num_rows for batch in file.iter_rows([])) == ROWS


@pytest.mark.parametrize("names", [["s", "s.x"], ["s.x", "s"]])
def test_a_field_of_a_struct_is_no_column_with_a_dot(names: list[str], tmp_path: Path) -> None:
    rows = [
        {"s": {"x": 1}, "s.x": 10},
        {"s": {"x": 2}, "s.x": 1},
        {"s": None, "s.x": 1},
        {"s": {"x": None}, "s.x": None},
    ]
    table = pa.Table.from_pylist(rows).select(names)
    rows = table.to_pylist()
    file = written(table, tmp_path / "t.parquet")
    for where, expected in {
        "s.x = 1": [0],
        "`s.x` = 1": [1, 2],
        "s.x IS NULL": [2, 3],
        "`s.x` IS NULL": [3],
        "s.x = 1 OR `s.x` = 1": [0, 1, 2],
        "s.x = 1 AND `s.x` = 10": [0],
        "s.x = 10": [],
        "NOT (s.x = 2) OR `s.x` IS NULL": [0, 3],
    }.items():
        assert file.query(where).to_pylist() == [rows[n] for n in expected], where
        assert file.count(where) == len(expected), where


def test_two_columns_of_one_name_keep_their_values(tmp_path: Path) -> None:
    table = pa.table([[1, 2, 3], [4, 5, 6], [7, 8, 9]], names=["a", "a", "b"])
    file = written(table, tmp_path / "t.parquet")
    assert [each.to_pylist() for each in file.query("b = 8").columns] == [[2], [5], [8]]
    assert [each.to_pylist() for each in file.query("b > 7").columns] == [[2, 3], [5, 6], [8, 9]]


@pytest.mark.parametrize(
    "type",
    [pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.decimal256(50, 2), pa.null()],
    ids=str,
)
def test_nulls_of_a_column_without_an_order_are_found(type: pa.DataType, tmp_path: Path) -> None:
    values = [None, None, None] if type == pa.null() else [7, None, 8]
    table = pa.table({"c": pa.array(values, type), "k": range(3)})
    file = written(table, tmp_path / "t.parquet")
    whole = skipstone.Table(tmp_path)
    for where, matches in {
        "c IS NULL": [value is None for value in values],
        "c IS NOT NULL": [value is not None for value in values],
        "NOT (c IS NULL OR k = 2)": [values[n] is not None and n != 2 for n in range(3)],
    }.items():
        expected = [n for n in range(3) if matches[n]]
        assert file.query(where, ["k"]).column("k").to_pylist() == expected, where
        assert whole.query(where, ["k"]).column("k").to_pylist() == expected, where
        assert file.count(where) == whole.count(where) == len(expected), where


def test_times_in_a_zone_that_nobody_knows_are_shown_in_utc(tmp_path: Path) -> None:
    """Writers have left ``pytz.FixedOffset(60)`` and the like in ``ARROW:schema``."""
    type = pa.timestamp("us", "pytz.FixedOffset(60)")
    table = pa.table({"c": pa.array([1, None], type), "l": pa.array([[2], None], pa.list_(type))})
    written(table, tmp_path / "t.parquet")
    for arguments in (["query", tmp_path], ["inspect", tmp_path / "t.parquet", "--rows", "1"]):
        done = CliRunner().invoke(cli, [str(each) for each in arguments])
        assert done.exit_code == 0, done.output
        assert "1970-01-01 00:00:00.000001Z" in done.stdout
    done = CliRunner().invoke(cli, ["query", str(tmp_path), "c IS NOT NULL", "--json"])
    assert '"1970-01-01 00:00:00.000002Z"' in done.stdout


def test_a_zone_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([1, 2, None], pa.timestamp("us", "Europe/Rome"))})
    written(table, tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    schema = base64.b64encode(table.schema.serialize())
    damaged = base64.b64encode(table.schema.serialize().to_pybytes().replace(b"Rome", b"R\xffme"))
    assert path.read_bytes().count(schema) == 1
    path.write_bytes(path.read_bytes().replace(schema, damaged))
    assert ParquetFile(path).query("c > TIMESTAMP '1970-01-01 00:00:00.000001'").to_pylist() == [
        {"c": datetime(1970, 1, 1, 0, 0, 0, 2, UTC)}
    ]
    assert skipstone.Table(tmp_path).count("c IS NULL") == 1


def test_equal_entries_of_a_dictionary_are_one_value(tmp_path: Path) -> None:
    """Arrow keeps one of them and the indices as they were, which then name other values."""
    root, path = tmp_path / "t", tmp_path / "t" / "a.parquet"
    root.mkdir()
    indices = pa.array([0, 1, 2, 2] * 500, pa.int32())
    strings = pa.DictionaryArray.from_arrays(indices, pa.array(["aa", "bb", "cc", "dd"]))
    table = pa.table({"s": strings, "k": range(2000)})
    pq.write_table(
        table, path, compression="none", store_schema=False, write_statistics=False,
        row_group_size=1000, max_rows_per_page=100, write_batch_size=100,
    )  # fmt: skip
    entries = b"".join(b"\x02\0\0\0" + each for each in (b"aa", b"bb", b"cc", b"dd"))
    assert path.read_bytes().count(entries) == 2
    data = path.read_bytes().replace(entries, entries.replace(b"bb", b"aa"))
    assert b"parquet-cpp-arrow" in data
    path.write_bytes(data.replace(b"parquet-cpp-arrow", b"parquet-of-others"))
    os.utime(path, (1_600_000_000, 1_600_000_000))
    expected = {"aa": 1000, "cc": 1000, "dd": 0}
    assert (
        pq.read_table(path, columns=["s"]).column(0).to_pylist() == ["aa", "aa", "cc", "cc"] * 500
    )
    file = ParquetFile(path)
    assert file.read_rows(["s"]).column(0).to_pylist() == ["aa", "aa", "cc", "cc"] * 500
    assert file.read_rows(["s"], [(998, 1003)]).column(0).to_pylist() == ["cc"] * 2 + ["aa"] * 2 + [
        "cc"
    ]
    for _ in range(2):
        whole = skipstone.Table(root)
        assert {each: whole.count(f"s = '{each}'") for each in expected} == expected
        found = whole.query("s >= 'b'").column("k").to_pylist()
        assert found == [n for n in range(2000) if n % 4 > 1]
        assert whole.build(indexes=["s:valuelist", "s:bitmap"]).files_built in (0, 1)


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_what_arrow_refuses_of_duckdb_is_indexed(version: str, tmp_path: Path) -> None:
    """ENUM with unused values, one number with nulls in DELTA_BINARY_PACKED, arrays of a size."""
    root = tmp_path / "t"
    root.mkdir()
    with duckdb.connect() as connection:
        connection.execute("CREATE TYPE e AS ENUM ('a', 'b', 'c', 'd', 'e', 'f', 'g')")
        rows = "(0, 'a', 5, [1, 2]), (1, 'd', NULL, NULL), (2, 'g', NULL, [3, NULL])"
        connection.execute(
            "COPY (SELECT k, e::e AS e, n::INT AS n, l::INT[2] AS l "
            f"FROM (VALUES {rows}) t(k, e, n, l)) "
            f"TO '{root}/a.parquet' (FORMAT parquet, PARQUET_VERSION {version})"
        )
    os.utime(root / "a.parquet", (1_600_000_000, 1_600_000_000))
    table = skipstone.Table(root)
    report = table.build(indexes=["e:valuelist", "e:bitmap", "n:minmax", "l:valuelist", "k:bsi"])
    assert report.files_built == 1, report
    assert report.left_out == (), report
    assert table.check(deep=True).ok
    for where, expected in {
        "e = 'd'": [1],
        "e > 'd'": [2],
        "n = 5": [0],
        "n IS NULL": [1, 2],
    }.items():
        assert table.query(where, ["k"]).column("k").to_pylist() == expected, where
    assert table.query("array_contains(l, 3)", ["k"]).column("k").to_pylist() == [2]
    assert table.plan("e = 'b'", inside=False).files_kept == 0
    assert table.plan("n > 5", inside=False).files_kept == 0
