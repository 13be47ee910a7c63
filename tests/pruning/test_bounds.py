"""Bounds are sound after any combining: units are lists of rows, and a predicate is true of some.

The model: a unit has 0 to 4 rows, a leaf is TRUE for some of them. Sound bounds of a leaf are any
``may`` that has every unit with a matching row, and any ``must`` that has only units all of whose
rows match. What comes out of AND, OR and sharpening must be sound for the combined truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.pruning import Bounds, RowSet

Truth = list[list[bool]]  # per unit, per row


@st.composite
def tables(draw: st.DrawFn, leaves: int) -> tuple[list[int], list[Truth]]:
    """Row counts of the units, and for each leaf its truth value for every row."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    row = st.booleans()
    truths = [
        [draw(st.lists(row, min_size=count, max_size=count)) for count in counts]
        for _ in range(leaves)
    ]
    return counts, truths


@st.composite
def sound(draw: st.DrawFn, truth: Truth) -> Bounds[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Any bounds that an honest index may give: exact, lossy or silent, unit by unit."""
    may, must = [], []
    for rows in truth:
        may.append(any(rows) or draw(st.booleans()))
        must.append(all(rows) and draw(st.booleans()))
    return Bounds(np.array(must, np.bool_), np.array(may, np.bool_))


def check(bounds: Bounds[Any], truth: Truth) -> None:
    for unit, rows in enumerate(truth):
        assert bounds.may[unit] or not any(rows)
        assert not bounds.must[unit] or all(rows)
    assert not np.any(bounds.must & ~bounds.may)
    if bounds.exact:
        for unit, rows in enumerate(truth):
            assert bounds.may[unit] == (len(rows) > 0 and all(rows)) or not rows


@given(st.data())
def test_and_or_and_sharpen_stay_sound(data: st.DataObject) -> None:
    _, (p, q) = data.draw(tables(2))
    of_p, again, of_q = data.draw(sound(p)), data.draw(sound(p)), data.draw(sound(q))
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(p, q, strict=True)]
    check(of_p, p)
    check(of_p.meet_and(of_q), [[a and b for a, b in rows] for rows in pairs])
    check(of_p.meet_or(of_q), [[a or b for a, b in rows] for rows in pairs])
    sharper = of_p.sharpen(again)
    check(sharper, p)
    for weaker in (of_p, again):
        assert not np.any(sharper.may & ~weaker.may)
        assert not np.any(weaker.must & sharper.may & ~sharper.must)


@given(st.data())
def test_rows_stay_sound_too(data: st.DataObject) -> None:
    """At the row level every unit is one row, and sets are RowSets."""
    rows = data.draw(st.integers(0, 12))
    bits = st.lists(st.booleans(), min_size=rows, max_size=rows)
    p, q = data.draw(bits), data.draw(bits)

    def honest(truth: list[bool]) -> Bounds[RowSet]:
        may = [i for i, yes in enumerate(truth) if yes or data.draw(st.booleans())]
        must = [i for i, yes in enumerate(truth) if yes and data.draw(st.booleans())]
        return Bounds(RowSet.of(must), RowSet.of(may))

    of_p, again, of_q = honest(p), honest(p), honest(q)
    for bounds, truth in (
        (of_p.meet_and(of_q), [a and b for a, b in zip(p, q, strict=True)]),
        (of_p.meet_or(of_q), [a or b for a, b in zip(p, q, strict=True)]),
        (of_p.sharpen(again), p),
    ):
        matching = RowSet.of([i for i, yes in enumerate(truth) if yes])
        assert not matching - bounds.may
        assert not bounds.must - matching
        assert not bounds.must - bounds.may
        if bounds.exact:
            assert bounds.may == matching


def test_the_constants() -> None:
    unknown, nothing, everything = Bounds.unknown(3), Bounds.nothing(3), Bounds.everything(3)
    assert (unknown.must.tolist(), unknown.may.tolist()) == ([False] * 3, [True] * 3)
    assert (nothing.must.tolist(), nothing.may.tolist()) == ([False] * 3, [False] * 3)
    assert (everything.must.tolist(), everything.may.tolist()) == ([True] * 3, [True] * 3)
    assert [b.exact for b in (unknown, nothing, everything)] == [False, True, True]
    assert Bounds.unknown(0).exact


def test_two_halves_of_a_unit_do_not_make_a_whole() -> None:
    """A unit where p holds for one half and q for the other: neither must, and p AND q only may."""
    half = Bounds(np.array([False]), np.array([True]))
    both = half.meet_and(half)
    assert (both.must.tolist(), both.may.tolist()) == ([False], [True])
    assert half.meet_or(half).must.tolist() == [False]


def test_must_outside_may_is_dropped() -> None:
    """An empty unit matches vacuously, and a broken index contradicts itself: neither must."""
    bounds = Bounds(np.array([True, True]), np.array([False, True]))
    assert (bounds.must.tolist(), bounds.may.tolist()) == ([False, True], [False, True])
    rows = Bounds(RowSet([0], [9]), RowSet([4], [6]))
    assert rows.must == RowSet([4], [6])
    assert rows.exact


def test_bounds_that_are_no_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must has shape \(2,\), may \(3,\)"):
        Bounds(np.zeros(2, np.bool_), np.ones(3, np.bool_))
    with pytest.raises(TypeError, match="must is RowSet, may ndarray"):
        Bounds[object](RowSet(), np.ones(3, np.bool_))
    with pytest.raises(TypeError, match="must is list"):
        Bounds([True], [True])
