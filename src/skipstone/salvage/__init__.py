"""Rows of Parquet files whose footer is lost: ``salvage`` writes the complete row groups to a new
file.

>>> from skipstone.salvage import salvage
>>> report = salvage("torn.parquet", schema="whole.parquet")
"""

from __future__ import annotations

from .report import SalvageReport
from .salvage_file import salvage

__all__ = ["SalvageReport", "salvage"]
