"""A column of the folders that the files have too, in files whose types widen, read by Spark.

The folders have its name, type and values, and the files its place. ``FILES`` are the rows of each
file without ``day``, which is of another type there, and wrong.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.session import is_connect

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

WRONG = -7
DEFAULT = {"EXISTS_DEFAULT": "5", "CURRENT_DEFAULT": "5"}
# folder -> columns of its file; ``Day`` in the folders' spelling is not that of the files
FILES = {
    "Day=07/h=a": pa.table(
        {
            "a": pa.array([1, None], pa.int32()),
            "day": pa.array([WRONG, WRONG], pa.int64()),
            "id": [0, 1],
        }
    ),
    "Day=8/h=b": pa.table({"id": [2, 3], "A": pa.array([3_000_000_000, 5], pa.int64())}),
    "Day=__HIVE_DEFAULT_PARTITION__/h=c": pa.table(
        {"DAY": pa.array([WRONG], pa.int32()), "id": [4], "a": pa.array([6], pa.int16())}
    ),
}
ROWS: list[dict[str, Any]] = [
    {"a": 1, "Day": 7, "id": 0, "h": "a"},
    {"a": None, "Day": 7, "id": 1, "h": "a"},
    {"a": 3_000_000_000, "Day": 8, "id": 2, "h": "b"},
    {"a": 5, "Day": 8, "id": 3, "h": "b"},
    {"a": 6, "Day": None, "id": 4, "h": "c"},
]
SCHEMA = "struct<a:bigint,Day:int,id:bigint,h:string>"
WHERE = {
    None: [0, 1, 2, 3, 4],
    "day = 7": [0, 1],
    "DAY IS NULL OR a > 2999999999": [2, 4],
    "day = -7": [],
    "a = 5 AND h = 'b'": [3],
}


def written(root: Path, files: dict[str, pa.Table]) -> str:
    for folder, content in files.items():
        (root / folder).mkdir(parents=True)
        pq.write_table(content, root / folder / "0.parquet")
    return str(root)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["id"])


@pytest.mark.parametrize("indexed", [False, True])
def test_the_folder_has_the_values_and_the_types_widen(
    session: SparkSession, tmp_path: Path, indexed: bool
) -> None:
    root = written(tmp_path / "t", FILES)
    if indexed:
        Table(root).build(indexes=["id:minmax", "a:minmax"])
    table = Table(root)
    assert table.read(session).schema.simpleString() == SCHEMA
    for where, ids in WHERE.items():
        frame = table.read(session, where)
        assert frame.columns == ["a", "Day", "id", "h"]
        found = rows(frame)
        assert found == [row for row in ROWS if row["id"] in ids]
        queried = table.query(where or "true")
        assert queried.column_names == frame.columns
        assert found == queried.sort_by("id").to_pylist()


def test_orders_limits_and_columns_apply(session: SparkSession, tmp_path: Path) -> None:
    table = Table(written(tmp_path / "t", FILES))
    wanted: dict[str, Any] = {"order_by": "a desc", "limit": 2, "columns": ["day", "id"]}
    assert [tuple(row) for row in table.read(session, **wanted).collect()] == [(8, 2), (None, 4)]
    ordered = table.read(session, "h <> 'c'", order_by="Day desc, id", columns=["id"])
    assert [row.id for row in ordered.collect()] == [2, 3, 0, 1]


def test_files_are_skipped_by_folders_and_indexes(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = written(tmp_path / "t", FILES)
    Table(root).build(indexes=["id:minmax"])
    for where in ("id = 3", "day = 8"):
        frame = Table(root).read(session, where)
        paths = {row.file_path for row in frame.select("_metadata.file_path").collect()}
        assert [path.rsplit("/", 3)[1] for path in paths] == ["Day=8"]
        if not is_connect(session):
            assert "read 1 of" in str(skipstone.last_scan(session))
    assert "read in full" not in caplog.text


def test_place_name_and_types_are_those_of_spark(session: SparkSession, tmp_path: Path) -> None:
    # Spark merges these files itself: no type widens.
    days = ("1999-12-31 23:59:59", "2000-01-01 00:00:00")
    files = {
        f"N=__HIVE_DEFAULT_PARTITION__/t={day.replace(':', '%3A')}/x={x}": content
        for day, x, content in (
            (days[0], "1", pa.table({"T": ["?"], "id": [0], "n": [1], "X": ["?"]})),
            (days[1], "2.5", pa.table({"id": [1], "late": ["y"]})),
        )
    }
    root = written(tmp_path / "t", files)
    theirs = session.read.option("mergeSchema", "true").parquet(root)
    frame = Table(root).read(session)
    assert frame.schema == theirs.schema
    assert rows(frame) == rows(theirs)


def test_case_counts_where_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "c=1": pa.table({"C": pa.array([5], pa.int32()), "id": [0]}),
        "c=2": pa.table({"C": pa.array([6], pa.int64()), "id": [1]}),
    }
    table = Table(written(tmp_path / "t", files))
    assert [tuple(row) for row in table.read(spark).sort("id").collect()] == [(1, 0), (2, 1)]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        found = table.read(spark, "C > 5")
        assert found.columns == ["C", "id", "c"]
        assert [tuple(row) for row in found.collect()] == [(6, 1, 2)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_files_may_have_nothing_else(session: SparkSession, tmp_path: Path) -> None:
    files = {
        f"id={at}": pa.table({"id": pa.array([9, 9], type)})
        for at, type in enumerate((pa.int32(), pa.int64()))
    }
    frame = Table(written(tmp_path / "t", files)).read(session, "id < 5")
    assert [row.id for row in frame.sort("id").collect()] == [0, 0, 1, 1]


def with_default(content: pa.Table) -> pa.Table:
    """With Spark's own schema in the footer: ``d`` is 5 in files that lack it."""
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {} if name != "d" else DEFAULT,
        }
        for name in content.column_names
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    return content.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": text})


def test_spark_merges_columns_with_a_default(session: SparkSession, tmp_path: Path) -> None:
    files = {
        "c=1": with_default(pa.table({"c": [WRONG], "d": [6], "id": [0]})),
        "c=2": pa.table({"c": [WRONG], "id": [1]}),
    }
    table = Table(written(tmp_path / "t", files))
    found = table.read(session).sort("id")
    assert found.columns == ["c", "d", "id"]
    assert [tuple(row) for row in found.collect()] == [(1, 6, 0), (2, 5, 1)]
    # A schema that the user gives may widen, and keep the default.
    files["c=2"] = pa.table({"c": [WRONG], "id": pa.array([1], pa.int32())})
    root = written(tmp_path / "wider", files)
    table = Table(root)
    with pytest.raises(UnsupportedError, match=r"does not merge .*\(d\)"):
        table.read(session, "c = 2")
    assert table.query("c = 2", ["c", "id"]).to_pylist() == [{"c": 2, "id": 1}]
    wide = StructType().add("d", "long", metadata=DEFAULT).add("id", "long")
    given = session.read.schema(wide).parquet(root)
    frame = given if is_connect(session) else skipstone.skip(given)
    assert [tuple(row) for row in frame.where("c = 2").collect()] == [(5, 1, 2)]
