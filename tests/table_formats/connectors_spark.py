"""Reads tables through the connectors of Delta Lake and Apache Iceberg, and writes what happened.

    python -m tests.table_formats.connectors_spark HOME JARS

It runs in an environment with a Spark that the connectors know. ``found.json`` in HOME has rows
of both formats as the connector gives them with and without Skipstone, and files that were opened.
The tables of ``iceberg_spark`` are written as well.
The tables are read by a session in this process first, and then through Spark Connect, which the
same process of Java serves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import skipstone
from tests.spark_servers import free_port
from tests.table_formats import iceberg_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("delta", "iceberg")
#: files of this many rows, whose ids follow each other
FILES, ROWS = 8, 50
SELECT = (
    "id, concat('u', id * 7919 % 400) AS u, 'x' || id % 3 AS kind, id / 4D AS x,"
    f" CASE WHEN id DIV {ROWS} <> 3 THEN date_add(DATE'2026-01-01', CAST(id DIV {ROWS} AS int)) END"
    " AS day, timestamp_micros(id * 1000003) AS ts"
)


def main(home: Path, jars: str) -> None:
    """Writes ``found.json``."""
    from pyspark.sql.connect.session import SparkSession as Remote

    port = free_port()
    connect = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(port),
    }
    spark = session(home, jars, connect)
    found: dict[str, Any] = {"classic": {}, "connect": {}}
    for format in FORMATS:
        path, name = made(spark, home, format)
        table = skipstone.Table(path)
        table.build(indexes=["u:bloom"])
        found["classic"][format] = {**opened(spark, table, format), **said(spark, table, name)}
        found["classic"][format]["pairs"] = rows(spark, table, format)
    iceberg_spark.write(spark, home)
    found["puffin"] = puffin(spark, home)
    remote: Any = Remote.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    for format in FORMATS:
        table = skipstone.Table(where(home, format))
        found["connect"][format] = {"pairs": of_connect(remote, table, format)}
    found["damaged"] = {format: damaged(remote, home, format) for format in FORMATS}
    remote.stop()
    spark.stop()
    (home / "found.json").write_text(json.dumps(found, default=str))


def session(home: Path, jars: str, more: Mapping[str, str]) -> SparkSession:
    """A session with both connectors, and with the options ``more``."""
    from pyspark.sql import SparkSession

    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    options = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.h": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.h.type": "hadoop",
        "spark.sql.catalog.h.warehouse": str(home),
        **more,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def where(home: Path, format: str) -> str:
    return str(home / "a b" if format == "delta" else home / "db" / "t")


def made(spark: SparkSession, home: Path, format: str) -> tuple[str, str]:
    """A table with deleted rows: its path and its name in SQL."""
    path = where(home, format)
    name = f"delta.`{path}`" if format == "delta" else "h.db.t"
    vectors = "'delta.enableDeletionVectors' = 'true'"
    deletes = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
    properties = vectors if format == "delta" else deletes
    spark.sql(
        f"CREATE TABLE {name} (id bigint, u string, kind string, x double, day date, ts timestamp)"
        f" USING {format} TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO {name} SELECT {SELECT} FROM range(0, {FILES * ROWS}, 1, {FILES})")
    spark.sql(f"DELETE FROM {name} WHERE id % 7 = 0")
    return path, name


def puffin(spark: SparkSession, home: Path) -> list[dict[str, Any]]:
    """The blobs of an export as Iceberg's reader gives them: properties, the values of the file,
    and which values the bits hold, of those of the table and of as many others."""
    table = skipstone.Table(where(home, "iceberg"))
    path = table.export(str(home / "out"), kind="puffin").destination
    java: Any = spark.sparkContext._jvm
    of = java.org.apache.iceberg
    hash128 = of.relocated.com.google.common.hash.Hashing.murmur3_128()
    halves = {}
    for value in [f"u{number}" for number in range(2 * FILES * ROWS)]:
        data = hash128.hashBytes(bytearray(value.encode())).asBytes()
        halves[value] = [int.from_bytes(half, "little") for half in (data[:8], data[8:])]
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    reader = of.puffin.Puffin.read(of.hadoop.HadoopInputFile.fromLocation(path, conf)).build()
    found, pairs = [], reader.readAll(reader.fileMetadata().blobs()).iterator()
    while pairs.hasNext():
        pair = pairs.next()
        said = dict(pair.first().properties())
        data = bytes(java.org.apache.iceberg.util.ByteBuffers.toByteArray(pair.second()))
        bits, hashes = int(said["num-bits"]), range(int(said["num-hashes"]))
        held = [
            value
            for value, (h1, h2) in halves.items()
            if all(
                data[place // 8] >> place % 8 & 1
                for place in ((h1 + at * h2) % 2**64 % bits for at in hashes)
            )
        ]
        values = pq.read_table(said["data-file"], columns=["u"])["u"].to_pylist()
        found.append({**said, "type": pair.first().type(), "held": held, "values": values})
    reader.close()
    return found


def connector(table: skipstone.Table) -> Any:
    """How the connector reads the newest version."""
    listing: Any = table.listing()
    return listing.snapshot.connector


def newest(table: skipstone.Table) -> str:
    listing: Any = table.listing()
    return str(listing.snapshot.version)


def by_itself(spark: SparkSession, table: skipstone.Table, format: str) -> DataFrame:
    """The newest version by the connector alone."""
    how = connector(table)
    return spark.read.format(format).options(**how.options).load(how.path)


def files_of(frame: DataFrame) -> int:
    """The number of data files that a query opens, by the metrics of its scans."""
    frame.collect()
    todo, found = [frame._jdf.queryExecution().executedPlan()], 0
    while todo:
        plan = todo.pop()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        for name in ("numFiles", "resultDataFiles"):
            metric = plan.metrics().get(name)
            found += int(metric.get().value()) if metric.isDefined() else 0
        todo += [plan.children().apply(at) for at in range(plan.children().size())]
    return found


def opened(spark: SparkSession, table: skipstone.Table, format: str) -> dict[str, Any]:
    """How many files are opened."""
    frame = by_itself(spark, table, format)
    column = "_metadata.file_path" if format == "delta" else "_file"
    [(one,)] = frame.where("id = 60").select(column).collect()
    texts = {"one": "u = 'u19'", "two": "u IN ('u19', 'u1')", "none": "u = 'v'", "null": "x = 38.5"}
    asked = {key: table.read(spark, text, connector=True) for key, text in texts.items()}
    return {
        "alone": files_of(frame.where("u = 'u19'")),
        "by file": files_of(frame.where(f"{column} = '{one}'")),
        **{key: files_of(frame) for key, frame in asked.items()},
        "kept": {key: table.plan(text, inside=False).files_kept for key, text in texts.items()},
    }


def said(spark: SparkSession, table: skipstone.Table, name: str) -> dict[str, Any]:
    """What ``last_scan`` and ``explain`` say of the connector's own relations, and of ours."""
    frame = spark.sql(f"SELECT * FROM {name} WHERE u = 'u19'")
    explained = str(skipstone.explain(frame))
    skipped = skipstone.skip(frame)
    skipped.collect()
    alone = str(skipstone.last_scan(spark))
    ours = table.read(spark, "u = 'u19'", connector=True)
    ours.collect()
    return {
        "same": skipped is frame,
        "explained": explained,
        "last": alone,
        "ours": str(skipstone.last_scan(spark)),
        "ours explained": str(skipstone.explain(ours)),
    }


