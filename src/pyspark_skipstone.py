"""Spark looks for modules called ``pyspark_…``: this one makes ``format("skipstone")`` known."""

from skipstone.spark.data_source import SkipstoneSource
from skipstone.table import Table

__all__ = ["DefaultSource"]


class DefaultSource(SkipstoneSource):
    """``format("skipstone")``, without a call to register it."""

    open_table = Table
