"""Indexes on expressions on every Spark path: the rows of plain Spark, from fewer files.

Files 0 to 5 hold 30 rows each. File 6 lacks columns. In file 7 a row of ``code`` is no number, and
some JSON is broken.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.session import set_to
from tests.spark.layout import check_each, planned, read_by_spark, read_remotely, rows, rows_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OLD = 1_600_000_000
EACH, FILES = 30, 8
START = datetime(2026, 1, 1, 20, tzinfo=UTC)


def body(file: int, row: int) -> str | None:
    if file == 7 and row % 4 == 0:
        return '{"user": {"id": broken'
    if row % 11 == 10:
        return None
    user = {"id": f"u{file}-{row}", "age": file * 10 + row % 3, "tags": [row, {"a": None}]}
    return json.dumps({"user": user, "x": row / 7, "kind": ["click", "view"][row % 2]})


def lay_out(home: Path) -> None:
    home.mkdir()
    for file in range(FILES):
        numbers = range(file * EACH, file * EACH + EACH)
        data = {
            "id": pa.array(numbers, pa.int64()),
            "Email": [None if n % 9 == 1 else f"User{n}@Example.ORG " for n in numbers],
            "ts": pa.array(
                [START + timedelta(days=file, minutes=13 * n) for n in range(EACH)],
                pa.timestamp("us", "UTC"),
            ),
            "n": pa.array([2**31 - 250 + n for n in numbers], pa.int32()),
            "code": [f"{n % 10}{file}" for n in numbers],
            "payload": pa.array(
                [[("type", f"Type{file}")] for _ in numbers], pa.map_(pa.string(), pa.string())
            ),
            "s": pa.array([{"a": f"A{file}"} for _ in numbers]),
            "body": [body(file, row) for row in range(EACH)],
        }
        if file == 7:
            data["code"][3] = "none"
        table = pa.table(data)
        if file == 6:
            table = table.select(["id", "n"])
        pq.write_table(table, home / f"{file}.parquet", row_group_size=12)
        os.utime(home / f"{file}.parquet", (OLD, OLD))


OF_THE_ENGINE = [
    "lower(email):valuelist,bloom",
    "trim(email):bloom",
    "to_date(ts):valuelist",
    "hour(ts):valuelist",
    "lower(payload['type']):valuelist",
    "concat(payload['type'], s.a):minmax",
    "n + 100:minmax",
    "CAST(code AS INT):valuelist",
    "length(email) % 5:valuelist",
    "substr(code, 2, 1):valuelist",
]
OF_SPARK = [
    "get_json_object(body, '$.user.id'):bloom(fpp=0.0001),minmax",
    "get_json_object(body, '$.kind'):valuelist",
    "CAST(get_json_object(body, '$.user.age') AS INT):minmax",
    "upper(get_json_object(body, '$.user.id')):valuelist",
    "regexp_extract(email, '([0-9]+)', 1):valuelist",
    "date_format(ts, 'yyyy-MM-dd HH'):valuelist",
    "md5(CAST(email AS BINARY)):bloom(fpp=0.0001)",
]

# What is asked, and the files that Spark may read for it in the zone of the build: file 6 has no
# facts, and file 7 none of what fails there.
ASKED = [
    ("lower(email) = 'user95@example.org '", 2),
    ("lcase(Email) IN ('user95@example.org ', 'user5@example.org ')", 3),
    ("trim(email) = 'User95@Example.ORG'", 2),
    ("lower(email) LIKE 'user9_@example.org '", 8),
    ("lower(trim(email)) = 'none'", 8),
    ("date(ts) = DATE '2026-01-03'", 3),
    ("to_date(ts) = '2026-01-03'", 3),
    ("hour(ts) = 5", 1),
    ("hour(ts) > 5 AND hour(ts) < 20", 8),
    ("lower(payload['type']) = 'type3'", 2),
    ("lower(element_at(payload, 'type')) = 'type3'", 2),
    ("concat(payload['type'], s.a) = 'Type4A4'", 2),
    ("cast(code AS INT) = 33", 3),
    ("cast(code AS INT) = 100", 2),
    ("length(email) % 5 = 4", 8),
    ("substr(code, 2, 1) = '5'", 2),
    ("get_json_object(body, '$.user.id') = 'u2-3'", 2),
    ("get_json_object(body, '$.user.id') IN ('u2-3', 'u4-4', 'none')", 3),
    ("get_json_object(body, '$.user.id') IS NULL", 8),
    ("get_json_object(body, '$.kind') = 'buy'", 1),
    ("get_json_object(body, '$.kind') <> 'click'", 8),
    ("CAST(get_json_object(body, '$.user.age') AS INT) >= 70", 2),
    ("upper(get_json_object(body, '$.user.id')) = 'U3-5'", 2),
    ("regexp_extract(email, '([0-9]+)', 1) = '95'", 2),
    ("date_format(ts, 'yyyy-MM-dd HH') = '2026-01-03 21'", 2),
    (f"md5(CAST(email AS BINARY)) = '{md5(b'User95@Example.ORG ').hexdigest()}'", 2),
    ("email = 'User95@Example.ORG '", 2),
    ("ts >= TIMESTAMP '2026-01-03 00:00:00' AND ts < TIMESTAMP '2026-01-04 00:00:00'", 3),
    ("NOT (lower(email) = 'user95@example.org ' OR id > 3)", 8),
]
# Rows of this fail in plain Spark under ANSI rules.
FAILING = ("CAST(code", "n + 100")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    found = tmp_path_factory.mktemp("expressions") / "t"
    lay_out(found)
    report = Table(str(found)).build(spark, [*OF_THE_ENGINE, *OF_SPARK], pm="none")
    assert report.files_built == FILES
    said = {each.subject: each.text for each in report.left_out}
    assert said["valuelist(hour(ts) :: int /* ts timestamp, in UTC */)"] == "ts is not in this file"
    assert "cannot hold in (n + 100)" in said["minmax((n + 100) :: int /* n int */)"]
    return found


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_classic_session(home: Path, spark: SparkSession, ansi: str, zone: str) -> None:
    with set_to(spark, {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
        plain = spark.read.option("mergeSchema", "true").parquet(str(home))
        frame = skipstone.skip(plain)
        # Of what a zone does not change, a few.
        asked = [e for at, e in enumerate(ASKED) if zone == "UTC" or "ts" in e[0] or not at % 4]
        bounded = []
        for where, most in asked:
            # Casts that may fail are those of ANSI mode.
            other = ("ts" in where and zone != "UTC") or ("AS INT" in where and ansi == "false")
            guarded = ansi == "true" and "code AS INT" in where
            bounded.append((f"id < 210 AND {where}" if guarded else where, 8 if other else most))
        check_each(plain, frame, bounded)


def test_sums_that_wrap_around_are_right(home: Path, spark: SparkSession) -> None:
    """``n + 100`` overflows in some files: without ANSI mode their rows are still found."""
    with set_to(spark, {"spark.sql.ansi.enabled": "false"}):
        plain = spark.read.option("mergeSchema", "true").parquet(str(home))
        frame = skipstone.skip(plain)
        asked = ("n + 100 < 0", "n + 100 > 2147483600", "n + 100 = -2147483600")
        for where, expected in zip(asked, rows_of_each(plain, asked), strict=True):
            assert rows(frame.where(where)) == expected, where


def test_text_that_is_planned_here(home: Path, spark: SparkSession) -> None:
    """Of the files that a plan for the text skips, plain Spark finds no row that matches."""
    table = Table(str(home))
    plain = spark.read.option("mergeSchema", "true").parquet(str(home))
    texts = [f"id < 210 AND ({where})" for where, _ in ASKED]
    every = rows_of_each(plain, texts, ["_metadata.file_name"])
    for where, (_, most), matching in zip(texts, ASKED, every, strict=True):
        plan = table.plan(where, inside=False)
        kept = {f"Row(file_name={path.rpartition('/')[2]!r})" for path in plan.paths}
        assert set(matching) <= kept, where
        assert plan.files_kept <= most, where
    with pytest.raises(UnsupportedError, match="get_json_object is computed by Spark only"):
        table.query("get_json_object(body, '$.user.id') = 'u2-3'")


def test_read_of_a_table(home: Path, spark: SparkSession) -> None:
    table = Table(str(home))
    plain = spark.read.option("mergeSchema", "true").parquet(str(home))
    for where in (
        "get_json_object(body, '$.user.id') = 'u2-3'",
        "lower(email) = 'user95@example.org '",
    ):
        frame = table.read(spark, where, mergeSchema="true")
        assert rows(frame) == rows(plain.where(where))


def test_a_remote_session(home: Path, spark_connect: SparkSession) -> None:
    table = Table(str(home))
    plain = spark_connect.read.option("mergeSchema", "true").parquet(str(home))
    asked = ASKED[::6] + ASKED[16:18]
    texts = [f"id < 210 AND ({where})" for where, _ in asked]
    every = rows_of_each(plain, texts)
    for where, (_, most), expected in zip(texts, asked, every, strict=True):
        found, files = read_remotely(table.read(spark_connect, where, mergeSchema="true"))
        assert found == expected, where
        assert files <= most, where


def test_a_refresh_without_spark_leaves_out_what_spark_computes(
    tmp_path: Path, spark: SparkSession
) -> None:
    lay_out(tmp_path / "t")
    spec = ["get_json_object(body, '$.kind'):valuelist", "lower(email):bloom"]
    with pytest.raises(UnsupportedError, match="needs a Spark build"):
        Table(str(tmp_path / "t")).build(indexes=spec)
    assert not Table(str(tmp_path / "t")).describe().indexes
    Table(str(tmp_path / "t")).build(spark, spec, pm="none")
    again = Table(str(tmp_path / "t")).build(spark, spec, pm="none")
    assert again.files_already == FILES
    pq.write_table(pq.read_table(tmp_path / "t" / "1.parquet"), tmp_path / "t" / "8.parquet")
    os.utime(tmp_path / "t" / "8.parquet", (OLD, OLD))
    report = Table(str(tmp_path / "t")).refresh(pm="none")
    assert report.files_built == 1
    assert "needs a Spark build" in str([str(each) for each in report.left_out])
    where = "get_json_object(body, '$.kind') = 'buy'"
    assert Table(str(tmp_path / "t")).plan(where).files_kept == 1
    Table(str(tmp_path / "t")).refresh(spark)
    assert Table(str(tmp_path / "t")).plan(where).files_kept == 0


def test_expressions_of_csv(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "t").mkdir()
    for file in range(4):
        lines = [f"{file}{row},Name{file}" for row in range(20)]
        (tmp_path / "t" / f"{file}.csv").write_text("\n".join(["id,name", *lines]) + "\n")
        os.utime(tmp_path / "t" / f"{file}.csv", (OLD, OLD))
    table = Table(str(tmp_path / "t"), format="csv", options={"header": "true"})
    table.build(spark, ["lower(name):valuelist", "md5(CAST(name AS BINARY)):valuelist"])
    plain = spark.read.option("header", "true").csv(str(tmp_path / "t"))
    for where in ("lower(name) = 'name2'", "md5(CAST(name AS BINARY)) = md5(X'4E616D6532')"):
        found, files = read_by_spark(skipstone.skip(plain).where(where))
        assert found == rows(plain.where(where))
        assert files == 1


@pytest.mark.parametrize("format", ["parquet", pytest.param("csv", marks=pytest.mark.long)])
def test_an_expression_that_fails_costs_no_fact_of_another(
    tmp_path: Path, spark: SparkSession, format: str
) -> None:
    """``k`` is no number in files 1 and 3, ``d`` no date in files 3 and 4; nothing else fails."""
    root = tmp_path / "t"
    root.mkdir()
    for file in range(5):
        data = {
            "k": ["none" if file in (1, 3) else f"{file}" for _ in range(9)],
            "d": ["none" if file in (3, 4) else f"2026-01-0{file + 1}" for _ in range(9)],
            "name": [f"Name{file}"] * 9,
        }
        if format == "parquet":
            pq.write_table(pa.table(data), root / f"{file}.parquet")
        else:
            csv.write_csv(pa.table(data), root / f"{file}.csv")
        os.utime(root / f"{file}.{format}", (OLD, OLD))
    options = {} if format == "parquet" else {"header": "true"}
    table = Table(str(root), format=format, options=options)
    spec = [
        "CAST(reverse(k) AS INT):valuelist,minmax",
        "to_date(translate(d, '/', '-')):valuelist",
        "reverse(name):valuelist",
        "initcap(name):bloom(fpp=0.0001)",
    ]
    report = table.build(spark, spec, pm="none")
    assert report.files_built == 5
    lost = [
        (each.subject.partition("(")[0], each.units, each.text[:28]) for each in report.left_out
    ]
    failed = "failed: [CAST_INVALID_INPUT]"
    assert set(lost) == {("valuelist", 2, failed), ("minmax", 2, failed)}, report.left_out
    plain = spark.read.options(**options).format(format).load(str(root))
    asked = [
        ("k <> 'none' AND CAST(reverse(k) AS INT) = 2", 3),
        ("d <> 'none' AND to_date(translate(d, '/', '-')) = DATE '2026-01-03'", 3),
        ("reverse(name) = '3emaN'", 1),
        ("initcap(name) = 'Name4'", 1),
    ]
    skipping = skipstone.skip(plain)
    check_each(plain, skipping, asked, every=3)
    assert [] not in rows_of_each(plain, [where for where, _ in asked])
    assert [len(planned(skipping.where(where))) for where, _ in asked] == [n for _, n in asked]
    assert table.build(spark, spec, pm="none").files_already == 5


def test_random_conditions(home: Path, spark: SparkSession) -> None:
    """Random comparisons of indexed expressions, in random modes and zones."""
    draw = random.Random(7)
    expressions = [each.rpartition(":")[0] for each in [*OF_THE_ENGINE, *OF_SPARK]]
    texts = [
        "u2-3",
        "type3",
        "user95@example.org ",
        "5",
        "click",
        "Type4A4",
        "2026-01-03",
        "",
        "95",
    ]
    asked: dict[tuple[str, str], list[str]] = {}
    for _ in range(60):
        expression = draw.choice(expressions).replace(":valuelist", "")
        number = any(each in expression for each in ("hour", "n + 100", "AS INT", "length"))
        literal = (
            str(draw.choice([0, 3, 5, 22, 33, 70, 2147483640]))
            if number
            else (f"'{draw.choice(texts)}'")
        )
        if "to_date" in expression:
            literal = f"DATE '2026-01-0{draw.randint(1, 9)}'"
        op = draw.choice(["=", "<>", "<", ">=", "<=>"])
        where = draw.choice(["{}", "NOT ({})", "({}) IS NOT TRUE", "({}) OR id = 33"]).format(
            f"{expression} {op} {literal}"
        )
        ansi = draw.choice(["true", "false"])
        zone = draw.choice(["UTC", "America/New_York"])
        if "n + 100" in expression:
            ansi = "false"
        asked.setdefault((ansi, zone), []).append(where)
    assert len(asked) == 4
    for (ansi, zone), texts in asked.items():
        with set_to(spark, {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
            plain = spark.read.option("mergeSchema", "true").parquet(str(home)).where("id < 210")
            frame = skipstone.skip(plain)
            check_each(plain, frame, [(where, FILES) for where in texts])


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_two_columns_are_compared_by_their_bounds(
    tmp_path: Path, spark: SparkSession, ansi: str
) -> None:
    draw = random.Random(11)
    home = tmp_path / "t"
    home.mkdir()
    for file in range(12):
        a = [file * 100 + draw.randint(0, 40) for _ in range(20)]
        b = [x + draw.choice([-50, 0, 50][file % 3 : file % 3 + 1]) for x in a]
        floats = [draw.choice([None, float("nan"), -0.0, float(x)]) for x in a]
        data = {
            "id": pa.array(range(file * 20, file * 20 + 20), pa.int64()),
            "a": pa.array(a, pa.int32()),
            "b": pa.array([None if file == 11 else x for x in b], pa.int64()),
            "s": [f"{x:05d}" for x in a],
            "t": [f"{x:05d}" for x in b],
            "f": pa.array(floats, pa.float64()),
            "g": pa.array([float(x) for x in b], pa.float64()),
        }
        pq.write_table(pa.table(data), home / f"{file:02d}.parquet")
        os.utime(home / f"{file:02d}.parquet", (OLD, OLD))
    Table(str(home)).build(indexes=[f"{name}:minmax" for name in "abstfg"], pm="none")
    with set_to(spark, {"spark.sql.ansi.enabled": ansi}):
        plain = spark.read.parquet(str(home))
        frame = skipstone.skip(plain)
        asked = [
            ("a < b", 7), ("b < a", 8), ("NOT (a >= b)", 7), ("a = b", 4), ("s > t", 8),
            ("f < g", 12), ("f >= g", 12), ("a < b OR id = 5", 12), ("s < t AND a > b", 4),
            ("a <=> b", 12), ("a + 0 < b", 12), ("b IS NULL OR a > b", 9),
        ]  # fmt: skip
        check_each(plain, frame, asked)
