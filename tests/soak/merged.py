"""The schema and the rows of a table by the promise: from the files in memory, never from disk.

The type of a column is the widest of all files, as Spark reads each. A column that a file lacks is
null there; names count without regard to case. The values of folders come last, typed over all
folders, or in place of the files' column of that name.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.strategies import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: where a field says the one type that all files store it as
STORED = b"stored"
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def as_spark(type: pa.DataType) -> pa.DataType:
    """The type that Spark reads a column of this type as."""
    t = pa.types
    if t.is_dictionary(type):
        return as_spark(type.value_type)
    if t.is_uint64(type):
        return pa.decimal128(20, 0)
    if t.is_unsigned_integer(type):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[type.bit_width]
    if t.is_float16(type):
        return pa.float32()
    if t.is_large_string(type):
        return pa.string()
    if t.is_large_binary(type) or t.is_fixed_size_binary(type):
        return pa.binary()
    if t.is_timestamp(type):
        return TIMESTAMP if type.tz else TIMESTAMP_NTZ
    if t.is_struct(type):
        return pa.struct(merged_fields([list(type)]))
    return type


def wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The narrowest type that has all values of both."""
    t = pa.types
    if t.is_struct(a) and t.is_struct(b):
        return pa.struct(merged_fields([list(a), list(b)]))
    if a == b:
        return a
    if t.is_integer(a) and t.is_integer(b):
        return max(a, b, key=lambda each: int(each.bit_width))
    if t.is_floating(a) and t.is_floating(b):
        return pa.float64()
    if {a, b} == {pa.date32(), TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    whole = [x for x in (a, b) if t.is_integer(x)]
    if whole and pa.float64() in (a, b) and whole[0].bit_width <= 32:
        return pa.float64()
    if all(t.is_decimal(x) or t.is_integer(x) for x in (a, b)):
        p, q = (
            (_DIGITS[x.bit_width], 0) if t.is_integer(x) else (x.precision, x.scale) for x in (a, b)
        )
        scale = max(p[1], q[1])
        return pa.decimal128(max(p[0] - p[1], q[0] - q[1]) + scale, scale)
    raise TypeError(f"{a} and {b} have no common type")


def merged_fields(schemas: Iterable[Sequence[pa.Field]]) -> list[pa.Field]:
    """The fields of all, each with its widest type, spelled as the first has it."""
    found: dict[str, pa.Field] = {}
    stored: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            name = field.name.lower()
            known, read = found.get(name), as_spark(field.type)
            if known is None:
                found[name] = pa.field(field.name, read)
            else:
                found[name] = pa.field(known.name, wider(known.type, read))
            # A struct that is merged again says it of its fields.
            said = (field.metadata or {}).get(STORED)
            stored.setdefault(name, set()).add(said.decode() if said else str(field.type))
    return [
        field.with_metadata({STORED: min(stored[name])}) if len(stored[name]) == 1 else field
        for name, field in found.items()
    ]


def converted(values: pa.Array, type: pa.DataType) -> pa.Array:
    """The values in a wider type, exactly; fields of structs that are absent are null."""
    t = pa.types
    if t.is_dictionary(values.type):
        values = values.dictionary_decode()
    if t.is_struct(type):
        by_name = {f.name.lower(): i for i, f in enumerate(values.type)}
        children = []
        for field in type:
            at = by_name.get(field.name.lower())
            child = pa.nulls(len(values), field.type)
            if at is not None:
                child = converted(values.field(at), field.type)
            children.append(child)
        mask = values.is_null()
        return pa.StructArray.from_arrays(children, fields=list(type), mask=mask)
    if values.type == type:
        return values
    if t.is_float16(values.type):
        wide = values.to_numpy(zero_copy_only=False).astype(np.float64)
        return pa.array(wide, type, mask=np.array(values.is_null()))
    if t.is_timestamp(values.type) and values.type.unit == "ns":
        ticks = [None if x is None else x // 1000 for x in values.cast(pa.int64()).to_pylist()]
        return pa.array(ticks, type)
    if t.is_decimal(type) and t.is_integer(values.type):
        values = values.cast(pa.decimal128(_DIGITS[values.type.bit_width], 0))
    return values.cast(type)


def folder_type(texts: Sequence[str]) -> pa.DataType:
    """The type of a folder's column with these values: the widest of the type of each.

    Spark reads a text as the first of int, bigint, a decimal without a scale, double, date and
    string. Double meets only int; decimals meet int and bigint; all else is a string.
    """
    types = {text_type(text) for text in texts}
    if len(types) == 1 and types != {"decimal"}:
        return _NAMED[types.pop()]
    if types == {"int", "double"}:
        return pa.float64()
    if types == {"int", "long"}:
        return pa.int64()
    if types and types <= {"int", "long", "decimal"}:
        digits = [whole_digits(text) for text in texts if text_type(text) == "decimal"]
        digits += [{"int": 10, "long": 20, "decimal": 0}[name] for name in types]
        return pa.decimal128(max(digits), 0)
    return pa.string()


_NAMED = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
}


def text_type(text: str) -> str:
    """The type of one text; the generator draws plain ASCII numbers and dates of four digits."""
    if re.fullmatch(r"-?[0-9]+", text):
        number = int(text)
        if -(2**31) <= number < 2**31:
            return "int"
        return "long" if -(2**63) <= number < 2**63 else "decimal"
    if re.fullmatch(r"-?[0-9]+e[0-9]+", text):
        return "decimal"
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-[0-9]+)?", text):
        return "double"
    return "date" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else "string"


