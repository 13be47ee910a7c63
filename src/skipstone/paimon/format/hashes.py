"""The 64-bit hash of a value that the ``bloom-filter`` index takes.

    CHAR, VARCHAR, BINARY, VARBINARY    XXH64 with seed 0 of the bytes
    FLOAT, DOUBLE                       wang(IEEE bits, sign-extended), NaN canonical
    others                              wang(key)

``wang`` is Thomas Wang's 64-bit mix, with shifts that keep the sign. wang(0) is 0: the bit 0 stands
for the value 0. BOOLEAN and DECIMAL have no hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.parquet.format.xxh64 import xxh64, xxh64_byte_arrays

from .keys import raw_of
from .types import Root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .keys import I64, Key, Keys
    from .types import PaimonType

__all__ = ["check_type", "hash_key", "hashes_of", "wang"]

Hashes: TypeAlias = "NDArray[np.uint64]"


def check_type(type: PaimonType) -> None:
    """``UnsupportedError`` for a type whose values have no hash."""
    if type.root in (Root.BOOLEAN, Root.DECIMAL):
        raise UnsupportedError(f"a bloom-filter index takes no column of {type}")


def wang(values: I64) -> I64:
    """The mix of each value, modulo 2^64."""
    found = ~values + (values << 21)
    found = found ^ (found >> 24)
    found = found + (found << 3) + (found << 8)
    found = found ^ (found >> 14)
    found = found + (found << 2) + (found << 4)
    found = found ^ (found >> 28)
    return np.asarray(found + (found << 31))


def hashes_of(keys: Keys) -> Hashes:
    """The hash of each key, uint64 ``(n,)``."""
    check_type(keys.type)
    if not isinstance(keys.values, np.ndarray):
        return xxh64_byte_arrays(keys.values)
    raw = keys.values
    if keys.type.is_float:
        raw = raw_of(raw, keys.type).astype(np.int64)
    return wang(raw).view(np.uint64)


def hash_key(key: Key, type: PaimonType) -> int:
    """The hash of one key."""
    check_type(type)
    if isinstance(key, bytes):
        return xxh64(key)
    raw = np.array([key], np.int64)
    if type.is_float:
        raw = raw_of(raw, type).astype(np.int64)
    return int(wang(raw).view(np.uint64)[0])
