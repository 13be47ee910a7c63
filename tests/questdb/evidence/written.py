"""Parquet files in memory with their `_pm`: as any writer leaves them, or as QuestDB does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence


def with_ids(table: pa.Table, ids: Sequence[int] | None = None) -> pa.Table:
    """The same columns with field ids, by default their positions."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(at if ids is None else ids[at])})
        for at, field in enumerate(table.schema)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def parquet(table: pa.Table, group: int = 10, *, questdb: bool = False, **options: Any) -> bytes:
    """The bytes of a file with row groups of this many rows; ``questdb``: with IDs, without
    dictionaries and without what pyarrow keeps of its own types."""
    if questdb:
        table = with_ids(table)
        options = {"use_dictionary": False, "store_schema": False} | options
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group, **options)
    return sink.getvalue()
