"""Spark reads S3 through Hadoop's own S3A, and the index is found, believed and used.

Its configuration is all that says how to reach the store: no storage options are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.java_systems import all_jars
from tests.s3 import s3, s3_server
from tests.spark_servers import drive, spark_home

if TYPE_CHECKING:
    from pathlib import Path

    from tests.s3 import S3

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.interop, pytest.mark.spark]

SCRIPT = """
import skipstone
root, jars, endpoint = sys.argv[2:]
builder = builder.config("spark.jars", jars)
settings = {
    "impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "endpoint": endpoint,
    "endpoint.region": "us-east-1",
    "path.style.access": "true",
    "access.key": "any",
    "secret.key": "any",
}
for name, value in settings.items():
    builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
spark = builder.getOrCreate()
spark.range(5000).repartitionByRange(5, "id").write.parquet(root)
table = skipstone.Table(root)
built = table.build(spark, ["id:minmax"]).files_built
where = "id = 7"
skipped = skipstone.skip(spark.read.parquet(root)).where(where).collect()
out = {
    "built": built,
    "skipped": [row.id for row in skipped],
    "kept": skipstone.last_scan(spark).files_kept,
    "read": [row.id for row in table.read(spark, where).collect()],
    "query": table.query(where).to_pydict()["id"],
    "again": table.refresh(spark).files_built,
}
new = root.replace("s3a://", "s3://") + "-by-id"
out["clustered"] = table.cluster(spark, by=["id"], to=new).rows
try:
    table.cluster(spark, by=["id"], to=new)
except skipstone.SkipstoneError as error:
    out["twice"] = [f"{new} exists" in str(error), error.hint]
spark.sql(f"CREATE TABLE events USING parquet LOCATION '{root}'")
named = skipstone.Table(spark, "events")
out["named"] = [named.describe().fresh, named.plan(where).files_kept]
skipped = skipstone.skip(spark.table("events")).where(where).collect()
out["by_name"] = [[row.id for row in skipped], skipstone.last_scan(spark).files_kept]
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_a_table_on_s3a(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = all_jars("s3a.xml")
    [aws] = [each for each in jars if each.name.startswith("hadoop-aws-")]
    version = aws.stem.rpartition("-")[2]
    if not (spark_home() / "jars" / f"hadoop-client-api-{version}.jar").exists():
        pytest.skip(f"PySpark brings another Hadoop than {version}: change tests/interop/s3a.xml")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    root = f"s3a://{s3.bucket}/events"
    paths = ",".join(map(str, jars))
    out, _ = drive(tmp_path, SCRIPT, "local[2]", root, paths, s3.options["endpoint"])
    assert out == {
        "built": 5,
        "skipped": [7],
        "kept": 1,
        "read": [7],
        "query": [7],
        "again": 0,
        "clustered": 5000,
        "twice": [True, "name a directory that does not exist"],
        "named": [5, 1],
        "by_name": [[7], 1],
    }
