"""Row groups appended to a partition in place, compared with writing them alone; and readers
meanwhile.

The partition has 100 row groups of 100,000 rows: an instant, two integers, a double, a text of few
values and one of many. One more is appended, synced, against pyarrow writing the same rows with the
same settings into a file of their own, synced as well. The same again where the partition has a
tenth of the row groups, which says what grows.

The readers are processes of their own. Each opens the newest snapshot over and over, reads all its
partitions within their sizes, and compares rows and a checksum with the committed ones; any error
or difference counts as a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.live import LiveTable
from skipstone.questdb.txn_snapshot import TxnSnapshot
from skipstone.storage import open_storage

from .figure import Figure, Peer, interleaved, median, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workbench import Workbench

__all__ = ["figures", "read_until_done", "rows"]

READERS = 4
VERSION = 1


def figures(bench: Workbench) -> Iterator[Figure]:
    """The append, and the readers."""
    toy = bench.sizes.runs == 1
    yield appended(bench, row_groups=4 if toy else 100, count=2_000 if toy else 100_000)
    yield meanwhile(bench, appends=10 if toy else 1_000)


def rows(count: int, start: int) -> pa.Table:
    """A second of 1,000 rows, from row ``start`` on."""
    random = np.random.default_rng(start)
    n = np.arange(start, start + count)
    return pa.table(
        {
            "ts": pa.array(n * 1_000).cast(pa.timestamp("us", "UTC")),
            "id": pa.array(n),
            "size": pa.array(random.integers(0, 10_000, count, np.int32)),
            "price": pa.array(random.normal(100, 3, count)),
            "venue": pa.array([f"venue {at}" for at in random.integers(0, 40, count)]),
            "order": pa.array([f"{at:x}" for at in random.integers(0, 1 << 40, count)]),
        }
    )


def appended(bench: Workbench, *, row_groups: int, count: int) -> Figure:
    """See the module."""
    few = max(1, row_groups // 10)

    def lay(home: Path) -> None:
        for name, groups in (("many", row_groups), ("few", few)):
            with created(home / name, count) as table:
                table.append(rows(count * groups, 0))

    home = bench.generated("ingest", lay, groups=row_groups, rows=count, version=VERSION)
    work = bench.home / "ingest-work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(home, work)
    runs = 2 * bench.sizes.runs
    warm = 2
    alone = work / "alone.parquet"
    with LiveTable.open(str(work / "many")) as many, LiveTable.open(str(work / "few")) as less:
        schema = many.definition.schema
        # Each later than the one before: nothing is late.
        turns = range(row_groups, row_groups + runs + warm + 1)
        batches = [rows(count, count * turn).cast(schema) for turn in turns]
        for_many, for_few = iter(batches), iter(batches)

        def write_alone() -> None:
            pq.write_table(
                batches[0],
                alone,
                compression="zstd",
                write_page_index=True,
                sorting_columns=pq.SortingColumn.from_ordering(schema, [("ts", "ascending")]),
            )
            descriptor = os.open(alone, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        taken = interleaved(
            runs,
            {
                "alone": write_alone,
                "many": lambda: many.append(next(for_many)),
                "few": lambda: less.append(next(for_few)),
            },
            warm=warm,
        )
        done = many.append(batches[-1])
        (partition,) = many.describe().partitions
    seconds, peer, smaller = (median(taken[name]) for name in ("many", "alone", "few"))
    ratio = seconds / peer
    alone_bytes = alone.stat().st_size
    shutil.rmtree(work)
    return Figure(
        name="ingest.append",
        value=1e3 * seconds,
        unit="ms",
        peer=Peer(what="pyarrow.parquet.write_table of the rows alone, ms", value=1e3 * peer),
        ratio=ratio,
        target="value / peer <= 1.5",
        met=ratio <= 1.5,
        details={
            "rows": count,
            "row_groups": partition.row_groups,
            "partition_bytes": partition.bytes,
            "dead_bytes": partition.dead_bytes,
            "written_bytes": done.bytes_written,
            "alone_bytes": alone_bytes,
            f"ms_with_{few}_row_groups": 1e3 * smaller,
            "synced": True,
        },
    )


def created(root: Path, row_group_rows: int) -> LiveTable:
    """An empty table of such rows."""
    return LiveTable.create(
        str(root),
        rows(1, 0).schema,
        timestamp="ts",
        partition_by="none",
        row_group_rows=row_group_rows,
    )


def checksum(keys: Any) -> int:
    """Of the ids of a snapshot."""
    return int(np.asarray(keys, np.int64).sum())


def read_until_done(root: str) -> dict[str, Any]:
    """One reader: until the last batch is there. What it saw, and what was wrong."""
    storage = open_storage(root)
    seen, reads, problems = set[int](), 0, list[str]()
    last = int(Path(root, "..", "last").read_text())
    while True:
        snapshot = TxnSnapshot.open(root, storage)
        batch = snapshot.txn.seq_txn
        total = sum_of = 0
        for file in snapshot.files:
            with Path(file.path).open("rb") as opened:
                data = pa.py_buffer(opened.read(file.size))
            table = pq.read_table(pa.BufferReader(data), columns=["id"])
            if len(table) != file.rows:
                problems.append(f"batch {batch}: {len(table)} rows, {file.rows} committed")
            total, sum_of = total + len(table), sum_of + checksum(table["id"])
        if (total, sum_of) != (10 * (batch + 1), sum(range(10 * (batch + 1)))):
            problems.append(f"batch {batch}: {total} rows, checksum {sum_of}")
        seen.add(batch)
        reads += 1
        if batch == last or problems:
            return {"reads": reads, "snapshots": len(seen), "problems": problems}


def meanwhile(bench: Workbench, *, appends: int) -> Figure:
    """Readers of their own during appends of 10 rows, with a compaction whenever one is due."""
    home = bench.home / "ingest-readers"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    root = str(home / "table")
    (home / "last").write_text(str(appends - 1))
    code = (
        "import json, sys; from bench.ingest import read_until_done;"
        " print(json.dumps(read_until_done(sys.argv[1])))"
    )
    compactions = 0
    with created(Path(root), 100_000) as table:
        table.append(rows(10, 0), batch_id=0)
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", code, root],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            for _ in range(READERS)
        ]

        def write() -> None:
            nonlocal compactions
            for batch in range(1, appends):
                table.append(rows(10, 10 * batch), batch_id=batch)
                compactions += len(table.compact())

        seconds = timed(write)
    told = [json.loads(reader.communicate()[0] or b"null") for reader in readers]
    failed = sum(each is None or bool(each["problems"]) for each in told)
    shutil.rmtree(home)
    return Figure(
        name="ingest.readers",
        value=failed,
        unit="readers that failed",
        target="= 0",
        met=not failed,
        details={
            "readers": READERS,
            "appends": appends,
            "compactions": compactions,
            "appends_per_second": appends / seconds,
            "reads": [each and each["reads"] for each in told],
            "snapshots_seen": [each and each["snapshots"] for each in told],
            "problems": [each and each["problems"][:1] for each in told],
        },
    )
