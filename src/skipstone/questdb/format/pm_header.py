"""The header of a ``_pm``: its columns, and its sections.

Nothing is parsed per column: opening costs the same for 10 columns and for 10,000. Parts are
checked when they are read: the header here, a footer with its blocks and bloom entries in ``pm``,
names, statistics and bitsets on demand.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from mmap import mmap
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skipstone.errors import FormatError, UnsupportedError

from .layout import (
    BLOOM_FILTERS,
    BLOOM_FILTERS_EXTERNAL,
    COLUMN_DESCENDING,
    DESCRIPTOR,
    HEADER,
    HEADER_STRUCT,
    SMALLEST,
    SORTING_IS_DTS_ASC,
    SQUASH_TRACKER,
    Structs,
)

#: The content of a file in memory.
Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_DESCRIPTOR: Final = struct.Struct("<QiiiiIBBBB")
_DESCRIPTOR_NAME: Final = struct.Struct("<Q16xI4x")
_NAME_OFFSET: Final = struct.Struct("<Q").unpack_from
_OPTIONAL: Final = 0xFFFF_FFFF
#: The most columns whose names are compared one by one; and the most places where a name may end.
_FEW, _MOST_HITS = 16, 64


class Descriptor(NamedTuple):
    """A DESCRIPTOR as numbers: a single one is read faster than from an array."""

    name_offset: int
    id: int
    type: int
    flags: int
    fixed_byte_len: int
    name_length: int
    physical_type: int
    max_rep_level: int
    max_def_level: int
    reserved: int


class PmHeader:
    """The header of an opened ``_pm``.

    ``size`` is PARQUET_META_FILE_SIZE at the moment of opening, ``header_end`` the first byte after
    the header's sections.
    """

    size: int
    feature_flags: int
    designated_timestamp: int
    column_count: int
    bloom_columns: tuple[int, ...]
    squash_tracker: int | None

    def __init__(self, data: Buffer, *, file: str | None = None) -> None:
        """The header of ``data``, which may be longer than the file but not shorter.

        ``FormatError`` where it is damaged, ``UnsupportedError`` where a required flag is set;
        ``file`` names it in messages. Bytes beyond PARQUET_META_FILE_SIZE are ignored.
        """
        self.data, self.file = memoryview(data), file
        if len(self.data) < HEADER.itemsize:
            raise self.fail("no header", 0, f"{HEADER.itemsize} bytes", len(self.data))
        (
            self.size,
            self.feature_flags,
            self.designated_timestamp,
            sorting_count,
            self.column_count,
            _,
        ) = HEADER_STRUCT.unpack_from(self.data)
        # The length of the buffer is never the end of the file: an append may be under way there.
        if not SMALLEST <= self.size <= len(self.data):
            raise self.fail(
                "PARQUET_META_FILE_SIZE", 0, f"{SMALLEST} to {len(self.data)}", self.size
            )
        if self.feature_flags > _OPTIONAL:
            raise UnsupportedError(
                f"{self.file or '_pm'}: required feature flags {self.feature_flags:#x}",
                hint="the file was written by a later version of QuestDB",
            )
        self.names_start = HEADER.itemsize + 32 * self.column_count + 4 * sorting_count
        if self.names_start > self.size:
            raise self.fail(
                f"{self.column_count} columns and {sorting_count} sorting columns do not fit",
                20,
                f"at most {self.size} bytes",
                self.names_start,
            )
        if not -1 <= self.designated_timestamp < self.column_count:
            raise self.fail(
                "DESIGNATED_TIMESTAMP",
                16,
                f"-1 to {self.column_count - 1}",
                self.designated_timestamp,
            )
        self.sorting_columns = self._sorting(sorting_count)
        self.bloom_columns, self.squash_tracker, self.bloom_external = (), None, False
        self.header_end = self.names_start
        if self.feature_flags & ~SORTING_IS_DTS_ASC:
            self._sections()

    def fail(self, what: str, offset: int, expected: object, got: object) -> FormatError:
        """A ``FormatError`` about this file."""
        return FormatError(what, file=self.file, offset=offset, expected=expected, got=got)

    def _sorting(self, count: int) -> tuple[int, ...]:
        at = HEADER.itemsize + 32 * self.column_count
        if self.feature_flags & SORTING_IS_DTS_ASC:
            ts = self.designated_timestamp
            if ts < 0 or count:
                raise self.fail(
                    "SORTING_IS_DTS_ASC with no designated timestamp, or with sorting columns",
                    8,
                    "DESIGNATED_TIMESTAMP >= 0, SORTING_COLUMN_COUNT 0",
                    (ts, count),
                )
            flags = self.descriptor(ts).flags
            if flags & COLUMN_DESCENDING:
                raise self.fail(
                    "SORTING_IS_DTS_ASC of a descending column", 8, "no DESCENDING flag", flags
                )
            return (ts,)
        if count > self.column_count:
            raise self.fail("SORTING_COLUMN_COUNT", 20, f"at most {self.column_count}", count)
        columns: tuple[int, ...] = struct.unpack_from(f"<{count}I", self.data, at)
        if columns and max(columns) >= self.column_count:
            raise self.fail("a sorting column", at, f"below {self.column_count}", max(columns))
        return columns

    def _sections(self) -> None:
        flags = self.feature_flags
        if flags & BLOOM_FILTERS_EXTERNAL and not flags & BLOOM_FILTERS:
            raise self.fail("BLOOM_FILTERS_EXTERNAL without BLOOM_FILTERS", 8, "bit 0", flags)
        if not flags & (BLOOM_FILTERS | SQUASH_TRACKER):
            return
        at = self.names_start
        if self.column_count:
            last = HEADER.itemsize + 32 * (self.column_count - 1)
            offset, length = _DESCRIPTOR_NAME.unpack_from(self.data, last)
            at += int(self.descriptors["NAME_LENGTH"].sum(dtype=np.uint64))
            # The sections follow the names, and the end of the names is stored nowhere.
            if offset + length != at:
                raise self.fail("names that do not lie back to back", last, at, offset + length)
        if flags & BLOOM_FILTERS:
            self.bloom_external = bool(flags & BLOOM_FILTERS_EXTERNAL)
            at = self._bloom_columns(at)
        if flags & SQUASH_TRACKER:
            if at + 8 > self.size:
                raise self.fail("SQUASH_TRACKER beyond the end", at, "8 bytes", self.size - at)
            (self.squash_tracker,) = _I64.unpack_from(self.data, at)
            at += 8
        self.header_end = at

    def _bloom_columns(self, at: int) -> int:
        if at + 4 > self.size:
            raise self.fail("BLOOM_FILTER_COLUMNS beyond the end", at, "4 bytes", self.size - at)
        count: int = _U32.unpack_from(self.data, at)[0]
        if not 1 <= count <= self.column_count or at + 4 + 4 * count > self.size:
            raise self.fail("BLOOM_COL_COUNT", at, f"1 to {self.column_count}", count)
        columns: tuple[int, ...] = struct.unpack_from(f"<{count}I", self.data, at + 4)
        rising = all(a < b for a, b in pairwise(columns))
        if not rising or columns[-1] >= self.column_count:
            raise self.fail(
                "BLOOM_FILTER_COLUMNS",
                at + 4,
                f"ascending, below {self.column_count}",
                columns[:16],
            )
        self.bloom_columns = columns
        return at + 4 + 4 * count

    @cached_property
    def descriptors(self) -> Structs:
        """All DESCRIPTORs, a view of shape (columns,); their names are not checked yet."""
        return np.frombuffer(self.data, DESCRIPTOR, self.column_count, HEADER.itemsize)

    def descriptor(self, column: int) -> Descriptor:
        """The DESCRIPTOR of the column at this position."""
        return Descriptor(*_DESCRIPTOR.unpack_from(self.data, HEADER.itemsize + 32 * column))

    def name(self, column: int) -> str:
        """The name of the column at this position."""
        at = HEADER.itemsize + 32 * column
        offset, length = _DESCRIPTOR_NAME.unpack_from(self.data, at)
        if offset < self.names_start or length > self.size or offset > self.size - length:
            raise self.fail(
                f"the name of column {column}",
                at,
                f"within {self.names_start} to {self.size}",
                f"{offset} + {length}",
            )
        try:
            return str(self.data[offset : offset + length], "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"the name of column {column}", offset, "UTF-8", error.reason) from None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, by position."""
        # Overlapping names could turn a few bytes into very much text.
        if int(self.descriptors["NAME_LENGTH"].sum(dtype=np.uint64)) > self.size:
            raise self.fail("names longer than the file", HEADER.itemsize, self.size, "more")
        return tuple([self.name(column) for column in range(self.column_count)])

    def named(self, name: str) -> tuple[int, ...]:
        """The positions of all columns with this name; two leaves of a struct share one."""
        wanted = name.encode("utf-8", "surrogatepass")
        known = self._searched(wanted) if self.column_count > _FEW else None
        if known is not None:
            return known
        found = np.flatnonzero(self.descriptors["NAME_LENGTH"] == len(wanted)).tolist()
        return tuple([column for column in found if self.name(column) == name])

    def _searched(self, wanted: bytes) -> tuple[int, ...] | None:
        """``named`` by a search in the names, which lie back to back in the order of the columns.

        ``None`` where it cannot search, or the name ends as too many other places do.
        """
        last = HEADER.itemsize + 32 * (self.column_count - 1)
        end = sum(_DESCRIPTOR_NAME.unpack_from(self.data, last))
        before = len(wanted) - 4
        if before < 0 or not self.names_start + len(wanted) <= end <= self.size:
            return None
        # Words at each of the four alignments: that takes the same time for any names. Names often
        # begin alike, but seldom end alike.
        (tail,) = _U32.unpack_from(wanted, before)
        places: list[int] = []
        for start in range(self.names_start + before, self.names_start + before + 4):
            words = np.ndarray(max(0, end - start) >> 2, "<u4", self.data, start)
            hits = (words == tail).nonzero()[0]
            if len(hits) > _MOST_HITS:
                return None
            places += [4 * hit + start - before for hit in hits.tolist()]
        found: list[int] = []
        for at in places:
            if self.data[at : at + len(wanted)] != wanted:
                continue
            column = bisect_right(range(1, self.column_count), at, key=self._name_offset)
            at_column = _DESCRIPTOR_NAME.unpack_from(self.data, HEADER.itemsize + 32 * column)
            if at_column == (at, len(wanted)):
                found.append(column)
        return tuple(sorted(found))

    def _name_offset(self, column: int) -> int:
        return int(_NAME_OFFSET(self.data, HEADER.itemsize + 32 * column)[0])

    def with_id(self, id: int) -> int | None:
        """The position of the column with this ID. Where a stored ID is -1, the ID is the
        position."""
        ids = self.descriptors["ID"]
        found = np.flatnonzero(ids == id) if id >= 0 else ids[:0]
        if len(found) > 1:
            raise self.fail("columns that share an ID", HEADER.itemsize, "1 column", len(found))
        if len(found):
            return int(found[0])
        return id if 0 <= id < self.column_count and ids[id] == -1 else None
