"""Live tables: Parquet files that grow in place, in QuestDB's layout.

Row groups are appended to a partition's ``data.parquet`` after its old footer, its ``_pm`` gets a
new footer for them, and ``_txn`` commits all partitions at once. Readers keep the snapshot that
they began with, and never wait.
"""

from .definition import LiveDefinition
from .directories import Commit, LiveDescription, PartitionDescription
from .table import LiveTable

__all__ = ["Commit", "LiveDefinition", "LiveDescription", "LiveTable", "PartitionDescription"]
