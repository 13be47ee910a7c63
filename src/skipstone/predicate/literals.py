"""Values in a column's stored domain, and as keys in Spark's order. All formats share them.

**Stored domain** of a canonical type (``types.py``), as Python values:

| type | domain |
|---|---|
| boolean | ``bool`` |
| tinyint … bigint | ``int`` |
| float, double | ``float`` |
| decimal(p, s) | ``int``: unscaled, value × 10^s |
| date | ``int``: days since 1970-01-01 |
| timestamp, timestamp_ntz | ``int``: microseconds since 1970-01-01 (UTC, or local) |
| interval | ``int``: microseconds or months |
| string | ``str`` |
| binary | ``bytes`` |

**Keys** order and equal each other exactly as Spark compares the values:

| type | key, and bloom item |
|---|---|
| all that fit 64 bits signed, decimals with p ≤ 18 | the domain's number, ``int64`` |
| float, double | the double's bits without sign, negated below zero; NaN one above infinity |
| decimal, p > 18 | 16 bytes, big-endian, sign bit flipped |
| string, binary | UTF-8 or plain bytes, unsigned |

A float has the key of the equal double, an int that of the equal long: so narrower and wider
columns compare. Keys of decimals compare only at one scale and on one side of 18 digits.
"""

from __future__ import annotations

import math
import operator
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes, numbers, validity
from skipstone._dataclasses import dataclass

from .tree import Op
from .types import Kind, kind_of, spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .types import Value


Key: TypeAlias = "int | bytes"

_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
#: the key of infinity; that of NaN is above
INFINITE = 0x7FF0_0000_0000_0000
_MAGNITUDE = np.int64(2**63 - 1)
# For arrays of numbers and of bytes.
_COMPARISONS: dict[Op, tuple[Any, str]] = {
    Op.EQ: (operator.eq, "equal"),
    Op.NE: (operator.ne, "not_equal"),
    Op.LT: (operator.lt, "less"),
    Op.LE: (operator.le, "less_equal"),
    Op.GT: (operator.gt, "greater"),
    Op.GE: (operator.ge, "greater_equal"),
}


def wide(type: pa.DataType) -> bool:
    """True for a decimal whose keys are 16 bytes instead of ``int64``."""
    canonical = spark_type(type)
    return bool(
        canonical is not None and pa.types.is_decimal(canonical) and canonical.precision > 18
    )


# -- one value -------------------------------------------------------------------------------------


def to_domain(value: object, type: pa.DataType) -> Value:
    """A Python value in the stored domain of ``type``, exactly; ``ValueError`` where there is none.

    Takes what Arrow's ``as_py`` gives (``Decimal``, ``date``, aware or naive ``datetime``, …). An
    ``int`` for a decimal is a number, not an unscaled one; for a date or timestamp it is already in
    the domain.
    """
    kind = kind_of(type)
    canonical = spark_type(type)
    assert canonical is not None
    if isinstance(value, np.generic):
        value = value.item()
    found: Value | None = None
    match kind, value:
        case Kind.BOOLEAN, bool():
            return value
        case Kind.STRING, str():
            return value
        case Kind.BINARY, bytes() | bytearray() | memoryview():
            return bytes(value)
        case _, bool():
            pass
        case Kind.FLOATING, int() | float():
            found = float(value)
            if canonical.bit_width == 32:
                found = float(np.float32(found)) if not math.isinf(np.float32(found)) else found
            if not math.isnan(found) and found != value:
                found = None
        case Kind.DECIMAL, int() | float() | Decimal():
            found = _unscaled(value, canonical.scale)
            if found is not None and abs(found) >= 10**canonical.precision:
                found = None
        case Kind.INTEGER, int() | float() | Decimal():
            found = _unscaled(value, 0)
            if found is not None and not -(2 ** (canonical.bit_width - 1)) <= found < 2 ** (
                canonical.bit_width - 1
            ):
                found = None
        case ((Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ), datetime()):
            if (value.tzinfo is None) == (kind is Kind.TIMESTAMP_NTZ) and not getattr(
                value, "nanosecond", 0
            ):
                epoch = datetime(1970, 1, 1, tzinfo=None if value.tzinfo is None else UTC)
                found = (value - epoch) // _MICROSECOND
        case Kind.DATE, date() if not isinstance(value, datetime):
            found = (value - _EPOCH_DAY).days
        case Kind.DURATION, timedelta():
            found = value // _MICROSECOND
        case ((Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ | Kind.DURATION), int()):
            found = value
        case _:
            pass
    if found is None:
        raise ValueError(f"{value!r} is not a value of type {canonical}")
    return found


