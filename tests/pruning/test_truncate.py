"""Cut bounds stay bounds, stay valid, and stay short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.pruning.file_bounds import cut_lower, cut_upper


@pytest.mark.parametrize(
    "value, limit, lower, upper",
    [
        ("abc", 3, "abc", "abc"),
        ("abcd", 3, "abc", "abd"),
        ("ab\x7fd", 3, "ab\x7f", "ab\x80"),
        # Nothing follows U+D7FF but the surrogates, which have no UTF-8.
        ("\ud7ffx", 3, "\ud7ff", "\ue000"),
        ("a\U0010ffffb", 5, "a\U0010ffff", "b"),
        # A code point is not cut in two: 4 bytes hold "a" and one "é".
        ("aéé", 4, "aé", "aê"),
        ("éé", 1, "", None),
        ("\U0010ffff\U0010ffffx", 8, "\U0010ffff\U0010ffff", None),
    ],
)
def test_strings(value: str, limit: int, lower: str, upper: str | None) -> None:
    data = value.encode()
    assert cut_lower(data, limit, utf8=True).decode() == lower
    found = cut_upper(data, limit, utf8=True)
    assert (None if found is None else found.decode()) == upper


@pytest.mark.parametrize(
    "value, limit, lower, upper",
    [
        (b"abc", 3, b"abc", b"abc"),
        (b"abcd", 3, b"abc", b"abd"),
        (b"a\xff\xffd", 3, b"a\xff\xff", b"b"),
        (b"\xff\xff\xff", 2, b"\xff\xff", None),
        (b"", 1, b"", b""),
    ],
)
def test_binary(value: bytes, limit: int, lower: bytes, upper: bytes | None) -> None:
    assert cut_lower(value, limit, utf8=False) == lower
    assert cut_upper(value, limit, utf8=False) == upper


@given(st.text(), st.integers(1, 12))
def test_strings_lie_between_their_bounds(text: str, limit: int) -> None:
    value = text.encode()
    lower, upper = cut_lower(value, limit, utf8=True), cut_upper(value, limit, utf8=True)
    assert lower <= value
    assert len(lower) <= limit
    assert lower.decode().encode() == lower
    if upper is not None:
        # Above the value, and above all that begins with the same cut part.
        assert upper >= value
        assert upper.decode().encode() == upper
        assert len(upper) <= max(limit, len(value) if len(value) <= limit else 0) + 3
        if len(value) > limit:
            assert upper > lower + b"\xf4\x8f\xbf\xbf" * 4
    else:
        assert set(text[: len(lower.decode())]) <= {"\U0010ffff"}


@given(st.binary(max_size=20), st.integers(1, 12))
def test_bytes_lie_between_their_bounds(value: bytes, limit: int) -> None:
    lower, upper = cut_lower(value, limit, utf8=False), cut_upper(value, limit, utf8=False)
    assert lower <= value
    assert len(lower) <= limit
    if upper is None:
        assert set(lower) == {0xFF}
    else:
        assert upper >= value
        assert len(upper) <= limit
        assert len(value) <= limit or upper > lower + b"\xff" * 20
