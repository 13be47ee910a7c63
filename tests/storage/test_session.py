"""Options of object stores by the configuration of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone import Table
from skipstone.storage import open_storage, storage_options
from skipstone.storage.session import options_of_hadoop
from tests.main_job import FILES, lay_out

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3 import S3


@pytest.mark.parametrize(
    "path, settings, options",
    [
        ("s3://b/t", {}, {}),
        (
            "s3://b/t",
            {
                "fs.s3a.access.key": "k",
                "fs.s3a.secret.key": "s",
                "fs.s3a.bucket.b.secret.key": "own",
                "fs.s3a.bucket.c.secret.key": "of another",
                "fs.s3a.session.token": "t",
                "fs.s3a.endpoint.region": "eu-west-1",
            },
            {
                "access_key_id": "k",
                "secret_access_key": "own",
                "session_token": "t",
                "region": "eu-west-1",
            },
        ),
        ("s3://b/t", {"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ("s3://b/t", {"fs.s3a.endpoint": "host:1"}, {"endpoint": "https://host:1"}),
        (
            "s3://b/t",
            {"fs.s3a.endpoint": "host:1", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint": "http://host:1"},
        ),
        ("s3://b/t", {"fs.s3a.endpoint": "http://host:1"}, {"endpoint": "http://host:1"}),
        (
            "abfs://c@acc.dfs.core.windows.net/t",
            {
                "fs.azure.account.key.acc.dfs.core.windows.net": "k",
                "fs.azure.account.key.other.dfs.core.windows.net": "no",
            },
            {"account_key": "k"},
        ),
        (
            "abfs://c@acc.dfs.core.windows.net/t",
            {
                "fs.azure.account.oauth2.client.id": "i",
                "fs.azure.account.oauth2.client.secret": "s",
                "fs.azure.account.oauth2.client.endpoint": "https://login/TENANT/oauth2/token",
            },
            {"client_id": "i", "client_secret": "s", "tenant_id": "TENANT"},
        ),
        (
            "gs://b/t",
            {"fs.gs.auth.service.account.json.keyfile": "/keys.json"},
            {"service_account": "/keys.json"},
        ),
        ("oss://b/t", {"fs.s3a.access.key": "k"}, {}),
    ],
)
def test_settings_of_hadoop(path: str, settings: dict[str, str], options: dict[str, str]) -> None:
    assert options_of_hadoop(lambda name, secret: settings.get(name), path) == options


@pytest.mark.spark
def test_a_session_that_knows_a_store_needs_no_options(
    spark: SparkSession, s3: S3, tmp_path: Path
) -> None:
    """Driver and tasks use the keys of the session; given options come first."""
    settings = {
        "fs.s3a.access.key": "any",
        "fs.s3a.secret.key": "any",
        f"fs.s3a.bucket.{s3.bucket}.endpoint": s3.options["endpoint"],
        "fs.s3a.endpoint.region": "us-east-1",
    }
    lay_out(tmp_path / "events")
    for file in (tmp_path / "events").iterdir():
        s3.fill(f"events/{file.name}", data=file.read_bytes())
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        root = f"s3a://{s3.bucket}/events"
        assert storage_options(root, {"region": "x"}) == {"region": "x"}
        assert storage_options("/data") == {}
        table = Table(root)
        assert table.build(spark, ["day:minmax"]).files_built == FILES
        assert table.plan("day = 3").files_kept == 1
        assert open_storage(root).list_files(table.path).paths == table.listing().paths
    finally:
        for name in settings:
            spark.conf.unset(name)
