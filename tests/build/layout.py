"""Files to build facts of, and what was built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile
from skipstone.build.column_indexes import BuildSettings, Columns, ColumnsBuilder
from skipstone.build.data_file import build_file
from skipstone.indexes.registry import parse_indexes
from skipstone.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from skipstone.facts.encode import FileFacts
    from skipstone.pruning.kind import Index


SPARK = {"org.apache.spark.version": "4.3.0"}


def written(path: Path, table: pa.Table, *, spark: bool = True, **options: Any) -> Path:
    """``table`` as a Parquet file that has been left alone for an hour."""
    pq.write_table(table.replace_schema_metadata(SPARK if spark else None), path, **options)
    past = path.stat().st_mtime_ns - 3_600 * 10**9
    os.utime(path, ns=(past, past))
    return path


def build(
    path: Path,
    indexes: Sequence[str | Index],
    schema: pa.Schema | None = None,
    **settings: Any,
) -> FileFacts:
    storage = LocalStorage()
    schema = schema or ParquetFile(path).file_schema.spark
    definitions = parse_indexes(indexes)
    return build_file(
        storage.stat(str(path)), storage, definitions, schema, BuildSettings(**settings)
    )


def build_columns(
    batches: Iterable[pa.RecordBatch],
    definitions: Sequence[Index],
    schema: pa.Schema,
) -> Columns:
    """The index values of one file from batches of its indexed columns, by dotted name."""
    builder = ColumnsBuilder(definitions, schema, BuildSettings())
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for column in builder.wanted:
            at = batch.schema.get_field_index(column)
            if at < 0:
                builder.add_missing(column, batch.num_rows)
            else:
                builder.add(column, batch.column(at))
    return builder.finish(rows)


def values(facts: FileFacts) -> dict[str, Any]:
    """What was built, by definition, as Python values; blooms by their size alone."""
    assert facts.error is None
    return {
        repr(d): None
        if v is None
        else len(v[0].as_py())
        if d.name == "bloomfilter"
        else v[0].as_py()
        for d, v in facts.values.items()
    }
