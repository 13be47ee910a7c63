"""Tables of a few files with names of every kind, and what tests of summaries ask of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from skipstone.pruning.costs import FREE
from skipstone.storage.base import metered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.execution import TableScan

NAN = float("nan")
#: with blanks, %, letters outside ASCII, = and folders that are partitions
NAMES = (
    "k=1/a b.parquet",
    "k=1/50% é.parquet",
    "k=%20 é/x=y.parquet",
    "k=%20 é/%2F.parquet",
    "k=3/z.parquet",
)
LONG_AGO = 1_600_000_000


def rows(first: int, count: int = 300) -> pa.Table:
    """id ascending; f with NaN and both zeros; s texts and nulls; l lists; n null."""
    n = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "f": [NAN if i % 7 == 0 else (-0.0 if i % 5 == 0 else i / 3) for i in n],
            "s": [None if i % 3 == 0 else f"é{i % 17}" for i in n],
            "l": [[f"v{j}" for j in range(i % 3)] if i % 6 else None for i in n],
            "n": pa.nulls(count, pa.int32()),
        }
    )


def put(path: Path, data: pa.Table, *, old: bool = True, **options: Any) -> None:
    """Write a file, and with ``old`` as if long ago: a summary waits for what is young."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, path, **{"row_group_size": 100, **options})
    if old:
        age(path)


def age(path: Path) -> None:
    """As if it had been written long ago."""
    os.utime(path, (LONG_AGO, LONG_AGO))


def lake(root: Path, names: Sequence[str] = NAMES, **options: Any) -> Table:
    """A table of these files, 300 rows each, ids going on from file to file."""
    for at, name in enumerate(names):
        put(root / name, rows(300 * at), **options)
    return Table(str(root))


def looked(root: Path | str, where: str, **how: Any) -> tuple[TableScan, set[str], int]:
    """The plan of a table that nobody has looked at yet, every level asked; the files that were
    read for it, and in how many requests."""
    with mock.patch("skipstone.table.planning._costs", return_value=FREE):
        table = Table(str(root), **how)
        with metered() as meter:
            scan = table.scan(where)
    return scan, meter.paths, meter.requests


def ids(scan: TableScan) -> list[int]:
    """What the plan gives, sorted."""
    return sorted(scan.to_arrow().column("id").to_pylist())


def said(scan: TableScan) -> list[str]:
    """What it says of the summary."""
    return [f"{each.cause}: {each}" for each in scan.plan.reasons if each.subject == "_metadata"]
