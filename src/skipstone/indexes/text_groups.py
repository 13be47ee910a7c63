"""Grams and tokens by row group: the filters of a file with several row groups, and their answers.

A file of ``LEAST_TEXT`` bytes of text and of several row groups has the filter of ``text.py`` and
one filter for each row group, over the same keys (``row_group_filters.py``). Such a filter takes at
most ``share`` of the bytes of the texts of its row group. If the long grams of a file do not fit
into ``max_bytes``, only these filters have them. If the long grams do not fit here either, the
filter has only short grams. If those would fill it too much, the row group has no filter, and
``explain`` counts it.

A row group of ``LARGE`` bytes of text has filters of **parts** instead: runs of rows with about
``PART`` bytes each, within the same share. A row group may hold a match if one of its parts may.
``text_parts.py`` answers for parts.

A lookup of a pattern uses some of its keys: first those of long grams, spread over the pattern. It
reads the head of a file's filters once and keeps it, then one block for each key.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.predicate.tree import Const
from skipstone.pruning import Answer, BoolArray, Bounds, Cause, Level, Reason
from skipstone.pruning.column_types import restate
from skipstone.pruning.kind import Index

from .row_group_filters import FilterBits, GroupFilter, GroupFilters, count_distinct, to_bytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Fetched, Units
    from skipstone.pruning.kind import Blob, Builder, Stored
    from skipstone.storage import ByteRange
    from skipstone.xskipper.format.bloom_probe import Hashed

    from .row_group_filters import GroupTable, Keys


#: a file with less text has no filters of its row groups: it is read at once
LEAST_TEXT: Final = 1 << 20
#: bytes of text: of a row group that is divided into parts, and about of a part; the most parts
LARGE: Final = 16 << 20
PART: Final = 2 << 20
MOST_PARTS: Final = 64
#: the place of the filters in the sidecar of their file, and the length of their head
PLACE: Final = pa.struct({"start": pa.int64(), "length": pa.int64(), "head": pa.int64()})
# The least number of pages of a row group that is divided: a page is read whole.
_LEAST_PAGES: Final = 4
# The bytes of the smallest filter of a row group.
_LEAST: Final = 2_048
# The most keys that are looked up for a pattern, and for all texts of a list together.
_KEYS, _MOST_KEYS = 16, 128
# Heads are read once, and rarely have more than some hundred bytes.
_HEADS: LruCache[Hashable, GroupFilters] = LruCache(10_000)
# How many answers of filters of parts are kept: row groups are asked first, then the parts of some.
_MOST_ANSWERS: Final = 4_096


@dataclass(frozen=True, eq=False)
class Asked:
    """The keys of a leaf. ``texts`` has for each text the places of the keys that it needs: short
    grams or tokens, then long grams. The first keys are ``SHORT_ALONE``."""

    keys: Keys
    texts: tuple[tuple[range, range], ...]
    hashed: Hashed = field(default_factory=dict)


class AsksTexts(Protocol):
    """The index whose filters of row groups are asked."""

    name: str
    column: str

    @property
    def params(self) -> Mapping[str, str]:
        """Its parameters."""

    def asked(self, leaf: Leaf) -> Asked | None:
        """The keys that a leaf needs."""

    def silence(self, leaf: Leaf) -> str:
        """Why the leaf needs no keys."""


# -- building --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The parameters of the index that apply to filters of row groups; see ``text.py``."""

    share: float
    max_bytes: int
    fpp: float
    worthless: float


class _Grams:
    """The keys of one length in one row group: as numbers, and as bits once there are too many."""

    def __init__(self) -> None:
        self.parts: list[Keys] = []
        self.held = 0
        self.bits: FilterBits | None = None

    @property
    def nbytes(self) -> int:
        return 8 * self.held + (0 if self.bits is None else self.bits.nbytes)

    def take(self, keys: Keys) -> None:
        if self.bits is not None:
            self.bits.put(keys)
        elif len(keys):
            self.parts.append(keys)
            self.held += len(keys)

    def crowded(self, budget: int) -> bool:
        """Whether its keys take half of this many bytes."""
        return 16 * self.held > budget

    def relieve(self, part: float, most: int, fpp: float) -> None:
        """Frees memory after ``part`` (0 to 1) of the row group; assumes that the rest is alike."""
        self.parts = [np.unique(np.concatenate(self.parts))]
        count, self.held = self.held, len(self.parts[0])
        if 2 * self.held > count:
            self.bits = FilterBits(int(self.held / part), most, fpp)
            self.bits.put(self.parts[0])
            self.parts, self.held = [], 0


