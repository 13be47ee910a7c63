"""The main job from end to end with nothing but the package: `python -m tests.main_job`.

Index a small directory with Spark, query it with and without the index, and compare the rows, and
the files that Spark itself says it read, with what the layout demands. Exit code 1 on a mismatch.
It takes no arguments, so that it runs alike in the clean environment of the wheel's test and in the
one with the oldest supported PySpark.

The layout: 20 files of 500 rows. `id` counts through all rows in an order that puts every
twentieth into the same file, so each file spans nearly the whole range and only the bloom filter
can tell them apart. `day` is the file's number: min/max tell. `kind` is "even" or "odd" with the
file's number, and "rare" in one row of file 7: the value list tells. `x` holds NaN, nulls and both
zeros.

Then the ways in which versions of Spark differ: partition columns of several types, lists of more
than ten values (another expression in Catalyst), instants, dates and decimals, a subquery, a table
of the catalog, `Table.read`, and a refresh after a file was replaced and one was added; at last a
whole session, `enable`, and a table opened by its name.
"""

from __future__ import annotations

import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.layout import rows, rows_of_each
from tools.scanned import scanned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 20, 500

# What is asked, and how many files at least and at most may be read for it. A bloom filter may err
# on the side of reading, by its rate of one in a hundred: four files are far beyond bad luck.
QUERIES: list[tuple[str, int, int]] = [
    ("id = 4711", 1, 4),
    ("id = 123456", 0, 4),
    ("id IN (7, 27, 4711, 999999)", 2, 6),
    ("day >= 18", 2, 2),
    ("day = 3 AND kind = 'odd'", 1, 1),
    ("day = 3 AND kind = 'even'", 0, 0),
    ("kind = 'rare'", 1, 1),
    ("kind = 'rare' OR id = 4711", 2, 5),
    ("NOT (day < 19)", 1, 1),
    ("day IS NULL", 0, 0),
    ("x = double('NaN')", FILES, FILES),
    ("x IS NULL AND day = 5", 1, 1),
    ("length(kind) = 4", FILES, FILES),
]


def lay_out(table: Path) -> None:
    """Write the files of the layout above."""
    table.mkdir()
    for number in range(FILES):
        kind = np.full(ROWS, "odd" if number % 2 else "even", object)
        if number == 7:
            kind[250] = "rare"
        x = np.linspace(-1.0, 1.0, ROWS)
        x[:4] = [np.nan, 0.0, -0.0, np.inf]
        columns: dict[str, Any] = {
            "id": np.arange(ROWS) * FILES + number,
            "day": pa.array(np.full(ROWS, number, np.int32)),
            "kind": pa.array(kind.tolist()),
            "x": pa.array(x, mask=np.arange(ROWS) % 50 == 9),
        }
        pq.write_table(pa.table(columns), table / f"part {number:02d} é%.parquet")


def compare(spark: SparkSession, table: Path) -> list[str]:
    """Index the table, ask every query both ways; returns what does not agree, one line each."""
    import skipstone

    wrong = []
    indexes = ["id:bloom", "day:minmax", "kind:valuelist", "x:minmax"]
    skipstone.Table(str(table)).build(spark, indexes=indexes)
    plain = spark.read.parquet(str(table))
    every = rows_of_each(plain, [query for query, _, _ in QUERIES])
    needle = plain.where("id = 4711")
    if (len(needle.collect()), scanned(needle).files) != (1, FILES):
        wrong.append(f"without the index {scanned(needle).files} files were read, not {FILES}")
    for (query, least, most), expected in zip(QUERIES, every, strict=True):
        skipping = skipstone.skip(spark.read.parquet(str(table)).where(query))
        got = rows(skipping)
        files = scanned(skipping).files
        print(f"{query:<32} {len(got):>6} rows, {files} of {FILES} files")
        if got != expected:
            wrong.append(f"{query}: {len(got)} rows with the index, {len(expected)} without")
        if not least <= files <= most:
            wrong.append(f"{query}: {files} files read, {least} to {most} expected")
    print(skipstone.last_scan(spark))
    return wrong


# The same over partitions: the folders are `day=2026-01-01/part=0` to `part=3`, two files in each.
PARTITIONED: list[tuple[str, int, int]] = [
    ("part = 2 AND id = 1001", 0, 1),
    ("id IN (1, 101, 201, 301, 401, 501, 601, 701, 5001, 6001, 7001, 8001)", 8, 8),
    ("at >= timestamp '2026-01-01 00:11:40+00:00'", 1, 1),
    ("at IN (timestamp '2026-01-01 00:00:05+00:00', timestamp '2026-01-01 00:00:07+00:00')", 1, 1),
    ("born < date '2026-01-02'", 1, 1),
    ("price > 70.00", 1, 1),
    ("name LIKE 'n-3%'", 1, 1),
    ("day = date '2026-01-01' AND part > 1 AND name = 'n-7'", 1, 1),
    ("price = (SELECT max(price) FROM VALUES (5.25) AS t(price))", 0, 8),
    ("name = 'n-1' OR part = 3", 3, 8),
    ("NOT (name <> 'n-4')", 1, 1),
]


