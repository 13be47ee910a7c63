"""Advice on a table: by rules from a sample, or by trying indexes on queries that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.advisor import advise, advise_queries, queries_of
from skipstone.errors import UnsupportedError

from .data_files import ParquetReading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.advisor import Advice, Asked, Query, Savings

    from .table import Table

__all__ = ["advise_table"]


def advise_table(
    table: Table, sample: int, queries: Iterable[Asked | Query] | None
) -> Advice | Savings:
    """See ``Table.advise``."""
    listing = table.listing()
    keys = table.keys.get()
    schema = None
    if isinstance(table.reading, ParquetReading) and table.txn is None and len(listing):
        schema = table.reading.schema(listing, (), None, table.store)
    if queries is None:
        return advise(
            listing,
            table.storage,
            sample=sample,
            table=table.path,
            schema=schema,
            decryption=keys,
            storage_options=table.storage_options or None,
        )
    if not isinstance(table.reading, ParquetReading):
        raise UnsupportedError(
            f"{table.path} is not a table of Parquet files: indexes cannot be tried without Spark",
            hint="leave the queries out, and rules decide from a sample",
        )
    return advise_queries(
        listing,
        table.storage,
        queries_of(queries),
        sample=sample,
        table=table.path,
        schema=table.schema(listing) if len(listing) else None,
        storage_options=table.storage_options,
        decryption=keys,
    )
