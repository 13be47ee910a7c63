"""Footers to `_pm`s, in memory, and what the `_pm` then says as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipstone.parquet.format.footer import TAIL_LENGTH, Tail, read_metadata
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.questdb.format import footer_to_pm
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.pm_columns import PmColumns
from skipstone.questdb.format.values import PmHead
from skipstone.questdb.format.writer import PmFooter
from tests.questdb.format.writing import read_row_groups

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import FileMetaData
    from skipstone.questdb.format.footer_to_pm import BloomPlace
    from skipstone.questdb.format.pm_columns import OnStale
    from tests.questdb.format.row_groups import PmRowGroup


@dataclass(frozen=True)
class Converted:
    """A `_pm`, and what it says."""

    data: bytes

    @property
    def head(self) -> PmHead:
        return PmHead.of(Pm(self.data))

    @property
    def row_groups(self) -> tuple[PmRowGroup, ...]:
        return read_row_groups(Pm(self.data).snapshot())

    @property
    def footer(self) -> PmFooter:
        return PmFooter.of(Pm(self.data).snapshot())

    def to_bytes(self) -> bytes:
        return self.data


def footer_of(data: bytes) -> tuple[FileMetaData, Tail]:
    """The footer of a Parquet file in memory."""
    return read_metadata(data), Tail.from_bytes(data[-TAIL_LENGTH:], len(data))


def convert(
    metadata: FileMetaData,
    tail: Tail,
    *,
    on_stale: OnStale = "refuse",
    unused_bytes: int = 0,
    **options: Any,
) -> Converted:
    """By a footer that may have been changed since it was read from the file that `tail` ends."""
    footer = FooterArrays.scan(metadata.to_bytes(), tail.offset)
    end = PmFooter.of_parquet(tail.size, tail.length, unused_bytes=unused_bytes)
    columns = PmColumns.of(footer, on_stale=on_stale)
    return Converted(footer_to_pm.convert(footer, columns, end, **options))


def bloom_places(metadata: FileMetaData) -> tuple[BloomPlace, ...]:
    return footer_to_pm.bloom_places(FooterArrays.scan(metadata.to_bytes()))


def doubtful_leaves(metadata: FileMetaData) -> tuple[int, ...]:
    footer = FooterArrays.scan(metadata.to_bytes())
    return PmColumns.of(footer, on_stale="ignore").doubtful(metadata.column_orders)


def pm_of(data: bytes, *, own: bool = False, blooms: bool = True, **options: Any) -> bytes:
    """The `_pm` of a Parquet file; `own`: without what cannot be ordered by it; `blooms`: with its
    filters."""
    metadata, tail = footer_of(data)
    options.setdefault("silent", doubtful_leaves(metadata) if own else ())
    places = bloom_places(metadata) if blooms else ()
    return convert(
        metadata,
        tail,
        blooms={each: data[each.offset : each.offset + each.length] for each in places},
        **options,
    ).to_bytes()
