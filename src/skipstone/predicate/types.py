"""Spark's atomic types and Arrow's: one canonical Arrow type for each.

| Spark | canonical Arrow | read as the same |
|---|---|---|
| boolean | ``bool`` | |
| tinyint … bigint | ``int8`` … ``int64`` | the narrowest that holds an unsigned one |
| float, double | ``float``, ``double`` | ``halffloat`` as float |
| decimal(p, s), p ≤ 38 | ``decimal128(p, s)`` | any width; ``uint64`` as (20, 0) |
| string | ``string`` | ``large_string``, ``string_view`` |
| binary | ``binary`` | ``large_binary``, ``binary_view``, ``fixed_size_binary`` |
| date | ``date32`` | ``date64`` |
| timestamp | ``timestamp("us", "UTC")`` | any unit, any zone |
| timestamp_ntz | ``timestamp("us")`` | any unit |
| interval day to second | ``duration("us")`` | any unit |
| interval year to month | ``int32`` (months) | |

Dictionaries read as their values, extension types as their storage. All other types (arrays, maps,
structs, time of day, variant, and types that are still unknown) have no canonical type: ``None``.
No index supports such a column, and no predicate on it prunes.

A string with a collation, and ``char(n)`` with its padding, do not compare as their bytes do. The
metadata of the Arrow field then has a mark, and ``indexable`` returns ``None``.

``sql_text`` and ``display`` write values of a type's stored domain (``literals.py``) as Spark SQL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.errors import UnsupportedError

from .zones import date_text

if TYPE_CHECKING:
    from collections.abc import Mapping


TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

# A value of a stored domain (``literals.py``).
Value: TypeAlias = "bool | int | float | str | bytes"


class ManyValues(Sequence["Value"]):
    """Values of a leaf as one array: see ``value_array.py``, which is after the trees.

    ``keys`` are their ``literals.Keys``; ``cache`` has what others derive from them, by name.
    """

    __slots__ = ("cache", "keys")
    keys: Any
    cache: dict[object, Any]


# A key in an Arrow field's metadata: its value says why the column does not compare as its bytes
# do.
UNCOMPARABLE = b"skipstone.uncomparable"

# Another key, of Spark: the value (as SQL) that the column has in files that lack it.
EXISTS_DEFAULT = b"EXISTS_DEFAULT"

# What the name of an expression has between its text and its type (``indexed.py``).
EXPRESSION = " :: "

# Another key: the column is an interval; Spark's type, as no Arrow type has its units.
INTERVAL = b"skipstone.interval"


class Kind(Enum):
    """The kinds of canonical types; each has one stored domain (``literals.py``)."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    DURATION = "duration"


