"""Decodes the rows of a part of any version from 1 to 4 to logical columns.

One row is one data file. Its columns::

    minmax      struct<min, max>. Both null (or a null struct): no value at all in the file.
    valuelist   the distinct non-null values. Null or empty: no value at all in the file.
    bloomfilter a Java-serialised filter, see java_bloom.py and bloom_probe.py. Null: unknown.

**Wrong values of Xskipper are discarded.** Its values are bounds of the data except:

* Statistics of a Parquet footer stand in for the data when all indexes are ``minmax`` over numbers
  that are not decimals. A row group with NaN has no minimum and maximum there; it was left out, or
  the column appeared empty. So a row proves nothing about float and double columns, unless the data
  file is evidently not Parquet.
* Strings were compared as UTF-16. A maximum with a character U+E000 to U+FFFF may be below a value
  with a character beyond U+FFFF in the byte order of UTF-8, which is Spark's; a minimum with a
  character beyond U+FFFF above one. Such a bound is unknown.
* Days before 1582-10-15 and instants before 1900-01-01 of a part in the hybrid calendar have
  another meaning: the row proves nothing about the column.

Rows that Skipstone wrote (``Footer.own``) need none of these rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.pruning.column_types import FIRST_DATE, FIRST_TIMESTAMP

from .naming import OBJ_NAME

if TYPE_CHECKING:
    from .part import PartContents
    from .schema import IndexColumn, StoreSchema


Mask: TypeAlias = npt.NDArray[np.bool_]

_OBJ_NAME = r"(?s)^(?P<path>.*)#(?P<mtime>[0-9]{1,18})$"
_NOT_PARQUET = r"(?i)\.(csv|json|jsonl|orc|avro|txt)(\.(gz|bz2|zst|snappy|lz4|deflate))?$"
_HIGH_BMP, _BEYOND_BMP = r"[\x{E000}-\x{FFFF}]", r"[\x{10000}-\x{10FFFF}]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MinMaxRows:
    """``minimum`` and ``maximum``: null where that end is not known. ``empty``: no value at all."""

    index: IndexColumn
    minimum: pa.Array
    maximum: pa.Array
    empty: Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueListRows:
    """``values``: a list per row, null where nothing is known. ``empty``: no value at all."""

    index: IndexColumn
    values: pa.ListArray
    empty: Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BloomRows:
    """``blobs``: serialised filters, null where nothing is known; for ``bloom_probe``."""

    index: IndexColumn
    blobs: pa.ChunkedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRows:
    """An index that proves nothing, and why."""

    index: IndexColumn
    reason: str


IndexRows: TypeAlias = MinMaxRows | ValueListRows | BloomRows | UnreadRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreRows:
    """The rows of a part. Arrays have one entry per row, in the order of the part.

    ``path``: as ``obj_name`` has it, ``mtime_ms``: int64, both null where that is not a name;
    ``indexes``: in the order of the schema. Partition values come from the paths.
    """

    schema: StoreSchema
    path: pa.Array
    mtime_ms: pa.Array
    indexes: tuple[IndexRows, ...]

    def __len__(self) -> int:
        return len(self.path)


def decode(part: PartContents) -> StoreRows:
    """The logical columns of a part. Columns that cannot be decoded say so; nothing else fails.

    ``FormatError`` where ``obj_name`` is not a string column.
    """
    schema, table = part.footer.schema, part.table
    names = _one(table, OBJ_NAME)
    if names.type != pa.string():
        raise FormatError("obj_name is not a string", expected="string", got=names.type)
    parts = pc.extract_regex(names, _OBJ_NAME)
    path = pc.struct_field(parts, "path")
    mtime = pc.struct_field(parts, "mtime").cast(pa.int64())
    suspect = np.zeros(len(names), np.bool_)
    if _from_footers(schema) and not part.footer.own:
        suspect = ~_mask(pc.match_substring_regex(path, _NOT_PARQUET))
    lost = dict(part.unreadable)
    indexes: list[IndexRows] = []
    for index in schema.indexes:
        try:
            if index.name in lost:
                raise UnsupportedError(lost[index.name])
            indexes.append(_index(part, index, suspect))
        except (UnsupportedError, FormatError) as error:
            indexes.append(UnreadRows(index=index, reason=error.message))
        except KeyError:
            indexes.append(UnreadRows(index=index, reason="the column was not read"))
    return StoreRows(schema=schema, path=path, mtime_ms=mtime, indexes=tuple(indexes))


def _index(part: PartContents, index: IndexColumn, suspect: Mask) -> IndexRows:
    value_type = index.value_type()
    if index.kind == "bloomfilter":
        blobs = part.table.column(index.name)
        if blobs.type != pa.binary():
            raise FormatError("type of a bloomfilter column", expected="binary", got=blobs.type)
        return BloomRows(index=index, blobs=blobs)
    column = _one(part.table, index.name)
    if index.kind == "minmax":
        return _minmax(part, index, column, value_type, suspect)
    return _valuelist(part, index, column, value_type)


def _one(table: pa.Table, name: str) -> pa.Array:
    """The column as one array. ``FormatError`` where it outgrows Arrow's 32-bit offsets."""
    column = table.column(name)
    try:
        joined = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        # Text that is not UTF-8 must fail here, not in the code that prints or compares it.
        joined.validate(full=True)
    except (pa.ArrowException, ValueError):
        raise FormatError(f"column {name} is damaged, or too large for one array") from None
    if isinstance(joined, pa.ChunkedArray):
        raise FormatError(f"column {name} is too large for one array")
    return joined


