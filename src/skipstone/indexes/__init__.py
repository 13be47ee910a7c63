"""The index kinds that a user names: each builds from Arrow columns, and is ``Evidence`` read back.

A kind of another package needs only these names (``docs/own-index-kinds.md``).
"""

from skipstone.pruning.interval import with_nulls
from skipstone.pruning.kind import Builder, Built, Chunk, Index, PerFile, Rows, Stored

__all__ = ["Builder", "Built", "Chunk", "Index", "PerFile", "Rows", "Stored", "with_nulls"]
