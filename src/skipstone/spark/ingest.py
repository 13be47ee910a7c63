"""Rows of a DataFrame into a live table: tasks encode row groups, the driver places their bytes.

    df -> by ranges of the timestamp -> mapInArrow: sort, encode, write a file into _staging
       -> (path, partition, rows, times) to the driver -> one commit

No row passes through the driver, unless it is older than the last row of its partition: such rows
are read from the staged files and merged there. A task that runs again writes files of other names,
and only files that the job reports count. The staging area lies in the table, on a file system that
driver and executors share.

Each micro-batch is one commit with the batch's id: a batch that Structured Streaming repeats adds
no row twice.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path
from skipstone.live.definition import LiveDefinition
from skipstone.live.rows import STAGING, Staged, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from skipstone.live import Commit, LiveTable


_STAGED = "path string, begin long, rows long, low long, high long"
# Row groups that a task collects before it writes a file.
_ROW_GROUPS = 4


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The schema of a live table with these rows; instants in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: pa.Schema = to_arrow_schema(df.schema, timezone="UTC")
    return schema


def append_frame(df: DataFrame, table: LiveTable, *, batch_id: int | None = None) -> Commit:
    """All rows of ``df``, in one commit."""
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
        found = frame.mapInArrow(task, _STAGED).collect()
        return table.append_staged([Staged(**row.asDict()) for row in found], batch_id=batch_id)
    finally:
        shutil.rmtree(area, ignore_errors=True)


def staged_batches(
    definition: bytes, directory: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Stage the rows of one task; the names of the files."""
    import pyarrow as pa

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
            hint="go on with the checkpoint that wrote it: the ids of a new one begin with 0 again",
        )
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint_location)
    if trigger:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.start()
