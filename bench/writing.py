"""Writing a table with everything that readers use for skipping, compared with Arrow with the same
options.

Integers, text, floats, few values and instants, snappy, row groups of 2^20 rows; page index,
checksums, a Bloom filter on ``user``. Arrow gets the number of distinct values; ours computes it,
and the NaN and size statistics as well. Both sync the file to the disk; CPU seconds are shown too,
for a machine that does other things meanwhile.

| figure | |
|---|---|
| plain | the options above |
| encrypted | with one key; Arrow refuses Bloom filters then, and writes none |
| memory | the most that Arrow's pool held of a stream of 40 row groups, in row groups |
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from skipstone import Encryption, write_table

from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .workbench import Workbench

__all__ = ["figures"]

ROWS, TOY_ROWS = 6_000_000, 60_000
GROUP = 1 << 20
DISTINCT = 1_000_000
STREAM_GROUPS = 40
KEY = b"0123456789012345"


def _table(rows: int) -> pa.Table:
    draw = np.random.default_rng(rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "user": pa.array([f"u-{each}" for each in draw.integers(0, DISTINCT, rows)]),
            "amount": draw.random(rows),
            "q": draw.integers(0, 100, rows),
            "ts": pa.array(np.arange(rows) * 1_000, pa.timestamp("us", "UTC")),
        }
    )


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over one table in memory."""
    rows = TOY_ROWS if bench.sizes.runs == 1 else ROWS
    table = _table(rows)
    folder = bench.generated("writing", lambda to: to.mkdir(exist_ok=True), rows=rows)
    ours, theirs = folder / "ours.parquet", folder / "theirs.parquet"
    cpu: dict[str, list[float]] = {}

    def counted(name: str, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            before = time.process_time()
            work()
            cpu.setdefault(name, []).append(time.process_time() - before)

        return run

    def arrow(**options: Any) -> None:
        pq.write_table(
            table,
            theirs,
            row_group_size=GROUP,
            write_page_index=True,
            write_page_checksum=True,
            **options,
        )
        with theirs.open("rb") as file:
            os.fsync(file.fileno())

    works: dict[str, Callable[[], object]] = {
        "plain": lambda: write_table(table, ours, bloom={"user": 0.01}),
        "plain peer": lambda: arrow(
            bloom_filter_options={"user": {"ndv": min(DISTINCT, GROUP, rows), "fpp": 0.01}}
        ),
        "encrypted": lambda: write_table(table, ours, encryption=Encryption(footer_key=KEY)),
        "encrypted peer": lambda: arrow(encryption_properties=pe.create_encryption_properties(KEY)),
    }
    taken = interleaved(
        bench.sizes.runs, {name: counted(name, work) for name, work in works.items()}
    )
    size = ours.stat().st_size
    for each in (ours, theirs):
        each.unlink()
    for name in ("plain", "encrypted"):
        value, peer = median(taken[name]), median(taken[f"{name} peer"])
        yield Figure(
            name=f"writing.{name}",
            value=value,
            unit="s",
            peer=Peer(what="pyarrow, the same options", value=peer),
            ratio=peer / value,
            details={
                "rows": rows,
                "bytes": size,
                "runs": bench.sizes.runs,
                "cpu_seconds": median(cpu[name]),
                "peer_cpu_seconds": median(cpu[f"{name} peer"]),
            },
        )
    yield _memory(ours, rows)


def _memory(path: Any, rows: int) -> Figure:
    """Of a stream that makes each row group when it is asked for."""
    count = min(rows, GROUP) // 4
    most = 0

    def batches() -> Iterator[pa.Table]:
        nonlocal most
        for number in range(STREAM_GROUPS):
            draw = np.random.default_rng(number)
            yield pa.table({name: draw.random(count) for name in "abcd"})
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    write_table(batches(), path, row_group_rows=count)
    path.unlink()
    size = 4 * 8 * count
    return Figure(
        name="writing.memory",
        value=most / size,
        unit="row groups",
        details={"row_groups": STREAM_GROUPS, "bytes_of_a_row_group": size},
    )
