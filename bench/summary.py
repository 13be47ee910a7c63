"""Planning a table cold by its `_metadata`, against opening every file: time, requests, bytes.

Every file is opened, whatever that costs: the choice of files is another figure. The query is for
one key; one file has its range of `ts`. Each run opens a new table.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest import mock

import skipstone
from skipstone.pruning.costs import FREE
from skipstone.storage.base import metered

from .events import VERSION, lay_events
from .figure import Figure, Peer, median
from .s3_server import serving, upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .workbench import Workbench

__all__ = ["figures"]

_DELAY_MS = 20.0
_ROWS = 25  # files are smaller here: the server has to bear them


def figures(bench: Workbench) -> Iterator[Figure]:
    """Local files in the page cache, and an object store at 20 ms a request."""
    files, rows = bench.sizes.files, max(20, bench.sizes.rows_per_file // _ROWS)
    folder = bench.generated(
        "summary-events",
        lambda to: lay_events(to / "table", files, rows),
        files=files,
        rows=rows,
        version=VERSION,
    )
    where = f"ts = {files * rows // 2}"
    root = str(folder / "table")
    (folder / "table/_metadata").unlink(missing_ok=True)
    without = [_cold(root, where, {}) for _ in range(bench.sizes.runs)]
    report = skipstone.Table(root).write_metadata()
    known = [_cold(root, where, {}) for _ in range(bench.sizes.runs)]
    yield _figure("summary.local", known, without, files, report.bytes)
    yield Figure(
        name="summary.written",
        value=report.seconds,
        unit="s",
        details={"files": files, "bytes": report.bytes, "row_groups": report.row_groups},
    )
    with serving(_DELAY_MS) as server:
        upload(sorted((folder / "table").glob("*.parquet")), "bench", "table", server)
        root, runs = "s3://bench/table", max(1, bench.sizes.runs // 3)
        without = [_cold(root, where, server.options) for _ in range(runs)]
        report = skipstone.Table(root, storage_options=server.options).write_metadata()
        known = [_cold(root, where, server.options) for _ in range(runs)]
        yield _figure("summary.s3", known, without, files, report.bytes)


def _cold(root: str, where: str, options: Mapping[str, str]) -> tuple[float, int, int]:
    """Seconds to plan (the listing left out), requests and bytes."""
    table = skipstone.Table(root, storage_options=dict(options))
    with mock.patch("skipstone.table.planning._costs", return_value=FREE), metered() as meter:
        started = time.perf_counter()
        plan = table.plan(where)
        taken = time.perf_counter() - started - plan.milliseconds["listing"] / 1e3
    if plan.files_kept != 1:
        raise AssertionError(f"{plan.files_kept} files are left instead of 1")
    return taken, meter.requests, meter.bytes_read


def _figure(
    name: str,
    known: list[tuple[float, int, int]],
    without: list[tuple[float, int, int]],
    files: int,
    size: int,
) -> Figure:
    value, alone = (median([each[0] for each in runs]) for runs in (known, without))
    return Figure(
        name=name,
        value=value * 1e3,
        unit="ms",
        peer=Peer(what="opening every file", value=alone * 1e3),
        ratio=alone / value,
        details={
            "files": files,
            "summary_bytes": size,
            "requests": known[-1][1],
            "bytes": known[-1][2],
            "peer_requests": without[-1][1],
            "peer_bytes": without[-1][2],
        },
    )
