"""Finds values that a condition may hold for, without deciding the condition."""

from __future__ import annotations

import math
import re
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._arrays import distinct
from skipstone._dataclasses import dataclass
from skipstone.predicate.kernels.patterns import literal_runs
from skipstone.predicate.literals import order_key
from skipstone.predicate.members import MIX, lists_nan
from skipstone.predicate.tree import Op, ignores_case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.predicate.types import ManyValues

    Spans: TypeAlias = "Sequence[int] | NDArray[np.uint64]"


_ZERO: Final = 1 << 63  # the key of 0 and 0.0; that of -0.0 is the one before
_MOST: Final = (1 << 64) - 1
# Runs of ASCII without i and k: only the lower cases of İ and of the Kelvin sign contain these.
_SURE_CASE: Final = re.compile(r"[\x00-hjl-\x7f]+")


# Up to this many spans are tried for each key; with more, a hash of the key is tested first.
_FEW_SPANS: Final = 2


@dataclass(frozen=True, eq=False)
class Sought:
    """Tests that exclude values; all other values may meet the condition. Empty if nothing is
    excluded.

    ``lows`` and ``highs`` are closed spans of keys, ascending. The key of a text is the number of
    its eight bytes after the first ``skip``, 0 where there are none, so a smaller text has no
    larger key. The key of a number of ``type`` is an unsigned number in the same order; floats have
    IEEE's order. A text must contain the bytes ``needle``, with ``any_case`` in any case of ASCII;
    with ``decides``, all texts that contain them meet the condition.
    """

    type: pa.DataType
    lows: Spans = ()
    highs: Spans = ()
    needle: bytes = b""
    skip: int = 0
    any_case: bool = False
    decides: bool = False

    @cached_property
    def spans(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
        """``lows`` and ``highs``. Where there are many spans, also a set of bits with the hashes of
        all their keys; its length in words is a power of two."""
        lows, highs = np.asarray(self.lows, np.uint64), np.asarray(self.highs, np.uint64)
        if len(lows) <= _FEW_SPANS:
            return lows, highs, np.zeros(0, np.uint64)
        size = max(16, len(lows).bit_length() + 4)
        flags = np.zeros(1 << size, np.bool_)
        if (highs - lows <= np.uint64(1)).all():
            for ends in (lows, highs):
                flags[ends * MIX >> np.uint64(64 - size)] = True
        else:
            flags[:] = True
        return lows, highs, np.packbits(flags, bitorder="little").view(np.uint64)


def sought(leaf: Leaf) -> Sought:
    """The tests that exclude values for a leaf that is not a negation."""
    type, op = leaf.type, leaf.op
    if op is Op.LIKE:
        return _of_pattern(leaf)
    if op is Op.STARTS_WITH:
        return _of_prefix(type, str(leaf.values[0]).encode("utf-8", "surrogatepass"))
    if op is Op.IN and not isinstance(leaf.values, tuple):
        return _of_array(leaf, leaf.values)
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
        if lists_nan(leaf):
            return Sought(type)
        # NaN is the largest value, whatever its sign.
        least, _ = _number_keys(-math.inf, type)
        above = (0, least - 1)
    if op in (Op.LT, Op.LE):
        return _spans(type, (least, keys[0][1]))
    if op in (Op.GT, Op.GE):
        return _spans(type, *([above] if above else []), (keys[0][0], _MOST))
    return _spans(type, *sorted(set(keys))) if op in (Op.EQ, Op.IN) else Sought(type)


def _of_array(leaf: Leaf, values: ManyValues) -> Sought:
    """The tests for a leaf with an array of values, made once."""
    found: Sought | None = values.cache.get("sought")
    if found is not None:
        return found
    type, keys = leaf.type, values.keys
    if not isinstance(keys.data, np.ndarray):
        is_text = pa.types.is_string(type) or pa.types.is_binary(type)
        # The common beginning of all values distinguishes none of them.
        prefix, words = keys.prefixed
        spans = distinct(words) if is_text else ()
        found = Sought(type, spans, spans, skip=len(prefix))
    elif not _is_ordered(type) or lists_nan(leaf):
        found = Sought(type)
    else:
        # The key of a number is as that of the module ``literals``, but for negative floats.
        lows = keys.data.view(np.uint64) ^ np.uint64(_ZERO)
        if pa.types.is_floating(type):
            lows = np.where(keys.data < 0, lows - np.uint64(1), lows)
        highs = lows
        if pa.types.is_floating(type) and (zero := lows == np.uint64(_ZERO)).any():
            lows = np.where(zero, np.uint64(_ZERO - 1), lows)
        found = Sought(type, lows, highs)
    values.cache["sought"] = found
    return found


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
    """The tests by the beginning of the pattern, or by its longest text between wildcards.

    Bytes that are not UTF-8 match as U+FFFD, so a text without it is in the value as it is.
    """
    pattern = str(leaf.values[0])
    texts = literal_runs(pattern, str(leaf.values[1]))
    if "\ufffd" in pattern or any("\ud800" <= char <= "\udfff" for char in pattern):
        return Sought(leaf.type)
    any_case = ignores_case(leaf)
    if any_case:
        if pattern != pattern.lower():  # no lower case contains it
            return Sought(leaf.type)
        # The lower case of İ begins with i, that of the Kelvin sign is k. No other character that
        # is not ASCII has an ASCII letter in its lower case, so these bytes are in the value.
        texts = [part for text in texts for part in _SURE_CASE.findall(text)]
    elif texts[0]:
        return _of_prefix(leaf.type, texts[0].encode())
    needle = max(texts, key=len, default="")
    decides = pattern == f"%{needle}%" and str(leaf.values[1]) not in pattern
    return Sought(leaf.type, needle=needle.encode(), any_case=any_case, decides=decides)
