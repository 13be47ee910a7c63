"""Skipstone on clusters as people have them: a standalone cluster of Spark on loopback, whose
attempts are lost, whose executors may not write, have folders of their own, come and go, or have
little memory.

``id`` counts through the files of a table; each file has ten rows.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from tests.interop.java_systems import all_jars
from tests.s3 import s3, s3_server
from tests.spark_servers import drive, standalone

if TYPE_CHECKING:
    from pathlib import Path

    from tests.s3 import S3

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.interop, pytest.mark.spark]

ROWS = 10


def lay_out(root: Path, files: range) -> Path:
    root.mkdir(exist_ok=True)
    for number in files:
        ids = range(number * ROWS, (number + 1) * ROWS)
        path = root / f"{number:04}.parquet"
        pq.write_table(pa.table({"id": ids, "s": [f"s{i}" for i in ids]}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


def as_root(tool: str) -> None:
    """Skips a test that needs ``tool``, and the rights to use it."""
    if os.geteuid() != 0 or shutil.which(tool) is None:
        pytest.skip(f"needs {tool}, run by root")


LOST = """
import os, time
from pathlib import Path
import skipstone
from pyspark import TaskContext
from skipstone.indexes.minmax import MinMax

lost = Path(sys.argv[3])

def stumble(files={}):
    task = TaskContext.get()
    seen = files[task.taskAttemptId()] = files.get(task.taskAttemptId(), 0) + 1
    if task.attemptNumber() > 0 or seen < 300 or task.partitionId() > 1:
        return
    (lost / str(task.partitionId())).touch()
    if task.partitionId() == 0:
        os._exit(1)  # the first attempt of task 0 dies
    for _ in range(600):  # that of task 1 is killed as soon as a second one has overtaken it
        time.sleep(0.1)

class Stumbling(MinMax):
    def build(self, type, budget):
        stumble()
        return super().build(type, budget)

for name, value in {
    "spark.default.parallelism": "1",  # three tasks
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
report = skipstone.Table(sys.argv[2]).build(spark, [Stumbling("id")])
spark.stop()
print("RESULT " + json.dumps([report.files_built, report.merged]))
"""


def test_a_task_publishes_once_however_often_it_is_tried(tmp_path: Path) -> None:
    """Three tasks of 300 files each. Two attempts publish 256 files, and are lost."""
    root, lost = lay_out(tmp_path / "t", range(900)), tmp_path / "lost"
    lost.mkdir()
    with standalone(tmp_path, 2) as (url, _):
        found, _ = drive(tmp_path, LOST, url, root, lost)
    assert found == [900, 0]
    assert sorted(path.name for path in lost.iterdir()) == ["0", "1"]
    table = Table(str(root))
    assert sorted(part.rows for part in table.store.snapshot().parts) == [44] * 3 + [256] * 3
    assert table.describe().fresh == 900
    assert table.plan("id = 4711").files_kept == 1


REFUSED = """
import os
import skipstone
root, index = sys.argv[2:]
spark = builder.getOrCreate()
spark.range(100).selectExpr("id", "id % 2 AS k").write.csv(root + "-csv", header=True)
text = skipstone.Table(root + "-csv", format="csv", options={"header": "true"},
                       schema="id long, k long", index_location=index)
said = []
for table in (skipstone.Table(root, index_location=index), text):
    try:
        table.build(spark, ["id:minmax"])
    except skipstone.SkipstoneError as error:
        said.append([error.message, error.hint])
before = os.listdir(index)
os.chmod(index, 0o755)
table = skipstone.Table(root, index_location=index)
built = table.build(spark, ["id:minmax"]).files_built
row = skipstone.skip(spark.read.parquet(root), index).where("id = 77").collect()
kept = skipstone.last_scan(spark).files_kept
spark.stop()
print("RESULT " + json.dumps([said, before, built, [each.s for each in row], kept]))
"""


def test_executors_that_may_not_write(tmp_path: Path) -> None:
    """The driver may write everywhere; the workers run without root's right to do so, and the
    folders of the data and of the index are read-only for their user."""
    as_root("setpriv")
    root, index = lay_out(tmp_path / "t", range(20)), tmp_path / "index"
    index.mkdir()
    for folder in (root, index):
        folder.chmod(0o555)
    rights = "-dac_override,-dac_read_search"
    within = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    # The driver's first folder of Spark's temporary files is the workers' own.
    with standalone(tmp_path, 1, within) as (url, _):
        (said, before, built, row, kept), _ = drive(tmp_path, REFUSED, url, root, index)
    for message, hint in said:
        assert message.startswith(f"the tasks of Spark may not write the index at {index}: ")
        assert "Permission denied" in message
        assert "index_location=" in hint
    assert (len(said), before) == (2, [])
    assert (built, row, kept) == (20, ["s77"], 1)


APART = """
import skipstone
root, private, jars, endpoint = sys.argv[2:]
options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "any",
           "secret_access_key": "any", "allow_http": "true"}
