"""Tables in QuestDB's layout, as small as tests want them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.questdb.format.pm_columns import KEY, QdbColumn, QdbMeta
from skipstone.questdb.format.txn import Partition, Partitioning, Txn, created, directory
from tests.questdb.questdb_json import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


DAY = 86_400_000_000
FIRST = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
ROWS = 2_000
TYPES = (131080, 12, 5, 10)


def rows(number: int) -> pa.Table:
    """A day: ts rises, s is one of four or null, n counts, d has NaN and both zeros."""
    n = np.arange(ROWS)
    return pa.table(
        {
            "ts": pa.array(FIRST + DAY * number + n * 40_000_000, pa.timestamp("us", "UTC")),
            "s": pa.array([["BTC", "ETH", None, "Ångström"][at % 4] for at in range(ROWS)]),
            "n": pa.array(n.astype(np.int32) + ROWS * number),
            "d": pa.array(np.array([np.nan, 0.0, -0.0, 1.5])[n % 4]),
        },
        schema=pa.schema(
            [
                pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
                pa.field("s", pa.string()),
                pa.field("n", pa.int32()),
                pa.field("d", pa.float64()),
            ]
        ),
    )


def day(path: Path, number: int, *, own: bool = True, **options: Any) -> Path:
    """``data.parquet`` of a day in two row groups; ``own``: with QuestDB's JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows(number)
    if own:
        columns = [QdbColumn(column_type=type, id=at) for at, type in enumerate(TYPES)]
        table = table.replace_schema_metadata({KEY: to_json(QdbMeta(schema=tuple(columns)))})
    given = {"bloom_filter_options": {"s": {"ndv": 10}, "n": {"ndv": 1_000}}, **options}
    pq.write_table(
        table,
        path,
        row_group_size=ROWS // 2,
        sorting_columns=[pq.SortingColumn(0)],
        **given,
    )
    return path


def write_txn(root: Path, partitions: Sequence[Partition], *, txn: int = 1) -> None:
    """A fresh ``_txn``."""
    last = partitions[-1].row_count if partitions else 0
    record = Txn(txn=txn, transient_row_count=last, partitions=tuple(partitions))
    (root / "_txn").write_bytes(created(record))


def questdb(
    root: Path,
    days: int = 3,
    *,
    native: int = 0,
    sizes: Mapping[int, int] | None = None,
    **options: Any,
) -> Path:
    """A table of this many Parquet partitions, and ``native`` ones after them; no ``_pm``.

    ``sizes`` are sizes for ``_txn`` that are not the files' own.
    """
    found = []
    for number in range(days + native):
        plain = Partition(timestamp=FIRST + DAY * number, row_count=ROWS, name_txn=number % 2 - 1)
        folder = root / directory(plain, Partitioning("day"))
        if number >= days:
            folder.mkdir()
            found.append(plain)
            continue
        path = day(folder / "data.parquet", number, **options)
        size = (sizes or {}).get(number, path.stat().st_size)
        found.append(
            Partition(
                timestamp=plain.timestamp,
                row_count=ROWS,
                name_txn=plain.name_txn,
                parquet_format=True,
                parquet_file_size=size,
            )
        )
    write_txn(root, found)
    return root
