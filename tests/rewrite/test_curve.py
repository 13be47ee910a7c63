"""Orders of rows: each is a permutation that keeps neighbours together, for columns of any type."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import SkipstoneError
from skipstone.rewrite.curve import BITS, CURVES, Curve, sort_order
from tests import strategies

SIDE = 8


def grid(columns: int) -> list[pa.Array]:
    """All points of a cube of 8 values to a side, in random order."""
    points = np.array(list(itertools.product(range(SIDE), repeat=columns)))
    points = np.random.default_rng(3).permutation(points)
    return [pa.array(points[:, at]) for at in range(columns)]


def placed(curve: str, columns: list[pa.Array]) -> np.ndarray:
    return np.array(columns).T[sort_order(curve, columns)].astype(int)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_the_hilbert_curve_goes_from_each_cell_to_a_neighbour(columns: int) -> None:
    steps = np.abs(np.diff(placed("hilbert", grid(columns)), axis=0)).sum(axis=1)
    assert steps.tolist() == [1] * (SIDE**columns - 1)


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_the_z_order_interleaves_bits(columns: int) -> None:
    """Each next cube of 2 to a side is one run of rows, then each of 4 to a side."""
    points = placed("z-order", grid(columns))
    for shift in (1, 2):
        cells = [tuple(each) for each in (points >> shift).tolist()]
        runs = sum(1 for _ in itertools.groupby(cells))
        assert runs == len(set(cells)) == (SIDE >> shift) ** columns


def test_a_column_of_few_values_counts_as_much_as_one_of_many() -> None:
    rng = np.random.default_rng(5)
    few = pa.array(rng.integers(0, 4, 40_000))
    many = pa.array([f"u-{at:06d}" for at in rng.integers(0, 900_000, 40_000)])
    for curve in ("z-order", "hilbert"):
        order = sort_order(curve, [few, many])
        files = np.array_split(order, 16)
        held = [len(set(few.take(pa.array(each)).to_pylist())) for each in files]
        spans = [
            np.ptp([int(text[2:]) for text in many.take(pa.array(each)).to_pylist()])
            for each in files
        ]
        # A file that lies over the edge of two cells has values of both.
        assert np.mean(held) < 2, curve
        assert np.mean(spans) < 900_000 / 3, curve


@given(st.data())
def test_any_columns_have_an_order(data: st.DataObject) -> None:
    table = data.draw(strategies.tables())
    columns = [
        each.combine_chunks()
        for each in table.columns
        if not pa.types.is_nested(each.type) and not pa.types.is_null(each.type)
    ][:4]
    if not columns:
        return
    for curve in CURVES:
        order = sort_order(curve, columns)
        assert sorted(order.tolist()) == list(range(len(table)))
        first = columns[0].take(pa.array(order))
        if curve == "sort" or len(columns) == 1:
            assert not first.null_count or not first.slice(0, first.null_count).drop_null()
            ascending = first.drop_null()
            wanted = ascending.take(pc.array_sort_indices(ascending))
            if not pa.types.is_floating(first.type):  # -0.0 equals 0.0
                assert ascending.equals(wanted)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=60), st.data())
def test_keys_ascend_with_the_values_of_one_column(
    sample: list[int | None], data: st.DataObject
) -> None:
    """Also of values that the sample does not have."""
    others = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
    curve = Curve.of("hilbert", [pa.array(sample, pa.int64())])
    keys = curve.keys([pa.array(sorted(others), pa.int64())])
    assert (np.diff(keys) >= 0).all()
    assert ((keys >= 0) & (keys < 1 << BITS)).all()


def test_keys_are_those_of_the_whole_table_in_each_batch() -> None:
    columns = grid(3)
    curve = Curve.of("hilbert", columns)
    whole = curve.keys(columns)
    for start in range(0, len(whole), 100):
        part = [each.slice(start, 100) for each in columns]
        assert curve.keys(part).tolist() == whole[start : start + 100].tolist()


@pytest.mark.parametrize(
    "curve, columns, words",
    [("peano", 2, "no curve 'peano'"), ("hilbert", 5, "over 5 columns"), ("sort", 0, "over 0")],
)
def test_what_is_no_order_is_refused(curve: str, columns: int, words: str) -> None:
    with pytest.raises(SkipstoneError, match=words):
        sort_order(curve, [pa.array([1])] * columns)
