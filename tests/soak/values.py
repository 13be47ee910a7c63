"""Columns of random tables: the types that their files may have, and random values of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.strategies import (
    BINARIES,
    INSTANTS,
    STRINGS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    exact_decimal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from tests.soak.shape import Shape

decimal = pa.decimal128
MILLISECONDS = pa.timestamp("ms", "UTC")
NANOSECONDS, NANOSECONDS_NTZ = pa.timestamp("ns", "UTC"), pa.timestamp("ns")

#: the feature that allows a column ("" for none) and the types that its files may have
FAMILIES: tuple[tuple[str, tuple[pa.DataType, ...]], ...] = (
    *(
        ("", (type,))
        for type in (
            pa.bool_(),
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.float64(),
            decimal(5, 2),
            decimal(18, 6),
            decimal(20, 0),
            decimal(38, 10),
            pa.string(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            TIMESTAMP,
            TIMESTAMP_NTZ,
        )
    ),
    *(("unsigned", (type,)) for type in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    ("dictionary", (pa.dictionary(pa.int32(), pa.string()),)),
    ("widened_integers", (pa.int32(), pa.int64())),
    ("widened_integers", (pa.int32(), pa.int64())),
    ("widened_integers", (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    ("widened_floats", (pa.float32(), pa.float64())),
    ("widened_floats", (pa.float32(), pa.float64())),
    ("widened_decimals", (decimal(5, 2), decimal(9, 2), decimal(20, 2))),
    ("widened_decimals", (decimal(5, 2), decimal(7, 3), decimal(22, 4))),
    ("integer_and_unsigned", (pa.int16(), pa.uint8())),
    ("integer_and_unsigned", (pa.int32(), pa.uint16())),
    ("integer_and_unsigned", (pa.int64(), pa.uint32())),
    ("integer_and_double", (pa.int32(), pa.float64())),
    ("integer_and_decimal", (pa.int32(), decimal(14, 2))),
    ("date_and_timestamp", (pa.date32(), TIMESTAMP_NTZ)),
    ("timestamp_units", (TIMESTAMP, MILLISECONDS)),
    ("nanoseconds", (NANOSECONDS,)),
    ("nanoseconds", (NANOSECONDS_NTZ,)),
    ("nanoseconds", (NANOSECONDS, TIMESTAMP)),
    ("nanoseconds", (NANOSECONDS, MILLISECONDS)),
    ("nanoseconds", (NANOSECONDS_NTZ, TIMESTAMP_NTZ)),
    ("half_floats", (pa.float16(),)),
    ("half_floats", (pa.float16(), pa.float32())),
    ("half_floats", (pa.float16(), pa.float32(), pa.float64())),
    ("unsigned_widths", (pa.uint8(), pa.uint16(), pa.uint32())),
    ("unsigned_widths", (pa.uint32(), pa.uint64())),
    ("unsigned_widths", (pa.int32(), pa.uint32(), pa.int64(), pa.uint64())),
    ("unsigned_widths", (pa.uint32(), decimal(22, 2))),
    ("unsigned_widths", (pa.uint16(), pa.float64())),
    ("text_layouts", (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))),
    ("text_layouts", (pa.binary(), pa.large_binary())),
    ("text_layouts", (pa.binary(3), pa.binary())),
    ("text_layouts", (pa.binary(3),)),
    ("invalid_utf8", (pa.string(),)),
)
#: the features of tables with a struct
NESTED = frozenset({"nested", "nested_added", "nested_widened", "nested_case"})
NAMES = ("a", "b", "Amount", "c1", "deepValue", "k")
AWKWARD = ("with blank", "é", "dot.ted", "date", "select", "x`y")


@dataclass(frozen=True)
class Column:
    """A column of a table: the types that files may have for it, narrowest first."""

    name: str
    types: tuple[pa.DataType, ...]
    feature: str = ""
    fields: tuple[Column, ...] = ()


def pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def atomic_column(rng: np.random.Generator, shape: Shape, name: str) -> Column:
    families = [each for each in FAMILIES if not each[0] or shape.has(each[0])]
    wanted = [each for each in families if each[0] in shape.often]
    if "int96" in shape.often:
        wanted += [each for each in families if TIMESTAMP in each[1]]
    if wanted and chance(rng, 0.7):
        families = wanted
    feature, types = pick(rng, families)
    return Column(name, types, feature)


def columns(rng: np.random.Generator, shape: Shape) -> tuple[Column, ...]:
    """One to four columns; sometimes a struct and a list."""
    names = list(NAMES)
    if shape.has("names") and chance(rng, 0.2):
        names = [*AWKWARD, *NAMES[:2]]
    rng.shuffle(names)
    found = [atomic_column(rng, shape, name) for name in names[: int(rng.integers(1, 5))]]
    if shape.has("nested") and chance(rng, 0.9 if shape.often & NESTED else 0.3):
        fields = [atomic_column(rng, shape, name) for name in ("x", "Y")[: int(rng.integers(1, 3))]]
        if chance(rng, 0.4):
            inner = atomic_column(rng, shape, "leaf")
            fields.append(Column("in", (), fields=(inner,)))
        found.append(Column("nest", (), fields=tuple(fields)))
    if shape.has("lists") and chance(rng, 0.15):
        found.append(Column("tags", (pa.list_(pa.string()),), "lists"))
    return tuple(found)


# -- values ----------------------------------------------------------------------------------------

_LONG = "skipstone-" * 9


def integer(rng: np.random.Generator, low: int, high: int) -> int:
    edges = (low, low + 1, high - 1, high, 0, 1, 2, 5, high // 2 + 1, 2**24 + 1, 2**53 + 1)
    if chance(rng, 0.25):
        value = int(pick(rng, edges))
        return value if low <= value <= high else low
    if chance(rng, 0.8):
        return int(rng.integers(max(low, -20), min(high, 20) + 1))
    return int(rng.integers(low, high, endpoint=True, dtype=np.uint64 if low == 0 else np.int64))


def real(rng: np.random.Generator, shape: Shape) -> float:
    special = [math.inf, -math.inf, 1.0, 0.5, 0.1, 16777216.0, 16777217.0, 2.0**53, -1.5]
    if shape.has("nan"):
        special += [math.nan] * 3
    if shape.has("zeros"):
        special += [0.0, -0.0] * 2
    if chance(rng, 0.4):
        return float(pick(rng, special))
    return float(rng.integers(-40, 40)) / 4 or 0.25


def text(rng: np.random.Generator, shape: Shape) -> str:
    if shape.has("long_strings") and chance(rng, 0.15):
        return _LONG[: int(rng.integers(60, 90))] + str(
            pick(rng, ("", "a", "b", "é", "\U0010ffff"))
        )
    if chance(rng, 0.4):
        return str(pick(rng, STRINGS))
    return "".join(pick(rng, "abcABC19é") for _ in range(int(rng.integers(0, 5))))


#: bytes that are not UTF-8: alone, before, within and after text, cut and beyond Unicode
NOT_UTF8 = (
    b"\xff",
    b"\xffabc",
    b"a\xffc",
    b"ab\xff",
    b"\xc3",
    b"a\xe2\x82b",
    b"\xed\xa0\x80",
    b"\xf5a",
)


def decoded(raw: bytes) -> str:
    """Bytes of a string column as text; a byte that is not UTF-8 becomes a lone surrogate."""
    return raw.decode("utf-8", "surrogateescape")


def is_text(value: str) -> bool:
    """Whether a value of a string column is UTF-8."""
    return not any("\udc80" <= each <= "\udcff" for each in value)


def value(rng: np.random.Generator, shape: Shape, type: pa.DataType, feature: str = "") -> Any:
    """A value that ``array(…, type)`` takes; dates and timestamps as integers."""
    t = pa.types
    if feature == "invalid_utf8" and chance(rng, 0.4):
        return decoded(pick(rng, NOT_UTF8))
    if t.is_dictionary(type):
        return value(rng, shape, type.value_type)
    if t.is_list(type):
        return [text(rng, shape) for _ in range(int(rng.integers(0, 3)))]
    if t.is_boolean(type):
        return chance(rng, 0.5)
    if t.is_integer(type):
        bits = type.bit_width
        if t.is_unsigned_integer(type):
            return integer(rng, 0, 2**bits - 1)
        return integer(rng, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if t.is_float16(type):
        with np.errstate(over="ignore"):
            return np.float16(real(rng, shape))
    if t.is_float32(type):
        return float(np.float32(real(rng, shape)))
    if t.is_floating(type):
        return real(rng, shape)
    if t.is_decimal(type):
        return decimal_value(rng, type)
    if t.is_string(type) or t.is_large_string(type):
        return text(rng, shape)
    if t.is_fixed_size_binary(type):
        return bytes(int(each) for each in rng.choice((0, 0, 1, 127, 128, 255), type.byte_width))
    if t.is_binary(type) or t.is_large_binary(type):
        if chance(rng, 0.5):
            return pick(rng, BINARIES)
        return rng.bytes(int(rng.integers(0, 4)))
    if t.is_date(type):
        days = (0, -1, 19_723, 15_338, 15_339, 15_340, 19_813, 20_023)
        return int(pick(rng, days)) if chance(rng, 0.4) else int(rng.integers(19_700, 19_760))
    assert t.is_timestamp(type), type
    near = (0, 0, -1, 1, -86_400_000_000, 3_600_000_000, 500)
    micros = int(pick(rng, INSTANTS)) + int(pick(rng, near))
    if chance(rng, 0.2):
        micros = int(rng.integers(0, 2_000_000_000_000_000))
    if type.unit == "ns":
        within = -9_223_372_036_854_775 < micros < 9_223_372_036_854_775
        return (micros if within else 1) * 1000 + int(pick(rng, (0, 0, 1, 500, 999)))
    return micros // {"us": 1, "ms": 1000}[type.unit]


def decimal_value(rng: np.random.Generator, type: pa.DataType) -> Decimal:
    top = 10**type.precision - 1
    if chance(rng, 0.25):
        edges = [x for x in (0, 1, -1, top, -top, 10**type.scale) if abs(x) <= top]
        return exact_decimal(pick(rng, edges), type.scale)
    return exact_decimal(int(rng.integers(-500, 500)), type.scale)


def fits(value: Any, type: pa.DataType) -> bool:
    """Whether ``pa.array`` takes the value for the type."""
    t = pa.types
    if t.is_integer(type):
        return -(2 ** (type.bit_width - 1)) <= value < 2**type.bit_width // (
            1 if t.is_unsigned_integer(type) else 2
        ) and (value >= 0 or not t.is_unsigned_integer(type))
    return True


def array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """The values as Arrow has them."""
    if type == pa.string() and not all(each is None or is_text(each) for each in values):
        raw = [None if each is None else each.encode("utf-8", "surrogateescape") for each in values]
        return pa.array(raw, pa.binary()).view(type)
    return pa.array(values, type)