PREDICATES = (
    "u = 'u19'",
    "u IN ('u5', 'u77') AND day IS NULL",
    "ts > TIMESTAMP'1970-01-01 00:05:00' AND day = DATE'2026-01-03' OR u = 'u399'",
    "hash(id) % 5 = 0 AND u LIKE 'u1%' AND x < 9",
)


def rows(spark: SparkSession, table: skipstone.Table, format: str) -> list[tuple[Any, Any]]:
    """Rows with Skipstone and without, also of versions before later commits."""
    text = "u = 'u19' OR id < 9"
    alone = by_itself(spark, table, format)
    wheres = (*PREDICATES, text, "true")
    decided = alone.selectExpr("*", *(f"({each}) AS c{at}" for at, each in enumerate(wheres)))
    plain = [(list(row)[: -len(wheres)], row[-len(wheres) :]) for row in decided.collect()]
    *expected, before, whole = (
        sorted(repr(row) for row, flags in plain if flags[at]) for at in range(len(wheres))
    )
    pairs = [
        (texts(table.read(spark, each, connector=True)), wanted)
        for each, wanted in zip(PREDICATES, expected, strict=True)
    ]
    some, every = table.read(spark, text, connector=True), table.read(spark, connector=True)
    old = skipstone.Table(table.path, version=newest(table))
    name = f"delta.`{table.path}`" if format == "delta" else "h.db.t"
    source = f"SELECT id + 1000 AS id, 'u19' AS u, kind, x, day, ts FROM {name} WHERE id < 30"
    spark.sql(f"INSERT INTO {name} {source}")
    spark.sql(f"DELETE FROM {name} WHERE id % 11 = 5")
    pairs += [(texts(some), before), (texts(every), whole)]
    pairs.append((texts(old.read(spark, text, connector=True)), before))
    of_one = by_itself(spark, table, format).where("u = 'u19'").collect()
    later = sorted(repr(list(row)) for row in of_one)
    pairs.append((texts(table.read(spark, "u = 'u19'", connector=True)), later))
    first: Any = {"columns": ["id"], "order_by": "id desc", "limit": 3, "connector": True}
    top = sorted(repr([each]) for each in sorted((row.id for row in of_one), reverse=True)[:3])
    pairs.append((texts(table.read(spark, "u = 'u19'", **first)), top))
    return pairs


def of_connect(spark: SparkSession, table: skipstone.Table, format: str) -> list[tuple[Any, Any]]:
    """The same, of few reads."""
    alone, keys = by_itself(spark, table, format).where(PREDICATES[0]), {"u": ["u19"]}
    expected = texts(alone)
    asked = [table.read(spark, PREDICATES[0], connector=True)]
    asked.append(table.read(spark, keys=keys, connector=True))
    return [(texts(each), expected) for each in asked]


def texts(frame: DataFrame) -> list[str]:
    return sorted(map(repr, map(list, frame.collect())))


def damaged(spark: SparkSession, home: Path, format: str) -> dict[str, Any]:
    """Rows of one file, where no other can be read."""
    table = skipstone.Table(where(home, format))
    table.refresh()
    text = "u = 'u399'"
    expected = table.query(text).num_rows
    # Afterwards the files are others to a plan, and it keeps them.
    frame, plan = table.read(spark, text, connector=True), table.plan(text, inside=False)
    for path in set(plan.listing.paths) - set(plan.paths):
        Path(path).write_bytes(bytes(Path(path).stat().st_size))
        Path(path).with_name(f".{Path(path).name}.crc").unlink(missing_ok=True)
    found = frame.collect()
    try:
        by_itself(spark, table, format).where(text).collect()
    except Exception as error:
        alone = type(error).__name__
    else:
        alone = ""
    return {"rows": len(found), "expected": expected, "files": len(plan.paths), "alone": alone}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
