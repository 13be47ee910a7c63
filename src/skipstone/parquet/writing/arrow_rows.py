"""Cuts and joins the input of ``write_table`` to row groups, without copying.

    pyarrow.Table, RecordBatch                    as they are
    RecordBatchReader, __arrow_c_stream__         one batch at a time (polars, DuckDB, pandas, …)
    an iterable of tables or batches              one at a time; the first one gives the schema

Memory holds at most one row group of a stream, and the batch that extends past its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from typing import Protocol

    class ArrowStream(Protocol):
        """An object that exports an Arrow stream by the C data interface."""

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

    Rows: TypeAlias = (
        pa.Table
        | pa.RecordBatch
        | pa.RecordBatchReader
        | ArrowStream
        | Iterable[pa.Table | pa.RecordBatch]
    )


def schema_and_batches(
    data: Rows, schema: pa.Schema | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of ``data`` and its rows. ``TypeError`` if it is not Arrow data,
    ``UnsupportedError`` for a schema without columns."""
    found, batches = _opened(data)
    if found is None:
        first = next(batches, None)
        if first is not None:
            found, batches = first.schema, chain([first], batches)
    if schema is None:
        schema = found
    elif found is not None and not found.equals(schema):
        raise SkipstoneError(
            "the rows have another schema than the given one",
            hint=f"they have {', '.join(map(str, found))}",
        )
    if schema is None:
        raise SkipstoneError("a stream without batches has no schema", hint="give schema=")
    if not len(schema):
        raise UnsupportedError("a table without columns")
    return schema, batches


def _opened(data: Any) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        return None, _batches(data)
    raise TypeError(f"rows are Arrow tables, batches or a stream, not {type(data).__name__}")


def _batches(parts: Iterable[object]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if isinstance(part, pa.Table):
            # A table without rows still has a schema.
            yield from part.to_batches() or part.schema.empty_table().to_batches() or [_empty(part)]
        elif isinstance(part, pa.RecordBatch):
            yield part
        else:
            raise TypeError(f"a stream of tables or record batches, not of {type(part).__name__}")


def _empty(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.array([], each.type) for each in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def row_groups(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows: int
) -> Iterator[pa.Table]:
    """Tables of ``rows`` rows; the last one may have fewer. ``SkipstoneError`` for a batch of
    another schema."""
    held: list[pa.RecordBatch] = []
    count = 0
    for each in batches:
        batch = each
        if not batch.schema.equals(schema):
            raise SkipstoneError(
                "a batch of the stream has another schema than the first",
                hint=f"it has {', '.join(map(str, batch.schema))}",
            )
        while batch.num_rows:
            part = batch.slice(0, rows - count)
            batch = batch.slice(part.num_rows)
            held.append(part)
            count += part.num_rows
            if count == rows:
                yield _table(schema, held)
                held, count = [], 0
    if count:
        yield _table(schema, held)


def _table(schema: pa.Schema, held: list[pa.RecordBatch]) -> pa.Table:
    # With one dictionary for all batches Arrow writes one dictionary page.
    return pa.Table.from_batches(held, schema).unify_dictionaries()


def holds_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column may hold NaN at any depth; values under a null count, too."""
    if isinstance(column, pa.ChunkedArray):
        return any(holds_nan(each) for each in column.chunks)
    t, type_ = pa.types, column.type
    if isinstance(type_, pa.BaseExtensionType):
        return holds_nan(column.storage)
    if t.is_dictionary(type_):
        return holds_nan(column.dictionary)
    if t.is_run_end_encoded(type_):
        return holds_nan(column.values)
    if t.is_struct(type_):
        return any(holds_nan(column.field(at)) for at in range(type_.num_fields))
    if t.is_map(type_):
        return holds_nan(column.keys) or holds_nan(column.items)
    if t.is_nested(type_):
        return not hasattr(column, "values") or holds_nan(column.values)
    if not t.is_floating(type_):
        return False
    return bool(pc.any(pc.is_nan(column)).as_py())
