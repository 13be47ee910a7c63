"""Hostile bytes: every reader answers, or raises FormatError or UnsupportedError, nothing else."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from skipstone.errors import FormatError, UnsupportedError
from skipstone.paimon.format import container, roaring
from skipstone.paimon.format.bitmap import BitmapIndex, write_bitmap
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import KeyColumn
from skipstone.paimon.format.keys import Ask, In, Key, KeyArray, Null, PaimonType, Range
from skipstone.paimon.format.partial_blob import Pieces
from skipstone.paimon.format.range_bitmap import RangeBitmapIndex, write_range_bitmap
from skipstone.paimon.format.roaring_bulk import union_of_many
from skipstone.paimon.index_blob import answer, open_index
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.golden import speaks
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fuzz

INT, TEXT, FLAG, REAL = map(PaimonType.parse, ("INT", "STRING", "BOOLEAN", "DOUBLE"))


def column(type: PaimonType, rows: int, distinct: int) -> KeyColumn:
    """Values in no order, runs and a null here and there: every form of container."""
    rng = np.random.default_rng(rows)
    places = np.flatnonzero(rng.random(rows) > 0.1).astype(np.uint32)
    values = rng.integers(0, distinct, len(places)) - (distinct // 2 if type == INT else 0)
    values[: len(values) // 3] = values[0] if len(values) else 0
    if type.width:
        return KeyColumn(rows, places, KeyArray(type, values))
    return KeyColumn(rows, places, KeyArray.of(type, [b"v%d" % value for value in values]))


def blobs() -> list[tuple[str, PaimonType, bytes]]:
    made = []
    for type, rows, distinct in ((INT, 150_000, 6), (INT, 400, 90), (TEXT, 300, 40), (FLAG, 9, 2)):
        own = column(type, rows, distinct)
        factors = coded(own)
        made += [("bitmap", type, write_bitmap(factors, version=v, block_size=90)) for v in (1, 2)]
        made.append(("range-bitmap", type, write_range_bitmap(factors, chunk_size=90)))
        if type == INT:
            made.append(("bsi", type, write_bsi(coded(own))))
    own = column(REAL, 500, 70)
    made.append(("range-bitmap", REAL, write_range_bitmap(coded(own))))
    made.append(("bloom-filter", REAL, write_bloom_filter(REAL, [own.keys], items=90)))
    return made


BLOBS = blobs()


def harmless(function: Callable[..., object], *arguments: object) -> bool:
    """Whether it gave a value; the two errors that it may raise are fine."""
    try:
        function(*arguments)
    except (FormatError, UnsupportedError):
        return False
    return True


def everything(kind: str, type: PaimonType, blob: bytes) -> list[bool]:
    """All that can be asked of an index."""
    pieces = Pieces.whole(blob)
    some: list[Key] = [b"v3", b"v7", b"w"] if not type.width else [-3, 0, 1, 3, 40]
    asks: list[Ask] = [
        In(tuple(some)),
        In((some[0],)),
        Range(lo=some[0], hi=some[2]),
        Range(hi=some[1]),
    ]
    asks.append(Range(lo=b"" if not type.width else -(2**31)))
    told = [
        harmless(answer, kind, type, ask, pieces)
        for ask in [*asks, Range(), Null()]
        if speaks(kind, ask)
    ]
    try:
        index = open_index(kind, type, pieces)
    except (FormatError, UnsupportedError):
        return told
    if isinstance(index, BitmapIndex):
        told.append(harmless(index.entries))
    if isinstance(index, RangeBitmapIndex):
        told.append(harmless(lambda: index.open_dictionary().keys()))
        told.append(harmless(lambda: index.first(5, nulls_first=False)))
        told.append(harmless(lambda: index.first(5, nulls_first=True, descending=True)))
        if index.cardinality:
            told.append(harmless(index.key, index.cardinality - 1))
    return told


@pytest.mark.parametrize("kind, type, blob", BLOBS, ids=lambda each: str(each)[:12])
def test_what_is_right_is_read(kind: str, type: PaimonType, blob: bytes) -> None:
    assert all(everything(kind, type, blob))


@pytest.mark.parametrize("kind, type, blob", BLOBS, ids=lambda each: str(each)[:12])
@given(data=st.data())
def test_damaged_indexes(kind: str, type: PaimonType, blob: bytes, data: st.DataObject) -> None:
    damaged = bytearray(blob)
    # Mostly in heads and descriptors: a bit of a bitset is only another row.
    places = st.integers(0, min(len(blob), 200) - 1) | st.integers(0, len(blob) - 1)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(places)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        at = data.draw(places)
        raw = data.draw(st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)]))
        damaged[at : at + 4] = raw
    if data.draw(st.booleans()):
        del damaged[data.draw(places) :]
    everything(kind, type, bytes(damaged))


@pytest.mark.parametrize("kind, type, blob", BLOBS, ids=lambda each: str(each)[:12])
def test_cut_off_indexes(kind: str, type: PaimonType, blob: bytes) -> None:
    """Cut off anywhere, an index never answers every question: something is missing."""
    if kind == "bloom-filter":
        pytest.skip("any bytes are bits of a filter")
    cuts = {*range(min(len(blob), 300)), *range(300, len(blob), max(1, len(blob) // 50))}
    for cut in sorted(cuts):
        assert not all(everything(kind, type, blob[:cut])), cut


@given(st.binary(max_size=300), st.sampled_from(["bitmap", "bsi", "range-bitmap", "bloom-filter"]))
def test_noise(raw: bytes, kind: str) -> None:
    everything(kind, INT, raw)


CONTAINER = container.to_bytes(
    {"a": {"bitmap": b"123", "new-kind": b""}, "列_𝄞_é\0": {"bsi": None}, "m[k]": {"bitmap": b"4"}}
)


@given(data=st.data())
def test_damaged_containers(data: st.DataObject) -> None:
    damaged = bytearray(CONTAINER)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    harmless(container.from_bytes, bytes(damaged))
    harmless(container.head_length, bytes(damaged))


SETS = [
    BitMap(range(5, 70_000)),
    BitMap(range(0, 200_000, 3)),
    BitMap([1, 5, 70_000, 140_000, 210_000, 280_000]),
    BitMap(
        [*range(9), *range(65_536, 131_072, 2), *range(200_000, 200_090), *range(280_000, 280_004)]
    ),
    BitMap(),
]


@pytest.mark.parametrize("which", range(len(SETS)))
@given(data=st.data())
def test_damaged_bitmaps(which: int, data: st.DataObject) -> None:
    """The library only ever sees bitmaps that keep every promise: it can write them again."""
    raw = roaring.write(SETS[which])
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(raw), 60) - 1) | st.integers(0, len(raw) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        found = roaring.read(bytes(damaged), 300_000)
    except FormatError:
        return
    assert BitMap(found.to_array()) == found
    assert not found or found.max() < 300_000
    assert roaring.read(roaring.write(found), 300_000) == found


@given(data=st.data())
def test_many_damaged_bitmaps(data: st.DataObject) -> None:
    raws = [bytearray(roaring.write(BitMap([at, at + 40, at + 70_000]))) for at in range(40)]
    for _ in range(data.draw(st.integers(1, 4))):
        raw = raws[data.draw(st.integers(0, 39))]
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = union_of_many([bytes(raw) for raw in raws], 80_000)
    except FormatError:
        return
    one_by_one = BitMap.union(*(roaring.read(bytes(raw), 80_000) for raw in raws))
    assert found == one_by_one


def test_bitmaps_are_not_repeated() -> None:
    """A dictionary whose entries all name one bitmap cannot multiply it."""
    index = write_bitmap(coded(column(INT, 400, 90)))
    opened = BitmapIndex.open(INT, Pieces.whole(index))
    entries = opened.entries()
    first, length = next(
        each for each in zip(entries.offsets, entries.lengths, strict=True) if each[0] > 0
    )
    damaged = index
    for offset, own in zip(entries.offsets.tolist(), entries.lengths.tolist(), strict=True):
        if offset > 0:
            damaged = damaged.replace(
                offset.to_bytes(4, "big") + own.to_bytes(4, "big"),
                int(first).to_bytes(4, "big") + int(length).to_bytes(4, "big"),
            )
    assert damaged != index
    with pytest.raises(FormatError, match=r"share rows|overlap"):
        answer("bitmap", INT, Range(lo=-(2**31)), Pieces.whole(damaged))


def test_counts_allocate_nothing() -> None:
    """Heads that claim two thousand million of everything are refused for what they are."""
    huge = (2**31 - 1).to_bytes(4, "big")
    heads = {
        "bitmap": [b"\x01" + huge * 2 + b"\0", b"\x02" + huge * 2 + b"\0" + huge * 2],
        "range-bitmap": [huge + b"\x01" + huge * 5, (21).to_bytes(4, "big") + b"\x01" + huge * 6],
        "bsi": [
            b"\x01" + huge + b"\x01\x01" + bytes(12) + huge + (12346).to_bytes(4, "little") + huge
        ],
    }
    tracemalloc.start()
    for kind, raws in heads.items():
        for raw in raws:
            assert not all(everything(kind, INT, raw + bytes(40)))
            assert not all(everything(kind, TEXT, raw + bytes(40))) or kind == "bsi"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
