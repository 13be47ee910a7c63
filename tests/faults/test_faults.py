"""A few of the faults of ``make faults``, and that every verb has its case there."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

import skipstone
from skipstone import LiveTable, Table, rewrite
from skipstone.cli import VERBS
from tests.faults import shim
from tests.faults.__main__ import main
from tests.faults.power import OPEN, RENAME, SYNC, WRITE, Call, Medium
from tests.faults.registry import READING, covered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

needs_shim = pytest.mark.skipif(shim.compiler() is None, reason="no C compiler, or no Linux")


def public(names: Iterable[str], prefix: str = "") -> set[str]:
    return {prefix + name for name in names if not name.startswith("_")}


def test_every_verb_has_its_faults_or_only_reads() -> None:
    methods = public(
        name for each in Table.__mro__[:-1] for name in vars(each) if callable(vars(each)[name])
    )
    live = public(n for n in vars(LiveTable) if not isinstance(vars(LiveTable)[n], property))
    functions = {name for name in skipstone.__all__ if name.islower()}
    rewriting = {name for name in rewrite.__all__ if name.islower()}
    verbs = {
        *(verb.replace("-", "_") for verb in VERBS),
        *methods,
        *functions,
        *(f"LiveTable.{name}" for name in live),
        *(f"rewrite.{name}" for name in rewriting),
    }
    assert covered() & READING == set()
    assert verbs - covered() - READING == set(), "a case in tests/faults, or a name in READING"
    assert (covered() | READING) - verbs == {"upgrade_store"}


@needs_shim
def test_some_faults_of_every_case(tmp_path: Path) -> None:
    """One step in this many, in each case; ``make faults`` does all."""
    cases = "export questdb,encrypt of a file,split_columns,salvage of,upgrade to other"
    faults = "kill,torn,ENOSPC,EIO,EACCES,SIGINT,SIGTERM,EIO on reads,loss of power"
    given = ["--cases", cases, "--faults", faults, "--every", "13", "--drawn", "0"]
    assert main([*given, "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["findings"] == []
    assert summary["all_trials"] > 30
    assert summary["trials"].keys() >= {"kill", "torn", "ENOSPC", "EIO", "SIGINT", "loss of power"}


@pytest.mark.long
@needs_shim
def test_some_verbs_between_steps_of_others_and_some_faults_of_a_store(tmp_path: Path) -> None:
    cases = "compact during query of all,a file replaced during count,refresh during build"
    faults = (
        "index changes during readers,files that change during readers,builders beside each other"
    )
    remote = "S3: reset,S3: short body,S3: 500"
    given = ["--cases", f"{cases},S3 export xskipper", "--faults", f"{faults},{remote}"]
    assert main([*given, "--every", "97", "--seed", "4", "--out", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["findings"] == []
    assert summary["trials"].keys() >= {*faults.split(","), *remote.split(",")}


@needs_shim
def test_what_goes_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that neither syncs nor cleans up."""
    monkeypatch.setenv("SKIPSTONE_TEST_FAULTS_BAD", "1")
    assert main(["--cases", "careless", "--out", str(tmp_path)]) == 1
    told = "\n".join(json.loads((tmp_path / "summary.json").read_text())["findings"])
    for fault in ("kill at step", "ENOSPC at step", "EIO at step", "loss of power"):
        assert fault in told


def test_what_power_takes(tmp_path: Path) -> None:
    """Bytes that were not synced, and names of directories that were not."""
    root = str(tmp_path)
    medium = Medium(root, {})
    steps = [
        Call(OPEN, f"{root}/a", "", 0, 0, b""),
        Call(WRITE, f"{root}/a", "", 0, 2, b"xy"),
        Call(RENAME, f"{root}/a", f"{root}/b", 0, 0, b""),
    ]
    for each in steps:
        medium.apply(each)
    nothing, names, zeros = medium.states(Random(0), 0)
    assert (nothing, names, zeros) == ({}, {"b": b""}, {"b": b"\0\0"})
    medium.apply(Call(SYNC, root, "", 0, 0, b""))
    assert next(medium.states(Random(0), 0)) == {"b": b""}
    medium.apply(Call(SYNC, f"{root}/b", "", 0, 0, b""))
    assert next(medium.states(Random(0), 0)) == {"b": b"xy"}
