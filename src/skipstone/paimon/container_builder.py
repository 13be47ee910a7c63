"""All blobs of a data file in one container, and each index's stored value with its place in it.

The order is by column, then by kind: equal blobs give equal bytes. A container must stay below
2 GiB: the largest blobs are left out until it does, with the reason.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.errors import UnsupportedError

from .base import PLACE, PaimonIndex, paimon_column
from .format.container import LARGEST, Head, to_bytes
from .verified_blob import Sums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.pruning.kind import Built, Index

__all__ = ["Bundle", "bundled"]

# Room that is left for the head.
_HEAD = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A container (``None`` where nothing went in), stored values, and why some have none."""

    container: bytes | None
    values: Mapping[Index, pa.Array]
    reasons: Mapping[Index, str]


def bundled(built: Mapping[Index, Built], limit: int = LARGEST) -> Bundle:
    """The container of what was built of one file; every ``Built`` has a blob and a value."""
    chosen: dict[tuple[str, str], tuple[PaimonIndex, bytes]] = {}
    reasons: dict[Index, str] = {}
    for index, each in built.items():
        assert isinstance(index, PaimonIndex)
        assert each.blob is not None
        key = (paimon_column(index.column), index.paimon)
        if len(key[0].encode("utf-8", "surrogatepass")) > 20_000:
            reasons[index] = "the column's name is too long for a container"
        elif key in chosen:
            reasons[index] = f"a container has one {index.paimon} index of a column"
        else:
            chosen[key] = (index, each.blob)
    room = limit - _HEAD
    for key, (index, blob) in sorted(chosen.items(), key=lambda item: -len(item[1][1])):
        if sum(len(kept) for _, kept in chosen.values()) <= room:
            break
        reasons[index] = f"its {len(blob):,} bytes do not fit a container of 2 GiB"
        del chosen[key]
    if not chosen:
        return Bundle(None, {}, reasons)
    columns: dict[str, dict[str, bytes | None]] = {}
    for (column, kind), (_, blob) in chosen.items():
        columns.setdefault(column, {})[kind] = blob
    try:
        container = to_bytes(columns)
    except UnsupportedError as error:
        reasons.update({index: error.message for index, _ in chosen.values()})
        return Bundle(None, {}, reasons)
    values: dict[Index, pa.Array] = {}
    for told in Head.from_bytes(container).columns:
        for entry in told.indexes:
            index = chosen[told.name, entry.kind][0]
            value = built[index].value
            assert value is not None
            blob = chosen[told.name, entry.kind][1]
            sums = Sums.of(blob, index.block).to_bytes()
            values[index] = _placed(value, (entry.start, entry.length, zlib.crc32(blob), sums))
    return Bundle(container, values, reasons)


def _placed(value: pa.Array, place: tuple[int | bytes, ...]) -> pa.Array:
    """A stored value with these in its fields ``PLACE``."""
    told = [pa.array([n], type) for n, type in zip(place, PLACE.values(), strict=True)]
    return pa.StructArray.from_arrays(
        [*told, *value.flatten()[len(told) :]], fields=list(value.type)
    )
