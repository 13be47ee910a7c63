"""``Table``: a table of plain files and its index. Spark is imported by the calls that need it."""

from __future__ import annotations

from .table import Table, explain, last_scan, read, skip, watch

__all__ = ["Table", "explain", "last_scan", "read", "skip", "watch"]
