"""Values of Spark's rows from their texts: many rows cross in one call, none as an object.

An ``UnsafeRow`` prints its 64-bit words in hexadecimal, ``[0,1f4,1000000003]``: first a bit per
column that is set for NULL, in words of 64; then a word per column: the value itself, or the offset
(upper half) and the length (lower half) of its bytes, which follow. A byte of the text's word is
the first of the row's where it is the lowest. The row of a hash table over one long prints ``[5]``.

Values are those of the stored domain (``predicate/tree.py``).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone.predicate.types import parse_type
from skipstone.spark.literals import UnreadableLiteral

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.predicate.types import Value

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_WORD_DIGITS: Final = 18  # of a decimal that fits a word


def packed_columns(text: str, types: Sequence[str]) -> list[list[Value | None]]:
    """The columns of keys of integers that Spark packs into one long, the last one lowest."""
    if not text:
        return [[] for _ in types]
    packed = np.array(text[1:-1].split("]["), dtype=np.int64)
    columns: list[list[Value | None]] = []
    for at in range(len(types) - 1, -1, -1):
        bits = _BITS.get(types[at])
        if bits is None:
            raise UnreadableLiteral(f"a key of type {types[at]} in a long")
        unused = 64 - bits
        values = packed if at == 0 else (packed << unused) >> unused
        columns.insert(0, values.tolist())
        packed = packed >> bits if bits < 64 else packed
    return columns


def columns_of_rows(text: str, types: Sequence[str]) -> list[list[Value | None]]:
    """The columns of ``UnsafeRow``s, printed one after the other."""
    columns: list[list[Value | None]] = [[] for _ in types]
    if not text:
        return columns
    readers = [_reader(type) for type in types]
    first = (len(types) + 63) // 64
    for row in text[1:-1].split("]["):
        words = row.split(",")
        for at, (column, read) in enumerate(zip(columns, readers, strict=True)):
            if int(words[at // 64], 16) >> at % 64 & 1:
                column.append(None)
            else:
                column.append(read(words, int(words[first + at], 16)))
    return columns


def _reader(type: str) -> Callable[[list[str], int], Value]:
    """Reads the value of a column from the words of a row, and its own."""
    arrow = parse_type(type)
    if arrow is None:
        raise UnreadableLiteral(f"no index can use type {type}")
    t = pa.types
    if t.is_boolean(arrow):
        return lambda _, word: bool(word & 1)
    if t.is_float32(arrow):
        return lambda _, word: float(struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0])
    if t.is_float64(arrow):
        return lambda _, word: float(struct.unpack("<d", struct.pack("<Q", word))[0])
    if t.is_string(arrow):
        return _string
    if t.is_binary(arrow):
        return _bytes
    if t.is_decimal(arrow) and arrow.precision > _WORD_DIGITS:
        return lambda words, word: int.from_bytes(_bytes(words, word), "big", signed=True)
    if re.fullmatch(r"byte|short|integer|long|date|timestamp|timestamp_ntz|decimal\(.*\)", type):
        bits = {"byte": 8, "short": 16, "integer": 32, "date": 32}.get(type, 64)
        return lambda _, word: _signed(word, bits)
    raise UnreadableLiteral(f"no index can use keys of type {type}")


def _signed(word: int, bits: int) -> int:
    word &= (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


def _bytes(words: list[str], word: int) -> bytes:
    offset, length = word >> 32, word & 0xFFFFFFFF
    of = words[offset // 8 : (offset + length + 7) // 8]
    return b"".join(int(each, 16).to_bytes(8, "little") for each in of)[:length]


def _string(words: list[str], word: int) -> str:
    try:
        return _bytes(words, word).decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableLiteral("a key that is not UTF-8") from None
