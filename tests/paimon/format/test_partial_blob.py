"""Short ways through what is usual, against the long ways that take anything."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from skipstone.errors import FormatError
from skipstone.paimon.format import roaring
from skipstone.paimon.format.keys import KeyArray, PaimonType, Range
from skipstone.paimon.format.partial_blob import Cursor, MissingBytes, Pieces

TEXT = PaimonType.parse("STRING")
TEXTS = st.lists(st.binary(max_size=9) | st.sampled_from([b"", b"y" * 255, b"z" * 256]))


def laid(texts: list[bytes], tail: int) -> bytes:
    tails = [bytes([i % 251]) * tail for i in range(len(texts))]
    pairs = zip(texts, tails, strict=True)
    return b"".join(len(text).to_bytes(4, "big") + text + after for text, after in pairs)


@given(TEXTS, st.sampled_from([0, 4, 8]), st.binary(max_size=9), st.integers(0, 5))
def test_texts_one_after_another(texts: list[bytes], tail: int, rest: bytes, before: int) -> None:
    raw = laid(texts, tail)
    cursor = Pieces.whole(b"b" * before + raw + rest).cursor(before)
    found, tails = cursor.texts(len(texts), tail)
    assert list(found) == texts
    assert tails.shape == (len(texts), tail)
    assert tails.tobytes() == b"".join(bytes([i % 251]) * tail for i in range(len(texts)))
    assert cursor.position == before + len(raw)


@given(TEXTS.filter(bool), st.sampled_from([0, 4, 8]), st.data())
def test_texts_that_are_cut_or_damaged(texts: list[bytes], tail: int, data: st.DataObject) -> None:
    """As the long way has it: the same strings, the same lack, or an error."""
    raw = bytearray(laid(texts, tail))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]

    def outcome(cursor: Cursor, long: bool) -> object:
        try:
            if long:
                return cursor._any_texts(len(texts), tail)[0], cursor.position
            return list(cursor.texts(len(texts), tail)[0]), cursor.position
        except FormatError:
            return FormatError

    whole = Pieces.whole(bytes(raw))
    assert outcome(whole.cursor(0), False) == outcome(whole.cursor(0), True)
    part = Pieces(len(raw) + 9, [(0, bytes(raw))])
    try:
        expected: object = part.cursor(0)._any_texts(len(texts), tail)[0]
    except (FormatError, MissingBytes) as error:
        with pytest.raises(type(error)):
            part.cursor(0).texts(len(texts), tail)
    else:
        assert list(part.cursor(0).texts(len(texts), tail)[0]) == expected


@given(st.lists(st.binary(max_size=4)), st.data())
def test_strings_in_order(texts: list[bytes], data: st.DataObject) -> None:
    """Unsigned, the shorter first, with zeros at the end and without."""
    keys = KeyArray.of(TEXT, texts)
    assert keys.ascending() == all(a < b for a, b in pairwise(texts))
    ends = st.none() | st.binary(max_size=4)
    lo, hi, lo_open, hi_open = data.draw(st.tuples(ends, ends, st.booleans(), st.booleans()))
    inside = [
        (lo is None or text > lo or (text == lo and not lo_open))
        and (hi is None or text < hi or (text == hi and not hi_open))
        for text in texts
    ]
    assert keys.within(Range(lo, hi, lo_open, hi_open)).tolist() == inside


@given(st.sets(st.integers(0, 70_000), min_size=1, max_size=60), st.data())
def test_small_bitmaps(rows: set[int], data: st.DataObject) -> None:
    """With a byte after it a bitmap goes the long way."""
    raw = bytearray(BitMap(rows).serialize())
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    count = data.draw(st.sampled_from([66_000, 70_001]))
    try:
        expected = roaring.read(bytes(raw) + b"x", count, exactly=False)
        if roaring.Layout.from_bytes(bytes(raw)).length != len(raw):
            raise FormatError("a bitmap of another length")
    except FormatError:
        with pytest.raises(FormatError):
            roaring.read(bytes(raw), count)
    else:
        assert roaring.read(bytes(raw), count) == expected
