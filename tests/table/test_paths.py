"""How a table is named: directories, files, patterns, lists, homes, and awkward names.

``events`` has four files of ten rows, ``id`` 0 to 39 in order; ``days`` has one of ten rows in each
of three partition folders.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone import Table
from skipstone.errors import NoIndexError, SkipstoneError, UnsupportedError
from skipstone.storage.some_files import _regex
from tests.s3 import s3, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3 import S3

__all__ = ["s3", "s3_server"]  # fixtures


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64())})


def write(path: Path, first: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(first), path)
    os.utime(path, (1_600_000_000, 1_600_000_000))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for at in range(4):
        write(tmp_path / "events" / f"part-{at}.parquet", 10 * at)
    for day in (1, 2, 3):
        write(tmp_path / "days" / f"day={day}" / "x.parquet", 10 * day)
    return tmp_path


@pytest.mark.parametrize(
    "name, count",
    [
        ("events", 40),
        ("events/", 40),
        ("events/part-1.parquet", 10),
        ("events/*.parquet", 40),
        ("events/part-[12].parquet", 20),
        ("events/part-[!12].parquet", 20),
        ("events/part-?.parquet", 40),
        ("events/part-{0,3}.parquet", 20),
        ("**/part-0.parquet", 10),
        ("*/part-0.parquet", 10),
        ("days/day=*/*.parquet", 30),
        ("days/day=[12]", 20),
    ],
)
def test_a_name_is_a_directory_a_file_or_a_pattern(lake: Path, name: str, count: int) -> None:
    for given_ in (f"{lake}/{name}", lake / name):
        table = Table(given_)
        assert table.count() == count
        assert table.query("id >= 10").num_rows == table.count("id >= 10")
        assert "files" in table.explain("id = 11").headline


def test_a_list_of_files_and_folders(lake: Path) -> None:
    events, days = lake / "events", lake / "days"
    assert Table([events / "part-0.parquet", str(events / "part-3.parquet")]).count() == 20
    assert Table([events / "part-0.parquet"]).count() == 10
    assert Table([events / "part-0.parquet", events / "*.parquet"]).count() == 40
    some = Table([days / "day=1", days / "day=3"])
    assert some.query(columns=["day"], order_by="day", limit=11).column("day").to_pylist() == (
        [1] * 10 + [3]
    )


def test_a_pattern_reads_by_the_index_of_its_table(lake: Path) -> None:
    Table(lake / "events").build(indexes=["id:minmax"])
    plan = Table(lake / "events" / "part-[123].parquet").explain("id = 11").plan
    assert (plan.files_kept, plan.files_total, plan.facts_fresh) == (1, 3, 3)
    done = Table(lake / "days" / "day=1" / "*.parquet").build(indexes=["id:minmax"])
    assert done.files_built == 1
    assert Table(lake / "days").describe().fresh == 1


@pytest.mark.parametrize("verb", ["check", "drop", "compact", "vacuum"])
def test_verbs_over_the_whole_index_name_the_directory(lake: Path, verb: str) -> None:
    Table(lake / "events").build(indexes=["id:minmax"])
    with pytest.raises(UnsupportedError, match=rf"name the directory: {lake}/events"):
        getattr(Table(lake / "events" / "*.parquet"), verb)()


@pytest.mark.parametrize("name", ["a b", "q[1]", "st*r", "wh?t", "{a,b}", "é ü", "100%25", "~"])
def test_a_directory_of_an_awkward_name_is_that_directory(tmp_path: Path, name: str) -> None:
    write(tmp_path / name / "x.parquet", 0)
    write(tmp_path / "other" / "x.parquet", 90)
    table = Table(tmp_path / name)
    table.build(indexes=["id:minmax"])
    assert table.count("id = 5") == 1
    assert table.explain("id = 95").plan.files_kept == 0
    assert Table(f"{tmp_path}/{name}/*.parquet").count() == 10


@pytest.mark.spark
@pytest.mark.parametrize("name", ["q[1]", "st*r", "a b"])
def test_spark_reads_it_too(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for at in range(3):
        write(tmp_path / name / f"{at}.parquet", 10 * at)
    table = Table(tmp_path / name)
    table.build(indexes=["id:minmax"])
    for where, count in ((None, 30), ("id < 12", 12), ("id = 11", 1)):
        assert table.read(spark, where).count() == count
    assert Table(tmp_path / name / "[02].parquet").read(spark, "id < 25").count() == 15
    assert (
        skipstone.read(
            spark, [tmp_path / name / "1.parquet", tmp_path / name / "2.parquet"]
        ).count()
        == 20
    )


@pytest.mark.spark
def test_spark_has_the_columns_of_folders(spark: SparkSession, lake: Path) -> None:
    found = skipstone.read(spark, lake / "days" / "day=[13]" / "*.parquet").select("id", "day")
    assert sorted(found.collect())[::10] == [(10, 1), (30, 3)]


def test_home(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(lake))
    assert Table("~/events").count() == 40
    assert Table("~/events/part-[01].parquet").count() == 20
    Table("~/events", index_location="~/idx").build(indexes=["id:minmax"])
    assert (lake / "idx" / "facts").is_dir()


def test_places_of_indexes_are_paths_too(lake: Path) -> None:
    Table(lake / "events", index_location=lake / "idx").build(indexes=["id:minmax"])
    table = Table(lake / "events", index_location=lake / "idx")
    assert table.explain("id = 11").plan.files_kept == 1
    assert skipstone.explain(lake / "events", "id = 11").plan.files_total == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.explain("id = 1"),
        lambda table: table.query("id = 1"),
        lambda table: table.count("id = 1"),
        lambda table: table.describe(),
        lambda table: table.check(),
        lambda table: table.refresh(),
        lambda table: table.drop(),
        lambda table: table.compact(),
        lambda table: table.vacuum(),
        lambda table: table.export(),
    ],
)
def test_a_place_without_an_index_is_an_error(lake: Path, call: Callable[[Table], Any]) -> None:
    table = Table(lake / "events", index_location=lake / "mistyped")
    with pytest.raises(NoIndexError, match=r"there is no index at .*/mistyped"):
        call(table)
    table.build(indexes=["id:minmax"])
    assert table.describe().fresh == 4


@pytest.mark.parametrize(
    "name, said",
    [
        ("events/nope-*.parquet", "no data file matches .*nope.*4 data files below"),
        ("nope/*.parquet", "no such file or directory: .*/nope"),
        (["events/part-0.parquet", "events/part-9.parquet"], "no such file .*part-9"),
        ([], "no files were named"),
    ],
)
def test_a_name_without_a_file(lake: Path, name: str | list[str], said: str) -> None:
    paths: Any = f"{lake}/{name}" if isinstance(name, str) else [f"{lake}/{each}" for each in name]
    with pytest.raises(SkipstoneError, match=said):
        Table(paths).count()


@pytest.mark.parametrize("name", [7, [7], None])
def test_what_is_no_path(name: Any) -> None:
    with pytest.raises(TypeError, match="a table is"):
        Table(name)


def test_in_an_object_store(s3: S3) -> None:
    for at in range(4):
        sink = io.BytesIO()
        pq.write_table(rows(10 * at), sink)
        s3.fill(f"t/part-{at}.parquet", data=sink.getvalue())
        s3.fill(f"q[1]/part-{at}.parquet", data=sink.getvalue())

    def count(*names: str) -> int:
        paths = [f"{s3.base}/{name}" for name in names]
        return int(Table(paths if len(paths) > 1 else paths[0], storage_options=s3.options).count())

    assert count("t/part-[12].parquet") == 20
    assert count("t/part-0.parquet", "t/part-3.parquet") == 20
    assert count("t/part-3.parquet") == 10
    assert count("q[1]") == 40
    with pytest.raises(SkipstoneError, match=r"no data file matches s3://.*nope"):
        count("t/nope*")


@given(
    name=st.text("ab.-[]", min_size=1, max_size=6),
    pattern=st.text("ab.-*?[]!", min_size=1, max_size=6),
)
def test_patterns_are_those_of_the_shell(name: str, pattern: str) -> None:
    """Within one name; a bracket that is not closed is one."""
    expected = fnmatch.fnmatchcase(name, pattern)
    assert (re.fullmatch(_regex(pattern), name, re.DOTALL) is not None) == expected
