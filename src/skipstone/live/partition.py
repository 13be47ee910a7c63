"""One partition on disk: the row groups of a snapshot, and how a writer adds to them.

    data.parquet   PAR1 | row groups … | footer, tail | row groups … | footer, tail | …
                                         dead                          the snapshot's
    _pm            header, blocks, footer, blocks, footer, …

An edit lists the row groups of the next snapshot: numbers of those that stay, and new ones. Only
the new ones and a footer are written, after the old footer. Bytes that a snapshot uses never
change, so readers of older snapshots are not disturbed. Bytes that the snapshot does not use are
dead, and counted in UNUSED_BYTES: old footers with their tails, and replaced row groups with their
indexes and Bloom filters.

The order of an edit: data.parquet, durable; the tail of the ``_pm``, durable; its first 8 bytes,
durable; then ``_txn`` commits. A ``_pm`` is never truncated: the footer of an edit that was not
committed stays in it, and belongs to a size that ``_txn`` does not name.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.footer import MAGIC, TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import RowGroup as ParquetRowGroup
from skipstone.parquet.writing.arrow_encoder import EncodedRowGroups, PlacedRowGroups
from skipstone.parquet.writing.footer_editor import FooterEditor, moved_row_group
from skipstone.questdb.format.footer_to_pm import bloom_places, convert
from skipstone.questdb.format.pm import Pm, PmSnapshot
from skipstone.questdb.format.pm_columns import PmColumns
from skipstone.questdb.format.writer import PmFooter, append
from skipstone.questdb.txn_snapshot import DATA, PM

from .disk import Disk, mapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The state of a partition that a writer needs.

    ``size`` of data.parquet; ``unused``: how many of these bytes are dead; ``leaf``: the ordinal of
    the timestamp; ``lows`` and ``highs``: the least and largest timestamp of each row group.
    """

    directory: str
    size: int
    footer_length: int
    unused: int
    footer: FooterEditor
    leaf: int
    lows: tuple[int, ...]
    highs: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.footer.rows)

    @classmethod
    def load(cls, directory: str, size: int, timestamp: str) -> Self:
        """Reads the files; ``FormatError`` if they do not belong together."""
        path = f"{directory}/{DATA}"
        data = mapped(path, size)
        tail = Tail.from_bytes(data[size - TAIL_LENGTH : size], size)
        footer = FooterArrays.scan(data[tail.offset : size - TAIL_LENGTH], tail.offset)
        try:
            snapshot = snapshot_of(directory, size)
        except FileNotFoundError:
            raise FormatError("a partition without its _pm", file=f"{directory}/{PM}") from None
        snapshot.verify()  # an append continues its CRC
        if snapshot.num_rows.tolist() != footer.group("num_rows").tolist():
            raise FormatError("a _pm of other row groups", file=f"{directory}/{PM}")
        leaf = _leaf(footer, timestamp, path)
        lows, highs = _times(snapshot, leaf)
        return cls(
            directory=directory,
            size=size,
            footer_length=tail.length,
            unused=snapshot.unused_bytes,
            footer=FooterEditor.of(footer),
            leaf=leaf,
            lows=lows,
            highs=highs,
        )


def snapshot_of(directory: str, size: int) -> PmSnapshot:
    """The snapshot of the ``_pm`` that belongs to ``size`` bytes of data.parquet."""
    path = f"{directory}/{PM}"
    return Pm(mapped(path), file=path).snapshot(size)


def create(
    disk: Disk, directory: str, parts: Iterable[EncodedRowGroups], timestamp: str
) -> PartitionState:
    """Write a new partition of these row groups into an empty directory."""
    placed: list[PlacedRowGroups] = []
    footer: FooterEditor | None = None
    leaf = ordinal = 0
    with disk.writing(f"{directory}/{DATA}", create=True) as data:
        at = disk.write(data, [MAGIC], 0)
        for part in parts:
            if footer is None:
                footer, leaf = part.editor, _leaf(part.footer, timestamp)
            elif part.editor.columns != footer.columns:
                raise UnsupportedError("Arrow wrote two schemas for one table")
            put = part.place(at, ordinal)
            at = disk.write(data, put.pieces, at)
            # Written bytes are not kept in memory.
            placed.append(replace(put, pieces=()))
            ordinal += len(put.rows)
        if footer is None:
            raise ValueError("a partition of no row groups")
        footer = _with(footer, placed)
        tail = _end(disk, data, (), footer, at)
    made = _pm_of(footer, tail, placed, unused=0)
    with disk.writing(f"{directory}/{PM}", create=True) as pm:
        disk.write(pm, [made], 0)
        disk.sync(pm)
    disk.sync_directory(directory)
    lows, highs = _times(Pm(made).snapshot(), leaf)
    return PartitionState(
        directory=directory,
        size=tail.size,
        footer_length=tail.length,
        unused=0,
        footer=footer,
        leaf=leaf,
        lows=lows,
        highs=highs,
    )


