"""Many files as one table: a plan's rows as Arrow batches, without Spark.

opened    files opened side by side, and kept while they are what they were
columns   which column of a file is which of the table's
sources   row groups and pages of the files that a plan is not sure of
reading   the rows of a plan, predicate columns first
sorting   Spark's order over Arrow columns
ordering  ORDER BY and LIMIT: what cannot come first is not read
engine    what a table keeps between queries, and a plan's rows in the end
"""

from __future__ import annotations

from .engine import Engine, QueryReader

__all__ = ["Engine", "QueryReader"]
