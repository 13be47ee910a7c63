"""The row group level of a plan from ``_pm`` snapshots: no Parquet footer is read for it.

``PmSource`` splits files by NUM_ROWS of their row groups. Per column there are two kinds of
evidence: ``_pm statistics``, which read nothing, and ``_pm bloom filter``. One gather per file
takes the descriptors and chunks of all queried columns. A file with damage in the bytes that are
used proves nothing, and gives the reason.

A Bloom filter is a bare bitset. An inlined one lies in the ``_pm`` and needs no read. An external
one lies in the data file: a query reads a block of 32 bytes per value and row group, or all of a
small filter for many values. Values are hashed as for Parquet's own filters. A filter proves
absence, never presence: it excludes row groups for ``=`` and ``IN``, and proves nothing else.

``chunk_bounds`` derives bounds and null counts of one column over the row groups of many ``_pm``
files at once, by the rules for Parquet footers: a chunk without one value per row contradicts
itself, and so does one that has bounds but only nulls; decimals in byte arrays count only with
exact bounds. Bounds are in Parquet's own order of the type, and NaN is not counted. Files that
store the column in the same way form one array; only out-of-line values are gathered file by file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.parquet.evidence.bloom import hashes_of
from skipstone.parquet.evidence.sources import FilesBounds, StatisticsEvidence, row_groups
from skipstone.parquet.evidence.stored_values import Form, no_keys
from skipstone.parquet.evidence.value_bounds import Order, ValueBounds
from skipstone.parquet.format.bloom_filter import (
    BLOCK_BYTES,
    any_in,
    block_of,
    runs_of,
    set_in,
)
from skipstone.parquet.format.enums import PLAIN_WIDTHS, Type
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.literals import Keys
from skipstone.pruning import Answer, BaseEvidence, Cause, Level, Reason, Units
from skipstone.pruning.evidence import Source
from skipstone.pruning.interval import with_nulls
from skipstone.questdb.format.layout import BOUNDS
from skipstone.questdb.format.pm import ChunkStats
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.evidence.bloom import Hashes
    from skipstone.parquet.evidence.stored_values import StoredColumn
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Evidence, Fetched
    from skipstone.questdb.format.layout import Bools, Bytes, Ints

    from .opened_pm import OpenedPm


class PmSource(Source):
    """Units and evidence of the row groups of ``files``, by their ordinals in the plan's listing.

    Keep it as long as the files: it caches the evidence of each column.
    """

    level = Level.ROW_GROUP

    def __init__(self, files: Mapping[int, OpenedPm]) -> None:
        self.files = files
        self._found: dict[str, Sequence[Evidence[Leaf]]] = {}

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, Ints]:
        """The row groups of every file of the source."""
        return row_groups(units, self.files, lambda file: file.row_starts)

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics and Bloom filters of these columns."""
        missing = sorted(columns - self._found.keys())
        if missing:
            self._found.update(_evidence(self.files, missing))
        return [each for column in sorted(columns) for each in self._found[column]]


class PmStatistics(StatisticsEvidence):
    """MIN_STAT, MAX_STAT and NULL_COUNT of row groups (``chunk_bounds``)."""

    name = "_pm statistics"


