"""``ingest``: appends rows of any kind to a live table, and makes the table if there is none. For a
DataFrame, tasks encode row groups, and the driver places their bytes:

    df -> by ranges of the timestamp -> mapInArrow: sort, encode, write a file into _staging
       -> (path, partition, rows, times) to the driver -> one commit

No row passes through the driver, unless it is older than the last row of its partition: such rows
are read from the staged files and merged there. A task that runs again writes files of other names,
and only files that the job reports count. The staging area lies in the table, on a file system that
driver and executors share.

Each micro-batch of a stream is one commit with the batch's id: a batch that Structured Streaming
repeats adds no row twice.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path
from skipstone.live import Commit, LiveTable
from skipstone.live.definition import MARKER, LiveDefinition, SortBy
from skipstone.live.rows import STAGING, Staged, stage
from skipstone.spark.versions import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


#: rows of a stream of batches per commit
ROWS_PER_COMMIT: Final = 1_000_000


def ingest(
    df: DataFrame | pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    root: str,
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    sort_by: SortBy | str | None = None,
    batch_id: int | None = None,
    compact: bool = True,
    checkpoint_location: str | None = None,
    trigger: dict[str, object] | None = None,
    row_group_rows: int | None = None,
    compression: str | None = None,
    bloom_filters: Sequence[str] | None = None,
    durable: bool | None = None,
) -> Commit | StreamingQuery:
    """Append ``df`` to the live table at ``root``; the first call makes the table.

    >>> skipstone.ingest(rows, "lake/trades", timestamp="ts")

    ``df`` is a Spark DataFrame, a pyarrow Table or RecordBatch, or a stream of batches (a
    RecordBatchReader, any iterable). ``timestamp`` names the designated timestamp, ``partition_by``
    is "hour", "day" (the default), "month", "year" or "none", ``sort_by`` the order of rows (the
    timestamp); ``row_group_rows``, ``compression``, ``bloom_filters`` and ``durable`` are those of
    ``LiveTable.create``. For an existing table they may be left out; those that are given must
    equal its own. A DataFrame, a table and anything with a ``batch_id`` is one commit; a stream of
    batches is one commit per million rows. With ``compact``, partitions that are mostly dead bytes
    are rewritten afterwards.

    Rows of a ``batch_id`` that is committed are not added again, so a streaming query adds each row
    exactly once::

        df.writeStream.foreachBatch(
            lambda rows, id: skipstone.ingest(rows, root, timestamp="ts", batch_id=id)
        )

    A streaming DataFrame starts such a query, with ``checkpoint_location`` and ``trigger`` (the
    arguments of ``DataStreamWriter.trigger``), and the result is the query.

    Raises ``SkipstoneError`` for rows that do not fit and while another writer is active, and
    ``UnsupportedError`` for an object store or a table of QuestDB.
    """
    given = {
        "timestamp": timestamp,
        "partition_by": partition_by,
        "sort_by": sort_by,
        "row_group_rows": row_group_rows,
        "compression": compression,
        "bloom_filters": bloom_filters,
        "durable": durable,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    if any(base.__module__.startswith("pyspark.sql") for base in type(df).__mro__):
        how = (checkpoint_location, trigger or {})
        return _from_spark(df, root, settings, batch_id, compact, *how)
    if (checkpoint_location, trigger) != (None, None):
        text = "checkpoint_location and trigger are for streaming DataFrames"
        raise SkipstoneError(text, hint="pass df.readStream… of Spark, or leave them out")
    return _from_arrow(df, root, settings, batch_id, compact=compact)


def _opened(root: str, schema: pa.Schema, settings: dict[str, Any]) -> LiveTable:
    """The table for writing: a new one, or the existing one if ``settings`` match it."""
    if not Path(canonical_path(root), MARKER).exists():
        if "timestamp" not in settings:
            raise SkipstoneError(
                f"a new live table at {root} needs a timestamp",
                hint='name the column of the partitions: timestamp="ts", --timestamp ts',
            )
        return LiveTable.create(root, schema, **settings)
    durable = settings.get("durable", True)
    table = LiveTable.open(root, durable=durable)
    try:
        own = table.definition
        wanted = {"timestamp": own.timestamp} | {
            name: value for name, value in settings.items() if name != "durable"
        }
        requested = LiveDefinition.of(own.schema, **wanted)
        for name in settings.keys() - {"durable"}:
            if getattr(requested, name) != getattr(own, name):
                raise SkipstoneError(
                    f"{root} has {name}={getattr(own, name)!r}, not {getattr(requested, name)!r}",
                    hint="leave it out, or ingest into another table",
                )
    except BaseException:
        table.close()
        raise
    return table


@contextmanager
def _held(root: str, schema: pa.Schema, settings: dict[str, Any]) -> Iterator[LiveTable]:
    """As ``_opened``, but removes a new table if its first rows are refused."""
    made = not Path(canonical_path(root), MARKER).exists()
    with _opened(root, schema, settings) as table:
        try:
            yield table
        except BaseException:
            if made:
                table.remove_if_uncommitted()
            raise


def _finished(table: LiveTable, commits: list[Commit], *, compact: bool) -> Commit:
    """Compacts if asked to, and returns all commits as one."""
    if compact and any(each.applied for each in commits):
        table.compact()
    last = commits[-1]
    return replace(
        last,
        txn=table.txn.txn,
        rows=sum(each.rows for each in commits),
        row_groups=sum(each.row_groups for each in commits),
        bytes_written=sum(each.bytes_written for each in commits),
        partitions=tuple(sorted({name for each in commits for name in each.partitions})),
        applied=any(each.applied for each in commits),
    )


def _from_arrow(
    rows: Any, root: str, settings: dict[str, Any], batch_id: int | None, *, compact: bool
) -> Commit:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        with _held(root, rows.schema, settings) as table:
            return _finished(table, [table.append(rows, batch_id=batch_id)], compact=compact)
    if not isinstance(rows, Iterable):
        raise SkipstoneError(
            f"rows of type {type(rows).__name__}",
            hint="a Spark DataFrame, a pyarrow Table or RecordBatch, or an iterable of those",
        )
    batches = iter(rows)
    first = next(batches, None)
    if first is None:
        raise SkipstoneError(
            "a stream without any batch has no schema", hint="pass a RecordBatchReader's batches"
        )
    with _held(root, first.schema, settings) as table:
        commits, held, count = list[Any](), [_table(first)], len(first)
        for batch in batches:
            held.append(_table(batch))
            count += len(batch)
            if batch_id is None and count >= ROWS_PER_COMMIT:
                commits.append(table.append(pa.concat_tables(held)))
                held, count = [], 0
        if held:
            commits.append(table.append(pa.concat_tables(held), batch_id=batch_id))
        return _finished(table, commits, compact=compact)


def _table(batch: Any) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def _from_spark(
    df: Any,
    root: str,
    settings: dict[str, Any],
    batch_id: int | None,
    compact: bool,
    checkpoint_location: str | None,
    trigger: dict[str, object],
) -> Commit | StreamingQuery:
    if df.isStreaming:
        with _opened(root, arrow_schema(df), settings) as table:
            last = table.batch_id

        def sink(rows: DataFrame, id: int) -> None:
            ingest(rows, root, batch_id=id, compact=compact, **settings)

        return start_stream(
            df,
            root,
            sink,
            batch_id=last,
            checkpoint_location=checkpoint_location,
            trigger=trigger,
        )
    with _held(root, arrow_schema(df), settings) as table:
        done = append_frame(df, table, batch_id=batch_id)
        return _finished(table, [done], compact=compact)


_STAGED = "path string, begin long, rows long, low long, high long"
# Row groups that a task collects before it writes a file.
_ROW_GROUPS = 4


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The schema of a live table with these rows; instants in UTC."""
    return to_arrow(df.schema)


