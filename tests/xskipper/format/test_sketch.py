"""Spark's Bloom filter: golden bytes and probes, and the laws that make it sound."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, UnsupportedError
from skipstone.xskipper.format.sketch import (
    BloomBuilder,
    BloomFilter,
    foldable_words,
    hash_arrow,
    optimal_bits,
    optimal_hashes,
)

if TYPE_CHECKING:
    from pathlib import Path

LONGS = st.integers(-(2**63), 2**63 - 1)
VERSIONS = st.sampled_from([(1, 0), (2, 0), (2, -7), (2, 2**31 - 1)])


def arrow(kind: str, values: list[Any]) -> pa.Array:
    if kind == "long":
        return pa.array(values, pa.int64())
    if kind == "string":
        return pa.array(values, pa.string())
    return pa.array([bytes.fromhex(value) for value in values], pa.binary())


def test_spark_and_this_build_and_probe_the_same_filters(golden: Path) -> None:
    folder = golden / "xskipper" / "bloom"
    cases = json.loads((folder / "bloom_cases.json").read_text())["cases"]
    assert len(cases) == 100
    for case in cases:
        written = (folder / case["file"]).read_bytes()
        items, bits = case["expected_num_items"], case["requested_num_bits"]
        if case["fpp"] is not None:
            assert optimal_bits(items, case["fpp"]) == bits
        builder = BloomBuilder(
            words=-(-bits // 64),
            num_hash_functions=optimal_hashes(items, bits),
            version=case["version"],
            seed=case["seed"],
        )
        builder.put(arrow(case["kind"], case["values"]))
        assert builder.build().to_bytes() == written, case["file"]
        read = BloomFilter.from_bytes(written)
        assert read == builder.build()
        assert (read.bit_size, read.num_hash_functions) == (
            case["bit_size"],
            case["num_hash_functions"],
        )
        assert read.cardinality() == case["cardinality"]
        assert read.expected_fpp() == pytest.approx(case["expected_fpp"], rel=1e-12)
        probed = read.might_contain(arrow(case["kind"], case["probe"]))
        assert probed.tolist() == case["probe_result"], case["file"]


@given(
    st.lists(LONGS, min_size=1, max_size=200),
    st.sampled_from([0.5, 0.1, 0.01, 1e-6]),
    VERSIONS,
    st.booleans(),
)
def test_no_false_negatives_whole_folded_and_read_back(
    values: list[int], fpp: float, kind: tuple[int, int], foldable: bool
) -> None:
    version, seed = kind
    builder = BloomBuilder.sized(500, fpp, version=version, seed=seed, foldable=foldable)
    array = np.array(values, dtype=np.int64)
    builder.put_longs(array)
    whole = builder.build()
    assert whole.might_contain_longs(array).all()
    folded = whole.fold_down(fpp)
    assert folded.might_contain_longs(array).all()
    # Halving stops where the wanted probability would be lost, if it was there to begin with.
    assert folded.expected_fpp() <= max(fpp, whole.expected_fpp())
    assert BloomFilter.from_bytes(folded.to_bytes()) == folded


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60), VERSIONS)
def test_no_false_negatives_over_strings(values: list[str], kind: tuple[int, int]) -> None:
    builder = BloomBuilder.sized(60, 0.01, version=kind[0], seed=kind[1])
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        builder.put(pa.array([None, *values], type_))
    encoded = [value.encode() for value in values]
    found = builder.build().might_contain(pa.array(encoded, pa.binary()))
    assert found.all()


@given(st.lists(LONGS, max_size=80), st.sampled_from([1, 2, 3, 4, 6, 12]), VERSIONS)
def test_folding_is_building_small(values: list[int], words: int, kind: tuple[int, int]) -> None:
    built = []
    for size in (12, words):
        builder = BloomBuilder(words=size, num_hash_functions=5, version=kind[0], seed=kind[1])
        builder.put_longs(np.array(values, dtype=np.int64))
        built.append(builder.build())
    assert built[0].fold(words) == built[1]


def test_sizes_that_do_not_divide_do_not_fold() -> None:
    whole = BloomBuilder(words=12, num_hash_functions=3).build()
    for words in (0, -1, 5, 7, 24):
        with pytest.raises(ValueError, match="divisor"):
            whole.fold(words)


def test_a_filter_at_the_bound_folds_to_about_the_size_it_needs() -> None:
    # 1,000 values in a filter made for 100,000: 2^14 words, of which 2^8 are needed.
    builder = BloomBuilder.sized(100_000, 0.01, foldable=True)
    builder.put_longs(np.arange(1_000, dtype=np.int64))
    folded = builder.build().fold_down(0.01)
    assert (builder.words, foldable_words(1_000, 0.01), len(folded.words)) == (1 << 14, 256, 256)
    absent = folded.might_contain_longs(np.arange(10**6, 10**6 + 100_000, dtype=np.int64))
    assert absent.mean() < 0.011


@given(st.lists(LONGS, max_size=50), st.lists(LONGS, max_size=50), VERSIONS)
def test_merging_is_building_over_both(a: list[int], b: list[int], kind: tuple[int, int]) -> None:
    filters = []
    for values in (a, b, a + b):
        builder = BloomBuilder(words=9, num_hash_functions=4, version=kind[0], seed=kind[1])
        builder.put_longs(np.array(values, dtype=np.int64))
        filters.append(builder.build())
    assert filters[0].merge(filters[1]) == filters[2]


def test_filters_of_different_kinds_do_not_merge() -> None:
    one = BloomBuilder(words=2, num_hash_functions=3).build()
    others = [
        BloomBuilder(words=4, num_hash_functions=3),
        BloomBuilder(words=2, num_hash_functions=4),
        BloomBuilder(words=2, num_hash_functions=3, version=2),
    ]
    for other in others:
        with pytest.raises(ValueError, match="do not merge"):
            one.merge(other.build())


def test_narrow_integers_dictionaries_and_slices_hash_as_longs() -> None:
    wide = hash_arrow(pa.array([-1, 0, 100], pa.int64()))
    for type_ in (pa.int8(), pa.int16(), pa.int32()):
        assert np.array_equal(hash_arrow(pa.array([-1, None, 0, 100], type_)), wide)
    texts = pa.array(["a", "bb", None, "a", "ccc"])
    plain = hash_arrow(texts)
    assert np.array_equal(hash_arrow(texts.dictionary_encode()), plain)
    assert np.array_equal(hash_arrow(texts.slice(1)), [part[1:] for part in plain])
    chunked = pa.chunked_array([texts.slice(0, 2), texts.slice(2)])
    assert np.array_equal(hash_arrow(chunked), plain)
    assert len(hash_arrow(pa.chunked_array([], pa.string()))[0]) == 0


@pytest.mark.parametrize("type_", [pa.float64(), pa.uint32(), pa.date32(), pa.bool_()])
def test_types_that_spark_has_no_filter_for(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedError):
        hash_arrow(pa.nulls(2, type_))


def test_a_saturated_filter_may_contain_everything() -> None:
    assert BloomFilter.saturated().might_contain_longs(np.arange(100, dtype=np.int64)).all()


def test_a_million_longs_go_in_and_are_found() -> None:
    values = np.random.default_rng(0).integers(-(2**62), 2**62, 1_000_000)
    builder = BloomBuilder.sized(1_000_000, 0.01)
    builder.put_longs(values)
    built = builder.build()
    assert built.might_contain_longs(values).all()
    assert 0.009 < built.expected_fpp() < 0.011


def test_words_cannot_be_changed_from_outside() -> None:
    built = BloomBuilder(words=1, num_hash_functions=1).build()
    with pytest.raises(ValueError, match="read-only"):
        built.words[0] = 1


HEADS = [b"", b"\x00" * 11, b"\x00\x00\x00\x03" + bytes(16), b"\x00\x00\x00\x02" + bytes(9)]


@pytest.mark.parametrize("data", HEADS)
def test_heads_that_are_none(data: bytes) -> None:
    with pytest.raises(FormatError):
        BloomFilter.from_bytes(data)


@pytest.mark.parametrize("hashes", [0, -1, 1_001, 2**31 - 1])
def test_absurd_numbers_of_hashes(hashes: int) -> None:
    head = (1).to_bytes(4, "big") + hashes.to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big")
    with pytest.raises(FormatError, match="hash functions"):
        BloomFilter.from_bytes(head + bytes(8))
