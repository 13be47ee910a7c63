"""How long a plan of 10,000 files takes by itself, with facts, row group metadata, pages and rows.

A few distinct files under many names, each with its facts: the figure is about how many there are.
The predicate concerns all indexes, and leaves files to every level; warm means the same table asked
again, about another value, with a new listing of its files.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import skipstone

from .events import VERSION, keys_of, lay_events
from .figure import Figure, Peer, median

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

_MS = 100.0
_ROWS = 25  # so many times fewer than in a file of events
_DISTINCT = 20  # names of a file
_INDEXES = ("key:bloom(fpp=0.001)", "ts:minmax", "code:bitmap", "key:minmax")


def figures(bench: Workbench) -> Iterator[Figure]:
    """One needle, one range of many files, one that no index can answer."""
    files, rows = bench.sizes.planned_files[-1], max(20, bench.sizes.rows_per_file // _ROWS)
    distinct = max(2, files // _DISTINCT)
    folder = bench.generated(
        "engine-planning",
        lambda to: _lay(to, files, distinct, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    table = skipstone.Table(str(folder / "table"))
    chosen = [keys_of(number % distinct, rows)[rows // 2] for number in range(bench.sizes.runs)]
    questions = {
        "needle": [f"key = {key} AND code >= 0" for key in chosen],
        "rows": [f"ts < {rows} AND code = {10 + turn}" for turn in range(bench.sizes.runs)],
        "nothing": [f"amount > {turn} AND code >= 0" for turn in range(bench.sizes.runs)],
    }
    for name, wheres in questions.items():
        plan = table.plan(wheres[-1])
        wall, busy, phases = [], [], []
        for where in wheres:
            started, before = time.perf_counter(), time.process_time()
            plan = table.plan(where)
            wall.append((time.perf_counter() - started) * 1e3)
            busy.append((time.process_time() - before) * 1e3)
            phases.append(plan.milliseconds)
        value = median(wall)
        yield Figure(
            name=f"engine_planning.{name}",
            value=value,
            unit="ms",
            peer=Peer(what="its listing of the files alone", value=phases[-1]["listing"]),
            ratio=value / phases[-1]["listing"],
            target=f"<= {_MS:g} ms",
            met=value <= _MS,
            details={
                "files": files,
                "kept": plan.files_kept,
                "processor_ms": median(busy),
                "fastest_ms": min(wall),
                "phases_ms": {each: median([one[each] for one in phases]) for each in phases[-1]},
                "levels": sorted({step.level.name.lower() for step in plan.steps if step.used}),
                "reasons": [str(reason) for reason in plan.reasons][:5],
            },
        )


def _lay(folder: Path, files: int, distinct: int, rows: int) -> None:
    lay_events(folder / "table", distinct, rows)
    for number in range(distinct, files):
        source = folder / "table" / f"part-{number % distinct:05d}.parquet"
        os.link(source, folder / "table" / f"part-{number:05d}.parquet")
    skipstone.Table(str(folder / "table")).build(indexes=_INDEXES)