def edit(
    disk: Disk, state: PartitionState, order: Sequence[int | EncodedRowGroups]
) -> PartitionState:
    """Write the next snapshot: ``order`` has numbers of row groups that stay, and new ones.

    No reader uses it until ``_txn`` names its size.
    """
    fresh, footer = _placed(state, order)
    with disk.writing(f"{state.directory}/{DATA}") as data:
        tail = _end(disk, data, fresh, footer, state.size)
    kept = {part for part in order if not isinstance(part, EncodedRowGroups)}
    unused = state.unused + state.footer_length + TAIL_LENGTH
    unused += sum(_extent(g) for r, g in enumerate(state.footer.row_groups) if r not in kept)
    made = Pm(_pm_of(_with(state.footer, fresh), tail, fresh, unused=unused)).snapshot()
    previous = snapshot_of(state.directory, state.size)
    first = previous.row_group_count
    numbers = range(first, first + made.row_group_count)
    new = zip(numbers, *_times(made, state.leaf), strict=True)
    listed: list[tuple[int, int, int]] = []
    places = iter(fresh)
    for part in order:
        if isinstance(part, EncodedRowGroups):
            listed += islice(new, len(next(places).rows))
        else:
            listed.append((part, state.lows[part], state.highs[part]))
    change = append(previous, [number for number, _, _ in listed], PmFooter.of(made), made)
    with disk.writing(f"{state.directory}/{PM}") as pm:
        disk.write(pm, [change.data], change.offset)
        disk.sync(pm)
        disk.write(pm, [change.patch], 0)
        disk.sync(pm)
    return replace(
        state,
        size=tail.size,
        footer_length=tail.length,
        unused=unused,
        footer=footer,
        lows=tuple(low for _, low, _ in listed),
        highs=tuple(high for _, _, high in listed),
    )


def _placed(
    state: PartitionState, order: Sequence[int | EncodedRowGroups]
) -> tuple[list[PlacedRowGroups], FooterEditor]:
    """The new row groups, placed after the end of the old file, and the next footer."""
    fresh: list[PlacedRowGroups] = []
    rows, groups = list[int](), list[bytes]()
    at = state.size
    for part in order:
        if not isinstance(part, EncodedRowGroups):
            group = state.footer.row_groups[part]
            # Its number changes if an earlier one was divided.
            groups.append(
                group if part == len(groups) else moved_row_group(group, 0, ordinal=len(groups))
            )
            rows.append(state.footer.rows[part])
            continue
        if part.editor.columns != state.footer.columns:
            raise UnsupportedError(
                f"{state.directory} was written by a version of Arrow that encodes this schema"
                " differently",
                hint="compact the partition, which rewrites it",
            )
        put = part.place(at, len(groups))
        fresh.append(put)
        rows += put.rows
        groups += put.row_groups
        at = put.stop
    return fresh, state.footer.with_row_groups(rows, groups)


def _end(
    disk: Disk, data: int, placed: Sequence[PlacedRowGroups], footer: FooterEditor, at: int
) -> Tail:
    """Write row groups, a footer and its tail at ``at``, durably."""
    pieces = [piece for each in placed for piece in each.pieces]
    written = footer.to_bytes()
    tail = Tail.behind(written, placed[-1].stop if placed else at)
    disk.write(data, [*pieces, written, tail.to_bytes()], at)
    disk.sync(data)
    return tail


def _with(footer: FooterEditor, placed: Sequence[PlacedRowGroups]) -> FooterEditor:
    """The same footer over these row groups alone."""
    rows = [count for each in placed for count in each.rows]
    return footer.with_row_groups(rows, [group for each in placed for group in each.row_groups])


def _pm_of(
    footer: FooterEditor, tail: Tail, placed: Sequence[PlacedRowGroups], *, unused: int
) -> bytes:
    """The ``_pm`` of new row groups in the file that ``tail`` ends."""
    scanned = FooterArrays.scan(footer.to_bytes(), tail.offset)
    filters = {offset: data for each in placed for offset, data in each.filters.items()}
    columns = PmColumns.of(scanned)
    return convert(
        scanned,
        columns,
        PmFooter.of_parquet(tail.size, tail.length, unused_bytes=unused),
        blooms={place: filters[place.offset] for place in bloom_places(scanned)},
        # QuestDB orders them wrongly: it does not know the logical types.
        silent=columns.doubtful(scanned.column_orders),
    )


def _leaf(footer: FooterArrays, timestamp: str, path: str | None = None) -> int:
    leaf = footer.schema.leaf((timestamp,))
    if leaf is None:
        raise FormatError(f"no column {timestamp!r}, by which the rows are ordered", file=path)
    return leaf.ordinal


def _times(snapshot: PmSnapshot, leaf: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    stats = snapshot.stats([leaf])
    (lows, low), (highs, high) = (stats.fixed(end, np.int64) for end in ("MIN", "MAX"))
    if not (low & high).all():
        raise FormatError("a row group without least and largest timestamp", file=snapshot.pm.file)
    return tuple(lows[:, 0].tolist()), tuple(highs[:, 0].tolist())


def _extent(row_group: bytes) -> int:
    """Bytes of a row group: pages, page indexes, Bloom filters."""
    total = 0
    for chunk in ParquetRowGroup.from_bytes(row_group).columns:
        total += (chunk.offset_index_length or 0) + (chunk.column_index_length or 0)
        if chunk.meta_data is not None:
            total += chunk.meta_data.total_compressed_size
            total += chunk.meta_data.bloom_filter_length or 0
    return total
