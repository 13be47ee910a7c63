"""Damaged files through all decoders: a table, FormatError, UnsupportedError, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from tests.folders import GOLDEN
from tests.parquet.format.files import golden_files, nested_types, written
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from tests.parquet.format.files import Written

pytestmark = pytest.mark.fuzz

# Small ones: most of their bytes mean something.
SEEDS = (
    [path.read_bytes() for path in sorted(golden_files(GOLDEN, largest=4000))]
    if GOLDEN.is_dir()
    else []
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A few bytes changed, cut out or doubled, half of the time in the footer."""
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        last = len(made) - 1
        low = draw(st.sampled_from([0, max(0, last - 600)]))
        at = draw(st.integers(low, last))
        match draw(st.sampled_from(["flip", "byte", "cut", "double"])):
            case "flip":
                made[at] ^= 1 << draw(st.integers(0, 7))
            case "byte":
                made[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case "cut":
                del made[at : at + draw(st.integers(1, 8))]
            case _:
                made[at:at] = made[at : at + draw(st.integers(1, 8))]
        if len(made) < 20:
            break
    return bytes(made)


def reads_or_says_why(data: bytes) -> bool:
    try:
        table = read_table(data)
    except (FormatError, UnsupportedError):
        return False
    table.validate()
    return True


@pytest.mark.skipif(not SEEDS, reason="no golden files: ../shared/golden is absent")
@given(st.data())
def test_damaged_golden_files(data: st.DataObject) -> None:
    for _ in range(10):
        seed = data.draw(st.sampled_from(SEEDS))
        changed = data.draw(damaged(seed))
        assert reads_or_says_why(changed) in (True, False)


@given(written(nested_types(max_leaves=3), max_rows=40), st.data())
def test_damaged_nested_files(file: Written, data: st.DataObject) -> None:
    if not file.data:
        return
    assert reads_or_says_why(file.data)
    for _ in range(5):
        assert reads_or_says_why(data.draw(damaged(file.data))) in (True, False)


def test_every_cut_of_a_file_is_refused() -> None:
    for seed in SEEDS[:3]:
        for cut in range(0, len(seed), 7):
            assert not reads_or_says_why(seed[:cut])
