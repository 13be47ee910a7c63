"""The embedded engine: reads the rows of a plan as Arrow, without Spark.

open_files     opens files concurrently, and keeps them while they are unchanged
table_files    the files of a table: columns, row groups and pages
table_engine   ``Engine``: what is kept of a table between queries
plan_rows      the rows of a plan, predicate columns first
sorting        Spark's order over Arrow columns, and the bounds of units that limit what it reads
ordering       ORDER BY and LIMIT: skips units that cannot hold a first row
table_scan     a plan with its query: rows, counts, forecasts
engine_export  a plan for DuckDB, polars and pyarrow
"""

from __future__ import annotations

from .table_engine import Engine
from .table_scan import TableQuery, TableScan, unreadable

__all__ = ["Engine", "TableQuery", "TableScan", "unreadable"]
