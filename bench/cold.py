"""Starting cold: a process from its start to its end, and a command as a shell runs it.

The peer of the help and of planning is the interpreter with the necessary imports alone: click, and
Arrow with its Parquet reader. The peer of a query is DuckDB over the same files, in a process of
its own. Compiled bytecode is kept, as of an installed package, and the page cache is warm.
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
#: of a file in the table that is queried
MANY_ROWS = 5_000


def figures(bench: Workbench) -> Iterator[Figure]:
    """The help, a plan, the import, a needle in Python and in a shell, a count of small files."""
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
    yield _figure(bench, "help", _command("--help"), "import click", 0.150)
    explain = _command("explain", table.path, needle)
    imports = "import pyarrow.compute, pyarrow.parquet"
    yield _figure(bench, "explain", explain, imports, 0.8, facts=files)
    yield _figure(bench, "import", ["-c", "import skipstone"], "import click", 0.100)
    yield from _queries(bench)
    yield _count(bench)


def _queries(bench: Workbench) -> Iterator[Figure]:
    """A needle in files with an index, whole rows: the first query of a process, and the verb."""
    files = bench.sizes.cold_facts
    folder = bench.generated(
        "cold-queries",
        lambda to: lay_events(to / "table", files, MANY_ROWS),
        files=files,
        rows=MANY_ROWS,
        version=VERSION,
    )
    table = skipstone.Table(str(folder / "table"))
    table.build(indexes=["key:bloom(fpp=0.001)", "ts:minmax"])
    needle = f"key = {present_keys(files, MANY_ROWS, 1)[0]}"
    peer = _duckdb(f"select * from '{table.path}/*.parquet' where {needle}")
    code = f"import skipstone; skipstone.Table({table.path!r}).query({needle!r})"
    yield _figure(bench, "first_query", ["-c", code], peer, 0.300, files=files)
    yield _figure(bench, "query", _command("query", table.path, needle), peer, 0.400, files=files)


def _count(bench: Workbench) -> Figure:
    """A count over small files without an index."""
    files = 3 * bench.sizes.cold_facts
    folder = bench.generated(
        "cold-small",
        lambda to: lay_events(to / "table", files, ROWS),
        files=files,
        rows=ROWS,
        version=VERSION,
    )
    path = str(folder / "table")
    needle = f"key = {present_keys(files, ROWS, 1)[0]}"
    peer = _duckdb(f"select count(*) from '{path}/*.parquet' where {needle}")
    return _figure(bench, "count", _command("count", path, needle), peer, 1.0, files=files)


def _command(*arguments: str) -> list[str]:
    return ["-m", "skipstone", *arguments]


def _duckdb(sql: str) -> str:
    return f"import duckdb; duckdb.sql({sql!r}).fetchall()"


def _figure(
    bench: Workbench, name: str, started: list[str], peer: str, limit: float, **details: int
) -> Figure:
    runs = bench.sizes.repeated(2 * bench.sizes.runs)
    works = {
        "command": lambda: run(*started),
        "peer": lambda: run("-c", peer),
    }
    run(*started)  # writes the bytecode, and reads the files
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
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": source},
        check=True,
        capture_output=True,
    )
