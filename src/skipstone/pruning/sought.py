"""What a condition leaves to look at: values that it may hold for, told without deciding it."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skipstone.predicate.literals import order_key
from skipstone.predicate.tree import Op

if TYPE_CHECKING:
    from skipstone.predicate.tree import Leaf


_ZERO: Final = 1 << 63  # the key of 0 and 0.0; that of -0.0 is the one before
_MOST: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sought:
    """What excludes values; empty where nothing does. All others may meet the condition.

    ``lows`` and ``highs`` are closed spans of keys, ascending. The key of a text is its first eight
    bytes as a number, so a smaller text has no larger key. That of a number of ``type`` is an
    unsigned one in the same order, of floats that of IEEE. ``needle`` are bytes that a text
    contains.
    """

    type: pa.DataType
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
    needle: bytes = b""


def sought(leaf: Leaf) -> Sought:
    """What excludes values from a leaf that is not a negation."""
    type, op = leaf.type, leaf.op
    if op is Op.LIKE:
        return _of_pattern(leaf)
    if op is Op.STARTS_WITH:
        return _of_prefix(type, str(leaf.values[0]).encode("utf-8", "surrogatepass"))
    if pa.types.is_string(type) or pa.types.is_binary(type):
        words = [order_key(value, type) for value in leaf.values]
        keys = [(_text_key(word, b"\0"),) * 2 for word in words if isinstance(word, bytes)]
    elif _is_ordered(type):
        keys = [
            _number_keys(value, type) for value in leaf.values if isinstance(value, int | float)
        ]
    else:
        return Sought(type)
    least, above = 0, None
    if pa.types.is_floating(type):
        if any(isinstance(value, float) and math.isnan(value) for value in leaf.values):
            return Sought(type)
        # NaN is the largest value, whatever its sign.
        least, _ = _number_keys(-math.inf, type)
        above = (0, least - 1)
    if op in (Op.LT, Op.LE):
        return _spans(type, (least, keys[0][1]))
    if op in (Op.GT, Op.GE):
        return _spans(type, *([above] if above else []), (keys[0][0], _MOST))
    return _spans(type, *sorted(set(keys))) if op in (Op.EQ, Op.IN) else Sought(type)


def _spans(type: pa.DataType, *spans: tuple[int, int]) -> Sought:
    return Sought(type, tuple([low for low, _ in spans]), tuple([high for _, high in spans]))


def _is_ordered(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_signed_integer(type) or t.is_floating(type) or t.is_date32(type)
        or t.is_timestamp(type)
    )  # fmt: skip


def _number_keys(value: float, type: pa.DataType) -> tuple[int, int]:
    """The keys of all numbers that equal ``value``: the least and the largest."""
    if not pa.types.is_floating(type):
        return (int(value) + _ZERO,) * 2
    if value == 0:
        return _ZERO - 1, _ZERO
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return (int(_MOST - bits if bits >> 63 else bits | _ZERO),) * 2


def _text_key(word: bytes, fill: bytes) -> int:
    return int.from_bytes(word[:8].ljust(8, fill), "big")


def _of_prefix(type: pa.DataType, prefix: bytes) -> Sought:
    if not prefix:
        return Sought(type)
    return _spans(type, (_text_key(prefix, b"\0"), _text_key(prefix, b"\xff")))


def _of_pattern(leaf: Leaf) -> Sought:
    """By the beginning of the pattern, or its longest text between wildcards.

    Bytes that are not UTF-8 match as U+FFFD, so a text without it is in the value as it is.
    """
    pattern, escape = str(leaf.values[0]), str(leaf.values[1])
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
    if "\ufffd" in pattern or any("\ud800" <= char <= "\udfff" for char in pattern):
        return Sought(leaf.type)
    if texts[0]:
        return _of_prefix(leaf.type, texts[0].encode())
    return Sought(leaf.type, needle=max([text.encode() for text in texts], key=len))
