"""Builds that are killed, and builds that meet: what was finished counts, and nothing is lost.

Real processes of the command line, ended by signal 9 as soon as the first part is published. After
that every answer is still right, and the next build or refresh does the rest and no more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from skipstone import Table
from tests.accept.tables import backdate, write

if TYPE_CHECKING:
    from pathlib import Path

FILES = 60
PER_FILE = 2_000


def lay_out(root: Path, numbers: range, age: int = 0) -> None:
    """File n holds the ids n, n + 1000, n + 2000 …: a filter tells files apart, min/max do not."""
    for number in numbers:
        columns = {"id": np.arange(PER_FILE) * 1000 + number, "n": [number] * PER_FILE}
        backdate(write(root / f"part {number:03d}.parquet", columns), age)


def build(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "skipstone", *arguments[:1], str(root), *arguments[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def kill_at_first_part(process: subprocess.Popen[bytes], facts: Path, known: set[str]) -> bool:
    """Kill the process once it has published a part; False when it was done before that."""
    while process.poll() is None:
        parts = {entry.name for entry in facts.iterdir()} if facts.exists() else set()
        if any(name.startswith("part-") for name in parts - known):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def assert_right(root: Path, numbers: range) -> None:
    """Every file is found by a key of its own, and by nothing else than it must be."""
    table = Table(str(root))
    for number in numbers:
        names = [path.rpartition("/")[2] for path in table.plan(f"id = {5000 + number}").paths]
        assert f"part {number:03d}.parquet" in names


@pytest.mark.parametrize("engine", ["--no-spark", pytest.param("", marks=pytest.mark.spark)])
def test_a_killed_build_is_resumed(tmp_path: Path, engine: str) -> None:
    """60 files; the build is killed after its first part, then started again."""
    root = tmp_path / "events"
    lay_out(root, range(FILES))
    arguments = ["build", "-c", "id:bloom", "-c", "n:minmax", *([engine] if engine else [])]
    facts = tmp_path / "_events.skipstone" / "facts"
    was_killed = kill_at_first_part(build(root, *arguments), facts, set())
    assert_right(root, range(FILES))
    done = int(Table(str(root)).describe().fresh)
    assert done > 0
    report = Table(str(root)).build(indexes=["id:bloom", "n:minmax"])
    assert report.files_already == done
    assert report.files_built == FILES - done
    assert was_killed or done == FILES
    table = Table(str(root))
    assert table.check().ok
    assert table.plan("n = 7").files_kept == 1
    assert_right(root, range(FILES))


def test_a_killed_refresh_is_resumed(tmp_path: Path) -> None:
    """30 files are indexed; 30 come and one changes; the refresh is killed after its first part."""
    root = tmp_path / "events"
    lay_out(root, range(FILES // 2))
    Table(str(root)).build(indexes=["id:bloom", "n:minmax"])
    lay_out(root, range(FILES // 2, FILES))
    write(root / "part 000.parquet", {"id": [5000, 77_777_777], "n": [0, 0]})
    backdate(root / "part 000.parquet", age=9)
    facts = tmp_path / "_events.skipstone" / "facts"
    known = {entry.name for entry in facts.iterdir()}
    kill_at_first_part(build(root, "refresh", "--no-spark"), facts, known)
    assert_right(root, range(FILES))
    kept = [path.rpartition("/")[2] for path in Table(str(root)).plan("id = 77777777").paths]
    assert "part 000.parquet" in kept
    before = Table(str(root)).describe()
    report = Table(str(root)).refresh()
    assert report.files_built == FILES - before.fresh
    assert Table(str(root)).describe().fresh == FILES
    assert_right(root, range(FILES))


def test_two_builds_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two processes at once, first with the same indexes, then with different ones."""
    root = tmp_path / "events"
    lay_out(root, range(FILES))
    pairs = [(["id:bloom"], ["id:bloom"]), (["n:minmax"], ["n:valuelist", "id:minmax"])]
    for pair in pairs:
        running = [
            build(root, "build", "--no-spark", *(x for spec in specs for x in ("-c", spec)))
            for specs in pair
        ]
        for process in running:
            _, errors = process.communicate()
            assert process.returncode == 0, errors.decode()
    table = Table(str(root))
    described = table.describe()
    assert {index.name.split("(")[0] for index in described.indexes} == {
        "id:bloomfilter",
        "n:minmax",
        "n:valuelist",
        "id:minmax",
    }
    assert all(index.files == FILES for index in described.indexes)
    assert described.fresh == FILES
    assert table.plan("n = 7").files_kept == 1
    assert_right(root, range(FILES))
    assert table.check(deep=True, sample=3).ok
