"""``Table.read(…, connector=True)``: what the connectors of the formats open, and which rows; and
tables of Apache Iceberg with merge on read, as its connector writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import order_keys
from skipstone.pruning.interval import Intervals
from skipstone.table.spark_connector import MOST_RANGES, ranges_of
from tests.interop.java_systems import run_with_connectors
from tests.table_formats.connectors_spark import FILES, FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables."""
    return tmp_path_factory.mktemp("connectors")


@pytest.fixture(scope="module")
def found(home: Path) -> Any:
    """What ``connectors_spark`` found."""
    run_with_connectors("tests.table_formats.connectors_spark", home)
    return json.loads((home / "found.json").read_text())


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_the_connector_opens_what_the_plan_keeps(found: Any, format: str) -> None:
    """By ranges, and not by the names of files, under which it opens every file."""
    files = found["classic"][format]
    assert (files["alone"], files["by file"]) == (FILES, FILES)
    for each in ("one", "two", "none", "null"):
        assert files[each] == files["kept"][each], each
    assert files["kept"] == {"one": 1, "two": 2, "none": 0, "null": 1}
    read = found["damaged"][format]
    assert read["rows"] == read["expected"] > 0
    assert read["files"] < FILES
    assert read["alone"]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("session", ["classic", "connect"])
def test_rows_are_those_of_one_version(found: Any, session: str, format: str) -> None:
    """Deleted rows are left out by the connector, and later commits change nothing."""
    pairs = found[session][format]["pairs"]
    assert sum(bool(alone) for _, alone in pairs) > len(pairs) // 2
    for ours, alone in pairs:
        assert ours == alone


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_reports_name_the_connector(found: Any, format: str) -> None:
    """``skip`` leaves relations of a connector alone, and reports say what to use."""
    files = found["classic"][format]
    assert files["same"]
    for report in ("explained", "last"):
        assert "Table(path).read(spark, where) uses the index" in files[report]
        assert "connector=True" in files[report]
    for report in ("ours", "ours explained"):
        assert f"ranges of id leave it 1 of {FILES} files" in files[report]
        assert f"read 1 of {FILES} files" in files[report]


@pytest.mark.spark
@pytest.mark.long
def test_iceberg_reads_the_filters_of_an_export(found: Any) -> None:
    """The blobs by its reader of Puffin, and the hashes by those of its jar."""
    blobs = found["puffin"]
    assert len(blobs) > FILES
    for each in blobs:
        assert (each["type"], each["column-name"]) == ("bloom-filter-v1", "u")
        assert int(each["num-values"]) == len(each["values"]) > 0
        assert set(each["values"]) <= set(each["held"])
        assert len(each["held"]) <= len(each["values"]) + 30


def text(table: Any) -> list[str]:
    """The rows as ``rows.json`` has them."""
    found = []
    for row in table.to_pylist():
        inner = row["s"] or {"n": None, "t": None}
        more = list(row.values())[4:]
        found.append(repr([row["id"], row["k"], row["d"], inner["n"], inner["t"], *more]))
    return sorted(found)


@pytest.mark.spark
@pytest.mark.long
def test_every_snapshot_has_the_rows_of_spark(home: Path, found: Any) -> None:
    """With and without an index, of tables of version 2 and 3, partitioned in several ways."""
    stored = json.loads((home / "rows.json").read_text())
    deleted = 0
    for name, by_snapshot in stored.items():
        path = str(home / "db" / name)
        for indexes in ([], ["id:bloom", "id:minmax", "s.t:bloom", "d:minmax"]):
            if indexes:
                skipstone.Table(path).build(indexes=indexes)
            for version, expected in list(by_snapshot.items())[:: 1 if indexes else 2]:
                table = skipstone.Table(path, version=version)
                assert text(table.query()) == expected
                assert table.count() == len(expected)
                held = [int(row[1:].split(",")[0]) for row in expected]
                assert (table.min("id"), table.max("id")) == (min(held), max(held))
                for id in (17, 61):
                    assert table.count(f"id = {id}") == held.count(id)
                nan = sum(", nan, " in row for row in expected)
                assert table.count("s.n > 1e300") == nan
                news = [row for row in expected if "'new'" in row]
                assert text(table.query("s.t = 'new'")) == news
                deleted += "deleted row" in str(table.describe())
                if table.query().num_columns > 4:
                    assert table.count("z = 7") == len(expected)
    assert deleted > 10


