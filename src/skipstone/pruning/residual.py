"""Evaluates a bound predicate on the rows of an Arrow table, or on values, exactly as Spark does.

NaN equals NaN and is the largest value, 0.0 equals -0.0, strings compare as UTF-8, and a null
matches only tests for null: the keys (``predicate/literals.py``) implement all of that. A part of a
predicate that Skipstone does not model (``Opaque``) raises ``UnsupportedError``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import compare, isin, order_key, order_keys
from skipstone.predicate.tree import And, Bound, Const, Leaf, Op, Opaque, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from skipstone.predicate.literals import Keys


BoolArray: TypeAlias = "NDArray[np.bool_]"

# Rows that are evaluated together. The keys of a column take up to 9 bytes a row.
_SLICE = 1 << 22


def require_decidable(tree: Bound) -> None:
    """``UnsupportedError`` where a part of the predicate is opaque."""
    for node in pieces(tree):
        if isinstance(node, Opaque):
            raise UnsupportedError(
                f"cannot decide {node.sql}: {node.reason}",
                hint="this supports comparisons of columns with literals, IN, LIKE, IS NULL; "
                "read with the conditions that can be decided, and filter the rest in an engine",
            )


def matching(
    tree: Bound, columns: Mapping[str, pa.ChunkedArray | pa.Array], rows: int, path: str = ""
) -> BoolArray:
    """Flags of the matching rows, ``(rows,)``; ``columns`` by the names in the leaves.

    ``UnsupportedError`` where values of the file at ``path`` do not fit the type of their column.
    """
    if rows <= _SLICE:
        return _Evaluation(columns, rows, path).of(tree)
    made = np.empty(rows, np.bool_)
    for start in range(0, rows, _SLICE):
        part = {name: column.slice(start, _SLICE) for name, column in columns.items()}
        count = min(_SLICE, rows - start)
        made[start : start + count] = _Evaluation(part, count, path).of(tree)
    return made


def unfit(column: str, have: pa.DataType, type: pa.DataType, path: str) -> UnsupportedError:
    """The error for values of ``have`` that do not fit ``type``, the type of their column."""
    where = f" of {path}" if path else ""
    return UnsupportedError(
        f"{column}{where} is {have}, and has a value that does not fit {type}",
        hint="Spark fails on it too: leave the file out, or write it with another type",
    )


class _Evaluation:
    def __init__(
        self, columns: Mapping[str, pa.ChunkedArray | pa.Array], rows: int, path: str
    ) -> None:
        self.columns, self.rows, self.path = columns, rows, path
        self.keys: dict[tuple[str, pa.DataType], Keys] = {}

    def of(self, tree: Bound) -> BoolArray:
        if isinstance(tree, Leaf):
            return self.leaf(tree)
        if isinstance(tree, Const):
            return np.full(self.rows, tree.value)
        if isinstance(tree, Opaque):
            require_decidable(tree)
        assert not isinstance(tree, Opaque)
        conjunction = isinstance(tree, And)
        result = np.full(self.rows, conjunction)
        for child in tree.children:
            part = self.of(child)  # type: ignore[arg-type]  # the children of a bound node are bound
            result = result & part if conjunction else result | part
        return result

    def leaf(self, leaf: Leaf) -> BoolArray:
        column = self.columns[leaf.column]
        match leaf.op:
            case Op.IS_NULL:
                return _flags(column.is_null())
            case Op.NOT_NULL:
                return _flags(column.is_valid())
            case Op.LIKE | Op.NOT_LIKE | Op.STARTS_WITH | Op.NOT_STARTS_WITH:
                return _text(leaf, column)
        keys = self.keys.get((leaf.column, leaf.type))
        if keys is None:
            try:
                keys = self.keys[leaf.column, leaf.type] = order_keys(column, leaf.type)
            except pa.ArrowInvalid as error:
                raise unfit(leaf.column, column.type, leaf.type, self.path) from error
        if leaf.op is Op.NE_OR_NULL:
            return ~compare(keys, Op.EQ, order_key(leaf.values[0], leaf.type))
        return matching_values(leaf, keys)


def matching_values(leaf: Leaf, keys: Keys) -> BoolArray:
    """Per value: whether the leaf is TRUE; a null matches nothing here."""
    op, type = leaf.op, leaf.type
    if op in (Op.IN, Op.NOT_IN):
        member = isin(keys, [order_key(value, type) for value in leaf.values])
        return member if op is Op.IN else keys.valid & ~member
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        found = _flags(pc.starts_with(keys.data, order_key(leaf.values[0], type)))
        return found & keys.valid if op is Op.STARTS_WITH else keys.valid & ~found
    if op in (Op.LIKE, Op.NOT_LIKE):
        pattern = rf"(?s)\A{like_regex(str(leaf.values[0]), str(leaf.values[1]))}\z"
        text = keys.data.view(pa.large_string())
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:  # Arrow's expressions match no bytes that are not UTF-8
            found = np.array([hit is True for hit in _hits(leaf, keys.data)], np.bool_)
        else:
            found = _flags(pc.match_substring_regex(text, pattern.encode()))
        return found & keys.valid if op is Op.LIKE else keys.valid & ~found
    ordered = Op.NE if op is Op.NE_OR_NULL else op
    return compare(keys, ordered, order_key(leaf.values[0], type))


def _text(leaf: Leaf, column: pa.ChunkedArray | pa.Array) -> BoolArray:
    """LIKE and STARTS WITH, once for each distinct value."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.binary())
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    negated = leaf.op in (Op.NOT_LIKE, Op.NOT_STARTS_WITH)
    hits = [hit is not None and hit is not negated for hit in _hits(leaf, coded.dictionary)]
    return _flags(arrow(np.array(hits, np.bool_)).take(coded.indices))


