"""Filters that a build chooses by the number of files, through Spark: Parquet, CSV, JSON and ORC,
and under a watch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import skipstone

from .test_watch import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 120


def lay(root: Path, format: str, files: range) -> Path:
    """File i holds i, 1,000 + i … 9,000 + i: each file spans all ids."""
    root.mkdir(exist_ok=True)
    for i in files:
        path = root / f"part-{i:04d}.{format}"
        table = pa.table({"id": pa.array([1_000 * k + i for k in range(10)], pa.int64())})
        if format == "csv":
            pyarrow.csv.write_csv(table, path)
        elif format == "json":
            path.write_text("".join(f'{{"id": {each}}}\n' for each in table["id"].to_pylist()))
        elif format == "orc":
            pyarrow.orc.write_table(table, path)
        else:
            pq.write_table(table, path)
        os.utime(path, (1, 1))
    return root


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc"])
def test_every_format_chooses_by_its_files(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    root = lay(tmp_path / "t", format, range(FILES))
    how: dict[str, Any] = {} if format == "parquet" else {"format": format, "schema": "id BIGINT"}
    if format == "csv":
        how["options"] = {"header": "true"}
    table = skipstone.Table(str(root), **how)
    report = table.build(spark, ["id:bloom"])
    assert (report.files_built, report.notes) == (FILES, ())
    (index,) = table.describe().indexes
    assert dict(index.params) == {"fpp": "0.0083", "files": str(FILES)}
    frame = table.read(spark, "id = 7011")
    assert [row.id for row in frame.collect()] == [7011]
    scan = skipstone.last_scan(spark)
    assert 1 <= scan.files_kept < FILES // 4
    assert table.read(spark, "id = 7999").collect() == []


def test_a_watch_keeps_the_choice_and_says_when_it_is_outgrown(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = lay(tmp_path / "t", "parquet", range(2))
    table = skipstone.Table(str(root))
    table.build(spark, ["id:bloom"])
    lay(root, "parquet", range(2, 450))
    with skipstone.watch(spark, table, interval=0.5) as watch:
        until(watch, lambda: table.describe().fresh == 450 and watch.last_report is not None)
    (index,) = table.describe().indexes
    assert dict(index.params) == {"fpp": "0.01", "files": "2"}
    assert "about 4 of 450 files" in table.describe().notes[0]