def whole_digits(text: str) -> int:
    return len(str(abs(int(Decimal(text)))))


def folder_values(texts: Sequence[str | None]) -> pa.Array:
    """The typed values of the unescaped texts, one per file."""
    type = folder_type([text for text in texts if text is not None])
    strings = pa.array(texts, pa.string())
    if pa.types.is_decimal(type):
        return pa.array([None if x is None else Decimal(x) for x in texts], type)
    return strings if type == pa.string() else strings.cast(type)


def merged(files: Sequence[tuple[pa.Table, dict[str, str | None]]]) -> pa.Table:
    """All rows of the files: (rows, unescaped values of its folders), in the order given."""
    fields = merged_fields([list(rows.schema) for rows, _ in files])
    folders: dict[str, Any] = {}
    for name in files[0][1] if files else ():
        typed = folder_values([values[name] for _, values in files])
        folders[name.lower()] = typed
        if name.lower() not in {f.name.lower() for f in fields}:
            fields.append(pa.field(name, typed.type))
    fields = [
        f.with_type(folders[f.name.lower()].type) if f.name.lower() in folders else f
        for f in fields
    ]
    schema = pa.schema(fields)
    pieces = []
    for at, (rows, _) in enumerate(files):
        have = {name.lower(): i for i, name in enumerate(rows.column_names)}
        columns = []
        for field in fields:
            name = field.name.lower()
            if name in folders:
                column = pa.repeat(folders[name][at], rows.num_rows)
            elif name in have:
                column = converted(rows.column(have[name]).combine_chunks(), field.type)
            else:
                column = pa.nulls(rows.num_rows, field.type)
            columns.append(column)
        pieces.append(pa.table(columns, schema=schema))
    return pa.concat_tables(pieces).combine_chunks() if pieces else schema.empty_table()


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column such that ``equals`` tells NaN like NaN, and -0.0 from 0.0."""
    t = pa.types
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if t.is_floating(column.type):
        bits = pa.int64() if column.type.bit_width == 64 else pa.int32()
        nan = pc.is_nan(column)
        column = pc.if_else(nan, pa.scalar(float("nan"), column.type), column)
        return column.view(bits)
    if t.is_struct(column.type):
        children = [comparable(child) for child in column.flatten()]
        children.append(column.is_valid())
        return pa.StructArray.from_arrays(children, names=[str(i) for i in range(len(children))])
    return column