@pytest.mark.spark
@pytest.mark.long
def test_statistics_inside_structs_prune(home: Path, found: Any) -> None:
    table = skipstone.Table(home / "db" / "t1")
    assert table.plan("s.t < 'a long'").files_kept == 0
    assert table.plan("d < DATE'2025-01-01'").files_kept == 0
    assert "Apache Iceberg" in str(table.explain("s.t < 'a long'"))


@pytest.mark.spark
def test_a_session_without_the_connector(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    with pytest.raises(UnsupportedError, match="the session has no connector of Delta Lake") as e:
        skipstone.Table(path).read(spark, "id = 1", connector=True)
    assert "leave out connector=True" in str(e.value.hint)
    (tmp_path / "plain").mkdir()
    with pytest.raises(UnsupportedError, match="not a table of a table format"):
        skipstone.read(spark, tmp_path / "plain", "id = 1", connector=True)


TYPES = {
    pa.int32(): st.integers(-20, 20),
    pa.date32(): st.integers(-20, 20),
    pa.string(): st.text("aé'\\\U0001f600", max_size=3),
}


@pytest.mark.parametrize("type", TYPES, ids=str)
@given(data=st.data())
def test_ranges_cover_what_is_kept(type: pa.DataType, data: st.DataObject) -> None:
    """Every row of a kept file has the condition, and no row of a file that it leaves out."""
    value = st.none() | TYPES[type]
    files = data.draw(st.lists(st.tuples(st.booleans(), st.lists(value, max_size=4)), max_size=12))
    keep = np.array([kept for kept, _ in files], np.bool_)
    arrays = [
        pa.array(values, pa.int32() if pa.types.is_date(type) else type) for _, values in files
    ]
    known = bounds([each.cast(type) for each in arrays], type)
    found = ranges_of("a b", known, keep)
    if found is None:
        return
    assert not (found.gone & keep).any()
    assert found.gone.any()
    for at, array in enumerate(arrays):
        rows = pa.table({"a b": array.cast(type)})
        said = count(rows, found.sql)
        assert said == (len(rows) if keep[at] else said)
        assert not (found.gone[at] and said)


def count(rows: pa.Table, where: str) -> int:
    """Rows of which DuckDB says that the condition is true; it has no backquotes and escapes."""
    text = where.replace("`", '"').replace("\\\\", "\0").replace("\\'", "''").replace("\0", "\\")
    return len(duckdb.from_arrow(rows).filter(text).fetchall())


def bounds(arrays: Sequence[pa.Array], type: pa.DataType) -> Intervals:
    """The bounds of files with these values, as a format has them."""
    import pyarrow.compute as pc

    ends = [pc.min_max(each) for each in arrays]
    return Intervals.checked(
        type=type,
        lo=order_keys(pa.array([each["min"].as_py() for each in ends], type), type),
        hi=order_keys(pa.array([each["max"].as_py() for each in ends], type), type),
        rows=np.array([len(each) for each in arrays], np.int64),
        nulls=np.array([each.null_count for each in arrays], np.int64),
    )


def test_ranges_are_few() -> None:
    """Of a thousand kept files, every second one, the condition has a bounded number of ranges."""
    arrays = [pa.array([at * 10, at * 10 + 3], pa.int32()) for at in range(2_000)]
    keep = np.arange(2_000) % 2 == 0
    found = ranges_of("id", bounds(arrays, pa.int32()), keep)
    assert found is not None
    assert found.sql.count("BETWEEN") == MOST_RANGES
    assert found.gone.sum() == MOST_RANGES  # one file in each gap, and the last
    assert ranges_of("id", bounds(arrays, pa.int32()), np.ones(2_000, np.bool_)) is None
