"""Parquet's own metadata as evidence: row groups and pages, and what may be concluded of them.

``IndexedFile`` is a file as evidence sees it; ``row_group_source`` and ``page_source`` are the two
levels of the plan. What bytes mean is in ``stored.py``; what bounds say is decided by
``index/interval.py``, as at every level.
"""

from .indexed_file import IndexedFile
from .pages import PageSource, page_source
from .row_groups import RowGroupSource, row_group_source

__all__ = ["IndexedFile", "PageSource", "RowGroupSource", "page_source", "row_group_source"]
