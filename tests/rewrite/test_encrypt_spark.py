"""Spark with a KMS client reads what is encrypted here: a small client is compiled for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skipstone import Encryption
from skipstone.rewrite import encrypt
from tests.parquet.encryption.keys import PlainKms
from tests.rewrite.encrypted_files import plain, rows

JAVA = """
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KmsClient;

public class PlainKms implements KmsClient {
  public void initialize(Configuration c, String id, String url, String token) {}
  public String wrapKey(byte[] key, String master) {
    byte[] name = String.format("%-16s", master).getBytes(StandardCharsets.UTF_8);
    byte[] all = Arrays.copyOf(name, 16 + key.length);
    System.arraycopy(key, 0, all, 16, key.length);
    return Base64.getEncoder().encodeToString(all);
  }
  public byte[] unwrapKey(String wrapped, String master) {
    byte[] all = Base64.getDecoder().decode(wrapped);
    String name = new String(all, 0, 16, StandardCharsets.UTF_8).trim();
    if (!name.equals(master)) throw new IllegalArgumentException("another master key");
    return Arrays.copyOfRange(all, 16, all.length);
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
    .config("spark.hadoop.parquet.encryption.kms.client.class", "PlainKms")
    .getOrCreate()
)
found = [
    [repr(row) for row in spark.read.parquet(path).orderBy("row").select("row", "a", "s").collect()]
    for path in sys.argv[2:]
]
kept = [spark.read.parquet(path).where("row = 577").count() for path in sys.argv[2:]]
print("FOUND " + json.dumps([found, kept]))
spark.stop()
"""


@pytest.mark.interop
def test_spark_reads_it_through_a_kms(tmp_path: Path) -> None:
    javac, classes = shutil.which("javac"), tmp_path / "classes"
    if javac is None:
        pytest.skip("no javac: PySpark ships no KMS client, and none can be compiled")
    import pyarrow as pa
    import pyspark

    (tmp_path / "PlainKms.java").write_text(JAVA)
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(
        [javac, "-cp", f"{jars}/*", "-d", str(classes), str(tmp_path / "PlainKms.java")],
        check=True,
    )
    table = rows().add_column(0, "row", pa.array(range(1000), pa.int64()))
    paths = []
    for number, (internal, double, footer, algorithm) in enumerate(
        (
            (True, True, False, "AES_GCM_V1"),
            (False, True, False, "AES_GCM_V1"),
            (True, False, True, "AES_GCM_CTR_V1"),
            (False, False, True, "AES_GCM_V1"),
        )
    ):
        path = plain(tmp_path / f"{number} é.parquet", table)
        encrypt(
            path,
            encryption=Encryption(
                kms=PlainKms(),
                footer_key_id="kf",
                column_key_ids={"s": "ks", "a": "ka"},
                internal_key_material=internal,
                double_wrapping=double,
                plaintext_footer=footer,
                algorithm=algorithm,  # type: ignore[arg-type]
                aad_prefix=b"orders",
            ),
        )
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(classes), *paths],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(each for each in done.stdout.splitlines() if each.startswith("FOUND "))
    found, kept = json.loads(line[len("FOUND ") :])
    expected = [
        f"Row(row={row['row']}, a={row['a']!r}, s={row['s']!r})"
        for row in table.select(["row", "a", "s"]).to_pylist()
    ]
    assert found == [expected] * len(paths)
    assert kept == [1] * len(paths)
