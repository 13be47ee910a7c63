"""Who reads CSV, JSON and ORC otherwise than the index was built; and long builds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob, Outcome
from skipstone.errors import SkipstoneError
from skipstone.facts import Location, Store
from skipstone.indexes.registry import parse_index
from skipstone.spark.facts import finder
from skipstone.spark.last_query import last_scan
from skipstone.spark.skip import skip
from skipstone.spark.text_sources import FileSource, build_source, open_source
from skipstone.storage import open_storage
from tests.spark.sources.layout import CSV, Indexed, only_scan, rows, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark


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
