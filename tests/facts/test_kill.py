"""Real processes: killed while they write, and several at once on one store."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skipstone.facts import Store
from skipstone.facts.upkeep import compact
from skipstone.facts.vacuum import vacuum
from tests.facts.facts import MINMAX, VALUES, Table
from tests.facts.test_parts import evidence_of
from tests.processes import environment

# Each says "ready" and then works without end, or a number of times.
LOOP = """
import sys, itertools
from pathlib import Path
from skipstone.facts.upkeep import compact
from skipstone.facts.vacuum import vacuum
from tests.facts.facts import MINMAX, SCHEMA, VALUES, Table
table, kind, times = Table(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for turn in range(times) if times else itertools.count():
    table.store = type(table.store).of_table(str(table.root))
    if kind == "build":
        table.build(MINMAX, VALUES, only=[turn % 8], container=b"x" * 700)
    elif kind == "minmax":
        table.build(MINMAX, only=[turn % 8])
    elif kind == "values":
        table.build(VALUES, only=[turn % 8])
    elif kind == "vacuum":
        vacuum(table.store)
    else:
        table.build(MINMAX, only=[turn % 8])
        compact(table.store, table.listing)
"""


def start(table: Table, kind: str, times: int = 0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(table.root), kind, str(times)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "t")
    for at in range(8):
        table.write(f"f{at}")
    return table


@pytest.mark.parametrize("kind", ["build", "compact"])
def test_a_killed_writer_costs_at_most_what_it_had_not_finished(table: Table, kind: str) -> None:
    """Killed at eight different moments; after each, all facts of before are there and true."""
    table.build(MINMAX, VALUES)
    right = evidence_of(table)
    for turn in range(8):
        process = start(table, kind)
        time.sleep(0.003 * turn**2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert evidence_of(table) == right
        assert Store.of_table(str(table.root)).snapshot().reasons == ()
    compact(table.store, table.listing)
    assert len(table.store.snapshot().parts) == 1
    assert evidence_of(table) == right
    vacuum(table.store, older_than=-60)
    left = [path.name for path in Path(table.store.location.root).rglob("*") if path.is_file()]
    assert not [name for name in left if name.startswith("_")]
    assert evidence_of(table) == right


def test_builders_and_compactions_at_once_lose_nothing(table: Table) -> None:
    """Two builds of different indexes, a compaction and a vacuum, all on the same files."""
    together = [
        start(table, kind, times)
        for kind, times in (("minmax", 16), ("values", 16), ("compact", 8), ("vacuum", 8))
    ]
    for process in together:
        process.communicate()
        assert process.returncode == 0
    whole = evidence_of(table)
    for at in range(8):
        assert ("minmax(id)", at, str({"min": 10 * at, "max": 10 * at + 9})) in whole
        assert ("valuelist(s)", at, f"['v{at}']") in whole
    compact(table.store, table.listing)
    assert evidence_of(table) == whole
