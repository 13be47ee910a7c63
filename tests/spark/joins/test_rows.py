"""Keys of the JVM as text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.spark.joins.rows import columns_of_rows, packed_columns
from skipstone.spark.literals import UnreadableLiteral


def test_words_of_rows() -> None:
    text = "[0,fffffffb,1000000003,303035][2,7,0][0,7,1800000000]"
    number, word = columns_of_rows(text, ["integer", "string"])
    assert number.array().to_pylist() == [-5, 7]
    assert word.nulls.tolist() == [False, True, False]
    with pytest.raises(UnreadableLiteral, match="interval"):
        columns_of_rows(text, ["interval day", "string"])
    assert [len(column.nulls) for column in columns_of_rows("", ["long", "date"])] == [0, 0]


@given(
    values=st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**15), 2**15 - 1)), max_size=5
    )
)
def test_packed_keys(values: list[tuple[int, int]]) -> None:
    packed = [np.int64((first << 16) | (second & 0xFFFF)) for first, second in values]
    text = "".join(f"[{each}]" for each in packed)
    columns = packed_columns(text, ["integer", "short"])
    found = [each.values.view(np.int64).tolist() for each in columns]  # type: ignore[union-attr]
    assert list(zip(*found, strict=True)) == values
