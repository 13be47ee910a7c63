"""Tables on an HDFS that demands Kerberos: a session with a keytab, and processes without one.

Kerberos is a matter of the JVM's configuration, so the session has a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.hdfs import hadoop_jars, running
from tests.interop.java_systems import JavaProgram, all_jars
from tests.spark_servers import drive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.spark]

JOB = """
import os
from pathlib import Path
import skipstone
from skipstone import Table

home, root, web, realm, krb5 = sys.argv[2:]
# As on the nodes of a cluster: what the services demand stands in core-site.xml.
site = {
    "hadoop.security.authentication": "kerberos",
    "dfs.namenode.kerberos.principal": f"hdfs/localhost@{realm}",
    "dfs.data.transfer.protection": "privacy",
}
pairs = "".join(
    f"<property><name>{name}</name><value>{value}</value></property>"
    for name, value in site.items()
)
Path(home, "core-site.xml").write_text(f"<configuration>{pairs}</configuration>")
os.environ["HADOOP_CONF_DIR"] = home
for name, value in {
    "spark.driver.extraJavaOptions": f"-Djava.security.krb5.conf={krb5}",
    "spark.kerberos.keytab": f"{home}/alice.keytab",
    "spark.kerberos.principal": f"alice@{realm}",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
path = f"{root}/user/alice/events"
spark.range(5000).repartitionByRange(5, "id").write.parquet(path)
table = Table(path)
out = {"built": table.build(spark, ["id:minmax", "id:bitmap"]).files_built}
spark.range(5000, 6000).coalesce(1).write.mode("append").parquet(path)
out["refreshed"] = table.refresh(spark).files_built
out["described"] = table.describe().fresh
plain = spark.read.parquet(path).where("id = 1234")
out["skipped"] = [row.id for row in skipstone.skip(plain).collect()]
out["kept"] = skipstone.last_scan(spark).files_kept
out["read"] = [row.id for row in table.read(spark, "id = 5678").collect()]
out["query"] = table.query("id = 4321")["id"].to_pylist()
out["check"] = table.check(deep=True).ok

# Another process of alice has a delegation token in place of the session.
files = spark._jvm.org.apache.hadoop.fs.Path(path).getFileSystem(
    spark._jsc.hadoopConfiguration()
)
out["owner"] = files.getFileStatus(spark._jvm.org.apache.hadoop.fs.Path(path)).getOwner()
token = files.getDelegationToken("alice").encodeToUrlString()
spark.stop()
with_token = Table(path, storage_options={"webhdfs": web, "token": token})
out["token"] = with_token.query("id = 77")["id"].to_pylist()
out["token_kept"] = with_token.plan("id = 77").files_kept
wrong = token[:40] + "AAAAAAAA" + token[48:]
for name, options in {"user": {"webhdfs": web, "user": "alice"},
                      "false": {"webhdfs": web, "token": wrong}}.items():
    try:
        Table(path, storage_options=options).query("id = 77")
    except skipstone.SkipstoneError as error:
        out[name] = error.message
print("RESULT " + json.dumps(out))
"""


def test_a_session_with_a_keytab_and_a_process_with_a_token(tmp_path: Path) -> None:
    jars = [*hadoop_jars(), *all_jars("hadoop.xml")]
    flags = ["-Xmx512m", "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"]
    program = JavaProgram("SecureHdfs", jars, tmp_path, flags=flags)
    with running(program, tmp_path, str(tmp_path)) as words:
        found, _ = drive(tmp_path, JOB, "local[2]", tmp_path, *words)
    no_ticket, false_token = found.pop("user"), found.pop("false")
    assert "WebHDFS demands a login, such as Kerberos" in no_ticket
    assert "delegation token" in no_ticket
    assert "InvalidToken" in false_token
    assert found == {
        "built": 5,
        "refreshed": 1,
        "described": 6,
        "skipped": [1234],
        "kept": 1,
        "read": [5678],
        "query": [4321],
        "check": True,
        "owner": "alice",
        "token": [77],
        "token_kept": 1,
    }
