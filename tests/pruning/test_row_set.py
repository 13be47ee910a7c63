"""RowSet is a set of integers: every operation against Python's sets, in both forms."""

from __future__ import annotations

import itertools
import operator
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from skipstone.pruning import RowSet

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = 2**63 - 2  # the largest position: its stop is the largest int64
# Small positions collide and touch; the others lie at the borders of roaring's containers and of
# the integer widths on the way.
BASES = (0, 2**16 - 4, 2**31 - 4, 2**32 - 4, 2**53 - 4, LAST - 8)
positions = st.builds(operator.add, st.sampled_from(BASES), st.integers(0, 8))
sets = st.frozensets(positions, max_size=24)


def ranges_form(members: frozenset[int]) -> RowSet:
    return RowSet.of(members)


def bitmap_form(members: frozenset[int]) -> RowSet:
    return RowSet.of_bitmap(BitMap64(members))


def both_forms(members: frozenset[int]) -> RowSet:
    rows = RowSet.of(members)
    assert rows.bitmap() is rows.bitmap()
    return rows


FORMS: list[Callable[[frozenset[int]], RowSet]] = [ranges_form, bitmap_form, both_forms]
forms = st.sampled_from(FORMS)


def check_invariants(rows: RowSet) -> None:
    starts, stops = rows.ranges()
    assert starts.dtype == stops.dtype == np.int64
    assert np.all(starts >= 0)
    assert np.all(starts < stops)
    assert np.all(stops[:-1] < starts[1:])


@given(sets, forms)
def test_a_set_is_its_positions(members: frozenset[int], form: Callable[..., RowSet]) -> None:
    rows = form(members)
    check_invariants(rows)
    assert rows.positions().tolist() == sorted(members)
    assert len(rows) == len(members)
    assert bool(rows) == bool(members)
    for position in {*members, *(m + 1 for m in members), 0, 2**40, LAST}:
        assert (position in rows) == (position in members)
    assert -1 not in rows
    assert set(rows.bitmap()) == set(members)


@given(sets, sets, forms, forms, st.sampled_from([operator.and_, operator.or_, operator.sub]))
def test_algebra_is_that_of_sets(
    a: frozenset[int],
    b: frozenset[int],
    form_a: Callable[..., RowSet],
    form_b: Callable[..., RowSet],
    op: Callable[..., object],
) -> None:
    left, right = form_a(a), form_b(b)
    result = op(left, right)
    assert isinstance(result, RowSet)
    check_invariants(result)
    assert result.positions().tolist() == sorted(op(a, b))  # type: ignore[call-overload]
    # Operands stay what they were.
    assert left.positions().tolist() == sorted(a)
    assert right.positions().tolist() == sorted(b)


@given(sets, sets, forms, forms)
def test_equal_sets_are_equal_in_any_form(
    a: frozenset[int],
    b: frozenset[int],
    form_a: Callable[..., RowSet],
    form_b: Callable[..., RowSet],
) -> None:
    assert (form_a(a) == form_b(b)) == (a == b)
    assert form_a(a) == form_b(a)
    assert hash(form_a(a)) == hash(form_b(a))
    assert pickle.loads(pickle.dumps(form_a(a))) == form_b(a)
    assert form_a(a) != a


@given(st.lists(st.tuples(positions, st.integers(-2, 6)), max_size=12))
def test_ranges_in_any_order_that_overlap_touch_or_are_empty(
    parts: list[tuple[int, int]],
) -> None:
    starts = [start for start, _ in parts]
    stops = [min(start + length, LAST + 1) for start, length in parts]
    rows = RowSet(starts, stops)
    check_invariants(rows)
    expected = {p for a, b in zip(starts, stops, strict=True) for p in range(a, b)}
    assert rows.positions().tolist() == sorted(expected)


@given(sets, forms, st.frozensets(positions, min_size=1, max_size=6))
def test_positions_are_counted_between_edges(
    members: frozenset[int], form: Callable[..., RowSet], edges: frozenset[int]
) -> None:
    cuts = sorted(edges)
    expected = [sum(a <= at < b for at in members) for a, b in itertools.pairwise(cuts)]
    assert form(members).counts(np.array(cuts, np.int64)).tolist() == expected


