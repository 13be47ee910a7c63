"""The embedded engine: reads the rows of a plan as Arrow, without Spark.

open_files     opens files side by side, and keeps them while they are unchanged
file_columns   which column of a file is which of the table's
table_sources  row groups and pages of the opened files, for the planner; ``Engine`` keeps them
plan_rows      the rows of a plan, predicate columns first
sorting        Spark's order over Arrow columns, and what the bounds of units promise to it
ordering       ORDER BY and LIMIT: what cannot come first is not read
table_scan     a plan with its query: rows, counts, forecasts
engine_export  a plan for DuckDB, polars and pyarrow
scan_task      a plan in tasks for other processes
"""

from __future__ import annotations

from .table_scan import TableQuery, TableScan, unreadable
from .table_sources import Engine

__all__ = ["Engine", "TableQuery", "TableScan", "unreadable"]
