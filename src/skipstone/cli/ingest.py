"""`ingest`: files into a live table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from .options import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from skipstone.live import Commit

    from .output import Output


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of one ingest."""

    table: str
    commit: Commit

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"table": self.table, **asdict(self.commit)}

    def __str__(self) -> str:
        from skipstone.human import plural, size

        done = self.commit
        if not done.applied:
            return f"{self.table}: nothing to do: {done.reason}"
        parts = plural(len(done.partitions), "partition")
        groups = plural(done.row_groups, "row group")
        return (
            f"{self.table}: {done.rows:,} rows into {parts}, {groups},"
            f" {size(done.bytes_written)} written; txn {done.txn}"
        )


@click.command()
@click.argument("table")
@click.argument("source")
@click.option("--timestamp", metavar="COLUMN", help="The designated timestamp; never null.")
@click.option(
    "--partition-by",
    type=click.Choice(["hour", "day", "month", "year", "none"]),
    help="A new table's partitions; day by default.",
)
@click.option(
    "--sort-by", metavar="COLUMN[,COLUMN...]", help="A new table's order; the timestamp by default."
)
@click.option(
    "--format",
    "source_format",
    type=click.Choice(["parquet", "csv"]),
    help="The format of SOURCE; by default its file names decide.",
)
@click.option(
    "--batch-id",
    type=click.IntRange(min=0),
    help="Add nothing when this batch, or a later one, is in the table already.",
)
@reporting
def ingest(
    table: str,
    source: str,
    timestamp: str | None,
    partition_by: str | None,
    sort_by: str | None,
    source_format: str | None,
    batch_id: int | None,
    out: Output,
) -> None:
    """Append the rows of SOURCE to the live table TABLE.

    SOURCE is a Parquet or CSV file, or a directory of such files. The first call creates TABLE and
    needs --timestamp. Rows are appended in place to the `data.parquet` of their time partition;
    readers keep their snapshot.

    \b
      skipstone ingest db/trades new.parquet --timestamp ts --partition-by hour
      skipstone ingest db/trades exports/ --batch-id 42
    """
    from skipstone.table.ingest import ingest as append

    done: Any = append(
        _batches(source, source_format),
        table,
        timestamp=timestamp,
        partition_by=partition_by,
        sort_by=None if sort_by is None else [name.strip() for name in sort_by.split(",")],
        batch_id=batch_id,
    )
    out.result(Ingested(table, done))


def _batches(source: str, source_format: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of SOURCE. The first batch is empty, so that the schema is known without rows."""
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.dataset as ds

    from skipstone.errors import FormatError, SkipstoneError

    path = Path(source)
    if not path.exists():
        raise SkipstoneError(f"no such file or directory: {source}", hint="check the path")
    if source_format is None:
        names = [path.name] if path.is_file() else [each.name for each in path.rglob("*.*")]
        source_format = "csv" if any(name.endswith(".csv") for name in names) else "parquet"
    try:
        found = ds.dataset(source, format=source_format)
        yield pa.RecordBatch.from_pylist([], schema=found.schema)
        yield from found.to_batches()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"Arrow cannot read it as {source_format}: {error}", file=source
        ) from error