def _hits(leaf: Leaf, words: pa.Array) -> list[bool | None]:
    """Per word: whether it matches the pattern or prefix; ``None`` for null."""
    prefix = leaf.op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH)
    if not prefix:
        try:
            return _like(leaf, words.cast(pa.large_string()).to_pylist())
        except (UnicodeDecodeError, pa.ArrowInvalid):
            pass
    # Not all are UTF-8. Spark compares bytes where a pattern is a prefix, a suffix, both, or a
    # substring (its rule ``LikeSimplification``), and otherwise text with U+FFFD for invalid bytes.
    found: list[bytes | None] = words.cast(pa.large_binary()).to_pylist()
    if prefix:
        start = str(leaf.values[0]).encode("utf-8", "surrogatepass")
        return [None if word is None else word.startswith(start) for word in found]
    pattern, escape = str(leaf.values[0]), str(leaf.values[1])
    if escape not in pattern and _SIMPLE.fullmatch(pattern):
        # One character for each byte: no part of the pattern begins inside a character.
        texts = [None if word is None else word.decode("latin-1") for word in found]
        plain = pattern.encode("utf-8", "surrogatepass").decode("latin-1")
        return _like(Leaf(leaf.column, leaf.type, leaf.op, (plain, escape)), texts)
    return _like(leaf, [None if word is None else _java_text(word) for word in found])


_SIMPLE = re.compile(r"%?[^%_]+%?|[^%_]+%[^%_]+")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _java_text(word: bytes) -> str:
    """Bytes as Java reads UTF-8: U+FFFD for invalid bytes, one for an encoded surrogate."""
    return _SURROGATE.sub(b"\xef\xbf\xbd", word).decode("utf-8", "replace")


def _like(leaf: Leaf, words: list[str | None]) -> list[bool | None]:
    pattern = re.compile(like_regex(str(leaf.values[0]), str(leaf.values[1])), re.DOTALL)
    return [None if word is None else pattern.fullmatch(word) is not None for word in words]


def like_regex(pattern: str, escape: str) -> str:
    """A LIKE pattern as a regular expression (RE2 and Python's) for the whole text, where a dot
    matches any character."""
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append({"%": ".*", "_": "."}.get(char) or re.escape(char))
    return "".join(out)


def _flags(found: pa.ChunkedArray | pa.Array) -> BoolArray:
    """Booleans as NumPy has them; null is False."""
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    return np.asarray(numbers(found), np.bool_)