def _cast(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Casts between representations of one Spark type; ``FormatError`` for any other type."""
    same = array.type == to
    if pa.types.is_timestamp(to) and pa.types.is_timestamp(array.type):
        # INT96 is an instant, and arrives without a zone.
        same = array.type.unit in ("us", "ms")
    if not same:
        raise FormatError("type of a column of the store", expected=to, got=array.type)
    return array if array.type == to else array.cast(to)


def _from_footers(schema: StoreSchema) -> bool:
    """True where the original may have taken minima and maxima from Parquet footers."""
    for index in schema.indexes:
        try:
            value = index.value_type()
        except UnsupportedError:
            return False
        number = pa.types.is_integer(value) or pa.types.is_floating(value)
        if index.kind != "minmax" or not number:
            return False
    return True


def _mask(array: pa.Array) -> Mask:
    filled = pc.fill_null(array, False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _without(array: pa.Array, mask: Mask) -> pa.Array:
    if not mask.any():
        return array
    return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))


def nulls(array: pa.Array) -> Mask:
    """Where the value is null."""
    return _mask(array.is_null())


def ancient(values: pa.Array) -> Mask:
    """Where a date or timestamp is from before the calendars agree."""
    if pa.types.is_date32(values.type):
        return _mask(pc.less(values.view(pa.int32()), FIRST_DATE))
    if pa.types.is_timestamp(values.type):
        return _mask(pc.less(values.view(pa.int64()), FIRST_TIMESTAMP))
    return np.zeros(len(values), np.bool_)


def _miscounted(part: PartContents, values: pa.Array) -> Mask:
    """Where the part may have counted the value in the hybrid calendar."""
    calendar = part.footer.calendar
    dated = pa.types.is_date32(values.type)
    legacy = calendar.legacy_dates if dated else calendar.legacy_timestamps
    if part.footer.own or not legacy:
        return np.zeros(len(values), np.bool_)
    return ancient(values)


def lists_without(lists: pa.ListArray, doubtful: Mask) -> pa.Array:
    """The lists, null where one of their values is ``doubtful``, a mask over all values."""
    if not doubtful.any():
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.zeros(len(lists), np.bool_)
    rows[np.repeat(np.arange(len(lists)), lengths)[doubtful]] = True
    return _without(lists, rows)


def _minmax(
    part: PartContents, index: IndexColumn, column: pa.Array, value_type: pa.DataType, suspect: Mask
) -> MinMaxRows:
    if not pa.types.is_struct(column.type) or {f.name for f in column.type} != {"min", "max"}:
        raise FormatError("type of a minmax column", expected="struct<min, max>", got=column.type)
    low = _cast(pc.struct_field(column, "min"), value_type)
    high = _cast(pc.struct_field(column, "max"), value_type)
    no_low, no_high = nulls(low), nulls(high)
    empty = no_low & no_high
    unknown = no_low ^ no_high
    if pa.types.is_floating(value_type):
        unknown |= suspect
        empty &= ~suspect
    unknown |= _miscounted(part, low) | _miscounted(part, high)
    low_unknown, high_unknown = unknown, unknown
    if pa.types.is_string(value_type) and not part.footer.own:
        low_unknown = unknown | _mask(pc.match_substring_regex(low, _BEYOND_BMP))
        high_unknown = unknown | _mask(pc.match_substring_regex(high, _HIGH_BMP))
    return MinMaxRows(
        index=index,
        minimum=_without(low, low_unknown),
        maximum=_without(high, high_unknown),
        empty=empty,
    )


def _valuelist(
    part: PartContents, index: IndexColumn, column: pa.Array, value_type: pa.DataType
) -> ValueListRows:
    if not pa.types.is_list(column.type):
        raise FormatError("type of a valuelist column", expected="a list", got=column.type)
    flat = _cast(column.flatten(), value_type)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    sizes = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    lists = pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), flat, type=pa.list_(pa.field("element", value_type))
    )
    values = lists_without(lists, _miscounted(part, flat))
    return ValueListRows(index=index, values=values, empty=sizes == 0)
