"""Rows of a partition read back by its writer, by Arrow and within the size that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError
from skipstone.questdb.txn_snapshot import DATA

from .disk import mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .definition import LiveDefinition

__all__ = ["read_row_groups"]


def read_row_groups(
    definition: LiveDefinition, directory: str, size: int, row_groups: Sequence[int]
) -> Iterator[pa.Table]:
    """Each of these row groups of the first ``size`` bytes, in the definition's schema."""
    path = f"{directory}/{DATA}"
    data = mapped(path)
    if len(data) < size:
        raise FormatError("data.parquet is cut short", file=path, expected=size, got=len(data))
    try:
        with pq.ParquetFile(pa.BufferReader(pa.py_buffer(data[:size]))) as file:
            for row_group in row_groups:
                rows = file.read_row_group(row_group)
                yield rows.select(definition.schema.names).cast(definition.schema)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"Arrow cannot read it back: {error}", file=path) from error
