"""The columns of a ``_pm`` of any Parquet file: from its schema, or QuestDB's JSON in its footer.

One column per leaf. Name, field ID and repetition are those of the root field above the leaf. IDs
and types come from the JSON under ``questdb`` where there is one, else from the field IDs and
``infer``:

    BOOLEAN BOOLEAN     FLOAT FLOAT     DOUBLE DOUBLE, or ARRAY inside nothing but LISTs
    INT32   DECIMAL, SHORT and BYTE where signed, DATE, else INT (unsigned and times too)
    INT64   TIMESTAMP, TIMESTAMP_NS or DATE by the unit, DECIMAL, else LONG (unsigned and times too)
    INT96   TIMESTAMP_NS
    BYTE_ARRAY            DECIMAL, VARCHAR where STRING, else BINARY
    FIXED_LEN_BYTE_ARRAY  DECIMAL, UUID or LONG128 of 16, LONG256 of 32
    else    -1

Sorting columns are those that all row groups agree on. The **designated timestamp** is the one that
the JSON flags, or else the first sorting column if it is an ascending timestamp. In both cases it
must be a REQUIRED column of the root. Where the JSON flags another, none is designated and the
``_pm`` states no order.

The JSON under the key ``questdb``::

    {"version": 1, "schema": [{"column_type": 12, "column_top": 0, "format": 1, "ascii": true,
     "id": 3}, …], "unused_bytes": 4096, "squash_tracker": 11}

One entry for each leaf, in order. ``format`` 1 (the only one) says that a symbol's keys are those
of the table; ``id``, ``ascii``, ``format``, ``unused_bytes`` and ``squash_tracker`` may be absent,
and an ``id`` or ``squash_tracker`` of -1 means the same. Version 1 is the only one there is.

A tool that rewrites the Parquet file may copy the JSON of another schema into it: it is trusted
only where it has as many entries as there are leaves, and each type fits its leaf.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import FieldRepetitionType, Type

from .layout import (
    COLUMN_DESCENDING,
    COLUMN_IS_ASCII,
    COLUMN_LOCAL_KEY_IS_GLOBAL,
    FIELD_REPETITION_SHIFT,
)
from .types import UNKNOWN, ColumnType, Tag
from .values import PmColumn, PmHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.metadata import ColumnOrder, KeyValue, SortingColumn
    from skipstone.parquet.format.schema import ColumnDescriptor, Schema


KEY = "questdb"
_VERSION = 1
_LOCAL_KEY_IS_GLOBAL = 1
_I32, _I64 = 1 << 31, 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class QdbColumn:
    """One entry of ``schema``; ``column_top`` counts rows before the column was added."""

    column_type: int
    column_top: int = 0
    format: int | None = None
    ascii: bool | None = None
    id: int = -1

    @property
    def local_key_is_global(self) -> bool:
        """A symbol whose keys are those of the table."""
        return self.format == _LOCAL_KEY_IS_GLOBAL


@dataclass(frozen=True, slots=True, kw_only=True)
class QdbMeta:
    """The whole document."""

    schema: tuple[QdbColumn, ...]
    version: int = _VERSION
    unused_bytes: int = 0
    squash_tracker: int = -1

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """``FormatError`` where it is not such a document, ``UnsupportedError`` for a version."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"the JSON under {KEY!r}: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise FormatError(f"the JSON under {KEY!r}", expected="an object", got=document)
        version = _whole(document, "version", _I32)
        if version != _VERSION:
            raise UnsupportedError(
                f"version {version} of the JSON under {KEY!r}",
                hint="the file was written by a later version of QuestDB",
            )
        schema = document.get("schema")
        if not isinstance(schema, list) or not all(isinstance(each, dict) for each in schema):
            raise FormatError(f"schema of the JSON under {KEY!r}", expected="a list of objects")
        return cls(
            schema=tuple([_entry(each) for each in schema]),
            unused_bytes=_whole(document, "unused_bytes", _I64, 0),
            squash_tracker=_whole(document, "squash_tracker", _I64, -1),
        )