def _evidence(
    files: Mapping[int, OpenedPm], columns: Sequence[str]
) -> dict[str, Sequence[Evidence[Leaf]]]:
    """The evidence of each of these columns, from one gather per file."""
    parts: dict[str, dict[object, list[tuple[int, StoredColumn, ChunkStats]]]]
    parts = {column: {} for column in columns}
    reasons: dict[str, dict[Reason, None]] = {column: {} for column in columns}
    for ordinal, file in files.items():
        asked: list[tuple[str, int, StoredColumn]] = []
        for column in columns:
            try:
                known = file.stored(column)
            except (SkipstoneError, ValueError) as error:
                reasons[column].setdefault(Reason.of_error(f"{PmStatistics.name}({column})", error))
                continue
            if known is not None:
                asked.append((column, *known))
        if not asked:
            continue
        stats = file.snapshot.stats([place for _, place, _ in asked])
        for at, (column, _, stored) in enumerate(asked):
            of_column = replace(stats, chunks=stats.chunks[:, at : at + 1])
            key = (stored.form, stored.type, stored.unit, stored.column.type,
                   stored.column.type_length, stored.column.max_definition_level)  # fmt: skip
            parts[column].setdefault(key, []).append((ordinal, stored, of_column))
    found: dict[str, Sequence[Evidence[Leaf]]] = {}
    for column in columns:
        together: list[FilesBounds] = []
        for members in parts[column].values():
            together += _together(files, column, members, reasons[column])
        evidence: list[Evidence[Leaf]] = []
        if together or reasons[column]:
            evidence.append(PmStatistics(column, together, list(reasons[column])))
        filters = PmBloomEvidence.of(column, files)
        if filters is not None:
            evidence.append(filters)
        found[column] = evidence
    return found


def _together(
    files: Mapping[int, OpenedPm],
    column: str,
    members: Sequence[tuple[int, StoredColumn, ChunkStats]],
    reasons: dict[Reason, None],
) -> list[FilesBounds]:
    """Bounds of files that store a column in the same way, without the damaged ones."""
    try:
        rows = np.concatenate([files[ordinal].rows for ordinal, _, _ in members])
        bounds = chunk_bounds(members[0][1], [part for _, _, part in members], rows)
    except (SkipstoneError, ValueError) as error:
        if len(members) == 1:
            reasons.setdefault(Reason.of_error(f"{PmStatistics.name}({column})", error))
            return []
        # Bisects, so that one damaged file of many affects only itself.
        half = len(members) // 2
        return [
            *_together(files, column, members[:half], reasons),
            *_together(files, column, members[half:], reasons),
        ]
    return [FilesBounds.of(bounds, {ordinal: len(part.chunks) for ordinal, _, part in members})]


_BYTES = (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)


def chunk_bounds(stored: StoredColumn, parts: Sequence[ChunkStats], rows: Ints) -> ValueBounds:
    """Bounds of the row groups of all ``parts``, in their order; each part is one column of a file,
    of shape (row groups, 1). ``rows`` int64 are those of all row groups.

    ``FormatError`` where a statistic lies outside its file.
    """
    whole = ChunkStats.side_by_side(parts)
    chunks = whole.chunks
    one_each = chunks["NUM_VALUES"][:, 0] == rows.astype(np.uint64)
    counts, counted = whole.null_count()
    nulls = counts[:, 0].astype(np.int64)
    if not stored.column.max_definition_level:
        nulls = np.zeros_like(rows)
        counted = np.ones_like(counted)
    sure = counted[:, 0] & one_each
    unusual = not sure.all()
    if unusual:
        nulls = np.where(sure, nulls, -1)
    found, known = _values(stored, whole)
    if stored.form is Form.DECIMAL and stored.column.type in _BYTES:
        known &= np.stack([whole.exact(end)[:, 0] for end in BOUNDS])
    if unusual or nulls.any():
        odd = (nulls == rows) & (rows > 0) & known.any(axis=0)
        nulls = np.where(odd, -1, nulls)
        known &= one_each & ~odd
    lo, hi = _keys(stored, found, known)
    return ValueBounds.of(
        stored,
        Order.TYPE,
        lo=lo,
        hi=hi,
        rows=rows,
        nulls=nulls,
        nans=None,
    )


def _keys(
    stored: StoredColumn, found: Sequence[ByteArrays] | Bytes, known: Bools
) -> tuple[Keys, Keys]:
    """The keys of minima and of maxima."""
    count = known.shape[1]
    if stored.form is Form.NONE:
        none = no_keys(stored.type, count)
        return none, none
    if not isinstance(found, np.ndarray):
        low, high = found
        return stored.keys(low, known[0]), stored.keys(high, known[1], upper=True)
    if stored.rounds:
        lowest = stored.fixed_keys(found[0], known[0])
        return lowest, stored.fixed_keys(found[1], known[1], upper=True)
    both = stored.fixed_keys(found.reshape(2 * count, -1), known.reshape(-1))
    lo = Keys(both.data[:count], both.valid[:count])
    return lo, Keys(both.data[count:], both.valid[count:])


