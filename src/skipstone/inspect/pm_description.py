"""``PmInspection``: the content of a ``_pm``, as JSON and as text.

``to_dict()`` is one JSON-ready document with the names of QuestDB's specification in lower case.
Bounds and bitsets are hex; each bound also has its meaning as ``text``. The text output counts over
all row groups and shows the bounds of the first one. A file may have 10,000 columns: the text
output shortens long lists and states how much it left out.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.human import Report, aligned, cut, of_total, percent, plural, size, some_of
from skipstone.parquet.format.enums import CompressionCodec, FieldRepetitionType, Type
from skipstone.questdb.format import layout
from skipstone.questdb.format.types import ColumnType, readable, type_text
from skipstone.questdb.format.values import PmColumn, PmHead

from .inspection import InspectionReport, indented, more

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import IntEnum

    from skipstone.questdb.format.pm import ChunkStats, Pm, PmSnapshot


_MOST = 40
_WIDEST = 28
_FLAGS = (
    (layout.BLOOM_FILTERS, "bloom filters"),
    (layout.BLOOM_FILTERS_EXTERNAL, "in the Parquet file"),
    (layout.SORTING_IS_DTS_ASC, "sorted by the designated timestamp"),
    (layout.SQUASH_TRACKER, "squash tracker"),
)

# Names of the bits of ENCODINGS.
_ENCODINGS: Final = (
    "PLAIN",
    "RLE_DICTIONARY",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)


def name_of(kind: type[IntEnum], number: int) -> str | None:
    """The name of a number of an enumeration; ``None`` for an unknown number."""
    try:
        return kind(number).name
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSnapshot(Report):
    """A snapshot of the chain, and the CRC computed from its bytes."""

    snapshot: PmSnapshot
    crc: int

    @property
    def ok(self) -> bool:
        """True if the computed CRC equals the stored one."""
        return self.crc == self.snapshot.crc

    def to_dict(self) -> dict[str, Any]:
        each = self.snapshot
        found: dict[str, Any] = {
            "committed_size": each.size,
            "parquet_file_size": each.parquet_size,
            "parquet_footer_offset": each.parquet_footer_offset,
            "parquet_footer_length": each.parquet_footer_length,
            "row_group_count": each.row_group_count,
            "unused_bytes": each.unused_bytes,
            "prev_parquet_meta_file_size": each.previous_size,
            "footer_feature_flags": each.footer_feature_flags,
            "footer_offset": each.footer_offset,
            "footer_length": each.footer_length,
            "row_group_block_offsets": each.block_offsets.tolist(),
            "crc_stored": each.crc,
            "crc_computed": self.crc,
        }
        if each.seq_txn is not None:
            found["seq_txn"] = each.seq_txn
        if each.scratchpad:
            found["scratchpad"] = [
                {"code": code, "bytes": data.hex()} for code, data in each.scratchpad
            ]
        if each.other_sections:
            found["other_sections"] = each.other_sections.hex()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PmInspection(InspectionReport):
    """See the module. ``physical_length`` is the length of the file. The first snapshot of
    ``chain`` is the one that is shown.
    """

    path: str
    physical_length: int
    snapshot: PmSnapshot
    chain: tuple[CheckedSnapshot, ...]
    notes: tuple[str, ...] = ()

    @property
    def pm(self) -> Pm:
        """The file."""
        return self.snapshot.pm

    @property
    def ok(self) -> bool:
        """True if the CRC of the snapshot is right."""
        return self.chain[0].ok

    def to_dict(self) -> dict[str, Any]:
        """One JSON-ready document. Raises ``FormatError`` for a damaged part."""
        pm, head = self.pm, PmHead.of(self.pm)
        flags = pm.feature_flags
        explicit = not flags & layout.SORTING_IS_DTS_ASC
        return {
            "path": self.path,
            "format": "_pm",
            "physical_length": self.physical_length,
            "mapped_size": pm.size,
            "resolved_size": self.snapshot.size,
            "crc_ok": self.ok,
            "header": {
                "parquet_meta_file_size": pm.size,
                "feature_flags": flags,
                "bloom_filters": bool(flags & layout.BLOOM_FILTERS),
                "bloom_filters_external": bool(flags & layout.BLOOM_FILTERS_EXTERNAL),
                "sorting_is_dts_asc": not explicit,
                "has_squash_tracker": pm.squash_tracker is not None,
                "designated_timestamp": pm.designated_timestamp,
                "sorting_column_count": len(pm.sorting_columns) if explicit else 0,
                "column_count": pm.column_count,
                "reserved": int.from_bytes(pm.data[28:32], "little"),
            },
            "columns": [self._column(index, column) for index, column in enumerate(head.columns)],
            "sorting_columns": list(pm.sorting_columns),
            "bloom_filter_columns": list(pm.bloom_columns),
            "squash_tracker": pm.squash_tracker,
            "chain": [link.to_dict() for link in self.chain],
            "row_groups": self._row_groups(head),
            "notes": list(self.notes),
        }

    def _column(self, index: int, column: PmColumn) -> dict[str, Any]:
        descriptor = self.pm.descriptors[index]
        return {
            "index": index,
            **asdict(column),
            "type": _type(column.type),
            "repetition": name_of(FieldRepetitionType, column.repetition),
            "local_key_is_global": column.local_key_is_global,
            "is_ascii": column.is_ascii,
            "descending": column.descending,
            "physical_type_name": name_of(Type, column.physical_type),
            "name_offset": int(descriptor["NAME_OFFSET"]),
            "name_length": int(descriptor["NAME_LENGTH"]),
            "reserved": int(descriptor["RESERVED"]),
        }

    def _row_groups(self, head: PmHead) -> list[dict[str, Any]]:
        found = []
        for number in range(self.snapshot.row_group_count):
            stats = self.snapshot.stats(row_groups=np.array([number]))
            blooms = self.blooms(number)
            chunks = []
            for at, (column, raw, low, high) in enumerate(
                zip(head.columns, stats.chunks[0], *_ends(stats), strict=True)
            ):
                described = _chunk_dict(column, at, raw, low, high)
                described["bloom"] = self._bloom_dict(*blooms[at]) if at in blooms else None
                chunks.append(described)
            rows = int(self.snapshot.num_rows[number])
            found.append({"index": number, "num_rows": rows, "chunks": chunks})
        return found

    def blooms(self, row_group: int) -> dict[int, tuple[int, int]]:
        """Place and length of the filter of each column of a row group that has one."""
        places, lengths = (each[row_group].tolist() for each in self.snapshot.bloom_places)
        pairs = zip(self.pm.bloom_columns, zip(places, lengths, strict=True), strict=True)
        return {column: pair for column, pair in pairs if pair[1]}

    def _bloom_dict(self, place: int, length: int) -> dict[str, Any]:
        if self.pm.bloom_external:
            return {"external": True, "offset": place, "length": length}
        bitset = self.pm.data[place : place + length]
        # The stored offset is that of the length, 4 bytes before the bitset.
        found: dict[str, Any] = {"offset": place - 4, "length": length}
        return found | {"fill": fill(bitset), "bitset": bitset.hex()}

    def __str__(self) -> str:
        return _text(self)


def _type(code: int) -> dict[str, Any]:
    known = ColumnType.of(code)
    return known.to_dict() if known else {"code": code, "name": None, "tag": code & 0xFF}


def _ends(stats: ChunkStats) -> tuple[list[bytes | None], list[bytes | None]]:
    """The minima and the maxima of the chunks of one row group."""
    found = []
    for end in layout.BOUNDS:
        data, offsets, valid = stats.blobs(end)
        raw, edges = data.tobytes(), offsets.tolist()
        known = zip(edges, edges[1:], valid[0].tolist(), strict=False)
        found.append([raw[start:stop] if there else None for start, stop, there in known])
    return found[0], found[1]


def _chunk_dict(
    column: PmColumn, index: int, raw: Any, low: bytes | None, high: bytes | None
) -> dict[str, Any]:
    flags, sizes, encodings = (int(raw[name]) for name in ("STAT_FLAGS", "STAT_SIZES", "ENCODINGS"))
    nulls, distinct = int(raw["NULL_COUNT"]), int(raw["DISTINCT_COUNT"])
    return {
        "column": index,
        "codec": int(raw["CODEC"]),
        "codec_name": name_of(CompressionCodec, int(raw["CODEC"])),
        "encodings": encodings,
        "encoding_names": [name for bit, name in enumerate(_ENCODINGS) if encodings >> bit & 1],
        "stat_flags": flags,
        "stat_sizes": [sizes & 15, sizes >> 4],
        "num_values": int(raw["NUM_VALUES"]),
        "byte_range_start": int(raw["BYTE_RANGE_START"]),
        "total_compressed": int(raw["TOTAL_COMPRESSED"]),
        "null_count": nulls if flags & layout.NULL_COUNT_PRESENT else None,
        "null_count_raw": nulls,
        "distinct_count": distinct if flags & layout.DISTINCT_COUNT_PRESENT else None,
        "distinct_count_raw": distinct,
        "min": _bound_dict(column, low, int(raw["MIN_STAT"]), flags),
        "max": _bound_dict(column, high, int(raw["MAX_STAT"]), flags >> 3),
        "reserved": int(raw["RESERVED"]),
    }


def _bound_dict(column: PmColumn, value: bytes | None, raw: int, flags: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "present": bool(flags & 1),
        "inlined": bool(flags & 2),
        "exact": bool(flags & 4),
        "raw_u64": raw,
    }
    if value is None:
        return found
    if not flags & 2:
        found |= {"ool_offset": raw >> 16, "ool_length": raw & 0xFFFF}
    return found | {"bytes": value.hex(), "text": readable(column, value)}


def fill(bitset: bytes | memoryview) -> float:
    """The share of bits that are set."""
    bits = np.unpackbits(np.frombuffer(bitset, np.uint8))
    return round(float(bits.mean()), 4) if len(bits) else 0.0


def _text(found: PmInspection) -> str:
    head = PmHead.of(found.pm)
    parts = [_head(found, head)]
    if head.columns:
        parts.append(_columns(found, head))
    if found.snapshot.row_group_count:
        parts.append(_row_groups(found, head))
    parts.append(_snapshots(found))
    parts += [f"note: {note}" for note in found.notes]
    return "\n\n".join(parts)


def _head(found: PmInspection, head: PmHead) -> str:
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
        lines.insert(1, ("after it", f"{size(beyond)} that readers ignore"))
    if pm.squash_tracker is not None:
        lines.append(("squash tracker", str(pm.squash_tracker)))
    if pm.bloom_columns:
        lines.append(("bloom filters", _blooms(found, head)))
    return f"_pm   {found.path}\n{indented(aligned(lines))}"


def _named(head: PmHead, columns: Sequence[int]) -> str:
    named = [head.columns[at] for at in columns if at >= 0]
    return some_of([f"{_cut(c.name)}{' descending' if c.descending else ''}" for c in named], 8)


def _blooms(found: PmInspection, head: PmHead) -> str:
    _, lengths = found.snapshot.bloom_places
    count = int(np.count_nonzero(lengths))
    said = of_total(count, lengths.size, "filters")
    total = size(int(lengths.sum()))
    return f"{said}, {total}, on {_named(head, found.pm.bloom_columns)}"


def _columns(found: PmInspection, head: PmHead) -> str:
    snapshot = found.snapshot
    shown = list(range(min(len(head.columns), _MOST)))
    chunks = snapshot.chunks(shown)
    blooms = found.blooms(0) if snapshot.row_group_count else {}
    first: list[tuple[str, str]] = [("-", "-")] * len(shown)
    if snapshot.row_group_count:
        stats = snapshot.stats(shown, np.array([0]))
        exact = [stats.exact(end)[0].tolist() for end in layout.BOUNDS]
        of_shown = head.columns[: len(shown)]
        lows, highs = (
            [_bound(*each) for each in zip(of_shown, values, flags, strict=True)]
            for values, flags in zip(_ends(stats), exact, strict=True)
        )
        first = list(zip(lows, highs, strict=True))
    heads = ["column", "id", "type", "stored as", "codec", "encodings", "bytes", "nulls", "min",
             "max", "bloom"]  # fmt: skip
    rows = []
    for at in shown:
        column, own = head.columns[at], chunks[:, at]
        counted = (own["STAT_FLAGS"] & layout.NULL_COUNT_PRESENT).astype(bool)
        nulls = int(own["NULL_COUNT"][counted].sum(dtype=np.uint64))
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
                ", ".join(name for bit, name in enumerate(_ENCODINGS) if encodings >> bit & 1),
                size(int(own["TOTAL_COMPRESSED"].sum(dtype=np.uint64))),
                f"{nulls:,}" if counted.all() and len(own) else "-",
                *first[at],
                _bloom(found, *blooms[at]) if at in blooms else "-",
            ]
        )
    title = "columns"
    if snapshot.row_group_count > 1:
        title += " (bounds and Bloom filter of the first row group)"
    table = aligned([heads, *rows], numbers=(1, 6, 7))
    return f"{title}\n{indented(table)}{more(len(head.columns), _MOST, 'columns')}"


def _stored(column: PmColumn) -> str:
    kind = name_of(Type, column.physical_type) or f"type {column.physical_type}"
    kind += f"({column.fixed_byte_len})" if column.fixed_byte_len else ""
    kind += f" rep {column.max_rep_level} def {column.max_def_level}" * bool(column.max_rep_level)
    marks = [" required"] if not column.max_def_level else []
    marks += [" ascii"] * column.is_ascii + [" global keys"] * column.local_key_is_global
    return kind + "".join(marks)


def _bound(column: PmColumn, value: bytes | None, exact: bool) -> str:
    if value is None:
        return "-"
    return ("" if exact else "~") + _cut(readable(column, value) or f"0x{value.hex()}")


def _bloom(found: PmInspection, place: int, length: int) -> str:
    if found.pm.bloom_external:
        return f"{size(length)} at {place:,}"
    full = percent(fill(found.pm.data[place : place + length]), 1)
    return f"{size(length)}, {full} full"


def _row_groups(found: PmInspection, head: PmHead) -> str:
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
    return f"row groups\n{indented(shown)}{more(count, _MOST, 'row groups')}"


def _span(found: PmInspection, head: PmHead, ts: int, row_group: int) -> tuple[str, str]:
    """The smallest and largest designated timestamp of the row group."""
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
    rest = more(len(found.chain), _MOST, "snapshots")
    return f"snapshots, from the one shown\n{indented(shown)}{rest}"


def _cut(value: str) -> str:
    # Names and bounds may contain anything: control characters must not reach the terminal.
    flat = "".join([each if each.isprintable() else " " for each in value[: _WIDEST + 1]])
    return cut(flat, _WIDEST)
