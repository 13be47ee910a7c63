"""Spark and encrypted tables: no key goes into an option, and whoever lacks one is told.

A KMS client in Java reads them with Spark's own reader: ``tests/rewrite/test_encrypt_spark.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone import Decryption, Table
from skipstone.errors import UnsupportedError
from tests.table.test_encrypted_queries import KEY, OF_S, SEALS, laid

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FULL = Decryption(footer_key=KEY, column_keys={"s": OF_S})


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_the_data_source_reads_no_encrypted_file(
    spark: SparkSession, tmp_path: Path, plaintext_footer: bool
) -> None:
    root = laid(tmp_path / "orders")
    Table(str(root)).encrypt(encryption=SEALS.replaced(plaintext_footer=plaintext_footer))
    with pytest.raises(Exception, match="keys are not passed in options") as caught:
        spark.read.format("skipstone").option("where", "id = 7").load(str(root)).collect()
    assert "was not given" in str(caught.value) or "no key was given" in str(caught.value)


def test_a_session_without_a_kms_client_is_told(spark: SparkSession, tmp_path: Path) -> None:
    root = laid(tmp_path / "orders")
    table = Table(str(root), decryption=FULL.replaced(allow_plaintext_files=True))
    assert table.read(spark, "id = 7").count() == 1  # in the clear
    table.encrypt(encryption=SEALS)
    with pytest.raises(UnsupportedError, match="no KMS client") as caught:
        table.read(spark, "id = 7")
    assert "parquet.crypto.factory.class" in caught.value.hint


def test_a_build_on_spark_takes_the_keys_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    root = laid(tmp_path / "orders")
    Table(str(root)).encrypt(encryption=SEALS)
    table = Table(str(root), decryption=FULL)
    report = table.build(spark, ["id:minmax", "s:valuelist"], plaintext_index=True)
    assert (report.files_built, report.files_failed) == (3, ())
    assert table.plan("id = 77", inside=False).files_kept == 1
    assert table.query("id = 77 and s = 'é5'")["id"].to_pylist() == [77]
