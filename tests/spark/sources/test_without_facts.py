"""Records and files of CSV, JSON and ORC that get no facts: they are read, and named."""

from __future__ import annotations

import gzip
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob
from skipstone.errors import UnsupportedError
from skipstone.facts import Location, Store
from skipstone.indexes.registry import parse_index
from skipstone.spark.facts import finder
from skipstone.spark.skip import skip
from skipstone.spark.text_sources import FileSource, build_source, open_source
from skipstone.storage import open_storage
from skipstone.table import Table
from tests.spark.sources.layout import CSV, KINDS, Indexed, rows, write_csv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark


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
