"""A skipping query on a standalone cluster: its plan holds a Python file index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.layout import ten_files
from tests.spark_servers import drive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
from pathlib import Path
from skipstone.spark.last_query import last_scan
from skipstone.spark.skip import skip
from tests.spark.fake import finder
from tests.spark.layout import rows
root = Path(sys.argv[2])
spark = builder.getOrCreate()
plain = spark.read.parquet(str(root))
df = skip(plain, finder(root))
out = {"executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()}
needle = df.where("id = 25")
expected = rows(plain.where("id = 25"))
out["needle"] = rows(needle) == expected, last_scan(spark).files_kept
both = df.where("id < 15").join(df.where("id > 8").withColumnRenamed("s", "t"), "id")
out["join"] = [both.count(), last_scan(spark).files_kept]
out["udf"] = df.where("id = 7").rdd.map(lambda row: row.s * 2).collect()
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_a_skipping_query_on_a_cluster(spark_cluster: str, tmp_path: Path) -> None:
    root = ten_files(tmp_path / "t")
    out, _ = drive(tmp_path, SCRIPT, spark_cluster, str(root))
    assert out["executors"] == 2  # the driver's block manager and one executor
    assert out["needle"] == [True, 1]
    assert out["join"] == [6, 4]  # ids 9 to 14; each side infers the other's bound: two files
    assert out["udf"] == ["s7s7"]
