"""Files that QuestDB's own writer made, and what its two readers said of each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from skipstone.errors import FormatError, UnsupportedError
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.values import PmHead
from skipstone.questdb.format.writer import PmFooter, append
from tests.questdb.format.converting import pm_of
from tests.questdb.format.golden import case, described, names
from tests.questdb.format.writing import numbered, read_row_groups, rewrite, unreferenced, write

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.questdb.format.pm import PmSnapshot


def test_good_files_decode_to_what_was_recorded(golden: Path) -> None:
    for name in names(golden, good=True):
        data, recorded = case(golden, name)
        pm = Pm(data, file=name)
        assert described(pm, pm.snapshot()) == recorded["dump"], name


def test_every_snapshot_is_found_by_its_parquet_size_or_refused_as_recorded(golden: Path) -> None:
    found = refused = 0
    for name in [*names(golden, good=True), "bad_prev_self", "bad_prev_garbage"]:
        data, recorded = case(golden, name)
        for size, dump in recorded["by_parquet_size"].items():
            pm = Pm(data, file=name)
            if "error" in dump:
                with pytest.raises(FormatError):
                    pm.snapshot(int(size))
                refused += 1
            else:
                assert described(pm, pm.snapshot(int(size))) == dump, (name, size)
                found += 1
    assert (found > 30, refused > 5) == (True, True)


def test_the_java_reader_resolves_the_same_snapshots(golden: Path) -> None:
    for name in names(golden, good=True):
        data, recorded = case(golden, name)
        pm = Pm(data, file=name)
        for size, java in recorded["java"].items():
            if not java["ok"]:
                with pytest.raises(FormatError):
                    pm.snapshot(int(size))
                continue
            snapshot = pm.snapshot(None if size == "last" else int(size))
            assert list(pm.names) == java["names"]
            assert snapshot.num_rows.tolist() == java["rowGroupSizes"]
            assert snapshot.size == java["resolvedFileSize"]
            assert snapshot.unused_bytes == java["unusedBytes"]
            assert pm.designated_timestamp == java["designatedTimestamp"]
            assert len(pm.sorting_columns) == java["sortingColumnCount"]


# These open at the newest snapshot, as the real readers find: only what lies behind it is broken.
_NEWEST_IS_WHOLE = {"bad_prev_self", "bad_prev_garbage"}


def test_bad_files_are_refused(golden: Path) -> None:
    refused = {}
    for name in names(golden, good=False):
        data, _ = case(golden, name)
        try:
            pm = Pm(data, file=name)
            snapshot = pm.snapshot()
            snapshot.verify()
            assert pm.names
            read_row_groups(snapshot)
        except (FormatError, UnsupportedError) as error:
            refused[name] = str(error)
    assert set(names(golden, good=False)) - set(refused) == _NEWEST_IS_WHOLE
    assert all(name in message for name, message in refused.items())
    assert "bad_footer_length_plus8" in refused  # both real readers take it, as 0 row groups


def test_required_flags_are_unsupported_and_not_damage(golden: Path) -> None:
    for name in ("bad_required_header_flag", "bad_required_footer_flag"):
        data, _ = case(golden, name)
        with pytest.raises(UnsupportedError, match="required"):
            Pm(data).snapshot()


def test_damage_in_a_later_snapshot_leaves_the_earlier_ones_whole(golden: Path) -> None:
    data, recorded = case(golden, "bad_dead_block_flip")
    pm = Pm(data)
    for size, dump in recorded["by_parquet_size"].items():
        snapshot = pm.snapshot(int(size))
        if "error" in dump:
            with pytest.raises(FormatError, match="CRC32"):
                snapshot.verify()
        else:
            assert described(pm, snapshot) == dump


def oldest_first(pm: Pm) -> list[PmSnapshot]:
    return list(pm.snapshots())[::-1]


def test_what_was_decoded_is_written_back_byte_for_byte(golden: Path) -> None:
    for name in names(golden, good=True):
        data, _ = case(golden, name)
        pm = Pm(data, file=name)
        by_column = name.startswith("convert") or name == "bloom_inlined_convert_order"
        first, *later = oldest_first(pm)
        fresh = write(
            PmHead.of(pm),
            read_row_groups(first),
            PmFooter.of(first),
            by_column=by_column,
            rests=unreferenced(first),
        )
        assert fresh[8:] == data[8 : first.size], name
        if not later:
            assert fresh == data[: pm.size]
        before = first
        for after in later:
            # The update began where the committed size was; past a dead footer that is later.
            base = 764 if name == "dead_footer_appended_past" else before.size
            opened = Pm(struct.pack("<Q", base) + data[8:base]).snapshot(before.parquet_size)
            kept = before.block_offsets.tolist()
            blocks = zip(read_row_groups(after), unreferenced(after), strict=True)
            items = [
                kept.index(at) if at in kept else block
                for at, block in zip(after.block_offsets.tolist(), blocks, strict=True)
            ]
            new, rests = zip(*[item for item in items if isinstance(item, tuple)], strict=True)
            made = Pm(write(PmHead.of(pm), new, PmFooter.of(after), rests=rests)).snapshot()
            added = append(opened, numbered(items, opened), PmFooter.of(after), made)
            assert added.offset == base
            assert (
                added.applied(opened.pm.data)
                == struct.pack("<Q", after.size) + data[8 : after.size]
            )
            before = after


def test_a_rewrite_says_the_same_without_predecessors(golden: Path) -> None:
    for name in names(golden, good=True):
        data, _ = case(golden, name)
        old = Pm(data).snapshot()
        new = Pm(rewrite(old)).snapshot()
        new.verify()
        assert new.previous_size == 0
        assert new.parquet_size == old.parquet_size
        assert PmHead.of(new.pm) == PmHead.of(old.pm)
        dropped = [group.chunks for group in read_row_groups(old)]
        assert [group.chunks for group in read_row_groups(new)] == dropped
        assert new.size <= old.size


def test_parquet_files_convert_to_the_recorded_bytes(golden: Path) -> None:
    converted = []
    for path in sorted((golden / "questdb").glob("convert_*.parquet")):
        data = path.read_bytes()
        recorded = path.with_suffix(".pm")
        if not recorded.exists():
            with pytest.raises(FormatError, match="another schema"):
                pm_of(data, blooms=False)
            continue
        assert pm_of(data, blooms=False) == recorded.read_bytes(), path.name
        converted.append(path.stem)
    assert len(converted) == 9