def _values(stored: StoredColumn, whole: ChunkStats) -> tuple[Sequence[ByteArrays] | Bytes, Bools]:
    """The bytes of minima and of maxima, as arrays of bytes or ``(2, row groups, width)`` for a
    type of fixed width, and where there are any, ``(2, row groups)``."""
    type, count = stored.column.type, len(whole.chunks)
    fixed = type is Type.FIXED_LEN_BYTE_ARRAY
    width = stored.column.type_length if fixed else PLAIN_WIDTHS.get(type, 0)
    if 0 < width <= 8:
        slots, valid = whole.inlined(width)
        slots, valid = slots.reshape(2, count, width), valid.reshape(2, count)
        if not fixed:
            return slots, valid
        offsets = np.arange(0, width * count + 1, width, dtype=np.int64)
        return [ByteArrays(each.reshape(-1), offsets) for each in slots], valid
    found, known = [], []
    for end in BOUNDS:
        data, offsets, valid = whole.blobs(end)
        found.append(ByteArrays(data, offsets))
        known.append(valid[:, 0])
    return found, np.stack(known)


# One more request costs about as much as this many more bytes in another one.
_REQUEST = 8_192
# Words gathered at a time: bounds the memory of a long IN list.
_WORDS = 1 << 20
_UNREAD = Reason(cause=Cause.UNREADABLE, subject="_pm bloom filter", text="not fetched")