def _entry(entry: dict[str, Any]) -> QdbColumn:
    form = entry.get("format")
    if form is not None and form != _LOCAL_KEY_IS_GLOBAL:
        raise UnsupportedError(f"format {form!r} of a column in the JSON under {KEY!r}")
    ascii = entry.get("ascii")
    if ascii is not None and not isinstance(ascii, bool):
        raise FormatError(f"ascii in the JSON under {KEY!r}", expected="a boolean", got=ascii)
    return QdbColumn(
        column_type=_whole(entry, "column_type", _I32),
        column_top=_whole(entry, "column_top", _I64, 0),
        format=None if form is None else _LOCAL_KEY_IS_GLOBAL,
        ascii=ascii,
        id=max(-1, _whole(entry, "id", _I32, -1)),
    )


def _whole(entry: dict[str, Any], name: str, limit: int, default: int | None = None) -> int:
    value = entry.get(name)
    if value is None and default is not None:
        return default
    # A bool is an int to Python, and not to QuestDB.
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise FormatError(f"{name} in the JSON under {KEY!r}", expected="a whole number", got=value)
    return value


#: What to do with a JSON of another schema.
OnStale: TypeAlias = Literal["refuse", "ignore"]

_OF_DECIMALS = (Type.INT32, Type.INT64, Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)
_MOST_DIMENSIONS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PmColumns:
    """The columns by the schema and the JSON, before any row group.

    ``types`` are QuestDB's codes; ``sorting`` columns and whether they descend; ``designated`` is
    the timestamp's column or -1.
    """

    schema: Schema
    types: list[int]
    columns: tuple[PmColumn, ...]
    sorting: tuple[tuple[int, bool], ...]
    designated: int
    squash_tracker: int | None

    @classmethod
    def of(cls, footer: FooterArrays, *, on_stale: OnStale = "refuse") -> PmColumns:
        """The columns of a footer. ``FormatError`` where its JSON is stale and refused, or its
        sorting columns contradict the schema."""
        schema = footer.schema
        qdb = _qdb_meta(footer.key_value_metadata, schema, on_stale=on_stale)
        types = _types(schema, qdb)
        sortings = [footer.sorting_columns(number) for number in range(footer.num_row_groups)]
        sorting, ts = _order(sortings, schema, qdb, types)
        descending = {column for column, falls in sorting if falls}
        tracker = -1 if qdb is None else qdb.squash_tracker
        return cls(
            schema=schema,
            types=types,
            columns=tuple(
                _column(leaf, types[leaf.ordinal], qdb, descending=leaf.ordinal in descending)
                for leaf in schema.leaves
            ),
            sorting=tuple(sorting),
            designated=ts,
            squash_tracker=None if tracker == -1 else tracker,
        )

    def doubtful(self, orders: Sequence[ColumnOrder] | None) -> tuple[int, ...]:
        """Leaves whose statistics a reader of the ``_pm`` alone would order wrongly: unsigned
        integers, decimals of odd width, INT96, and those to which the footer's ``orders`` give no
        known order. They must be ``silent`` in a ``_pm`` that is read without the schema.
        """
        found = []
        for leaf, code in zip(self.schema.leaves, self.types, strict=True):
            known = orders is not None and leaf.ordinal < len(orders)
            known = known and orders[leaf.ordinal].TYPE_ORDER is not None  # type: ignore[index]
            if not known or not _order_is_known(leaf, ColumnType.of(code)):
                found.append(leaf.ordinal)
        return tuple(found)

    def head(self, bloom_columns: Iterable[int], *, external: bool) -> PmHead:
        """The header of a ``_pm`` in which these columns have filters."""
        used = tuple(sorted(bloom_columns))
        return PmHead(
            columns=self.columns,
            designated_timestamp=self.designated,
            sorting_columns=tuple(column for column, _ in self.sorting),
            bloom_columns=used,
            bloom_external=external and bool(used),
            squash_tracker=self.squash_tracker,
        )


