"""Tables of Apache Iceberg with merge on read, written by Spark with Iceberg's connector.

They lie below a folder, in the layout of Hadoop's catalog ``h``, and ``rows.json`` there has their
rows by snapshot, as Spark reads them. The last one begins as version 2 and goes on as version 3,
with a column that has a default, and equality deletes beside deletion vectors.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

#: seed, version of the format, partitions
TABLES = (
    (1, 2, ""),
    (2, 2, "PARTITIONED BY (days(d))"),
    (3, 3, ""),
    (4, 3, "PARTITIONED BY (bucket(2, id), k)"),
)
UPGRADED = 5
COLUMNS = "id bigint, k string, d date, s struct<n: double, t: string>"
VALUES = (
    "CASE WHEN id % 5 < 4 THEN concat('k', id % 5) END AS k,"
    " date_add(DATE'2025-12-28', CAST(id % 9 AS int)) AS d,"
    " CASE WHEN id % 6 < 5 THEN named_struct("
    "'n', CASE WHEN id % 10 = 9 THEN double('NaN') ELSE double(id) / 2 END,"
    " 't', concat('a long text with the number ', id)) END AS s"
)


class History:
    """Random commits to one table."""

    def __init__(self, spark: Any, seed: int, version: int, partitions: str) -> None:
        self.spark, self.random, self.next = spark, random.Random(seed), 0
        self.name = f"h.db.t{seed}"
        modes = ", ".join(
            f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge")
        )
        spark.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING iceberg {partitions}"
            f" TBLPROPERTIES ('format-version' = '{version}', {modes})"
        )
        self.insert()

    def step(self) -> None:
        steps = [self.insert, self.delete, self.delete, self.update, self.merge]
        self.random.choice([*steps, self.rewrite, self.rewrite_deletes])()

    def insert(self) -> None:
        self.next += 30
        source = f"SELECT id, {VALUES} FROM range({self.next - 30}, {self.next})"
        self.spark.sql(f"INSERT INTO {self.name} {source}")

    def delete(self) -> None:
        at = self.random.randint(3, 9)
        self.spark.sql(f"DELETE FROM {self.name} WHERE id % {at} = {self.random.randint(0, 2)}")

    def update(self) -> None:
        at = self.random.randint(0, self.next)
        self.spark.sql(
            f"UPDATE {self.name} SET s = named_struct('n', 0.5D, 't', 'new')"
            f" WHERE id BETWEEN {at} AND {at + 5}"
        )

    def merge(self) -> None:
        at = self.random.randint(0, self.next)
        self.spark.sql(
            f"MERGE INTO {self.name} t USING (SELECT id, {VALUES} FROM range({at}, {at + 40})) s"
            " ON t.id = s.id WHEN MATCHED AND s.id % 3 = 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET k = 'merged' WHEN NOT MATCHED THEN INSERT *"
        )
        self.next = max(self.next, at + 40)

    def upgrade(self) -> None:
        """Version 3, and a column that the files lack."""
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('format-version' = '3')")
        lit = self.spark.sparkContext._jvm.org.apache.iceberg.expressions.Expressions.lit
        type = self._types().LongType.get()
        self._loaded().updateSchema().addColumn("z", type, lit(7)).commit()
        self.spark.sql(f"REFRESH TABLE {self.name}")

    def delete_values(self, home: Path) -> None:
        """An equality delete, as streaming writers commit them."""
        path = (
            home
            / "db"
            / self.name.rpartition(".")[2]
            / "data"
            / f"values-{self.random.random()}.parquet"
        )
        gone = self.random.sample(range(self.next), 9)
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table({"id": gone}, schema=pa.schema([field])), path)
        java = self.spark.sparkContext._jvm
        ids = self.spark.sparkContext._gateway.new_array(java.int, 1)
        ids[0] = 1
        table = self._loaded()
        made = java.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        made = made.ofEqualityDeletes(ids).withPath(str(path)).withFormat("parquet")
        made = made.withFileSizeInBytes(path.stat().st_size).withRecordCount(len(gone))
        table.newRowDelta().addDeletes(made.build()).commit()
        self.spark.sql(f"REFRESH TABLE {self.name}")

    def _types(self) -> Any:
        return self.spark.sparkContext._jvm.org.apache.iceberg.types.Types

    def _loaded(self) -> Any:
        java = self.spark.sparkContext._jvm.org.apache.iceberg.spark
        return java.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.name)

    def rewrite(self) -> None:
        self.spark.sql(
            f"CALL h.system.rewrite_data_files(table => '{self.name}',"
            " options => map('min-input-files', '2'))"
        )

    def rewrite_deletes(self) -> None:
        self.spark.sql(
            f"CALL h.system.rewrite_position_delete_files(table => '{self.name}',"
            " options => map('rewrite-all', 'true'))"
        )

    def rows(self) -> dict[str, list[str]]:
        """The rows by snapshot."""
        found = {}
        for (each,) in self.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots").collect():
            read = self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {each}")
            more = [f"`{name}`" for name in read.columns[4:]]
            read = read.selectExpr("id", "k", "d", "s.n", "s.t", *more)
            found[str(each)] = sorted(repr(list(row)) for row in read.collect())
        return found


def write(spark: Any, home: Path) -> None:
    """Writes all tables."""
    found = {}
    for seed, version, partitions in TABLES:
        history = History(spark, seed, version, partitions)
        for _ in range(8):
            history.step()
        found[f"t{seed}"] = history.rows()
    history = History(spark, UPGRADED, 2, "")
    history.insert()
    history.delete()
    history.upgrade()
    for _ in range(3):
        history.delete()
        history.delete_values(home)
        history.update()
    found[f"t{UPGRADED}"] = history.rows()
    (home / "rows.json").write_text(json.dumps(found))