def _unscaled(value: float | Decimal, scale: int) -> int | None:
    """``value`` × 10^scale if that is an integer."""
    if isinstance(value, int):
        return int(value * 10**scale)
    if not math.isfinite(value):
        return None
    top, bottom = value.as_integer_ratio()
    whole, rest = divmod(top * 10**scale, bottom)
    return int(whole) if rest == 0 else None


def order_key(value: Value, type: pa.DataType) -> Key:
    """The key of one value of the stored domain; see the module."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return float_key(value)
    if wide(type):
        return (int(value) + 2**127).to_bytes(16, "big")
    return int(value)


def float_key(value: float) -> int:
    """The key of a double: neighbouring doubles have neighbouring keys."""
    if math.isnan(value):
        return INFINITE + 1
    (magnitude,) = struct.unpack("<q", struct.pack("<d", abs(value)))
    return -int(magnitude) if value < 0 else int(magnitude)


def float_of_key(key: int) -> float:
    """The double that has this key."""
    if key > INFINITE:
        return math.nan
    (value,) = struct.unpack("<d", struct.pack("<q", abs(key)))
    return -float(value) if key < 0 else float(value)


def from_key(key: Key, type: pa.DataType) -> Value:
    """The value of the stored domain that has this key."""
    kind = kind_of(type)
    if isinstance(key, bytes):
        if kind is Kind.STRING:
            return key.decode("utf-8", "surrogatepass")
        if kind is Kind.DECIMAL:
            return int.from_bytes(key, "big") - 2**127
        return key
    if kind is Kind.FLOATING:
        return float_of_key(int(key))
    return bool(key) if kind is Kind.BOOLEAN else int(key)


# -- columns of values -----------------------------------------------------------------------------


# Masks of the bits of a word that its first 0 to 8 bytes cover.
_LEFT = np.array([(1 << 64) - (1 << (64 - 8 * count)) for count in range(9)], np.uint64)
# Fewer byte strings than the first number are always compared directly; others so many times as the
# second, because making their words takes as long.
_MANY, _OFTEN = 10_000, 8


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of ``n`` values, ``int64`` or Arrow ``large_binary``; ``valid`` marks non-nulls.

    Under a null, ``data`` holds 0 or null. Values never change; ``take`` gives new ones.
    """

    data: NDArray[np.int64] | pa.LargeBinaryArray
    valid: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.valid)

    @classmethod
    def concat(cls, parts: Sequence[Keys]) -> Keys:
        """The keys of all parts, in order."""
        valid = np.concatenate([each.valid for each in parts])
        if parts[0].is_int:
            return cls(np.concatenate([np.asarray(each.data) for each in parts]), valid)
        return cls(pa.concat_arrays([each.data for each in parts]), valid)

    def take(self, at: NDArray[np.bool_] | NDArray[np.int64]) -> Keys:
        """The keys that a mask or positions select."""
        if isinstance(self.data, np.ndarray):
            return Keys(self.data[at], self.valid[at])
        chosen = np.flatnonzero(at) if at.dtype == np.bool_ else at
        return Keys(pc.take(self.data, arrow(chosen)), self.valid[at])

    def words(self, skip: int) -> NDArray[np.uint64]:
        """The 8 bytes of each byte string after its first ``skip``, big-endian; zeros past the end.
        Their order is that of strings with equal first bytes, except for ties."""
        assert not isinstance(self.data, np.ndarray)
        at, count = self.data.offset, len(self)
        _, ends, held = self.data.buffers()
        offsets = np.frombuffer(ends, np.int64)[at : at + count + 1]
        data = np.zeros(len(held or b"") + 8, np.uint8)
        data[:-8] = np.frombuffer(held or b"", np.uint8)
        starts = np.minimum(offsets[:-1] + skip, len(data) - 8)
        left = np.clip(offsets[1:] - starts, 0, 8)
        words = np.ndarray(len(data) - 7, ">u8", data, strides=(1,))[starts].astype(np.uint64)
        return np.asarray(words & _LEFT[left])

    @cached_property
    def prefixed(self) -> tuple[bytes, NDArray[np.uint64]]:
        """The bytes that all byte strings begin with, and the words after them."""
        ends = pc.min_max(self.data)
        first, last = ends["min"].as_py() or b"", ends["max"].as_py() or b""
        pairs = enumerate(zip(first, last, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))
        return first[:same], self.words(same)

    def is_compared_often(self) -> bool:
        """Whether words pay; each call counts. Threads that lose a count only make words later."""
        count: int = self.__dict__.get("comparisons", 0) + 1
        self.__dict__["comparisons"] = count
        return count > _OFTEN

    def derived(self, name: str, derive: Callable[[Keys], Any]) -> Any:
        """What ``derive`` makes of the keys, made once."""
        if name not in self.__dict__:
            self.__dict__[name] = derive(self)
        return self.__dict__[name]

    @property
    def is_int(self) -> bool:
        """True for ``int64`` keys."""
        return isinstance(self.data, np.ndarray)

    def to_list(self) -> list[Key | None]:
        """Python keys, ``None`` for nulls. Slow; for small sets and messages."""
        raw = self.data.tolist() if isinstance(self.data, np.ndarray) else self.data.to_pylist()
        return [key if ok else None for key, ok in zip(raw, self.valid.tolist(), strict=True)]


