"""Decodes columns of Spark's rows from their texts: one call passes many rows, without an object
per row.

An ``UnsafeRow`` prints its 64-bit words in hexadecimal, ``[0,1f4,1000000003]``. The first words
hold one bit per column, set for NULL. Then each column has a word: the value itself, or the offset
(upper half) and the length (lower half) of its bytes. These bytes follow. The first byte of a word
is its lowest. The row of a hash table over one long prints ``[5]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._arrays import arrow, arrow_bytes
from skipstone._dataclasses import dataclass
from skipstone.predicate.types import parse_type
from skipstone.spark.literals import UnreadableLiteral

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_WORD_DIGITS: Final = 18  # of a decimal that fits a word
# The value of a hexadecimal digit by its character; -1 for others.
_DIGITS: Final = np.full(256, -1, np.int64)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


@dataclass(frozen=True, slots=True, eq=False)
class RowColumn:
    """Words, or byte strings where they have a length; ``nulls`` says which rows have no value."""

    type: pa.DataType
    values: NDArray[np.uint64] | list[bytes]
    nulls: NDArray[np.bool_]

    def array(self) -> pa.Array:
        """The distinct values that are not NULL."""
        valid = np.flatnonzero(~self.nulls)
        if isinstance(self.values, list):
            found = self._of_bytes([self.values[at] for at in valid.tolist()])
        else:
            found = self._of_words(self.values[valid])
        return found.unique()

    def _of_bytes(self, values: list[bytes]) -> pa.Array:
        if pa.types.is_decimal(self.type):
            whole = (int.from_bytes(value, "big", signed=True) for value in values)
            data = b"".join(value.to_bytes(16, "little", signed=True) for value in whole)
            return pa.Array.from_buffers(self.type, len(values), [None, pa.py_buffer(data)])
        array = arrow_bytes(values)
        if pa.types.is_binary(self.type):
            return array
        try:
            return array.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise UnreadableLiteral("a key that is not UTF-8") from None

    def _of_words(self, words: NDArray[np.uint64]) -> pa.Array:
        t, type = pa.types, self.type
        if t.is_boolean(type):
            return arrow((words & np.uint64(1)).astype(np.bool_))
        if t.is_float32(type):
            return arrow(words.astype(np.uint32).view(np.float32))
        if t.is_float64(type):
            return arrow(words.view(np.float64))
        signed = words.view(np.int64)
        if t.is_decimal(type):
            both = np.stack([signed, signed >> 63], axis=1)  # 128 bits, the lower ones first
            return pa.Array.from_buffers(type, len(both), [None, pa.py_buffer(both)])
        width: Any = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[type.bit_width]
        return arrow(signed.astype(width)).view(type)


def packed_columns(text: str, types: Sequence[str]) -> list[RowColumn]:
    """The integer keys that Spark packs into one long; the last column has the lowest bits."""
    rows = text[1:-1].split("][") if text else []
    packed = np.array(rows, dtype=np.int64)
    columns: list[RowColumn] = []
    for at in range(len(types) - 1, -1, -1):
        bits = _BITS.get(types[at])
        if bits is None:
            raise UnreadableLiteral(f"a key of type {types[at]} in a long")
        unused = 64 - bits
        values = packed if at == 0 else (packed << unused) >> unused
        nulls = np.zeros(len(rows), np.bool_)
        columns.insert(0, RowColumn(parse_type(types[at]), values.view(np.uint64), nulls))
        packed = packed >> bits if bits < 64 else packed
    return columns


def columns_of_rows(text: str, types: Sequence[str]) -> list[RowColumn]:
    """The columns of ``UnsafeRow``s that were printed one after the other."""
    words, rows = _words_of(text)
    data = words.astype("<u8").tobytes()
    first = (len(types) + 63) // 64
    columns = []
    for at, name in enumerate(types):
        type = parse_type(name)
        if type is None or pa.types.is_null(type) or name.startswith("interval"):
            raise UnreadableLiteral(f"no index can use keys of type {name}")
        flags = words[rows + at // 64] >> np.uint64(at % 64)
        own = words[rows + first + at]
        values: NDArray[np.uint64] | list[bytes] = own
        t = pa.types
        is_long = t.is_decimal(type) and type.precision > _WORD_DIGITS
        if t.is_string(type) or t.is_binary(type) or is_long:
            starts = (rows * 8 + (own >> np.uint64(32)).astype(np.int64)).tolist()
            lengths = (own & np.uint64(0xFFFFFFFF)).tolist()
            pairs = zip(starts, lengths, strict=True)
            values = [data[start : start + length] for start, length in pairs]
        columns.append(RowColumn(type, values, (flags & np.uint64(1)).astype(np.bool_)))
    return columns


def _words_of(text: str) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """All words of the rows, and where each row begins."""
    data = np.frombuffer(text.encode("ascii"), np.uint8)
    is_digit = _DIGITS[data] >= 0
    starts = np.flatnonzero(is_digit[1:] & ~is_digit[:-1]) + 1
    ends = np.flatnonzero(is_digit[:-1] & ~is_digit[1:])  # the last digit of each
    words = np.zeros(len(starts), np.uint64)
    for place in range(16):
        at = ends - place
        digits = np.where(at >= starts, _DIGITS[data[np.maximum(at, 0)]], 0).astype(np.uint64)
        words |= digits << np.uint64(4 * place)
    return words, np.flatnonzero(data[starts - 1] == ord("["))
