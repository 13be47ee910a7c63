"""Tables encrypted, decrypted and salvaged as Spark jobs; no key shows anywhere in the session, nor
in that of a cluster, which ``tests/spark/test_cluster.py`` has."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from skipstone import Decryption, Encryption, Table
from skipstone.cli.keys import DecryptionOptions, EncryptionOptions
from tests.rewrite.encrypted_files import KEY
from tests.table.encrypted_tables import NAMES, OPENS, SEALS, bodies, files, same_rows, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMS = (KEY, KEY.hex().encode(), b"MDEyMzQ1Njc4OTAxMjM0NQ")


def fails_there(home: str) -> Encryption:
    """Works in the driver alone."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        raise ValueError(f"the key is {KEY!r}, at {home}")
    return Encryption(footer_key=KEY)


def test_a_table_as_a_job(spark: SparkSession, tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    before = {name: bodies(root / name) for name in NAMES}
    seen: list[tuple[int, int]] = []
    report = Table(str(root)).encrypt(
        spark, encryption=SEALS, progress=lambda done, total: seen.append((done, total))
    )
    assert [each.outcome for each in report.files] == ["done"] * 4
    assert seen[-1] == (4, 4)
    assert Table(str(root)).check(decryption=OPENS).ok
    assert same_rows(root)
    assert len(Table(str(root)).encrypt(spark, encryption=SEALS).of("already")) == 4
    shown = json.dumps(spark.sparkContext.getConf().getAll()).encode()
    assert not any(form in shown for form in FORMS)
    report = Table(str(root)).decrypt(
        spark, decryption=functools.partial(Decryption, footer_key=KEY)
    )
    assert report.ok
    assert {name: bodies(root / name) for name in NAMES} == before


def test_keys_are_fetched_where_files_are_done(spark: SparkSession, tmp_path: Path) -> None:
    root, key = table(tmp_path / "events"), tmp_path / "key"
    before = files(root)
    key.write_text(f"text:{KEY.decode()}")
    asked = EncryptionOptions(footer_key=f"file:{key}", aad_prefix="orders")
    assert Table(str(root)).encrypt(spark, encryption=asked).ok
    assert same_rows(root)
    opens = DecryptionOptions(footer_key=f"file:{key}")
    assert Table(str(root)).decrypt(spark, decryption=opens).ok
    assert same_rows(root, None)
    table(root)
    with pytest.raises(Exception, match="KeyUnavailable") as caught:
        Table(str(root)).encrypt(spark, encryption=functools.partial(fails_there, str(tmp_path)))
    assert KEY.decode() not in str(caught.value)
    assert files(root) == before


def test_only_damaged_files_are_salvaged(spark: SparkSession, tmp_path: Path) -> None:
    root = table(tmp_path / "events")
    torn = root / NAMES[1]
    data = torn.read_bytes()
    torn.write_bytes(data[: len(data) - 700])
    report = Table(str(root)).salvage(spark, output=str(tmp_path / "saved"))
    assert len(report.of("already")) == 3
    assert torn.read_bytes() == data[: len(data) - 700]
    (saved,) = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert str(saved) == f"{tmp_path}/saved/{NAMES[1]}"
