"""Row groups of a ``_pm`` as values, one object per column chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from skipstone.questdb.format.layout import (
    BOUNDS,
    DISTINCT_COUNT_PRESENT,
    MAX_STAT_EXACT,
    MIN_STAT_EXACT,
    NULL_COUNT_PRESENT,
)

if TYPE_CHECKING:
    from skipstone.questdb.format.pm import PmSnapshot


#: A bitset to be inlined, or its place in the Parquet file: (offset, length).
Bloom: TypeAlias = bytes | tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PmChunk:
    """A column chunk; counts and bounds that are not known are ``None``.

    ``codec`` is Parquet's number, ``encodings`` the bit mask of ``ENCODINGS``; ``min`` and ``max``
    are Parquet's bytes, 1 to 65,535 of them.
    """

    num_values: int
    byte_range_start: int
    total_compressed: int
    codec: int = 0
    encodings: int = 0
    null_count: int | None = None
    distinct_count: int | None = None
    min: bytes | None = None
    max: bytes | None = None
    min_exact: bool = True
    max_exact: bool = True
    bloom: Bloom | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PmRowGroup:
    """A row group block.

    At its end may be bytes that nothing refers to: there QuestDB leaves the bloom filter of a
    column that is not in BLOOM_FILTER_COLUMNS.
    """

    num_rows: int
    chunks: tuple[PmChunk, ...]

    @classmethod
    def of(cls, snapshot: PmSnapshot, row_group: int) -> Self:
        """A row group of an opened file."""
        pm = snapshot.pm
        stats = snapshot.stats(row_groups=np.array([row_group]))
        chunks, ends = stats.chunks[0], []
        for end in BOUNDS:
            data, offsets, valid = stats.blobs(end)
            raw, edges = data.tobytes(), offsets.tolist()
            ends.append(
                [
                    raw[edges[i] : edges[i + 1]] if there else None
                    for i, there in enumerate(valid[0].tolist())
                ]
            )
        blooms = dict[int, Bloom]()
        places, lengths = (array[row_group].tolist() for array in snapshot.bloom_places)
        for column, place, length in zip(pm.bloom_columns, places, lengths, strict=True):
            if length and pm.bloom_external:
                blooms[column] = (place, length)
            elif length:
                blooms[column] = bytes(pm.data[place : place + length])
        flags = chunks["STAT_FLAGS"].tolist()
        counts = [chunks[field].tolist() for field, _ in _COUNTS]
        return cls(
            num_rows=int(snapshot.num_rows[row_group]),
            chunks=tuple(
                PmChunk(
                    **dict(zip(_COUNT_NAMES, count, strict=True))
                    | {
                        "null_count": count[-2] if flag & NULL_COUNT_PRESENT else None,
                        "distinct_count": count[-1] if flag & DISTINCT_COUNT_PRESENT else None,
                    },
                    min=low,
                    max=high,
                    min_exact=low is None or bool(flag & MIN_STAT_EXACT),
                    max_exact=high is None or bool(flag & MAX_STAT_EXACT),
                    bloom=blooms.get(column),
                )
                for column, (flag, count, low, high) in enumerate(
                    zip(flags, zip(*counts, strict=True), *ends, strict=True)
                )
            ),
        )


_COUNTS = (
    ("CODEC", "codec"),
    ("ENCODINGS", "encodings"),
    ("NUM_VALUES", "num_values"),
    ("BYTE_RANGE_START", "byte_range_start"),
    ("TOTAL_COMPRESSED", "total_compressed"),
    ("NULL_COUNT", "null_count"),
    ("DISTINCT_COUNT", "distinct_count"),
)
_COUNT_NAMES = tuple(name for _, name in _COUNTS)
