"""Which columns of a ``_pm`` can answer a predicate, and the type of their statistics.

A ``_pm`` keeps QuestDB's type and the physical type, not Parquet's logical type. Name, ID and
repetition are those of the root field. For a file of another writer it therefore does not
distinguish int32 from uint32 or a time of day, an instant from a local timestamp, or a struct with
one leaf from a flat column. A column answers

- if the table's type is known, and QuestDB's type is that type in Spark; or the table's type is
  wider, the column is as QuestDB writes it, and it is no INT or LONG, which unsigned columns have
  too; or the table's type is wider, the ``_pm`` is our own (it has no doubtful statistics), and the
  column has statistics;
- if nothing is known of the table, and the column is as QuestDB writes it, or the ``_pm`` is ours.

**As QuestDB writes it**: the column has an ID, the physical type and width of its type, and no
group above it. It is optional, except the designated timestamp and the types that old versions
wrote REQUIRED.

Columns are found by ID if the reader of the data uses IDs. If it uses names, as Spark does, exactly
one column must have the name, and where both sides have an ID, it must be the table's: a dropped
column and a later one of the same name are two. MAX_DEF_LEVEL says whether there can be nulls; the
repetition in FLAGS of a SYMBOL does not.

All other columns say nothing.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache
from mmap import mmap
from typing import TYPE_CHECKING, Final, NamedTuple

from skipstone.parquet.evidence.stored_values import Form, Stored
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.logical_types import DecimalType, LogicalType, TimestampType
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.predicate.types import TIMESTAMP_NTZ, indexable
from skipstone.pruning.column_types import is_text, widens
from skipstone.questdb.format.layout import FIELD_REPETITION_SHIFT, HEADER
from skipstone.questdb.format.types import ColumnType, Tag

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.questdb.format.pm import Pm, PmSnapshot
    from skipstone.questdb.format.values import PmColumn


_FIELD_ID: Final = b"PARQUET:field_id"
#: Written REQUIRED by versions before 9.
_ONCE_REQUIRED: Final = (Tag.BOOLEAN, Tag.BYTE, Tag.SHORT, Tag.CHAR, Tag.SYMBOL)
_DESCRIPTOR: Final = struct.Struct("<QiiiiIBBBB")
#: Columns whose names are compared one by one; and the most places where a name may be found.
_FEW, _MOST_HITS = 16, 64
#: Unsigned integers and times of day of other writers have these types as well.
_DOUBTFUL: Final = (int(Tag.INT), int(Tag.LONG))


def named(pm: Pm, name: str) -> int | None:
    """The position of the only column of this name; ``None`` if there is none, or several."""
    wanted = name.encode("utf-8", "surrogatepass")
    source = pm.data.obj
    if pm.column_count > _FEW and wanted and isinstance(source, bytes | bytearray | mmap):
        last = describe(pm, pm.column_count - 1)
        end = last.name_offset + last.name_length
        if len(source) == len(pm.data) and pm.names_start < end <= pm.size:
            try:
                return _searched(pm, source, wanted, end)
            except _TooManyError:
                pass
    found = pm.named(name)
    return found[0] if len(found) == 1 else None


class _TooManyError(Exception):
    """A name that occurs within too many other names."""


def _searched(pm: Pm, source: bytes | bytearray | mmap, wanted: bytes, end: int) -> int | None:
    """The same, by a search in the names, which lie back to back in the order of the columns."""
    found: int | None = None
    at = source.find(wanted, pm.names_start, end)
    for _ in range(_MOST_HITS):
        if at < 0:
            return found
        low, high = 0, pm.column_count - 1
        while low < high:
            middle = (low + high + 1) // 2
            if describe(pm, middle).name_offset <= at:
                low = middle
            else:
                high = middle - 1
        place = describe(pm, low)
        if (place.name_offset, place.name_length) == (at, len(wanted)):
            if found is not None:
                return None
            found = low
        at = source.find(wanted, at + 1, end)
    raise _TooManyError


class Descriptor(NamedTuple):
    """A DESCRIPTOR as numbers: a single one is read faster than from an array."""

    name_offset: int
    id: int
    type: int
    flags: int
    fixed_byte_len: int
    name_length: int
    physical_type: int
    max_rep_level: int
    max_def_level: int
    reserved: int


def describe(pm: Pm, column: int) -> Descriptor:
    """The DESCRIPTOR of the column at this position."""
    return Descriptor(*_DESCRIPTOR.unpack_from(pm.data, HEADER.itemsize + 32 * column))


def stored_as(
    snapshot: PmSnapshot, column: int, field: pa.Field | None, *, own: bool
) -> Stored | None:
    """What the column at this position stores, ``None`` if it cannot answer; see the module.

    ``field`` is the table's; ``own``: the ``_pm`` was made without doubtful statistics.
    """
    pm = snapshot.pm
    described = describe(pm, column)
    if field is not None and not _same_id(field, described.id):
        return None
    element = element_of(described)
    if element is None:
        return None
    if field is None:
        return _stored(element) if own or as_questdb_writes(pm, column) else None
    wanted = indexable(field)
    if wanted is None:
        return None
    found = _stored(element)
    if found.form is Form.TIMESTAMP and wanted == TIMESTAMP_NTZ:
        found = _stored(_local(element))
    if found.type is None or found.type == wanted:
        # A type without an order still has null counts, which are right for any type.
        return found if found.type is not None or own or as_questdb_writes(pm, column) else None
    if described.type in _DOUBTFUL and not (own and _has_statistics(snapshot, column)):
        return None
    fits = widens(found.type, wanted) or (is_text(found.type) and is_text(wanted))
    return found if fits and (own or as_questdb_writes(pm, column)) else None


def as_questdb_writes(pm: Pm, column: int) -> bool:
    """Whether QuestDB itself may have written the column; see the module."""
    described = describe(pm, column)
    type = ColumnType.of(described.type)
    if type is None or described.id < 0 or described.max_rep_level:
        return False
    form, length = type.parquet, described.fixed_byte_len
    if described.physical_type != form.type or (form.length and length != form.length):
        return False
    if described.max_def_level == 1:
        return True
    return described.max_def_level == 0 and (
        column == pm.designated_timestamp or type.tag in _ONCE_REQUIRED
    )


def element_of(described: Descriptor) -> SchemaElement | None:
    """The schema element of a flat column, ``None`` for other columns and unknown types."""
    return _element(
        described.type,
        described.physical_type,
        described.fixed_byte_len,
        described.flags >> FIELD_REPETITION_SHIFT & 3,
        described.max_rep_level,
        described.max_def_level,
    )


def element_of_column(column: PmColumn) -> SchemaElement | None:
    """The same for a column that is yet to be written."""
    return _element(
        column.type,
        column.physical_type,
        column.fixed_byte_len,
        column.repetition,
        column.max_rep_level,
        column.max_def_level,
    )


@lru_cache(maxsize=4096)
def _element(
    code: int, physical: int, length: int, repetition: int, max_rep: int, max_def: int
) -> SchemaElement | None:
    type = ColumnType.of(code)
    if type is None or max_rep or max_def > 1 or repetition > 1:
        return None
    if repetition == FieldRepetitionType.REQUIRED and max_def and type.tag is not Tag.SYMBOL:
        return None  # an optional leaf below a required group
    if repetition == FieldRepetitionType.OPTIONAL and not max_def:
        return None
    fixed = physical == Type.FIXED_LEN_BYTE_ARRAY
    if (fixed and not 0 < length < 1 << 16) or type.tag is Tag.ARRAY:
        return None
    if not type.fits(physical, length if fixed else 0):
        return None
    form = type.parquet
    logical, converted = form.logical, form.converted
    precision = scale = None
    if type.is_decimal:
        precision, scale = type.precision, type.scale
        logical = LogicalType(DECIMAL=DecimalType(scale=scale, precision=precision))
    elif type.tag is Tag.DATE and physical == Type.INT32:
        logical, converted = None, ConvertedType.DATE
    elif physical == Type.INT96:
        logical = converted = None
    return SchemaElement(
        name="",
        type=Type(physical),
        type_length=length if fixed else None,
        repetition_type=FieldRepetitionType(1 if max_def else 0),
        logicalType=logical,
        converted_type=converted,
        precision=precision,
        scale=scale,
    )


@lru_cache(maxsize=4096)
def _stored(element: SchemaElement) -> Stored:
    root = SchemaElement(name="schema", num_children=1)
    return Stored.of(Schema.of((root, element)).leaves[0])


@lru_cache(maxsize=64)
def _local(element: SchemaElement) -> SchemaElement:
    """The same column as timestamps without a zone, as the table declares it."""
    assert element.logicalType is not None
    assert element.logicalType.TIMESTAMP is not None
    stamp = TimestampType(isAdjustedToUTC=False, unit=element.logicalType.TIMESTAMP.unit)
    return replace(element, logicalType=LogicalType(TIMESTAMP=stamp), converted_type=None)


def _has_statistics(snapshot: PmSnapshot, column: int) -> bool:
    """Whether any chunk has statistics. An own ``_pm`` has none of a doubtful column: then not even
    the range of its type may be used."""
    return bool(snapshot.chunks([column])["STAT_FLAGS"].any())


def _same_id(field: pa.Field, id: int) -> bool:
    kept = (field.metadata or {}).get(_FIELD_ID)
    return kept is None or id < 0 or kept == b"%d" % id
