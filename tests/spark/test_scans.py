"""``last_scan`` is of this thread and lists every scan of the last query.

Two tables of ten files each (ids 0 to 99, ten to a file).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skipstone.spark.last_query import last_scan
from skipstone.spark.scans import QueryScans
from skipstone.spark.session import set_to
from skipstone.spark.skip import explain, skip
from tests.spark.fake import finder
from tests.spark.layout import ten_files
from tests.spark.since import since

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("scans")
    return ten_files(root / "left"), ten_files(root / "right")


@pytest.fixture
def frames(spark: SparkSession, tables: tuple[Path, Path]) -> tuple[DataFrame, DataFrame]:
    find = finder(*tables)
    left, right = (skip(spark.read.parquet(str(path)), find) for path in tables)
    return left, right


def of_last(spark: SparkSession) -> list[tuple[str, int]]:
    """(folder, files kept) of each scan of this thread's last query."""
    scans = last_scan(spark)
    assert scans is not None
    return sorted((Path(scan.table).name, scan.files_kept) for scan in scans)


def test_every_scan_of_a_join(spark: SparkSession, frames: tuple[DataFrame, DataFrame]) -> None:
    """The broadcast side is listed by a thread of Spark's own."""
    left, right = frames
    left.where("id < 25").join(right.where("id >= 15").hint("broadcast"), "id").collect()
    assert of_last(spark) == [("left", 2), ("right", 2)]
    left.where("id = 3").collect()
    assert of_last(spark) == [("left", 1)]


def test_a_dataframe_that_runs_again_is_the_last_query(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame]
) -> None:
    """Spark lists the files once per DataFrame; the scan is that of the first run."""
    left, right = frames
    first = left.where("id < 25").join(right.where("id = 3"), "id")
    first.collect()
    before = last_scan(spark)
    assert before is not None
    right.where("id < 15").collect()
    assert of_last(spark) == [("right", 2)]
    first.collect()
    after = last_scan(spark)
    assert after is not None
    assert after.scans == before.scans
    assert after.execution != before.execution


def test_nothing_yet_in_a_new_thread(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame]
) -> None:
    frames[0].where("id = 3").collect()
    found: list[object] = ["unset"]
    thread = threading.Thread(target=lambda: found.append(last_scan(spark)))
    thread.start()
    thread.join()
    (_, inside) = found
    assert isinstance(inside, QueryScans)
    assert inside.scans == ()


def test_threads_see_their_own_queries(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame]
) -> None:
    """Four threads run joins on the same DataFrames at once, each with other files to read.

    Both sides of each join come through the same two file index objects, and the broadcast side
    through threads that Spark shares among all queries. Keys of the join skip nothing here.
    """
    left, right = frames
    together = threading.Barrier(4)
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(4):
                together.wait(timeout=120)
                low = 10 * (number + turn)
                one = left.where(f"id >= {low} AND id < {low + 10 * (number + 1)}")
                two = right.where(f"s = 's{low + 1}'")
                got = one.join(two.hint("broadcast"), "id").collect()
                seen = of_last(spark)
                if len(got) != 1 or seen != [("left", number + 1), ("right", 1)]:
                    wrong.append((number, turn, len(got), seen))
        except BaseException as error:
            wrong.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with set_to(spark, {"spark.skipstone.joins.maxKeys": "0"}):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_explain_in_one_thread_does_not_catch_the_scans_of_another(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame]
) -> None:
    left, right = frames
    together = threading.Barrier(2)
    shown: list[list[int]] = []

    def look() -> None:
        for _ in range(4):
            together.wait(timeout=120)
            shown.append([scan.files_kept for scan in explain(left.where("id < 25"))])

    thread = threading.Thread(target=look)
    thread.start()
    ran = []
    for _ in range(4):
        together.wait(timeout=120)
        right.where("id = 3").collect()
        ran.append(of_last(spark))
    thread.join()
    assert shown == [[3]] * 4
    assert ran == [[("right", 1)]] * 4


@pytest.mark.parametrize(
    "how", [pytest.param("toArrow", marks=since(4, 0, "toArrow")), "toPandas", "collect"]
)
def test_however_the_rows_are_fetched(
    spark: SparkSession, tables: tuple[Path, Path], how: str
) -> None:
    """``toArrow`` and ``toPandas`` plan on a thread of Spark's; the query is this thread's."""
    frame = skip(spark.read.parquet(str(tables[0])), finder(tables[0])).where("id = 25")
    assert len(getattr(frame, how)()) == 1
    scans = last_scan(spark)
    assert scans is not None
    assert (scans.files_kept, scans.files_total) == (1, 10)
    assert "id = 25" in str(scans.scans[-1].predicate)
