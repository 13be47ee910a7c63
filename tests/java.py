"""How the Java processes of tests start. They live for seconds, so that what a long process earns
back costs more than it saves: a second compiler, a parallel collector, classes parsed again.

    python -m tests.java     write the archive of Spark's classes, from which later processes start
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# At 300 MiB of classes, what Spark generates for a few hundred queries starts no full collection.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=300m"
# Each task that sorts or groups a few rows takes a page, of 16 MiB by itself: they filled a heap of
# 1 GiB again and again.
_SMALL_PAGES = "-Dspark.buffer.pageSize=1m"


def archive_of(environment: str | Path) -> Path:
    """The archive of an environment's PySpark, which only this PySpark can use."""
    return Path(environment) / "spark.jsa"


def options_of(environment: str | Path) -> dict[str, str]:
    """What the drivers, executors, masters and workers of an environment's PySpark start with."""
    options = _SHORT_LIVED
    if archive_of(environment).exists():
        # A process with other jars starts without it, and says nothing.
        options += f" -XX:SharedArchiveFile={archive_of(environment)} -Xlog:cds*=off"
    executors = f'"-Dspark.executor.extraJavaOptions={options}"'
    return {
        "SPARK_SUBMIT_OPTS": f"{options} {_SMALL_PAGES} {executors}",
        "SPARK_DAEMON_JAVA_OPTS": options,
    }


def set_options() -> None:
    """For the Java processes that this process will start."""
    for name, value in options_of(sys.prefix).items():
        os.environ.setdefault(name, value)


_JOB = """
import pathlib, sys
import pyspark
from pyspark.sql import SparkSession
home = sys.argv[1]
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", home + "/warehouse")
    .config("spark.connect.grpc.binding.port", "0")
)
if any(pathlib.Path(pyspark.__file__).parent.glob("jars/spark-connect_*.jar")):
    builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
spark = builder.getOrCreate()
rows = spark.range(100).selectExpr("id", "id % 7 AS k", "string(id) AS s", "current_date() AS d")
for format in ("parquet", "orc", "json", "csv"):
    rows.write.format(format).save(f"{home}/{format}")
    spark.read.schema(rows.schema).format(format).load(f"{home}/{format}").where("id = 5").collect()
spark.sql(f"CREATE TABLE t USING parquet LOCATION '{home}/parquet'")
spark.sql("SELECT k, count(*), max(s) FROM t GROUP BY k ORDER BY k").collect()
spark.sql("SELECT * FROM t a JOIN t b USING (id) WHERE a.s LIKE '1%' AND b.k IN (1, 2)").collect()
spark.sql("SELECT /*+ MERGE(b) */ a.s FROM t a JOIN t b ON a.k = b.id").collect()
rows.rdd.map(lambda row: row.k).collect()
java = spark.sparkContext._gateway
spark.stop()
java.shutdown()
java.proc.stdin.close()
java.proc.wait()
"""


def main() -> None:
    """The command line of the module. Tests run without the archive, too, if more slowly."""
    archive = archive_of(sys.prefix)
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(
            [sys.executable, "-c", _JOB, home],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={archive}",
            },
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


if __name__ == "__main__":
    main()
