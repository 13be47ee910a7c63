"""A ``PmInspection`` as text: counts over all row groups, bounds of the first that has them.

A file may have 10,000 columns: what does not fit a screen or two is left out, and says so. What is
shown comes from arrays over all chunks; statistics are read of one row group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.human import aligned, of_total, percent, plural, size
from skipstone.parquet.format.enums import CompressionCodec, Type
from skipstone.questdb.format import layout
from skipstone.questdb.format.statistics_text import readable, type_text
from skipstone.questdb.format.values import Head, RowGroup

from .pm_inspection import ENCODINGS, fill, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.questdb.format.values import Chunk, Column

    from .pm_inspection import PmInspection

__all__ = ["text"]

_MOST = 40
_WIDEST = 28
_FLAGS = (
    (layout.BLOOM_FILTERS, "bloom filters"),
    (layout.BLOOM_FILTERS_EXTERNAL, "in the Parquet file"),
    (layout.SORTING_IS_DTS_ASC, "sorted by the designated timestamp"),
    (layout.SQUASH_TRACKER, "squash tracker"),
)


def text(found: PmInspection) -> str:
    """All of it."""
    head = Head.of(found.pm)
    parts = [_head(found, head)]
    if head.columns:
        parts.append(_columns(found, head))
    if found.snapshot.row_group_count:
        parts.append(_row_groups(found, head))
    parts.append(_snapshots(found))
    parts += [f"note: {note}" for note in found.notes]
    return "\n\n".join(parts)


def _head(found: PmInspection, head: Head) -> str:
    pm, snapshot = found.pm, found.snapshot
    rows = int(snapshot.num_rows.sum(dtype=np.uint64))
    named = ", ".join(name for bit, name in _FLAGS if pm.feature_flags & bit)
    crc = found.chain[0]
    said = f"{snapshot.crc:#010x}, " + (
        "verified" if crc.ok else f"WRONG: the bytes have {crc.crc:#010x}"
    )
    beyond = found.physical_length - pm.size
    lines = [
        ("committed size", size(pm.size)),
        ("feature flags", f"{pm.feature_flags:#x}" + (f" ({named})" if named else "")),
        ("columns", f"{pm.column_count:,}"),
        ("rows", f"{rows:,} in {plural(snapshot.row_group_count, 'row group')}"),
        ("parquet file", f"{snapshot.parquet_size:,} bytes, {snapshot.unused_bytes:,} unused"),
        ("timestamp", _named(head, [pm.designated_timestamp]) or "-"),
        ("sorted by", _named(head, pm.sorting_columns) or "-"),
        ("crc", said),
    ]
    if beyond:
        lines.insert(1, ("beyond it", f"{size(beyond)} that no reader looks at"))
    if pm.squash_tracker is not None:
        lines.append(("squash tracker", str(pm.squash_tracker)))
    if pm.bloom_columns:
        lines.append(("bloom filters", _blooms(found, head)))
    return f"_pm   {found.path}\n{_indented(aligned(lines))}"


def _named(head: Head, columns: Sequence[int]) -> str:
    shown = [
        f"{_cut(head.columns[at].name)}{' descending' if head.columns[at].descending else ''}"
        for at in columns[:8]
        if at >= 0
    ]
    more = len(columns) - 8
    return ", ".join([*shown, f"and {more:,} more"] if more > 0 else shown)


def _blooms(found: PmInspection, head: Head) -> str:
    _, lengths = found.snapshot.bloom_places
    count = int(np.count_nonzero(lengths))
    said = of_total(count, lengths.size, "filters")
    total = size(int(lengths.sum()))
    return f"{said}, {total}, on {_named(head, found.pm.bloom_columns)}"


def _columns(found: PmInspection, head: Head) -> str:
    snapshot = found.snapshot
    shown = list(range(min(len(head.columns), _MOST)))
    chunks = snapshot.chunks(shown)
    group = RowGroup.of(snapshot, 0) if snapshot.row_group_count else None
    heads = ["column", "id", "type", "stored as", "codec", "encodings", "bytes", "nulls", "min",
             "max", "bloom"]  # fmt: skip
    rows = []
    for at in shown:
        column, own = head.columns[at], chunks[:, at]
        counted = (own["STAT_FLAGS"] & layout.NULL_COUNT_PRESENT).astype(bool)
        nulls = int(own["NULL_COUNT"][counted].sum(dtype=np.uint64))
        first = None if group is None else group.chunks[at]
        encodings = int(np.bitwise_or.reduce(own["ENCODINGS"], initial=0))
        rows.append(
            [
                _cut(column.name),
                str(column.id),
                type_text(column.type),
                _stored(column),
                ", ".join(
                    name_of(CompressionCodec, codec) or str(codec)
                    for codec in np.unique(own["CODEC"]).tolist()
                ),
                ", ".join(name for bit, name in enumerate(ENCODINGS) if encodings >> bit & 1),
                size(int(own["TOTAL_COMPRESSED"].sum(dtype=np.uint64))),
                f"{nulls:,}" if counted.all() and len(own) else "-",
                _bound(column, first, "min"),
                _bound(column, first, "max"),
                _bloom(first),
            ]
        )
    title = "columns"
    if snapshot.row_group_count > 1:
        title += " (bounds and Bloom filter of the first row group)"
    table = aligned([heads, *rows], numbers=(1, 6, 7))
    return f"{title}\n{_indented(table)}{_more(len(head.columns), 'columns')}"


def _stored(column: Column) -> str:
    kind = name_of(Type, column.physical_type) or f"type {column.physical_type}"
    kind += f"({column.fixed_byte_len})" if column.fixed_byte_len else ""
    kind += f" rep {column.max_rep_level} def {column.max_def_level}" * bool(column.max_rep_level)
    marks = [" required"] if not column.max_def_level else []
    marks += [" ascii"] * column.is_ascii + [" global keys"] * column.local_key_is_global
    return kind + "".join(marks)


def _bound(column: Column, chunk: Chunk | None, end: str) -> str:
    value = None if chunk is None else getattr(chunk, end)
    if value is None:
        return "-"
    exact = "" if getattr(chunk, f"{end}_exact") else "~"
    return exact + _cut(readable(column, value) or f"0x{value.hex()}")


def _bloom(chunk: Chunk | None) -> str:
    if chunk is None or chunk.bloom is None:
        return "-"
    if isinstance(chunk.bloom, bytes):
        full = percent(fill(chunk.bloom), 1)
        return f"{size(len(chunk.bloom))}, {full} full"
    return f"{size(chunk.bloom[1])} at {chunk.bloom[0]:,}"


def _row_groups(found: PmInspection, head: Head) -> str:
    snapshot, ts = found.snapshot, found.pm.designated_timestamp
    count = snapshot.row_group_count
    some = np.arange(min(count, _MOST))
    rows, blocks = snapshot.num_rows, snapshot.block_offsets
    chunks = snapshot.chunks(row_groups=some)
    stored = chunks["TOTAL_COMPRESSED"].sum(axis=1, dtype=np.uint64).tolist()
    nulls = np.count_nonzero(snapshot.stats(row_groups=some).all_null(), axis=1).tolist()
    heads = ["row group", "block at", "rows", "stored", "all null", "from", "to"]
    table = [
        [
            str(at),
            f"{int(blocks[at]):,}",
            f"{int(rows[at]):,}",
            size(stored[at]),
            of_total(nulls[at], len(head.columns), "columns"),
            *_span(found, head, ts, at),
        ]
        for at in some.tolist()
    ]
    shown = aligned([heads, *table], numbers=(0, 1, 2, 3))
    return f"row groups\n{_indented(shown)}{_more(count, 'row groups')}"


def _span(found: PmInspection, head: Head, ts: int, row_group: int) -> tuple[str, str]:
    """The designated timestamp from and to."""
    if ts < 0:
        return "-", "-"
    stats = found.snapshot.stats([ts], np.array([row_group]))
    ends = []
    for end in ("MIN", "MAX"):
        values, valid = stats.fixed(end, np.int64)
        raw = int(values[0, 0]).to_bytes(8, "little", signed=True)
        shown = readable(head.columns[ts], raw) if valid[0, 0] else None
        ends.append(shown or "-")
    return ends[0], ends[1]


def _snapshots(found: PmInspection) -> str:
    heads = ["snapshot", "parquet size", "row groups", "unused", "footer at", "crc"]
    rows = [
        [
            f"{link.snapshot.size:,}",
            f"{link.snapshot.parquet_size:,}",
            f"{link.snapshot.row_group_count:,}",
            size(link.snapshot.unused_bytes),
            f"{link.snapshot.footer_offset:,}",
            "ok" if link.ok else "WRONG",
        ]
        for link in found.chain[:_MOST]
    ]
    shown = aligned([heads, *rows], numbers=(0, 1, 2, 3, 4))
    return (
        f"snapshots, the one shown first\n{_indented(shown)}{_more(len(found.chain), 'snapshots')}"
    )


def _cut(value: str) -> str:
    # Names and bounds are whatever somebody stored: none may steer a terminal.
    flat = "".join([each if each.isprintable() else " " for each in value[: _WIDEST + 1]])
    return flat if len(flat) <= _WIDEST else f"{flat[: _WIDEST - 1]}…"


def _more(count: int, unit: str) -> str:
    return "" if count <= _MOST else f"\n  … {count - _MOST:,} more of {count:,} {unit}: see --json"


def _indented(value: str) -> str:
    return "\n".join(f"  {line}" for line in value.splitlines())
