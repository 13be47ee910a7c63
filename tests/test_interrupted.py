"""Builds that are killed, and builds that meet: what was finished counts, and nothing is lost.

Real processes of the command line, ended by signal 9 as soon as the first part is published, or
between a pack and the part that would name it. After that every answer is still right, and the next
build or refresh does the rest and no more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from skipstone import Table
from skipstone.pruning import Cause
from skipstone.pruning.costs import FREE
from skipstone.table import planning
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


def test_an_interrupt_keeps_the_files_that_are_finished(tmp_path: Path) -> None:
    """Ctrl-C when five of 60 files are done: their facts are published."""
    root = tmp_path / "events"
    lay_out(root, range(FILES))

    def interrupt(done: int, _: int) -> None:
        if done == 5:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Table(str(root)).build(indexes=["id:bloom"], progress=interrupt)
    table = Table(str(root))
    assert table.describe().fresh >= 5
    assert_right(root, range(FILES))
    report = table.build(indexes=["id:bloom"])
    assert report.files_already >= 5
    assert report.files_already + report.files_built == FILES


def test_an_interrupted_command_ends_with_130_and_says_what_holds(tmp_path: Path) -> None:
    root = tmp_path / "events"
    lay_out(root, range(4))
    code = (
        "import os, signal, sys; from skipstone import cli; from skipstone.table import Table\n"
        "def hang(*_, **__): os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(60)\n"
        "Table.build = hang; sys.argv[0] = 'skipstone'; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "build", str(root), "-c", "id:bloom"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.splitlines()[-2:] == [
        "error: interrupted",
        "hint: files that were finished are kept: the same command continues from there",
    ]


@pytest.mark.parametrize("arguments", [["--csv"], [], ["--json"], ["--help"]])
def test_a_closed_pipe_is_no_failure(tmp_path: Path, arguments: list[str]) -> None:
    root = tmp_path / "events"
    lay_out(root, range(4))
    process = subprocess.Popen(
        [sys.executable, "-m", "skipstone", "query", str(root), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (0, b"")


def test_without_a_reader_of_its_errors_a_verb_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "events"
    lay_out(root, range(4))
    (root / "torn.parquet").write_bytes(b"PAR1 torn")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", "build", str(root), "-c", "id:minmax", "--json"],
        stdout=subprocess.PIPE,
        stderr=writer,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    os.close(writer)
    assert (done.returncode, json.loads(done.stdout)["files_built"]) == (3, 4)


def test_without_a_reader_of_its_errors_a_verb_fails_as_it_should(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", "count", str(tmp_path / "nothing")],
        stderr=writer,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1


def test_a_connection_that_breaks_is_an_error(tmp_path: Path) -> None:
    """It is no closed stdout, which ends in silence."""
    root = tmp_path / "events"
    lay_out(root, range(1))
    text = "def client():\n    raise BrokenPipeError(32, 'gone')\n"
    (tmp_path / "broken_kms.py").write_text(text)
    arguments = ["rekey", str(next(root.iterdir())), "--kms", "broken_kms:client"]
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    said = "the KMS client 'broken_kms:client' cannot be made: BrokenPipeError: [Errno 32] gone"
    assert done.stderr.splitlines()[0] == f"error: {said}"


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


# -- row indexes: packs beside the parts -----------------------------------------------------------

ROWS = ["id:bitmap", "n:rangebitmap", "id:minmax"]

# The worst moment there is: the pack is there, and the part that would name it is not.
DIES = """
import os, signal, sys, threading
from skipstone import Table
from skipstone.storage import LocalStorage
put, parts, one = LocalStorage.put, [], threading.Lock()

def dying(self, path, data, sources=()):
    if "/facts/part-" not in path:
        return put(self, path, data, sources)
    with one:
        if len(parts) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, path, data, sources)
        parts.append(path)

LocalStorage.put = dying
table = Table(sys.argv[1])
table.build(indexes=sys.argv[3:]) if sys.argv[3:] else table.refresh()
"""


def killed_before_part(root: Path, number: int, *indexes: str) -> None:
    """A build, or a refresh, that is killed when its part after the ``number``th would come."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(root), str(number), *indexes],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def packs(root: Path) -> set[str]:
    folder = root.parent / f"_{root.name}.skipstone" / "packs"
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def named_packs(root: Path) -> set[str]:
    """The packs that facts name; every one of them is there."""
    snapshot = Table(str(root)).store.snapshot()
    assert {reason.cause for reason in snapshot.reasons} <= {Cause.ABSENT}
    named = set(snapshot.own("skipstone_container_pack").to_pylist()) - {None}
    assert named <= packs(root)
    return named


