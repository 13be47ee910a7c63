"""Which Arrow types DuckDB and polars read with equal values, and under which other type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import UnsupportedError
from skipstone.parquet.arrow.arrow_types import storage_type
from skipstone.predicate.types import is_list

if TYPE_CHECKING:
    from collections.abc import Iterator


# The most digits that the decimals of both engines have.
_DIGITS = 38


def refused(engine: str, column: str, what: str) -> UnsupportedError:
    """The error of a column that an engine cannot read."""
    return UnsupportedError(
        f"{engine} cannot read column {column!r}, which is {what}",
        hint="read the plan with to_pyarrow() or to_arrow(), and cast the column",
    )


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of equal values without Arrow's own encodings."""
    t = pa.types
    if t.is_dictionary(type) or t.is_run_end_encoded(type):
        return plain_type(type.value_type)
    if t.is_decimal256(type) and type.precision <= _DIGITS:
        return pa.decimal128(type.precision, type.scale)
    if t.is_struct(type):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in type])
    return pa.list_(plain_type(type.value_type)) if is_list(type) else type


def types_in(type: pa.DataType) -> Iterator[pa.DataType]:
    """``type`` and all below it."""
    yield type
    if isinstance(type, pa.BaseExtensionType):
        yield from types_in(type.storage_type)
    elif pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        yield from types_in(type.value_type)
    for each in _children(type):
        yield from types_in(each.type)


def duckdb_lacks(type: pa.DataType) -> bool:
    """Types that DuckDB changes: it reads durations as numbers, and rounds decimals of more digits
    to doubles."""
    t = pa.types
    if t.is_decimal(type):
        return bool(type.precision > _DIGITS)
    return bool(t.is_duration(type) or t.is_float16(type))


def without_json(type: pa.DataType) -> pa.DataType:
    """DuckDB would parse each text of Arrow's JSON, and refuse some."""
    if isinstance(type, pa.JsonType):
        return type.storage_type
    if pa.types.is_struct(type):
        return pa.struct([pa.field(each.name, without_json(each.type)) for each in type])
    return pa.list_(without_json(type.value_type)) if pa.types.is_list(type) else type


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_column(stored: pa.Field, wanted: pa.DataType, int96: bool, path: str) -> str:
    """The SQL of a column of the file at ``path``.

    INT96 counts from UTC, independent of the connection's zone. Where a text is binary in a file,
    DuckDB would make binaries of the texts of all files, and read ``\\x41`` in them as one byte.
    """
    nested = pa.types.is_nested(stored.type)
    if int96 and nested:
        raise UnsupportedError(
            f"{stored.name} of {path} has INT96 below it, which DuckDB reads as local times",
            hint="read the plan with to_arrow() or to_polars()",
        )
    if int96:
        return f"timezone('UTC', {quoted(stored.name)})"
    if not _text_is_binary(stored.type, wanted):
        return quoted(stored.name)
    if nested:
        raise refused("DuckDB", stored.name, f"{stored.type} in {path} and {wanted} in the table")
    return f"decode({quoted(stored.name)})"


def _text_is_binary(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a text of the table is binary in a file, at any depth."""
    stored, wanted = storage_type(plain_type(stored)), plain_type(wanted)
    inside = {each.name.lower(): each.type for each in _children(stored)}
    if not inside:
        t = pa.types
        text = t.is_string(wanted) or t.is_large_string(wanted) or t.is_string_view(wanted)
        variable = t.is_binary(stored) or t.is_large_binary(stored) or t.is_binary_view(stored)
        return bool(text and (variable or t.is_fixed_size_binary(stored)))
    return any(
        _text_is_binary(inside[each.name.lower()], each.type)
        for each in _children(wanted)
        if each.name.lower() in inside
    )


def polars_lacks(type: pa.DataType) -> bool:
    """Types that polars cannot read where a file's Arrow schema names them: it panics."""
    t = pa.types
    if t.is_decimal(type):
        return bool(type.precision > _DIGITS)
    if t.is_timestamp(type) and type.tz is not None:
        return not _polars_knows(type.tz)
    return bool(t.is_run_end_encoded(type) or t.is_list_view(type) or t.is_large_list_view(type))


def polars_keeps(type: pa.DataType) -> bool:
    """Types that polars cannot cast, or counts in another unit."""
    t = pa.types
    keyed = t.is_map(type) and t.is_dictionary(type.key_type)
    return keyed or t.is_duration(type) or isinstance(type, pa.BaseExtensionType)


@cache
def _polars_knows(zone: str) -> bool:
    """Whether polars knows a time zone; it does not know ``+01:30``."""
    import polars as pl

    try:
        pl.Series([0], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        return False
    return True


def other_name(own: pa.Field, wanted: pa.Field) -> tuple[str, str] | None:
    """A name whose case differs between the file and the table, at any depth."""
    if own.name != wanted.name:
        return own.name, wanted.name
    for each in _children(own.type):
        for other in _children(wanted.type):
            if each.name.lower() == other.name.lower():
                found = other_name(each, other)
                if found is not None:
                    return found
    return None


def _children(type: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, also of structs in lists and maps."""
    t = pa.types
    if t.is_struct(type):
        return list(type)
    if t.is_map(type):
        return [pa.field("key", type.key_type), pa.field("value", type.item_type)]
    return [pa.field("element", type.value_type)] if is_list(type) else []
