"""``FileFacts``: what one pass over one data file found out, as handed to the fact store.

A value of its own, so that the builder (``build.py``), Spark's tasks and the store agree on one
shape and none of them needs another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from skipstone.identity import ObjectId
    from skipstone.pruning.kind import Index

__all__ = ["FileFacts"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileFacts:
    """Facts about the version ``id`` of one file.

    - ``row_count``: rows in the file, -1 where nobody counted;
    - ``null_counts``: nulls of each indexed column (a column that the file lacks is all null);
    - ``values``: definition -> Arrow array of length 1 of the kind's ``stored_type``, ``None``
      where it was left out;
    - ``reasons``: what was left out (``repr`` of the definition) -> why; those ``passing`` are told
      and not kept, since keys, or another word of the user, may mend them;
    - ``footer_length``: bytes of the Parquet footer, ``None`` for other formats;
    - ``row_groups``: how many a Parquet file has;
    - ``page_index``: offset and length of the Parquet page index, where there is one;
    - ``container``, ``pm``: sidecars of this file, whole, byte for byte as their formats have them;
    - ``too_fresh``: left out because it may still change; ``error`` says so too;
    - ``error``: why nothing could be built at all; then there is no fact, and the rest means
      nothing.
    """

    id: ObjectId
    row_count: int = -1
    null_counts: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[Index, pa.Array | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    footer_length: int | None = None
    page_index: tuple[int, int] | None = None
    row_groups: int | None = None
    container: bytes | None = None
    pm: bytes | None = None
    error: str | None = None
    too_fresh: bool = False
    passing: frozenset[str] = frozenset()
