"""Indexes on expressions whose meaning a zone or a setting of the session changes."""

from __future__ import annotations

import os
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.session import set_to
from skipstone.spark.versions import setting_of
from tests.spark.layout import check_each, read_by_spark, read_remotely, rows, rows_of_each
from tests.spark.test_expression_indexes import OLD, START

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_text_of_a_time_in_the_zone_of_its_view(spark: SparkSession, tmp_path: Path) -> None:
    """A view keeps the zone in which it was made: its casts are not those of the session."""
    root = tmp_path / "t"
    root.mkdir()
    for file in range(6):
        times = pa.array([START + timedelta(days=file)] * 3, pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times}), root / f"{file}.parquet")
        os.utime(root / f"{file}.parquet", (OLD, OLD))
    Table(root).build(indexes=["CAST(ts AS STRING):valuelist"])
    frames = {
        "plain": spark.read.parquet(str(root)),
        "skip": skipstone.skip(spark.read.parquet(str(root))),
    }
    found = {}
    for name, frame in frames.items():
        with set_to(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
            later = frame.selectExpr("CAST(ts AS STRING) AS x")
            assert later.schema.names == ["x"]  # analyzed here
        found[name] = rows(later.where("x = '2026-01-04 05:00:00'"))
    assert found["plain"] == found["skip"] != []


@pytest.mark.long
@pytest.mark.parametrize(
    "zone, day", [("Pacific/Apia", date(2011, 12, 30)), ("Pacific/Kiritimati", date(1994, 12, 31)),
                  ("America/Sao_Paulo", date(2011, 10, 16)), ("Europe/Oslo", date(1950, 1, 1))]
)  # fmt: skip
def test_the_text_of_a_day_that_a_zone_skipped(
    spark: SparkSession, tmp_path: Path, zone: str, day: date
) -> None:
    """A file for each of the days around it."""
    root = tmp_path / "t"
    root.mkdir()
    for n in range(-3, 4):
        columns = {"id": [n], "day": [day + timedelta(days=n)]}
        pq.write_table(pa.table(columns), root / f"{n}.parquet")
        os.utime(root / f"{n}.parquet", (OLD, OLD))
    Table(root).build(indexes=["day:minmax,valuelist"])
    asked = []
    for pattern in ("yyyy-MM-dd", "yyyyMM", "yyyy"):
        shown = pattern.replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d")
        texts = dict.fromkeys((day + timedelta(days=n)).strftime(shown) for n in range(-1, 2))
        asked += [
            f"date_format(day, '{pattern}') {op} '{text}'"
            for text in texts
            for op in ("=", "<", "<=", ">", ">=", "<>")
        ]
    with set_to(spark, {"spark.sql.session.timeZone": zone}):
        plain = spark.read.parquet(str(root))
        for where, expected in zip(asked, rows_of_each(plain, asked, ["id"]), strict=True):
            found = Table(root).query(where, columns=["id"], time_zone=zone).column("id")
            assert sorted(f"Row(id={each})" for each in found.to_pylist()) == expected, where
        check_each(plain, skipstone.skip(plain), [(where, 7) for where in asked], every=24)


def test_expressions_are_built_under_the_own_meaning_of_texts(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for file in range(6):
        pq.write_table(pa.table({"b": [f"x{file} {file}"]}), root / f"{file}.parquet")
        os.utime(root / f"{file}.parquet", (OLD, OLD))
    condition = r"regexp_extract(b, '\\d+', 0) = '4'"
    with set_to(spark, {"spark.sql.parser.escapedStringLiterals": "true"}):
        Table(root).build(spark, indexes=[r"regexp_extract(b, '\\d+', 0):valuelist"])
    plain = spark.read.parquet(str(root)).where(condition)
    skipped, read = read_by_spark(skipstone.skip(spark.read.parquet(str(root))).where(condition))
    assert rows(plain) == skipped != []
    assert read == 1


def _texts(root: Path, texts: list[str]) -> None:
    root.mkdir()
    for file, text in enumerate(texts):
        pq.write_table(pa.table({"s": [text, f"{text}x"]}), root / f"{file}.parquet")
        os.utime(root / f"{file}.parquet", (OLD, OLD))


def test_functions_that_a_setting_changes_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    _texts(root, ["ßa ßb", "aa", "ab", "ba"])
    Table(root).build(spark, indexes=["initcap(s):valuelist"])
    plain = spark.read.parquet(str(root))
    for value, text in (("true", "Ssa Ssb"), ("false", "ßa ßb")):
        with set_to(spark, {"spark.sql.icu.caseMappings.enabled": value}):
            where = f"initcap(s) = '{text}'"
            found, files = read_by_spark(skipstone.skip(plain).where(where))
            assert found == rows(plain.where(where)) != []
            assert files == (1 if value == "true" else 4)


@pytest.mark.parametrize("value", ["true", "false"])
def test_letters_whose_case_a_setting_decides_lose_no_rows(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    """ICU has a case of letters that Java's older Unicode has none of, such as U+0264."""
    root = tmp_path / "t"
    _texts(root, ["\u0264a", "\u1c89b", "\u2c2fc", "ßd", "ae", "be"])
    spec = ["lower(s):valuelist", "upper(s):bloom", "upper(reverse(s)):valuelist",
            "md5(CAST(upper(s) AS BINARY)):valuelist", "reverse(lower(s)):valuelist"]  # fmt: skip
    Table(root).build(spark, indexes=spec)
    plain = spark.read.parquet(str(root))
    each = [expression.rpartition(":")[0] for expression in spec]
    with set_to(spark, {"spark.sql.icu.caseMappings.enabled": value}):
        values = plain.selectExpr(*(f"CAST({text} AS STRING)" for text in each)).collect()
        asked = [
            (f"{expression} = '{text}'", 5 if text.isascii() and value == "true" else 6)
            for expression, texts in zip(each, zip(*values, strict=True), strict=True)
            for text in sorted(texts)[::2]  # one of the two of each file
        ]
        assert [] not in rows_of_each(plain, [where for where, _ in asked])
        check_each(plain, skipstone.skip(plain), asked, every=4)


def test_a_remote_session_builds_under_the_settings_of_an_index_alone(
    spark_connect: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    _texts(root, ["ab cd", "ef", "gh"])
    indexes = ["initcap(s):valuelist"]
    for key, value in (
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.parser.quotedRegexColumnNames", "true"),
    ):
        with (
            set_to(spark_connect, {key: value}),
            pytest.raises(UnsupportedError, match=f"{key} = .* and it is {value}") as error,
        ):
            Table(root).build(spark_connect, indexes=indexes)
        assert f"spark.conf.set({key!r}" in str(error.value)
    Table(root).build(spark_connect, indexes=indexes)
    where = "initcap(s) = 'Ab Cd'"
    found, files = read_remotely(Table(root).read(spark_connect, where))
    assert found == rows(spark_connect.read.parquet(str(root)).where(where)) != []
    assert files == 1


def test_settings_that_a_version_lacks(spark: SparkSession, spark_connect: SparkSession) -> None:
    for session in (spark, spark_connect):
        assert setting_of(session.conf.get, "spark.sql.ansi.doubleQuotedIdentifiers") == "false"
        assert setting_of(session.conf.get, "spark.sql.no.such.setting") is None
        with pytest.raises(Exception, match=r"NOT_STR|NOT_EXPECTED_TYPE|expected"):
            setting_of(session.conf.get, 5)  # type: ignore[arg-type]
