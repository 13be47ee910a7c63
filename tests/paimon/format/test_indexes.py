"""Every kind of index over random columns of every type, against brute force over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from skipstone.errors import UnsupportedError
from skipstone.paimon.format import bitmap, bsi, range_bitmap
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.bloom_filter import sizing
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import KeyColumn
from skipstone.paimon.format.keys import In, KeyArray, PaimonType, Range, Root, prefix
from skipstone.paimon.format.partial_blob import Pieces
from skipstone.paimon.format.range_bitmap import RangeBitmapIndex, write_range_bitmap
from skipstone.paimon.index_blob import answer, open_index
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.golden import ask_in_waves, needs
from tests.paimon.format.strategies import TYPES, asks, coded, columns, keys, matches

if TYPE_CHECKING:
    from collections.abc import Callable


def takes(check: Callable[[PaimonType], None], type: PaimonType) -> bool:
    try:
        check(type)
    except UnsupportedError:
        return False
    return True


def built(kind: str, column: KeyColumn, small: bool) -> bytes:
    if kind == "bsi":
        return write_bsi(coded(column))
    factors = coded(column)
    if kind == "range-bitmap":
        return write_range_bitmap(factors, chunk_size=20 if small else None)
    version = int(kind[-1])
    return write_bitmap(factors, version=version, block_size=30 if small else 16_384)


KINDS = {
    "bitmap 1": bitmap.check_type,
    "bitmap 2": bitmap.check_type,
    "range-bitmap": range_bitmap.check_type,
    "bsi": bsi.check_type,
}
COMBINATIONS = [
    (kind, type) for kind, check in KINDS.items() for type in TYPES if takes(check, type)
]


def test_kinds_take_the_types_that_they_should() -> None:
    taken = {kind: [str(type) for k, type in COMBINATIONS if k == kind] for kind in KINDS}
    everything = [str(type) for type in TYPES]
    assert set(everything) - set(taken["bitmap 2"]) == {"DECIMAL(18, 4)", "BYTES"}
    assert taken["bitmap 1"] == taken["bitmap 2"]
    assert set(everything) - set(taken["range-bitmap"]) == {"TIMESTAMP(9)", "BYTES"}
    assert set(everything) - set(taken["bsi"]) == {
        "BOOLEAN", "FLOAT", "DOUBLE", "STRING", "CHAR(3)", "BYTES",
    }  # fmt: skip


@pytest.mark.parametrize("kind, type", COMBINATIONS, ids=str)
@settings(max_examples=settings().max_examples // 2)  # for each of some 60 combinations
@given(data=st.data())
def test_answers_are_those_of_brute_force(kind: str, type: PaimonType, data: st.DataObject) -> None:
    """Asked of a few bytes at a time, the answer is exact, and only those bytes matter."""
    column = data.draw(columns(type))
    blob = built(kind, column, data.draw(st.booleans()))
    name = kind.split()[0]
    for ask in data.draw(st.lists(asks(type), min_size=1, max_size=4)):
        found, read = ask_in_waves(name, type, ask, blob)
        assert found.may is not None
        assert set(found.may) == matches(ask, column)
        assert found.row_count == column.row_count
        of_values = isinstance(ask, In) or (
            isinstance(ask, Range) and (ask.lo, ask.hi) != (None, None)
        )
        assert found.exact == (type.exact or not of_values)
        assert needs(name, type, ask, Pieces.whole(blob)) == ()
        grown = Pieces(len(blob))
        for span in read:  # one wave after another into the same pieces
            assert needs(name, type, ask, grown)
            grown.add([(span.offset, blob[span.offset : span.offset + span.length])])
        assert answer(name, type, ask, grown).may == found.may


@pytest.mark.parametrize(
    "type", [t for t in TYPES if t.root not in (Root.BOOLEAN, Root.DECIMAL)], ids=str
)
@given(data=st.data())
def test_a_bloom_filter_never_loses_a_value(type: PaimonType, data: st.DataObject) -> None:
    column = data.draw(columns(type))
    fpp = data.draw(st.sampled_from([0.5, 0.1, 0.001]))
    items = data.draw(st.integers(1, 500))
    blob = write_bloom_filter(type, [column.keys], items=items, fpp=fpp)
    assert len(blob) == 4 + sizing(items, fpp).bits // 8
    for i in range(len(column.keys)):
        ask = In((column.keys[i],))
        assert ask_in_waves("bloom-filter", type, ask, blob)[0].may is None
    for key in data.draw(st.lists(keys(type), max_size=5)):
        found = ask_in_waves("bloom-filter", type, In((key,)), blob)[0]
        assert found.may is None or (found.exact and not found.may)
        assert found.may is None or not matches(In((key,)), column)


def test_a_bloom_filter_rules_most_values_out() -> None:
    type = PaimonType.parse("BIGINT")
    blob = write_bloom_filter(type, [KeyArray.of(type, range(1_000, 2_000))], items=1_000, fpp=0.01)
    pieces = Pieces.whole(blob)
    passed = sum(
        answer("bloom-filter", type, In((key,)), pieces).may is None for key in range(5_000, 15_000)
    )
    assert 30 < passed < 300  # 1 % of 10,000, give or take


@given(data=st.data())
def test_the_first_rows_are_those_of_sorting(data: st.DataObject) -> None:
    """Any k rows that no other row comes before; with ties, all rows that tie with the last."""
    type = data.draw(st.sampled_from([t for t in TYPES if takes(range_bitmap.check_type, t)]))
    column = data.draw(columns(type))
    blob = write_range_bitmap(coded(column))
    among = set(range(column.row_count))
    if column.row_count < 500:
        among = data.draw(st.sets(st.sampled_from(sorted(among)))) if among else set()
    k, descending = data.draw(st.integers(0, 70)), data.draw(st.booleans())
    nulls_first, ties = data.draw(st.booleans()), data.draw(st.booleans())
    held = {int(row): column.keys[i] for i, row in enumerate(column.rows)}
    ranks = {key: at for at, key in enumerate(sorted(set(held.values())))}

    def place(row: int) -> int:
        if row not in held:
            return -len(ranks) - 1 if nulls_first else len(ranks) + 1
        return -ranks[held[row]] if descending else ranks[held[row]]

    found = RangeBitmapIndex.open(type, Pieces.whole(blob)).first(
        k, descending=descending, nulls_first=nulls_first, ties=ties, among=BitMap(among)
    )
    ordered = sorted(place(row) for row in among)
    assert set(found) <= among
    if not ties:
        assert sorted(place(row) for row in found) == ordered[:k]
    elif k:
        edge = ordered[min(k, len(ordered)) - 1] if ordered else 0
        assert {row for row in among if place(row) <= edge} <= set(found) or len(among) <= k


@pytest.mark.parametrize("spread", [1, 30])
def test_many_keys_at_once(spread: int) -> None:
    """This many that the codes of all rows are looked up, where slices are dense (spread 1)."""
    type = PaimonType.parse("BIGINT")
    rng = np.random.default_rng(4)
    count = 90_000 if spread == 1 else 3_000
    rows = np.flatnonzero(rng.random(count) < 0.8) * spread
    values = rng.integers(-500, 500, len(rows))
    keys = KeyArray(type, values)
    column = KeyColumn(count * spread, rows.astype(np.uint32), keys)
    blob = write_range_bitmap(coded(column))
    wanted = list(range(-700, 700, 3))
    found, _ = ask_in_waves("range-bitmap", type, In(tuple(wanted)), blob)
    assert set(found.may or ()) == set(rows[np.isin(values, wanted)].tolist())


def test_a_prefix_is_a_range() -> None:
    assert prefix(b"ab") == Range(lo=b"ab", hi=b"ac", hi_open=True)
    assert prefix(b"a\xff") == Range(lo=b"a\xff", hi=b"b", hi_open=True)
    assert prefix(b"\xff") == Range(lo=b"\xff")
    assert prefix(b"") == Range(lo=b"")


@given(data=st.data())
def test_prefixes(data: st.DataObject) -> None:
    type = PaimonType.parse("STRING")
    column = data.draw(columns(type))
    start = data.draw(st.binary(max_size=2))
    expected = {
        int(row) for i, row in enumerate(column.rows) if bytes(column.keys[i]).startswith(start)
    }
    for kind in ("bitmap 1", "bitmap 2", "range-bitmap"):
        found, _ = ask_in_waves(kind.split()[0], type, prefix(start), built(kind, column, True))
        assert found.may is not None
        assert set(found.may) == expected


def test_unknown_kinds_and_versions() -> None:
    type = PaimonType.parse("INT")
    with pytest.raises(UnsupportedError, match="kind 'mystery'"):
        open_index("mystery", type, Pieces.whole(b""))
    for kind in ("bitmap", "bsi"):
        with pytest.raises(UnsupportedError, match="version 9"):
            open_index(kind, type, Pieces.whole(b"\x09" + bytes(40)))
