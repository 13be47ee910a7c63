"""What a refresh costs when one file in a hundred is new: in proportion to those, listing aside.

The peer builds an index over as many files in a table that has no others. A full build of all the
files is told beside it. Each refresh comes upon a store as the full build left it, and new files.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import skipstone

from .events import VERSION, lay_events
from .figure import Figure, Peer, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from skipstone.facts.reports import BuildReport
    from skipstone.storage import Listing

    from .workbench import Workbench

__all__ = ["figures"]

INDEXES = ("key:bloom", "ts:minmax")
#: refreshing may take this much longer than building as many files alone
SLACK = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Seconds by the wall, of the processor, and of listing the data files."""

    seconds: float
    processor: float
    listing: float

    @property
    def rest(self) -> float:
        """Wall time without the listing."""
        return self.seconds - self.listing


def figures(bench: Workbench) -> Iterator[Figure]:
    """One figure: the time of a refresh, without the listing."""
    files, rows = bench.sizes.refreshed_files, bench.sizes.rows_per_file
    new = max(1, files // 100)
    home = bench.generated(
        "refresh", partial(_lay_base, files, rows), files=files, rows=rows, version=VERSION
    )
    table, few, facts, kept = (home / n for n in ("table", "few", "_table.skipstone", "kept"))
    whole = json.loads((home / "full.json").read_text())
    refreshed, alone = [], []
    for turn in range(max(3, bench.sizes.runs // 2) + 1):
        shutil.rmtree(facts, ignore_errors=True)
        shutil.copytree(kept, facts)
        shutil.rmtree(home / "_few.skipstone", ignore_errors=True)
        _lay(table, new, rows, first=files)
        _lay(few, new, rows)
        one = measured(table, lambda each: each.refresh())
        other = measured(few, lambda each: each.build(indexes=INDEXES))
        if turn:  # the first one warms up
            refreshed.append(one)
            alone.append(other)
    value, peer = median([each.rest for each in refreshed]), median([each.rest for each in alone])
    for path in table.glob("part-*"):
        if int(path.stem[5:]) >= files:
            path.unlink()
    yield Figure(
        name="refresh",
        value=value,
        unit="s",
        peer=Peer(what="building as many files in a table of their own", value=peer),
        ratio=value / peer,
        target=f"<= {SLACK:g} x, listing aside",
        met=value / peer <= SLACK,
        details={
            "files": files,
            "new": new,
            "rows_per_file": rows,
            "listing_s": median([each.listing for each in refreshed]),
            "processor_s": median([each.processor for each in refreshed]),
            "processor_alone_s": median([each.processor for each in alone]),
            "full_build_processor_s": whole["processor"],
            "of_full_build": median([each.processor for each in refreshed]) / whole["processor"],
        },
    )


def _lay_base(files: int, rows: int, home: Path) -> None:
    """A table, its facts aside as ``kept``, and what building them took."""
    _lay(home / "table", files, rows)
    taken = measured(home / "table", lambda each: each.build(indexes=INDEXES))
    (home / "_table.skipstone").rename(home / "kept")
    (home / "full.json").write_text(json.dumps({"processor": taken.processor}))


def _lay(folder: Path, files: int, rows: int, first: int = 0) -> None:
    """Write files, with times long past, so that no build waits for them to settle."""
    lay_events(folder, files, rows, first)
    for number in range(first, first + files):
        os.utime(folder / f"part-{number:05d}.parquet", (1_700_000_000 + number,) * 2)


def measured(path: Path, work: Callable[[skipstone.Table], BuildReport]) -> Taken:
    """What ``work`` on the table at ``path`` takes; it must have built something."""
    table = skipstone.Table(str(path))
    spent = []
    list_files = table.storage.list_files

    def listed(root: str) -> Listing:
        started = time.perf_counter()
        found = list_files(root)
        spent.append(time.perf_counter() - started)
        return found

    setattr(table.storage, "list_files", listed)  # noqa: B010, a method is no attribute to mypy
    processor = time.process_time()
    started = time.perf_counter()
    report = work(table)
    seconds = time.perf_counter() - started
    if not report.files_built or report.files_failed:
        raise AssertionError(f"nothing was built, or something failed: {report}")
    return Taken(seconds=seconds, processor=time.process_time() - processor, listing=sum(spent))
