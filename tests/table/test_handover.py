"""Plans handed over to DuckDB, polars and pyarrow: never a matching row less, and no file more.

The table of most tests, one row group per 100 rows and one page per 10:

    env=prod/                    looks like a partition, and lies above the table
      t é [*]? 50%/              the table
        day=2026-01-01/a b.parquet        id 0 ... 299, name, amount
        day=2026-01-01/c?[d]*.parquet     id 300 ... 599, name, amount; id is an int32
        day=__HIVE_DEFAULT_PARTITION__/e=1%é.parquet   id 600 ... 899, no amount
        day=2026-01-03/f'"g.parquet       id 900 ... 1199, name, amount
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import StaleError, UnsupportedError
from skipstone.execution.engine_export import ExportFile
from skipstone.pruning import RowSet
from skipstone.pruning import costs as cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.execution import TableScan

FILES = (
    "day=2026-01-01/a b.parquet",
    "day=2026-01-01/c?[d]*.parquet",
    "day=__HIVE_DEFAULT_PARTITION__/e=1%é.parquet",
    "day=2026-01-03/f'\"g.parquet",
)
ROWS = 300


def of_duckdb(scan: TableScan) -> pa.Table:
    return scan.to_duckdb().to_arrow_table()


def of_polars(scan: TableScan) -> pa.Table:
    return scan.to_polars().collect().to_arrow()


def of_pyarrow(scan: TableScan) -> pa.Table:
    return scan.to_pyarrow().to_table()


ENGINES: dict[str, Callable[[TableScan], pa.Table]] = {
    "duckdb": of_duckdb,
    "polars": of_polars,
    "pyarrow": of_pyarrow,
}
each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are looked into."""
    monkeypatch.setattr("skipstone.table.planning.LOCAL", cost.FREE)


@pytest.fixture
def table(tmp_path: Path, always: None) -> skipstone.Table:
    root = tmp_path / "env=prod" / "t é [*]? 50%"
    for number, name in enumerate(FILES):
        first = number * ROWS
        ids = list(range(first, first + ROWS))
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int32() if number == 1 else pa.int64()),
            "name": [f"n{at}" if at % 7 else None for at in ids],
        }
        if number != 2:
            columns["amount"] = [at / 4 for at in ids]
        write(root / name, pa.table(columns), row_group_size=100, max_rows_per_page=10)
    return skipstone.Table(str(root))


def write(path: Path, rows: pa.Table, **how: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, write_page_index=True, write_batch_size=1, **how)
    os.utime(path, (1_700_000_000, 1_700_000_000))


def day_of(number: int) -> datetime.date | None:
    return (datetime.date(2026, 1, 1), datetime.date(2026, 1, 1), None, datetime.date(2026, 1, 3))[
        number
    ]


