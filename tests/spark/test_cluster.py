"""Jobs on a standalone cluster: plans that hold a Python file index, builds and reads by executors,
and no key in any log. One cluster serves all of them, and one driver all that need no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.main_job import FILES, ROWS
from tests.main_job import lay_out as lay_out_main_job
from tests.spark import test_map_keys as maps
from tests.spark.layout import ten_files
from tests.spark.test_servers import INDEXES
from tests.spark_servers import drive
from tests.table.encrypted_tables import same_rows, table
from tests.table.test_encrypting_spark import FORMS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCRIPT = """
from pathlib import Path
import skipstone
from skipstone import Table
from skipstone.spark.skip import skip
from tests.spark import test_map_keys as maps
from tests.spark.fake import finder
from tests.spark.layout import read_by_spark, rows, rows_of_each

def query(root):
    plain = spark.read.parquet(root)
    df = skip(plain, finder(Path(root)))
    out = {"executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()}
    needle = df.where("id = 25")
    expected = rows(plain.where("id = 25"))
    out["needle"] = rows(needle) == expected, skipstone.last_scan(spark).files_kept
    both = df.where("id < 15").join(df.where("id > 8").withColumnRenamed("s", "t"), "id")
    out["join"] = [both.count(), skipstone.last_scan(spark).files_kept]
    out["udf"] = df.where("id = 7").rdd.map(lambda row: row.s * 2).collect()
    return out

def build(root, indexes):
    report = Table(root).build(spark, indexes=indexes)
    again = Table(root).refresh(spark)
    out = {"built": report.files_built, "again": again.files_built}
    for where in ("id = 4711", "day = 3 AND kind = 'odd'"):
        plain = spark.read.parquet(root).where(where)
        expected = rows(plain)
        got = rows(skipstone.skip(plain))
        out[where] = [got == expected, len(got), skipstone.last_scan(spark).files_kept]
    return out

def map_keys(root):
    report = Table(root).build(spark, maps.INDEXES)
    plain = spark.read.option("mergeSchema", "true").parquet(root)
    frame = skipstone.skip(plain)
    out = {"built": report.files_built, "left out": len(report.left_out), "wrong": [], "many": []}
    asked = maps.OTHERS[::4]  # the driver plans as it does without a cluster
    every = rows_of_each(plain, [where for where, _ in asked])
    for (where, most), expected in zip(asked, every):
        found, files = read_by_spark(frame.where(where))
        if found != expected:
            out["wrong"].append(where)
        if files > most:
            out["many"].append([where, files])
    return out

home, indexes = sys.argv[2:]
spark = builder.getOrCreate()
out = {
    "query": query(f"{home}/t"),
    "build": build(f"{home}/events", json.loads(indexes)),
    "map keys": map_keys(f"{home}/maps"),
}
spark.stop()
print("RESULT " + json.dumps(out))
"""


@pytest.fixture(scope="module")
def found(spark_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one driver found of three tables."""
    home = tmp_path_factory.mktemp("cluster tables")
    ten_files(home / "t")
    lay_out_main_job(home / "events")
    maps.lay_out(home / "maps")
    out: dict[str, Any] = drive(home, SCRIPT, spark_cluster, home, json.dumps(INDEXES))[0]
    return out


def test_a_skipping_query(found: dict[str, Any]) -> None:
    out = found["query"]
    assert out["executors"] == 2  # the driver's block manager and one executor
    assert out["needle"] == [True, 1]
    assert out["join"] == [6, 4]  # ids 9 to 14; each side infers the other's bound: two files
    assert out["udf"] == ["s7s7"]


def test_build_and_query(found: dict[str, Any]) -> None:
    """Executors build the facts and publish them; the driver plans with them."""
    assert found["build"] == {
        "built": FILES,
        "again": 0,
        "id = 4711": [True, 1, 1],
        "day = 3 AND kind = 'odd'": [True, ROWS, 1],
    }


def test_map_keys(found: dict[str, Any]) -> None:
    """Built by executors, and read by them."""
    assert found["map keys"] == {"built": maps.FILES, "left out": 0, "wrong": [], "many": []}


ENCRYPTING = """
import functools
from skipstone import Decryption, Table
from skipstone import Encryption
from tests.rewrite.encrypted_files import KEY
root, logs = sys.argv[2:]
spark = (
    builder
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file:" + logs)
    .config("spark.eventLog.compress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("INFO")
table = Table(root)
report = table.encrypt(spark, encryption=Encryption(footer_key=KEY, aad_prefix=b"orders"))
opens = functools.partial(Decryption, footer_key=KEY)
found = [len(report.of("done")), table.check(decryption=opens()).ok]
found.append(table.decrypt(spark, decryption=opens).ok)
print("RESULT " + json.dumps(found))
spark.stop()
"""


def test_no_key_is_in_any_log_of_a_cluster(spark_cluster: str, tmp_path: Path) -> None:
    """With an object that holds keys, which travels within the job; event log, driver, workers."""
    root, logs = table(tmp_path / "events"), tmp_path / "logs"
    logs.mkdir()
    out, printed = drive(tmp_path, ENCRYPTING, spark_cluster, str(root), str(logs))
    assert out == [4, True, True]
    assert same_rows(root, None)
    written = [path.read_bytes() for path in logs.rglob("*") if path.is_file()]
    assert any(b"SparkListenerSQLExecutionStart" in each for each in written)
    shown = b"".join([printed, *written])
    assert not any(form in shown for form in FORMS)
