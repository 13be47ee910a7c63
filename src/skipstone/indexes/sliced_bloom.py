"""Answers for Bloom filters by range reads of their bit slices (``bloom_slices.py``).

``needs`` names the rows of the asked positions, ``k`` for each value and group of files; ``answer``
combines them. The answers are those of the filters, which stay in the facts. Slices are a second
copy of the filters: if a row is lost or its checksum is wrong, the filters of that part are asked
one by one, with a reason.

Only the members of the groups are held in memory: a few bytes per file.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.predicate.tree import Leaf
from skipstone.pruning import Answer, Bounds, Cause, Reason
from skipstone.pruning.column_types import restate
from skipstone.pruning.interval import with_nulls
from skipstone.storage import ByteRange
from skipstone.xskipper.format.bloom_probe import BlobColumn, hashes_of
from skipstone.xskipper.format.sketch import positions

from .bloom import Bloom, items_of
from .bloom_slices import SWAP, SliceGroup, row_of
from .text import TextIndex, some_in, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.pruning import BoolArray, Fetched, Units
    from skipstone.pruning.kind import Rows, Stored
    from skipstone.xskipper.format.bloom_probe import Hashed, Items


Bits: TypeAlias = "NDArray[np.uint8]"

# If a long IN list would read more bytes than this, the filters themselves answer it.
_MOST_BYTES = 256 * 1024 * 1024
# The most bytes of filters that a plan reads because of damaged slices.
_MOST_FILTERS = 1 << 30


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AskedGroup:
    """One group of slices: the ``path`` of its object, the number of its part, and the rows of its
    members in ``Stored``: a slice, or positions."""

    path: str
    part: int
    group: SliceGroup
    rows: slice | NDArray[np.int64]

    def ranges(self, places: NDArray[np.int64]) -> list[ByteRange]:
        """The byte ranges of the rows of these positions."""
        at, stride = self.group.slices, self.group.stride
        return [ByteRange(self.path, at + row * stride, stride) for row in (places ^ SWAP).tolist()]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AskedPart:
    """The filters of one part: its rows ``first`` to ``last`` of ``Stored``; the ``rest`` (rows and
    filters); and ``read``, which reads all of its filters, ``nbytes`` in total."""

    name: str
    first: int
    last: int
    nbytes: int
    read: Callable[[], pa.Array]
    rest: tuple[NDArray[np.int64], pa.Array] | None = None


class SlicedBloom(Bloom):
    """See the module. Made by the fact store, never by a user."""

    name = "bloom slices"
    cost = 9.0
    tolerates_loss = True

    def sliced(
        self, stored: Stored, parts: Sequence[AskedPart], groups: Sequence[AskedGroup]
    ) -> SlicedBloom:
        """A copy that answers from these slices; ``stored`` has no values."""
        made = self.read_back(stored)
        made.parts, made.groups = tuple(parts), tuple(groups)
        known = np.zeros(len(stored.rows), np.bool_)
        made.group_of_row = np.full(len(stored.rows), -1, np.int32)
        for number, group in enumerate(made.groups):
            known[group.rows] = True
            made.group_of_row[group.rows] = number
        made.rests = []
        for part in parts:
            if part.rest is not None:
                at = part.first + part.rest[0]
                blobs = BlobColumn(part.rest[1])
                known[at] |= blobs.ok
                made.rests.append((at, blobs))
        stored.cache["known"] = known
        made.have, made.notes = {}, []
        return made

    parts: tuple[AskedPart, ...]
    groups: tuple[AskedGroup, ...]
    group_of_row: NDArray[np.int32]
    rests: list[tuple[NDArray[np.int64], BlobColumn]]
    have: Fetched
    notes: list[Reason]

    def known(self, stored: Stored) -> BoolArray:
        """Flags of the rows with a filter."""
        found: BoolArray = stored.cache["known"]
        return found

    # -- what to read ------------------------------------------------------------------------------

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The rows of all positions, in the groups of these units."""
        assert self.stored is not None
        groups: Sequence[int] = range(len(self.groups))
        if len(units) < len(self.stored.row_of_file):
            row = self.stored.row_of_file[units.file]
            groups = self._asked(row[row >= 0])
        found: dict[ByteRange, None] = {}
        for leaf in leaves:
            local = restate(leaf, self.stored.type)
            if isinstance(local, Leaf) and local.op in self.ops and self._says(local):
                if have and all(each in have for each in self._ranges(local, groups[:1])):
                    continue  # all rows were asked for at once
                found.update(dict.fromkeys(self._ranges(local, groups)))
        return tuple(found)

    def _asked(self, rows: NDArray[np.int64]) -> list[int]:
        """The groups with any of these rows."""
        flags = np.zeros(len(self.groups) + 1, np.bool_)
        flags[self.group_of_row[rows]] = True
        return [int(each) for each in np.flatnonzero(flags[:-1])]

    def _ranges(self, leaf: Leaf, groups: Sequence[int]) -> list[ByteRange]:
        asked = [self.groups[number] for number in groups]
        if not self._affordable(leaf, asked):
            return []
        hashes = self._hashed(leaf, asked)
        return [
            each
            for group in asked
            for each in group.ranges(_places(hashes, group.group).reshape(-1))
        ]

    def _affordable(self, leaf: Leaf, groups: Sequence[AskedGroup]) -> bool:
        each = sum(group.group.hashes * group.group.stride for group in groups)
        return len(leaf.values) <= 1 or each * len(self._items(leaf)[0]) <= _MOST_BYTES

    def _hashed(self, leaf: Leaf, groups: Sequence[AskedGroup]) -> Hashed:
        """The two hashes of each item, by seed."""
        items, known = self._items(leaf)
        for seed in {each.group.seed for each in groups} - known.keys():
            known[seed] = hashes_of(items, seed)
        return known

    # -- what is asked -----------------------------------------------------------------------------

    def _says(self, leaf: Leaf) -> bool:
        """Whether the filters can answer a leaf."""
        return not self.by_chance(np.array([len(leaf.values)]))[0]

    def _items(self, leaf: Leaf) -> tuple[Items, Hashed]:
        """The items that are looked up, and the known hashes."""
        if isinstance(leaf.values, tuple):
            return items_of(leaf), {}
        return items_of(leaf), leaf.values.cache.setdefault("bloom hashes", {})

    def _joined(self, leaf: Leaf, bits: Iterator[Bits]) -> Bits:
        """The files that may have a match, from those that may have each item."""
        found = next(bits)
        for each in bits:
            found = found | each
        return found

    def _some(self, leaf: Leaf, blobs: BlobColumn) -> BoolArray:
        """The filters that may have a match, from whole filters."""
        return blobs.might_contain_any(items_of(leaf))

    # -- what they say -----------------------------------------------------------------------------

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf."""
        assert self.stored is not None
        if len(units) == len(self.stored.row_of_file):
            _ = self._of_every_file  # kept here, not in the copy
        asking = copy.copy(self)
        asking.have, asking.notes = have, []
        answers = super(SlicedBloom, asking).answer(leaves, units, have)
        if not asking.notes:
            return answers
        notes = tuple(dict.fromkeys(asking.notes))
        return [Answer(bounds=each.bounds, reasons=(*each.reasons, *notes)) for each in answers]

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """``may`` where any value of the leaf may occur; never ``must``."""
        if not self._says(leaf):
            return None
        some = np.ones(len(rows.stored.rows), np.bool_)
        numbers = range(len(self.groups)) if rows.at is None else self._asked(rows.at)
        asked = [self.groups[number] for number in numbers]
        lost: dict[int, str] = {}
        if not leaf.values:
            some[:] = False
        elif self._affordable(leaf, asked):
            hashes = self._hashed(leaf, asked)
            for group in asked:
                flags = self._flags(leaf, group, _places(hashes, group.group))
                if isinstance(flags, str):
                    lost.setdefault(group.part, flags)
                else:
                    some[group.rows] = flags
        else:
            text = f"{len(leaf.values):,} values: their filters are read instead"
            self.notes.append(Reason(cause=Cause.COSTLY, subject=self._subject, text=text))
            lost = dict.fromkeys((group.part for group in asked), "")
        for at, blobs in self.rests if leaf.values else ():
            some[at] = self._some(leaf, blobs)
        self._one_by_one(leaf, lost, some)
        if rows.at is not None:
            some = some[rows.at]
        if rows.filled:
            return Bounds(np.zeros_like(some), some)
        return with_nulls(leaf.op, some, np.zeros_like(some), rows.rows, rows.nulls)

    def _flags(self, leaf: Leaf, group: AskedGroup, places: NDArray[np.int64]) -> BoolArray | str:
        """Per member: whether its filter may have a match; a text where the slices are damaged.

        ``places``: a row of positions per item.
        """
        ranges = iter(group.ranges(places.reshape(-1)))

        def rows() -> Iterator[Bits]:
            for _ in range(len(places)):
                every = None
                for _ in range(places.shape[1]):
                    asked = next(ranges)
                    data = self.have.get(asked)
                    if data is None:
                        text = f"{asked.path}: {asked.length:,} bytes at {asked.offset:,}"
                        raise _Lost(f"{text} were not read")
                    bits = row_of(data, group.group)
                    if bits is None:
                        raise _Lost(f"{asked.path}: the checksum at {asked.offset:,} is wrong")
                    every = bits if every is None else every & bits
                assert every is not None  # at least one hash function
                yield every

        try:
            found = self._joined(leaf, rows())
        except _Lost as lost:
            return str(lost)
        return np.unpackbits(found, count=group.group.files, bitorder="little").view(np.bool_)

    def _one_by_one(self, leaf: Leaf, lost: dict[int, str], some: BoolArray) -> None:
        """Asks the filters of parts whose slices are ``lost``, and notes why."""
        left = _MOST_FILTERS
        for number, why in lost.items():
            part = self.parts[number]
            rows = slice(part.first, part.last)
            some[rows] = True
            count = int(self.known(self.stored)[rows].sum()) if self.stored is not None else 0
            left -= part.nbytes
            if left < 0:
                text = f"the filters of {part.name} are too large to read instead"
                reason = Reason(cause=Cause.COSTLY, subject=self._subject, text=text, units=count)
                self.notes.append(reason)
                continue
            if why:
                text = f"{why}: the filters are asked one by one"
                reason = Reason(cause=Cause.CORRUPT, subject=self._subject, text=text, units=count)
                self.notes.append(reason)
            try:
                some[rows] = self._some(leaf, BlobColumn(part.read()))
            except Exception as error:  # evidence is advice
                self.notes.append(Reason.of_error(f"fact part {part.name}", error))


class _Lost(Exception):
    """Slices that are damaged or were not read; the text says why."""


class SlicedText(SlicedBloom):
    """Slices of the filters of grams and tokens; ``kind`` is their definition."""

    cost = 10.5
    ops = TextIndex.ops
    kind: TextIndex

    def __init__(self, kind: TextIndex) -> None:
        super().__init__(kind.column)
        self.kind = kind
        # A plan may use slices and whole filters, and usage statistics distinguish them.
        self.name = f"{kind.name} slices"

    def _says(self, leaf: Leaf) -> bool:
        return self.kind.asked(leaf) is not None

    def _items(self, leaf: Leaf) -> tuple[Items, Hashed]:
        asked = self.kind.asked(leaf)
        assert asked is not None
        return asked.keys.view(np.int64), asked.hashed

    def _joined(self, leaf: Leaf, bits: Iterator[Bits]) -> Bits:
        asked, held = self.kind.asked(leaf), np.stack(list(bits))
        assert asked is not None
        every = np.full_like(held[0], 0xFF)
        return some_of(
            asked, every, lambda places, some: some & np.bitwise_and.reduce(held[places])
        )

    def _some(self, leaf: Leaf, blobs: BlobColumn) -> BoolArray:
        asked = self.kind.asked(leaf)
        assert asked is not None
        return some_in(asked, blobs, np.ones(len(blobs), np.bool_))

    def silence(self, leaf: Leaf) -> str:
        return self.kind.silence(leaf)


def _places(hashes: Hashed, group: SliceGroup) -> NDArray[np.int64]:
    """Positions of the values in filters of this group, shape (values, hashes)."""
    h1, h2 = hashes[group.seed]
    columns = [
        positions(h1, h2, j, group.version).astype(np.int64) % group.bits
        for j in range(1, group.hashes + 1)
    ]
    return np.stack(columns, axis=1)
