"""Tables with a ``_txn`` on disk, as QuestDB lays them out, for tests that open them."""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.writing.footer_editor import moved_row_group, row_group_bytes
from skipstone.questdb.format.txn import (
    Partition,
    Partitioning,
    Txn,
    commit,
    created,
    directory,
    read,
)
from tests.parquet.writing.footers import with_more
from tests.questdb.format.converting import pm_of

if TYPE_CHECKING:
    from pathlib import Path


#: Microseconds of a day.
DAY = 86_400 * 10**6
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("city", pa.string()),
    ]
)


def micros(*parts: int) -> int:
    """An instant in microseconds since the epoch."""
    return (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(  # type: ignore[arg-type,misc]
        microseconds=1
    )


def rows_at(start: int, ids: range, *, step: int = 60 * 10**6) -> pa.Table:
    """One row per id, a minute after the other from ``start`` on; ids and cities go with it."""
    times = [start + at * step for at in range(len(ids))]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "id": pa.array(list(ids), pa.int64()),
            "city": pa.array([None if i % 10 == 9 else f"c{i % 5}" for i in ids]),
        },
        schema=SCHEMA,
    )


def encoded(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file, sorted by its first column as its footer says."""
    sink = io.BytesIO()
    options.setdefault("sorting_columns", [pq.SortingColumn(0)])
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def appended(data: bytes, table: pa.Table) -> bytes:
    """The file with more row groups behind its old footer, and a new footer that has them all."""
    more = encoded(table)
    old, new = _footer(data), _footer(more)
    body = more[4 : len(more) - TAIL_LENGTH - _length(more)]
    groups = [
        moved_row_group(row_group_bytes(new, r), len(data) - 4) for r in range(new.num_row_groups)
    ]
    footer = with_more(old, groups)
    return data + body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _length(data: bytes) -> int:
    return Tail.from_bytes(data[-TAIL_LENGTH:], len(data)).length


def _footer(data: bytes) -> FooterArrays:
    start = len(data) - TAIL_LENGTH - _length(data)
    return FooterArrays.scan(data[start:-TAIL_LENGTH], start)


@dataclass
class TxnFolder:
    """A table under ``root``; ``add`` and ``put`` change the files, ``commit`` what is in it."""

    root: Path
    partitioning: Partitioning = field(default_factory=lambda: Partitioning("day"))
    partitions: list[Partition] = field(default_factory=list)
    number: int = -1

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def folder(self, at: int) -> Path:
        """The directory of a partition."""
        return self.root / directory(self.partitions[at], self.partitioning)

    def data(self, at: int) -> Path:
        """Its data file."""
        return self.folder(at) / "data.parquet"

    def add(
        self,
        timestamp: int,
        rows: pa.Table,
        *,
        parquet: bool = True,
        name_txn: int = -1,
        pm: bool = True,
        **options: Any,
    ) -> int:
        """A partition with these rows, and its place; not committed yet."""
        data = encoded(rows, **options)
        self.partitions.append(
            Partition(
                timestamp=timestamp,
                row_count=len(rows),
                name_txn=name_txn,
                parquet_file_size=len(data) if parquet else -1,
                parquet_format=parquet,
            )
        )
        at = len(self.partitions) - 1
        self.folder(at).mkdir()
        if parquet:
            self.data(at).write_bytes(data)
            if pm:
                (self.folder(at) / "_pm").write_bytes(pm_of(data, blooms=False))
        else:
            (self.folder(at) / "ts.d").write_bytes(b"\0" * 64)
        return at

    def grow(self, at: int, rows: pa.Table, *, pm: bool = True) -> None:
        """Append rows to a partition in place; not committed yet."""
        data = appended(self.data(at).read_bytes(), rows)
        with self.data(at).open("r+b") as file:
            file.seek(0)
            file.write(data)
        if pm:
            (self.folder(at) / "_pm").write_bytes(pm_of(data, blooms=False))
        old = self.partitions[at]
        self.partitions[at] = replace(
            old, row_count=old.row_count + len(rows), parquet_file_size=len(data)
        )

    def txn(self) -> Txn:
        """What the next commit says."""
        rows = [each.row_count for each in self.partitions]
        return Txn(
            txn=self.number + 1,
            fixed_row_count=sum(rows[:-1]),
            transient_row_count=rows[-1] if rows else 0,
            partitions=tuple(self.partitions),
        )

    def commit(self) -> None:
        """Write ``_txn`` as QuestDB does: three writes, one after the other."""
        path, txn = self.root / "_txn", self.txn()
        if not path.exists():
            path.write_bytes(created(txn))
        else:
            descriptor = os.open(path, os.O_RDWR)
            try:
                for offset, data in commit(path.read_bytes(), txn):
                    os.pwrite(descriptor, data, offset)
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self.number = txn.txn
        assert read(path.read_bytes()) == txn