@lru_cache(maxsize=1024)
def spark_type(type: pa.DataType) -> pa.DataType | None:
    """The canonical type of an Arrow type, as Spark reads it, or ``None`` (see the module)."""
    t = pa.types
    if t.is_dictionary(type):
        return spark_type(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return spark_type(type.storage_type)
    if t.is_boolean(type) or t.is_signed_integer(type) or t.is_float32(type) or t.is_float64(type):
        return type
    if t.is_unsigned_integer(type):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[
            type.bit_width
        ]
    if t.is_float16(type):
        return pa.float32()
    if t.is_decimal(type):
        if type.precision > 38 or not 0 <= type.scale <= type.precision:
            return None
        return pa.decimal128(type.precision, type.scale)
    if t.is_string(type) or t.is_large_string(type) or t.is_string_view(type):
        return pa.string()
    if (
        t.is_binary(type)
        or t.is_large_binary(type)
        or t.is_binary_view(type)
        or t.is_fixed_size_binary(type)
    ):
        return pa.binary()
    if t.is_date(type):
        return pa.date32()
    if t.is_timestamp(type):
        return TIMESTAMP_NTZ if type.tz is None else TIMESTAMP
    if t.is_duration(type):
        return pa.duration("us")
    return None


@lru_cache(maxsize=1024)
def kind_of(type: pa.DataType) -> Kind:
    """The kind of a canonical type; ``UnsupportedError`` for a type that has none."""
    canonical = spark_type(type)
    if canonical is None:
        raise UnsupportedError(f"type {type} has no order that an index could use")
    t = pa.types
    for kind, test in (
        (Kind.BOOLEAN, t.is_boolean),
        (Kind.INTEGER, t.is_integer),
        (Kind.FLOATING, t.is_floating),
        (Kind.DECIMAL, t.is_decimal),
        (Kind.STRING, t.is_string),
        (Kind.BINARY, t.is_binary),
        (Kind.DATE, t.is_date),
        (Kind.DURATION, t.is_duration),
    ):
        if test(canonical):
            return kind
    return Kind.TIMESTAMP_NTZ if canonical.tz is None else Kind.TIMESTAMP


def is_list(type: pa.DataType) -> bool:
    """True for a list of any layout."""
    t = pa.types
    return bool(
        t.is_list(type)
        or t.is_large_list(type)
        or t.is_fixed_size_list(type)
        or t.is_list_view(type)
        or t.is_large_list_view(type)
    )


def indexable(field: pa.Field) -> pa.DataType | None:
    """The canonical type of a column if its values compare as the type says, else ``None``."""
    if field.metadata and UNCOMPARABLE in field.metadata:
        return None
    return spark_type(field.type)


# -- names -----------------------------------------------------------------------------------------


class MapKey(str):
    """A part of a path that is a key of the preceding map, not a field of a struct."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapKey) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("a key of a map", str(self)))

    def __repr__(self) -> str:
        return f"MapKey({str(self)!r})"


def value_of_key(map_: pa.Field | None, key: str) -> pa.Field | None:
    """The value of ``key`` as a field; ``None`` for a field that is not a map from strings.

    The map's collation and default hold for its values too.
    """
    if map_ is None or not has_text_keys(map_.type):
        return None
    return pa.field(str(key), map_.type.item_type, True, metadata=map_.metadata)


def has_text_keys(type: pa.DataType) -> bool:
    """True for a map from strings: those keys can be columns."""
    return bool(pa.types.is_map(type) and spark_type(type.key_type) == pa.string())


def column_name(path: tuple[str, ...]) -> str:
    """The dotted spelling of a path; a part with a dot, a backquote, ``['`` or `` :: `` is quoted.

    A map's key follows the map as in SQL: ``m['k']``, with a backslash before quotes in it.
    """
    found = ""
    for part in path:
        if isinstance(part, MapKey):
            escaped = part.replace("\\", "\\\\").replace("'", "\\'")
            found += f"['{escaped}']"
            continue
        quoted = any(each in part for each in (".", "`", "['", EXPRESSION)) or not part
        found += ("." if found else "") + (backquoted(part) if quoted else part)
    return found


def backquoted(*path: str) -> str:
    """A path as SQL, which in backquotes reads no name as a word or an operator."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


_PART = re.compile(
    r"(?:^|\.)(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<plain>(?:(?!\[')[^.`])*))"
    r"|\['(?P<key>(?:[^'\\]|\\.)*)'\]",
    re.DOTALL,
)


def column_path(name: str) -> tuple[str, ...]:
    """The path that ``column_name`` spelled. A name that it never spells is one part, as it is: a
    part of it may be another column.
    """
    if "`" not in name and "['" not in name:
        return (name,) if EXPRESSION in name else tuple(name.split("."))
    found = list(_PART.finditer(name))
    if "".join(match.group() for match in found) != name:
        return (name,)
    return tuple(_part(match) for match in found)


_QUOTED = re.compile(r"`[^`]*`?|\['(?:[^'\\]|\\.)*'\]|.", re.DOTALL)


def split_names(text: str) -> list[str]:
    """The parts between commas, as written; a comma within backquotes or the key of a map is part
    of a name."""
    found = [""]
    for piece in _QUOTED.findall(text):
        if piece == ",":
            found.append("")
        else:
            found[-1] += piece
    return found


def _part(match: re.Match[str]) -> str:
    if match["key"] is not None:
        return MapKey(re.sub(r"\\(.)", r"\1", match["key"], flags=re.DOTALL))
    quoted, plain = match["quoted"], match["plain"]
    return quoted.replace("``", "`") if quoted is not None else plain


# -- Spark's own spelling --------------------------------------------------------------------------

_ATOMIC: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "decimal": pa.decimal128(10, 0),
    "dec": pa.decimal128(10, 0),
    "numeric": pa.decimal128(10, 0),
    "void": pa.null(),
    "null": pa.null(),
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.ASCII)


def parse_type(name: str) -> pa.DataType | None:
    """The canonical type of Spark's name of an atomic type; ``None`` for every other name."""
    text = " ".join(name.lower().split())
    if text in _ATOMIC:
        return _ATOMIC[text]
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2] or 0)
        return (
            pa.decimal128(precision, scale) if 0 < precision <= 38 and scale <= precision else None
        )
    if text.startswith("interval"):
        words = text.split()[1:]
        if words and words[0] in ("year", "month"):
            return pa.int32()
        if words and words[0] in ("day", "hour", "minute", "second"):
            return pa.duration("us")
    return None