class _PmFilters:
    """The filters of one column of one file. ``words`` are those of the ``_pm``, ``None`` if the
    bitsets lie in the data file; ``blocks`` int64 (row groups,), 0 where there is no filter."""

    def __init__(self, file: OpenedPm, place: int, stored: StoredColumn) -> None:
        pm = file.snapshot.pm
        offsets, lengths = file.snapshot.bloom_places
        at = pm.bloom_columns.index(place)
        self.file, self.stored = file, stored
        self.offsets, self.blocks = offsets[:, at], lengths[:, at] // BLOCK_BYTES
        self.words = None if pm.bloom_external else np.frombuffer(pm.data, "<u4", pm.size >> 2)

    def inlined(self, hashes: Hashes, groups: Ints) -> BoolArray:
        """Per row group: False if it holds none of the values."""
        assert self.words is not None
        some = self.blocks[groups] <= 0
        for run in runs_of(hashes):
            there = np.flatnonzero(~some)
            step = max(1, _WORDS // (8 * len(run)))
            for start in range(0, len(there), step):
                at = there[start : start + step]
                first = (self.offsets[groups[at]] >> 2)[:, None]
                first = first + 8 * block_of(run, self.blocks[groups[at]][:, None])
                words = self.words[first[..., None] + np.arange(8)]
                some[at] = set_in(words, run).any(axis=1)
        return some

    def ranges(self, hashes: Hashes, groups: Ints) -> list[list[ByteRange]]:
        """The ranges to fetch per row group: one block per hash, or the whole bitset."""
        found: list[list[ByteRange]] = []
        path, many = self.file.path, len(hashes)
        for group in groups.tolist():
            offset, blocks = int(self.offsets[group]), int(self.blocks[group])
            if not blocks:
                found.append([])
            elif many > 1 and many * _REQUEST >= blocks * BLOCK_BYTES:
                found.append([ByteRange(path, offset, blocks * BLOCK_BYTES)])
            else:
                places = offset + BLOCK_BYTES * block_of(hashes, blocks)
                found.append([ByteRange(path, at, BLOCK_BYTES) for at in places.tolist()])
        return found

    def external(
        self, hashes: Hashes, groups: Ints, have: Fetched, reasons: dict[Reason, None]
    ) -> BoolArray:
        """Per row group: False if it holds none of the values, by fetched bytes."""
        some = np.ones(len(groups), np.bool_)
        for at, ranges in enumerate(self.ranges(hashes, groups)):
            parts = [have.get(each) for each in ranges]
            got = [part for part in parts if part is not None]
            if len(got) < len(parts):
                reasons.setdefault(_UNREAD)
            elif got:
                words = np.frombuffer(b"".join(got), "<u4").reshape(-1, 8)
                whole = len(got) < len(hashes)
                some[at] = any_in(words, hashes) if whole else set_in(words, hashes).any()
        return some


class PmBloomEvidence(BaseEvidence):
    """The filters of one column in all files that have them; see the module."""

    name = "_pm bloom filter"
    level = Level.ROW_GROUP
    cost = 2.0

    def __init__(
        self, column: str, filters: Mapping[int, _PmFilters], reasons: Sequence[Reason]
    ) -> None:
        self.column, self.filters, self.reasons = column, filters, tuple(reasons)
        self._hashes: dict[tuple[Leaf, StoredColumn], Hashes | None] = {}
        if any(each.words is None for each in filters.values()):
            self.cost = 5.0

    @classmethod
    def of(cls, column: str, files: Mapping[int, OpenedPm]) -> Self | None:
        """The evidence, if any of ``files`` has filters for ``column``."""
        filters: dict[int, _PmFilters] = {}
        reasons: dict[Reason, None] = {}
        for ordinal, file in files.items():
            if not file.snapshot.pm.bloom_columns:
                continue
            try:
                known = file.stored(column)
                if known is not None and known[0] in file.snapshot.pm.bloom_columns:
                    filters[ordinal] = _PmFilters(file, *known)
            except (SkipstoneError, ValueError) as error:
                reasons.setdefault(Reason.of_error(f"{cls.name}({column})", error))
        return cls(column, filters, list(reasons)) if filters or reasons else None

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The blocks of external filters, of all values in all row groups."""
        wanted: dict[ByteRange, None] = {}
        for leaf in leaves:
            for filters, hashes, _, groups in self._asked(leaf, units):
                if filters.words is None and len(hashes):
                    for ranges in filters.ranges(hashes, groups):
                        wanted.update(dict.fromkeys(ranges))
        return [each for each in wanted if each not in have]

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        return [self._answer(leaf, units, have) for leaf in leaves]

    def _answer(self, leaf: Leaf, units: Units, have: Fetched) -> Answer:
        some = np.ones(len(units), np.bool_)
        reasons = dict.fromkeys(self.reasons)
        said = False
        for filters, hashes, at, groups in self._asked(leaf, units):
            said = True
            if not len(hashes):
                some[at] = False
            elif filters.words is None:
                some[at] = filters.external(hashes, groups, have, reasons)
            else:
                some[at] = filters.inlined(hashes, groups)
        if not said:
            return Answer(bounds=None, reasons=tuple(reasons)) if reasons else self.silent(leaf)
        none = np.zeros(len(units), np.bool_)
        unknown = np.full(len(units), -1, np.int64)
        bounds = with_nulls(leaf.op, some, none, units.rows, unknown)
        return Answer(bounds=bounds, reasons=tuple(reasons))

    def _asked(self, leaf: Leaf, units: Units) -> list[tuple[_PmFilters, Hashes, Ints, Ints]]:
        """Per file: filters, the leaf's hashes, the places of its units, and their row groups."""
        found = []
        order = np.argsort(units.file, kind="stable")
        ordered = units.file[order]
        for ordinal, filters in self.filters.items():
            key = (leaf, filters.stored)
            if key not in self._hashes:
                asked = hashes_of(leaf, filters.stored)
                self._hashes[key] = None if asked is None else asked[0]
            hashes = self._hashes[key]
            if hashes is None:
                continue
            first, stop = np.searchsorted(ordered, (ordinal, ordinal + 1))
            if first < stop:
                at = order[first:stop]
                found.append((filters, hashes, at, units.ordinal[at]))
        return found
