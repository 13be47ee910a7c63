"""Transparent reading: the same Spark code, fewer files, and a word about every scan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

import skipstone
from skipstone import Table
from tests.accept.registry import point
from tests.accept.tables import FILES, ROWS, backdate, events, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tests.accept.workbench import Workbench


def indexed(bench: Workbench) -> Path:
    """The table ``events`` with four indexes."""
    root = events(bench.home / "events")
    Table(str(root)).build(indexes=["id:bloom", "day:minmax", "kind:valuelist", "note:minmax"])
    return root


def check(bench: Workbench, plain: DataFrame, files: int | None, total: int = FILES) -> None:
    """Rows of ``plain`` are those of ``skip(plain)``, which reads ``files`` of ``total``."""
    skipping = skipstone.skip(plain)
    expected, got = sorted(map(repr, plain.collect())), sorted(map(repr, skipping.collect()))
    assert got == expected, f"{len(got)} rows, plain Spark has {len(expected)}"
    scans = skipstone.last_scan(bench.spark)
    assert scans is not None
    if files is not None:
        assert (scans.files_kept, scans.files_total) == (files, total), repr(scans)


@point("reading: skip(df) over a path, a temp view, a catalog table, a join and an aggregate")
def everywhere(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    frame = spark.read.parquet(str(root))
    check(bench, frame.where("kind = 'rare'"), 1)
    check(bench, frame.where("day = 3 AND note = 'here'").select("id", "note"), 1)
    check(bench, frame.where("day > 9").groupBy("kind").count(), 2)
    check(bench, frame.where("day = 99"), 0)
    check(bench, frame.where("length(kind) = 4"), FILES)
    frame.createOrReplaceTempView("accept_events")
    check(bench, spark.sql("SELECT count(*) FROM accept_events WHERE day IN (1, 2)"), 2)
    spark.sql(f"CREATE TABLE accept_table USING parquet LOCATION '{root.as_uri()}'")
    try:
        check(bench, spark.table("accept_table").where("day = 5"), 1)
    finally:
        spark.sql("DROP TABLE accept_table")
    left, right = frame.where("day = 1").alias("a"), frame.where("day = 2").alias("b")
    joined = left.join(right, on="kind", how="full").selectExpr("count(*)")
    check(bench, joined, 2, 2 * FILES)
    assert skipstone.last_scan(spark) is not None
    assert len(skipstone.last_scan(spark).scans) == 2, "a join has two scans"


@point("reading: Table.read, and SQL over a view of it")
def table_read(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    Table(str(root)).read(spark).createOrReplaceTempView("accept_skipping")
    rows = spark.sql("SELECT id FROM accept_skipping WHERE day = 4 AND id < 1000").collect()
    assert len(rows) == len([r for r in range(ROWS) if r * FILES + 4 < 1000]), len(rows)
    scans = skipstone.last_scan(spark)
    assert scans is not None
    assert scans.files_kept == 1, repr(scans)
    text = str(skipstone.explain(skipstone.read(spark, str(root), where="day = 4")))
    assert f"read 1 of {FILES} files" in text, text


@point("reading: partitioned tables, with blanks, %, é and = in the folders")
def partitions(bench: Workbench) -> None:
    spark, root = bench.spark, bench.home / "parts"
    for number, folder in enumerate(("p=a b", "p=100%25", "p=é", "p=x%3Dy")):
        for day in range(3):
            write(root / folder / f"part {day}.parquet", {"day": [day] * 4, "v": [number] * 4})
    Table(str(root)).build(indexes=["day:minmax"])
    frame = spark.read.parquet(str(root))
    check(bench, frame.where("p = 'a b' AND day = 1"), 1, 3)
    check(bench, frame.where("p = '100%' AND day > 0"), 2, 3)
    # Spark hands a file index no filter that mixes folders and columns; a plan of ours has it.
    check(bench, frame.where("p = 'x=y' OR day = 2"), 12, 12)
    assert Table(str(root)).plan("p = 'x=y' OR day = 2").files_kept == 6
    check(bench, frame.where("day = 0"), 4, 12)


@point("reading: new, changed and unindexed files are always read, and named")
def changes(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    write(root / "part 70.parquet", {"id": [1], "day": pa.array([3], pa.int32()), "kind": ["new"]})
    changed = next(root.glob("part 05*"))
    write(changed, {"id": [2], "day": pa.array([3], pa.int32()), "kind": ["changed"]})
    backdate(changed, age=99)
    frame = spark.read.parquet(str(root)).select("id", "day", "kind")
    check(bench, frame.where("day = 3 AND kind IN ('new', 'changed')"), None, FILES + 1)
    scans = skipstone.last_scan(spark)
    assert scans is not None
    assert scans.files_kept <= 3, repr(scans)
    assert "1 new and 1 changed since" in str(scans), str(scans)


@point("reading: an index that is damaged, cut off or gone costs time, never rows")
def damaged(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    facts = bench.home / "_events.skipstone" / "facts"
    frame = spark.read.parquet(str(root)).where("day = 3 AND kind = 'odd'")
    for part in facts.iterdir():
        whole = part.read_bytes()
        part.write_bytes(whole[: len(whole) // 2] + b"\xff" * 7 + whole[len(whole) // 2 + 7 :])
    check(bench, frame, None)
    for part in facts.iterdir():
        part.write_bytes(part.read_bytes()[:100])
    check(bench, frame, FILES)
    for part in facts.iterdir():
        part.unlink()
    assert skipstone.skip(frame).count() == ROWS


@point("other sources: a CSV table is indexed by the command line and skips; other options do not")
def csv(bench: Workbench) -> None:
    spark, root = bench.spark, bench.home / "csv"
    root.mkdir()
    for number in range(4):
        path = root / f"part {number}.csv"
        path.write_text("c,s\n" + "".join(f"{number * 10 + i},v{number}\n" for i in range(10)))
        backdate(path)
    reader = ("--format", "csv", "--option", "header=true", "--schema", "c int, s string")
    ran = bench.skipstone(
        "build",
        root,
        "-c",
        "c:minmax",
        "-c",
        "s:valuelist",
        *reader,
        "--master",
        "local[2]",
        "--json",
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["files_built"] == 4, ran.out
    frame = spark.read.option("header", "true").schema("c int, s string").csv(str(root))
    zone = spark.conf.get("spark.sql.session.timeZone")
    built = Table(str(root), format="csv", options={"header": "true"}, schema="c int, s string")
    built.build(spark, indexes=["c:minmax", "s:valuelist"])
    check(bench, frame.where("c = 25"), 1, 4)
    check(bench, frame.where("s IN ('v0', 'v3')"), 2, 4)
    # Read as strings, '9' is larger than '25': facts about integers must say nothing.
    text = spark.read.option("header", "true").schema("c string, s string").csv(str(root))
    check(bench, text.where("c > '25'"), 4, 4)
    assert zone == spark.conf.get("spark.sql.session.timeZone")
