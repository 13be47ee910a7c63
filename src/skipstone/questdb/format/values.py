"""The header of a ``_pm`` as frozen values, and its bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Self

import numpy as np

from skipstone._dataclasses import dataclass

from .layout import (
    BLOOM_FILTERS,
    BLOOM_FILTERS_EXTERNAL,
    COLUMN_DESCENDING,
    COLUMN_IS_ASCII,
    COLUMN_LOCAL_KEY_IS_GLOBAL,
    DESCRIPTOR,
    FIELD_REPETITION_SHIFT,
    HEADER,
    HEADER_STRUCT,
    SORTING_IS_DTS_ASC,
    SQUASH_TRACKER,
)

if TYPE_CHECKING:
    from .pm import Pm


_TIMESTAMP, _DATE = 8, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PmColumn:
    """A DESCRIPTOR: ``type`` is QuestDB's code (``types.py``), ``physical_type`` Parquet's."""

    name: str
    type: int
    physical_type: int
    id: int = -1
    flags: int = 0
    fixed_byte_len: int = 0
    max_rep_level: int = 0
    max_def_level: int = 0

    @property
    def repetition(self) -> int:
        """FIELD_REPETITION: 0 required, 1 optional, 2 repeated."""
        return self.flags >> FIELD_REPETITION_SHIFT & 3

    @property
    def descending(self) -> bool:
        """Whether a sorting column goes from the largest to the smallest."""
        return bool(self.flags & COLUMN_DESCENDING)

    @property
    def is_ascii(self) -> bool:
        """A VARCHAR with only ASCII."""
        return bool(self.flags & COLUMN_IS_ASCII)

    @property
    def local_key_is_global(self) -> bool:
        """A SYMBOL whose dictionary keys are those of the table."""
        return bool(self.flags & COLUMN_LOCAL_KEY_IS_GLOBAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PmHead:
    """The header. SORTING_IS_DTS_ASC and the bits of the sections follow from the fields."""

    columns: tuple[PmColumn, ...]
    designated_timestamp: int = -1
    sorting_columns: tuple[int, ...] = ()
    bloom_columns: tuple[int, ...] = ()
    bloom_external: bool = False
    squash_tracker: int | None = None

    @property
    def sorting_is_dts_asc(self) -> bool:
        """True when the only sorting column is the designated timestamp, ascending."""
        ts = self.designated_timestamp
        return ts >= 0 and self.sorting_columns == (ts,) and not self.columns[ts].descending

    @property
    def feature_flags(self) -> int:
        flags = SORTING_IS_DTS_ASC if self.sorting_is_dts_asc else 0
        if self.bloom_columns:
            flags |= BLOOM_FILTERS | (BLOOM_FILTERS_EXTERNAL if self.bloom_external else 0)
        return flags | (0 if self.squash_tracker is None else SQUASH_TRACKER)

    def check(self) -> None:
        """``ValueError`` if readers would refuse it, or the designated timestamp cannot be one.

        It must be a TIMESTAMP (or DATE) that is never null, and where there are sorting columns,
        one of them.
        """
        count, ts = len(self.columns), self.designated_timestamp
        if not -1 <= ts < count:
            raise ValueError(f"designated_timestamp {ts} of {count} columns")
        if any(not 0 <= column < count for column in (*self.sorting_columns, *self.bloom_columns)):
            raise ValueError(f"a sorting or bloom column beyond {count} columns")
        if len(set(self.sorting_columns)) != len(self.sorting_columns):
            raise ValueError("a sorting column twice")
        if list(self.bloom_columns) != sorted(set(self.bloom_columns)):
            raise ValueError("bloom_columns must ascend")
        if ts >= 0:
            column = self.columns[ts]
            if column.type & 0xFF not in (_TIMESTAMP, _DATE) or column.type < 0:
                raise ValueError(f"a designated timestamp of type {column.type}")
            if column.repetition or column.max_def_level:
                raise ValueError("a designated timestamp that may be null")

    def to_bytes(self, size: int = 0) -> bytes:
        """The header up to its last section; ``size`` is PARQUET_META_FILE_SIZE."""
        implied = self.sorting_is_dts_asc
        sorting = () if implied else self.sorting_columns
        names = [column.name.encode("utf-8", "surrogatepass") for column in self.columns]
        descriptors = np.zeros(len(self.columns), DESCRIPTOR)
        lengths = np.array([len(name) for name in names], np.uint64)
        at = HEADER.itemsize + descriptors.nbytes + 4 * len(sorting)
        descriptors["NAME_OFFSET"] = at + np.cumsum(lengths) - lengths
        descriptors["NAME_LENGTH"] = lengths
        for field, name in _FIELDS:
            descriptors[field] = [getattr(column, name) for column in self.columns]
        out = [
            HEADER_STRUCT.pack(
                size,
                self.feature_flags,
                self.designated_timestamp,
                len(sorting),
                len(self.columns),
                0,
            ),
            descriptors.tobytes(),
            struct.pack(f"<{len(sorting)}I", *sorting),
            *names,
        ]
        if self.bloom_columns:
            count = len(self.bloom_columns)
            out.append(struct.pack(f"<I{count}I", count, *self.bloom_columns))
        if self.squash_tracker is not None:
            out.append(struct.pack("<q", self.squash_tracker))
        return b"".join(out)

    @classmethod
    def of(cls, pm: Pm) -> Self:
        """The header of an opened file."""
        rows = [pm.descriptors[field].tolist() for field, _ in _FIELDS]
        columns = [
            PmColumn(name=name, **dict(zip(_NAMES, row, strict=True)))
            for name, row in zip(pm.names, zip(*rows, strict=True), strict=True)
        ]
        return cls(
            columns=tuple(columns),
            designated_timestamp=pm.designated_timestamp,
            sorting_columns=pm.sorting_columns,
            bloom_columns=pm.bloom_columns,
            bloom_external=pm.bloom_external,
            squash_tracker=pm.squash_tracker,
        )


_FIELDS = (
    ("ID", "id"),
    ("TYPE", "type"),
    ("FLAGS", "flags"),
    ("FIXED_BYTE_LEN", "fixed_byte_len"),
    ("PHYSICAL_TYPE", "physical_type"),
    ("MAX_REP_LEVEL", "max_rep_level"),
    ("MAX_DEF_LEVEL", "max_def_level"),
)
_NAMES = tuple(name for _, name in _FIELDS)
