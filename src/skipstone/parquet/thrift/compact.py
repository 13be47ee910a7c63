"""Thrift's compact protocol, lossless: every field is kept in its order, unknown ones included.

    struct      field* 00
    field       (delta << 4 | type) value          delta = id - previous id, 1..15
                (type) zigzag-varint(id) value     any other id
    list, set   (size << 4 | element) value*       size 0..14
                (F << 4 | element) varint(size) value*
    map         00                                 empty
                varint(size) (key << 4 | value) (key value)*
    type        1 true  2 false  3 byte  4 i16  5 i32  6 i64  7 double  8 binary  9 list  10 set
                11 map  12 struct  13 uuid

A boolean field has no value besides its type; a boolean element is one byte, 1 for true. Integers
except ``byte`` are zigzag varints of at most 10 bytes; a double is 8 bytes little-endian; binary is
a varint length and the bytes. Source: thrift-compact-protocol.md of Apache Thrift.

Hostile bytes: every element takes at least one byte, so a size beyond the bytes left is refused
before anything is allocated; nesting and the number of values are limited (``Limits``).
"""

from __future__ import annotations

import struct as _struct
from typing import TYPE_CHECKING, Any, NamedTuple

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator


TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
_INTS = {I16: 16, I32: 32, I64: 64}
_DOUBLE = _struct.Struct("<d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a reader: ``depth`` of nesting, and number of ``values`` in all."""

    depth: int = 40
    values: int = 1 << 23


class Field(NamedTuple):
    """One field: ``type`` is the wire type, for booleans ``TRUE`` or ``FALSE``."""

    id: int
    type: int
    value: Any


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order in which they were read."""

    fields: tuple[Field, ...]

    def get(self, id: int) -> Any:
        """The value of the first field with this id, or ``None``."""
        return next((field.value for field in self.fields if field.id == id), None)

    def replace(self, id: int, type: int, value: Any) -> Struct:
        """A copy with this value of the field, in place of the old one or inserted by its id."""
        fields = list(self.fields)
        for at, field in enumerate(fields):
            if field.id == id:
                fields[at] = Field(id, type, value)
                return Struct(tuple(fields))
        at = next((i for i, field in enumerate(fields) if field.id > id), len(fields))
        fields.insert(at, Field(id, type, value))
        return Struct(tuple(fields))

    def without(self, id: int) -> Struct:
        """A copy without the fields of this id."""
        return Struct(tuple(field for field in self.fields if field.id != id))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list or set; ``type`` is the wire type of its elements."""

    type: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map as pairs in their order."""

    key_type: int
    value_type: int
    pairs: tuple[tuple[Any, Any], ...]


class Reader:
    """Reads values from ``data[at:end]``; ``base`` is added to the offsets in errors."""

    __slots__ = ("at", "base", "budget", "data", "depth", "end")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        at: int = 0,
        end: int | None = None,
        *,
        base: int = 0,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.data = data if isinstance(data, bytes) else memoryview(data)
        self.at, self.end = at, len(self.data) if end is None else end
        self.base, self.budget, self.depth = base, limits.values, limits.depth
        if not 0 <= at <= self.end <= len(self.data):
            raise FormatError("no room for a thrift value", offset=base + at, got=len(self.data))

    def fail(self, message: str, *, expected: object = None, got: object = None) -> FormatError:
        """An error at the current place."""
        return FormatError(
            f"thrift: {message}", offset=self.base + self.at, expected=expected, got=got
        )

    def spend(self, values: int) -> None:
        """Count ``values`` against the limit."""
        self.budget -= values
        if self.budget < 0:
            raise self.fail("more values than the limit allows")

    def byte(self) -> int:
        """One byte, unsigned."""
        if self.at >= self.end:
            raise self.fail("ends within a value")
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        """An unsigned varint of at most 10 bytes, below 2^64."""
        data, at, end = self.data, self.at, self.end
        result = shift = 0
        while at < end:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                if result >> 64:
                    break
                self.at = at
                return result
            shift += 7
            if shift > 63:
                break
        if at >= end and shift <= 63:
            raise self.fail("ends within a varint")
        raise self.fail("a varint of more than 64 bits")

    def integer(self, bits: int) -> int:
        """A zigzag varint that fits ``bits`` bits."""
        raw = self.varint()
        value = (raw >> 1) ^ -(raw & 1)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise self.fail(f"an integer of more than {bits} bits", got=value)
        return value

    def double(self) -> float:
        """8 bytes, little-endian."""
        return float(_DOUBLE.unpack(self.take(8))[0])

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        stop = self.at + length
        if stop > self.end:
            raise self.fail("ends within bytes", expected=length, got=self.end - self.at)
        value = bytes(self.data[self.at : stop])
        self.at = stop
        return value

    def binary(self) -> bytes:
        """A length and its bytes."""
        return self.take(self.varint())

    def list_head(self) -> tuple[int, int]:
        """Element type and size of a list; the size is at most the number of bytes left."""
        head = self.byte()
        size = head >> 4
        if size == 15:
            size = self.varint()
        if size > self.end - self.at:
            raise self.fail("a list of more elements than bytes", got=size)
        self.spend(size)
        return head & 0x0F, size

    def field_head(self, previous: int) -> tuple[int, int]:
        """Type and id of the next field; type 0 ends the struct."""
        head = self.byte()
        kind = head & 0x0F
        if not kind:
            if head:
                raise self.fail("a field of no type")
            return 0, 0
        self.spend(1)
        delta = head >> 4
        return kind, previous + delta if delta else self.integer(16)

    def down(self) -> None:
        """One level deeper."""
        self.depth -= 1
        if self.depth < 0:
            raise self.fail("nested more deeply than the limit allows")

    def up(self) -> None:
        """One level up."""
        self.depth += 1

    def struct(self) -> Struct:
        """All fields up to the end of the struct."""
        self.down()
        fields: list[Field] = []
        previous = 0
        while True:
            kind, previous = self.field_head(previous)
            if not kind:
                break
            fields.append(Field(previous, kind, self.value(kind)))
        self.up()
        return Struct(tuple(fields))

    def value(self, kind: int) -> Any:
        """The value of a field of wire type ``kind``."""
        if kind == TRUE:
            return True
        if kind == FALSE:
            return False
        if kind in _INTS:
            return self.integer(_INTS[kind])
        if kind == BINARY:
            return self.binary()
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._list()
        if kind == BYTE:
            return (self.byte() ^ 0x80) - 0x80
        if kind == DOUBLE:
            return self.double()
        if kind == MAP:
            return self._map()
        if kind == UUID:
            return self.take(16)
        raise self.fail("an unknown wire type", expected="1 to 13", got=kind)

    def element(self, kind: int) -> Any:
        """The value of a list element; only booleans differ from those of fields."""
        return self.byte() == 1 if kind in (TRUE, FALSE) else self.value(kind)

    def _list(self) -> ListOf:
        self.down()
        kind, size = self.list_head()
        values = tuple([self.element(kind) for _ in range(size)])
        self.up()
        return ListOf(kind, values)

    def _map(self) -> MapOf:
        size = self.varint()
        if not size:
            return MapOf(0, 0, ())
        if 2 * size > self.end - self.at:
            raise self.fail("a map of more entries than bytes", got=size)
        self.spend(2 * size)
        self.down()
        kinds = self.byte()
        key, value = kinds >> 4, kinds & 0x0F
        pairs = tuple([(self.element(key), self.element(value)) for _ in range(size)])
        self.up()
        return MapOf(key, value, pairs)


class Writer:
    """Appends values to ``out``."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def varint(self, value: int) -> None:
        """An unsigned varint."""
        append = self.out.append
        while value >= 0x80:
            append(value & 0x7F | 0x80)
            value >>= 7
        append(value)

    def integer(self, value: int) -> None:
        """A zigzag varint."""
        self.varint((value << 1) ^ (value >> 63))

    def binary(self, value: bytes) -> None:
        """A length and its bytes."""
        self.varint(len(value))
        self.out += value

    def field_head(self, kind: int, id: int, previous: int) -> None:
        delta = id - previous
        if 0 < delta < 16:
            self.out.append(delta << 4 | kind)
        else:
            self.out.append(kind)
            self.integer(id)

    def list_head(self, kind: int, size: int) -> None:
        if size < 15:
            self.out.append(size << 4 | kind)
        else:
            self.out.append(0xF0 | kind)
            self.varint(size)

    def stop(self) -> None:
        """The end of a struct."""
        self.out.append(0)

    def field(self, id: int, kind: int, value: Any, previous: int) -> None:
        """A whole field; booleans carry their value in the type."""
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        self.field_head(kind, id, previous)
        if kind not in (TRUE, FALSE):
            self.value(kind, value)

    def struct(self, value: Struct) -> None:
        """All fields, and the end."""
        previous = 0
        for id, kind, each in value.fields:
            self.field(id, kind, each, previous)
            previous = id
        self.stop()

    def value(self, kind: int, value: Any) -> None:
        """The value of a field of wire type ``kind``, which is not a boolean."""
        if kind in _INTS:
            self.integer(value)
        elif kind == BINARY:
            self.binary(value)
        elif kind == STRUCT:
            self.struct(value)
        elif kind in (LIST, SET):
            self.list_head(value.type, len(value.values))
            for each in value.values:
                self.element(value.type, each)
        elif kind == BYTE:
            self.out.append(value & 0xFF)
        elif kind == DOUBLE:
            self.out += _DOUBLE.pack(value)
        elif kind == MAP:
            self._map(value)
        elif kind == UUID:
            self.out += value
        else:
            raise ValueError(f"unknown wire type {kind}")

    def element(self, kind: int, value: Any) -> None:
        """A list element."""
        if kind in (TRUE, FALSE):
            self.out.append(1 if value else 2)
        else:
            self.value(kind, value)

    def _map(self, value: MapOf) -> None:
        self.varint(len(value.pairs))
        if value.pairs:
            self.out.append(value.key_type << 4 | value.value_type)
            for key, each in value.pairs:
                self.element(value.key_type, key)
                self.element(value.value_type, each)


def read_struct(data: bytes | memoryview, *, limits: Limits | None = None) -> tuple[Struct, int]:
    """The struct at the start of ``data``, and the place after it."""
    reader = Reader(data, limits=limits)
    return reader.struct(), reader.at


def write_struct(value: Struct) -> bytes:
    writer = Writer()
    writer.struct(value)
    return bytes(writer.out)
