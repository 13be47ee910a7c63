"""Spark with a KMS client, which is how Xskipper reads its store, reads what is encrypted here;
and a Spark job builds an encrypted index whose keys a function finds where the tasks run."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table
from skipstone.facts.index_encryption import IndexEncryption
from skipstone.parquet.encryption.master_keys import LabelledKeys, arrow_decryption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"kf": b"F" * 16, "k1": b"1" * 16, "k2": b"2" * 16}

# Wraps as parquet-java's own tools do without a service: AES-GCM, the label as AAD.
JAVA = """
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;

public class Labelled implements KmsClient {
  private byte[] key(String label) {
    return Base64.getDecoder().decode(System.getenv("KEY_" + label));
  }
  public void initialize(Configuration c, String id, String url, String token) {}
  public String wrapKey(byte[] key, String label) {
    return KeyToolkit.encryptKeyLocally(key, key(label), label.getBytes(StandardCharsets.UTF_8));
  }
  public byte[] unwrapKey(String wrapped, String label) {
    return KeyToolkit.decryptKeyLocally(
        wrapped, key(label), label.getBytes(StandardCharsets.UTF_8));
  }
}
"""
READ = """
import json, sys
from pyspark.sql import SparkSession
factory = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraClassPath", sys.argv[1])
    .config("spark.hadoop.parquet.crypto.factory.class", factory)
    .config("spark.hadoop.parquet.encryption.kms.client.class", "Labelled")
    .getOrCreate()
)
found = []
for path in sys.argv[2:-1]:
    frame = spark.read.parquet(path).orderBy("obj_name")
    rows = frame.select("obj_name", "id_minmax_2.min", "id_minmax_2.max", "s_valuelist_1").collect()
    found.append([[name, low, high, sorted(values)] for name, low, high, values in rows])
# And the other way about: what parquet-java encrypts under the same labels is read here.
frame = spark.read.parquet(sys.argv[2]).select("obj_name", "id_minmax_2")
frame.coalesce(1).write.option("parquet.encryption.footer.key", "kf").option(
    "parquet.encryption.column.keys", "k1:id_minmax_2.min,id_minmax_2.max;kf:obj_name"
).parquet(sys.argv[-1])
print("FOUND " + json.dumps(found))
spark.stop()
"""


def key_of(label: str) -> bytes | None:
    """As a user would have it: from the surroundings of the task."""
    return KEYS.get(label)


def table_at(home: Path) -> Path:
    path = home / "t"
    path.mkdir()
    for at in range(3):
        ids = range(at * 1000, at * 1000 + 20)
        file = path / f"f{at} é.parquet"
        pq.write_table(pa.table({"id": ids, "s": [f"secret-{i % 4}-{at}" for i in ids]}), file)
        os.utime(file, (1_600_000_000, 1_600_000_000))
    return path


LABELS = IndexEncryption(footer_key="kf", key_metadata={"id:minmax": "k1", "s:valuelist": "k2"})


@pytest.mark.interop
def test_spark_reads_store_and_parts_through_a_kms(tmp_path: Path) -> None:
    javac, classes = shutil.which("javac"), tmp_path / "classes"
    if javac is None:
        pytest.skip("no javac: PySpark ships no KMS client, and none can be compiled")
    import pyspark

    (tmp_path / "Labelled.java").write_text(JAVA)
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(
        [javac, "-cp", f"{jars}/*", "-d", str(classes), str(tmp_path / "Labelled.java")], check=True
    )
    path = table_at(tmp_path)
    paths = []
    for plaintext_footer in (False, True):
        home = tmp_path / f"footer {plaintext_footer}"
        table = Table(str(path), index_location=str(home / "own"), index_keys=KEYS)
        how = IndexEncryption(
            footer_key="kf", key_metadata=LABELS.key_metadata, plaintext_footer=plaintext_footer
        )
        table.build(indexes=["id:minmax", "s:valuelist", "s:bloom"], encryption=how)
        table.compact()
        [part] = (Path(table.location.root) / "facts").iterdir()
        shutil.copy(part, home / "own.parquet")
        paths += [table.export(str(home / "md")).destination, str(home / "own.parquet")]
    theirs = tmp_path / "theirs"
    done = subprocess.run(
        [
            *(sys.executable, "-c", READ, str(classes)),
            *(*paths, str(theirs)),
        ],
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **{f"KEY_{label}": base64.b64encode(key).decode() for label, key in KEYS.items()},
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(each for each in done.stdout.splitlines() if each.startswith("FOUND "))
    expected = [
        [
            f"{path}/f{at} é.parquet#1600000000000",
            at * 1000,
            at * 1000 + 19,
            [f"secret-{i}-{at}" for i in range(4)],
        ]
        for at in range(3)
    ]
    assert json.loads(line[len("FOUND ") :]) == [expected] * 4
    [made] = theirs.glob("part-*.parquet")
    read = pq.ParquetFile(made, decryption_properties=arrow_decryption(LabelledKeys(KEYS))).read()
    assert [row["min"] for row in read.column("id_minmax_2").to_pylist()] == [0, 1000, 2000]


@pytest.mark.spark
def test_a_spark_job_encrypts_with_keys_found_where_it_runs(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = table_at(tmp_path)
    table = Table(str(path), index_keys=key_of)
    report = table.build(spark, ["id:minmax", "s:valuelist", "s:bitmap"], encryption=LABELS)
    assert report.files_built == 3
    assert len(table.plan("s = 'secret-1-2'", inside=False).files) == 1
    data = b"".join(p.read_bytes() for p in Path(table.location.root).rglob("*") if p.is_file())
    assert b"secret-" not in data
    frame = table.read(spark, "id = 1007")
    assert [row["s"] for row in frame.collect()] == ["secret-3-1"]