# Arrow has a text of these days from 1970 in every time zone, and wrong texts of others.
_DAYS = 11_000_000
# How many of a unit a day has.
_A_DAY = {"D": 1, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def text_of_times(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Dates, times and durations as text, because Python lacks nanoseconds and years beyond 9999.

    In UTC where this machine does not know their time zone, and beyond the years of Arrow.
    """
    type = times.type
    if isinstance(times, pa.ChunkedArray):
        return pa.chunked_array([text_of_times(chunk) for chunk in times.chunks], pa.string())
    if pa.types.is_time(type):
        return pc.cast(times, pa.string())
    narrow = pa.types.is_date32(type)
    unit = "D" if narrow else "ms" if pa.types.is_date64(type) else type.unit
    a_day = _A_DAY[unit]
    ticks = times.view(pa.int32() if narrow else pa.int64())
    days, rest = np.divmod(_numbers(ticks)[0], a_day)
    if pa.types.is_duration(type):
        spans = zip(days.tolist(), (rest * (10**9 * 86_400 // a_day)).tolist(), strict=True)
        return pa.array([_time_span(*each) for each in spans], pa.string(), mask=~validity(times))
    far = np.abs(days) > min(_DAYS, 2**63 // a_day - 2)
    near = pc.if_else(far, pa.scalar(None, type), times) if far.any() else times
    try:
        texts = pc.cast(near, pa.string())
    except pa.ArrowInvalid:
        texts = pc.cast(pc.cast(near, pa.timestamp(unit, "UTC")), pa.string())
    if not far.any():
        return texts
    written = np.datetime_as_string(days[far].view("M8[D]")).tolist()
    if not pa.types.is_date(type):
        end = "Z" if type.tz else ""
        of_day = np.datetime_as_string(rest[far].view(f"M8[{unit}]")).tolist()
        written = [f"{date} {time[11:]}{end}" for date, time in zip(written, of_day, strict=True)]
    return pc.replace_with_mask(texts, far, pa.array(written, pa.string()))


def _time_span(days: int, nanoseconds: int) -> str:
    """As Python writes a ``timedelta``, which has no nanoseconds and fewer days."""
    seconds, part = divmod(nanoseconds, 10**9)
    whole = f"{days} day{'' if abs(days) == 1 else 's'}, " if days else ""
    digits = f".{part:09}".removesuffix("000") if part else ""
    return f"{whole}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}"


def stored(array: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    """``array`` as the canonical type of ``type``: decoded, widened, in microseconds.

    Narrower files are widened (int, decimal, float to double). Nanoseconds are floored, as Spark
    reads INT96. ``ValueError`` (Arrow's) when a value does not fit.
    """
    canonical = spark_type(type)
    if canonical is None:
        kind_of(type)  # raises
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    have = array.type
    if have == canonical:
        return array
    t = pa.types
    if t.is_timestamp(have) and t.is_timestamp(canonical):
        return _microseconds(array).cast(canonical) if have.unit != "us" else array.view(canonical)
    if t.is_duration(canonical) and t.is_int64(have):
        return array.view(canonical)
    if t.is_decimal(canonical) and t.is_uint64(have):
        # Arrow has no direct cast of the upper half of uint64.
        return array.cast(pa.string()).cast(canonical)
    if t.is_string(canonical) and spark_type(have) == pa.binary():
        # Spark takes the bytes as they are, and Arrow's own cast refuses what is not UTF-8.
        return array.cast(pa.binary()).view(canonical)
    return array.cast(canonical)


def _microseconds(array: pa.Array) -> pa.Array:
    """A timestamp array in whole microseconds without a zone; finer units are floored."""
    unit = array.type.unit
    ticks = array.view(pa.int64())
    if unit == "ns":
        values, valid = _numbers(ticks)
        ticks = pa.array(np.floor_divide(values, 1000), mask=~valid)
    else:
        ticks = pc.multiply_checked(ticks, 1_000 if unit == "ms" else 1_000_000)
    return ticks.cast(pa.timestamp("us"))


def _numbers(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Values (0 under nulls) and validity of an Arrow integer array."""
    return numbers(array).astype(np.int64, copy=False), validity(array)


def order_keys(array: pa.Array | pa.ChunkedArray, type: pa.DataType) -> Keys:
    """The keys of a column whose type in the table is ``type``; see the module and ``stored``."""
    array = stored(array, type)
    match kind_of(type):
        case Kind.STRING | Kind.BINARY:
            plain = array if pa.types.is_binary(array.type) else array.view(pa.binary())
            return Keys(pc.cast(plain, pa.large_binary()), validity(array))
        case Kind.FLOATING:
            valid = validity(array)
            with np.errstate(invalid="ignore"):  # signalling NaN
                values = numbers(array).astype(np.float64, copy=False)
            return Keys(float_keys(values), valid)
        case Kind.DECIMAL:
            return _decimal_keys(array)
        case Kind.BOOLEAN:
            return Keys(*_numbers(array.cast(pa.int8())))
        case Kind.DATE:
            return Keys(*_numbers(array.view(pa.int32())))
        case Kind.INTEGER:
            return Keys(*_numbers(array))
        case _:
            return Keys(*_numbers(array.view(pa.int64())))


def float_keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """``float_key`` of an array."""
    bits = np.ascontiguousarray(values).view(np.int64)
    keys, sign = bits & _MAGNITUDE, bits >> 63
    keys ^= sign  # this and the next line negate where the sign is set
    keys -= sign
    keys[np.isnan(values)] = INFINITE + 1
    return keys


def unscaled_values(array: pa.Array) -> NDArray[np.int64]:
    """The unscaled values of decimals of up to 18 digits, 0 for null."""
    return np.asarray(_decimal_keys(array).data)


def _decimal_keys(array: pa.Array) -> Keys:
    valid = validity(array)
    count = len(array)
    # Two little-endian 64-bit words per value.
    words = np.frombuffer(array.buffers()[1] or b"", dtype="<i8").reshape(-1, 2)
    words = words[array.offset : array.offset + count]
    if not wide(array.type):
        return Keys(np.where(valid, words[:, 0], 0), valid)
    return wide_keys(words[:, 1], words[:, 0].view(np.uint64), valid)


def wide_keys(high: NDArray[np.int64], low: NDArray[np.uint64], valid: NDArray[np.bool_]) -> Keys:
    """Keys of 128-bit numbers: big-endian, the sign bit flipped."""
    count = len(valid)
    flipped = np.empty((count, 2), dtype=">u8")
    flipped[:, 0] = high.view(np.uint64) ^ np.uint64(1 << 63)
    flipped[:, 1] = low
    flipped[~valid] = 0
    offsets = np.arange(0, 16 * (count + 1), 16, dtype=np.int64)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    keys = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [mask, pa.py_buffer(offsets), pa.py_buffer(flipped)]
    )
    return Keys(keys, valid)


def compare(keys: Keys, op: Op, key: Key) -> NDArray[np.bool_]:
    """Whether each value is non-null and ``value op key``; op is one of ``= <> < <= > >=``."""
    if op not in _COMPARISONS:
        raise ValueError(f"{op} is not a comparison")
    of_numbers, of_bytes = _COMPARISONS[op]
    if isinstance(keys.data, np.ndarray):
        data, number = keys.data, int(key)
        return np.asarray(of_numbers(data, number) & keys.valid, dtype=np.bool_)
    if len(keys) >= _MANY and keys.is_compared_often():
        return _compare_many(keys, op, cast("bytes", key))
    found = getattr(pc, of_bytes)(keys.data, arrow_bytes([cast("bytes", key)])[0])
    return numbers(found) & keys.valid


def _compare_many(keys: Keys, op: Op, key: bytes) -> NDArray[np.bool_]:
    """``compare`` of many byte strings, by their words: only ties are compared as strings."""
    of_numbers, of_bytes = _COMPARISONS[op]
    prefix, words = keys.prefixed
    mine = key[: len(prefix)]
    if mine != prefix:
        every = bool(of_numbers(prefix, mine))  # a string that goes on is larger
        return keys.valid.copy() if every else np.zeros(len(keys), np.bool_)
    word = np.uint64(int.from_bytes(key[len(prefix) :][:8].ljust(8, b"\0"), "big"))
    found = np.asarray(of_numbers(words, word))
    ties = np.flatnonzero(words == word)
    if len(ties):
        tied = pc.take(keys.data, arrow(ties))
        found[ties] = numbers(getattr(pc, of_bytes)(tied, arrow_bytes([key])[0]))
    return found & keys.valid
