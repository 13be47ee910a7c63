"""Patterns and floats are decided as Spark decides them, in every form that a column may have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skipstone.predicate.literals import order_key, order_keys
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.residual import matching, matching_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PIECES = ["a", "ab", "b", "%", "%", "_", "é", "😀", "\n", "\0", ".", "\\", "#", "(", "[a", "$"]
_BAD = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\x80", b"\x80"]

patterns = st.lists(st.sampled_from(_PIECES), max_size=5).map("".join)
texts = st.lists(st.sampled_from([*_PIECES, "\ufffd"]), max_size=5).map("".join)
words = st.lists(st.one_of(texts.map(str.encode), st.sampled_from(_BAD)), max_size=4).map(b"".join)
values = st.lists(st.none() | words, max_size=12)


def _spelled(word: bytes) -> list[str]:
    """The characters that Java reads: U+FFFD for each invalid part, one for a surrogate."""
    plain = re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", "\ufffd".encode(), word)
    return list(plain.decode("utf-8", "replace"))


def _like(word: Sequence[Any], pattern: Sequence[Any]) -> bool:
    """LIKE over characters or bytes; in a pattern ``None`` is ``%``, and an empty text ``_``."""
    if not pattern:
        return not word
    if pattern[0] is None:
        return any(_like(word[at:], pattern[1:]) for at in range(len(word) + 1))
    fits = bool(word) and (pattern[0] == "" or word[0] == pattern[0])
    return fits and _like(word[1:], pattern[1:])


def _expected(word: bytes, pattern: str, escape: str) -> bool:
    out: list[Any] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            out.append(next(chars, char))
        else:
            out.append({"%": None, "_": ""}.get(char, char))
    if escape not in pattern and _is_simple(pattern):
        return _like(list(word), [b for c in out for b in ([None] if c is None else c.encode())])
    return _like(_spelled(word), out)


def _is_simple(pattern: str) -> bool:
    """Patterns that Spark compares as bytes: a text, ``a%``, ``%a``, ``%a%``, ``a%b``."""
    if "_" in pattern or not pattern.strip("%"):
        return False
    parts = pattern.split("%")
    return len(parts) <= 2 or (len(parts) == 3 and not parts[0] and not parts[2])


FORMS: dict[str, Callable[[list[bytes | None]], Any]] = {
    "binary": lambda each: pa.array(each, pa.binary()),
    "large": lambda each: pa.array(each, pa.large_binary()),
    "string": lambda each: pa.array(each, pa.binary()).view(pa.string()),
    "large_string": lambda each: pa.array(each, pa.large_binary()).view(pa.large_string()),
    "view": lambda each: pa.array(each, pa.binary_view()),
    "dictionary": lambda each: pa.array(each, pa.binary()).dictionary_encode(),
    "null in it": lambda each: pa.array(each, pa.binary()).dictionary_encode("encode"),
    "sliced": lambda each: pa.array([b"x", *each, None], pa.binary()).slice(1, len(each)),
    "chunks": lambda each: pa.chunked_array(
        [pa.array(each[:2], pa.binary()), pa.array(each[2:], pa.binary())]
    ),
    "no chunk": lambda each: pa.chunked_array([pa.array(each, pa.binary())]),
}


@settings(max_examples=5 * settings().max_examples)
@given(values, patterns, st.sampled_from("\\#_%é"), st.sampled_from(sorted(FORMS)), st.booleans())
@example([b"a", b"aa", b"aba", b""], "a%a", "\\", "string", False)
@example([b"a", b"", None], "", "\\", "string", True)
@example([b"a", b"", b"\xff", None], "%%", "\\", "string", True)
@example([b"\xff", None], "%", "\\", "string", False)
@example([None, None], "a%", "\\", "null in it", True)
@example([], "a%", "\\", "dictionary", False)
def test_like(
    held: list[bytes | None], pattern: str, escape: str, form: str, negated: bool
) -> None:
    leaf = Leaf("c", pa.string(), Op.NOT_LIKE if negated else Op.LIKE, (pattern, escape))
    found = matching(leaf, {"c": FORMS[form](held)}, len(held))
    right = [word is not None and _expected(word, pattern, escape) is not negated for word in held]
    assert found.tolist() == right
    # And where the keys decide, as they do for values of indexes.
    keys = order_keys(pa.array(held, pa.binary()), pa.binary())
    assert matching_values(leaf, keys).tolist() == right


@given(values, st.one_of(patterns, st.just("")), st.sampled_from(sorted(FORMS)), st.booleans())
def test_prefixes(held: list[bytes | None], prefix: str, form: str, negated: bool) -> None:
    op = Op.NOT_STARTS_WITH if negated else Op.STARTS_WITH
    found = matching(Leaf("c", pa.string(), op, (prefix,)), {"c": FORMS[form](held)}, len(held))
    right = [word is not None and word.startswith(prefix.encode()) is not negated for word in held]
    assert found.tolist() == right


@pytest.mark.parametrize("pattern", ["\ud800", "\ud800%", "%\udfff_", "_\ud83d"])
def test_a_pattern_of_half_a_character_matches_no_text(pattern: str) -> None:
    column = pa.array(["a", "\ufffd", "😀", None, ""])
    for op in (Op.LIKE, Op.NOT_LIKE):
        found = matching(Leaf("c", pa.string(), op, (pattern, "\\")), {"c": column}, 5)
        assert found.tolist() == [op is Op.NOT_LIKE] * 3 + [False, op is Op.NOT_LIKE]


def test_a_pattern_longer_than_arrow_takes() -> None:
    column = pa.array(["x" * 100_000, "x" * 99_999, None])
    leaf = Leaf("c", pa.string(), Op.LIKE, ("_" * 100_000, "\\"))
    assert matching(leaf, {"c": column}, 3).tolist() == [True, False, False]


_COMPARED = [Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE_OR_NULL]
_FLOATS = st.one_of(
    st.sampled_from([math.nan, 0.0, -0.0, math.inf, -math.inf, 0.1, 1.0, 2.0**24, 5e-324]),
    st.floats(),
)


@settings(max_examples=5 * settings().max_examples)
@given(
    st.lists(st.none() | _FLOATS, max_size=12), _FLOATS, st.sampled_from(_COMPARED),
    st.sampled_from([pa.float32(), pa.float64()]), st.sampled_from(["array", "chunks", "coded"]),
)  # fmt: skip
@example([math.nan, None, 1.0], math.nan, Op.LE, pa.float64(), "chunks")
@example([0.1], 0.1, Op.EQ, pa.float32(), "array")
def test_floats_are_compared_as_their_keys(
    held: list[float | None], bound: float, op: Op, type: pa.DataType, form: str
) -> None:
    column = pa.array(held, type, from_pandas=False)
    leaf = Leaf("c", pa.float64(), op, (bound,))
    asked: Any = column
    if form == "chunks":
        asked = pa.chunked_array([column.slice(0, 3), column.slice(3)])
    elif form == "coded":
        asked = column.dictionary_encode()
    keys = order_keys(column, pa.float64())
    if op is Op.NE_OR_NULL:
        right = ~matching_values(Leaf("c", pa.float64(), Op.EQ, (bound,)), keys)
    else:
        right = matching_values(leaf, keys)
    found = matching(leaf, {"c": asked}, len(held))
    assert found.dtype == np.bool_
    assert found.tolist() == right.tolist()


_OTHERS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-3, 3)),
    (pa.string(), st.sampled_from(["", "a", "b", "ab"])),
    (pa.float64(), st.sampled_from([math.nan, 0.0, -0.0, 1.0])),
]


@given(st.data())
def test_a_dictionary_is_decided_as_its_values(data: st.DataObject) -> None:
    type, drawn = data.draw(st.sampled_from(_OTHERS))
    entries = data.draw(st.lists(st.none() | drawn, max_size=4))
    at = st.integers(0, len(entries) - 1) if entries else st.nothing()
    places = data.draw(st.lists(st.none() | at, max_size=10))
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(entries, type))
    start = data.draw(st.integers(0, len(places)))
    column = column.slice(start)
    plain = pa.array([None if at is None else entries[at] for at in places[start:]], type)
    op = data.draw(st.sampled_from([*_COMPARED, Op.IN, Op.NOT_IN]))
    many = 2 if op in (Op.IN, Op.NOT_IN) else 1
    literals = tuple(data.draw(st.lists(drawn, min_size=many, max_size=many)))
    leaf = Leaf("c", type, op, literals)
    assert order_key(literals[0], type) is not None
    found = matching(leaf, {"c": column}, len(column))
    assert found.tolist() == matching(leaf, {"c": plain}, len(plain)).tolist()
