"""The array operations equal what NumPy and Python say of the same arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skipstone._arrays import distinct, within

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
