"""Hostile `_pm` bytes: a value, FormatError or UnsupportedError; nothing else, and soon."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.values import PmColumn, PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.format.row_groups import PmChunk, PmRowGroup
from tests.questdb.format.writing import append, read_row_groups, rewrite, write

if TYPE_CHECKING:
    from skipstone.questdb.format.pm import PmSnapshot

pytestmark = pytest.mark.fuzz


def seed(*, external: bool) -> bytes:
    """Two snapshots with every kind of thing in them."""
    columns = (
        PmColumn(name="ts", type=131080, physical_type=2, id=0),
        PmColumn(name="s", type=26, physical_type=6, id=1, flags=4, max_def_level=1),
        PmColumn(name="u", type=19, physical_type=7, id=2, fixed_byte_len=16, max_def_level=1),
    )
    head = PmHead(
        columns=columns,
        designated_timestamp=0,
        sorting_columns=(0, 1),
        bloom_columns=(1, 2),
        bloom_external=external,
        squash_tracker=5,
    )
    bloom = (200, 64) if external else bytes(range(64))

    def group(start: int) -> PmRowGroup:
        plain = [
            PmChunk(
                num_values=9,
                byte_range_start=start,
                total_compressed=50,
                null_count=1,
                distinct_count=4,
                min=bytes([low] * size),
                max=bytes([low + 1] * size),
                bloom=bloom if low else None,
            )
            for low, size in ((0, 8), (1, 20), (2, 16))
        ]
        return PmRowGroup(num_rows=9, chunks=tuple(plain))

    footer = PmFooter(parquet_footer_offset=1_000, parquet_footer_length=92, seq_txn=3)
    file = write(head, [group(4), group(300)], footer)
    later = PmFooter(
        parquet_footer_offset=2_000,
        parquet_footer_length=99,
        scratchpad=((1, b"abc"), (2, b"")),
    )
    return append(Pm(file).snapshot(), [0, group(600), 1], later).applied(file)


SEEDS = [seed(external=False), seed(external=True)]


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A seed with words and bytes changed, pieces cut out; often with its CRC put right again."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        if len(data) < 16:
            break
        # Near the front and near the end, where headers and footers are.
        reach = draw(st.sampled_from([32, 200, len(data)]))
        at = draw(st.integers(0, min(reach, len(data)) - 1))
        if draw(st.booleans()):
            at = len(data) - 1 - at
        action = draw(st.sampled_from(["flip", "byte", "word", "cut", "drop", "double"]))
        if action == "flip":
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif action == "byte":
            data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif action == "word":
            at -= at % 4
            word = draw(st.sampled_from([0, 1, 8, len(data), (1 << 31) - 1, (1 << 32) - 1]))
            data[at : at + 4] = struct.pack("<I", word)
        elif action == "cut":
            del data[at:]
        else:
            piece = data[at : at + draw(st.integers(1, 40))]
            data[at : at + len(piece)] = piece * 2 if action == "double" else b""
    if len(data) >= 80 and draw(st.booleans()):
        data[:8] = struct.pack("<Q", len(data))
        data[-8:-4] = struct.pack("<I", zlib.crc32(data[8:-8]))
    return bytes(data)


def visit(snapshot: PmSnapshot) -> None:
    """Everything that can be asked of it."""
    groups = read_row_groups(snapshot)
    stats = snapshot.stats()
    for end in ("MIN", "MAX"):
        data, offsets, valid = stats.blobs(end)
        assert len(offsets) == valid.size + 1
        assert offsets[-1] == len(data)
        stats.fixed(end, np.int64)
        stats.inlined(8)
    stats.all_null()
    snapshot.num_rows.sum()
    assert snapshot.bloom_places[0].shape == (len(groups), len(snapshot.pm.bloom_columns))
    assert snapshot.seq_txn is None or snapshot.footer_feature_flags & 1
    assert sum(len(data) for _, data in snapshot.scratchpad) < 1 << 20
    snapshot.byte_ranges()


def survives(data: bytes) -> bool:
    try:
        pm = Pm(data, file="hostile")
        assert len(pm.names) == pm.column_count
        for name in pm.names[:3]:
            assert pm.named(name)
        pm.with_id(1)
        snapshot = pm.snapshot()
        visit(snapshot)
        snapshot.verify()
        assert Pm(rewrite(snapshot)).snapshot().parquet_size == snapshot.parquet_size
        for each in pm.snapshots():
            visit(each)
    except (FormatError, UnsupportedError):
        return False
    return True


@given(mangled() | st.binary(max_size=200))
def test_hostile_files(data: bytes) -> None:
    whole = survives(data)
    assert whole or data not in SEEDS


def test_every_single_damaged_byte_is_noticed_or_harmless() -> None:
    for data in SEEDS:
        pm = Pm(data)
        pm.snapshot().verify()
        # All but the committed size and the last length are under the CRC.
        for at in range(8, len(data) - 4):
            broken = bytearray(data)
            broken[at] ^= 0x41
            assert not survives(bytes(broken)), at
        for at in (*range(8), *range(len(data) - 4, len(data))):
            broken = bytearray(data)
            broken[at] ^= 0x41
            assert not survives(bytes(broken)), at


def test_every_shorter_file_is_refused() -> None:
    for data in SEEDS:
        assert survives(data)
        for length in range(len(data)):
            assert not survives(data[:length]), length


def test_counts_that_would_take_much_memory_are_refused_at_once() -> None:
    data = bytearray(SEEDS[0])
    for at in (20, 24):
        broken = bytearray(data)
        broken[at : at + 4] = b"\xff" * 4
        with pytest.raises(FormatError):
            Pm(broken)
    # A statistic of 65,535 bytes in each of many chunks, all of them the same bytes.
    columns = tuple(PmColumn(name="", type=26, physical_type=6) for _ in range(2_000))
    chunk = PmChunk(num_values=1, byte_range_start=4, total_compressed=9)
    big = PmChunk(num_values=1, byte_range_start=4, total_compressed=9, min=b"x" * 65_535)
    group = PmRowGroup(num_rows=1, chunks=(big, *(chunk for _ in columns[1:])))
    footer = PmFooter(parquet_footer_offset=100, parquet_footer_length=9)
    file = bytearray(write(PmHead(columns=columns), [group], footer))
    first = int(Pm(file).snapshot().block_offsets[0]) + 8
    for column in range(1, len(columns)):
        at = first + 64 * column
        file[at + 2] = 1
        file[at + 48 : at + 56] = struct.pack("<Q", 65_535)
    with pytest.raises(FormatError, match="more bytes than the file"):
        Pm(file).snapshot().stats().blobs("MIN")
