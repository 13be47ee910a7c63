"""Many filters asked where they lie: the same answers as one by one, and damage said one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.java_bloom import (
    METADATA,
    BloomFilterMetaData,
    block_data,
    header,
    impl_class,
)
from tests.xskipper.format.golden import golden_blobs
from tests.xskipper.format.reference_bloom import (
    LEGACY_METADATA,
    SketchBuilder,
    each_in,
    might_contain,
    might_contain_longs,
)

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.xskipper.format.sketch import SketchFilter


def filled(
    values: np.ndarray, *, words: int, hashes: int, version: int = 1, seed: int = 0
) -> SketchFilter:
    builder = SketchBuilder(words=words, num_hash_functions=hashes, version=version, seed=seed)
    builder.put_longs(values)
    return builder.build()


@st.composite
def filters(draw: st.DrawFn) -> SketchFilter:
    version, seed = draw(st.sampled_from([(1, 0), (2, 0), (2, 5), (2, -(2**31))]))
    # Lengths of the last block on both sides of 255 bytes, and blocks that are just full.
    words = draw(st.sampled_from([1, 2, 29, 30, 31, 32, 125, 126, 127, 128, 129, 157, 158, 300]))
    values = draw(st.lists(st.integers(-50, 50), max_size=20))
    return filled(
        np.array(values, dtype=np.int64),
        words=words,
        hashes=draw(st.integers(1, 9)),
        version=version,
        seed=seed,
    )


@given(st.lists(filters() | st.none(), max_size=12), st.lists(st.integers(-60, 60), max_size=6))
def test_all_at_once_is_one_by_one(found: list[SketchFilter | None], items: list[int]) -> None:
    blobs = [None if f is None else BloomFilterMetaData.of(f).to_bytes() for f in found]
    array = pa.array(blobs, pa.binary())
    probes = np.array(items, dtype=np.int64)
    expected = np.ones((len(items), len(found)), dtype=np.bool_)
    for at, filter_ in enumerate(found):
        if filter_ is not None:
            expected[:, at] = might_contain_longs(filter_, probes)
    half = len(blobs) // 2
    for column in (
        array,
        array.cast(pa.large_binary()),
        pa.chunked_array([array.slice(0, half), array.slice(half)]),
    ):
        ready = BlobColumn(column)
        assert ready.ok.tolist() == [f is not None for f in found]
        assert np.array_equal(each_in(ready, probes), expected)
        anywhere = expected.any(axis=0) | ~ready.ok
        assert np.array_equal(ready.might_contain_any(probes), anywhere)
        among = np.arange(len(found)) % 2 == 0
        part = range(len(items) // 3, len(items))
        everywhere = expected[part].all(axis=0) | ~ready.ok
        every = ready.might_contain_all(probes, part, among, {})
        assert np.array_equal(every, among & everywhere)


def test_strings_and_a_choice_of_filters() -> None:
    names = ["a", "bb", "é"]
    blobs = []
    for name in names:
        builder = SketchBuilder.sized(10, 1e-6)
        builder.put(pa.array([name]))
        blobs.append(BloomFilterMetaData.of(builder.build()).to_bytes())
    column = BlobColumn(pa.array(blobs, pa.binary()))
    assert len(column) == 3
    items = [name.encode() for name in names]
    assert np.array_equal(each_in(column, items), np.eye(3, dtype=np.bool_))
    among = np.array([True, False, False])
    assert column.might_contain_any([b"bb"], among).tolist() == [False, True, True]
    assert column.might_contain_any([]).tolist() == [False, False, False]


def test_golden_blobs_answer_as_they_do_alone(golden: Path) -> None:
    blobs = list(golden_blobs(golden))
    column = BlobColumn(pa.array(blobs, pa.binary()))
    assert column.ok.all()
    items = [b"H", b"J", b"T", b"Jerusalem", b"k1", b"s5", b"n5", b"absent"]
    found = each_in(column, items)
    for at, blob in enumerate(blobs):
        alone = might_contain(BloomFilterMetaData.from_bytes(blob).filter, pa.array(items))
        assert np.array_equal(found[:, at], alone)
    assert found.any()
    assert not found.all()


def good(version: int = 1, words: int = 300) -> bytes:
    return BloomFilterMetaData.of(
        filled(np.arange(5), words=words, hashes=3, version=version)
    ).to_bytes()


def damaged() -> dict[str, bytes | None]:
    blob = good()
    at = len(header(METADATA, impl_class(1)))
    payload = filled(np.arange(5), words=300, hashes=3).to_bytes()
    head = blob[:at]

    def with_payload(changed: bytes) -> bytes:
        return head + block_data(changed)

    return {
        "null": None,
        "empty": b"",
        "three bytes": b"\xac\xed\x00",
        "magic": b"\x00" + blob[1:],
        "header only": head,
        "header and end": head + b"\x78",
        "no end": blob[:-1] + b"\x00",
        "cut by one": blob[:-1],
        "cut in the second block": blob[: at + 1_400],
        "one byte more": blob + b"\x78",
        "first block's length": blob[: at + 3] + b"\x05" + blob[at + 4 :],
        "second block's mark": blob[: at + 1_029] + b"\x00" + blob[at + 1_030 :],
        "last block's length": blob[: at + 2 * 1_029 + 4] + b"\x00" + blob[at + 2 * 1_029 + 5 :],
        "no words": with_payload(payload[:8] + bytes(4)),
        "fewer words than bytes": with_payload(
            payload[:8] + (299).to_bytes(4, "big") + payload[12:]
        ),
        "negative words": with_payload(payload[:8] + b"\xff" * 4 + payload[12:]),
        "no hashes": with_payload(payload[:4] + bytes(4) + payload[8:]),
        "a billion hashes": with_payload(payload[:4] + b"\x40\x00\x00\x00" + payload[8:]),
        "version 2 in the class of version 1": with_payload(
            filled(np.arange(5), words=300, hashes=3, version=2).to_bytes()
        ),
        "version 3": with_payload(b"\x00\x00\x00\x03" + payload[4:]),
        "payload of 9 bytes": with_payload(payload[:9]),
    }


@pytest.mark.parametrize("name", damaged())
def test_damage_says_nothing_and_spares_the_neighbours(name: str) -> None:
    bad = damaged()[name]
    if bad is not None:
        with pytest.raises(FormatError):
            BloomFilterMetaData.from_bytes(bad)
    blobs = [good(), bad, good(2), bad, good(words=1)]
    column = BlobColumn(pa.array(blobs, pa.binary()))
    assert column.ok.tolist() == [True, False, True, False, True]
    assert column.might_contain_any(np.array([10**9])).tolist() == [False, True, False, True, False]
    assert column.might_contain_any(np.array([3])).all()


def test_a_column_of_nothing_but_damage() -> None:
    for blobs in ([], [None], [b""], [b"\xac\xed\x00\x05" * 30] * 1_000):
        column = BlobColumn(pa.array(blobs, pa.binary()))
        assert not column.ok.any()
        assert column.might_contain_any(np.array([1])).tolist() == [True] * len(blobs)


def test_a_thousand_damaged_blobs_do_not_hide_the_good_ones() -> None:
    blobs = [bytes([n % 251]) * (n % 40) for n in range(1_000)] + [good()] * 9_000
    column = BlobColumn(pa.array(blobs, pa.binary()))
    assert column.ok.tolist() == [False] * 1_000 + [True] * 9_000


def test_legacy_and_current_headers_in_one_column() -> None:
    filter_ = filled(np.arange(5), words=40, hashes=3)
    blobs = [
        header(outer, impl_class(1)) + block_data(filter_.to_bytes())
        for outer in (METADATA, LEGACY_METADATA, None)
    ]
    column = BlobColumn(pa.array(blobs * 3, pa.binary()))
    assert column.ok.all()
    assert column.might_contain_any(np.array([4])).all()
    assert not column.might_contain_any(np.array([10**9])).any()


def test_a_long_list_over_many_filters() -> None:
    # 2,000 filters of 10 values each; of 3,000 items only the last is in any, in exactly one.
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**62, (2_000, 10))
    blobs = [BloomFilterMetaData.of(filled(row, words=64, hashes=20)).to_bytes() for row in values]
    column = BlobColumn(pa.array(blobs, pa.binary()))
    items = np.append(rng.integers(-(2**62), 0, 2_999), values[1_234, 5])
    assert np.flatnonzero(column.might_contain_any(items)).tolist() == [1_234]