def _qdb_meta(
    pairs: Iterable[KeyValue] | None, schema: Schema, *, on_stale: OnStale
) -> QdbMeta | None:
    texts = [pair.value for pair in pairs or () if pair.key == KEY]
    if not texts or texts[-1] is None:
        return None
    try:
        qdb = QdbMeta.from_json(texts[-1])
        if len(qdb.schema) != len(schema.leaves):
            raise FormatError(
                f"the JSON under {KEY!r} is of another schema",
                expected=f"{len(schema.leaves)} columns",
                got=len(qdb.schema),
                hint="another tool rewrote the file and kept QuestDB's metadata",
            )
        for leaf, column in zip(schema.leaves, qdb.schema, strict=True):
            type = ColumnType.of(column.column_type)
            if type is not None and not type.fits(leaf.type, leaf.type_length):
                raise FormatError(
                    f"the JSON under {KEY!r} gives {leaf.name!r} another type",
                    expected=leaf.type.name,
                    got=type.name,
                    hint="another tool rewrote the file and kept QuestDB's metadata",
                )
    except FormatError:
        if on_stale == "refuse":
            raise
        return None
    return qdb


def _types(schema: Schema, qdb: QdbMeta | None) -> list[int]:
    if qdb is not None:
        return [column.column_type for column in qdb.schema]
    inferred = [infer(leaf) for leaf in schema.leaves]
    return [UNKNOWN if type is None else type.code for type in inferred]


def _order(
    sortings: Iterable[Sequence[SortingColumn] | None],
    schema: Schema,
    qdb: QdbMeta | None,
    types: list[int],
) -> tuple[list[tuple[int, bool]], int]:
    """Sorting columns with their direction, and the designated timestamp or -1."""
    if qdb is not None:
        for leaf, code in zip(schema.leaves, types, strict=True):
            type = ColumnType.of(code)
            if type is not None and type.designated:
                if not _never_null(leaf):
                    return [], -1
                return [(leaf.ordinal, type.descending)], leaf.ordinal
    orders = {
        tuple((key.column_idx, key.descending) for key in sorting_columns)
        for sorting_columns in sortings
        if sorting_columns
    }
    # Row groups disagree in files that a merge made: no order is stated for them.
    sorting = list(orders.pop()) if len(orders) == 1 else []
    count = len(schema.leaves)
    if any(not 0 <= column < count for column, _ in sorting):
        raise FormatError("a sorting column", expected=f"0 to {count - 1}", got=sorting)
    if len({column for column, _ in sorting}) != len(sorting):
        raise FormatError("a sorting column twice", got=sorting)
    if not sorting or sorting[0][1]:
        return sorting, -1
    first = schema.leaves[sorting[0][0]]
    tag = (ColumnType.of(types[first.ordinal]) or ColumnType(tag=Tag.BOOLEAN)).tag
    stamped = first.type is Type.INT64 and first.element.annotation.TIMESTAMP is not None
    designated = stamped and _never_null(first) and tag in (Tag.TIMESTAMP, Tag.DATE)
    return sorting, first.ordinal if designated else -1


def _never_null(leaf: ColumnDescriptor) -> bool:
    return leaf.flat and leaf.max_definition_level == 0


def _column(
    leaf: ColumnDescriptor, code: int, qdb: QdbMeta | None, *, descending: bool
) -> PmColumn:
    field = leaf.ancestors[1] if len(leaf.ancestors) > 1 else leaf.node
    repetition = field.element.repetition_type or FieldRepetitionType.REQUIRED
    flags = int(repetition) << FIELD_REPETITION_SHIFT
    flags |= COLUMN_DESCENDING if descending else 0
    id = -1 if field.element.field_id is None else max(-1, field.element.field_id)
    if qdb is not None:
        own = qdb.schema[leaf.ordinal]
        flags |= COLUMN_LOCAL_KEY_IS_GLOBAL if own.local_key_is_global else 0
        flags |= COLUMN_IS_ASCII if own.ascii else 0
        id = own.id if own.id >= 0 else id
    return PmColumn(
        name=field.name,
        type=code,
        physical_type=int(leaf.type),
        id=id,
        flags=flags,
        fixed_byte_len=leaf.type_length if leaf.type.name == "FIXED_LEN_BYTE_ARRAY" else 0,
        max_rep_level=leaf.max_repetition_level,
        max_def_level=leaf.max_definition_level,
    )


