"""Bring an older ``_pm`` up to date without its Parquet file.

What later versions write otherwise, and the bytes at hand are enough for:

    bounds in QuestDB's own width     a SHORT in 2 bytes, a DATE of 32 bits in milliseconds: today
                                      Parquet's bytes. Widened by type, else left out.
    [DESIGNATED_TIMESTAMP] as array   of sorting columns: today SORTING_IS_DTS_ASC

Bloom filters that a ``_pm`` lacks are in its Parquet file, and nowhere else.
Source: QuestDB, before and after its pull request 7067.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Type

from .layout import SORTING_IS_DTS_ASC
from .types import ColumnType, Tag
from .values import Head
from .writer import Footer, read_row_groups, write

if TYPE_CHECKING:
    from .pm_snapshot import Snapshot
    from .values import Column, RowGroup

__all__ = ["outdated", "upgrade"]

_WIDTHS: Final[dict[int, int]] = {
    Type.BOOLEAN: 1,
    Type.INT32: 4,
    Type.INT64: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
_SIGNED: Final = (Tag.BYTE, Tag.SHORT, Tag.GEOBYTE, Tag.GEOSHORT)
_DAY: Final = 86_400_000


def outdated(snapshot: Snapshot) -> tuple[str, ...]:
    """What an upgrade would change, in words; nothing for a snapshot that is up to date."""
    head, found = Head.of(snapshot.pm), []
    if _in_own_width(snapshot, head):
        found.append("bounds in the width of QuestDB's types")
    if head.sorting_is_dts_asc and not snapshot.pm.feature_flags & SORTING_IS_DTS_ASC:
        found.append("the designated timestamp as an array of sorting columns")
    return tuple(found)


def upgrade(snapshot: Snapshot) -> bytes:
    """The same snapshot as a fresh file of today, without predecessors and dead bytes."""
    head = Head.of(snapshot.pm)
    try:
        head.check()
    except ValueError as error:
        raise FormatError(str(error), file=snapshot.pm.file) from None
    groups = [_widened(group, head) for group in read_row_groups(snapshot)]
    footer = replace(Footer.of(snapshot), other_flags=0, other_sections=b"")
    return write(head, groups, footer)


def _in_own_width(snapshot: Snapshot, head: Head) -> bool:
    """Whether any inlined bound has another width than its physical type."""
    stats = snapshot.stats()
    for column, each in enumerate(head.columns):
        width = _WIDTHS.get(each.physical_type)
        if width is None:
            continue
        flags = stats.chunks["STAT_FLAGS"][:, column]
        sizes = stats.chunks["STAT_SIZES"][:, column]
        for present, shift in ((1, 0), (8, 4)):
            if ((flags & present > 0) & (sizes >> shift & 15 != width)).any():
                return True
    return False


def _widened(group: RowGroup, head: Head) -> RowGroup:
    chunks = []
    for column, chunk in zip(head.columns, group.chunks, strict=True):
        low, high = _widen(column, chunk.min), _widen(column, chunk.max)
        chunks.append(replace(chunk, min=low, max=high))
    return replace(group, chunks=tuple(chunks), unreferenced=b"")


def _widen(column: Column, value: bytes | None) -> bytes | None:
    width = _WIDTHS.get(column.physical_type)
    if value is None or width is None or len(value) == width:
        return value
    type = ColumnType.of(column.type)
    if type is None or column.physical_type != Type.INT32:
        return None
    if type.tag in _SIGNED and len(value) in (1, 2):
        return int.from_bytes(value, "little", signed=True).to_bytes(4, "little", signed=True)
    if type.tag is Tag.CHAR and len(value) == 2:
        return value + bytes(2)
    if type.tag is Tag.DATE and len(value) == 8:
        days, rest = divmod(int.from_bytes(value, "little", signed=True), _DAY)
        return None if rest else days.to_bytes(4, "little", signed=True)
    return None
