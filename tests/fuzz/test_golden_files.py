"""Damaged golden files of up to 64 kB: every file once before every battery of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.batteries import BATTERIES
from tests.fuzz.fuzzing import exercised, golden_files, sound

if TYPE_CHECKING:
    from pathlib import Path

#: of 16,000 more, those that reach lines which no other test of a parser does
RARE = (
    4_831, 5_779, 5_801, 6_009, 6_620, 1_000_685, 1_000_711, 1_002_951, 1_005_327, 1_005_334,
    1_005_373, 1_005_526, 1_008_223,
)  # fmt: skip


@pytest.mark.long
def test_damage_is_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    """`make fuzz` and `make soak` damage each many times more: ``test_long.py``."""
    files = golden_files()
    assert len(set(files)) > 200
    count = len(files) * len(BATTERIES)
    found = exercised(tmp_path, files, count=count, seed=0, seeds=RARE)
    sound(found, count + len(RARE))
