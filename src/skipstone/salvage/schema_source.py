"""Finds the schema of a file without a footer.

    given          a Parquet file, an Arrow schema file (IPC), or a text: ``message m { … }``
    of the file    the rest of its footer
    adjacent       ``_common_metadata`` or ``_metadata``; else files that all have one schema

Similar types would read wrong values, so adjacent files count only if all agree.

A schema as text has the form that tools print:

    message name {
      required int64 id;
      optional binary city (STRING);
      optional group tags (LIST) { repeated group list { optional int96 element; } }
      optional fixed_len_byte_array(2) half (FLOAT16);
    }

Annotations are names of converted types (``UTF8``, ``INT_8``, ``DECIMAL(9,2)``) or of logical ones
(``TIMESTAMP(MICROS,true)``, ``INTEGER(8,true)``); ``= 7`` after a name is a field id.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.footer import read_footer, read_metadata
from skipstone.parquet.format.metadata import (
    DecimalType,
    FileMetaData,
    IntType,
    KeyValue,
    LogicalType,
    SchemaElement,
    TimestampType,
    TimeType,
    TimeUnit,
)
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.thrift.compact import Reader
from skipstone.parquet.thrift.structs import Empty
from skipstone.storage.local import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from skipstone.parquet.encryption.decryption import Decryption


_SUMMARIES: Final = ("_common_metadata", "_metadata")
_MOST_ADJACENT: Final = 64
_LARGEST_TEXT: Final = 16 << 20
_ENCRYPTED: Final = "give its keys, or the schema as a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """A schema, its key-value pairs, and ``what`` it was taken from. ``codecs``: a first guess for
    each leaf."""

    what: str
    elements: tuple[SchemaElement, ...]
    pairs: tuple[KeyValue, ...] | None = None
    codecs: tuple[int, ...] = ()

    @classmethod
    def of_footer(cls, what: str, metadata: FileMetaData) -> SchemaSource:
        codecs: tuple[int, ...] = ()
        if metadata.row_groups:
            columns = [each.meta_data for each in metadata.row_groups[0].columns]
            codecs = tuple([int(each.codec) if each is not None else 0 for each in columns])
        return cls(
            what=what,
            elements=metadata.schema,
            pairs=metadata.key_value_metadata,
            codecs=codecs,
        )


def given_schema(
    schema: str | Path | pa.Schema, decryption: Decryption | None = None
) -> SchemaSource:
    """The schema that the caller names; ``FormatError`` where it is not a schema."""
    if not isinstance(schema, str | Path):
        return _of_arrow("the given schema", schema)
    if isinstance(schema, str) and schema.lstrip().startswith("message"):
        return SchemaSource(what="the given text", elements=parse_schema(schema))
    path = Path(schema)
    with suppress(FormatError):
        return SchemaSource.of_footer(str(path), _footer(path, decryption))
    import pyarrow as pa

    if path.stat().st_size > _LARGEST_TEXT:
        raise FormatError("no schema, nor a Parquet file", file=str(path))
    with open(path, "rb", opener=open_regular) as file:
        data = file.read()
    if data.lstrip().startswith(b"message"):
        text = data.decode("utf-8", "replace")
        return SchemaSource(what=str(path), elements=parse_schema(text))
    try:
        found = pa.ipc.read_schema(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError):
        raise FormatError(
            "no schema",
            file=str(path),
            expected="a Parquet file, an Arrow schema, or a text that begins with message",
        ) from None
    return _of_arrow(str(path), found)


def adjacent_schema(path: Path, decryption: Decryption | None = None) -> SchemaSource | None:
    """The schema of the adjacent files of ``path``, or ``None``."""
    for name in _SUMMARIES:
        place = path.with_name(name)
        source = _readable(place, decryption) if place.is_file() and place != path else None
        if source is not None:
            return source
    sources = [_readable(place, decryption) for place in _files(path)]
    found = [each for each in sources if each is not None]
    if not found or any(each.elements != found[0].elements for each in found):
        return None
    return found[0]


def _readable(path: Path, decryption: Decryption | None) -> SchemaSource | None:
    """The schema of a file, or ``None`` if its footer cannot be read."""
    try:
        return SchemaSource.of_footer(str(path), _footer(path, decryption))
    except (FormatError, UnsupportedError, OSError):
        return None


def _files(path: Path) -> Iterator[Path]:
    listed = sorted(each for each in path.parent.iterdir() if each.suffix == ".parquet")
    for place in listed[:_MOST_ADJACENT]:
        if place != path and place.is_file() and not place.name.startswith((".", "_")):
            yield place


def _footer(path: Path, decryption: Decryption | None) -> FileMetaData:
    with open(path, "rb", opener=open_regular) as file:
        tail, footer = read_footer(file)
    if not tail.encrypted:
        metadata = FileMetaData.from_bytes(footer, base=tail.offset)
    elif decryption is None:
        raise UnsupportedError(f"{path} is encrypted", hint=_ENCRYPTED)
    else:
        from skipstone.parquet.encryption.file_decryptor import FileDecryptor

        _, plain, offset = FileDecryptor.open_encrypted(
            footer, decryption, base=tail.offset, file=str(path)
        )
        metadata = FileMetaData.from_bytes(plain, base=offset)
    Schema.of(metadata.schema)
    return metadata


def _of_arrow(what: str, schema: pa.Schema) -> SchemaSource:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    try:
        pq.write_table(schema.empty_table(), sink)
    except (pa.ArrowException, ValueError) as error:
        raise UnsupportedError(f"Parquet cannot hold the schema: {error}") from error
    metadata = read_metadata(sink.getvalue().to_pybytes())
    return SchemaSource(what=what, elements=metadata.schema, pairs=metadata.key_value_metadata)


_TOKEN: Final = re.compile(r"\s*([{}();=,]|[^\s{}();=,]+)")
_TYPES: Final = {each.name.lower(): each for each in Type} | {"binary": Type.BYTE_ARRAY}
_UNITS: Final = {
    "MILLIS": TimeUnit(MILLIS=Empty()),
    "MICROS": TimeUnit(MICROS=Empty()),
    "NANOS": TimeUnit(NANOS=Empty()),
}
# Names of logical types without parameters that mean a converted type.
_SAME: Final = {"STRING": "UTF8"}
_PLAIN: Final = ("STRING", "MAP", "LIST", "ENUM", "DATE", "JSON", "BSON", "UUID", "FLOAT16")
_DEEPEST: Final = 100


def parse_schema(text: str) -> tuple[SchemaElement, ...]:
    """The elements depth first, the root first; FormatError names the wrong word."""
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
    """The parameters of an annotation; takes its closing parenthesis."""
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
            kind = TimeType if name == "TIME" else TimestampType
            made: Any = kind(isAdjustedToUTC=given[1] == "true", unit=_UNITS[given[0]])
            found["logicalType"] = LogicalType(**{name: made})
        elif name in ("INTEGER", "INT"):
            bits, signed = int(given[0]), given[1] == "true"
            if bits not in (8, 16, 32, 64):
                raise ValueError
            found["logicalType"] = LogicalType(INTEGER=IntType(bitWidth=bits, isSigned=signed))
            found["converted_type"] = ConvertedType[f"{'' if signed else 'U'}INT_{bits}"]
        elif name in _PLAIN:
            wire = LogicalType.__dataclass_fields__[name].metadata["thrift"][1]
            found["logicalType"] = LogicalType(**{name: wire.read(Reader(b"\0"))})
        elif not found:
            raise KeyError
    except (IndexError, KeyError, ValueError):
        raise words.fail("an annotation", " ".join([name, *given])) from None
    return found
