"""The index kinds that a user names: each builds from Arrow columns, and is ``Evidence`` read back.

For a kind of one's own (``docs/own-index-kinds.md``) the names below are all that is needed.
"""

from skipstone.pruning.interval import with_nulls
from skipstone.pruning.kind import Builder, Built, Chunk, Index, PerFile, Rows, Stored

__all__ = ["Builder", "Built", "Chunk", "Index", "PerFile", "Rows", "Stored", "with_nulls"]
