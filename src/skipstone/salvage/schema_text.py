"""A schema as text, the way tools print it.

    message name {
      required int64 id;
      optional binary city (STRING);
      optional group tags (LIST) { repeated group list { optional int96 element; } }
      optional fixed_len_byte_array(2) half (FLOAT16);
    }

Annotations are names of converted types (``UTF8``, ``INT_8``, ``DECIMAL(9,2)``) or of logical ones
(``TIMESTAMP(MICROS,true)``, ``INTEGER(8,true)``); ``= 7`` behind a name is a field id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.logical_types import (
    DecimalType,
    IntType,
    LogicalType,
    MicroSeconds,
    MilliSeconds,
    NanoSeconds,
    TimestampType,
    TimeType,
    TimeUnit,
)
from skipstone.parquet.format.metadata import SchemaElement

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["parse_schema"]

_TOKEN: Final = re.compile(r"\s*([{}();=,]|[^\s{}();=,]+)")
_TYPES: Final = {each.name.lower(): each for each in Type} | {"binary": Type.BYTE_ARRAY}
_UNITS: Final = {
    "MILLIS": TimeUnit(MILLIS=MilliSeconds()),
    "MICROS": TimeUnit(MICROS=MicroSeconds()),
    "NANOS": TimeUnit(NANOS=NanoSeconds()),
}
# Names of logical types without parameters that mean a converted type.
_SAME: Final = {"STRING": "UTF8"}
_PLAIN: Final = ("STRING", "MAP", "LIST", "ENUM", "DATE", "JSON", "BSON", "UUID", "FLOAT16")
_DEEPEST: Final = 100


def parse_schema(text: str) -> tuple[SchemaElement, ...]:
    """The elements depth first, the root first; FormatError says which word is not understood."""
    words = _Words(text)
    words.take("message")
    name = words.next()
    made: list[SchemaElement] = []
    count = _fields(words, made, 0)
    if words.left:
        raise words.fail("nothing after the last }", words.peek())
    return (SchemaElement(name=name, num_children=count), *made)


class _Words:
    def __init__(self, text: str) -> None:
        self.words = [match[1] for match in _TOKEN.finditer(text)]
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.words) - self.at

    def peek(self) -> str:
        return self.words[self.at] if self.left else ""

    def next(self) -> str:
        word = self.peek()
        if not word:
            raise self.fail("more", "the end")
        self.at += 1
        return word

    def take(self, wanted: str) -> None:
        found = self.next()
        if found != wanted:
            raise self.fail(wanted, found)

    def number(self) -> int:
        word = self.next()
        if not re.fullmatch(r"\d{1,9}", word):
            raise self.fail("a number", word)
        return int(word)

    def fail(self, expected: str, got: str) -> FormatError:
        return FormatError(
            f"schema text, word {self.at}",
            expected=expected,
            got=got,
            hint="write it as parquet-tools does: message m { required int64 id; }",
        )


def _fields(words: _Words, made: list[SchemaElement], depth: int) -> int:
    if depth > _DEEPEST:
        raise words.fail(f"at most {_DEEPEST} levels", "more")
    words.take("{")
    count = 0
    while words.peek() != "}":
        _field(words, made, depth)
        count += 1
    words.take("}")
    if words.peek() == ";":
        words.next()
    return count


def _field(words: _Words, made: list[SchemaElement], depth: int) -> None:
    word = words.next().upper()
    if word not in FieldRepetitionType.__members__:
        raise words.fail("required, optional or repeated", word)
    values: dict[str, Any] = {"repetition_type": FieldRepetitionType[word]}
    kind = words.next().lower()
    if kind != "group":
        if kind not in _TYPES:
            raise words.fail("a type", kind)
        values["type"] = _TYPES[kind]
        if words.peek() == "(":
            words.next()
            values["type_length"] = words.number()
            words.take(")")
    values["name"] = words.next()
    if words.peek() == "(":
        words.next()
        name = words.next()
        values |= _annotation(words, name, list(_parameters(words)))
    if words.peek() == "=":
        words.next()
        values["field_id"] = words.number()
    if kind != "group":
        words.take(";")
        made.append(SchemaElement(**values))
        return
    at = len(made)
    made.append(SchemaElement(**values))
    made[at] = SchemaElement(**values, num_children=_fields(words, made, depth + 1))


def _parameters(words: _Words) -> Iterator[str]:
    """What stands between the parentheses within those of the annotation, and its end."""
    if words.peek() == "(":
        words.next()
        while words.peek() != ")":
            yield words.next()
            if words.peek() == ",":
                words.next()
        words.next()
    words.take(")")


def _annotation(words: _Words, name: str, given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    converted = _SAME.get(name, name)
    if converted in ConvertedType.__members__:
        found["converted_type"] = ConvertedType[converted]
    try:
        if name == "DECIMAL":
            precision, scale = int(given[0]), int(given[1]) if len(given) > 1 else 0
            found |= {"precision": precision, "scale": scale}
            found["logicalType"] = LogicalType(
                DECIMAL=DecimalType(scale=scale, precision=precision)
            )
        elif name in ("TIME", "TIMESTAMP"):
            unit, utc = _UNITS[given[0]], given[1] == "true"
            if name == "TIME":
                found["logicalType"] = LogicalType(TIME=TimeType(isAdjustedToUTC=utc, unit=unit))
            else:
                found["logicalType"] = LogicalType(
                    TIMESTAMP=TimestampType(isAdjustedToUTC=utc, unit=unit)
                )
        elif name in ("INTEGER", "INT"):
            bits, signed = int(given[0]), given[1] == "true"
            if bits not in (8, 16, 32, 64):
                raise ValueError
            found["logicalType"] = LogicalType(INTEGER=IntType(bitWidth=bits, isSigned=signed))
            found["converted_type"] = ConvertedType[f"{'' if signed else 'U'}INT_{bits}"]
        elif name in _PLAIN:
            wire = LogicalType.__dataclass_fields__[name].metadata["thrift"][1]
            found["logicalType"] = LogicalType(**{name: wire.read(_empty())})
        elif not found:
            raise KeyError
    except (IndexError, KeyError, ValueError):
        raise words.fail("an annotation", " ".join([name, *given])) from None
    return found


def _empty() -> Any:
    from skipstone.parquet.thrift.compact import Reader

    return Reader(b"\0")
