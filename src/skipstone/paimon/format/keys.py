"""Paimon's column types, and keys, which an index stores for values: one order for all types.

Types, as schema files spell them:

    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL(p, s) DATE TIME(p)
    TIMESTAMP(p)   TIMESTAMP(p) WITH LOCAL TIME ZONE   TIMESTAMP_LTZ(p)
    CHAR(n) VARCHAR(n) STRING   BINARY(n) VARBINARY(n) BYTES         each with or without NOT NULL

``STRING`` is VARCHAR(2147483647), ``BYTES`` VARBINARY(2147483647). Left out, p is 10 for DECIMAL, 0
for TIME, 6 for TIMESTAMP, and n is 1.

| type | bytes of a key, big-endian | what it is |
|---|---|---|
| BOOLEAN | 1 | 0 or 1 |
| TINYINT, SMALLINT, INT, BIGINT | 1, 2, 4, 8 | the number |
| DATE, TIME | 4 | days since 1970-01-01, milliseconds of the day |
| TIMESTAMP, of either kind | 8 | p ≤ 3: milliseconds since 1970-01-01; else microseconds |
| FLOAT, DOUBLE | 4, 8 | IEEE bits |
| DECIMAL(p ≤ 18, s) | 8 | the unscaled number |
| CHAR, VARCHAR | 4 + length | UTF-8 after its length (i32) |

A key of a type of fixed width is an **ordinal** in memory: an ``int`` that sorts as the values do.
For numbers, days and instants it is the number itself. For FLOAT and DOUBLE it is the IEEE bits as
a signed int, all bits but the sign inverted below zero; this is the order of Java's compare: -∞ …
-0.0 < 0.0 … ∞ < NaN, where -0.0 is ordinal -1, 0.0 is 0, and every NaN is the canonical one. A key
of a string is its bytes, ordered unsigned, the shorter first.

``safe`` turns a question about a value into one about keys. The answer is complete even where keys
are finer or coarser than values:

- 0.0 and -0.0 are one value with two keys: a query for one finds both;
- TIMESTAMP(7) to (9) and TIME(4) to (9) lose digits on the way to the key, so that equal keys do
  not prove equal values (``exact`` is false): an open end of a range becomes closed. The rows are
  then all that may match; none is certain to.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.dictionary import gather_bytes
from skipstone.parquet.values import ByteArrays

from ..._arrays import within

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from .partial_blob import Cursor


_LONGEST = 2**31 - 1


class Root(StrEnum):
    """A type without its parameters."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"


_WIDTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DECIMAL: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
_DEFAULTS = {
    Root.DECIMAL: 10,
    Root.TIME: 0,
    Root.TIMESTAMP: 6,
    Root.TIMESTAMP_LTZ: 6,
    Root.CHAR: 1,
    Root.VARCHAR: 1,
    Root.BINARY: 1,
    Root.VARBINARY: 1,
}
_LIMITS = {
    Root.DECIMAL: (1, 38),
    Root.TIME: (0, 9),
    Root.TIMESTAMP: (0, 9),
    Root.TIMESTAMP_LTZ: (0, 9),
    Root.CHAR: (1, _LONGEST),
    Root.VARCHAR: (1, _LONGEST),
    Root.BINARY: (1, _LONGEST),
    Root.VARBINARY: (1, _LONGEST),
}
_ALIASES = {"INTEGER": Root.INT, "DEC": Root.DECIMAL, "NUMERIC": Root.DECIMAL}
_TEXT = re.compile(
    r"(?P<root>[A-Z_]+)(\s*\(\s*(?P<p>\d{1,10})\s*(,\s*(?P<s>\d{1,3})\s*)?\))?"
    r"(?P<zone>\s+WITH(OUT)?( LOCAL)? TIME ZONE)?(\s+(NOT )?NULL)?"
)


