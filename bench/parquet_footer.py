"""Reading a footer: our scan into arrays against Arrow's ``read_metadata``, from memory.

Ten row groups, float64 columns with statistics and page indexes, as Arrow writes them. A second
figure counts everything a first look at a file of 10,000 columns takes: scan, schema, one column's
minima; Arrow's is its metadata and the same minima.
"""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.arrow.metadata_tables import chunks
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays

from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

VERSION = 1
ROW_GROUPS = 10
#: Of the widest footer: times Arrow's time.
LIMIT = 0.5
#: A table of 100,000 chunks, in seconds.
TABLE_LIMIT = 1.0


def lay(folder: Path, columns: int) -> None:
    """One file of so many columns, one value per chunk: only the footer is large."""
    values = np.random.default_rng(columns).random((columns, ROW_GROUPS))
    table = pa.table({f"column_{at:05d}": each for at, each in enumerate(values)})
    pq.write_table(table, folder / "wide.parquet", row_group_size=1, write_page_index=True)


def figures(bench: Workbench) -> Iterator[Figure]:
    """The scan at three widths, the first look, and the table of chunks."""
    toy = bench.sizes.runs == 1
    for columns in (10, 20, 30) if toy else (100, 1_000, 10_000):
        folder = bench.generated(
            f"parquet-footer-{columns}",
            partial(lay, columns=columns),
            columns=columns,
            version=VERSION,
        )
        data = (folder / "wide.parquet").read_bytes()
        yield from _of(bench, data, columns, widest=columns in (30, 10_000))


def _of(bench: Workbench, data: bytes, columns: int, *, widest: bool) -> Iterator[Figure]:
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    footer = data[tail.offset : -TAIL_LENGTH]
    runs = max(5 * bench.sizes.runs, 1)

    def look() -> None:
        scanned = FooterArrays.scan(footer, tail.offset)
        _ = scanned.schema.leaf(f"column_{columns - 1:05d}")
        start, _ = scanned.bytes_of("min_value", slice(None), columns - 1)
        _ = scanned.buffer[start[:, np.newaxis] + np.arange(8)].view("<f8")

    def arrow_look() -> None:
        metadata = pq.read_metadata(io.BytesIO(data))
        at = metadata.schema.names.index(f"column_{columns - 1:05d}")
        _ = [metadata.row_group(r).column(at).statistics.min for r in range(ROW_GROUPS)]

    works = {
        "scan": lambda: FooterArrays.scan(footer, tail.offset),
        "arrow": lambda: pq.read_metadata(io.BytesIO(data)),
        "look": look,
        "arrow look": arrow_look,
    }
    taken = interleaved(runs, works)
    details = {"columns": columns, "row_groups": ROW_GROUPS, "footer_bytes": len(footer)}
    for ours, theirs, what in (
        ("scan", "arrow", "pyarrow.parquet.read_metadata"),
        ("look", "arrow look", "read_metadata, and the minima of one column"),
    ):
        value, peer = median(taken[ours]), median(taken[theirs])
        limit = LIMIT if widest and ours == "scan" else None
        yield Figure(
            name=f"parquet_footer.{ours}.{columns}",
            value=value,
            unit="s",
            peer=Peer(what=what, value=peer),
            ratio=value / peer,
            target=None if limit is None else f"<= {limit:g} x Arrow's time",
            met=None if limit is None else value <= limit * peer,
            details=details | {"runs": runs, "fastest_s": min(taken[ours])},
        )
    if widest:
        # A new scan each time: arrays and the schema are kept once they were asked for.
        [seconds] = interleaved(
            max(runs // 3, 1), {"chunks": lambda: chunks(FooterArrays.scan(footer, tail.offset))}
        ).values()
        value = median(seconds)
        yield Figure(
            name=f"parquet_footer.chunks.{columns}",
            value=value,
            unit="s",
            target=f"<= {TABLE_LIMIT:g} s",
            met=value <= TABLE_LIMIT,
            details=details | {"rows": columns * ROW_GROUPS, "what": "scan, schema and the table"},
        )
