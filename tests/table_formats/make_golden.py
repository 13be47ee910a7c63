"""Writes ``golden``: tables of Delta Lake by its own writer in Spark, and their rows.

    python tests/table_formats/make_golden.py JARS

needs PySpark 4.0 and, in the folder ``JARS``, ``io.delta:delta-spark_2.13:4.0.0`` with
``delta-storage`` and ``antlr4-runtime``. The tables have what ``deltalake`` reads and does not
write: deletion vectors in files, types that were widened, columns that were renamed and dropped.
``rows.json`` has the rows of each version of each table, in the order of ``id``.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")

TABLES = {
    "vectors": (
        "CREATE TABLE {t} (id BIGINT, kind STRING, x DOUBLE) USING delta PARTITIONED BY (kind)"
        " TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
        "INSERT INTO {t} SELECT id, concat('k ', id % 2), id / 4D FROM range(0, 80, 1, 1)",
        "DELETE FROM {t} WHERE id % 10 = 3",
        "INSERT INTO {t} SELECT id, concat('k ', id % 2), id / 4D FROM range(80, 100, 1, 1)",
        "UPDATE {t} SET x = -1 WHERE id IN (7, 90)",
        "DELETE FROM {t} WHERE id >= 70 AND kind = 'k 1'",
    ),
    "widened": (
        "CREATE TABLE {t} (id INT, amount DECIMAL(6,2), small TINYINT, f FLOAT, d INT) USING delta"
        " TBLPROPERTIES ('delta.enableTypeWidening'='true',"
        " 'delta.enableDeletionVectors'='false')",
        "INSERT INTO {t} SELECT id, CAST(id AS DECIMAL(6,2)), CAST(id AS TINYINT),"
        " CAST(id AS FLOAT), CAST(id AS INT) FROM range(0, 10, 1, 1)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN amount TYPE DECIMAL(12,4)",
        "ALTER TABLE {t} ALTER COLUMN small TYPE INT",
        "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN d TYPE DOUBLE",
        "INSERT INTO {t} VALUES (5000000000, 12345678.1234, 100000, 0.1, 1e300)",
    ),
    "mapped": (
        "CREATE TABLE {t} (id BIGINT, name STRING, s STRUCT<a: INT, b: STRING>, part STRING)"
        " USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.columnMapping.mode'='name',"
        " 'delta.enableDeletionVectors'='false')",
        "INSERT INTO {t} SELECT id, concat('n', id), named_struct('a', CAST(id AS INT),"
        " 'b', concat('b', id)), concat('p', id % 2) FROM range(0, 20, 1, 1)",
        "ALTER TABLE {t} RENAME COLUMN name TO title",
        "ALTER TABLE {t} ADD COLUMN name STRING",
        "INSERT INTO {t} (id, title, s, part, name) SELECT id, concat('n', id), named_struct('a',"
        " CAST(id AS INT), 'b', concat('b', id)), concat('p', id % 2), concat('x', id)"
        " FROM range(20, 40, 1, 1)",
        "ALTER TABLE {t} RENAME COLUMN s.a TO aa",
        "ALTER TABLE {t} DROP COLUMN title",
        "ALTER TABLE {t} ADD COLUMN title STRING",
        "ALTER TABLE {t} RENAME COLUMN part TO folder",
        "INSERT INTO {t} (id, s, folder, name, title) SELECT id, named_struct('aa',"
        " CAST(id AS INT), 'b', concat('b', id)), 'p0', concat('x', id), concat('t', id)"
        " FROM range(40, 50, 1, 1)",
    ),
}


def main(jars: Path) -> None:
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[1]")
    settings = {
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
    }
    for key, value in settings.items():
        made = made.config(key, value)
    spark = made.getOrCreate()
    shutil.rmtree(GOLDEN, ignore_errors=True)
    rows: dict[str, list[list[Any]]] = {}
    for name, statements in TABLES.items():
        for statement in statements:
            spark.sql(statement.format(t=f"delta.`{GOLDEN / name}`"))
        rows[name] = []
        for version in range(len(statements)):
            found = spark.read.format("delta").option("versionAsOf", version)
            frame = found.load(str(GOLDEN / name)).orderBy("id")
            options = {"ignoreNullFields": "false"}
            texts = frame.selectExpr(f"to_json(struct(*), {_map(options)})").collect()
            rows[name].append([json.loads(text[0]) for text in texts])
    text = json.dumps(rows, separators=(",", ":"))
    (GOLDEN / "rows.json").write_text(f"{text}\n")
    for path in GOLDEN.rglob("*.crc"):
        path.unlink()
    spark.stop()


def _map(options: dict[str, str]) -> str:
    return f"map({', '.join(repr(each) for pair in options.items() for each in pair)})"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
