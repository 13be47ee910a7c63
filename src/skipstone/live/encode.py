"""The rows of a live table as row groups: its options, given to Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from skipstone.parquet.writing.arrow_encoder import Encoded, encode_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from .definition import LiveDefinition

__all__ = ["encode"]


def encode(
    definition: LiveDefinition, rows: pa.Table, *, row_group_rows: int | None = None
) -> Encoded:
    """Rows of the definition's schema, sorted already, as row groups of at most so many rows."""
    blooms: Any = dict.fromkeys(definition.bloom_filters, True) or None
    return encode_rows(
        rows,
        row_group_size=row_group_rows or definition.row_group_rows,
        compression=definition.compression,
        write_page_index=True,
        bloom_filter_options=blooms,
        sorting_columns=pq.SortingColumn.from_ordering(definition.schema, list(definition.sort_by)),
    )
