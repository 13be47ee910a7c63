"""Tables of a REST catalog: Iceberg's own server, with the tables in S3 and their keys on loan.

The server gives the keys of the store with each table (``include-credentials``). Nobody else has
them: neither options nor the environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

import skipstone
from skipstone.cli import cli
from skipstone.errors import UnsupportedError
from tests.interop.java_systems import all_jars, java_tool, spark_jar
from tests.s3 import S3, s3_of_module, s3_server
from tests.spark_servers import Server, free_port
from tests.table_formats.iceberg_tables import configured, ids, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["s3_of_module", "s3_server"]

pytestmark = [pytest.mark.interop, pytest.mark.spark]


@pytest.fixture(scope="module")
def rest(s3_of_module: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the catalog."""
    home, port, options = tmp_path_factory.mktemp("rest"), free_port(), s3_of_module.options
    hadoop = map(spark_jar, ("hadoop-client-api", "hadoop-client-runtime"))
    jars = os.pathsep.join(map(str, [*all_jars("iceberg_rest.xml"), *hadoop]))
    settings = {
        "REST_PORT": str(port),
        "URI": f"jdbc:sqlite:{home}/catalog.db",
        "WAREHOUSE": f"{s3_of_module.base}/wh",
        "IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CLIENT_REGION": options["region"],
        "S3_ENDPOINT": options["endpoint"],
        "S3_PATH__STYLE__ACCESS": "true",
        "S3_ACCESS__KEY__ID": options["access_key_id"],
        "S3_SECRET__ACCESS__KEY": options["secret_access_key"],
        "INCLUDE__CREDENTIALS": "true",
    }
    command = (java_tool("java"), "-Xmx512m", "-cp", jars)
    within = ["env", *(f"CATALOG_{key}={value}" for key, value in settings.items())]
    server = Server(
        home, "catalog", *command, "org.apache.iceberg.rest.RESTCatalogServer", within=within
    )
    try:
        server.wait_for(port=port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


@pytest.fixture
def name(rest: str, s3_of_module: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``db.t`` is called; the configuration has the addresses, and no keys."""
    for variable in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    where = {f"s3__{each}": s3_of_module.options[each] for each in ("endpoint", "region")}
    return configured(monkeypatch, "prod", type="rest", uri=rest, **where)


def test_a_table_of_a_rest_catalog(name: str, spark: SparkSession) -> None:
    catalog = load_catalog("prod")
    assert "s3.access-key-id" not in catalog.properties
    catalog.create_namespace("db")
    made = table_of(catalog, *(ids(*range(at, at + 10), n=[at] * 10) for at in (0, 10, 20)))
    table = skipstone.Table(name)
    assert table.build(indexes=["id:bloom"]).files_built == 3
    assert table.query("id = 13").to_pylist() == [{"id": 13, "n": 10}]
    assert table.plan("n = 20").files_kept == 1
    with pytest.raises(UnsupportedError, match=r"would show .*: access_key_id, secret_access_key"):
        table.read(spark, "id = 13")
    first = made.snapshots()[0].snapshot_id
    made.append(ids(99, n=[99]))
    assert table.count() == 31
    assert table.refresh().files_built == 1
    assert skipstone.Table(name, version=first).count() == 10
    for verb in (["describe", name], ["query", name, "id = 99"], ["check", name, "--deep"]):
        done = CliRunner().invoke(cli, verb)
        assert done.exit_code == 0, done.output
    made.delete("id = 13")
    assert table.count("id = 13") == 0
    assert table.count() == 30
