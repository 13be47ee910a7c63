"""Which features the files of a table really use: found from the files, however they were made."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.oracle import values_of
from tests.soak.merged import as_spark, folder_type
from tests.soak.values import is_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.soak.generate import DataFile

_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def features_of(files: Sequence[DataFile]) -> frozenset[str]:
    """The features of a table with these files."""
    found: set[str] = set()
    if len(files) > 16:
        found.add("many_files")
    for each in files:
        found |= {each.writer} & {"duckdb", "polars", "spark"}
        if dict(each.how).get("use_deprecated_int96_timestamps") or each.writer == "spark":
            found.add("int96")
        if "column_encoding" in dict(each.how):
            found.add("encodings")
        if not each.rows.num_rows:
            found.add("empty_files")
        for column in each.rows.columns:
            found |= _values(column)
    found |= _fields([list(each.rows.schema) for each in files], "")
    orders = {
        tuple(n for n in map(str.lower, f.rows.column_names) if all(_has(g, n) for g in files))
        for f in files
    }
    if len(orders) > 1:
        found.add("reordered")
    return frozenset(found | _folders(files))


def places_of(files: Iterable[DataFile]) -> frozenset[str]:
    """The features of all files below a table's path, whether they are its or not."""
    inner = any(each.path.count("/") != len(each.folders) for each in files)
    return frozenset({"nested_folders"} if inner else ())


def _has(file: DataFile, name: str) -> bool:
    return name in map(str.lower, file.rows.column_names)


def _fields(schemas: Sequence[Sequence[pa.Field]], where: str) -> set[str]:
    """The differences between the fields of the files, or of a struct in them."""
    found: set[str] = set()
    columns: dict[str, list[pa.Field]] = defaultdict(list)
    for schema in schemas:
        for field in schema:
            columns[field.name.lower()].append(field)
    for fields in columns.values():
        if len(fields) < len(schemas):
            found.add("nested_added" if where else "missing")
        names = {field.name for field in fields}
        if len(names) > 1:
            found.add("nested_case" if where else "case")
        if any(not set(name) <= _NAMES or name in ("date", "select") for name in names):
            found.add("names")
        types = [field.type for field in fields]
        if any(pa.types.is_struct(type) for type in types):
            found |= {"nested"} | _fields([list(type) for type in types], "nested")
            continue
        different = _types(set(types))
        found |= different
        if where and different & _WIDENED:
            found.add("nested_widened")
    return found


_WIDENED = {
    "widened_integers",
    "widened_floats",
    "widened_decimals",
    "integer_and_unsigned",
    "integer_and_double",
    "integer_and_decimal",
    "date_and_timestamp",
}


def _types(types: set[pa.DataType]) -> set[str]:
    t = pa.types
    found: set[str] = set()
    if any(t.is_dictionary(type) for type in types):
        found.add("dictionary")
    if any(t.is_list(type) for type in types):
        found.add("lists")
    if any(t.is_timestamp(type) and type.unit == "ns" for type in types):
        found.add("nanoseconds")
    if any(t.is_float16(type) for type in types):
        found.add("half_floats")
    if any(t.is_large_string(type) or t.is_large_binary(type) for type in types):
        found.add("text_layouts")
    if any(t.is_fixed_size_binary(type) for type in types):
        found.add("text_layouts")
    unsigned = {type for type in types if t.is_unsigned_integer(type)}
    if unsigned:
        found.add("unsigned")
    read = {as_spark(type) for type in types}
    if len(read) == 1:
        return found | ({"timestamp_units"} if len(types) > 1 else set())
    whole = any(t.is_integer(type) for type in read)
    if len(unsigned) > 1:
        found.add("unsigned_widths")
    if unsigned:
        found.add("integer_and_unsigned")
    elif all(t.is_integer(type) for type in read):
        found.add("widened_integers")
    elif all(t.is_floating(type) for type in read):
        found.add("widened_floats")
    elif whole and any(t.is_floating(type) for type in read):
        found.add("integer_and_double")
    elif whole:
        found.add("integer_and_decimal")
    elif all(t.is_decimal(type) for type in read):
        found.add("widened_decimals")
    else:
        found.add("date_and_timestamp")
    return found


def _values(column: Any) -> set[str]:
    """NaN, zeros and long strings of a column or of its fields."""
    t, type = pa.types, column.type
    if t.is_struct(type):
        return set[str]().union(*(_values(child) for child in column.flatten()))
    found = set()
    if t.is_floating(type):
        if any(each != each for each in values_of(column)):
            found.add("nan")
        if any(each == 0 for each in values_of(column)):
            found.add("zeros")
    if t.is_string(type):
        if (pc.max(pc.binary_length(column)).as_py() or 0) > 60:
            found.add("long_strings")
        if not all(each is None or is_text(each) for each in values_of(column)):
            found.add("invalid_utf8")
    return found


def _folders(files: Iterable[DataFile]) -> set[str]:
    texts: dict[str, set[str | None]] = defaultdict(set)
    found: set[str] = set()
    for each in files:
        for name, text in each.folders:
            texts[name].add(text)
            if _has(each, name.lower()):
                found.add("partition_overlap")
    for values in texts.values():
        if None in values:
            found.add("partition_nulls")
        known = [text for text in values if text is not None]
        match str(folder_type(known)):
            case "int32":
                found.add("partitions")
            case "date32[day]":
                found.add("partition_dates")
            case "double":
                found.add("partition_doubles")
            case "string":
                mixed = any(text[:1].isdigit() for text in known)
                found.add("partition_mixed" if mixed else "partition_texts")
            case _:
                found.add("partition_longs")
    return found
