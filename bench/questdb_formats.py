"""Opening a `_pm`, against reading the Parquet footer that says the same.

A file of as many columns and row groups as the sizes say, doubles with statistics, and its `_pm`.
Measured is the whole way from the buffer to minima, maxima and null counts of one column in all row
groups, without and with one pass of the CRC. The peers come from the same run: pyarrow reading the
footer (without looking at any statistics), and zlib's CRC over the same bytes.
"""

from __future__ import annotations

import io
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.questdb.format.footer_to_pm import convert
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.pm_columns import PmColumns
from skipstone.questdb.format.writer import PmFooter

from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

ROW_GROUPS = 10
VERSION = 2
#: Repetitions within one sample: a single call is shorter than the clock's own unrest.
REPEATED = 200


def figures(bench: Workbench) -> Iterator[Figure]:
    """Open and read one column's statistics; the same with the CRC; the same of few columns."""
    toy = bench.sizes.runs == 1
    columns = 50 if toy else 10_000
    runs = bench.sizes.runs
    folder = bench.generated(
        "questdb",
        lambda to: lay(to, columns),
        columns=columns,
        row_groups=ROW_GROUPS,
        version=VERSION,
    )
    parquet = (folder / "data.parquet").read_bytes()
    wide, narrow = (folder / "_pm").read_bytes(), (folder / "narrow_pm").read_bytes()
    column = columns // 2
    repeated = 2 if toy else REPEATED

    def footer() -> object:
        return pq.read_metadata(io.BytesIO(parquet))

    # Not in turns with the footer, whose 100 MB of objects would leave every cache cold.
    taken = interleaved(runs, {"footer": footer})
    footer_seconds = median(taken["footer"])
    fast = [
        repeat(lambda: statistics(wide, len(parquet), column), repeated) for _ in range(2 * runs)
    ]
    few = [repeat(lambda: statistics(narrow, None, 5), repeated) for _ in range(2 * runs)]
    seconds, few_seconds = median(fast), median(few)
    ratio = footer_seconds / seconds
    yield Figure(
        name="questdb_formats.open",
        value=1e3 * seconds,
        unit="ms",
        peer=Peer(what="pyarrow.parquet.read_metadata, ms", value=1e3 * footer_seconds),
        ratio=ratio,
        target="<= 0.1 ms, peer / value >= 300",
        met=seconds <= 1e-4 and ratio >= 300,
        details={
            "columns": columns,
            "row_groups": ROW_GROUPS,
            "pm_bytes": len(wide),
            "footer_bytes": Tail.from_bytes(parquet[-8:], len(parquet)).length,
            "fastest_ms": 1e3 * min(fast),
            "of_10_columns_ms": 1e3 * few_seconds,
        },
    )
    pairs = interleaved(
        2 * runs,
        {
            "checked": lambda: statistics(wide, len(parquet), column, verify=True),
            "crc": lambda: zlib.crc32(wide),
        },
        warm=2,
    )
    checked, crc = median(pairs["checked"]), median(pairs["crc"])
    yield Figure(
        name="questdb_formats.open_checked",
        value=1e3 * checked,
        unit="ms",
        peer=Peer(what="zlib.crc32 over the same bytes, ms", value=1e3 * crc),
        ratio=checked / crc,
        target="value / peer <= 2",
        met=checked <= 2 * crc,
        details={"pm_bytes": len(wide)},
    )


def statistics(
    data: bytes, parquet_size: int | None, column: int, *, verify: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minima, maxima and null counts of one column in all row groups."""
    snapshot = Pm(data).snapshot(parquet_size)
    if verify:
        snapshot.verify()
    stats = snapshot.stats([column])
    low, has_low = stats.fixed("MIN", np.float64)
    high, has_high = stats.fixed("MAX", np.float64)
    nulls, known = stats.null_count()
    if not (has_low.all() and has_high.all() and known.all()):
        raise AssertionError("statistics are missing")
    return low, high, nulls


def repeat(work: Callable[[], object], times: int) -> float:
    """Seconds of one of ``times`` calls."""
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times


def lay(to: Path, columns: int) -> None:
    """The Parquet file, its `_pm`, and one of 10 columns."""
    for name, count in (("", columns), ("narrow", 10)):
        # With IDs, as QuestDB has them.
        fields = [
            pa.field(f"c{i}", pa.float64(), metadata={"PARQUET:field_id": str(i)})
            for i in range(count)
        ]
        column = pa.array(np.arange(ROW_GROUPS) + 0.5)
        table = pa.Table.from_arrays([column] * count, schema=pa.schema(fields))
        data = io.BytesIO()
        pq.write_table(table, data, row_group_size=1, compression="none", use_dictionary=False)
        whole = data.getvalue()
        tail = Tail.from_bytes(whole[-8:], len(whole))
        footer = FooterArrays.scan(whole[tail.offset : -8], tail.offset)
        end = PmFooter.of_parquet(tail.size, tail.length)
        made = convert(footer, PmColumns.of(footer), end)
        (to / f"{name or 'data'}.parquet").write_bytes(whole)
        (to / (f"{name}_pm" if name else "_pm")).write_bytes(made)
