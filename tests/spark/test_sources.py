"""CSV, JSON and ORC tables: the rows of plain Spark, from fewer files.

Each test writes a table, indexes it as Spark reads it, and compares with plain Spark; where the
layout is told, exactly the files expected are read.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob, Outcome
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts import Location, Store
from skipstone.indexes.registry import parse_index
from skipstone.spark.facts import finder
from skipstone.spark.last_query import last_scan
from skipstone.spark.skip import skip
from skipstone.spark.text_sources import FileSource, build_source, open_source
from skipstone.storage import open_storage
from skipstone.table import Table
from tests.spark.layout import rows_of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from skipstone.spark.scans import Scan

pytestmark = pytest.mark.spark

CSV = FileSource(format="csv", options={"header": "true"}, schema="id int, name string, x double")


@dataclass
class Indexed:
    """A table of one of Spark's formats with an index, and what became of its files."""

    spark: SparkSession
    root: Path
    source: FileSource
    indexes: Sequence[str]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def build(self, **settings: Any) -> Indexed:
        """Index all files, or index them again."""
        root = str(self.root)
        table = open_source(self.spark, root, self.source)
        job = BuildJob(
            table=root,
            location=Location.of_table(root).root,
            storage_options={},
            definitions=tuple(parse_index(text) for text in self.indexes),
            schema=table.schema,
            settings=BuildSettings(**{"settle": 0.0, **settings}),
            fingerprint=table.fingerprint,
        )
        listing = open_storage(root).list_files(root)
        for outcome in build_source(self.spark, job, table, listing):
            self.outcomes[Path(outcome.path).name] = outcome
        assert {Path(path).name for path in listing.paths} == set(self.outcomes)
        return self

    def plain(self, source: FileSource | None = None) -> DataFrame:
        return (source or self.source).read(self.spark, str(self.root))

    def read(self, where: str, source: FileSource | None = None) -> set[str]:
        """The files that ``where`` reads; its rows are those of plain Spark."""
        frame = self.plain(source).where(where)
        return self._read(frame, where, rows(frame))

    def read_each(self, conditions: Sequence[str]) -> list[set[str]]:
        """``read`` of each condition; plain Spark is asked once."""
        plain = self.plain()
        every = zip(conditions, rows_of_each(plain, conditions), strict=True)
        return [self._read(plain.where(where), where, expected) for where, expected in every]

    def _read(self, frame: DataFrame, where: str, expected: list[str]) -> set[str]:
        assert rows(skip(frame, finder())) == expected, where
        last = last_scan(self.spark)
        if not last.scans:
            return set()  # Spark has found that no row can match
        scan = only_scan(self.spark)
        plan = scan.report
        assert plan is not None, scan
        return {Path(path).name for path in plan.paths}

    def errors(self) -> dict[str, str]:
        return {name: o.error for name, o in self.outcomes.items() if o.error is not None}


