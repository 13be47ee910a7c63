"""A job's tasks are tried more than once, may not write, write elsewhere, or lack a package."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import SkipstoneError, Table
from skipstone.build.column_indexes import BuildSettings
from skipstone.build.job import BuildJob
from skipstone.indexes.bloom import Bloom
from skipstone.paimon.kinds import Bitmap
from skipstone.spark.jobs import worker_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

FILES = 5


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five files of one value each."""
    (tmp_path / "t").mkdir()
    for number in range(FILES):
        path = tmp_path / "t" / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return Table(str(tmp_path / "t"))


@pytest.fixture
def job(table: Table) -> Callable[..., BuildJob]:
    def made(location: str = table.location.root) -> BuildJob:
        return BuildJob(
            table=table.path,
            location=location,
            storage_options={},
            definitions=(Bloom("id", fpp=0.01), Bitmap("id")),
            schema=pa.schema([("id", pa.int64())]),
            settings=BuildSettings(),
        )

    return made


def facts_of(table: Table) -> list[int]:
    """The rows of each part."""
    return [part.rows for part in table.store.snapshot().parts]


def test_two_attempts_of_one_task_publish_once(table: Table, job: Callable[..., BuildJob]) -> None:
    """Both come to their end; Spark hands over the outcomes of the second."""
    listing = table.listing()
    files = [listing.object_id(at) for at in range(FILES)]
    earlier, now = job(), job()
    list(earlier.run(files[:2]))
    before = now.store().part_names()
    list(now.run(files))
    outcomes = list(now.in_task(now.run(files)))
    assert sorted(facts_of(table)) == [2, FILES, FILES]
    now.finish(outcomes, before)
    assert sorted(facts_of(table)) == [2, FILES], "another job's part stays"
    assert [each.parts for each in outcomes[1:]] == [()] * (FILES - 1)
    assert table.plan("id = 3").files_kept == 1
    assert table.query("id = 3").num_rows == 1
    now.finish(outcomes, before)
    assert sorted(facts_of(table)) == [2, FILES]


def test_a_part_of_an_attempt_that_comes_later_is_merged(
    table: Table, job: Callable[..., BuildJob]
) -> None:
    listing = table.listing()
    files = [listing.object_id(at) for at in range(FILES)]
    now = job()
    outcomes = list(now.run(files))
    now.finish(outcomes, ())
    list(now.run(files))
    assert table.describe().fresh == FILES
    assert table.count("id >= 0") == FILES
    table.compact()
    assert facts_of(table) == [FILES]


def test_a_task_that_may_not_write(table: Table, job: Callable[..., BuildJob]) -> None:
    """Nobody may make a directory in ``/sys``."""
    now = job("/sys/skipstone-index")
    outcomes = list(now.in_task(now.run([table.listing().object_id(0)])))
    with pytest.raises(SkipstoneError, match="tasks of Spark may not write the index at /sys/"):
        now.allowed(outcomes)


def test_tasks_that_write_to_a_directory_of_their_own(
    tmp_path: Path, table: Table, job: Callable[..., BuildJob]
) -> None:
    listing = table.listing()
    here = job(str(tmp_path / "here"))
    there = job(str(tmp_path / "there"))
    outcomes = list(there.run([listing.object_id(0)]))
    with pytest.raises(SkipstoneError, match="this process sees none"):
        here.finish(outcomes, ())


def test_tasks_that_do_not_see_the_data(
    table: Table, job: Callable[..., BuildJob], tmp_path: Path
) -> None:
    listing = table.listing()
    files = [listing.object_id(at) for at in range(FILES)]
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    outcomes = list(job().run(files))
    job().finish(outcomes, ())  # here too they are gone
    (tmp_path / "elsewhere").rename(tmp_path / "t")
    with pytest.raises(SkipstoneError, match="find no file of the table"):
        job().finish(outcomes, ())


KIND_OF_THE_DRIVER = """
from skipstone.indexes.minmax import MinMax
class Here(MinMax):
    pass
"""


@pytest.mark.spark
def test_workers_that_lack_a_package(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster without Skipstone: only this process can import the module."""
    (tmp_path / "kinds_of_here.py").write_text(KIND_OF_THE_DRIVER)
    monkeypatch.syspath_prepend(tmp_path)
    from kinds_of_here import Here  # type: ignore[import-not-found]

    with pytest.raises(SkipstoneError) as told:
        table.build(spark, [Here("id")])
    assert told.value.message == "the Python of Spark's workers has no kinds_of_here"
    assert "PYSPARK_PYTHON" in str(told.value.hint)
    assert "--py-files" in str(told.value.hint)


def test_a_client_of_connect_without_py4j_runs_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pyspark-client` does not bring it."""
    for name in ("py4j", "py4j.protocol"):
        monkeypatch.setitem(sys.modules, name, None)
    with worker_errors():
        found = 1
    assert found == 1
    with pytest.raises(ModuleNotFoundError, match="py4j"), worker_errors():
        importlib.import_module("py4j.protocol")
