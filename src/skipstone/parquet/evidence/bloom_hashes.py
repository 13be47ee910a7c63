"""The hashes under which a Bloom filter must hold the values of a leaf, if it holds any.

Writers hash a value's PLAIN bytes (byte arrays without their length). A literal is asked for under
the hashes of **all** byte patterns that are it:

| column | patterns of a literal |
|---|---|
| INT32, INT64: integers, dates, decimals | its two's complement; none if it does not fit |
| INT64 timestamps | milliseconds: none unless whole; microseconds as they are |
| FLOAT, DOUBLE, FLOAT16 | its bits; 0.0 has two patterns |
| BYTE_ARRAY, FLBA: text, bytes, UUID | its bytes; of an FLBA none of another length |
| FLBA decimals | two's complement, big-endian, of the column's length |

A literal without a pattern is in no row. Where the patterns cannot be told, nothing is said: NaN
(any of millions), nanoseconds and INT96 (a thousand in every microsecond), decimals in BYTE_ARRAY
(any length), booleans.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.xxh64 import xxh64
from skipstone.predicate.tree import Const, Op

from .stored_values import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.predicate.text import Value
    from skipstone.predicate.tree import Leaf

    from .stored_values import Stored

__all__ = ["hashes_of"]

Hashes: TypeAlias = "NDArray[np.uint64]"

_FLOATS = {Type.FLOAT: "<f", Type.DOUBLE: "<d", Type.FIXED_LEN_BYTE_ARRAY: "<e"}


def hashes_of(leaf: Leaf, stored: Stored) -> Hashes | None:
    """Hashes of which a filter must hold one at least, uint64 ``(m,)``, where any row matches.

    ``None``: a filter says nothing of this leaf.
    """
    if leaf.op not in (Op.EQ, Op.IN):
        return None
    local = stored.localise(leaf)
    if local is None:
        return None
    if isinstance(local, Const):
        return None if local.value else np.empty(0, np.uint64)
    if local.op not in (Op.EQ, Op.IN):
        return None
    found: list[int] = []
    for value in local.values:
        patterns = _patterns(value, stored)
        if patterns is None:
            return None
        found.extend(map(xxh64, patterns))
    return np.array(sorted(set(found)), np.uint64)


def _patterns(value: Value, stored: Stored) -> list[bytes] | None:
    """All PLAIN byte patterns that are ``value``."""
    column = stored.column
    match stored.form, value:
        case Form.TEXT, str() | bytes():
            text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            fixed = column.type is Type.FIXED_LEN_BYTE_ARRAY
            return [] if fixed and len(text) != column.type_length else [text]
        case Form.FLOATING, float():
            if math.isnan(value):
                return None
            code = _FLOATS[column.type]
            if value == 0:
                return [struct.pack(code, 0.0), struct.pack(code, -0.0)]
            try:
                packed = struct.pack(code, value)
            except OverflowError:
                return []
            return [packed] if struct.unpack(code, packed)[0] == value else []
        case Form.TIMESTAMP, int():
            if stored.unit == "us":
                return _integer(value, 8, "little")
            if stored.unit == "ms":
                return [] if value % 1000 else _integer(value // 1000, 8, "little")
            return None
        case ((Form.SIGNED | Form.DECIMAL), int()) if column.type in _WIDTHS:
            return _integer(value, _WIDTHS[column.type], "little")
        case Form.UNSIGNED, int() if column.type in _WIDTHS:
            width = _WIDTHS[column.type]
            return [value.to_bytes(width, "little")] if 0 <= value < 1 << (8 * width) else []
        case Form.DECIMAL, int() if column.type is Type.FIXED_LEN_BYTE_ARRAY:
            return _integer(value, column.type_length, "big")
        case _:
            return None


_WIDTHS = {Type.INT32: 4, Type.INT64: 8}


def _integer(value: int, width: int, order: str) -> list[bytes]:
    most = 1 << (8 * width - 1)
    if not -most <= value < most:
        return []
    return [value.to_bytes(width, "big" if order == "big" else "little", signed=True)]
