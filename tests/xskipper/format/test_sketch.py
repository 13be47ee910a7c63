"""Spark's Bloom filter: golden bytes and probes, and the laws that make it sound."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.xskipper.format.sketch import SketchFilter, optimal_bits, optimal_hashes
from tests.xskipper.format.reference_bloom import SketchBuilder, might_contain, might_contain_longs

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
        builder = SketchBuilder(
            words=-(-bits // 64),
            num_hash_functions=optimal_hashes(items, bits),
            version=case["version"],
            seed=case["seed"],
        )
        builder.put(arrow(case["kind"], case["values"]))
        assert builder.build().to_bytes() == written, case["file"]
        read = SketchFilter.from_bytes(written)
        assert read == builder.build()
        assert (read.bit_size, read.num_hash_functions) == (
            case["bit_size"],
            case["num_hash_functions"],
        )
        assert read.cardinality() == case["cardinality"]
        assert read.expected_fpp() == pytest.approx(case["expected_fpp"], rel=1e-12)
        probed = might_contain(read, arrow(case["kind"], case["probe"]))
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
    builder = SketchBuilder.sized(500, fpp, version=version, seed=seed, foldable=foldable)
    array = np.array(values, dtype=np.int64)
    builder.put_longs(array)
    whole = builder.build()
    assert might_contain_longs(whole, array).all()
    folded = whole.fold_down(fpp)
    assert might_contain_longs(folded, array).all()
    # Halving stops where the wanted probability would be lost, if it was there to begin with.
    assert folded.expected_fpp() <= max(fpp, whole.expected_fpp())
    assert SketchFilter.from_bytes(folded.to_bytes()) == folded


@given(st.lists(st.text(max_size=20), min_size=1, max_size=60), VERSIONS)
def test_no_false_negatives_over_strings(values: list[str], kind: tuple[int, int]) -> None:
    builder = SketchBuilder.sized(60, 0.01, version=kind[0], seed=kind[1])
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        builder.put(pa.array([None, *values], type_))
    encoded = [value.encode() for value in values]
    found = might_contain(builder.build(), pa.array(encoded, pa.binary()))
    assert found.all()


@given(st.lists(LONGS, max_size=80), st.sampled_from([1, 2, 3, 4, 6, 12]), VERSIONS)
def test_folding_is_building_small(values: list[int], words: int, kind: tuple[int, int]) -> None:
    built = []
    for size in (12, words):
        builder = SketchBuilder(words=size, num_hash_functions=5, version=kind[0], seed=kind[1])
        builder.put_longs(np.array(values, dtype=np.int64))
        built.append(builder.build())
    assert built[0].fold(words) == built[1]


def test_sizes_that_do_not_divide_do_not_fold() -> None:
    whole = SketchBuilder(words=12, num_hash_functions=3).build()
    for words in (0, -1, 5, 7, 24):
        with pytest.raises(ValueError, match="divisor"):
            whole.fold(words)


def test_a_filter_at_the_bound_folds_to_about_the_size_it_needs() -> None:
    # 1,000 values in a filter made for 100,000: 2^14 words, of which 2^8 are needed.
    builder = SketchBuilder.sized(100_000, 0.01, foldable=True)
    builder.put_longs(np.arange(1_000, dtype=np.int64))
    folded = builder.build().fold_down(0.01)
    assert (builder.words, len(folded.words)) == (1 << 14, 256)
    absent = might_contain_longs(folded, np.arange(10**6, 10**6 + 100_000, dtype=np.int64))
    assert absent.mean() < 0.011


def test_a_saturated_filter_may_contain_everything() -> None:
    assert might_contain_longs(SketchFilter.saturated(), np.arange(100, dtype=np.int64)).all()


def test_a_million_longs_go_in_and_are_found() -> None:
    values = np.random.default_rng(0).integers(-(2**62), 2**62, 1_000_000)
    builder = SketchBuilder.sized(1_000_000, 0.01)
    builder.put_longs(values)
    built = builder.build()
    assert might_contain_longs(built, values).all()
    assert 0.009 < built.expected_fpp() < 0.011


def test_words_cannot_be_changed_from_outside() -> None:
    built = SketchBuilder(words=1, num_hash_functions=1).build()
    with pytest.raises(ValueError, match="read-only"):
        built.words[0] = 1


HEADS = [b"", b"\x00" * 11, b"\x00\x00\x00\x03" + bytes(16), b"\x00\x00\x00\x02" + bytes(9)]


@pytest.mark.parametrize("data", HEADS)
def test_heads_that_are_none(data: bytes) -> None:
    with pytest.raises(FormatError):
        SketchFilter.from_bytes(data)


@pytest.mark.parametrize("hashes", [0, -1, 1_001, 2**31 - 1])
def test_absurd_numbers_of_hashes(hashes: int) -> None:
    head = (1).to_bytes(4, "big") + hashes.to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big")
    with pytest.raises(FormatError, match="hash functions"):
        SketchFilter.from_bytes(head + bytes(8))
