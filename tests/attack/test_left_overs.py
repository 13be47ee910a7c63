"""What commands leave that are killed or whose disk is full, and what removes it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table, write_table
from skipstone.rewrite import retrofit
from tests.processes import environment, killed_before_step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = b"0123456789012345"

#: each verb runs once whole, then again where it writes the same files
_VERBS = f"""{killed_before_step("rename")}
from pathlib import Path
from skipstone import Encryption, Table
from tests.parquet.encryption.keys import InMemoryKms

home, verb = Path(sys.argv[1]), sys.argv[3]
table = Table(str(home / "t"))
kms = InMemoryKms({{"m": b"{KEY.decode()}"}})
outside = Encryption(kms=kms, footer_key_id="m", internal_key_material=False)
match verb:
    case "build":
        table.build(None, ["id:bloom"])
    case "paimon" | "questdb":
        table.export(str(home / "out"), kind=verb)
    case "xskipper":
        table.export()
    case "compact":
        table.compact()
    case "metadata":
        table.write_metadata()
    case "migrate":
        table.migrate()
    case "keys":
        table.encrypt(encryption=outside)
    case "retrofit":
        table.retrofit(bloom={{"id": 0.01}})
print("done", flush=True)
"""

VERBS = {
    "build": 2,
    "paimon": 2,
    "questdb": 2,
    "xskipper": 1,
    "compact": 2,
    "metadata": 2,
    "migrate": 2,
    "keys": 2,
    "retrofit": 1,
}


def lay_out(home: Path) -> Table:
    (home / "t").mkdir(parents=True)
    for at in range(2):
        path = home / "t" / f"p{at}.parquet"
        rows = {"id": [at * 100 + i for i in range(100)], "s": [f"v{i % 9}" for i in range(100)]}
        pq.write_table(pa.table(rows), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    table = Table(str(home / "t"))
    for index in ("id:minmax", "s:bitmap"):
        table.build(None, [index])
    return table


def left(home: Path) -> list[str]:
    return [str(each.relative_to(home)) for each in home.rglob("_tmp-*")]


def run(home: Path, verb: str, steps: int) -> int:
    code = [sys.executable, "-c", _VERBS, str(home), str(steps), verb]
    done = subprocess.run(code, check=False, env=environment(), capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("verb", VERBS)
def test_the_next_run_and_vacuum_remove_what_a_killed_one_left(tmp_path: Path, verb: str) -> None:
    for step in range(VERBS[verb]):
        home = tmp_path / str(step)
        table = lay_out(home)
        if verb == "compact":
            table.export()
        assert run(home, verb, step) == -signal.SIGKILL
        some = left(home)  # of several writers at once
        assert some
        if step == 0:
            assert run(home, verb, 1_000) == 0
        else:
            table.vacuum(timedelta(0), dry_run=True)
            assert left(home) == some
            table.vacuum(timedelta(0))
            if verb in ("paimon", "questdb"):  # where they went to nobody knows
                assert run(home, verb, 1_000) == 0
        assert left(home) == []


def test_vacuum_spares_what_somebody_is_writing_and_what_others_made(tmp_path: Path) -> None:
    table = lay_out(tmp_path)
    root = tmp_path / "t"
    busy, draft = root / f"_tmp-a.parquet-{1:032x}", root / "_tmp-draft"
    busy.write_bytes(b"half")
    draft.write_bytes(b"precious")
    with busy.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert table.vacuum(timedelta(0)).removed == ()
    assert table.vacuum(timedelta(1)).removed == ()
    assert table.vacuum(timedelta(0)).removed == (str(busy),)
    assert draft.exists()


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The disk is full after so many writes."""
    write, done = os.writev, 0

    def writev(descriptor: int, pieces: list[bytes]) -> int:
        nonlocal done
        done += 1
        if done > writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, pieces)

    monkeypatch.setattr(os, "writev", writev)


@pytest.mark.parametrize("writes", [0, 1])
def test_a_build_that_fills_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    table = lay_out(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    # A container of more than 500 bytes: it lies in a pack, which is written before the part.
    with monkeypatch.context() as full:
        full_after(full, writes)
        with pytest.raises(OSError, match="No space left") as caught:
            table.build(None, ["s:paimonbloom(items=10000)"])
    assert "_t.skipstone" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert table.build(None, ["s:paimonbloom(items=10000)"]).files_built == 2
    assert len(list(tmp_path.rglob("*.pack"))) > sum(each.suffix == ".pack" for each in before)


@pytest.mark.parametrize("write", ["retrofit", "write_table"])
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    lay_out(tmp_path)
    path, new = tmp_path / "t" / "p0.parquet", tmp_path / "new.parquet"
    verbs: dict[str, Callable[[], object]] = {
        "retrofit": lambda: retrofit(path, bloom={"id": 0.01}, output=new),
        "write_table": lambda: write_table(pq.read_table(path), new),
    }
    full_after(monkeypatch, 0)
    with pytest.raises(OSError, match="No space left") as caught:
        verbs[write]()
    assert caught.value.filename == str(new)
    assert not new.exists()
    assert left(tmp_path) == []