def infer(leaf: ColumnDescriptor) -> ColumnType | None:
    """The type that QuestDB gives to the leaf, ``None`` where it has none."""
    logical = leaf.element.annotation
    if logical.DECIMAL is not None and leaf.type in _OF_DECIMALS:
        return ColumnType.decimal(logical.DECIMAL.precision, logical.DECIMAL.scale)
    match leaf.type:
        case Type.BOOLEAN:
            return ColumnType(tag=Tag.BOOLEAN)
        case Type.FLOAT:
            return ColumnType(tag=Tag.FLOAT)
        case Type.DOUBLE:
            return _array(leaf) or ColumnType(tag=Tag.DOUBLE)
        case Type.INT32:
            return _int32(leaf)
        case Type.INT64:
            return _int64(leaf)
        case Type.INT96:
            plain = leaf.element.converted_type is None and leaf.element.logicalType is None
            return ColumnType(tag=Tag.TIMESTAMP, nanos=True) if plain else None
        case Type.BYTE_ARRAY:
            return ColumnType(tag=Tag.BINARY if logical.STRING is None else Tag.VARCHAR)
    if leaf.type_length == 16:
        return ColumnType(tag=Tag.LONG128 if logical.UUID is None else Tag.UUID)
    return ColumnType(tag=Tag.LONG256) if leaf.type_length == 32 else None


def _order_is_known(leaf: ColumnDescriptor, type: ColumnType | None) -> bool:
    """False where the order of the leaf's statistics does not follow from QuestDB's type.

    A ``_pm`` does not know the logical type. So a reader of it would compare unsigned integers as
    signed ones, decimals of an odd width at another width, and text of other kinds in any order.
    """
    if type is None or leaf.type is Type.INT96:
        return False
    logical = leaf.element.annotation
    if logical.unknown:
        return False
    if logical.INTEGER is not None and not logical.INTEGER.isSigned:
        # These two are unsigned to QuestDB as well: CHAR never has its highest bit set.
        return type.tag in (Tag.IPV4, Tag.CHAR)
    if type.is_decimal:
        if leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
            return leaf.type_length == type.decimal_width
        return leaf.type in (Type.INT32, Type.INT64)
    if leaf.type is Type.FIXED_LEN_BYTE_ARRAY:
        # LONG128 and LONG256 are little-endian numbers, and Parquet orders their bytes.
        return type.tag is Tag.UUID
    return type.tag is not Tag.ARRAY


def _int32(leaf: ColumnDescriptor) -> ColumnType:
    logical = leaf.element.annotation
    if logical.DATE is not None:
        return ColumnType(tag=Tag.DATE)
    tag = Tag.INT
    if logical.INTEGER is not None and logical.INTEGER.isSigned:
        tag = {8: Tag.BYTE, 16: Tag.SHORT}.get(logical.INTEGER.bitWidth, tag)
    return ColumnType(tag=tag)


def _int64(leaf: ColumnDescriptor) -> ColumnType:
    stamp = leaf.element.annotation.TIMESTAMP
    match None if stamp is None else stamp.unit.arrow:
        case "ms":
            return ColumnType(tag=Tag.DATE)
        case "us" | "ns" as unit:
            return ColumnType(tag=Tag.TIMESTAMP, nanos=unit == "ns")
    return ColumnType(tag=Tag.LONG)


def _array(leaf: ColumnDescriptor) -> ColumnType | None:
    """The ARRAY of a DOUBLE under a LIST whose groups have one child each."""
    groups = leaf.ancestors[1:]
    if not groups or not groups[0].is_list or any(len(group.children) != 1 for group in groups):
        return None
    dimensions = leaf.max_repetition_level
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        return None
    return ColumnType(tag=Tag.ARRAY, element=int(Tag.DOUBLE), dimensions=dimensions)
