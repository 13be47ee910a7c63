"""Bloom filters of a ``_pm`` as evidence: inlined ones need nothing, external ones some blocks.

An entry leads to a bare bitset: inlined in the ``_pm``, or in the data file, where a block of 32
bytes per value and row group is asked for, or the whole of a small one for many values. Values are
hashed as for Parquet's own filters (``index/parquet/hashed.py``).

Proves absence, never presence: it excludes row groups for ``=`` and ``IN``, and says no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.parquet.evidence.bloom_hashes import hashes_of
from skipstone.parquet.evidence.indexed_file import why
from skipstone.parquet.format.bloom_filter import BLOCK_BYTES, block_of, set_in
from skipstone.pruning import Answer, BaseEvidence, Cause, Level, Reason
from skipstone.pruning.interval import with_nulls
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.evidence.bloom_hashes import Hashes
    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Fetched, Units

    from .pm_file import PmFile

__all__ = ["PmBloomEvidence"]

IntArray: TypeAlias = "NDArray[np.int64]"

# A request costs about as much as this many bytes more of one that is made anyway.
_REQUEST = 8_192
# Words of blocks that are gathered at a time: bounds the memory of a long IN list.
_WORDS = 1 << 20
_UNREAD = Reason(cause=Cause.UNREADABLE, subject="_pm bloom filter", text="not fetched")


class _Filters:
    """Where the filters of one column of one file lie: of bitsets in ``data``, or in the data file
    where ``data`` is ``None``; ``blocks`` int64 (row groups,), 0 where there is none."""

    def __init__(self, file: PmFile, place: int, stored: Stored) -> None:
        pm = file.snapshot.pm
        offsets, lengths = file.snapshot.bloom_places
        at = pm.bloom_columns.index(place)
        self.file, self.stored = file, stored
        self.offsets, self.blocks = offsets[:, at], lengths[:, at] // BLOCK_BYTES
        self.words = None if pm.bloom_external else np.frombuffer(pm.data, "<u4", pm.size >> 2)

    def inlined(self, hashes: Hashes, groups: IntArray) -> BoolArray:
        """Per row group: False where no value can be in it."""
        assert self.words is not None
        some = np.ones(len(groups), np.bool_)
        there = np.flatnonzero(self.blocks[groups] > 0)
        step = max(1, _WORDS // max(1, 8 * len(hashes)))
        for start in range(0, len(there), step):
            at = there[start : start + step]
            first = (self.offsets[groups[at]] >> 2)[:, None]
            first = first + 8 * block_of(hashes, self.blocks[groups[at]][:, None])
            words = self.words[first[..., None] + np.arange(8)]
            some[at] = set_in(words, hashes).any(axis=1)
        return some

    def ranges(self, hashes: Hashes, groups: IntArray) -> list[list[ByteRange]]:
        """Per row group what must be fetched: one block per hash, or the whole bitset."""
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
        self, hashes: Hashes, groups: IntArray, have: Fetched, reasons: dict[Reason, None]
    ) -> BoolArray:
        """As ``inlined``, from what was fetched."""
        some = np.ones(len(groups), np.bool_)
        for at, ranges in enumerate(self.ranges(hashes, groups)):
            parts = [have.get(each) for each in ranges]
            got = [part for part in parts if part is not None]
            if len(got) < len(parts):
                reasons.setdefault(_UNREAD)
            elif got:
                words = np.frombuffer(b"".join(got), "<u4").reshape(-1, 8)
                if len(got) < len(hashes):
                    words = words[block_of(hashes, len(words))]
                some[at] = set_in(words, hashes).any()
        return some


class PmBloomEvidence(BaseEvidence):
    """The filters of one column in all files that have any; see the module."""

    name = "_pm bloom filter"
    level = Level.ROW_GROUP
    cost = 2.0

    def __init__(
        self, column: str, filters: Mapping[int, _Filters], reasons: Sequence[Reason]
    ) -> None:
        self.column, self.filters, self.reasons = column, filters, tuple(reasons)
        self._hashes: dict[tuple[Leaf, Stored], Hashes | None] = {}
        if any(each.words is None for each in filters.values()):
            self.cost = 5.0

    @classmethod
    def of(cls, column: str, files: Mapping[int, PmFile]) -> Self | None:
        """The evidence where any of ``files`` has filters for ``column``."""
        filters: dict[int, _Filters] = {}
        reasons: dict[Reason, None] = {}
        for ordinal, file in files.items():
            if not file.snapshot.pm.bloom_columns:
                continue
            try:
                known = file.stored(column)
                if known is not None and known[0] in file.snapshot.pm.bloom_columns:
                    filters[ordinal] = _Filters(file, *known)
            except (SkipstoneError, ValueError) as error:
                reasons.setdefault(why(error, f"{cls.name}({column})"))
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
        """One answer per leaf, over exactly these units."""
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
            if reasons:
                return Answer(bounds=None, reasons=tuple(reasons))
            text = f"says nothing of {leaf.op}"
            return Answer.silent(Cause.NOT_APPLICABLE, f"{self.name}({self.column})", text)
        none = np.zeros(len(units), np.bool_)
        unknown = np.full(len(units), -1, np.int64)
        bounds = with_nulls(leaf.op, some, none, units.rows, unknown)
        return Answer(bounds=bounds, reasons=tuple(reasons))

    def _asked(self, leaf: Leaf, units: Units) -> list[tuple[_Filters, Hashes, IntArray, IntArray]]:
        """Per file: its filters, the leaf's hashes, where its units are, and their row groups."""
        found = []
        order = np.argsort(units.file, kind="stable")
        ordered = units.file[order]
        for ordinal, filters in self.filters.items():
            key = (leaf, filters.stored)
            if key not in self._hashes:
                self._hashes[key] = hashes_of(leaf, filters.stored)
            hashes = self._hashes[key]
            if hashes is None:
                continue
            first, stop = np.searchsorted(ordered, (ordinal, ordinal + 1))
            if first < stop:
                at = order[first:stop]
                found.append((filters, hashes, at, units.ordinal[at]))
        return found
