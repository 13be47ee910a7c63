"""Writers killed by signal 9 at every single step: the table opens as it was, or as it was to be.

A step is a call that changes a file or a directory. Each operation is run in a process of its own
until it is killed before its first step, then before its second, and so on until it is done; what
is on disk after a step is what is there before the next, so this is "before and after" each. Every
write is also cut in the middle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from skipstone.live import LiveTable
from skipstone.live.directories import unnamed
from skipstone.questdb.format.txn import Partitioning
from tests.live.tables import DAY, SCHEMA, keys, rows, run, snapshot
from tests.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator


# Forks for each request: starting Python and Arrow takes longer than everything else here.
SERVER = """
import json, os, signal, sys
import pandas  # pyarrow does, in each fork: most of its time
from tests.live.test_kill import OPERATIONS, stop_at
for line in sys.stdin:
    root, operation, step, torn = json.loads(line)
    child = os.fork()
    if not child:
        stop_at(step, torn)
        try:
            OPERATIONS[operation](root)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

pytestmark = pytest.mark.slow

STEPS = ("pwrite", "writev", "fsync", "ftruncate", "mkdir", "rename", "unlink", "rmdir", "open")


def stop_at(step: int, torn: bool) -> None:
    """From now on, the process ends before its step number ``step``; torn: within that write.

    Nothing is really synced: it is the process that dies here, not the machine.
    """
    count = 0

    def counted(name: str) -> None:
        real: Any = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            if name == "pwrite" and bytes(arguments[1])[:7] == b"process":
                return real(*arguments)  # the text in the lock's file, which nobody depends on
            if name != "open" or arguments[1] & (os.O_CREAT | os.O_TRUNC):
                if count == step:
                    if torn:
                        many = name == "writev"
                        whole = b"".join(arguments[1]) if many else bytes(arguments[1])
                        half = whole[: len(whole) // 2]
                        real(arguments[0], [half] if many else half, *arguments[2:])
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
            return None if name == "fsync" else real(*arguments, **options)

        setattr(os, name, call)

    for name in STEPS[:2] if torn else STEPS:
        counted(name)


def create(root: str) -> None:
    LiveTable.create(root, SCHEMA, timestamp="ts", row_group_rows=10, bloom_filters=["key"])


def append(root: str) -> None:
    """In order, late, and into a new partition, all in one commit."""
    with LiveTable.open(root) as table:
        table.append(rows(3_500_000, 60_000_000, 2 * DAY, first=100), batch_id=7)


def replace(root: str) -> None:
    with LiveTable.open(root) as table:
        table.replace("1970-01-01", 1, run(12, start=10_000_000, step=800_000, first=200))


def compact(root: str) -> None:
    with LiveTable.open(root) as table:
        table.compact("1970-01-01")


def vacuum(root: str) -> None:
    with LiveTable.open(root) as table:
        table.vacuum(older_than=-1)


def reopen(root: str) -> None:
    LiveTable.open(root).close()


OPERATIONS = {
    "create": create,
    "append": append,
    "replace": replace,
    "compact": compact,
    "vacuum": vacuum,
    "reopen": reopen,
}
BASE = list(range(40))
AFTER = {
    "append": [*BASE, 100, 101, 102],
    "replace": [*range(10), *range(20, 40), *range(200, 212)],
}


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


def ended(server: subprocess.Popen[str], root: Path, operation: str, step: int, torn: bool) -> bool:
    """Run it; True where it came to its end."""
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps([str(root), operation, step, torn]), file=server.stdin, flush=True)
    code = int(server.stdout.readline())
    assert code in (0, -signal.SIGKILL)
    return code == 0


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days: row groups of 10 and 10, then 10; an older directory, and dead bytes."""
    root = tmp_path_factory.mktemp("live") / "base"
    create(str(root))
    with LiveTable.open(str(root)) as table:
        table.append(run(10))
        table.compact("1970-01-01")
        table.append(run(20, start=10_000_000, first=10))
        table.append(run(10, start=DAY - 5_000_000, first=30), batch_id=3)
    assert keys(root) == BASE
    return root


@pytest.fixture(scope="module")
def torn_base(base: Path, server: subprocess.Popen[str]) -> Path:
    """As ``base``, and an append that died before its commit, with a new directory."""
    root = base.with_name("torn")
    step = 0
    while not (root / "1970-01-03").exists() or not (root / "1970-01-03" / "_pm").exists():
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)
        assert not ended(server, root, "append", step, False)
        step += 1
    sizes = {file.path: file.size for file in snapshot(root).files}
    assert any(Path(path).stat().st_size > size for path, size in sizes.items())
    return root


def on_disk(root: Path) -> bytes:
    """A digest of everything below ``root`` but the number of the process in the lock's file."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        text = b"process" if data.startswith(b"process") else data
        found.update(repr((str(path.relative_to(root)), path.is_dir(), text)).encode())
    return found.digest()


