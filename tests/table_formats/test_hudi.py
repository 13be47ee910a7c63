"""Tables of Apache Hudi as Spark wrote them (``hudi_spark``): rows of every instant, and refusals.

``golden/hudi.tar.xz`` has them, and their rows by instant as Spark reads them.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.table_formats.hudi import HudiSource
from tests.s3 import S3, s3, s3_server
from tests.table_formats.delta_tables import names_below
from tests.table_formats.make_golden import GOLDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3", "s3_server"]

COLUMNS = ["_hoodie_commit_time", "_hoodie_record_key", "id", "d", "at", "money", "x", "s", "k"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "hudi.tar.xz") as stored:
        stored.extractall(tmp_path, filter="data")
    return tmp_path


def wanted(lake: Path, name: str) -> dict[str, list[str]]:
    """The rows by instant, the oldest first."""
    found: dict[str, list[str]] = json.loads((lake / "rows.json").read_text())[name]
    return {instant: found[instant] for instant in sorted(found)}


def text(table: Any) -> list[str]:
    """The rows as ``rows.json`` has them."""
    found = []
    for row in table.select(COLUMNS).to_pylist():
        inner = row.pop("s") or {"n": None, "t": None}
        kind = row.pop("k")
        row["at"] = row["at"].replace(tzinfo=None)
        found.append(repr([*row.values(), inner["n"], inner["t"], kind]))
    return sorted(found)


@pytest.mark.parametrize("name", ["whole", "parted"])
def test_every_instant_has_the_rows_of_hudi(lake: Path, name: str) -> None:
    """Inserts, updates, deletes, clustering and overwrites, with and without an index."""
    path, stored = str(lake / name), wanted(lake, name)
    for indexed in (False, True):
        if indexed:
            skipstone.Table(path).build(
                indexes=["id:bloom", "k:valuelist", "_hoodie_record_key:bloom"]
            )
        for instant, rows in stored.items():
            table = skipstone.Table(path, version=instant)
            assert text(table.query()) == rows
            assert table.count() == len(rows)
            for where, part in (
                ("k = 'k 1'", ", 'k 1']"),
                ("x = 'NaN'", ", nan, "),
                ("id = 3", ", '3', "),
            ):
                found = [row for row in rows if part in row]
                assert text(table.query(where)) == found, where
                assert table.count(where) == len(found)
        assert text(skipstone.Table(path).query()) == stored[max(stored)]


def test_an_instant_and_a_time(lake: Path) -> None:
    path, stored = str(lake / "whole"), wanted(lake, "whole")
    instants = list(stored)
    second = dt.datetime.strptime(instants[1] + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=dt.UTC)
    for timestamp in (second, (second + dt.timedelta(milliseconds=1)).isoformat()):
        table = skipstone.Table(path, timestamp=timestamp)
        assert text(table.query()) == stored[instants[1]]
    assert f"Apache Hudi, version {instants[1]}, of {second:%Y-%m-%d %H:%M:%S}" in str(
        table.describe()
    )
    for wrong in ({"version": "2020"}, {"version": 7}, {"timestamp": "2020-01-01"}):
        with pytest.raises(SkipstoneError, match="has no completed instant"):
            skipstone.Table(path, **wrong).count()
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.Table(path, version=instants[1]).compact()
    fresh = skipstone.Table(path, version=instants[1])
    assert pickle.loads(pickle.dumps(fresh)).count() == len(stored[instants[1]])
    assert pickle.loads(pickle.dumps(table.plan("id = 3"))).files_kept > 0


def test_the_index_follows_commits(lake: Path) -> None:
    """Before and after the last two commits of the table. Nothing is written into it."""
    root = lake / "parted"
    stored = wanted(lake, "parted")
    *before, _, _ = stored
    held = lake / "held"
    held.mkdir()
    timeline = root / ".hoodie" / "timeline"
    for path in list(timeline.iterdir()):
        if path.name[:17] > before[-1]:
            path.rename(held / path.name)
    names = names_below(root)
    table = skipstone.Table(str(root))
    table.build(indexes=["id:bloom"])
    assert text(table.query()) == stored[before[-1]]
    assert names_below(root) == names
    for path in list(held.iterdir()):
        path.rename(timeline / path.name)
    assert text(table.query()) == stored[max(stored)]
    plan = table.plan("id = 3")
    assert plan.facts_missing == len(table.listing()) > 0
    assert table.refresh().files_built == plan.facts_missing
    table.compact()
    assert table.plan("id = 3").facts_missing == 0
    assert "index" in str(table.explain("id = 3"))


@pytest.mark.parametrize("pinned", [False, True])
def test_a_commit_and_a_cleaner_before_the_files_are_listed(
    lake: Path, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    """The timeline is that of an instant, and its files are gone when they are listed."""
    root, stored = lake / "whole", wanted(lake, "whole")
    *before, _, newest = stored
    held, timeline = lake / "held", root / ".hoodie" / "timeline"
    held.mkdir()
    for later in list(timeline.iterdir()):
        if later.name[:17] > before[-1]:
            later.rename(held / later.name)
    path, version = str(root), before[-1] if pinned else None
    assert text(skipstone.Table(path, version=version).query()) == stored[before[-1]]

    def finish() -> None:
        for later in list(held.iterdir()):
            later.rename(timeline / later.name)
        kept = {Path(each).name for each in skipstone.Table(str(root)).listing().paths}
        for file in root.glob("*.parquet"):
            if file.name not in kept:
                file.unlink()

    check = HudiSource._check

    def late(self: HudiSource, *given: Any) -> None:
        check(self, *given)
        monkeypatch.setattr(HudiSource, "_check", check)
        finish()

    monkeypatch.setattr(HudiSource, "_check", late)
    table = skipstone.Table(path, version=version)
    if pinned:
        with pytest.raises(SkipstoneError, match=rf"files of instant {version} are gone"):
            table.query()
    else:
        assert text(table.query()) == stored[newest]


def test_a_commit_that_is_being_written(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is empty; after a wait it is whole, or the error of the library remains."""
    root, stored = lake / "whole", wanted(lake, "whole")
    newest = max((root / ".hoodie" / "timeline").glob("*_*.*commit"))
    whole = newest.read_bytes()
    newest.write_bytes(b"")
    with pytest.raises(SkipstoneError, match="does not read the table"):
        skipstone.Table(str(root)).query()
    # Of this module alone: other threads sleep, too.
    clock = SimpleNamespace(sleep=lambda _: newest.write_bytes(whole))
    monkeypatch.setattr("skipstone.table_formats.hudi.time", clock)
    assert text(skipstone.Table(str(root)).query()) == stored[max(stored)]


