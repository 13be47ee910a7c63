"""Patterns over text as Spark decides them: LIKE, prefixes, and Java's regular expressions.

Spark compares bytes where a LIKE pattern is a text, a prefix, a suffix, both, or a substring (its
rule ``LikeSimplification``). Otherwise it compares text, with U+FFFD for bytes that are not UTF-8.
A regular expression is always matched with text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import in_ascii_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typed import Typed
    from ..types import Value
    from ..zones import Zone
    from .java_regex import JavaRegex


def hits(prefix: bool, values: Sequence[Value], words: pa.Array) -> pa.BooleanArray:
    """Whether each word begins with ``values[0]``, or is LIKE it with the escape ``values[1]``;
    null for null. With ``values[3]``, whether its lower case is LIKE it."""
    if prefix:
        return pc.starts_with(as_bytes(words), encoded(str(values[0])))
    pattern, escape = str(values[0]), str(values[1])
    if len(values) > 3:
        words = _lower(as_bytes(words))
    simple = None if escape in pattern else _SIMPLE.fullmatch(pattern)
    if simple is not None:
        return _simple(as_bytes(words), simple)
    regex = like_regex(pattern, escape)
    expression = re.compile(regex, re.DOTALL)
    return _found(
        _as_text(words), rf"(?s)\A{regex}\z", lambda text: expression.fullmatch(text) is not None
    )


def _found(text: pa.Array, expression: str, decide: Callable[[str], bool]) -> pa.BooleanArray:
    """Whether RE2 finds ``expression`` in each text. If the expression is too long for RE2,
    ``decide`` decides each distinct text."""
    try:
        return pc.match_substring_regex(text, expression.encode())
    except (pa.ArrowInvalid, UnicodeEncodeError):  # RE2 takes UTF-8 of limited length
        return _by_word(text, decide)


def _as_text(words: pa.Array) -> pa.Array:
    """Words as Java reads them: RE2 matches no bytes that are not UTF-8."""
    text = pc.cast(as_bytes(words), pa.large_binary()).view(pa.large_string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        coded = text.view(pa.large_binary()).dictionary_encode()
        read = [_java_text(word) for word in coded.dictionary.to_pylist()]
        return pa.array(read, pa.large_string()).take(coded.indices)
    return text


def _by_word(text: pa.Array, decide: Callable[[str], bool]) -> pa.BooleanArray:
    coded = text.dictionary_encode()
    known = [decide(word) for word in coded.dictionary.to_pylist()]
    return pa.array(known, pa.bool_()).take(coded.indices)


def like(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: pattern and escape."""
    return hits(False, node.value, values[0])


def rlike(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    """``value``: the expression, translated."""
    regex: JavaRegex = node.value
    text = _as_text(values[0])
    found = _found(text, regex.re2, regex.matches)
    if not regex.ends:
        return found
    # "$" also matches before the line terminator at the end, which RE2 cannot say.
    odd = pc.match_substring_regex(text, _LAST_LINE_END)
    if not pc.any(odd).as_py():
        return found
    some = text.filter(odd)
    if regex.tail:
        before = pc.replace_substring_regex(some, _LAST_LINE_END, "")
        hit = pc.or_(found.filter(odd), _found(before, regex.re2, regex.matches))
    else:
        hit = _by_word(some, regex.matches)
    return pc.replace_with_mask(found, pc.fill_null(odd, False), hit)


def as_bytes(words: pa.Array) -> pa.Array:
    t = pa.types
    if t.is_binary(words.type) or t.is_large_binary(words.type):
        return words
    if t.is_fixed_size_binary(words.type):
        return words.cast(pa.binary())
    if not t.is_string(words.type):
        return words.cast(pa.large_string()).view(pa.large_binary())
    return words.view(pa.binary())


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _simple(words: pa.Array, pattern: re.Match[str]) -> pa.BooleanArray:
    """Whether words match ``a``, ``a%``, ``%a``, ``%a%`` or ``a%b``."""
    first, middle, last = (encoded(part or "") for part in pattern.group("first", "middle", "last"))
    if pattern["text"] is not None:
        return pc.equal(words, pa.scalar(encoded(pattern["text"]), words.type))
    if middle:
        return pc.match_substring(words, middle)
    long = pc.greater_equal(pc.binary_length(words), len(first) + len(last))
    if first:
        long = pc.and_(long, pc.starts_with(words, first))
    return pc.and_(long, pc.ends_with(words, last)) if last else long


_SIMPLE = re.compile(r"(?P<text>[^%_]+)|%(?P<middle>[^%_]+)%|(?P<first>[^%_]+)?%(?P<last>[^%_]+)?")
_LAST_LINE_END = "(?:\r\n|[\n\r\x85\u2028\u2029])\\z"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _java_text(word: bytes) -> str:
    """Bytes as Java reads UTF-8: U+FFFD for invalid bytes, one for an encoded surrogate."""
    return _SURROGATE.sub(b"\xef\xbf\xbd", word).decode("utf-8", "replace")


def _lower(words: pa.Array) -> pa.Array:
    """Bytes as text in lower case; each distinct one once where it is not ASCII."""
    text = words.cast(pa.large_binary()).view(pa.large_string())
    ascii = pc.string_is_ascii(text)
    found = in_ascii_case(text)
    if pc.all(ascii, min_count=0).as_py() is not False:
        return as_bytes(found)
    other = pc.fill_null(pc.invert(ascii), False)
    coded = text.view(pa.large_binary()).filter(other).dictionary_encode()
    mapped = [encoded(_java_text(word).lower()) for word in coded.dictionary.to_pylist()]
    lowered = pa.array(mapped, pa.large_binary()).take(coded.indices)
    return pc.replace_with_mask(as_bytes(found), other, lowered)


def literal_runs(pattern: str, escape: str) -> list[str]:
    """The texts of a LIKE pattern before, between and after its wildcards; some may be empty."""
    texts, at = [""], 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape and at < len(pattern):
            texts[-1] += pattern[at]
            at += 1
        elif char in "%_":
            texts.append("")
        else:
            texts[-1] += char
    return texts


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
