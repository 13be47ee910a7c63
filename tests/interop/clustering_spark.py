"""Puts one table into the orders of ``cluster``, of Delta Lake's OPTIMIZE and of Iceberg's rewrite.

    python -m tests.interop.clustering_spark HOME JARS

It reads the folders ``HOME/SHAPE`` and writes the files of each order to ``HOME/SHAPE ORDER``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import skipstone
from tests.table_formats.connectors_spark import session

SHAPES = ("even", "skewed")
#: about the size of a file, in bytes
FILE = 1 << 20


def main(home: Path, jars: str) -> None:
    """Writes the folders."""
    sizes = {
        f"spark.databricks.delta.optimize.{name}FileSize": str(FILE) for name in ("min", "max")
    }
    spark = session(home / "warehouse", jars, {**sizes, "spark.driver.memory": "2g"})
    for shape in SHAPES:
        table, frame = home / shape, spark.read.parquet(str(home / shape))
        for curve in ("z-order", "hilbert"):
            to = str(home / f"{shape} {curve}")
            skipstone.Table(str(table)).cluster(
                spark, by=["user", "amount"], to=to, curve=curve, file_size=FILE
            )
        name = f"delta.`{home / 'warehouse' / shape}`"
        frame.writeTo(name).using("delta").create()
        spark.sql(f"OPTIMIZE {name} ZORDER BY (user, amount)")
        rows = spark.table(name).selectExpr("_metadata.file_path").distinct().collect()
        _copy([row.file_path for row in rows], home / f"{shape} delta z-order")
        for order, by in (
            ("z-order", "zorder(user, amount)"),
            ("sort", "user ASC, amount ASC"),
        ):
            name = f"db.{shape}_{order.replace('-', '_')}"
            frame.writeTo(f"h.{name}").using("iceberg").create()
            spark.sql(
                f"CALL h.system.rewrite_data_files(table => '{name}', strategy => 'sort',"
                f" sort_order => '{by}', options => map('rewrite-all', 'true',"
                f" 'target-file-size-bytes', '{FILE}'))"
            )
            files = spark.sql(f"SELECT file_path FROM h.{name}.files").collect()
            _copy([row.file_path for row in files], home / f"{shape} iceberg {order}")
    spark.stop()


def _copy(uris: list[str], to: Path) -> None:
    to.mkdir()
    for number, uri in enumerate(sorted(uris)):
        shutil.copy(unquote(urlsplit(uri).path), to / f"{number:03}.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
