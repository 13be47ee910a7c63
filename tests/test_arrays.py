"""The array operations equal what NumPy and Python say of the same arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skipstone._arrays import distinct, runs_up_to, within

if TYPE_CHECKING:
    from numpy.typing import NDArray


@given(values=arrays(np.int64, st.integers(0, 40), elements=st.integers(-5, 5)))
@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<u8", "<f8"])
def test_distinct_values_are_those_of_numpy(values: NDArray[np.int64], dtype: str) -> None:
    given_values = values.astype(dtype)
    found = distinct(given_values)
    assert found.dtype == given_values.dtype
    assert found.tolist() == np.unique(given_values).tolist()


@given(counts=st.lists(st.integers(0, 5), max_size=20))
def test_places_within_runs(counts: list[int]) -> None:
    found = within(np.array(counts, np.int64))
    assert found.tolist() == [place for count in counts for place in range(count)]


@given(
    sizes=st.lists(st.integers(0, 9), max_size=20),
    most=st.integers(0, 20),
    count=st.none() | st.integers(1, 4),
)
def test_runs_are_as_long_as_they_may_be(sizes: list[int], most: int, count: int | None) -> None:
    found = list(runs_up_to(sizes, most, count))
    assert [at for start, stop in found for at in range(start, stop)] == list(range(len(sizes)))
    longest = len(sizes) if count is None else count
    for start, stop in found:
        assert stop - start == 1 or (sum(sizes[start:stop]) <= most and stop - start <= longest)
        # One item more would be too many.
        assert stop == len(sizes) or sum(sizes[start : stop + 1]) > most or stop - start == longest