def assert_whole(root: Path, expected: list[list[int]], seen: dict[bytes, list[int]]) -> list[int]:
    """Readers see one of the expected states; then a writer opens it and goes on. What is on disk
    as after an earlier step, such as before and after an fsync, was ``seen`` then."""
    state = on_disk(root)
    if state not in seen:
        seen[state] = _assert_whole(root, expected)
    return seen[state]


def _assert_whole(root: Path, expected: list[list[int]]) -> list[int]:
    found = keys(root)
    assert found in expected
    with LiveTable.open(str(root), durable=False) as table:
        assert keys(root) == found
        for file in snapshot(root).files:
            assert Path(file.path).stat().st_size == file.size
            assert pq.read_metadata(file.path).num_rows == file.rows
        left = unnamed(str(root), table.txn, Partitioning("day"))
        assert left.never_committed == ()
        table.append(rows(5_000_000, 70_000_000, 2 * DAY + 1, first=500))
    assert keys(root) == [*found, 500, 501, 502]
    return found


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("operation", ["append", "replace", "compact"])
def test_every_step(
    operation: str, torn: bool, base: Path, server: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The old rows up to a step, the new ones from there on, never anything else."""
    new = AFTER.get(operation, BASE)
    states, seen, done, step = list[list[int]](), dict[bytes, list[int]](), False, 0
    while not done:
        root = tmp_path / str(step)
        shutil.copytree(base, root)
        done = ended(server, root, operation, step, torn)
        states.append(assert_whole(root, [BASE, new], seen))
        step += 1
        shutil.rmtree(root)
    assert step > (1 if torn else 5)
    assert states[-1] == new
    assert states == sorted(states, key=lambda each: each != BASE)


def test_every_step_of_a_vacuum(base: Path, server: subprocess.Popen[str], tmp_path: Path) -> None:
    """Its old directories may be half gone; nobody reads them any more, and the next goes on."""
    seen, done, step = dict[bytes, list[int]](), False, 0
    while not done:
        root = tmp_path / str(step)
        shutil.copytree(base, root)
        done = ended(server, root, "vacuum", step, False)
        assert assert_whole(root, [BASE], seen) == BASE
        vacuum(str(root))
        assert not (root / "1970-01-01").exists()
        step += 1
    assert step > 4


def test_every_step_of_clearing_up(
    torn_base: Path, server: subprocess.Popen[str], tmp_path: Path
) -> None:
    """A writer that dies while it clears up after another one: the next goes on with it."""
    seen, done, step = dict[bytes, list[int]](), False, 0
    while not done:
        root = tmp_path / str(step)
        shutil.copytree(torn_base, root)
        done = ended(server, root, "reopen", step, False)
        assert assert_whole(root, [BASE], seen) == BASE
        step += 1
    assert step > 4


def test_every_step_of_creation(server: subprocess.Popen[str], tmp_path: Path) -> None:
    """No table, or an empty one: the same call makes it, or it opens."""
    done, step = False, 0
    while not done:
        root = tmp_path / str(step)
        done = ended(server, root, "create", step, False)
        if not (root / "_live.json").exists():
            create(str(root))
        with LiveTable.open(str(root)) as table:
            table.append(run(5))
        assert keys(root) == [0, 1, 2, 3, 4]
        step += 1
    assert step > 5


def test_a_batch_that_was_killed_is_repeated_once(
    base: Path, server: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Whenever the process died: the same batch sent again brings its rows exactly once."""
    done, step = False, 0
    while not done:
        root = tmp_path / str(step)
        shutil.copytree(base, root)
        done = ended(server, root, "append", step, False)
        append(str(root))
        assert keys(root) == AFTER["append"]
        step += 0 if done else 4
        shutil.rmtree(root)
