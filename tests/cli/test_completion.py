"""What a shell completes, asked as a shell asks, and in shells that run in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import termios
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Table
from skipstone.cli import cli
from tests.folders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# How long a shell may take to start and to complete; a test ends as soon as it has.
PATIENCE = 60
# What the start-up file of each shell has, and how the shell is told to read it.
SHELLS = {
    "bash": (".bashrc", "_SKIPSTONE_COMPLETE=bash_source", ("--rcfile", ".bashrc", "-i")),
    "zsh": (".zshrc", "_SKIPSTONE_COMPLETE=zsh_source", ("-i",)),
    "fish": (".config/fish/config.fish", "_SKIPSTONE_COMPLETE=fish_source", ("-i",)),
}
# A shell completes with Skipstone; what it would then call is written down.
PROGRAM = """#!/bin/sh
if [ -n "$_SKIPSTONE_COMPLETE" ]; then exec {python} -m skipstone "$@"; fi
for each; do printf '%s\\n' "$each"; done > called
mv called called-$1
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path / "lake" / "day=1"
    root.mkdir(parents=True)
    rows = pa.table({"user_id": ["a"], "user_name": ["b"], "n": [1], "place": [{"city": "x"}]})
    pq.write_table(rows, root / "part.parquet")
    (tmp_path / "lake/_hidden").mkdir()
    pq.write_table(pa.table({"hidden": [1]}), tmp_path / "lake/_hidden/0.parquet")
    return tmp_path / "lake"


def completed(words: str, last: str = "") -> list[str]:
    """What bash would offer for ``last`` after ``words``."""
    count = len(shlex.split(words))
    env = {
        "_SKIPSTONE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"{words} {last}",
        "COMP_CWORD": str(count),
    }
    done = CliRunner().invoke(cli, [], env=env, prog_name="skipstone")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_columns_and_kinds(lake: Path) -> None:
    build = f"skipstone build {lake} -c"
    assert completed(build, "us") == ["user_id:", "user_name:"]
    assert {"place.city:bitmap", "place.city:bloom"} <= {*completed(build, "pl")}
    assert completed(build, "n:min") == ["n:minmax"]
    assert "n:minmax,bitmap" in completed(build, "n:minmax,b")
    assert completed(f"skipstone query {lake} --columns", "n,us") == ["n,user_id", "n,user_name"]
    assert completed(f"skipstone query {lake}x --columns", "u") == []
    assert completed(f"skipstone query {lake} --columns", "d") == ["day"]  # of the folders
    assert completed(f"skipstone query {lake} --columns", "h") == []


def test_paths_verbs_and_indexes(lake: Path) -> None:
    done = CliRunner().invoke(
        cli,
        [],
        env={
            "_SKIPSTONE_COMPLETE": "bash_complete",
            "COMP_WORDS": "skipstone build la",
            "COMP_CWORD": "2",
        },
    )
    assert done.stdout == "file,la\n"
    assert completed("skipstone", "co") == ["count", "compact"]
    Table(str(lake)).build(indexes=["n:minmax", "user_id:bloom"])
    assert completed(f"skipstone drop {lake}", "n") == ["n:minmax"]


def ask_shell(shell: str, home: Path, lines: dict[str, list[str]]) -> dict[str, list[str]]:
    """Types each line and a tab in a shell that runs in a terminal; by verb, the words that the
    shell then calls Skipstone with."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    start, setup, options = SHELLS[shell]
    (home / start).parent.mkdir(parents=True, exist_ok=True)
    # The documented line.
    line = f"{setup} skipstone | source" if shell == "fish" else f'eval "$({setup} skipstone)"'
    assert line in (ROOT / "docs/cli.md").read_text("utf-8")
    (home / start).write_text(f"{line}\n")
    (home / "bin").mkdir()
    program = home / "bin/skipstone"
    program.write_text(PROGRAM.format(python=shlex.quote(sys.executable)))
    program.chmod(0o755)
    env = {
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "TERM": "vt100",
        "LANG": "C.UTF-8",
    }
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [path, *options],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=home,
        env=env,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    shown = b""

    def until(done: Path) -> None:
        nonlocal shown
        end = time.monotonic() + PATIENCE
        while not done.exists():
            assert time.monotonic() < end, shown[-2000:].decode(errors="replace")
            if select.select([master], [], [], 0.05)[0]:
                with suppress(OSError):
                    shown += os.read(master, 65_536)

    try:
        os.write(master, b"touch ready\r")
        until(home / "ready")
        for verb, (typed, *_) in lines.items():
            os.write(master, f"skipstone {typed}\t\r".encode())
            until(home / f"called-{verb}")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return {verb: (home / f"called-{verb}").read_text().splitlines() for verb in lines}


@pytest.mark.parametrize("shell", SHELLS)
def test_in_a_terminal(shell: str, tmp_path: Path) -> None:
    """Verbs, options, paths, columns (after a comma, and with a space) and index kinds."""
    (tmp_path / "lake").mkdir()
    rows = pa.table({"user_id": ["a"], "n": [1], "odd name": [1]})
    pq.write_table(rows, tmp_path / "lake/part.parquet")
    lines = {
        "describe": ["desc", "describe"],
        "count": ["count lake/p", "count", "lake/part.parquet"],
        "build": ["build lake -c n:minmax,bl", "build", "lake", "-c", "n:minmax,bloom"],
        "query": ["query lake --columns n,us", "query", "lake", "--columns", "n,user_id"],
        "explain": ["explain lake --columns od", "explain", "lake", "--columns", "odd name"],
        "check": ["check lake --index-loc", "check", "lake", "--index-location"],
        "advise": ["advise --index-location la", "advise", "--index-location", "lake"],
    }
    called = ask_shell(shell, tmp_path, lines)
    called["advise"][-1] = called["advise"][-1].removesuffix("/")  # zsh takes it away again
    assert called == {verb: each[1:] for verb, each in lines.items()}