def spark_name(type: pa.DataType) -> str:
    """Spark's SQL name of the canonical type of ``type``; Arrow's own where there is none."""
    canonical = spark_type(type)
    if canonical is None:
        return str(type)
    match kind_of(canonical):
        case Kind.INTEGER:
            return {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[canonical.bit_width]
        case Kind.FLOATING:
            return "float" if canonical.bit_width == 32 else "double"
        case Kind.DECIMAL:
            return f"decimal({canonical.precision},{canonical.scale})"
        case Kind.DURATION:
            return "interval day to second"
        case kind:
            return str(kind.value)


def schema_from_spark(text: str | Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of a Spark schema in JSON (``df.schema.json()``, a footer's metadata).

    Structs, arrays and maps are kept; an atomic type without a canonical one becomes ``null`` with
    the mark that makes ``indexable`` return ``None``. ``ValueError`` when the JSON is not a schema.
    """
    try:
        parsed = json.loads(text) if isinstance(text, str) else text
        struct = _arrow_type(parsed)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a Spark schema: {error!r}") from error
    if not isinstance(struct, pa.StructType):
        raise ValueError("not a Spark schema: the outermost type is not a struct")
    return pa.schema(list(struct))


def _arrow_type(node: Any) -> pa.DataType:
    if isinstance(node, str):
        found = parse_type(node)
        return pa.null() if found is None else found
    match node["type"]:
        case "struct":
            return pa.struct([_arrow_field(child) for child in node["fields"]])
        case "array":
            return pa.list_(pa.field("element", _arrow_type(node["elementType"])))
        case "map":
            return pa.map_(_arrow_type(node["keyType"]), _arrow_type(node["valueType"]))
        case "udt":
            return _arrow_type(node["sqlType"])
        case other:
            raise ValueError(f"not a Spark schema: type {other!r}")


def _why_not_inside(type: Any, extra: Any) -> str:
    """Why the values in a map or list do not compare by their type; empty where they do.

    Their collations are in the metadata of its field.
    """
    declared = str(extra.get("__CHAR_VARCHAR_TYPE_STRING", ""))
    if "__COLLATIONS" in extra:
        return f"collation {', '.join(map(str, extra['__COLLATIONS'].values()))}"
    if re.search(r"\bchar\b", declared, re.IGNORECASE):
        return "char(n) compares with padding"
    for part in (type.get(each) for each in ("keyType", "valueType", "elementType")):
        if isinstance(part, str) and (" collate " in part or part.startswith(("interval", "char"))):
            return f"type {part}"
    return ""


def _arrow_field(node: Any) -> pa.Field:
    type, reason = node["type"], ""
    extra = node.get("metadata") or {}
    if isinstance(type, str):
        declared = str(extra.get("__CHAR_VARCHAR_TYPE_STRING", type)).lower()
        base = declared.split("(")[0].strip()
        if " collate " in declared:
            reason = f"collation {declared.split(' collate ')[1]}"
            type = "string"
        elif "__COLLATIONS" in extra:
            reason = f"collation {', '.join(map(str, extra['__COLLATIONS'].values()))}"
        elif base == "char":
            reason, type = "char(n) compares with padding", "string"
        elif base == "varchar":
            type = "string"
        elif parse_type(type) is None:
            reason = f"type {type}"
    elif type.get("type") in ("map", "array"):
        reason = _why_not_inside(type, extra)
    metadata = {UNCOMPARABLE: reason.encode()} if reason else {}
    if isinstance(type, str) and type.startswith("interval"):
        metadata[INTERVAL] = type.encode()
    # Spark reads this where a file lacks the column: null, unless it was added with a default.
    default = str(extra.get(EXISTS_DEFAULT.decode(), "NULL"))
    if default.upper() != "NULL":
        metadata[EXISTS_DEFAULT] = default.encode()
    return pa.field(
        node["name"],
        _arrow_type(type),
        nullable=node.get("nullable", True),
        metadata=metadata or None,
    )


# -- values as text --------------------------------------------------------------------------------


# The characters that are shown of each half of a long string.
_HALF = 30


def display(value: Value, type: pa.DataType) -> str:
    """SQL-like text for people: exact, but long strings are shortened in the middle."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, str | bytes) and len(value) > 2 * _HALF:
        start, end = sql_text(value[:_HALF], type), sql_text(value[-_HALF:], type)
        return f"{start[:-1]}…{end[2 if isinstance(value, bytes) else 1 :]}"
    text = sql_text(value, type)
    return text.removesuffix("BD") if kind_of(type) is Kind.DECIMAL else text


def sql_text(value: Value, type: pa.DataType) -> str:
    """A Spark SQL literal of exactly this value of the stored domain of ``type``."""
    match kind_of(type):
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.STRING:
            return quote(str(value))
        case Kind.BINARY:
            assert isinstance(value, bytes)
            return f"X'{value.hex().upper()}'"
        case Kind.FLOATING:
            assert isinstance(value, float)
            name = "FLOAT" if spark_type(type) == pa.float32() else "DOUBLE"
            if not math.isfinite(value):
                text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
                return f"CAST('{text}' AS {name})"
            if name == "FLOAT":
                return f"CAST('{np.float32(value)!s}' AS FLOAT)"
            return f"{value!r}D"
        case Kind.DECIMAL:
            assert isinstance(value, int)
            return f"{decimal_text(value, type.scale)}BD"
        case Kind.DATE:
            return f"DATE '{date_text(int(value))}'"
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ as kind:
            day, micros = divmod(int(value), 86_400_000_000)
            seconds, fraction = divmod(micros, 1_000_000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            if fraction:
                clock += f".{fraction:06}".rstrip("0")
            text = f"{date_text(day)} {clock}"
            if kind is Kind.TIMESTAMP:
                return f"TIMESTAMP '{text}Z'"
            return f"TIMESTAMP_NTZ '{text}'"
        case Kind.DURATION:
            return f"INTERVAL '{decimal_text(int(value), 6)}' SECOND"
        case _:
            return str(value)


def quote(text: str) -> str:
    """A Spark SQL string literal: backslashes and quotes escaped, control characters as escapes.

    ``\\%`` and ``\\_`` keep their backslash in Spark, so a backslash is always doubled.
    """
    out = text.replace("\\", "\\\\").replace("'", "\\'")
    if not out.isprintable():
        out = "".join(c if c.isprintable() else _escape(c) for c in out)
    return f"'{out}'"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def decimal_text(unscaled: int, scale: int) -> str:
    """Digits of ``unscaled`` / 10^scale, all of them."""
    sign = "-" if unscaled < 0 else ""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"