@pytest.mark.parametrize("lost", ["folder", "instants"])
def test_a_timeline_that_is_lost(lake: Path, lost: str) -> None:
    """The library finds no instant, and so no rows. Before the first commit that is right."""
    timeline = lake / "whole" / ".hoodie" / "timeline"
    for path in timeline.glob("*_*commit"):
        path.unlink()
    assert skipstone.Table(str(lake / "whole")).count() == 0  # others are pending
    if lost == "folder":
        shutil.rmtree(timeline)
    else:
        for path in timeline.glob("*.*"):
            path.unlink()
    with pytest.raises(SkipstoneError, match=r"its timeline in \.hoodie has no instant"):
        skipstone.Table(str(lake / "whole")).query()
    for path in (lake / "whole").glob("*.parquet"):
        path.unlink()
    assert skipstone.Table(str(lake / "whole")).query().num_rows == 0


def test_columns_of_hudi_are_columns(lake: Path) -> None:
    table = skipstone.Table(str(lake / "whole"))
    own = ["commit_time", "commit_seqno", "record_key", "partition_path", "file_name"]
    assert table.query().column_names[:5] == [f"_hoodie_{each}" for each in own]
    assert table.query("id = 63", columns=["id"]).column_names == ["id"]
    table.build(indexes=["_hoodie_record_key:bloom"])
    names = set(table.query(columns=["_hoodie_file_name"])["_hoodie_file_name"].to_pylist())
    assert names == {Path(path).name for path in table.listing().paths}
    assert table.count("_hoodie_record_key = 'none'") == 0


def test_log_files_are_refused(lake: Path) -> None:
    stored = wanted(lake, "logs")
    with pytest.raises(UnsupportedError, match="file groups have log files") as caught:
        skipstone.Table(str(lake / "logs")).count()
    assert "run_compaction" in str(caught.value.hint)
    first = next(iter(stored))
    assert text(skipstone.Table(str(lake / "logs"), version=first).query()) == stored[first]


