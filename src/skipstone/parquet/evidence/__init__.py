"""Parquet's own metadata as evidence, for row groups and for pages.

``IndexedFile`` holds the footer and the indexes of a file; ``RowGroupSource`` and ``PageSource``
are two levels of the plan. ``stored_values.py`` decodes the bytes of bounds;
``pruning/interval.py`` decides what bounds prove, as at every level.
"""

from .indexed_file import IndexedFile
from .sources import PageSource, RowGroupSource

__all__ = ["IndexedFile", "PageSource", "RowGroupSource"]
