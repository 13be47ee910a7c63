"""Tables of Apache Hudi, written by Spark with Hudi's bundle.

    python -m tests.table_formats.hudi_spark HOME JAR [STEPS]

It runs in an environment with PySpark 3.5. The tables lie below HOME, and ``rows.json`` has their
rows by instant, as Spark reads them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

#: by name: seed, type, partitions
TABLES = {
    "whole": (1, "cow", ""),
    "parted": (2, "cow", "PARTITIONED BY (k)"),
    "logs": (3, "mor", ""),
    "cleaned": (4, "cow", ""),
}
COLUMNS = (
    "id bigint, d date, at timestamp, money decimal(20,2), x double, s struct<n: float, t: string>,"
    " k string"
)
VALUES = (
    "id, date_add(DATE'2025-12-28', CAST(id % 9 AS int)) AS d,"
    " timestamp_micros(id * 1000001 - 20000000) AS at, CAST(id AS decimal(20,2)) / 8 AS money,"
    " CASE WHEN id % 10 = 9 THEN double('NaN') WHEN id % 7 <> 0 THEN id / 2D END AS x,"
    " CASE WHEN id % 6 < 5 THEN named_struct('n', float(id), 't', concat('text ', id)) END AS s,"
    " concat('k ', id % 2) AS k"
)
#: small files: a filter in each footer is for 60,000 keys otherwise
PROPERTIES = {
    "primaryKey": "id",
    "preCombineField": "id",
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
}


class History:
    """Random commits to one table."""

    def __init__(self, spark: Any, home: Path, name: str) -> None:
        seed, kind, partitions = TABLES[name]
        self.spark, self.random, self.next, self.name = spark, random.Random(seed), 0, name
        self.kind, self.columns = kind, 0
        properties = ", ".join(f"'{k}' = '{v}'" for k, v in {"type": kind, **PROPERTIES}.items())
        spark.sql(
            f"CREATE TABLE {name} ({COLUMNS}) USING hudi {partitions}"
            f" TBLPROPERTIES ({properties}) LOCATION '{home / name}'"
        )
        for key, value in PROPERTIES.items():
            if key.startswith("hoodie"):
                spark.sql(f"SET {key}={value}")
        self.insert()

    def step(self) -> None:
        steps = [self.insert, self.insert, self.delete, self.update]
        steps += [self.compact] * 2 if self.kind == "mor" else [self.cluster, self.overwrite]
        self.random.choice(steps)()

    def insert(self) -> None:
        self.next += 20
        source = f"SELECT {VALUES} FROM range({self.next - 20}, {self.next}, 1, 1)"
        self.spark.sql(f"INSERT INTO {self.name} {source}")

    def overwrite(self) -> None:
        self.next += 20
        source = f"SELECT {VALUES} FROM range({self.next - 20}, {self.next}, 1, 1)"
        self.spark.sql(f"INSERT OVERWRITE {self.name} {source}")

    def delete(self) -> None:
        at = self.random.randint(0, self.next)
        self.spark.sql(f"DELETE FROM {self.name} WHERE id BETWEEN {at} AND {at + 5}")

    def update(self) -> None:
        at = self.random.randint(0, self.next)
        self.spark.sql(f"UPDATE {self.name} SET x = -1 WHERE id BETWEEN {at} AND {at + 5}")

    def cluster(self) -> None:
        self.spark.sql(f"CALL run_clustering(table => '{self.name}', op => 'scheduleAndExecute')")

    def compact(self) -> None:
        self.spark.sql(f"CALL run_compaction(op => 'scheduleAndExecute', table => '{self.name}')")

    def clean(self) -> None:
        """Removes all files but those of the newest instant, which has other ones."""
        self.spark.sql(f"UPDATE {self.name} SET x = -2 WHERE id < 3")
        self.spark.sql(f"DELETE FROM {self.name} WHERE id = 4")
        self.spark.sql(f"CALL run_clean(table => '{self.name}', retain_commits => 1)")

    def rows(self) -> dict[str, list[str]]:
        """The rows by instant, without those of instants whose files were cleaned."""
        found: dict[str, list[str]] = {}
        called = f"CALL show_commits(table => '{self.name}', limit => 100)"
        for (instant,) in self.spark.sql(called).select("commit_time").collect():
            if self.name == "cleaned" and found:
                break  # the newest comes first, and Hudi refuses the others
            read = self.spark.sql(
                "SELECT _hoodie_commit_time, _hoodie_record_key, id, d, at, money, x, s.n, s.t, k"
                f" FROM {self.name} TIMESTAMP AS OF '{instant}'"
            )
            found[instant] = sorted(repr(list(row)) for row in read.collect())
        return found


def main(home: Path, jar: str, steps: int) -> None:
    """Writes all tables."""
    from pyspark.sql import SparkSession

    options = {
        "spark.jars": jar,
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = {}
    for name in TABLES:
        history = History(spark, home, name)
        for _ in range(1 if name == "cleaned" else steps):
            history.step()
        if name == "cleaned":
            history.clean()
        found[name] = history.rows()
    (home / "rows.json").write_text(json.dumps(found, indent=1))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 9)