def append_frame(df: DataFrame, table: LiveTable, *, batch_id: int | None = None) -> Commit:
    """All rows of ``df``, in one commit."""
    from skipstone.spark.jobs import described, worker_errors

    if batch_id is not None and batch_id <= (-1 if table.batch_id is None else table.batch_id):
        return table.append_staged([], batch_id=batch_id)  # reports that it is committed
    area = Path(table.root, STAGING, uuid.uuid4().hex)
    area.mkdir(parents=True)
    definition, directory = table.definition.to_json(), str(area)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return staged_batches(definition, directory, batches)

    frame = df
    if table.definition.ordered:
        key = df[f"`{table.definition.timestamp}`"]
        # Ranges do not overlap, so the files of the tasks are in order.
        frame = df.repartitionByRange(key).sortWithinPartitions(key)
    try:
        text = f"skipstone ingest: rows for {table.root}"
        with described(df.sparkSession, text), worker_errors():
            found = frame.mapInArrow(task, _STAGED).collect()
        return table.append_staged([Staged(**row.asDict()) for row in found], batch_id=batch_id)
    finally:
        shutil.rmtree(area, ignore_errors=True)


def staged_batches(
    definition: bytes, directory: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Stage the rows of one task; the names of the files."""
    live = LiveDefinition.from_json(definition)
    if not Path(directory).is_dir():
        raise SkipstoneError(
            f"{directory} does not exist for this executor",
            hint="a live table lies on a file system that driver and executors share",
        )
    schema = pa.schema(
        [("path", pa.string()), *((name, pa.int64()) for name in ("begin", "rows", "low", "high"))]
    )
    held, count = list[pa.RecordBatch](), 0

    def written() -> pa.RecordBatch:
        files = stage(live, pa.Table.from_batches(held), directory)
        return pa.RecordBatch.from_pylist([asdict(each) for each in files], schema=schema)

    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= _ROW_GROUPS * live.row_group_rows:
            yield written()
            held, count = [], 0
    if count:
        yield written()


def start_stream(
    df: DataFrame,
    root: str,
    sink: Callable[[DataFrame, int], None],
    *,
    batch_id: int | None,
    checkpoint_location: str | None,
    trigger: dict[str, object],
) -> StreamingQuery:
    """A query that calls ``sink`` for every micro-batch; ``batch_id`` is the table's last one.

    ``SkipstoneError`` without a checkpoint, and for a new one where the table has batches already:
    the ids of a new checkpoint start at 0 again, and would count as committed.
    """
    if checkpoint_location is None:
        raise SkipstoneError(
            f"a stream into {root} without a checkpoint",
            hint='pass checkpoint_location="…": exactly once needs it',
        )
    path = canonical_path(checkpoint_location)
    if batch_id is not None and "://" not in path and not Path(path, "offsets").exists():
        raise SkipstoneError(
            f"{checkpoint_location} is a new checkpoint, and {root} has batch {batch_id} already",
            hint="continue with its checkpoint: the ids of a new one begin with 0 again",
        )
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint_location)
    if trigger:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.start()
