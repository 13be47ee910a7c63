"""Damaged golden files of up to 64 kB: the second half of the mutations of every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.fuzzing import exercised, golden_files, sound

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 10_200


def test_damage_is_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    files = golden_files()
    assert len(set(files)) > 200
    found = exercised(tmp_path, files, count=COUNT, seed=1_000_000)
    sound(found, COUNT)
    assert found["tried"] >= 10_000
