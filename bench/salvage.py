"""Salvage: how many pages a second a file is mapped whose footer is lost, and how long saving it
takes.

Peer of the whole salvage: Arrow reads the file while its footer is there, and writes it again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.salvage import salvage
from skipstone.salvage.page_map import map_file

from .figure import Figure, Peer, median, timed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

VERSION = 1
TARGET = 100_000


def lay(folder: Path, rows: int) -> None:
    """Numbers and texts in pages of 100 rows, row groups of a tenth of the rows, checksums."""
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "id": np.arange(rows),
            "value": rng.random(rows),
            "text": pa.array(rng.integers(0, 1_000, rows)).cast(pa.string()),
        }
    )
    pq.write_table(
        table,
        folder / "pages.parquet",
        row_group_size=max(rows // 10, 1),
        data_page_size=100,
        write_batch_size=100,
        write_page_checksum=True,
    )


def figures(bench: Workbench) -> Iterator[Figure]:
    """The map, and the whole of it."""
    toy = bench.sizes.runs == 1
    rows = 50_000 if toy else 1_000_000
    folder = bench.generated(
        f"salvage-{rows}", lambda home: lay(home, rows), rows=rows, version=VERSION
    )
    whole = folder / "pages.parquet"
    data = whole.read_bytes()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    torn, out = folder / "torn", folder / "saved.parquet"
    torn.write_bytes(data[: tail.offset + tail.length // 2])
    view = memoryview(data)[: tail.offset + tail.length // 2]
    pages = map_file(view).num_pages
    taken = [timed(map_file, view) for _ in range(max(3 * bench.sizes.runs, 1))]
    speed = pages / median(taken)
    yield Figure(
        name="salvage.map",
        value=speed,
        unit="pages/s",
        target=None if toy else f">= {TARGET:,} pages/s",
        met=None if toy else speed >= TARGET,
        details={"pages": pages, "bytes": len(view), "slowest_s": max(taken)},
    )
    out.unlink(missing_ok=True)
    started = time.perf_counter()
    report = salvage(str(torn), output=str(out), schema=whole)
    seconds = time.perf_counter() - started
    assert report.num_rows == rows, str(report)
    out.unlink()
    peer = timed(lambda: pq.write_table(pq.read_table(whole), folder / "again.parquet"))
    yield Figure(
        name="salvage.whole",
        value=seconds,
        unit="s",
        peer=Peer(what="pyarrow reads the file with its footer and writes it anew", value=peer),
        ratio=seconds / peer,
        details={"pages": pages, "rows": rows, "pages_per_second": pages / seconds},
    )
