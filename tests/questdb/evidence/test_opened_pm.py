"""Opening, keeping and damage: what cannot be read says nothing, and why."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, SkipstoneError
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Cause
from skipstone.questdb.evidence.opened_pm import OpenedPm, SnapshotCache, open_pm
from skipstone.questdb.format.pm import Pm, PmSnapshot
from skipstone.questdb.pm_file import PmFile
from tests.questdb.evidence.asked import ask
from tests.questdb.evidence.written import parquet
from tests.questdb.format.converting import pm_of

NAMES = [f"a name that is long enough {n:03d}" for n in range(9)]
DATA = parquet(pa.table({"s": NAMES, "n": pa.array(range(9), pa.int64())}), 3, questdb=True)
PM = pm_of(DATA)


def test_the_crc_is_verified_once_and_can_be_left_out() -> None:
    broken = bytearray(PM)
    broken[40] ^= 1  # the ID of the first column
    with pytest.raises(FormatError, match="CRC32"):
        open_pm(broken, parquet_size=len(DATA))
    assert Pm(broken).snapshot(len(DATA)).row_group_count == 3


def test_a_pm_of_another_version_of_the_file_is_refused() -> None:
    with pytest.raises(FormatError, match="no footer for a Parquet file"):
        open_pm(PM, parquet_size=len(DATA) + 1)


def test_opened_ones_are_kept_by_identity() -> None:
    kept, loads = SnapshotCache(most=2), []

    def load() -> bytes:
        loads.append(1)
        return PM

    first = kept.snapshot("a", load, parquet_size=len(DATA))
    assert kept.snapshot("a", load, parquet_size=len(DATA)) is first
    assert len(loads) == 1
    for key in ("b", "c"):
        kept.snapshot(key, load, parquet_size=len(DATA))
    assert (len(kept), len(loads)) == (2, 3)
    assert kept.snapshot("a", load, parquet_size=len(DATA)) is not first
    with pytest.raises(FormatError):
        kept.snapshot("d", lambda: PM[:50], parquet_size=len(DATA))
    assert len(kept) == 2


def test_what_fails_a_check_is_not_kept() -> None:
    kept, seen = SnapshotCache(), list[PmSnapshot]()

    def check(snapshot: PmSnapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 1:
            raise FormatError("of another partition")

    with pytest.raises(FormatError, match="of another partition"):
        kept.snapshot("a", lambda: PM, parquet_size=len(DATA), check=check)
    assert len(kept) == 0
    found = kept.snapshot("a", lambda: PM, parquet_size=len(DATA), check=check)
    assert kept.snapshot("a", lambda: PM, parquet_size=len(DATA), check=check) is found
    assert len(seen) == 2


def test_few_bytes_are_kept() -> None:
    kept = SnapshotCache(most_bytes=len(PM))
    for key in range(5):
        kept.snapshot(key, lambda: PM, parquet_size=len(DATA))
    assert len(kept) == 1


def test_a_damaged_statistic_silences_its_file_alone() -> None:
    """The minimum of the second row group of ``s`` leads out of the file; ``n`` is as good as ever,
    and so is the other file."""
    broken = bytearray(PM)
    snapshot = open_pm(PM, parquet_size=len(DATA))
    chunk = int(snapshot.block_offsets[1]) + 8
    struct.pack_into("<Q", broken, chunk + 48, 1 << 40 | 29)
    damaged = Pm(broken).snapshot(len(DATA))
    files = {0: OpenedPm.of(damaged, path="0"), 1: OpenedPm.of(snapshot, path="1")}
    found = ask(files, Leaf("s", pa.string(), Op.EQ, (NAMES[0],)))
    assert found.may == [True, True, True, True, False, False]
    assert [each.cause for each in found.reasons] == [Cause.ABSENT, Cause.CORRUPT]
    assert "MIN_STAT" in found.reasons[1].text
    assert ask(files, Leaf("n", pa.int64(), Op.EQ, (4,))).may == [False, True, False] * 2


def test_more_rows_than_can_be_are_refused() -> None:
    broken = bytearray(PM)
    snapshot = open_pm(PM, parquet_size=len(DATA))
    struct.pack_into("<Q", broken, int(snapshot.block_offsets[0]), 1 << 63)
    hostile = Pm(broken).snapshot(len(DATA))
    with pytest.raises(FormatError, match="NUM_ROWS"):
        OpenedPm.of(hostile, path="x")


LEAVES = (
    Leaf("s", pa.string(), Op.EQ, (NAMES[4],)),
    Leaf("s", pa.string(), Op.IS_NULL, ()),
    Leaf("n", pa.int64(), Op.GT, (5,)),
)


@given(
    flips=st.lists(
        st.tuples(st.integers(0, len(PM) - 1), st.integers(1, 255)), min_size=1, max_size=4
    )
)
def test_any_damage_is_refused_or_says_nothing(flips: list[tuple[int, int]]) -> None:
    broken = bytearray(PM)
    for at, mask in flips:
        broken[at] ^= mask
    try:
        file = OpenedPm.of(Pm(broken).snapshot(len(DATA)), path="x")
        list(file.columns)
    except SkipstoneError:
        return
    for leaf in LEAVES:
        found = ask(file, leaf)
        assert len(found.may) == file.snapshot.row_group_count
        assert all(may or not must for may, must in zip(found.may, found.must, strict=True))
    looked = PmFile(PM)
    looked.snapshot = file.snapshot
    try:
        looked.find_row_group(3, column=1)
        looked.describe()
    except SkipstoneError:
        return
