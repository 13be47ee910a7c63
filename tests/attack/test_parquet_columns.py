"""Columns that are easily taken for others, or that Arrow cannot take rows from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