def lay_out_partitions(table: Path) -> None:
    """Eight files of 100 rows in four folders; each column tells the files apart."""
    for number in range(8):
        folder = table / "day=2026-01-01" / f"part={number // 2}"
        folder.mkdir(parents=True, exist_ok=True)
        id = number * 100 + np.arange(100)
        start = np.datetime64("2026-01-01T00:00:00", "us")
        prices = [Decimal(f"{number * 10 + i % 10}.25") for i in range(100)]
        columns: dict[str, Any] = {
            "id": id,
            "at": pa.array(start + id.astype("timedelta64[s]"), pa.timestamp("us", "UTC")),
            "born": pa.array(np.full(100, f"2026-01-{number + 1:02d}", "datetime64[D]")),
            "price": pa.array(prices, pa.decimal128(9, 2)),
            "name": pa.array([f"n-{number}"] * 100),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def compare_partitions(spark: SparkSession, path: Path) -> list[str]:
    """The queries of ``PARTITIONED`` in three ways: a path, ``Table.read``, a table's name."""
    import skipstone

    columns = ("id", "at", "born", "price", "name")
    table = skipstone.Table(str(path))
    table.build(spark, indexes=[f"{name}:minmax" for name in columns[:4]] + ["name:valuelist"])
    spark.sql(f"CREATE TABLE events USING parquet LOCATION '{path}'")
    spark.sql("MSCK REPAIR TABLE events")
    wrong = []
    for turn in ("built", "refreshed"):
        # Once files have changed, each kind of file: new, replaced and as before.
        asked = PARTITIONED if turn == "built" else PARTITIONED[1::3]
        every = rows_of_each(spark.read.parquet(str(path)), [query for query, _, _ in asked])
        for (query, least, most), plain in zip(asked, every, strict=True):
            ways = {
                "path": skipstone.skip(spark.read.parquet(str(path)).where(query)),
                "read": table.read(spark, query) if "SELECT" not in query else None,
                "name": skipstone.skip(spark.table("events").where(query)),
            }
            for way, frame in ways.items():
                if frame is None:
                    continue
                got = rows(frame)
                if got != plain:
                    wrong.append(f"{turn}, {way}: {query}: {len(got)} rows, not {len(plain)}")
                files = scanned(frame).files
                if way == "path" and turn == "built" and not least <= files <= most:
                    wrong.append(f"{query}: {files} files read, {least} to {most} expected")
            print(f"{turn}: {query[:60]:<60} {len(plain):>5} rows")
        # A replaced file and a new one: read without an index, then indexed too.
        folder = path / "day=2026-01-01"
        for source, target in (("part=0/0", "part=3/7"), ("part=1/2", "part=3/8")):
            copied = pq.read_table(folder / f"{source}.parquet", partitioning=None)
            pq.write_table(copied, folder / f"{target}.parquet")
        if turn == "built":
            spark.catalog.refreshTable("events")
            report = table.refresh(spark)
            if report.files_built != 2:
                wrong.append(f"{report.files_built} files refreshed, 2 expected")
    return wrong


def compare_session(spark: SparkSession, path: Path) -> list[str]:
    """An enabled session over the table of ``compare``: queries by name, by a view, and commands,
    which run once."""
    import skipstone

    spark.sql(f"CREATE TABLE whole USING parquet LOCATION '{path}'")
    spark.sql("CREATE TABLE copied (id BIGINT) USING parquet")
    spark.sql("CREATE VIEW seen AS SELECT * FROM whole WHERE day < 18")
    wrong = []
    by_name = skipstone.Table(spark, "whole").plan("day = 3").files_kept
    if by_name != 1:
        wrong.append(f"by name: {by_name} files are planned, not 1")
    skipstone.enable(spark)
    try:
        for source in ("whole", "whole", "seen", f"parquet.`{path}`"):
            found = spark.sql(f"SELECT id FROM {source} WHERE day = 3").count()
            scans = skipstone.last_scan(spark)
            if (found, scans.files_kept) != (ROWS, 1):
                wrong.append(f"enabled, {source}: {found} rows of {scans.files_kept} files")
        for command in (
            "INSERT INTO copied SELECT id FROM whole WHERE day = 4",
            "WITH c AS (SELECT * FROM whole WHERE day = 5) INSERT INTO copied SELECT id FROM c",
        ):
            spark.sql(command)
            read = skipstone.last_scan(spark).files_kept
            if read != 1:
                wrong.append(f"{command}: {read} files read, not 1")
        if spark.table("copied").count() != 2 * ROWS:
            wrong.append(f"{spark.table('copied').count()} rows were written, not {2 * ROWS}")
    finally:
        skipstone.disable(spark)
    print("enabled:", wrong or "as expected")
    return wrong


def main() -> int:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import pyspark
    from pyspark.sql import SparkSession

    print(f"PySpark {pyspark.__version__}")
    with tempfile.TemporaryDirectory(prefix="skipstone-main-job-") as home:
        lay_out(Path(home) / "events")
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{home}/warehouse")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            wrong = compare(spark, Path(home) / "events")
            lay_out_partitions(Path(home) / "partitioned")
            wrong += compare_partitions(spark, Path(home) / "partitioned")
            wrong += compare_session(spark, Path(home) / "events")
        finally:
            spark.stop()
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
