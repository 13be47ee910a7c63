"""Frozen dataclasses that read and write themselves as Thrift structs, by declared field ids.

    @declared
    class KeyValue(Declared):
        key: str = required(1, STRING)
        value: str | None = optional(2, STRING)

Absent optional fields are ``None``; an absent required one is a ``FormatError``. A field whose id
or wire type is not declared is kept in ``unknown`` and written back at the place of its id. An
integer outside its enumeration stays a plain ``int``. Text that is not UTF-8 survives as
surrogates.
"""

from __future__ import annotations

import math
from dataclasses import field, fields
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, dataclass_transform

from skipstone._dataclasses import dataclass

from . import compact as thrift
from .compact import Field, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Wire:
    """How one declared type is read and written; ``kinds`` are the wire types that it accepts."""

    kinds: tuple[int, ...]
    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    json: Callable[[Any], Any] = lambda value: value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


BOOL = Wire(
    (thrift.TRUE, thrift.FALSE),
    lambda reader: reader.byte() == 1,
    lambda writer, value: writer.element(thrift.TRUE, value),
)
I8 = Wire(
    (thrift.BYTE,),
    lambda reader: reader.value(thrift.BYTE),
    lambda writer, value: writer.value(thrift.BYTE, value),
)
I16 = Wire((thrift.I16,), lambda reader: reader.integer(16), Writer.integer)
I32 = Wire((thrift.I32,), lambda reader: reader.integer(32), Writer.integer)
I64 = Wire((thrift.I64,), lambda reader: reader.integer(64), Writer.integer)
DOUBLE = Wire(
    (thrift.DOUBLE,),
    Reader.double,
    lambda writer, value: writer.value(thrift.DOUBLE, value),
    lambda value: value if math.isfinite(value) else str(value),
)
BINARY = Wire((thrift.BINARY,), Reader.binary, Writer.binary, bytes.hex)
STRING = Wire(
    (thrift.BINARY,),
    lambda reader: _text(reader.binary()),
    lambda writer, value: writer.binary(value.encode("utf-8", "surrogateescape")),
)


def enum(kind: type[IntEnum]) -> Wire:
    """An i32 that is one of ``kind``, or stays an ``int``."""
    members: dict[int, IntEnum] = {int(member): member for member in kind}

    def read(reader: Reader) -> int:
        value = reader.integer(32)
        return members.get(value, value)

    def name(value: int) -> str | int:
        return value.name if isinstance(value, IntEnum) else value

    return Wire((thrift.I32,), read, Writer.integer, name)


def struct(kind: type[Declared]) -> Wire:
    """A nested struct."""
    return Wire(
        (thrift.STRUCT,),
        kind.read,
        lambda writer, value: value.write(writer),
        lambda value: value.to_dict(),
    )


def list_of(item: Wire) -> Wire:
    """A list, as a tuple."""

    def read(reader: Reader) -> tuple[Any, ...]:
        reader.down()
        kind, size = reader.list_head()
        if size and kind not in item.kinds:
            raise reader.fail("a list of other elements", expected=item.kinds[0], got=kind)
        values = tuple([item.read(reader) for _ in range(size)])
        reader.up()
        return values

    def write(writer: Writer, values: tuple[Any, ...]) -> None:
        # Writers use either boolean type for the elements of a list; most use 2.
        writer.list_head(item.kinds[-1], len(values))
        for value in values:
            item.write(writer, value)

    return Wire((thrift.LIST,), read, write, lambda values: [item.json(each) for each in values])


@dataclass(frozen=True, slots=True)
class _Slot:
    name: str
    id: int
    wire: Wire
    needed: bool


def required(id: int, wire: Wire) -> Any:
    """A field that must be present."""
    return field(metadata={"thrift": (id, wire, True)})


def optional(id: int, wire: Wire) -> Any:
    """A field that may be absent: ``None``."""
    return field(default=None, metadata={"thrift": (id, wire, False)})


