"""The values that go to and fro between the planner and what it asks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from skipstone.pruning import Answer, Cause, Level, Reason, Units
from skipstone.storage import ByteRange


def test_levels_go_from_coarse_to_fine_and_name_their_units() -> None:
    assert [level.unit for level in sorted(Level)] == ["files", "row groups", "pages", "rows"]
    assert Level.OBJECT < Level.ROW_GROUP < Level.PAGE < Level.ROW


def test_a_reason_reads_as_a_sentence_with_its_count() -> None:
    reason = Reason(cause=Cause.STALE, subject="bloom(id)", text="12 files changed", units=1200)
    assert str(reason) == "bloom(id): 12 files changed (1,200)"
    assert str(Reason(cause=Cause.ABSENT, subject="bloom(id)", text="not built")) == (
        "bloom(id): not built"
    )
    assert pickle.loads(pickle.dumps(reason)) == reason
    assert len({reason, pickle.loads(pickle.dumps(reason))}) == 1


def test_a_silent_answer_has_its_reason() -> None:
    answer = Answer.silent(Cause.CORRUPT, "bloom(id)", "bad magic", 7)
    assert answer.bounds is None
    assert answer.reasons == (
        Reason(cause=Cause.CORRUPT, subject="bloom(id)", text="bad magic", units=7),
    )


def test_byte_ranges_sort_by_place_and_are_never_negative() -> None:
    parts = [ByteRange("b", 0, 1), ByteRange("a", 9, 1), ByteRange("a", 0, 5), ByteRange("a", 0, 4)]
    assert [(p.path, p.offset, p.length) for p in sorted(parts)] == [
        ("a", 0, 4),
        ("a", 0, 5),
        ("a", 9, 1),
        ("b", 0, 1),
    ]
    assert ByteRange("a", 0, 0) in {ByteRange("a", 0, 0)}
    for offset, length in ((-1, 4), (0, -1)):
        with pytest.raises(ValueError, match=f"offset {offset}, length {length}"):
            ByteRange("a", offset, length)


def test_units_are_selected_by_mask_and_by_position() -> None:
    units = Units.objects(np.array([4, 7, 9]), np.array([10, -1, 0]))
    assert len(units) == 3
    assert units.level is Level.OBJECT
    for part in (units.where(np.array([True, False, True])), units.where(np.array([0, 2]))):
        assert part.level is Level.OBJECT
        assert part.file.tolist() == [4, 9]
        assert part.rows.tolist() == [10, 0]
        assert part.ordinal.tolist() == part.first_row.tolist() == [0, 0]
    assert len(units.where(np.zeros(3, np.bool_))) == 0
