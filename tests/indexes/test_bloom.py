"""Bloom filters: sized by what a file has, the same from either kernel, never wrong about
presence.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import UnsupportedError
from skipstone.indexes import bloom as bloombits
from skipstone.indexes.bloom import NUMPY, Bloom, BloomBuilder, HashKernels
from skipstone.predicate.tree import Op
from skipstone.pruning import Cause
from skipstone.pruning.kind import Builder, Chunk
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.v4_store import supports
from tests.build.built import Indexed
from tests.xskipper.format.reference_bloom import SketchBuilder, might_contain_longs

if TYPE_CHECKING:
    from skipstone.xskipper.format.sketch import SketchFilter


def compiled() -> HashKernels:
    return bloombits.COMPILED.load()


def filter_of(indexed: Indexed, file: int = 0) -> SketchFilter:
    blob = indexed.stored.values[file].as_py()
    return BloomFilterMetaData.from_bytes(blob).filter


def finished(builder: Builder) -> SketchFilter:
    value = builder.finish().value
    assert value is not None
    return BloomFilterMetaData.from_bytes(value[0].as_py()).filter


def test_a_filter_is_the_one_that_spark_would_make() -> None:
    # 50 strings, each thrice, and a null: sized for 50.
    texts = [f"user-{i}" for i in range(50)]
    indexed = Indexed(Bloom("c", fpp=0.05), [pa.array([*texts, None, *texts, *texts])])
    spark = SketchBuilder.sized(50, 0.05)
    spark.put(pa.array(texts))
    assert filter_of(indexed) == spark.build()


@pytest.mark.parametrize("kernels", [lambda: NUMPY, compiled], ids=["numpy", "compiled"])
@pytest.mark.parametrize("distinct", [1, 100, 60_000, 200_000])
def test_size_follows_the_distinct_values(distinct: int, kernels: object) -> None:
    # The values come in chunks, each value several times over, far apart.
    builder = Bloom("c").build(pa.int64(), 1 << 28)
    assert isinstance(builder, BloomBuilder)
    builder.kernels = kernels()  # type: ignore[operator]
    values = np.arange(distinct) * 7919
    for _ in range(3):
        for part in np.array_split(values, 4):
            builder.add(Chunk(pa.array(part)))
    made = finished(builder)
    ideal = -distinct * np.log(0.01) / np.log(2) ** 2
    # Rounded up to one of sixteen sizes per octave; the number of values is within half a percent.
    assert -ideal / 200 <= made.bit_size - ideal <= 64 + ideal / 16 + ideal / 200
    assert might_contain_longs(made, values).all()
    absent = might_contain_longs(made, -1 - np.arange(20_000))
    assert absent.mean() < 0.014


@pytest.mark.parametrize("fpp, hashes", [(0.01, 7), (0.001, 7), (0.0001, 7), (1e-6, 20)])
def test_few_hash_functions_keep_the_probability(fpp: float, hashes: int) -> None:
    builder = Bloom("c", fpp=fpp).build(pa.int64(), 1 << 26)
    values = np.arange(20_000) * 7919
    builder.add(Chunk(pa.array(values)))
    made = finished(builder)
    assert made.num_hash_functions == hashes
    assert made.expected_fpp() <= 1.05 * fpp
    assert might_contain_longs(made, values).all()
    absent = might_contain_longs(made, -1 - np.arange(200_000))
    assert absent.sum() <= 1.3 * 200_000 * fpp + 10


def test_past_the_budget_a_filter_at_the_bound_is_folded_down() -> None:
    # Room for 2,000 pairs, and 10,000 distinct values that come in small chunks.
    builder = Bloom("c").build(pa.int64(), 32_000)
    most = 0
    for start in range(0, 10_000, 500):
        builder.add(Chunk(pa.array(np.arange(start, start + 500))))
        most = max(most, builder.nbytes)
    assert most <= 2 * 32_000
    made = finished(builder)
    assert might_contain_longs(made, np.arange(10_000)).all()
    assert made.expected_fpp() <= 0.01
    assert 95_851 <= made.bit_size <= 2 * 95_851


def test_repeats_past_the_budget_are_dropped_first() -> None:
    # The same 100 values in 100 chunks that do not look like repeats one by one.
    builder = Bloom("c").build(pa.int64(), 16_000)
    for _ in range(100):
        builder.add(Chunk(pa.array(np.arange(100))))
    made = finished(builder)
    assert made.bit_size == 64 * 15


def test_a_filter_that_would_say_nothing_is_left_out() -> None:
    indexed = Indexed(Bloom("c", max_bytes=64), [pa.array(range(5_000)), pa.array([1, 2])])
    assert indexed.reasons == ["too many distinct values for 64 bytes", None]
    assert indexed.may(Op.EQ, 5_001) == [0]


# File i holds i, 10 + i and 20 + i.
THREE = [pa.array([i, 10 + i, 20 + i]) for i in range(3)]


def test_it_answers_equality_and_lists() -> None:
    indexed = Indexed(Bloom("c", fpp=1e-9), THREE)
    assert indexed.may(Op.EQ, 11) == [1]
    assert indexed.may(Op.EQ, 99) == []
    assert indexed.may(Op.IN, 0, 22, 99) == [0, 2]
    assert indexed.must(Op.EQ, 11) == []
    assert indexed.may(Op.IN) == []
    for op in set(Op) - {Op.EQ, Op.IN}:
        answer = indexed.ask(indexed.leaf(op, 1))
        assert answer.bounds is None
        assert answer.reasons[0].cause is Cause.NOT_APPLICABLE


def test_zeros_are_one_and_nans_are_one() -> None:
    files = [pa.array([v], pa.float64()) for v in (-0.0, float("nan"), 1.0)]
    indexed = Indexed(Bloom("c", fpp=1e-6), files)
    assert indexed.may(Op.EQ, 0.0) == [0]
    assert indexed.may(Op.EQ, -float("nan")) == [1]


def test_a_damaged_filter_may_hold_anything() -> None:
    indexed = Indexed(Bloom("c", fpp=1e-9), THREE)
    blobs = indexed.stored.values.to_pylist()
    object.__setattr__(indexed.stored, "values", pa.array([blobs[0][:-3], None, blobs[2]]))
    assert indexed.may(Op.EQ, 99) == [0, 1]


@pytest.mark.parametrize("type", [pa.bool_(), pa.list_(pa.string())])
def test_what_it_cannot_index_is_refused(type: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match=r"bloomfilter cannot index column 'c'") as caught:
        Bloom("c").build(type, 1 << 20)
    if pa.types.is_boolean(type):
        assert "minmax or valuelist" in str(caught.value)


def test_what_xskipper_has_too() -> None:
    for type_ in (pa.int8(), pa.int32(), pa.int64(), pa.string()):
        assert supports(Bloom.name, type_) is None
    for type_ in (pa.date32(), pa.float64(), pa.binary(), pa.timestamp("us"), pa.decimal128(5, 2)):
        assert supports(Bloom.name, type_) is not None


def test_parameters_go_to_the_store_and_back() -> None:
    for made in (Bloom("c"), Bloom("c", fpp=1e-4), Bloom("c", max_bytes=4_096)):
        assert Bloom.from_params("c", made.params) == made
    assert Bloom.from_params("c", {"io.xskipper.index.bloom.fpp": "0.05"}).fpp == 0.05
    with pytest.raises(ValueError, match="between 0 and 1"):
        Bloom("c", fpp=1.0)


# -- kernels --------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.binary(max_size=11)))
def test_both_kernels_hash_alike(numbers: list[int], texts: list[bytes]) -> None:
    values = np.array(numbers, np.int64)
    assert NUMPY.longs(values).tolist() == compiled().longs(values).tolist()
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    assert NUMPY.texts(data, offsets).tolist() == compiled().texts(data, offsets).tolist()


@pytest.mark.parametrize("words", [1, 3, 100, 1 << 12])
def test_both_kernels_set_the_same_bits(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Segments of 4,096 bits, so that a filter of several is put together.
    monkeypatch.setattr(bloombits, "_SEGMENT", 4_096)
    pairs = NUMPY.longs(np.arange(5_000))
    found = []
    for kernels in (NUMPY, compiled()):
        bits = np.zeros(words, np.uint64)
        kernels.put(pairs, 5, bits)
        found.append(bits.tolist())
    assert found[0] == found[1]
    assert any(found[0])


def test_both_kernels_count_alike() -> None:
    parts = [NUMPY.longs(np.arange(100_000)), NUMPY.longs(np.arange(50_000, 150_000))]
    counts = [bloombits.distinct_pairs(parts, kernels) for kernels in (NUMPY, compiled())]
    assert counts[0] == counts[1]
    assert abs(counts[0] - 150_000) < 300


def test_offsets_outside_the_data_are_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        compiled().texts(np.zeros(4, np.uint8), np.array([0, 5]))


def test_the_compiled_kernels_are_imported_by_nobody_early() -> None:
    import subprocess

    code = "import skipstone.build.data_file, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
