"""Folders whose names Spark's rules for types and escapes take otherwise than one would think."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "values, predicates",
    [
        # Java reads 1d and 0x1p3 as the numbers 1 and 8.
        (["1d", "2f", "3"], ["p = '1'", "p < '1000'", "p > '1000'", "p <=> '1'"]),
        (["0x1p3", "1"], ["p > '1'", "p = '1d'", "p < '1'"]),
        # %C3%A9 are two characters, not the UTF-8 of one.
        (["%C3%A9", "\u00e9", "a%2Fb"], ["p = '\u00c3\u00a9'", "p = '\u00e9'", "p = 'a/b'"]),
        # With a time among them, days are instants.
        (["2024-01-01", "2024-01-01 10%3A00%3A00"], ["p = '2024-01-01 00:00:00'", "p < '2024-02'"]),
        # Nothing but text, however it begins.
        (["2024-01", "2023-12"], ["p = '2024-01'", "p < '2024'"]),
        (["1", "a"], ["p = '1'", "p = '01'", "p >= '1'"]),
    ],
)
def test_a_plan_reads_the_folders_of_all_rows(
    spark: SparkSession, tmp_path: Path, values: list[str], predicates: list[str]
) -> None:
    """One folder per value with one row each, and no index: the paths alone decide."""
    root = tmp_path / "folders"
    for number, value in enumerate(values):
        folder = root / f"p={value}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), folder / "f.parquet")
        os.utime(folder / "f.parquet", (1_600_000_000, 1_600_000_000))
    frame = spark.read.parquet(str(root)).cache()
    table = Table(str(root))
    for where in predicates:
        matching = {row.id for row in frame.where(where).collect()}
        plan = table.plan(where)
        numbers = [values.index(path.split("/")[-2][2:]) for path in plan.listing.paths]
        kept = {n for n, keep in zip(numbers, plan.keep, strict=True) if keep}
        surely = {n for n, must in zip(numbers, plan.must, strict=True) if must}
        assert surely <= matching <= kept, where
    frame.unpersist()


def test_a_plain_folder_between_two_levels_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    """`p=1/x/q=2` has the one partition column `q`: `p` is the file's own, and 55."""
    root = tmp_path / "broken"
    folder = root / "p=1" / "x" / "q=2"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"p": [55]}), folder / "f.parquet")
    (row,) = spark.read.parquet(str(root)).collect()
    assert (row.p, row.q) == (55, 2)
    for where, kept in (("p = 55", True), ("q = 2", True), ("q = 1", False)):
        assert Table(str(root)).plan(where).keep.tolist() == [kept], where