def _find_slots(kind: type[Declared]) -> dict[int, _Slot]:
    found = {}
    for each in fields(kind):
        if "thrift" in each.metadata:
            id, wire, needed = each.metadata["thrift"]
            found[id] = _Slot(each.name, id, wire, needed)
    return dict(sorted(found.items()))


_slots = cast("Callable[[type[Declared]], dict[int, _Slot]]", cache(_find_slots))


def field_ids(kind: type[Declared], wire_type: int | None = None) -> dict[str, int]:
    """The id of each declared field, by name; with a ``wire_type`` of those that may have it."""
    return {
        slot.name: slot.id
        for slot in _slots(kind).values()
        if wire_type is None or wire_type in slot.wire.kinds
    }


def wires_of(kind: type[Declared]) -> dict[str, tuple[int, Wire]]:
    """Id and type of each declared field, by name."""
    return {slot.name: (slot.id, slot.wire) for slot in _slots(kind).values()}


S = TypeVar("S")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def declared(cls: type[S]) -> type[S]:
    """A frozen dataclass with slots and keywords alone."""
    frozen: Callable[[type[S]], type[S]] = dataclass(
        frozen=True, slots=True, kw_only=True, repr=False
    )
    return frozen(cls)


@declared
class Declared:
    """Base of all declared structs; see the module."""

    unknown: tuple[Field, ...] = ()

    def __repr__(self) -> str:
        """The fields that are set."""
        every = ((each.name, getattr(self, each.name)) for each in fields(self))
        given = [f"{name}={value!r}" for name, value in every if value is not None and value != ()]
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, base: int = 0) -> Self:
        """The struct at the start of ``data``; bytes after it are ignored."""
        return cls.read(Reader(data, base=base))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """The struct at the reader's place."""
        slots = _slots(cls)
        start = reader.at
        values: dict[str, Any] = {}
        unknown: list[Field] = []
        previous = 0
        reader.down()
        while True:
            kind, previous = reader.field_head(previous)
            if not kind:
                break
            slot = slots.get(previous)
            if slot is None or kind not in slot.wire.kinds:
                unknown.append(Field(previous, kind, reader.value(kind)))
            elif kind <= thrift.FALSE:
                values[slot.name] = kind == thrift.TRUE
            else:
                values[slot.name] = slot.wire.read(reader)
        reader.up()
        for slot in slots.values():
            if slot.needed and slot.name not in values:
                reader.at = start
                raise reader.fail(f"{cls.__name__}.{slot.name} is missing")
        if unknown:
            values["unknown"] = tuple(unknown)
        return cls(**values)

    def to_bytes(self) -> bytes:
        """The struct as Thrift compact bytes."""
        writer = Writer()
        self.write(writer)
        return bytes(writer.out)

    def write(self, writer: Writer) -> None:
        """Append the struct."""
        rest = sorted(self.unknown, key=lambda each: each.id)
        previous = 0
        for slot in _slots(type(self)).values():
            value = getattr(self, slot.name)
            if value is None:
                continue
            while rest and rest[0].id < slot.id:
                writer.field(*rest[0], previous)
                previous = rest.pop(0).id
            if slot.wire is BOOL:
                writer.field_head(thrift.TRUE if value else thrift.FALSE, slot.id, previous)
            else:
                writer.field_head(slot.wire.kinds[0], slot.id, previous)
                slot.wire.write(writer, value)
            previous = slot.id
        for each in rest:
            writer.field(*each, previous)
            previous = each.id
        writer.stop()

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, by the spec's names, JSON-ready: bytes as hex, NaN as text."""
        found: dict[str, Any] = {}
        for slot in _slots(type(self)).values():
            value = getattr(self, slot.name)
            if value is not None:
                found[slot.name] = slot.wire.json(value)
        if self.unknown:
            found["unknown"] = [{"id": each.id, "type": each.type} for each in self.unknown]
        return found


@declared
class Empty(Declared):
    """A struct without fields: as a member of a union its presence is its value."""