def test_an_instant_whose_files_were_cleaned(lake: Path) -> None:
    """The library leaves out the rows of files that a cleaner removed: here that is an error."""
    path, stored = lake / "cleaned", wanted(lake, "cleaned")
    timeline = (path / ".hoodie" / "timeline").glob("*_*.commit")
    first, second, third, newest = sorted(each.name.partition("_")[0] for each in timeline)
    assert text(skipstone.Table(path).query()) == stored[newest]
    assert skipstone.Table(path, version=third).count() == len(stored[newest]) + 1
    for instant in (first, second):
        with pytest.raises(SkipstoneError, match=rf"files of instant {instant} are gone"):
            skipstone.Table(path, version=instant).query()


def test_a_file_that_is_gone_or_another(lake: Path) -> None:
    table = skipstone.Table(str(lake / "whole"))
    scan = table.scan("id > 0", inside=False)
    file = Path(scan.plan.paths[0])
    data = pq.read_table(file)
    file.unlink()
    with pytest.raises((SkipstoneError, FileNotFoundError)):
        scan.to_arrow()
    with pytest.raises(SkipstoneError, match="are gone"):
        table.query()
    pq.write_table(data.slice(1), file)
    with pytest.raises(SkipstoneError, match="never change"):
        table.query()


def test_a_column_that_got_another_type(lake: Path) -> None:
    """Whole numbers that are wider now are read. Hudi's reader makes the double 0.1 of the float
    0.1, and '1.0' of 1.0: files with such columns are refused before anything is planned."""
    path, stored = str(lake / "whole"), wanted(lake, "whole")
    table = skipstone.Table(path)
    file = Path(table.listing().paths[0])
    data = pq.read_table(file)

    def with_type(name: str, type: pa.DataType) -> skipstone.Table:
        values = data[name].combine_chunks()
        other = values.cast(type) if name != "s" else pc.struct_field(values, "n").cast(type)
        if name == "s":
            other = pa.StructArray.from_arrays([other, values.field("t")], ["n", "t"])
        at = data.schema.get_field_index(name)
        pq.write_table(data.set_column(at, name, other), file)
        return skipstone.Table(path)

    narrow = with_type("id", pa.int32())
    narrow.build(indexes=["id:bloom", "x:minmax"])
    assert text(narrow.query()) == stored[max(stored)]
    for name, type in (("x", pa.float32()), ("s", pa.int32()), ("k", pa.float64())):
        if name == "k":
            data = data.set_column(data.schema.get_field_index("k"), "k", data["id"])
        changed = with_type(name, type)
        for where in (None, "x = 7.25"):
            with pytest.raises(UnsupportedError, match=f"'{name}' is .* in the table") as error:
                changed.query(where)
            assert "run_clustering" in str(error.value.hint)


@pytest.mark.parametrize(
    "key, value, why",
    [
        ("hoodie.table.base.file.format", "ORC", "'ORC' is not supported"),
        ("hoodie.bootstrap.base.path", "/other", "bootstrap"),
        ("hoodie.datasource.write.drop.partition.columns", "true", "is disabled"),
    ],
)
def test_what_is_not_applied_is_refused(lake: Path, key: str, value: str, why: str) -> None:
    properties = lake / "parted" / ".hoodie" / "hoodie.properties"
    kept = [each for each in properties.read_text().splitlines() if not each.startswith(key)]
    properties.write_text("\n".join([*kept, f"{key}={value}"]) + "\n")
    with pytest.raises(SkipstoneError, match=why):
        skipstone.Table(str(lake / "parted")).query()


def test_in_an_object_store(s3: S3, lake: Path) -> None:
    """The timeline through the library, the files and the index through our own storage."""
    stored = wanted(lake, "parted")
    s3.upload(lake / "parted", "lake/parted")
    path = f"{s3.base}/lake/parted"
    table = skipstone.Table(path, storage_options=s3.options)
    table.build(indexes=["id:bloom"])
    for instant, rows in [*stored.items()][-2:]:
        before = skipstone.Table(path, version=instant, storage_options=s3.options)
        assert text(before.query()) == rows
    first, *_ = stored[max(stored)]
    key = first.split(", ")[1]
    assert text(table.query(f"_hoodie_record_key = {key} AND id = {key}")) == [first]


@pytest.mark.spark
def test_spark_reads_it_without_a_jar(spark: SparkSession, lake: Path) -> None:
    path, stored = str(lake / "whole"), wanted(lake, "whole")
    instant = list(stored)[4]
    read = spark.read.format("skipstone")
    assert read.load(path).count() == len(stored[max(stored)])
    assert read.option("version", instant).load(path).count() == len(stored[instant])
    table = skipstone.Table(path)
    assert table.read(spark, "k = 'k 1'").count() == table.count("k = 'k 1'") > 0
