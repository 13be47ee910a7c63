"""By which columns each row group is sorted: claimed only where every row has been looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipstone.parquet.reading.sorted_rows import is_sorted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.parquet.reading.file import ParquetFile

    from .retrofit_needs import Asked

__all__ = ["SortingClaims", "sorting_claims"]


@dataclass(slots=True, kw_only=True)
class SortingClaims:
    """The sorting columns of each row group that are to stand in the footer.

    ``claimed`` counts those that say so for the first time; ``changed`` is for the footer.
    """

    groups: list[tuple[Any, ...] | None]
    changed: bool = False
    claimed: int = 0
    notes: tuple[str, ...] = ()


def sorting_claims(file: ParquetFile, asked: Asked, *, check_old: bool) -> SortingClaims:
    """What is claimed and holds; with ``check_old`` what was claimed before is looked at too."""
    made = SortingClaims(groups=[])
    notes = []
    leaves = file.footer.schema.leaves
    for r in range(file.num_row_groups):
        old = file.footer.sorting_columns(r) or None
        found = old
        if check_old and old is not None and not _holds(file, r, old):
            found = None
            notes.append(f"row group {r} is not sorted as it says: that is taken out")
        if asked.sorting is not None and asked.sorting != found:
            if _holds(file, r, asked.sorting):
                found = asked.sorting
                made.claimed += 1
            else:
                names = ", ".join(leaves[each.column_idx].name for each in asked.sorting)
                notes.append(f"row group {r} is not sorted by {names}: nothing is claimed")
        made.changed |= found != old
        made.groups.append(found)
    shown = notes[:5]
    if len(notes) > len(shown):
        shown.append(f"and {len(notes) - len(shown)} more of that kind")
    made.notes = tuple(shown)
    return made


def _holds(file: ParquetFile, row_group: int, claimed: Sequence[Any]) -> bool:
    leaves = file.footer.schema.leaves
    for each in claimed:
        if not 0 <= each.column_idx < len(leaves):
            return False
        if leaves[each.column_idx].max_repetition_level:
            return False
    return bool(is_sorted(file, row_group, claimed))
