"""Statistics of a ``_pm`` as text for people, by QuestDB's type of the column.

Instants as ISO 8601 in UTC, decimals with their point, UUIDs and addresses as one writes them,
geohashes as QuestDB prints them: ``#`` and base 32 where the bits divide by five, else ``##`` and
the bits. Bytes that are no text are hex. What has another width than its type has no text.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

import numpy as np

from skipstone.parquet.format.enums import Type

from .types import ColumnType, Tag

if TYPE_CHECKING:
    from .values import PmColumn


_BASE32: Final = "0123456789bcdefghjkmnpqrstuvwxyz"
_NUMBERS: Final = {
    Type.BOOLEAN: "<?",
    Type.INT32: "<i",
    Type.INT64: "<q",
    Type.FLOAT: "<f",
    Type.DOUBLE: "<d",
}
_TEXTS: Final = (Tag.STRING, Tag.SYMBOL, Tag.VARCHAR)


def type_text(code: int) -> str:
    """A type code as one would declare it: ``timestamp_ns designated``, ``decimal64(18,3)``."""
    type = ColumnType.of(code)
    if type is None:
        return f"unknown ({code})"
    if type.tag is Tag.TIMESTAMP:
        said = ["timestamp_ns" if type.nanos else "timestamp"]
        said += ["designated"] * type.designated + ["descending"] * type.descending
        return " ".join(said)
    if type.geo_bits:
        return f"{type.name}({type.geo_bits}b)"
    if type.is_decimal:
        return f"{type.name}({type.precision},{type.scale})"
    if type.tag is Tag.ARRAY:
        return f"{Tag(type.element).name.lower()}{'[]' * type.dimensions}"
    return type.name


def readable(column: PmColumn, value: bytes) -> str | None:
    """The value of a bound of this column, as text; ``None`` if it is not known."""
    type = ColumnType.of(column.type)
    layout = _NUMBERS.get(column.physical_type)  # type: ignore[call-overload]
    if layout is not None:
        if len(value) != struct.calcsize(layout):
            return None
        (number,) = struct.unpack(layout, value)
        if isinstance(number, bool):
            return "true" if number else "false"
        if isinstance(number, float):
            # The shortest text of a FLOAT is that of its own width.
            return str(np.float32(number)) if layout == "<f" else str(number)
        if type is not None and type.tag is Tag.DATE and column.physical_type == Type.INT32:
            return str(np.datetime64(number, "D"))
        return str(number) if type is None else _integer(type, number)
    if column.physical_type == Type.FIXED_LEN_BYTE_ARRAY and len(value) != column.fixed_byte_len:
        return None
    if type is None:
        return None
    if type.is_decimal:
        return _scaled(int.from_bytes(value, "big", signed=True), type.scale)
    if type.tag is Tag.UUID:
        return str(UUID(bytes=value)) if len(value) == 16 else None
    if type.tag in (Tag.LONG128, Tag.LONG256):
        return f"0x{int.from_bytes(value, 'little'):x}"
    if type.tag in _TEXTS:
        return value.decode("utf-8", "replace")
    return f"0x{value.hex()}" if type.tag is Tag.BINARY else None


def _integer(type: ColumnType, number: int) -> str:
    if type.is_decimal:
        return _scaled(number, type.scale)
    if type.geo_bits:
        return _geohash(number, type.geo_bits)
    if type.tag is Tag.TIMESTAMP:
        return _instant(number, "ns" if type.nanos else "us")
    if type.tag is Tag.DATE:
        return _instant(number, "ms")
    if type.tag is Tag.IPV4:
        return str(IPv4Address(number & 0xFFFF_FFFF))
    if type.tag is Tag.CHAR:
        letter = chr(number & 0xFFFF)
        return letter if letter.isprintable() else f"U+{number & 0xFFFF:04X}"
    return str(number)


def _instant(number: int, unit: Literal["ms", "us", "ns"]) -> str:
    text = str(np.datetime64(number, unit))
    return text if text == "NaT" else f"{text}Z"


def _scaled(number: int, scale: int) -> str:
    if not scale:
        return str(number)
    digits = f"{abs(number):0{scale + 1}d}"
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _geohash(number: int, bits: int) -> str:
    if number < 0:
        return "null"
    binary = f"{number:0{bits}b}"[-bits:]
    if bits % 5:
        return f"##{binary}"
    return "#" + "".join(_BASE32[int(binary[at : at + 5], 2)] for at in range(0, bits, 5))