def assert_rows_right(root: Path, numbers: range) -> None:
    """Rows of plans and counts are those of brute force, whatever is indexed."""
    table = Table(str(root))
    names = [path.rpartition("/")[2] for path in table.listing().paths]
    assert len(names) == len(numbers)
    for number in list(numbers)[::7]:
        where = f"id = {5000 + number} AND n = {number}"
        plan = table.plan(where)
        assert plan.keep[names.index(f"part {number:03d}.parquet")]
        assert table.count(where) == 1
        for file, detail in plan.details.items():
            if plan.keep[file] and detail.exact and detail.rows is not None:
                assert detail.rows.positions().tolist() == [5]
    assert table.count("n < 3") == PER_FILE * len([n for n in numbers if n < 3])


@pytest.mark.parametrize("finished", [0, 1])
def test_a_build_killed_between_pack_and_part(tmp_path: Path, finished: int) -> None:
    """8 files in two shares; with ``finished`` one share has its part, the other only its pack."""
    root, numbers = tmp_path / "events", range(8)
    lay_out(root, numbers)
    killed_before_part(root, finished, *ROWS)
    named = named_packs(root)
    orphans = packs(root) - named
    assert orphans
    assert (len(named) > 0) == (finished > 0)
    assert_rows_right(root, numbers)
    done = int(Table(str(root)).describe().fresh)
    assert (done > 0) == (finished > 0)

    report = Table(str(root)).build(indexes=ROWS)
    assert (report.files_built, report.files_already) == (8 - done, done)
    assert_all_indexed(root, numbers)
    assert orphans.isdisjoint(named_packs(root))

    assert_vacuum_takes(root, orphans)
    assert_all_indexed(root, numbers)


def test_a_refresh_killed_between_pack_and_part(tmp_path: Path) -> None:
    """4 files are indexed, 4 come; what was there before stays, and so does its pack."""
    root = tmp_path / "events"
    lay_out(root, range(4))
    Table(str(root)).build(indexes=ROWS)
    before = named_packs(root)
    lay_out(root, range(4, 8))
    killed_before_part(root, 0)
    assert named_packs(root) == before
    orphans = packs(root) - before
    assert orphans
    assert_rows_right(root, range(8))
    assert Table(str(root)).refresh().files_built == 4
    Table(str(root)).compact()
    assert_all_indexed(root, range(8))
    assert_vacuum_takes(root, orphans)
    assert_all_indexed(root, range(8))


def test_a_build_of_rows_killed_anywhere(tmp_path: Path) -> None:
    """60 files; killed as soon as a pack is there, whatever else is by then."""
    root, numbers = tmp_path / "events", range(FILES)
    lay_out(root, numbers)
    process = build(root, "build", "--no-spark", *(x for each in ROWS for x in ("-c", each)))
    while process.poll() is None and not any(name.endswith(".pack") for name in packs(root)):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    named_packs(root)
    assert_rows_right(root, numbers)
    Table(str(root)).build(indexes=ROWS)
    assert_all_indexed(root, numbers)


def assert_all_indexed(root: Path, numbers: range) -> None:
    """Every file has every index, every index its blob, and all rows are decided."""
    table = Table(str(root))
    assert all(index.files == len(numbers) for index in table.describe().indexes)
    assert table.refresh().files_built == 0
    matched = table.match(table.listing())
    assert matched.has_sidecar("container")[matched.file_of_row >= 0].all()
    with pytest.MonkeyPatch.context() as patch:  # small files are read in less time
        patch.setattr(planning, "_costs", lambda *_: FREE)
        plan = table.plan(f"id = {5000 + numbers[-1]} AND n > 0")
    assert (plan.files_kept, plan.count()) == (1, 1)
    assert_rows_right(root, numbers)
    assert table.check(deep=True, sample=2).ok


def assert_vacuum_takes(root: Path, orphans: set[str]) -> None:
    """A vacuum leaves orphans alone until they are a day old, and never takes anything else."""
    folder = root.parent / f"_{root.name}.skipstone" / "packs"
    removed = Table(str(root)).vacuum().removed
    assert not any(path.endswith(".pack") for path in removed)
    for name in packs(root):  # those that are named are as old
        then = time.time() - 25 * 60 * 60
        os.utime(folder / name, (then, then))
    # What was killed while it wrote left a temporary file, which the next build has removed.
    left = orphans & packs(root)
    removed = Table(str(root)).vacuum().removed
    gone = {path.rpartition("/")[2] for path in removed}
    assert gone >= left
    assert orphans.isdisjoint(packs(root))
    assert gone.isdisjoint(named_packs(root))
    assert packs(root) == named_packs(root)