def expected(ids: list[int]) -> list[dict[str, Any]]:
    """Rows by their ids, in order."""
    return [
        {
            "id": at,
            "name": f"n{at}" if at % 7 else None,
            "amount": None if at // ROWS == 2 else at / 4,
            "day": day_of(at // ROWS),
        }
        for at in ids
    ]


def rows_of(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


@each_engine
def test_all_rows_of_odd_names_partitions_and_lacking_columns(
    table: skipstone.Table, engine: str
) -> None:
    scan = table.scan()
    found = ENGINES[engine](scan)
    assert found.column_names == ["id", "name", "amount", "day"]
    assert rows_of(found) == expected(list(range(4 * ROWS)))


@each_engine
def test_only_planned_files_and_rows_are_handed_over(table: skipstone.Table, engine: str) -> None:
    """Two rows lie in two pages of two files: DuckDB and polars get 20 rows, pyarrow two row
    groups."""
    scan = table.scan("id IN (455, 1010)")
    assert scan.plan.files_kept == 2
    for path in set(scan.plan.listing.paths) - set(scan.plan.paths):
        Path(path).unlink()  # whoever opens it fails
    pages = [*range(450, 460), *range(1010, 1020)]
    groups = [*range(400, 500), *range(1000, 1100)]
    found = rows_of(ENGINES[engine](scan))
    assert found == expected(groups if engine == "pyarrow" else pages)


@each_engine
def test_where_everything_is_skipped_no_rows_have_the_right_columns(
    table: skipstone.Table, engine: str
) -> None:
    scan = table.scan("id > 5000")
    assert scan.plan.files_kept == 0
    found = ENGINES[engine](scan)
    assert found.num_rows == 0
    assert found.column_names == ["id", "name", "amount", "day"]
    kinds = [found.schema.field(name).type for name in found.column_names]
    assert kinds[0] == pa.int64()
    assert kinds[2:] == [pa.float64(), pa.date32()]


@each_engine
def test_a_file_that_was_replaced_since_is_an_error(table: skipstone.Table, engine: str) -> None:
    scan = table.scan("id = 455")
    (path,) = scan.plan.paths
    rows = pa.table(
        {"id": pa.array(range(50), pa.int64()), "name": ["x"] * 50, "amount": [1.0] * 50}
    )
    write(Path(path), rows)
    with pytest.raises(StaleError, match="changed since it was planned"):
        ENGINES[engine](scan)
    again = table.scan("id = 45")
    assert path in again.plan.paths
    assert ENGINES[engine](again).num_rows >= 10


def test_callers_filter_by_the_engines_rules(table: skipstone.Table) -> None:
    scan = table.scan("amount BETWEEN 100 AND 101.25")
    wanted = expected([400, 401, 402, 403, 404, 405])
    relation = scan.to_duckdb().filter("amount BETWEEN 100 AND 101.25")
    assert rows_of(relation.to_arrow_table()) == wanted
    frame = scan.to_polars().filter(pl.col("amount").is_between(100, 101.25))
    assert rows_of(frame.collect().to_arrow()) == wanted
    between = (pc.field("amount") >= 100) & (pc.field("amount") <= 101.25)
    assert rows_of(scan.to_pyarrow().to_table(filter=between)) == wanted


def test_constants_of_paths_have_as_many_rows_as_the_file(table: skipstone.Table) -> None:
    scan = table.scan("id < 300")
    assert scan.to_polars().select("day").collect().height == ROWS
    assert scan.to_polars().select(pl.len()).collect().item() == ROWS
    assert scan.to_pyarrow().count_rows() == ROWS
    assert scan.to_duckdb().aggregate("count(day)").fetchall() == [(ROWS,)]


def test_a_relation_may_be_of_the_callers_connection(table: skipstone.Table) -> None:
    with duckdb.connect() as connection:
        connection.sql("CREATE TABLE wanted AS SELECT 455 AS id")
        found = table.scan("id = 455").to_duckdb(connection)
        found.create_view("found")
        assert connection.sql("SELECT name FROM found JOIN wanted USING (id)").fetchall() == [
            (None,)
        ]
        assert "BETWEEN 150 AND 159" in found.sql_query()


@each_engine
def test_a_column_of_other_letters_is_that_column_or_refused(
    tmp_path: Path, always: None, engine: str
) -> None:
    for name, column in (("a", "Id"), ("b", "ID")):
        write(tmp_path / "t" / f"{name}.parquet", pa.table({column: [1, 2]}))
    scan = skipstone.Table(str(tmp_path / "t")).scan("id = 1")
    if engine == "pyarrow":
        with pytest.raises(UnsupportedError, match="calls the column"):
            ENGINES[engine](scan)
        return
    found = ENGINES[engine](scan)
    assert found.column_names == ["Id"]
    assert sorted(found.column(0).to_pylist()) == [1, 1, 2, 2]


def test_a_column_called_file_row_number_costs_rows_and_no_row(
    tmp_path: Path, always: None
) -> None:
    rows = pa.table({"id": list(range(100)), "file_row_number": list(range(100, 200))})
    write(tmp_path / "t" / "a.parquet", rows, row_group_size=10)
    scan = skipstone.Table(str(tmp_path / "t")).scan("id = 45")
    assert scan.to_duckdb().to_arrow_table().num_rows == 100
    assert scan.to_polars().collect().height == 10


@each_engine
def test_dictionaries_are_values(tmp_path: Path, always: None, engine: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "kind": pa.array(["a", "b", "a"]).dictionary_encode()})
    write(tmp_path / "t" / "a.parquet", rows)
    scan = skipstone.Table(str(tmp_path / "t")).scan("kind = 'a'")
    found = ENGINES[engine](scan)
    assert found.column("kind").to_pylist() == ["a", "b", "a"]


@each_engine
def test_a_text_that_is_binary_in_a_file_is_that_text(
    tmp_path: Path, always: None, engine: str
) -> None:
    """DuckDB by itself makes binaries of both, in which ``\\x41`` is one byte."""
    texts = ["a\\x41", "日本", None]
    inside = pa.array([[each, "b"] for each in texts])
    binary = pa.array([each and each.encode() for each in texts], pa.binary())
    write(tmp_path / "t" / "a.parquet", pa.table({"id": [0, 1, 2], "s": texts, "plain": texts}))
    write(tmp_path / "t" / "b.parquet", pa.table({"id": [3, 4, 5], "s": binary, "plain": texts}))
    found = ENGINES[engine](skipstone.Table(tmp_path / "t").scan()).sort_by("id")
    assert found.to_pydict() == {"id": [*range(6)], "s": texts * 2, "plain": texts * 2}
    write(tmp_path / "l" / "a.parquet", pa.table({"l": inside}))
    write(tmp_path / "l" / "b.parquet", pa.table({"l": inside.cast(pa.list_(pa.binary()))}))
    lists = skipstone.Table(tmp_path / "l")
    assert lists.query()["l"].to_pylist() == inside.to_pylist() * 2
    if engine == "duckdb":
        with pytest.raises(UnsupportedError, match="'l', which is list<element: binary>"):
            ENGINES[engine](lists.scan())
    else:
        assert ENGINES[engine](lists.scan())["l"].to_pylist() == inside.to_pylist() * 2


@pytest.mark.parametrize("name", ["duckdb", "polars"])
def test_an_engine_that_is_absent_is_named(
    table: skipstone.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    scan = table.scan("id = 455")
    with pytest.raises(UnsupportedError, match=f"{name} is not installed") as told:
        scan.to_duckdb() if name == "duckdb" else scan.to_polars()
    assert "to_arrow" in told.value.hint


def test_neither_engine_is_loaded_unless_asked_for() -> None:
    code = (
        "import sys, skipstone, skipstone.execution, skipstone.execution.engine_export\n"
        "assert not {'duckdb', 'polars'} & set(sys.modules), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_many_ranges_become_few_that_hold_them() -> None:
    """Rows 0, 10, 20, …, 90 and 95: the two nearest are joined first."""
    wanted = RowSet.of([*range(0, 100, 10), 95])

    def file(rows: RowSet | None) -> ExportFile:
        return ExportFile(
            path="x",
            num_rows=200,
            rows=rows,
            row_groups=None,
            schema=pa.schema([]),
            int96=frozenset(),
            noted={},
            names={},
            given={},
        )

    assert file(None).ranges(3) is None
    assert file(wanted).ranges(11) == [(at, at + 1) for at in [*range(0, 100, 10), 95]]
    assert file(wanted).ranges(10) == [*((at, at + 1) for at in range(0, 90, 10)), (90, 96)]
    assert file(wanted).ranges(1) == [(0, 96)]
    found = file(wanted).ranges(4)
    assert found is not None
    assert len(found) == 4
    assert all(any(a <= row < b for a, b in found) for row in wanted.positions().tolist())


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_of_many_files_those_are_cut_that_save_most(
    table: skipstone.Table, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page of file 0 is wanted and two of file 1: file 0 is cut, file 1 read whole."""
    monkeypatch.setattr("skipstone.execution.engine_export._MOST_CUT", 1)
    found = rows_of(ENGINES[engine](table.scan("id IN (5, 355, 455)")))
    assert found == expected([*range(10), *range(300, 600)])


# -- any layout ------------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.integers(-20, 20))


@given(
    st.lists(st.lists(st.tuples(VALUES, VALUES), max_size=40), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["a = {}", "a < {}", "b >= {}", "a = {} OR b = {}", "NOT (a > {})"]),
    st.integers(-20, 20),
)
def test_rows_are_those_of_brute_force(
    files: list[list[tuple[int | None, int | None]]],
    row_group: int,
    page: int,
    shape: str,
    value: int,
) -> None:
    """Filtered by the engine the rows are those that DuckDB finds in memory."""
    where = shape.replace("{}", str(value))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("skipstone.table.planning.LOCAL", cost.FREE)
        whole = []
        for number, rows in enumerate(files):
            columns = {
                "a": pa.array([a for a, _ in rows], pa.int64()),
                "b": pa.array([b for _, b in rows], pa.int32()),
            }
            whole.append(pa.table(columns))
            path = Path(folder) / "t" / f"p={number % 2}" / f"{number}.parquet"
            write(path, whole[-1], row_group_size=row_group, max_rows_per_page=page)
        every = pa.concat_tables(whole)
        memory: Any = duckdb
        wanted = sorted(memory.sql(f"SELECT a, b FROM every WHERE {where}").fetchall(), key=repr)
        assert every.num_rows == sum(map(len, files))
        table = skipstone.Table(str(Path(folder) / "t"))
        table.build(indexes=["a:bitmap", "b:minmax"])
        scan = table.scan(where)
        for name, read in ENGINES.items():
            handed = read(scan)
            found = memory.sql(f"SELECT a, b FROM handed WHERE {where}").fetchall()
            assert sorted(found, key=repr) == wanted, name
            if scan.plan.rows_kept >= 0:
                assert handed.num_rows >= scan.plan.rows_kept, name