@dataclass(frozen=True, slots=True)
class PaimonType:
    """A type; ``precision`` is p or n, 0 where a type has none; ``scale`` is for DECIMAL."""

    root: Root
    precision: int = 0
    scale: int = 0

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> PaimonType:
        """From a schema's text. ``UnsupportedError`` for nested and unknown types."""
        upper = " ".join(text.upper().split())
        match = _TEXT.fullmatch(upper)
        if match is None:
            raise _unsupported(text)
        name, zone = match["root"], (match["zone"] or "").strip()
        precision = None if match["p"] is None else int(match["p"])
        if zone and name != "TIMESTAMP":
            if (name, zone) != ("TIME", "WITHOUT TIME ZONE"):
                raise _unsupported(text)
        elif zone == "WITH TIME ZONE":
            raise _unsupported(text)
        if name in ("STRING", "BYTES"):
            if precision is not None:
                raise _unsupported(text)
            return cls(Root.VARCHAR if name == "STRING" else Root.VARBINARY, _LONGEST)
        if zone == "WITH LOCAL TIME ZONE":
            name = Root.TIMESTAMP_LTZ
        root = _ALIASES.get(name) or next((known for known in Root if known == name), None)
        if root is None or (match["s"] is not None and root is not Root.DECIMAL):
            raise _unsupported(text)
        if root not in _DEFAULTS:
            if precision is not None:
                raise _unsupported(text)
            return cls(root)
        precision = _DEFAULTS[root] if precision is None else precision
        low, high = _LIMITS[root]
        scale = int(match["s"] or 0)
        if not low <= precision <= high or scale > precision:
            raise _unsupported(text)
        return cls(root, precision, scale)

    def __str__(self) -> str:
        if self.root in (Root.VARCHAR, Root.VARBINARY) and self.precision == _LONGEST:
            return "STRING" if self.root is Root.VARCHAR else "BYTES"
        if self.root is Root.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.root is Root.TIMESTAMP_LTZ:
            return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
        return f"{self.root}({self.precision})" if self.root in _DEFAULTS else str(self.root)

    @property
    def width(self) -> int:
        """Bytes of a key, 0 where they vary (strings and binary)."""
        return _WIDTHS.get(self.root, 0)

    @property
    def is_float(self) -> bool:
        """FLOAT or DOUBLE: two zeros, and NaN."""
        return self.root in (Root.FLOAT, Root.DOUBLE)

    @property
    def is_binary(self) -> bool:
        """BINARY, VARBINARY or BYTES."""
        return self.root in (Root.BINARY, Root.VARBINARY)

    @property
    def is_timestamp(self) -> bool:
        """With or without local time zone."""
        return self.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ)

    @property
    def in_millis(self) -> bool:
        """For timestamps: whether the key counts milliseconds, not microseconds."""
        return self.precision <= 3

    @property
    def exact(self) -> bool:
        """Whether equal keys prove equal values; see the module."""
        if self.is_timestamp:
            return self.precision <= 6
        return self.root is not Root.TIME or self.precision <= 3


def _unsupported(text: str) -> UnsupportedError:
    return UnsupportedError(f"a column of type {text!r} has no file index of any kind")


Key: TypeAlias = "int | bytes"
I64: TypeAlias = "NDArray[np.int64]"
U8: TypeAlias = "NDArray[np.uint8]"

#: Infinity of each width: greater magnitudes are NaN.
INFINITE = {4: 0x7F80_0000, 8: 0x7FF0_0000_0000_0000}
_DTYPES = {width: np.dtype(f">i{width}") for width in (1, 2, 4, 8)}
# The canonical NaN of each width.
_NAN = {4: 0x7FC0_0000, 8: 0x7FF8_0000_0000_0000}


def raw_dtype(type: PaimonType) -> np.dtype[Any]:
    """The type of a fixed key on disk."""
    return _DTYPES[_width(type)]


def canonical(ordinals: I64, width: int) -> I64:
    """Float ordinals with every NaN, of either sign, as the canonical one."""
    top = INFINITE[width]
    return np.where((ordinals > top) | (ordinals < -top - 1), np.int64(_NAN[width]), ordinals)


def ordinals_of(raw: NDArray[Any], type: PaimonType) -> I64:
    """Ordinals of keys as stored (or of IEEE bits as signed ints), int64."""
    found = raw.astype(np.int64)
    if type.is_float:
        flipped = np.where(found < 0, found ^ np.int64(_largest(type.width)), found)
        return canonical(flipped, type.width)
    if type.root is Root.BOOLEAN and len(wrong := found[(found < 0) | (found > 1)]):
        raise FormatError("a boolean key that is neither 0 nor 1", got=int(wrong[0]))
    return found