class GroupsBuilder:
    """Collects the filters of the row groups of one file, which have these ``rows`` each."""

    def __init__(self, limits: GroupLimits, rows: Sequence[int], budget: int) -> None:
        self.limits, self.rows, self.budget = limits, list(rows), budget
        #: whether the next part is of the same row group
        self.more = [False] * len(self.rows)
        #: about how many rows a page of each row group has, 0 if unknown
        self.pages: list[int] = []
        self.filters: list[GroupFilter | None] = []
        self.kept = self._read = self._bytes = 0
        self._grams = _Grams(), _Grams()
        self._skip_empty()

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.kept + sum(each.nbytes for each in self._grams)

    @property
    def left(self) -> int:
        """Rows until the end of the row group that is being read."""
        at = len(self.filters)
        return self.rows[at] - self._read if at < len(self.rows) else 0

    @property
    def at_begin(self) -> bool:
        """Whether the next row is the first of a row group."""
        at = len(self.filters)
        return not self._read and at < len(self.rows) and not (at and self.more[at - 1])

    def divide(self, nbytes: float) -> None:
        """Divides the next row group if it is large; ``nbytes`` is about the text of a row."""
        at = len(self.filters)
        rows, group = self.rows[at], at - sum(self.more[:at])
        page = self.pages[group] if group < len(self.pages) else 0
        if nbytes * rows < LARGE or not 0 < page * _LEAST_PAGES <= rows:
            return
        # Most pages have the same number of rows: then no page lies in two parts.
        each = page * max(round(PART / nbytes / page), -(-rows // (page * MOST_PARTS)), 1)
        sizes = [min(each, rows - first) for first in range(0, rows, each)]
        self.rows[at : at + 1] = sizes
        self.more[at : at + 1] = [True] * (len(sizes) - 1) + [False]

    def take(self, which: int, keys: Keys) -> None:
        """Adds keys of the row group that is being read: those of long grams, or the others (0)."""
        self._grams[which].take(keys)

    def advance(self, rows: int, nbytes: int) -> bool:
        """Call it after all keys of ``rows`` more rows were added, which have ``nbytes`` of text.
        Returns True at the end of a row group."""
        self._read, self._bytes = self._read + rows, self._bytes + nbytes
        total = self.rows[len(self.filters)]
        if self._read < total:
            grams = max(self._grams, key=lambda each: each.held)
            if grams.crowded(self.budget):
                part = self._read / total
                grams.relieve(part, self._most(int(self._bytes / part)), self.limits.fpp)
            return False
        self.finish_one()
        self._skip_empty()
        return True

    def _most(self, nbytes: int) -> int:
        # The head and the checksums take the rest of the share.
        share = int(self.limits.share * nbytes * 15 / 16) - 32
        return min(share, self.limits.max_bytes, self.budget // 16)

    def _skip_empty(self) -> None:
        while len(self.filters) < len(self.rows) and not self.rows[len(self.filters)]:
            self.filters.append(None)

    def finish_one(self) -> None:
        """Makes the filter of the row group that was read."""
        short, long = self._grams
        most, found = self._most(self._bytes), None
        if short.bits is None and most >= _LEAST and self.kept + most <= self.budget // 2:
            if long.bits is not None:
                for keys in short.parts:
                    long.bits.put(keys)
                found = self._worth(long.bits, complete=True)
            else:
                found = self._of([*short.parts, *long.parts], most, complete=True)
            if found is None:
                found = self._of(short.parts, most, complete=False)
        self.filters.append(found)
        self.kept += 0 if found is None else found.blocks.nbytes
        self.begin()

    def begin(self) -> None:
        """Begins the next row group."""
        self._read = self._bytes = 0
        self._grams = _Grams(), _Grams()

    def _of(self, parts: Sequence[Keys], most: int, *, complete: bool) -> GroupFilter | None:
        count = count_distinct(parts)
        if count > 8 * most / (1.3 * -math.log2(self.limits.worthless)):  # no filter is so small
            return None
        bits = FilterBits(count, most, self.limits.fpp)
        for keys in parts:
            bits.put(keys)
        return self._worth(bits, complete=complete)

    def _worth(self, bits: FilterBits, *, complete: bool) -> GroupFilter | None:
        found = bits.finish(complete=complete)
        return None if found.fpp > self.limits.worthless else found

    def finish(self, nbytes: int) -> tuple[bytes, int] | None:
        """The filters of a file with ``nbytes`` of text, and their head's length; ``None`` if
        none."""
        whole = len(self.filters) == len(self.rows) > 1
        if nbytes < LEAST_TEXT or not whole or not any(each is not None for each in self.filters):
            return None
        return to_bytes(self.rows, self.filters, self.more)


# -- asking ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """The keys that are looked up for a leaf, and which of them each text needs: in complete
    filters, and in others."""

    keys: Keys
    texts: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    @classmethod
    def of(cls, asked: Asked) -> _Lookup:
        each = max(2, min(_KEYS, _MOST_KEYS // max(len(asked.texts), 1)))
        wanted = []
        for short, long in asked.texts:
            some, rest = _spread(long, each), _spread(short, each)
            wanted.append((np.concatenate((some, rest))[:each], rest))
        used = np.unique(np.concatenate([part for pair in wanted for part in pair]))
        texts = [(np.searchsorted(used, a), np.searchsorted(used, b)) for a, b in wanted]
        return cls(asked.keys[used], tuple(texts))


def _spread(places: range, most: int) -> NDArray[np.int64]:
    count = min(len(places), most)
    at = np.linspace(0, max(len(places) - 1, 0), count).astype(np.int64)
    return np.asarray(places, np.int64)[at]


@dataclass(slots=True, eq=False)
class _Reasons:
    """What is wrong with the filters of some files, counted."""

    subject: str
    found: dict[tuple[Cause, str], int] = field(default_factory=dict)

    def add(self, cause: Cause, text: str, units: int) -> None:
        self.found[cause, text] = self.found.get((cause, text), 0) + units

    def reasons(self) -> tuple[Reason, ...]:
        return tuple(
            Reason(cause=cause, subject=self.subject, text=text, units=units)
            for (cause, text), units in self.found.items()
        )


class TextGroups(Index):
    """The filters of the row groups of all files, of the index ``kind``, as evidence."""

    level = Level.ROW_GROUP
    #: more than statistics, which are in memory, and less than dictionaries
    cost = 1.5
    sidecar = "filters"
    tolerates_loss = True

    def __init__(self, kind: AsksTexts) -> None:
        super().__init__(kind.column)
        self.kind, self.name = kind, kind.name
        #: which parts of a file may hold a leaf
        self.answers: LruCache[Hashable, BoolArray] = LruCache(_MOST_ANSWERS)

    @property
    def params(self) -> Mapping[str, str]:
        """Those of the index."""
        return self.kind.params

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        """A place."""
        return PLACE

    def build(self, type: pa.DataType, budget: int) -> Builder:
        """Raises ``UnsupportedError``: the builder of the index also makes these filters."""
        raise UnsupportedError(f"{self!r} is built with its index")

    def read_back(self, stored: Stored) -> Self:
        """Drops the answers for other files."""
        other = super().read_back(stored)
        other.answers = LruCache(_MOST_ANSWERS)
        return other

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """The heads that were not read yet; then a block for each key in each table."""
        lookups = [(leaf, each) for leaf in leaves if (each := self._lookup(leaf)) is not None]
        if not lookups:
            return ()
        found: dict[ByteRange, None] = {}
        for _, blob, head in self._files(units):
            try:
                filters = self.head(blob, head, have)
            except (FormatError, UnsupportedError):
                continue  # ``answer`` says so
            if filters is None:
                found[blob.span(0, head)] = None
                continue
            for leaf, lookup in lookups:
                if self.answers.get((leaf, blob.span(0, head))) is None:
                    for table in filters.tables:
                        found.update(dict.fromkeys(_spans(blob, table, lookup.keys)))
        return tuple(each for each in found if each not in have)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf: ``may`` where a row group may hold a match; never ``must``."""
        answers = []
        for leaf in leaves:
            lookup = self._lookup(leaf)
            if lookup is None:
                text = self.kind.silence(leaf)
                answers.append(Answer.silent(Cause.NOT_APPLICABLE, self.subject, text))
                continue
            reasons, may, asked = _Reasons(self.subject), np.ones(len(units), np.bool_), False
            for at, blob, head in self._files(units):
                try:
                    filters = self.head(blob, head, have)
                    if filters is None:
                        raise LookupError("its head was not read")
                    if not self.same(filters, units, at):
                        raise FormatError("row groups of another file")
                    place = None if blob.inline is not None else blob.span(0, head)
                    some = self._flagged_parts(leaf, lookup, filters, blob, have, place)
                    may[at] = self.hold_any(filters, some, units, at)
                    lacking = int(self.hold_any(filters, filters.table < 0, units, at).sum())
                    asked = True
                    if lacking:
                        reasons.add(Cause.OVER_LIMIT, "filters would be too full", lacking)
                except (FormatError, UnsupportedError, LookupError) as error:
                    found = Reason.of_error(self.subject, error)
                    lost = isinstance(error, LookupError)
                    cause = Cause.UNREADABLE if lost else found.cause
                    reasons.add(cause, found.text, len(at))
            bounds = Bounds(np.zeros(len(units), np.bool_), may) if asked else None
            answers.append(Answer(bounds=bounds, reasons=reasons.reasons() or self._none(asked)))
        return answers

    def _none(self, asked: bool) -> tuple[Reason, ...]:
        if asked:
            return ()
        text = "no file that is left has filters of its row groups"
        return (Reason(cause=Cause.ABSENT, subject=self.subject, text=text),)

    def _lookup(self, leaf: Leaf) -> _Lookup | None:
        assert self.stored is not None
        local = restate(leaf, self.stored.type)
        if local is None or isinstance(local, Const):
            return None
        asked = self.kind.asked(local)
        return None if asked is None else _Lookup.of(asked)

    def _files(self, units: Units) -> Iterator[tuple[NDArray[np.int64], Blob, int]]:
        """The units of each file that has filters, and the place of the filters."""
        assert self.stored is not None
        row = self.stored.row_of_file[units.file]
        held = np.flatnonzero(row >= 0)
        order = held[np.argsort(units.file[held], kind="stable")]
        edges = np.flatnonzero(np.diff(units.file[order])) + 1
        for at in np.split(order, edges) if len(order) else ():
            place = self.place(int(units.file[at[0]]))
            if place is not None:
                yield at, *place

    def place(self, file: int) -> tuple[Blob, int] | None:
        """The place of a file's filters, and the length of their head; ``None`` if it has none."""
        assert self.stored is not None
        assert self.stored.places is not None
        fact = int(self.stored.row_of_file[file])
        if fact < 0:
            return None
        value, sidecar = self.stored.values[fact].as_py(), self.stored.places.at(fact)
        if sidecar is None or value is None or None in value.values():
            return None
        blob = sidecar.part(value["start"], value["length"])
        return (blob, value["head"]) if blob and 0 < value["head"] <= blob.length else None

    @staticmethod
    def same(filters: GroupFilters, units: Units, at: NDArray[np.int64]) -> bool:
        """Whether the units are row groups of this file, by their rows."""
        group = units.ordinal[at]
        if group.max() >= len(filters.begins):
            return False
        same = filters.group_rows[group] == units.rows[at]
        return bool((same & (filters.first[filters.begins[group]] == units.first_row[at])).all())

    @staticmethod
    def hold_any(
        filters: GroupFilters, flags: BoolArray, units: Units, at: NDArray[np.int64]
    ) -> BoolArray:
        """Whether each of the units ``at`` holds rows of a part that is flagged."""
        return np.asarray(filters.of_groups(flags)[units.ordinal[at]])

    def head(self, blob: Blob, length: int, have: Fetched) -> GroupFilters | None:
        """The head of the filters at ``blob``; ``None`` if it was not read yet."""
        if blob.inline is not None:
            return GroupFilters.from_bytes(blob.inline[:length], blob.length)
        place = blob.span(0, length)
        found = _HEADS.get(place)
        if found is None and (data := have.get(place)) is not None:
            found = GroupFilters.from_bytes(data, blob.length)
            _HEADS.put(place, found)
        return found

    def _flagged_parts(
        self,
        leaf: Leaf,
        lookup: _Lookup,
        filters: GroupFilters,
        blob: Blob,
        have: Fetched,
        place: ByteRange | None,
    ) -> BoolArray:
        """Which parts of a file may hold a match; the filters in the pack at ``place`` are asked
        once."""
        found = None if place is None else self.answers.get((leaf, place))
        if found is None:
            found = self._some(lookup, filters, blob, have)
            if filters.in_parts and place is not None:
                self.answers.put((leaf, place), found)
        return found

    def _some(self, lookup: _Lookup, filters: GroupFilters, blob: Blob, have: Fetched) -> BoolArray:
        """Which parts of a file may hold a match."""
        count = len(filters.rows)
        hit = np.ones((len(lookup.keys), count), np.bool_)
        for number, table in enumerate(filters.tables):
            data = []
            for span in _spans(blob, table, lookup.keys):
                if blob.inline is not None:
                    data.append(blob.inline[span.offset : span.offset + span.length])
                elif span in have:
                    data.append(memoryview(have[span]))
                else:
                    raise LookupError("blocks of its filters were not read")
            here = np.flatnonzero(filters.table == number)
            hit[:, here] = table.hits(data, lookup.keys)[:, filters.lane[here]]
        some = np.zeros(count, np.bool_)
        for complete, short in lookup.texts:
            some |= np.where(filters.complete, hit[complete].all(axis=0), hit[short].all(axis=0))
        return np.asarray(some | (filters.table < 0))


def _spans(blob: Blob, table: GroupTable, keys: Keys) -> list[ByteRange]:
    """The place of the block of each key."""
    return [blob.span(at, table.stride) for at in table.offsets(keys)]
