"""Damaged `_pm` and `_txn` files: refused with their file and place, or read, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.fuzzing import GOLDEN, exercised, sound
from tests.fuzz.questdb import PM, TXN

if TYPE_CHECKING:
    from pathlib import Path

# In every run; `make fuzz` takes many more.
COUNT = 3_000
_MOST = 16 << 10


def files(suffix: str) -> list[Path]:
    folder = GOLDEN / "questdb"
    if not folder.is_dir():
        pytest.skip("no golden files: ../shared/golden is absent")
    found = sorted(path for path in folder.rglob(f"*{suffix}") if path.stat().st_size <= _MOST)
    # Damage to what is refused anyway says little.
    return [path for path in found if not path.name.startswith("bad_")]


def test_damaged_pm_files(tmp_path: Path) -> None:
    found = exercised(tmp_path, files(".pm"), count=COUNT, seed=0, batteries=list(PM))
    sound(found, COUNT)


def test_damaged_txn_files(tmp_path: Path) -> None:
    found = exercised(tmp_path, files("._txn"), count=COUNT, seed=0, batteries=list(TXN))
    assert not found["failures"], json.dumps(found["failures"][:5], indent=1)
    assert found["tried"] == COUNT
    assert min(found["refused"], found["read"]) > COUNT / 10, found


@pytest.mark.fuzz
@pytest.mark.soak
@pytest.mark.parametrize("seed", [1_000_000, 2_000_000])
def test_many_damaged_pm_files(tmp_path: Path, seed: int) -> None:
    count = 50 * COUNT
    sound(exercised(tmp_path, files(".pm"), count=count, seed=seed, batteries=list(PM)), count)


@pytest.mark.fuzz
@pytest.mark.soak
def test_many_damaged_txn_files(tmp_path: Path) -> None:
    count = 100 * COUNT
    found = exercised(tmp_path, files("._txn"), count=count, seed=1_000_000, batteries=list(TXN))
    assert not found["failures"], json.dumps(found["failures"][:5], indent=1)
    assert found["tried"] == count
