"""Rows for live tables, with the awkward values among them, and tables read back in every way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.questdb.format.pm import Pm
from skipstone.questdb.txn_snapshot import TxnSnapshot
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from skipstone.questdb.txn_snapshot import PartitionFile

HOUR = 3_600_000_000
DAY = 24 * HOUR

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("key", pa.int64()),
        pa.field("city é", pa.string()),
        pa.field("f", pa.float64()),
        pa.field("u", pa.uint32()),
        pa.field("list", pa.list_(pa.int32())),
    ]
)


def rows(*times: int, first: int = 0) -> pa.Table:
    """One row for each time in microseconds; keys from ``first`` on, NaN, ±0.0 and nulls."""
    n = np.arange(first, first + len(times))
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(n),
            "city é": pa.array([None if at % 5 == 0 else f"c{at % 3}" for at in n], pa.string()),
            "f": pa.array(np.array([np.nan, 0.0, -0.0, 1.5, -np.inf])[n % 5]),
            "u": pa.array([None if at % 7 == 0 else 4_000_000_000 + at for at in n], pa.uint32()),
            "list": pa.array(
                [None if at % 4 == 0 else [at, None] for at in n], pa.list_(pa.int32())
            ),
        },
        schema=SCHEMA,
    )


def run(count: int, *, start: int = 0, step: int = 1_000_000, first: int = 0) -> pa.Table:
    """``count`` rows, ``step`` microseconds apart."""
    return rows(*range(start, start + count * step, step), first=first)


def snapshot(root: str | Path) -> TxnSnapshot:
    """The newest one, as any reader opens it."""
    return TxnSnapshot.open(str(root), open_storage(str(root)))


def cut(file: PartitionFile) -> pa.Table:
    """The rows of a partition within the snapshot's size, by Arrow."""
    return read_bytes(Path(file.path).read_bytes()[: file.size])


def read_bytes(data: bytes) -> pa.Table:
    """A whole Parquet file in memory.

    One thread reads: a thread of Arrow's that frees ``data`` after Python ended aborts the process.
    """
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).select(SCHEMA.names)


def keys(root: str | Path) -> list[int]:
    """The keys of all rows of the newest snapshot, sorted, each partition checked on the way."""
    found: list[int] = []
    for file in snapshot(root).files:
        table = cut(file)
        assert len(table) == file.rows
        found += table["key"].to_pylist()
        check_pm(file, table)
    return sorted(found)


def check_pm(file: PartitionFile, table: pa.Table) -> None:
    """The ``_pm`` is sound, and says of the row groups what the footer says."""
    found = Pm(Path(file.pm).read_bytes()).snapshot(file.size)
    found.verify()
    footer = pq.ParquetFile(pa.BufferReader(Path(file.path).read_bytes()[: file.size])).metadata
    assert found.num_rows.tolist() == [
        footer.row_group(r).num_rows for r in range(footer.num_row_groups)
    ]
    starts, lengths = found.byte_ranges()
    for r in range(footer.num_row_groups):
        for c in range(footer.num_columns):
            chunk = footer.row_group(r).column(c)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            assert (starts[r, c], lengths[r, c]) == (start, chunk.total_compressed_size)
    assert int(found.num_rows.sum()) == len(table)