def only_scan(spark: SparkSession) -> Scan:
    last = last_scan(spark)
    assert last is not None
    (scan,) = last.scans
    return scan


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def write_csv(root: Path, files: Mapping[str, Sequence[str]], header: str = "id,name,x") -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Set a setting of the session for one test."""
    before: dict[str, str | None] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


KINDS = ["id:minmax", "id:bloom", "name:valuelist", "x:minmax", "x:valuelist"]


def small(spark: SparkSession, folder: Path) -> Indexed:
    """low: ids 0-9 named "low"; a high: ids 100-109 named "é high"; é=%: ids 0, 1000 without x; and
    a file of no rows."""
    root = folder / "t 1"
    write_csv(
        root,
        {
            "low.csv": [f"{i},low,{i}.5" for i in range(10)],
            "a high.csv": [f"{i},é high,NaN" for i in range(100, 110)],
            "é=%.csv": ["0,,", "1000,,"],
            "none.csv": [],
        },
    )
    return Indexed(spark, root, CSV, KINDS).build()


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """``small`` for tests that only read it."""
    return small(spark, tmp_path_factory.mktemp("shared"))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Indexed:
    """``small`` for tests that change it."""
    return small(spark, tmp_path)


# -- what is skipped -------------------------------------------------------------------------------


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
    assert dict(zip(asked, shared.read_each(list(asked)), strict=True)) == asked


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


@pytest.mark.parametrize("format", ["csv", "json", "orc"])
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
    # Filters of ORC lose rows of -0.0 in Spark itself.
    each = map(made.read, PREDICATES) if format == "orc" else made.read_each(PREDICATES)
    reads = list(map(len, each))
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


# -- what gets no facts ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_malformed_record_costs_its_file_the_facts(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """In which columns a record is broken decides what other columns show, query by query."""
    root = tmp_path / "t"
    write_csv(
        root,
        {
            "good.csv": ["1,one,1.0"],
            "type.csv": ["2,two,2.0", "3,three,x"],
            "short.csv": ["4,four", "5,five,5.0"],
            "long.csv": ["6,six,6.0,more"],
        },
    )
    options = {"header": "true", "mode": mode}
    made = Indexed(spark, root, FileSource(format="csv", options=options, schema=CSV.schema), KINDS)
    made.build()
    assert made.errors() == {
        "type.csv": "1 of 2 rows are malformed under these options",
        "short.csv": "1 of 2 rows are malformed under these options",
        "long.csv": "1 of 1 rows are malformed under these options",
    }
    broken = {"type.csv", "short.csv", "long.csv"}
    assert made.read("id = 3") == broken
    assert made.read("x IS NULL") == broken
    assert made.read("id = 1") == {"good.csv", *broken}
    frame = made.plain().where("id = 3").select("id")
    assert rows(skip(frame, finder())) == rows(frame)


def test_malformed_json_and_a_corrupt_record_column_of_the_users_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    root.mkdir()
    (root / "good.json").write_text('{"a": 1}\n{"a": 2, "other": []}\n')
    (root / "bad.json").write_text('{"a": 3}\n{"a": "four"}\n')
    (root / "cut.json").write_text('{"a": 5}\n{"a": 6')
    for schema, options in (
        ("a int", {}),
        ("a int, _corrupt_record string", {}),
        ("_bad string, a int", {"columnNameOfCorruptRecord": "_bad"}),
    ):
        source = FileSource(format="json", schema=schema, options=options)
        made = Indexed(spark, root, source, ["a:minmax"]).build()
        assert set(made.errors()) == {"bad.json", "cut.json"}
        assert made.read("a = 1") == {"good.json", "bad.json", "cut.json"}
        assert made.read("a = 5") == {"bad.json", "cut.json"}


def test_files_that_cannot_be_read_are_named_and_the_rest_is_built(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Five are cut off: more than are tried one by one."""
    root = tmp_path / "t"
    write_csv(root, {f"good {i}.csv": [f"{i},n,0"] for i in range(3)})
    whole = gzip.compress(b"id,name,x\n" + b"9,n,0\n" * 20_000)
    for i in range(5):
        (root / f"cut é {i}.csv.gz").write_bytes(whole[: len(whole) // 2])
    (root / "whole.csv.gz").write_bytes(whole)
    made = Indexed(spark, root, CSV, ["id:minmax"]).build()
    errors = made.errors()
    assert set(errors) == {f"cut é {i}.csv.gz" for i in range(5)}
    assert all(text.startswith("not readable as csv: EOFException") for text in errors.values())
    for i in range(5):
        (root / f"cut é {i}.csv.gz").unlink()
    assert made.read("id = 1") == {"good 1.csv"}
    assert made.read("id = 9") == {"whole.csv.gz"}


def test_a_file_that_cannot_be_read_is_not_tried_again_until_it_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    write_csv(root, {f"good {i}.csv": [f"{i},n,0"] for i in range(3)} | {"bad.csv": ["x,n,0"]})
    whole = gzip.compress(b"id,name,x\n" + b"9,n,0\n" * 20_000)
    (root / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    for file in root.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    options = dict(CSV.options)
    table = Table(root, format="csv", options=options, schema=CSV.schema)
    built = table.build(spark, ["id:minmax"])
    assert (built.files_built, len(built.files_failed), built.ok) == (3, 2, False)
    found = table.describe()
    assert (found.fresh, found.missing) == (3, 0)
    told = {Path(path).name: text for path, text in found.unreadable}
    assert told["bad.csv"] == "1 of 1 rows are malformed under these options"
    assert told["cut.csv.gz"].startswith("not readable as csv: EOFException")
    again = table.refresh(spark)
    assert (again.files_built, again.files_already, len(again.files_failed)) == (0, 3, 2)
    assert all("not tried again" in text for _, text in again.files_failed)
    (root / "cut.csv.gz").write_bytes(whole)
    write_csv(root, {"bad.csv": ["7,n,0"]})
    for name in ("cut.csv.gz", "bad.csv"):
        os.utime(root / name, (1_700_000_100, 1_700_000_100))
    mended = table.refresh(spark)
    assert (mended.files_built, mended.files_already, mended.ok) == (2, 3, True)
    assert table.describe().unreadable == ()


def test_an_orc_file_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.range(10).coalesce(1).write.orc(str(root))
    spark.range(0).coalesce(1).write.mode("append").orc(str(root))
    (root / "not.orc").write_bytes(b"PAR1 this is no ORC file PAR1" * 20)
    source = FileSource(format="orc", schema="id bigint")
    made = Indexed(spark, root, source, ["id:minmax"]).build()
    (text,) = made.errors().values()
    assert made.outcomes["not.orc"].error == text
    assert text.startswith("not readable as orc: ")
    (root / "not.orc").unlink()
    assert made.read("id = 50") == set()
    assert len(made.read("id = 5")) == 1


def test_files_that_spark_does_not_read_there(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_csv(root, {"a.csv": ["1,a,0"], "b.txt": ["2,b,0"]})
    options = {"header": "true", "pathGlobFilter": "*.csv"}
    made = Indexed(spark, root, FileSource(format="csv", options=options, schema=CSV.schema), KINDS)
    made.build()
    assert made.errors() == {"b.txt": "not among the files that Spark reads as csv"}
    assert made.read("id = 1") == {"a.csv"}
    assert made.read("id = 2") == set()


def test_a_file_that_changes_before_the_job_ends_has_no_facts(
    table: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, later time: the identity that was listed is not the one that was read."""
    from skipstone.spark import text_sources as sources

    rows_of = sources._rows

    def change(*args: Any) -> Any:
        path = table.root / "low.csv"
        path.write_text(path.read_text().replace("low", "LOW"), encoding="utf-8")
        return rows_of(*args)

    monkeypatch.setattr(sources, "_rows", change)
    table.build()
    assert set(table.errors()) == {"low.csv"}
    assert "changed while it was read" in table.errors()["low.csv"]
    monkeypatch.undo()
    assert "low.csv" in table.read("name = 'LOW'")


def test_a_file_of_the_future_is_indexed_once_it_stays(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_csv(root, {"old.csv": ["1,a,0"], "young.csv": ["2,b,0"]})
    ahead = (datetime.now() + timedelta(hours=1)).timestamp()
    os.utime(root / "young.csv", (ahead, ahead))
    made = Indexed(spark, root, CSV, ["id:minmax"]).build(settle=0.1)
    assert not made.outcomes["young.csv"].too_fresh
    assert made.outcomes["young.csv"].built
    assert made.outcomes["old.csv"].built
    assert made.read("id = 3") == set()


def test_a_name_that_spark_spells_otherwise_is_no_empty_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were a path spelled otherwise than Spark does, no row would be seen to be in the file."""
    from skipstone.spark import text_sources as sources

    monkeypatch.setattr(sources, "encode_uri", lambda path: "file://" + path.replace(" ", "+"))
    root = tmp_path / "t"
    write_csv(root, {"a b.csv": ["1,a,0"]})
    made = Indexed(spark, root, CSV, ["id:minmax"]).build()
    assert made.errors() == {"a b.csv": "Spark gives this file another name"}
    monkeypatch.undo()
    assert not Store.of_table(str(root)).exists()


def test_what_has_no_facts_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'avro' have no index"):
        FileSource(format="avro")
    root = tmp_path / "t"
    write_csv(root, {"a.csv": ["1,a,0"]})
    with pytest.raises(UnsupportedError, match="there is no column 'idd'"):
        Indexed(spark, root, CSV, ["idd:minmax"]).build()
    table = open_source(spark, str(root), CSV)
    job = BuildJob(
        table=str(root),
        location=Location.of_table(str(root)).root,
        storage_options={},
        definitions=(parse_index("id:minmax"),),
        schema=table.schema,
        settings=BuildSettings(),
        fingerprint="another",
    )
    with pytest.raises(ValueError, match="fingerprint"):
        build_source(spark, job, table, open_storage(str(root)).list_files(str(root)))


# -- who reads otherwise ---------------------------------------------------------------------------


def test_indexed_as_int_and_asked_as_string_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As strings '10' < '2'; as numbers 10 > 2. The original lost both rows."""
    root = tmp_path / "t"
    write_csv(root, {"a.csv": ["10,a,0", "11,b,0"], "b.csv": ["3,c,0"]})
    made = Indexed(spark, root, CSV, ["id:minmax", "id:bloom"]).build()
    assert made.read("id < 3") == set()
    text = FileSource(format="csv", options=CSV.options, schema="id string, name string, x double")
    assert made.read("id < '2'", text) == {"a.csv", "b.csv"}
    assert made.plain(text).where("id < '2'").count() == 2


@pytest.mark.parametrize(
    "source",
    [
        FileSource(format="csv", options={"header": "false"}, schema=CSV.schema),
        FileSource(format="csv", options={"header": "true", "sep": ";"}, schema=CSV.schema),
        FileSource(format="csv", options={"header": "true", "nullValue": "low"}, schema=CSV.schema),
        FileSource(
            format="csv", options={"header": "true"}, schema="name string, id int, x double"
        ),
        FileSource(format="json", schema=CSV.schema),
    ],
)
def test_other_options_find_no_facts(shared: Indexed, source: FileSource) -> None:
    everything = {"low.csv", "a high.csv", "é=%.csv", "none.csv"}
    assert shared.read("id > 5", source) == everything
    text = str(last_scan(shared.spark))
    assert "indexed under other reader options or another schema" in text


@pytest.mark.parametrize(
    "options",
    [
        {"HEADER": "true"},
        {"header": "true", "mode": "FAILFAST"},
        {"header": "true", "mode": "DROPMALFORMED"},
        {"header": "true", "columnNameOfCorruptRecord": "oops"},
        {"header": "true", "recursiveFileLookup": "true"},
        {"header": "true", "inferSchema": "true"},  # what is inferred here is what was given
    ],
)
def test_options_that_change_no_whole_record_find_the_facts(
    shared: Indexed, options: dict[str, str]
) -> None:
    inferred = "inferSchema" in options
    source = FileSource(format="csv", options=options, schema=None if inferred else CSV.schema)
    assert shared.read("id = 5", source) == {"low.csv"}


def test_an_inferred_schema_is_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_csv(root, {"a.csv": ["1,a,0.5"], "b.csv": ["2,b,1.5"]})
    source = FileSource(format="csv", options={"header": "true", "inferSchema": "true"})
    made = Indexed(spark, root, source, ["id:minmax", "x:minmax"]).build()
    assert made.read("id = 2") == {"b.csv"}
    write_csv(root, {"c.csv": ["x3,c,2.5"]})
    assert made.read("id = '2'") == {"a.csv", "b.csv", "c.csv"}, "id is a string from now on"


def test_a_catalog_table_finds_the_facts_of_its_files(shared: Indexed) -> None:
    location = str(shared.root)
    shared.spark.sql("DROP TABLE IF EXISTS sources_csv")
    shared.spark.sql(
        "CREATE TABLE sources_csv (id INT, name STRING COMMENT 'of it', x DOUBLE) USING csv "
        f"OPTIONS (header 'true') LOCATION '{location}'"
    )
    frame = shared.spark.table("sources_csv").where("id = 5")
    assert rows(frame) == rows(skip(frame, finder()))
    assert only_scan(shared.spark).files_kept == 1
    shared.spark.sql("DROP TABLE sources_csv")


INSTANTS = "id int, t timestamp"


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_in_another_zone_is_another_instant(
    spark: SparkSession, tmp_path: Path, conf: Callable[[str, str], None], format: str
) -> None:
    """Indexed in UTC. In Tokyo the same text is nine hours earlier."""
    root = tmp_path / "t"
    root.mkdir()
    for hour in (1, 12):
        text = f"2024-01-01 {hour:02}:00:00"
        line = f"{hour},{text}\n" if format == "csv" else f'{{"id":{hour},"t":"{text}"}}\n'
        (root / f"{hour}.txt").write_text(line)
    conf("spark.sql.session.timeZone", "UTC")
    made = Indexed(spark, root, FileSource(format=format, schema=INSTANTS), ["t:minmax"]).build()
    instant = "t = timestamp_seconds({})"
    noon = 1704110400
    assert made.read(instant.format(noon)) == {"12.txt"}
    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    assert made.read(instant.format(noon - 9 * 3600)) == {"1.txt", "12.txt"}
    zoned = FileSource(format=format, schema=INSTANTS, options={"timeZone": "Asia/Tokyo"})
    made = Indexed(spark, root, zoned, ["t:minmax"]).build()
    assert made.read(instant.format(noon - 9 * 3600)) == {"12.txt"}
    conf("spark.sql.session.timeZone", "UTC")
    assert made.read(instant.format(noon - 9 * 3600)) == {"12.txt"}


def test_a_zone_that_changes_after_skip_is_heard(
    spark: SparkSession, tmp_path: Path, conf: Callable[[str, str], None]
) -> None:
    """Spark reads in the zone that holds when the query runs, and not when it was written."""
    root = tmp_path / "t"
    write_csv(
        root, {"1.csv": ["1,2024-01-01 01:00:00"], "12.csv": ["2,2024-01-01 12:00:00"]}, "a,t"
    )
    source = FileSource(format="csv", options={"header": "true"}, schema="a int, t timestamp")
    conf("spark.sql.session.timeZone", "UTC")
    made = Indexed(spark, root, source, ["t:minmax"]).build()
    frame = skip(made.plain(), finder()).where("t = timestamp_seconds(1704078000)")
    assert frame.count() == 0
    conf("spark.sql.session.timeZone", "Asia/Tokyo")
    again = skip(made.plain(), finder()).where("a > 0")
    conf("spark.sql.session.timeZone", "UTC")
    late = again.where("t = timestamp_seconds(1704110400)")
    assert rows(late.select("a")) == ["Row(a=2)"]
    assert "were changed after skip(df)" in str(last_scan(spark))


def test_settings_that_change_during_a_build_end_it(
    table: Indexed, conf: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from skipstone.spark import jobs
    from skipstone.spark import text_sources as sources

    listed = jobs.waves

    def change(*args: Any) -> Any:
        conf("spark.sql.legacy.timeParserPolicy", "LEGACY")
        return listed(*args)

    monkeypatch.setattr(sources, "waves", change)
    with pytest.raises(SkipstoneError, match="changed during the build"):
        table.build()


# -- keeping at it ---------------------------------------------------------------------------------


def test_waves_publish_as_they_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files per wave: the job of the third is cut off, and four files keep their facts."""
    from skipstone.spark import jobs
    from skipstone.spark import text_sources as sources

    root = tmp_path / "t"
    write_csv(root, {f"{i}.csv": [f"{i},n{i},0"] for i in range(6)})
    monkeypatch.setattr(jobs, "FILES_PER_WAVE", 2)
    run, calls = sources._Build.run, []

    def stop(*args: Any) -> list[Outcome]:
        calls.append([Path(each.path).name for each in args[1]])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(*args)

    monkeypatch.setattr(sources._Build, "run", stop)
    made = Indexed(spark, root, CSV, ["id:minmax"])
    with pytest.raises(KeyboardInterrupt):
        made.build()
    assert calls == [["0.csv", "1.csv"], ["2.csv", "3.csv"], ["4.csv", "5.csv"]]
    assert made.read("id = 99") == {"4.csv", "5.csv"}
    store = Store.of_table(str(root))
    assert len(store.snapshot().identities) == 4


def test_progress_counts_files(table: Indexed) -> None:
    seen: list[tuple[int, int]] = []
    root = str(table.root)
    opened = open_source(table.spark, root, CSV)
    job = BuildJob(
        table=root,
        location=Location.of_table(root).root,
        storage_options={},
        definitions=(parse_index("id:minmax"),),
        schema=opened.schema,
        settings=BuildSettings(settle=0),
        fingerprint=opened.fingerprint,
    )
    listing = open_storage(root).list_files(root)
    build_source(table.spark, job, opened, listing, lambda done, total: seen.append((done, total)))
    assert {total for _, total in seen} == {4}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (4, 4)