def raw_of(ordinals: I64, type: PaimonType) -> NDArray[Any]:
    """The stored keys of these ordinals; the inverse of ``ordinals_of``."""
    if type.is_float:
        ordinals = np.where(ordinals < 0, ordinals ^ np.int64(_largest(type.width)), ordinals)
    return ordinals.astype(raw_dtype(type))


def key_bytes(key: Key, type: PaimonType) -> bytes:
    """One key as stored."""
    if isinstance(key, bytes):
        return len(key).to_bytes(4, "big") + key
    return raw_of(np.array([key], np.int64), type).tobytes()


def read_key(cursor: Cursor, type: PaimonType) -> Key:
    """The next key. ``FormatError`` for a negative length or a boolean above 1."""
    if not type.width:
        return bytes(cursor.take(cursor.count("key length")))
    return int(ordinals_of(np.frombuffer(cursor.take(type.width), raw_dtype(type)), type)[0])


def _largest(width: int) -> int:
    return (1 << (8 * width - 1)) - 1


def _width(type: PaimonType) -> int:
    if not type.width:
        raise UnsupportedError(f"keys of {type} have no fixed width")
    return type.width


@dataclass(frozen=True, slots=True, eq=False)
class KeyArray:
    """Many keys of one type: ``values`` is an int64 array of ordinals, or ``ByteArrays``."""

    type: PaimonType
    values: I64 | ByteArrays

    @classmethod
    def of(cls, type: PaimonType, keys: Iterable[Key]) -> KeyArray:
        """An array of these keys, given one by one."""
        if type.width:
            return cls(type, np.fromiter(keys, np.int64))
        return cls(type, ByteArrays.from_list(keys))  # type: ignore[arg-type]

    @classmethod
    def from_raw(cls, type: PaimonType, raw: NDArray[Any]) -> KeyArray:
        """An array of keys of fixed width, given as stored."""
        return cls(type, ordinals_of(raw, type))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: int) -> Key:
        if isinstance(self.values, np.ndarray):
            return int(self.values[at])
        offsets, count = self.values.offsets, len(self.values.offsets) - 1
        if not -count <= at < count:
            raise IndexError(f"key {at} of {count}")
        at %= count
        return self.values.data[offsets[at] : offsets[at + 1]].tobytes()

    def slice(self, start: int, stop: int) -> KeyArray:
        """Keys ``start`` to ``stop - 1``, sharing memory."""
        if isinstance(self.values, np.ndarray):
            return KeyArray(self.type, self.values[start:stop])
        offsets = self.values.offsets[start : stop + 1]
        return KeyArray(self.type, ByteArrays(self.values.data, offsets))

    def take(self, at: I64) -> KeyArray:
        """The keys at these places."""
        if isinstance(self.values, np.ndarray):
            return KeyArray(self.type, self.values[at])
        return KeyArray(self.type, gather_bytes(self.values, at))

    def to_list(self) -> list[Key]:
        return list(self.values.tolist() if isinstance(self.values, np.ndarray) else self.values)

    def within_range(self, ask: Range) -> tuple[int, int]:
        """Which of the keys, which must ascend, lie in the range: from the first number up to
        before the second."""
        low, high = 0, len(self)
        if ask.lo is not None:
            low = self.below(ask.lo)
            low += ask.lo_open and low < len(self) and self[low] == ask.lo
        if ask.hi is not None:
            high = self.below(ask.hi)
            high += not ask.hi_open and high < len(self) and self[high] == ask.hi
        return low, high

    def ascending(self) -> bool:
        """Whether each key is greater than the one before."""
        if isinstance(self.values, np.ndarray):
            return bool((self.values[1:] > self.values[:-1]).all())
        if len(self) < 2:
            return True
        texts = self._arrow()
        return not numbers(pc.greater_equal(texts[:-1], texts[1:])).any()

    def within(self, ask: Range) -> NDArray[np.bool_]:
        """Which of the keys, in any order, lie in the range."""
        values = self.values if isinstance(self.values, np.ndarray) else self._arrow()
        inside = np.ones(len(self), np.bool_)
        if ask.lo is not None:
            inside &= numbers((pc.greater if ask.lo_open else pc.greater_equal)(values, ask.lo))
        if ask.hi is not None:
            inside &= numbers((pc.less if ask.hi_open else pc.less_equal)(values, ask.hi))
        return inside

    def _arrow(self) -> pa.Array:
        """Strings as Arrow has them, sharing memory: it compares bytes as keys are ordered."""
        import pyarrow as pa

        assert isinstance(self.values, ByteArrays)
        buffers = [None, pa.py_buffer(self.values.offsets), pa.py_buffer(self.values.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def below(self, key: Key) -> int:
        """How many keys are less than ``key``; the keys must ascend."""
        if isinstance(self.values, np.ndarray):
            return int(self.values.searchsorted(key))
        return bisect_left(self, key)

    def lengths(self) -> I64:
        """Bytes of each key on disk, a string's own length included."""
        if isinstance(self.values, np.ndarray):
            return np.full(len(self), self.type.width, np.int64)
        return np.diff(self.values.offsets) + 4

    def place(self, out: U8, at: I64) -> None:
        """Write key ``i`` to ``out[at[i]:]`` as it is stored."""
        if isinstance(self.values, np.ndarray):
            raw = raw_of(self.values, self.type).view(np.uint8).reshape(len(self), self.type.width)
            for byte in range(self.type.width):
                out[at + byte] = raw[:, byte]
            return
        lengths = np.diff(self.values.offsets)
        place_i32(out, at, lengths)
        place(out, at + 4, self.values.data, self.values.offsets[:-1], lengths)

    def to_bytes(self) -> bytes:
        """All of them, one after another."""
        if isinstance(self.values, np.ndarray):
            return raw_of(self.values, self.type).tobytes()
        lengths = self.lengths()
        out = np.empty(int(lengths.sum()), np.uint8)
        self.place(out, np.cumsum(lengths) - lengths)
        return out.tobytes()


def i32(value: int) -> bytes:
    """A big-endian int of 4 bytes."""
    return value.to_bytes(4, "big", signed=True)


def place_i32(out: U8, at: I64, values: I64) -> None:
    """Write big-endian ints of 4 bytes to ``out[at[i]:]``."""
    raw = values.astype(">i4").view(np.uint8).reshape(len(values), 4)
    for byte in range(4):
        out[at + byte] = raw[:, byte]


def place(out: U8, at: I64, data: U8, starts: I64, lengths: I64) -> None:
    """Copy ``data[starts[i]:][:lengths[i]]`` to ``out[at[i]:]`` for every i."""
    inside = within(lengths)
    out[np.repeat(at, lengths) + inside] = data[np.repeat(starts, lengths) + inside]


# The ordinals of -0.0 and 0.0, see ``keys``.
_ZEROS = (-1, 0)


@dataclass(frozen=True, slots=True)
class In:
    """Rows whose key is one of these."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Rows whose key lies from ``lo`` to ``hi``; ``None`` is not a limit; nulls are never in it.

    ``Range()`` is every row that is not null.
    """

    lo: Key | None = None
    hi: Key | None = None
    lo_open: bool = False
    hi_open: bool = False


@dataclass(frozen=True, slots=True)
class Null:
    """Rows that hold no value."""


Ask: TypeAlias = "In | Range | Null"


def prefix(start: bytes) -> Range:
    """All strings that begin with ``start``."""
    stripped = start.rstrip(b"\xff")
    if not stripped:
        return Range(lo=start)
    return Range(lo=start, hi=stripped[:-1] + bytes([stripped[-1] + 1]), hi_open=True)


def safe(ask: Ask, type: PaimonType) -> Ask:
    """The same question where keys and values differ; see the module."""
    if isinstance(ask, In):
        keys = set(ask.keys)
        if type.is_float and not keys.isdisjoint(_ZEROS):
            keys.update(_ZEROS)
        return In(tuple(sorted(keys)))
    if isinstance(ask, Range):
        if not type.exact:
            ask = replace(ask, lo_open=False, hi_open=False)
        if type.is_float:
            if ask.lo in _ZEROS:
                ask = replace(ask, lo=_ZEROS[ask.lo_open])
            if ask.hi in _ZEROS:
                ask = replace(ask, hi=_ZEROS[not ask.hi_open])
    return ask
