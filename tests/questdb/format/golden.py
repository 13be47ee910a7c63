"""The recorded cases, and what is read from a `_pm` in the shape in which they are recorded."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import CompressionCodec, FieldRepetitionType, Type
from skipstone.questdb.format import layout
from skipstone.questdb.format.types import ColumnType
from skipstone.questdb.format.values import PmHead
from tests.questdb.format.writing import read_row_groups

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.questdb.format.pm import Pm, PmSnapshot


_ENCODINGS = (
    "PLAIN",
    "RLE_DICTIONARY",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)


def names(golden: Path, *, good: bool) -> list[str]:
    """The cases that are files of their own, good or bad ones."""
    index = json.loads((golden / "questdb" / "INDEX.json").read_text())
    found = [
        entry["case"] for entry in index if (golden / "questdb" / f"{entry['case']}.pm").exists()
    ]
    return [name for name in found if name.startswith("bad_") != good]


def case(golden: Path, name: str) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a case, and what the real readers said of it."""
    folder = golden / "questdb"
    plain = folder / f"{name}.json"
    text = (
        plain.read_bytes()
        if plain.exists()
        else gzip.decompress((folder / f"{name}.json.gz").read_bytes())
    )
    return (folder / f"{name}.pm").read_bytes(), json.loads(text)


def described(pm: Pm, snapshot: PmSnapshot) -> dict[str, Any]:
    """A snapshot in the recorded shape."""
    head = PmHead.of(pm)
    flags = pm.feature_flags
    return {
        "bloom_filter_columns": list(head.bloom_columns),
        "chain": _chain(pm, snapshot),
        "columns": [
            {
                "descending": column.descending,
                "fixed_byte_len": column.fixed_byte_len,
                "flags": column.flags,
                "id": column.id,
                "index": index,
                "is_ascii": column.is_ascii,
                "local_key_is_global": column.local_key_is_global,
                "max_def_level": column.max_def_level,
                "max_rep_level": column.max_rep_level,
                "name": column.name,
                "name_length": int(pm.descriptors["NAME_LENGTH"][index]),
                "name_offset": int(pm.descriptors["NAME_OFFSET"][index]),
                "physical_type": column.physical_type,
                "physical_type_name": Type(column.physical_type).name,
                "repetition": FieldRepetitionType(column.repetition).name,
                "reserved": int(pm.descriptors["RESERVED"][index]),
                "type": _type(column.type),
            }
            for index, column in enumerate(head.columns)
        ],
        "crc_ok": True,
        "header": {
            "bloom_filters": bool(flags & layout.BLOOM_FILTERS),
            "bloom_filters_external": bool(flags & layout.BLOOM_FILTERS_EXTERNAL),
            "column_count": pm.column_count,
            "designated_timestamp": pm.designated_timestamp,
            "feature_flags": flags,
            "has_squash_tracker": pm.squash_tracker is not None,
            "parquet_meta_file_size": pm.size,
            "reserved": 0,
            "sorting_column_count": 0 if head.sorting_is_dts_asc else len(head.sorting_columns),
            "sorting_is_dts_asc": head.sorting_is_dts_asc,
        },
        "mapped_size": pm.size,
        "physical_length": len(pm.data),
        "resolved_size": snapshot.size,
        "row_groups": _row_groups(snapshot),
        "sorting_columns": list(head.sorting_columns),
        "squash_tracker": head.squash_tracker,
    }


def _type(code: int) -> dict[str, Any]:
    known = ColumnType.of(code)
    return known.to_dict() if known else {"code": code, "name": None, "tag": code & 0xFF}


def _chain(pm: Pm, snapshot: PmSnapshot) -> list[dict[str, Any]]:
    links: list[dict[str, Any]] = []
    try:
        for each in pm.snapshots():
            if each.size > snapshot.size:
                continue
            each.verify()
            links.append(
                {
                    "committed_size": each.size,
                    "crc_computed": each.crc,
                    "crc_stored": each.crc,
                    "footer_feature_flags": each.footer_feature_flags,
                    "footer_length": each.footer_length,
                    "footer_offset": each.footer_offset,
                    "parquet_file_size": each.parquet_size,
                    "parquet_footer_length": each.parquet_footer_length,
                    "parquet_footer_offset": each.parquet_footer_offset,
                    "prev_parquet_meta_file_size": each.previous_size,
                    "row_group_block_offsets": each.block_offsets.tolist(),
                    "row_group_count": each.row_group_count,
                    "unused_bytes": each.unused_bytes,
                }
            )
    except (FormatError, UnsupportedError):
        pass  # the recorded chains of broken files end there, too
    return links


def _row_groups(snapshot: PmSnapshot) -> list[dict[str, Any]]:
    places, lengths = snapshot.bloom_places
    columns = snapshot.pm.bloom_columns
    raw = snapshot.chunks()
    found = []
    for number, group in enumerate(read_row_groups(snapshot)):
        chunks = []
        for column, chunk in enumerate(group.chunks):
            bits = raw[number, column]
            flags = int(bits["STAT_FLAGS"])
            sizes = int(bits["STAT_SIZES"])
            bloom = None
            if isinstance(chunk.bloom, bytes):
                at = columns.index(column)
                bloom = {
                    "bitset": chunk.bloom.hex(),
                    "length": int(lengths[number, at]),
                    "offset": int(places[number, at]) - 4,
                }
            chunks.append(
                {
                    "bloom": bloom,
                    "byte_range_start": chunk.byte_range_start,
                    "codec": chunk.codec,
                    "codec_name": CompressionCodec(chunk.codec).name,
                    "column": column,
                    "distinct_count": chunk.distinct_count,
                    "distinct_count_raw": int(bits["DISTINCT_COUNT"]),
                    "encoding_names": [
                        name for bit, name in enumerate(_ENCODINGS) if chunk.encodings >> bit & 1
                    ],
                    "encodings": chunk.encodings,
                    "max": _bound(chunk.max, int(bits["MAX_STAT"]), flags >> 3),
                    "min": _bound(chunk.min, int(bits["MIN_STAT"]), flags),
                    "null_count": chunk.null_count,
                    "null_count_raw": int(bits["NULL_COUNT"]),
                    "num_values": chunk.num_values,
                    "reserved": int(bits["RESERVED"]),
                    "stat_flags": flags,
                    "stat_sizes": [sizes & 15, sizes >> 4],
                    "total_compressed": chunk.total_compressed,
                }
            )
        found.append({"chunks": chunks, "index": number, "num_rows": group.num_rows})
    return found


def _bound(value: bytes | None, raw: int, flags: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "exact": bool(flags & 4),
        "inlined": bool(flags & 2),
        "present": bool(flags & 1),
        "raw_u64": raw,
    }
    if value is None:
        return found
    if not flags & 2:
        found |= {"ool_offset": raw >> 16, "ool_length": raw & 0xFFFF}
    return found | {"bytes": value.hex()}
