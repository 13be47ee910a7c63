"""Runs of ``exercise`` in processes of their own, and what must come of each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.folders import GOLDEN, ROOT
from tests.fuzz.batteries import BATTERIES
from tests.fuzz.corpus import golden_corpus
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GOLDEN", "exercised", "golden_files", "sound"]


def golden_files(**sizes: int) -> list[Path]:
    """The golden files of these sizes; skips where there are none."""
    if not GOLDEN.is_dir():
        pytest.skip("no golden files: ../shared/golden is absent")
    return golden_corpus(GOLDEN, **sizes)


def exercised(
    scratch: Path, files: list[Path], *, count: int, seed: int, **settings: Any
) -> dict[str, Any]:
    """``count`` mutations of ``files``; fails where the process did not live to report."""
    plan = {
        "count": count,
        "seed": seed,
        "scratch": str(scratch),
        "files": [str(path) for path in files],
        "batteries": list(BATTERIES),
        **settings,
    }
    path = scratch / "plan.json"
    path.write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.exercise", str(path)],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    last = scratch / "last.txt"
    said = last.read_text() if last.is_file() else "nothing was tried"
    assert done.returncode == 0, f"ended at {said}:\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sound(found: dict[str, Any], count: int) -> None:
    """Nearly all were tried (one file is not decoded), some refused, some read, none failed."""
    assert not found["failures"], json.dumps(found["failures"][:5], indent=1)
    assert found["tried"] >= count * 0.99, found
    assert found["refused"] > count / 10, found
    assert found["read"] > count / 10, found
    # Most errors know their place.
    assert found["with offset"] > found["FormatError"] / 2, found
