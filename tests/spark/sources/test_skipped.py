"""CSV, JSON and ORC tables: the rows of plain Spark, from fewer files.

Each test writes a table, indexes it as Spark reads it, and compares with plain Spark; where the
layout is told, exactly the files expected are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.spark.facts import finder
from skipstone.spark.skip import skip
from skipstone.spark.text_sources import FileSource
from tests.spark.sources.layout import CSV, Indexed, only_scan, rows, write_csv

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark


def test_csv_is_skipped_by_every_kind(shared: Indexed) -> None:
    low, high, odd = "low.csv", "a high.csv", "é=%.csv"
    assert shared.errors() == {}
    asked = {
        "id = 5": {low},  # bloom: é=% has a range that covers 5
        "id = 1000": {odd},
        "id > 9": {high, odd},
        "id = 77": set(),
        "name = 'low'": {low},
        "name LIKE '%high'": {high},
        "name IS NULL": {odd},
        "x IS NOT NULL": {low, high},
        "x = double('NaN')": {high},
        "x > 100": {high},
        "NOT (x <= 9.5)": {high},
        "id IN (5, 105) AND name <> 'low'": {high},
        "id = 5 OR name = 'é high'": {low, high},
        "upper(name) = 'LOW' AND id < 50": {low},
    }
    assert dict(zip(asked, shared.plan_each(list(asked)), strict=True)) == asked


def test_a_file_without_rows_is_a_fact_and_never_read(shared: Indexed) -> None:
    assert shared.outcomes["none.csv"].built
    assert "none.csv" not in shared.read("name IS NULL")
    assert "none.csv" not in shared.read("NOT (id <=> 1)")


def test_new_and_changed_files_are_read(table: Indexed) -> None:
    write_csv(table.root, {"new.csv": ["7,seven,7"], "low.csv": ["5000,other,1"]})
    assert table.read("id = 7") == {"new.csv", "low.csv"}
    assert table.read("id = 5000") == {"new.csv", "low.csv"}
    table.build()
    assert table.read("id = 5000") == {"low.csv"}


def test_partition_folders_and_their_values(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_csv(root, {"p=1/a.csv": ["1,a,1"], "p=2/b.csv": ["2,b,2"], "p=2/q r/c.csv": ["3,c,3"]})
    (root / "p=2" / "q r" / "c.csv").rename(root / "p=2" / "c.csv")
    (root / "p=2" / "q r").rmdir()
    source = FileSource(
        format="csv", options={"header": "true"}, schema="id int, name string, x int"
    )
    made = Indexed(spark, root, source, ["id:minmax"]).build()
    assert made.errors() == {}
    assert made.read("id = 3") == {"c.csv"}
    assert made.read("id > 1 AND p = 2") == {"b.csv", "c.csv"}
    frame = made.plain().where("id = 1 AND p = 2")
    assert rows(frame) == rows(skip(frame, finder())) == []
    assert only_scan(spark).files_kept == 0


AWKWARD: list[dict[str, Any]] = [
    {"i": 1, "l": 2**62, "f": 0.5, "s": "a", "b": True, "d": "1.25", "day": "2024-02-29"},
    {"i": -1, "l": -(2**63), "f": float("nan"), "s": "", "b": False, "d": "-99.99"},
    {"i": 2**31 - 1, "f": -0.0, "s": "é, \"x\" 'y' \\", "day": "0001-01-01"},
    {"i": 0, "f": 0.0, "s": " pad ", "b": True, "d": "0.00", "day": "9999-12-31"},
    {"l": 2**63 - 1, "f": float("inf"), "s": "%_", "t": "2024-10-27 02:30:00.123456"},
    {"f": float("-inf"), "s": "\U0001f600" * 40, "t": "1969-12-31 23:59:59.999999"},
    {"i": 5, "s": "null", "b": False},
    {},
]
SCHEMA = "i int, l bigint, f double, s string, b boolean, d decimal(12,2), day date, t timestamp"
PREDICATES = [
    "i = 1",
    "i < 0",
    "i IS NULL",
    "i <=> NULL",
    "NOT (i <=> 5)",
    "l = 9223372036854775807",
    "l <= -9223372036854775808",
    "f = double('NaN')",
    "f > 1e308",
    "f = 0.0",
    "f = -0.0",
    "NOT (f <= 0.5)",
    "s = ''",
    "s LIKE 'é%'",
    "s LIKE '\\%\\_'",
    "s IN ('null', ' pad ')",
    "s NOT IN ('a', NULL)",
    "s IS NULL",
    "startswith(s, '\U0001f600')",
    "b",
    "NOT b",
    "b IS NULL",
    "d = 1.25",
    "d < 0",
    "d <> 0",
    "day = DATE'2024-02-29'",
    "day < DATE'1000-01-01'",
    "t > TIMESTAMP'2000-01-01 00:00:00'",
    "t = TIMESTAMP'2024-10-27 02:30:00.123456'",
    "t IS NULL AND i > 0",
    "i > 0 OR s = ''",
    "i = 77",
    "s = 'absent'",
]
EVERY_KIND = [f"{column}:{kind}" for column in "ilfsbd" for kind in ("minmax", "valuelist")] + [
    "i:bloom",
    "l:bloom",
    "s:bloom",
    "f:bloom",
    "day:minmax",
    "t:minmax",
    "t:bloom",
]


@pytest.mark.parametrize(
    "format", ["csv", *(pytest.param(each, marks=pytest.mark.long) for each in ("json", "orc"))]
)
def test_awkward_values_in_every_format(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """One file per row, and one with all of them: rows as plain Spark, and files do get skipped."""
    root, out = tmp_path / "t", tmp_path / "out"
    files = [[row] for row in AWKWARD] + [AWKWARD]
    lines = [
        json.dumps({"n": n} | {key: _json(value) for key, value in row.items()})
        for n, rows_of_file in enumerate(files)
        for row in rows_of_file
    ]
    (tmp_path / "in.json").write_text("\n".join(lines), encoding="utf-8")
    frame = spark.read.schema(f"n int, {SCHEMA}").json(str(tmp_path / "in.json")).coalesce(1)
    writer = frame.write.option("header", "true").option("emptyValue", '""').partitionBy("n")
    writer.format(format).save(str(out))
    root.mkdir()
    for number in range(len(files)):
        (part,) = (out / f"n={number}").glob("part-*")
        part.rename(root / f"{number} é.{format}")
    options = {"header": "true"} if format == "csv" else {}
    made = Indexed(
        spark, root, FileSource(format=format, options=options, schema=SCHEMA), EVERY_KIND
    )
    made.build()
    assert made.errors() == {}
    assert all(dict(o.reasons) == {} for o in made.outcomes.values())
    reads = list(map(len, made.plan_each(PREDICATES)))
    assert reads[-2:] == [0, 0]
    assert sum(reads) < len(PREDICATES) * len(made.outcomes) / 2


def _json(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, float) and abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def test_nested_columns_of_json(spark: SparkSession, tmp_path: Path) -> None:
    """1: s.n is 1 and 2. 2: the struct is null, or its field is. 3: s.n is 30, a.b is x."""
    root = tmp_path / "t"
    root.mkdir()
    (root / "1.json").write_text('{"s":{"n":1}}\n{"s":{"n":2,"m":[1]}}\n')
    (root / "2.json").write_text('{"s":null}\n{"s":{}}\n{"k":1}\n')
    (root / "3.json").write_text('{"s":{"n":30},"a.b":"x"}\n')
    schema = "s struct<n: int, m: array<int>>, `a.b` string, k int"
    indexes = ["s.n:minmax", "s.n:valuelist", "`a.b`:valuelist"]
    made = Indexed(spark, root, FileSource(format="json", schema=schema), indexes).build()
    assert made.errors() == {}
    assert made.read("s.n = 2") == {"1.json"}
    assert made.read("s.n > 2") == {"3.json"}
    assert made.read("s.n IS NULL") == {"2.json"}
    assert made.read("`a.b` = 'x'") == {"3.json"}


def test_lists_and_filters_are_bounded(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_csv(root, {"many.csv": [f"{i},n{i},0" for i in range(50)], "few.csv": ["7,n7,0"]})
    indexes = ["id:valuelist(max_values=20)", "name:valuelist", "id:minmax"]
    made = Indexed(spark, root, CSV, indexes).build()
    assert made.errors() == {}
    left_out = {name: list(o.reasons) for name, o in made.outcomes.items()}
    assert left_out == {"many.csv": ["valuelist(id, max_values=20)"], "few.csv": []}
    assert made.read("id = 60") == set()
    assert made.read("name = 'n60'") == set()
    assert made.read("id <> 7") == {"many.csv"}
