"""`migrate` of a table that somebody has open, and a kill at any of its steps."""

from __future__ import annotations

import fcntl
import mmap
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skipstone.errors import SkipstoneError
from tests.processes import environment
from tests.questdb.partitions import questdb
from tests.questdb.test_migrate import counts, migrate, older_pm, pms

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("lock", ["tables.d.lock", "trades.lock", "trades/_lock"])
def test_a_table_that_somebody_has_open_is_refused(tmp_path: Path, lock: str) -> None:
    root = questdb(tmp_path / "db" / "trades", 2)
    (tmp_path / "db" / lock).touch()
    with (tmp_path / "db" / lock).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SkipstoneError, match="open"):
            migrate(root)
        assert pms(root) == {}
        # Looking, and writing elsewhere, harm nobody.
        assert counts(migrate(root, dry_run=True)) == {"made": 2}
        assert counts(migrate(root, tmp_path / "out")) == {"made": 2}
        assert pms(root) == {}
        assert sorted(pms(tmp_path / "out")) == ["2024-01-01/_pm", "2024-01-02.0/_pm"]
    assert counts(migrate(root)) == {"made": 2}


def test_whoever_has_the_old_one_open_keeps_it(tmp_path: Path) -> None:
    root = questdb(tmp_path / "t", 1)
    path = root / "2024-01-01" / "_pm"
    path.write_bytes(older_pm(5_000))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = bytes(mapped)
        assert counts(migrate(root)) == {"rewritten": 1}
        assert bytes(mapped) == before
    assert path.read_bytes() != before


CHILD = """
import os, signal, sys
from pathlib import Path
from skipstone import Table
from tests.questdb.format.writing import append, read_row_groups, write

step, after = int(sys.argv[2]), sys.argv[3] == "after"
count = 0

def watched(call):
    def wrapper(*args, **options):
        global count
        count += 1
        if count == step and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = call(*args, **options)
        if count == step and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return wrapper

import skipstone.questdb.migrate
skipstone.questdb.migrate._WORKERS = 1
os.fsync, Path.rename = watched(os.fsync), watched(Path.rename)
opened = os.open
def opening(path, flags, *args, **options):
    call = watched(opened) if flags & os.O_EXCL else opened
    return call(path, flags, *args, **options)
os.open = opening
Table(sys.argv[1]).migrate()
print(count)
"""


def test_a_kill_before_or_after_any_step_leaves_each_old_or_whole_new(tmp_path: Path) -> None:
    """Two partitions: the `_pm` of one is of another file, that of the other is not there."""
    made = questdb(tmp_path / "made", 2)
    migrate(made)
    right = pms(made)
    stale = older_pm(5_000)

    def run(step: int, when: str) -> tuple[int, Path, str]:
        root = tmp_path / f"{when}-{step}" / "t"
        shutil.copytree(made, root)
        (root / "2024-01-01" / "_pm").write_bytes(stale)
        (root / "2024-01-02.0" / "_pm").unlink()
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(root), str(step), when],
            env=environment(),
            capture_output=True,
            text=True,
        )
        return done.returncode, root, done.stdout

    code, root, said = run(-1, "never")
    assert code == 0
    assert pms(root) == right
    steps = int(said)
    assert steps == 8  # a name, an fsync, a rename and an fsync of the directory for each
    # After a step the disk is as before the next one.
    for step, when in [*((step, "before") for step in range(1, steps + 1)), (steps, "after")]:
        code, root, _ = run(step, when)
        assert code == -signal.SIGKILL
        for name, data in pms(root).items():
            assert data in (right[name], stale), (step, when, name)
        assert counts(migrate(root)).get("failed", 0) == 0
        assert pms(root) == right
        assert list(root.rglob("_tmp-*")) == []
