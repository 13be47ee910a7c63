"""DataFrames into a live table: tasks encode, the driver places; a stream exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ingest
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.live import LiveTable
from tests.live.tables import DAY, HOUR, cut, keys, rows, run, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "trades é")


def frame(spark: SparkSession, data: pa.Table, home: Path) -> DataFrame:
    """The rows as Spark has them, in three files."""
    home.mkdir(parents=True, exist_ok=True)
    for part in range(3):
        chosen = data.take(list(range(part, len(data), 3)))
        pq.write_table(chosen, home / f"{part}.parquet")
    return spark.read.parquet(str(home)).repartition(4)


def test_rows_of_a_frame_keep_their_order_and_values(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    """Two frames of two days each, the second partly older than the first; then a table's rows."""
    first = run(100, start=DAY - 50_000_000)
    done: Any = ingest(frame(spark, first, tmp_path / "a"), root, timestamp="ts", row_group_rows=30)
    assert (done.rows, done.partitions) == (100, ("1970-01-01", "1970-01-02"))
    late = rows(5, DAY - 1, DAY + 7, 3 * DAY, first=100)
    ingest(frame(spark, late, tmp_path / "b"), root)
    ingest(run(10, start=4 * DAY, first=104), root)
    assert keys(root) == list(range(114))
    found = pa.concat_tables([cut(file) for file in snapshot(root).files])
    expected = pa.concat_tables([first, late, run(10, start=4 * DAY, first=104)])
    by_key = [("key", "ascending")]
    assert found["ts"].to_pylist() == sorted(found["ts"].to_pylist())
    assert repr(found.sort_by(by_key).to_pylist()) == repr(expected.sort_by(by_key).to_pylist())
    assert not (tmp_path / "trades é" / "_staging").exists() or not list(
        (tmp_path / "trades é" / "_staging").iterdir()
    )


def test_frames_in_order_are_placed_without_reading_them(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    """What the tasks encoded lies in the partition as it is: no byte of it is dead but a footer."""
    for at in range(2):
        data = run(60, start=at * HOUR, first=60 * at)
        ingest(frame(spark, data, tmp_path / str(at)), root, timestamp="ts", compact=False)
    (file,) = snapshot(root).files
    with LiveTable.open(root, write=False) as table:
        (partition,) = table.describe().partitions
    metadata = pq.read_metadata(file.path)
    assert partition.row_groups == metadata.num_row_groups
    assert cut(file)["key"].to_pylist() == list(range(120))


def test_a_stream_brings_each_batch_once(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """Files arrive one by one; the query is stopped and started; a batch is sent again by hand."""
    source, checkpoint = tmp_path / "source", str(tmp_path / "checkpoint")
    source.mkdir()

    def arrive(at: int) -> None:
        pq.write_table(run(10, start=at * HOUR, first=10 * at), source / f"{at}.parquet")

    def drain() -> None:
        schema = spark.read.parquet(str(source)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        query: Any = ingest(
            stream.parquet(str(source)),
            root,
            timestamp="ts",
            checkpoint_location=checkpoint,
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    arrive(0)
    arrive(1)
    drain()
    assert keys(root) == list(range(20))
    with LiveTable.open(root) as table:
        assert table.batch_id == 1
    again: Any = ingest(spark.read.parquet(str(source)), root, batch_id=1)
    assert not again.applied
    arrive(2)
    drain()
    drain()
    assert keys(root) == list(range(30))
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema)
    with pytest.raises(SkipstoneError, match="without a checkpoint"):
        ingest(stream.parquet(str(source)), root)
    with pytest.raises(SkipstoneError, match="is a new checkpoint"):
        ingest(stream.parquet(str(source)), root, checkpoint_location=str(tmp_path / "other"))


def test_rows_that_do_not_fit_add_nothing(spark: SparkSession, root: str) -> None:
    """A null time in one of the tasks, an object store: no commit, no row."""
    ingest(run(5), root, timestamp="ts")
    bad = spark.createDataFrame([(None, 1)], "ts timestamp, key long")
    with pytest.raises(Exception, match="city é, f, u, list missing"):
        ingest(bad, root)
    with pytest.raises(UnsupportedError, match="POSIX"):
        ingest(bad, "s3://bucket/trades", timestamp="ts")
    other = f"{root} 2"
    with pytest.raises(Exception, match="1 nulls in column 'ts'"):
        ingest(bad, other, timestamp="ts")
    assert keys(root) == [0, 1, 2, 3, 4]
    assert keys(other) == []
