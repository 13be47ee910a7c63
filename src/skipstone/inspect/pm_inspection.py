"""What is inside a ``_pm``: ``inspect_pm`` opens it, ``PmInspection`` is the value.

``to_dict()`` is one JSON-ready document with the names of QuestDB's specification in lower case.
Bounds and bitsets are hex; what a bound means is beside it as ``text``. Shown are one snapshot and
the chain of those before it; each CRC in the chain is computed, in one pass over the file.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError, SkipstoneError
from skipstone.identity import canonical_path
from skipstone.parquet.format.enums import CompressionCodec, FieldRepetitionType, Type
from skipstone.questdb.format import layout
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.statistics_text import readable
from skipstone.questdb.format.types import ColumnType
from skipstone.questdb.format.values import Head
from skipstone.questdb.format.writer import read_row_groups
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum

    from skipstone.questdb.format.pm_snapshot import Snapshot
    from skipstone.questdb.format.values import Chunk, Column

__all__ = ["ENCODINGS", "Link", "PmInspection", "inspect_pm", "name_of"]

#: names of the bits of ENCODINGS
ENCODINGS: Final = (
    "PLAIN",
    "RLE_DICTIONARY",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)


def name_of(kind: type[IntEnum], number: int) -> str | None:
    """The name of a number of an enumeration, ``None`` for one that it does not have."""
    try:
        return kind(number).name
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A snapshot of the chain, and the CRC that its bytes have."""

    snapshot: Snapshot
    crc: int

    @property
    def ok(self) -> bool:
        """True where the CRC is the stored one."""
        return self.crc == self.snapshot.crc

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
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
class PmInspection:
    """See the module. ``physical_length`` is that of the file; the chain begins with the snapshot
    that is shown.
    """

    path: str
    physical_length: int
    snapshot: Snapshot
    chain: tuple[Link, ...]
    notes: tuple[str, ...] = ()

    @property
    def pm(self) -> Pm:
        """The file."""
        return self.snapshot.pm

    @property
    def sound(self) -> bool:
        """True where the CRC of the snapshot is right."""
        return self.chain[0].ok

    def to_dict(self) -> dict[str, Any]:
        """One document, JSON-ready. ``FormatError`` where a part is damaged."""
        pm, head = self.pm, Head.of(self.pm)
        flags = pm.feature_flags
        explicit = not flags & layout.SORTING_IS_DTS_ASC
        return {
            "path": self.path,
            "format": "_pm",
            "physical_length": self.physical_length,
            "mapped_size": pm.size,
            "resolved_size": self.snapshot.size,
            "crc_ok": self.sound,
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

    def _column(self, index: int, column: Column) -> dict[str, Any]:
        descriptor = self.pm.descriptors[index]
        return {
            "index": index,
            "name": column.name,
            "id": column.id,
            "type": _type(column.type),
            "flags": column.flags,
            "repetition": name_of(FieldRepetitionType, column.repetition),
            "local_key_is_global": column.local_key_is_global,
            "is_ascii": column.is_ascii,
            "descending": column.descending,
            "physical_type": column.physical_type,
            "physical_type_name": name_of(Type, column.physical_type),
            "fixed_byte_len": column.fixed_byte_len,
            "max_rep_level": column.max_rep_level,
            "max_def_level": column.max_def_level,
            "name_offset": int(descriptor["NAME_OFFSET"]),
            "name_length": int(descriptor["NAME_LENGTH"]),
            "reserved": int(descriptor["RESERVED"]),
        }

    def _row_groups(self, head: Head) -> list[dict[str, Any]]:
        raw = self.snapshot.chunks()
        places, lengths = self.snapshot.bloom_places
        found = []
        for number, group in enumerate(read_row_groups(self.snapshot)):
            at = dict(zip(self.pm.bloom_columns, places[number].tolist(), strict=True))
            length = dict(zip(self.pm.bloom_columns, lengths[number].tolist(), strict=True))
            chunks = []
            for index, chunk in enumerate(group.chunks):
                described = _chunk(head.columns[index], index, chunk, raw[number, index])
                described["bloom"] = _bloom(chunk, at.get(index, 0), length.get(index, 0))
                chunks.append(described)
            found.append({"index": number, "num_rows": group.num_rows, "chunks": chunks})
        return found

    def __str__(self) -> str:
        from .pm_inspection_text import text

        return text(self)


def inspect_pm(
    path: str,
    *,
    parquet_size: int | None = None,
    check_crc: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> PmInspection:
    """Look into the ``_pm`` at ``path``.

    ``parquet_size`` picks the snapshot of a Parquet file of so many bytes, ``None`` the newest.
    ``FormatError`` where it is damaged; a wrong CRC is only shown without ``check_crc``.
    """
    path = canonical_path(path)
    storage = open_storage(path, storage_options)
    data = storage.read(path)
    pm = Pm(data, file=path)
    snapshot = pm.snapshot(parquet_size)
    notes: list[str] = []
    chain = _chain(snapshot, notes)
    if check_crc and not chain[0].ok:
        raise FormatError(
            "CRC32",
            file=path,
            offset=snapshot.size - 8,
            expected=f"{chain[0].crc:#010x}",
            got=f"{snapshot.crc:#010x}",
            hint="the file is damaged: --no-crc shows it nevertheless",
        )
    beside = f"{path.rpartition('/')[0]}/data.parquet"
    if parquet_size is None and path.endswith("/_pm") and storage.exists(beside):
        size = storage.stat(beside).size
        if size is not None and size != snapshot.parquet_size:
            notes.append(
                f"data.parquet beside it has {size:,} bytes, this snapshot is of one of"
                f" {snapshot.parquet_size:,}: --parquet-size picks another"
            )
    return PmInspection(
        path=path,
        physical_length=len(data),
        snapshot=snapshot,
        chain=chain,
        notes=tuple(notes),
    )


def _chain(snapshot: Snapshot, notes: list[str]) -> tuple[Link, ...]:
    """The snapshot and those before it, with the CRC of each."""
    pm, found, listed = snapshot.pm, [], 0
    try:
        for each in pm.snapshots():
            if each.size > snapshot.size:
                continue
            # Footers lie one behind the other, so all their entries take no more than the file.
            listed += each.row_group_count
            if 4 * listed > pm.size:
                raise FormatError("footers that overlap", file=pm.file, offset=each.footer_offset)
            found.append(each)
    except SkipstoneError as error:
        text = error.message.removeprefix(f"{pm.file}: ")
        notes.append(f"the chain of snapshots ends early: {text}")
    links, crc, done = [], 0, 8
    for each in reversed(found or [snapshot]):
        crc = zlib.crc32(pm.data[done : each.size - 8], crc)
        done = each.size - 8
        links.append(Link(snapshot=each, crc=crc))
    return tuple(reversed(links))


def _type(code: int) -> dict[str, Any]:
    known = ColumnType.of(code)
    return known.to_dict() if known else {"code": code, "name": None, "tag": code & 0xFF}


def _chunk(column: Column, index: int, chunk: Chunk, raw: Any) -> dict[str, Any]:
    flags, sizes = int(raw["STAT_FLAGS"]), int(raw["STAT_SIZES"])
    return {
        "column": index,
        "codec": chunk.codec,
        "codec_name": name_of(CompressionCodec, chunk.codec),
        "encodings": chunk.encodings,
        "encoding_names": [
            name for bit, name in enumerate(ENCODINGS) if chunk.encodings >> bit & 1
        ],
        "stat_flags": flags,
        "stat_sizes": [sizes & 15, sizes >> 4],
        "num_values": chunk.num_values,
        "byte_range_start": chunk.byte_range_start,
        "total_compressed": chunk.total_compressed,
        "null_count": chunk.null_count,
        "null_count_raw": int(raw["NULL_COUNT"]),
        "distinct_count": chunk.distinct_count,
        "distinct_count_raw": int(raw["DISTINCT_COUNT"]),
        "min": _bound(column, chunk.min, int(raw["MIN_STAT"]), flags),
        "max": _bound(column, chunk.max, int(raw["MAX_STAT"]), flags >> 3),
        "reserved": int(raw["RESERVED"]),
    }


def _bound(column: Column, value: bytes | None, raw: int, flags: int) -> dict[str, Any]:
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


def _bloom(chunk: Chunk, place: int, length: int) -> dict[str, Any] | None:
    if chunk.bloom is None:
        return None
    if not isinstance(chunk.bloom, bytes):
        return {"external": True, "offset": place, "length": length}
    # The entry points at the length in front of the bitset.
    return {
        "offset": place - 4,
        "length": length,
        "fill": fill(chunk.bloom),
        "bitset": chunk.bloom.hex(),
    }


def fill(bitset: bytes | memoryview) -> float:
    """The share of bits that are set."""
    bits = np.unpackbits(np.frombuffer(bitset, np.uint8))
    return round(float(bits.mean()), 4) if len(bits) else 0.0
