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

#: of one environment, as its PySpark is
ARCHIVE = Path(sys.prefix) / "spark.jsa"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def set_options() -> None:
    """For the drivers, executors, masters and workers that this process will start."""
    options = _SHORT_LIVED
    if ARCHIVE.exists():
        # A process with other jars (an older Spark, say) starts without it, and says nothing.
        options += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off"
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS", f'{options} "-Dspark.executor.extraJavaOptions={options}"'
    )
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", options)


_JOB = """
import sys
from pyspark.sql import SparkSession
home = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", home + "/warehouse")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.port", "0")
    .getOrCreate()
)
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
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(
            [sys.executable, "-c", _JOB, home],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={ARCHIVE}",
            },
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


if __name__ == "__main__":
    main()