def test_ranges_that_touch_become_one() -> None:
    starts, stops = RowSet([5, 0, 3], [8, 3, 5]).ranges()
    assert (starts.tolist(), stops.tolist()) == ([0], [8])
    starts, stops = (RowSet([0], [3]) | RowSet([3], [5])).ranges()
    assert (starts.tolist(), stops.tolist()) == ([0], [5])
    starts, stops = (RowSet.all(5) - RowSet([1], [2])).ranges()
    assert (starts.tolist(), stops.tolist()) == ([0, 2], [1, 5])


def test_a_billion_rows_in_one_run_are_two_numbers_in_either_form() -> None:
    huge, shifted = RowSet.all(10**9), RowSet([7], [10**9 + 7])
    assert len(huge.bitmap()) == len(shifted.bitmap()) == 10**9
    both = huge & shifted
    assert [edge.tolist() for edge in both.ranges()] == [[7], [10**9]]
    assert len(both) == 10**9 - 7
    assert RowSet.all(2**62) & RowSet([2**61], [LAST + 1]) == RowSet([2**61], [2**62])


def test_of_takes_repeats_arrays_and_32_bit_bitmaps() -> None:
    assert RowSet.of([3, 1, 3, 2]) == RowSet([1], [4])
    assert RowSet.of(np.array([9, 4, 4], np.uint32)) == RowSet([4, 9], [5, 10])
    assert RowSet.of(iter(())) == RowSet()
    assert RowSet.of_bitmap(BitMap([2**32 - 1])).positions().tolist() == [2**32 - 1]


def test_a_bitmap_that_changes_later_changes_no_set() -> None:
    bitmap = BitMap64([1, 2])
    rows = RowSet.of_bitmap(bitmap)
    bitmap.add(9)
    assert rows.positions().tolist() == [1, 2]


def test_mask() -> None:
    rows = RowSet.of([0, 1, 4])
    assert rows.mask(6).tolist() == [True, True, False, False, True, False]
    assert rows.mask(5).tolist() == [True, True, False, False, True]
    assert RowSet().mask(0).tolist() == []
    with pytest.raises(ValueError, match="row 4 is past the last of 4 rows"):
        rows.mask(4)


@given(st.frozensets(st.integers(0, 40)), forms)
def test_mask_is_membership(members: frozenset[int], form: Callable[..., RowSet]) -> None:
    assert np.flatnonzero(form(members).mask(41)).tolist() == sorted(members)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RowSet([-1], [3]),
        lambda: RowSet.of([4, -1]),
        lambda: RowSet.of([2**63 - 1]),
        lambda: RowSet.of(np.array([2**63], np.uint64)),
        lambda: RowSet.of_bitmap(BitMap64([2**63 - 1])),
        lambda: RowSet.of_bitmap(BitMap64([2**64 - 1])),
        lambda: RowSet([1, 2], [3]),
        lambda: RowSet([[1]], [[3]]),
    ],
)
def test_impossible_positions_are_refused(make: Callable[[], RowSet]) -> None:
    with pytest.raises(ValueError):
        make()


def test_repr_counts_rows_and_runs() -> None:
    assert repr(RowSet([0, 7], [3, 8])) == "RowSet(4 rows: 0-2, 7)"
    assert repr(RowSet(range(0, 12, 2), range(1, 13, 2))) == (
        "RowSet(6 rows: 0, 2, 4, 6, … 6 runs)"
    )
    assert repr(RowSet()) == "RowSet(0 rows: )"


@given(sets, forms)
def test_a_set_becomes_a_list_or_an_array(
    members: frozenset[int], form: Callable[..., RowSet]
) -> None:
    rows, expected = form(members), sorted(members)
    assert list(rows) == rows.to_list() == expected
    assert all(type(each) is int for each in rows)
    array = np.asarray(rows)
    assert array.dtype == np.int64
    assert array.tolist() == expected
    array += 1
    assert rows.to_list() == expected
    assert np.asarray(rows, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.array(rows, copy=False)


def test_the_first_of_a_billion_rows_takes_no_array() -> None:
    assert next(iter(RowSet.all(10**9))) == 0
