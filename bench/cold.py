"""Starting cold: a command as a shell runs it, from its start to its last line. The peer is the
interpreter with the necessary imports alone: click for the help, and Arrow with its Parquet reader
for planning.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import skipstone

from .events import VERSION, lay_events, present_keys
from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workbench import Workbench

__all__ = ["figures"]

ROWS = 100


def figures(bench: Workbench) -> Iterator[Figure]:
    """`skipstone --help`, and `skipstone explain` of a needle."""
    files = bench.sizes.cold_facts
    folder = bench.generated(
        "cold",
        lambda to: lay_events(to / "table", files, ROWS),
        files=files,
        rows=ROWS,
        version=VERSION,
    )
    table = skipstone.Table(str(folder / "table"))
    table.build(indexes=["key:bloom", "ts:minmax", "amount:valuelist"])
    table.compact()
    needle = f"key = {present_keys(files, ROWS, 1)[0]}"
    yield _figure(bench, "help", ["--help"], "import click", 0.150)
    explain = ["explain", table.path, needle]
    imports = "import pyarrow.compute, pyarrow.parquet"
    yield _figure(bench, "explain", explain, imports, 0.8, facts=files)


def _figure(
    bench: Workbench, name: str, arguments: list[str], peer: str, limit: float, **details: int
) -> Figure:
    runs = max(3, 2 * bench.sizes.runs) if bench.sizes.runs > 1 else 1
    works = {
        "command": lambda: run("-m", "skipstone", *arguments),
        "peer": lambda: run("-c", peer),
    }
    taken = interleaved(runs, works)
    before = os.times()
    for _ in range(runs):
        works["command"]()
    after = os.times()
    spent = after.children_user + after.children_system
    processor = (spent - before.children_user - before.children_system) / runs
    value, alone = median(taken["command"]), median(taken["peer"])
    measured = {"runs": runs, "fastest_s": min(taken["command"]), "processor_s": processor}
    return Figure(
        name=f"cold.{name}",
        value=value,
        unit="s",
        peer=Peer(what=f"python -c '{peer}'", value=alone),
        ratio=value / alone,
        target=f"<= {limit:g} s",
        met=value <= limit,
        details=measured | details,
    )


def run(*arguments: str) -> None:
    """A fresh interpreter that finds the package where this one does."""
    source = str(Path(skipstone.__file__).resolve().parent.parent)
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": source},
        check=True,
        capture_output=True,
    )
