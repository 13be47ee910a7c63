"""``keys=``: sets of values that columns must be in, from arrays, tables and files.

``{"user_id": array}`` finds the rows whose ``user_id`` is one of the array's values, with the
meaning of ``user_id IN (…)``; several columns must all be found, each among its own values. An
array is pyarrow's, NumPy's, a list, or any object with the Arrow PyCapsule protocol (a series of
polars or pandas). Instead of a mapping, a table or a DataFrame in memory gives a set for each of
its columns.

Keys of a file are the values of a column of Parquet (a file, a folder or an object) or of CSV with
names in the first line, or the lines of any other file. Text in CSV and in lines is read as the
type of the table's column, empty text as null.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from skipstone import _compute as pc
from skipstone.errors import PredicateError, SkipstoneError, first_line
from skipstone.human import some_of
from skipstone.predicate.binding import bind
from skipstone.predicate.operands import Unusable
from skipstone.predicate.tree import And, ColumnRef, Const, Expr, Membership, Opaque
from skipstone.predicate.types import Kind, column_path, indexable, kind_of, spark_name
from skipstone.predicate.value_array import cast_values
from skipstone.predicate.zones import zone
from skipstone.pruning.table_schema import find_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from .open_table import OpenTable

    KeySets: TypeAlias = "Mapping[str, object] | object"


def keyed(expr: Expr, keys: KeySets | None) -> Expr:
    """``expr`` and the membership of columns in ``keys``."""
    if keys is None:
        return expr
    if isinstance(keys, And | Membership):
        own: Expr = keys
    else:
        own = memberships({column_path(k): v for k, v in arrays_by_column(keys).items()})
    return own if expr == Const(True) else And((expr, own))


def memberships(arrays: Mapping[tuple[str, ...], pa.Array]) -> Expr:
    """The conditions that each column is among its keys."""
    parts = [Membership(ColumnRef(path), array) for path, array in arrays.items()]
    return parts[0] if len(parts) == 1 else And((*parts,))


def arrays_by_column(keys: KeySets) -> dict[str, pa.Array]:
    """The keys of each column; ``PredicateError`` without any."""
    found = {name: key_array(values, name) for name, values in _by_column(keys).items()}
    if not found:
        raise PredicateError("keys names no column", hint='keys={"user_id": array}')
    return found


def _by_column(keys: KeySets) -> Mapping[str, object]:
    if isinstance(keys, Mapping):
        return keys
    if not isinstance(keys, pa.Table | pa.RecordBatch):
        if not hasattr(keys, "__arrow_c_stream__"):
            raise TypeError(
                f"keys is a mapping from columns to arrays, or a table, not {_name(keys)}"
            )
        try:
            keys = pa.table(keys)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"keys is one series, without the name of a column ({error}): "
                'write keys={"user_id": series}'
            ) from None
    given: Any = keys
    return dict(zip(given.schema.names, given.columns, strict=True))


def key_array(values: Any, column: str) -> pa.Array:
    """``values`` as one Arrow array; ``PredicateError`` where they are not values of one type."""
    try:
        found = _array(values)
        if isinstance(found, pa.ChunkedArray):
            type = found.type
            if found.num_chunks > 1 and (pa.types.is_string(type) or pa.types.is_binary(type)):
                # An array with 32-bit offsets holds at most 2 GiB.
                wide = pa.large_string() if pa.types.is_string(type) else pa.large_binary()
                found = found.cast(wide)
            found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    except (pa.ArrowException, OverflowError) as error:
        raise PredicateError(
            f"keys of {column} are not values of one type: {first_line(error)}",
            hint="give an array of one type: pyarrow.array(keys, type)",
        ) from None
    return found


def _array(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"keys of a column are an array or a list, not {_name(values)}")
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__array__"):
        return pa.array(values)
    return pa.array(list(values))


def _name(value: object) -> str:
    return type(value).__name__


# -- files -----------------------------------------------------------------------------------------

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def keys_of_file(table: OpenTable, column: str, path: str, theirs: str) -> pa.Array:
    """The keys of ``column`` of ``table`` in the file at ``path``, whose column is ``theirs``."""
    _require_file(path)
    if (delimiter := _delimiter(path)) is not None:
        return _fitting(table, column, _csv(path, theirs, delimiter), f"{path}, row")
    if Path(path).is_file() and not _is_parquet(path):
        return _fitting(table, column, _lines(path), f"{path}, line")
    return _fitting(table, column, key_array(_parquet(table, path, theirs), column), f"{path}, row")


def columns_of_file(path: str, opened: Callable[[str], OpenTable]) -> list[str] | None:
    """The columns of a file of keys; ``None`` where its lines are the keys."""
    _require_file(path)
    if (delimiter := _delimiter(path)) is not None:
        return _csv_columns(path, delimiter)
    if Path(path).is_file() and not _is_parquet(path):
        return None
    found = opened(path)
    return list(found.schema(found.listing()).names)


def _require_file(path: str) -> None:
    """Raises for a local path of no file or folder: a file is opened more than once, and a device
    may have no end."""
    if "://" in path or Path(path).is_file() or Path(path).is_dir():
        return
    if not Path(path).exists():
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
    raise SkipstoneError(
        f"{path} is neither a file nor a folder", hint="write the keys to a file, and name that"
    )


def _delimiter(path: str) -> str | None:
    suffixes = Path(path).suffixes
    compressed = suffixes[-1:] in ([".gz"], [".bz2"], [".zst"])
    return _DELIMITERS.get("".join(suffixes[-2:-1] if compressed else suffixes[-1:]))


def _is_parquet(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(4) in (b"PAR1", b"PARE")


def _not_csv(path: str, error: pa.ArrowInvalid) -> SkipstoneError:
    hint = "the first line of a CSV file names its columns; the values follow, one row a line"
    if not Path(path).stat().st_size:
        return SkipstoneError(f"{path} is empty", hint=hint)
    return SkipstoneError(f"{path} is not CSV: {error}", hint=hint)


def _parquet(table: OpenTable, path: str, column: str) -> pa.ChunkedArray:
    options = table.storage_options if "://" in path else None
    found: Any = type(table)(path, storage_options=options)
    name = _spelled(column, path, found.schema(found.listing()).names)
    return found.query(columns=[name]).column(0)


def _csv_columns(path: str, delimiter: str) -> list[str]:
    from pyarrow import csv

    read, parse = csv.ReadOptions(use_threads=False), csv.ParseOptions(delimiter=delimiter)
    try:
        return list(csv.open_csv(path, read, parse).schema.names)
    except pa.ArrowInvalid as error:
        raise _not_csv(path, error) from None


def _csv(path: str, column: str, delimiter: str) -> pa.Array:
    from pyarrow import csv

    read, parse = csv.ReadOptions(use_threads=False), csv.ParseOptions(delimiter=delimiter)
    name = _spelled(column, path, _csv_columns(path, delimiter))
    try:
        convert = csv.ConvertOptions(
            include_columns=[name],
            column_types={name: pa.large_string()},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return csv.read_csv(path, read, parse, convert).column(0).combine_chunks()
    except pa.ArrowInvalid as error:
        raise _not_csv(path, error) from None


def _lines(path: str) -> pa.Array:
    """The lines, null for an empty one."""
    with pa.input_stream(path) as file:
        data = file.read().removeprefix(BOM_UTF8).removesuffix(b"\n")
    text = pa.array([data], pa.large_binary()).view(pa.large_string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SkipstoneError(f"{path} is not UTF-8: {error}") from None
    lines = pc.utf8_rtrim(pc.list_flatten(pc.split_pattern(text, "\n")), characters="\r")
    return pc.if_else(pc.equal(lines, ""), pa.scalar(None, pa.large_string()), lines)


def _spelled(column: str, path: str, names: list[str]) -> str:
    """The name of a column as the file at ``path`` spells it."""
    found = {name.lower(): name for name in names}.get(column.lower())
    if found is None:
        hint = f"the columns are {some_of(names, 8)}"
        raise PredicateError.of_name(f"no column {column} in {path}", column, names, hint)
    return found


def _fitting(table: OpenTable, column: str, keys: pa.Array, place: str) -> pa.Array:
    """Keys in a type that compares with a column of the table: texts are cast to its type;
    ``place`` is for errors."""
    schema = table.schema(table.listing())
    field = find_field(schema, column)
    type = None if field is None else indexable(field)
    if type is None or keys.null_count == len(keys):
        return keys  # a column that does not exist is an error of the query
    if not pa.types.is_string(keys.type) and not pa.types.is_large_string(keys.type):
        some = keys.filter(pc.is_valid(keys))[:1]
        if isinstance(bind(memberships({column_path(column): some}), schema), Opaque):
            raise PredicateError(
                f"{place.rpartition(',')[0]} has keys of type {keys.type}, and {column} is "
                f"{spark_name(type)}: these do not compare",
                hint=f"write the keys as {spark_name(type)}",
            )
        return keys
    if pa.types.is_string(type):
        return keys

    def cast(texts: pa.Array) -> pa.Array:
        held = pc.drop_null(texts).cast(pa.string())
        if pa.types.is_decimal(type):
            return held.cast(type)
        return cast_values(held, pa.string(), type, zone("UTC"))

    try:
        found = cast(keys)
        return pa.concat_arrays([found, pa.nulls(keys.null_count, found.type)])
    except (Unusable, pa.ArrowInvalid):
        start, end = 0, len(keys)
        while end - start > 1:  # the first half has one that cannot be cast, or the other has
            middle = (start + end) // 2
            try:
                cast(keys[start:middle])
                start = middle
            except (Unusable, pa.ArrowInvalid):
                end = middle
        raise PredicateError(
            f"{place} {start + 1:,}: {keys[start].as_py()!r} is not a key of {column}, which is "
            f"{spark_name(type)}",
            hint=f"keys of this column are such as {_EXAMPLES.get(kind_of(type), '42')}",
        ) from None


_EXAMPLES = {
    Kind.DATE: "2026-01-31",
    Kind.TIMESTAMP: "2026-01-31 12:00:00",
    Kind.TIMESTAMP_NTZ: "2026-01-31 12:00:00",
    Kind.FLOATING: "4.2",
    Kind.DECIMAL: "4.2",
    Kind.BOOLEAN: "true and false",
}
