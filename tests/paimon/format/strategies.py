"""Columns of every type, with the values that go wrong, and questions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from skipstone.paimon.format.column_keys import CodedColumn, KeyColumn, key_of
from skipstone.paimon.format.keys import Ask, In, KeyArray, Null, PaimonType, Range, Root

if TYPE_CHECKING:
    from skipstone.paimon.format.keys import Key


TYPES = [
    PaimonType.parse(text)
    for text in (
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(18, 4)",
        "DATE",
        "TIME(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP(6)",
        "TIMESTAMP(9)",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "STRING",
        "CHAR(3)",
        "BYTES",
    )
]


def keys(type: PaimonType) -> st.SearchStrategy[Key]:
    """Keys of a type, from a few values that come back, and from all."""
    if not type.width:
        awkward = [b"", b"\0", b"a", b"ab", b"\xc3\xa9", b"\xff", b"\xff\xff", b"b" * 40]
        return st.sampled_from(awkward) | st.binary(max_size=6)
    if type.root is Root.BOOLEAN:
        return st.integers(0, 1)
    if type.is_float:
        width = 8 * type.width
        floats = st.floats(width=32 if width == 32 else 64)
        specials = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5])
        return (specials | floats).map(lambda value: key_of(type, value))
    bound = 1 << (8 * type.width - 1)
    few = st.integers(-3, 3) | st.sampled_from([-bound + 1, bound - 1])
    return few | st.integers(-bound + 1, bound - 1)


@st.composite
def columns(draw: st.DrawFn, type: PaimonType) -> KeyColumn:
    """Up to 60 rows; some are spread over several containers of 65,536 rows each."""
    values = draw(st.lists(st.none() | keys(type), max_size=60))
    if draw(st.booleans()):
        values = [value for value in values for _ in range(draw(st.integers(1, 3)))]
    spread = draw(st.sampled_from([1, 1, 1, 7_001]))
    rows = [row * spread for row, value in enumerate(values) if value is not None]
    count = len(values) * spread
    present = [value for value in values if value is not None]
    return KeyColumn(count, np.array(rows, np.uint32), KeyArray.of(type, present))


def asks(type: PaimonType) -> st.SearchStrategy[Ask]:
    """Questions of every form."""
    end = st.none() | keys(type)
    return st.one_of(
        st.lists(keys(type), max_size=4).map(lambda each: In(tuple(each))),
        st.builds(Range, end, end, st.booleans(), st.booleans()),
        st.just(Null()),
    )


def matches(ask: Ask, column: KeyColumn) -> set[int]:
    """The rows by brute force: keys compare as they are, but for the two zeros."""

    def plain(key: Any) -> Any:
        return 0 if column.keys.type.is_float and key == -1 else key

    held = {int(row): plain(column.keys[i]) for i, row in enumerate(column.rows)}
    if isinstance(ask, Null):
        return set(range(column.row_count)) - set(held)
    if isinstance(ask, In):
        wanted = {plain(key) for key in ask.keys}
        return {row for row, key in held.items() if key in wanted}
    lo, hi = plain(ask.lo), plain(ask.hi)
    exact = column.keys.type.exact
    return {
        row
        for row, key in held.items()
        if (lo is None or key > lo or (key == lo and not (ask.lo_open and exact)))
        and (hi is None or key < hi or (key == hi and not (ask.hi_open and exact)))
    }


def coded(column: KeyColumn) -> CodedColumn:
    """A column as writers take it."""
    held = column.keys.to_list()
    keys = sorted(set(held))
    place = {key: at for at, key in enumerate(keys)}
    codes = np.full(column.row_count, -1, np.int32)
    codes[column.rows] = [place[key] for key in held]
    return CodedColumn(KeyArray.of(column.keys.type, keys), codes)