builder = builder.config("spark.jars", jars).config("spark.submit.deployMode", "client")
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
where = "id = 7"
out = {"built": table.build(spark, ["id:minmax", "id:bitmap"]).files_built}
spark.range(5000, 6000).coalesce(1).write.mode("append").parquet(root)
out["refreshed"] = table.refresh(spark).files_built
out["skipped"] = [row.id for row in skipstone.skip(spark.read.parquet(root)).where(where).collect()]
out["kept"] = skipstone.last_scan(spark).files_kept
out["read"] = [row.id for row in table.read(spark, where).collect()]
reader = spark.read.format("skipstone").option("where", where)
for name, value in options.items():
    reader = reader.option(f"storage.{name}", value)
out["source"] = [row.id for row in reader.load(root.replace("s3a:", "s3:")).collect()]
try:
    skipstone.Table(root, index_location=private + "/index").build(spark, ["id:minmax"])
except skipstone.SkipstoneError as error:
    out["index"] = [error.message, error.hint]
try:
    skipstone.Table(private + "/t").build(spark, ["id:minmax"])
except skipstone.SkipstoneError as error:
    out["data"] = error.message
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_executors_share_no_folder_with_the_driver(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pods do, which the driver in client mode starts from an image: a folder of the driver is
    another one in the workers' mount namespace. What is in the object store, all see."""
    as_root("unshare")
    paths = ",".join(map(str, all_jars("s3a.xml")))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    private = tmp_path / "private"
    private.mkdir()
    lay_out(private / "t", range(3))
    hidden = f'mount -t tmpfs none "{private}" && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", hidden, "sh"]
    root = f"s3a://{s3.bucket}/events"
    with standalone(tmp_path, 2, within) as (url, _):
        found, _ = drive(tmp_path, APART, url, root, private, paths, s3.options["endpoint"])
    message, hint = found.pop("index")
    assert f"of the index at {private}/index, and this process sees none" in message
    assert "index_location=" in hint
    assert "find no file of the table, and this process sees" in found.pop("data")
    assert found == {
        "built": 5,
        "refreshed": 1,
        "skipped": [7],
        "kept": 1,
        "read": [7],
        "source": [7],
    }


COME_AND_GO = """
import os, time
from pathlib import Path
import skipstone
from skipstone.indexes.minmax import MinMax
from tests.interop.test_cluster import lay_out

root = sys.argv[2]
for name, value in {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.executor.cores": "1",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
executors = lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1

def until(wanted):
    for _ in range(600):
        if wanted():
            return True
        time.sleep(0.1)
    return False

table = skipstone.Table(root)
out = {"none": until(lambda: executors() == 0)}
seen = []
report = table.build(spark, ["id:minmax"], progress=lambda *_: seen.append(executors()))
out["built"] = report.files_built
out["came"] = max(seen) > 1
out["went"] = until(lambda: executors() == 0)
lay_out(Path(root), range(600, 640))
out["refreshed"] = table.refresh(spark).files_built
row = skipstone.skip(spark.read.parquet(root)).where("id = 6123").collect()
out["row"] = [[each.s for each in row], skipstone.last_scan(spark).files_kept]
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_executors_that_come_and_go(tmp_path: Path) -> None:
    """Dynamic allocation with shuffle tracking, from none and back to none."""
    root = lay_out(tmp_path / "t", range(600))
    with standalone(tmp_path, 2) as (url, _):
        found, _ = drive(tmp_path, COME_AND_GO, url, root)
    assert found == {
        "none": True,
        "built": 600,
        "came": True,
        "went": True,
        "refreshed": 40,
        "row": [["s6123"], 1],
    }
    assert Table(str(root)).describe().fresh == 640


SMALL = """
import resource
import skipstone
from skipstone.indexes.minmax import MinMax
root, memory = sys.argv[2:]

class Measured(MinMax):
    def build(self, type, budget):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] >> 20
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if limit > 4096:
            raise ValueError(f"{limit} MiB are no limit")
        with open(f"{root}.peak", "a") as out:
            print(limit, peak, file=out)
        return super().build(type, budget)

spark = builder.config("spark.executor.pyspark.memory", memory).getOrCreate()
table = skipstone.Table(root)
report = table.build(spark, [Measured("id"), "s:bloom", "s:bitmap"])
spark.stop()
print("RESULT " + json.dumps([report.files_built, [str(each) for each in report.left_out]]))
"""


def test_python_workers_with_little_memory(tmp_path: Path) -> None:
    """Two cores share the memory. A file of 40 MB of values, in one row group, and small files."""
    root = lay_out(tmp_path / "t", range(20))
    ids = range(10_000, 1_010_000)
    large = pa.table({"id": ids, "s": [f"a text that is not short, {i}" for i in ids]})
    pq.write_table(large, root / "large.parquet")
    os.utime(root / "large.parquet", (1_700_000_000, 1_700_000_000))
    with standalone(tmp_path, 1) as (url, _):
        (built, left_out), _ = drive(tmp_path, SMALL, url, root, "1g")
    peaks = [line.split() for line in (tmp_path / "t.peak").read_text().splitlines()]
    assert built == len(peaks) == 21
    assert {limit for limit, _ in peaks} == {"1024"}
    assert max(int(peak) for _, peak in peaks) < 512, peaks
    assert all("share of memory" in each for each in left_out)
