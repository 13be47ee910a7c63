"""``Snapshot``: the union of the parts at one moment. ``MatchedFacts``: the same over a listing.

Rows are numbered over all parts, oldest part first: of several rows about one file the last is the
newest. Footers are read when the snapshot is taken, other columns on first use, and then kept as
arrays. An unreadable part proves nothing: its rows are missing, and ``reasons`` says why.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from skipstone._arrays import whole
from skipstone._dataclasses import dataclass
from skipstone.predicate.naming import SAME, Naming, Namings
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Places, Stored
from skipstone.pruning.table_schema import KnownSchemas

from .match import FileMatch, Identities, ends_of_files, match_files, places_of
from .part_columns import (
    FOOTER_LENGTH,
    IDENTITY,
    OWN,
    PAGE_INDEX_OFFSET,
    ROW_GROUPS,
    ROWS,
    SCHEMA,
    FactColumn,
    fields_named,
    in_pieces,
    integers,
    joined,
    nonnull,
    own_for_plans,
    place_columns,
)
from .parts import encryption_of
from .read_ahead import Background
from .slices import OpenSlices, SlicedField, open_slices, read_back_sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.kind import Index
    from skipstone.storage import ByteRange, Listing, Storage

    from .encrypted_packs import EncryptedPacks
    from .index_encryption import IndexEncryption
    from .location import Location
    from .part_columns import Definition, FactField
    from .parts import Part
    from .read_ahead import ReadAhead


_SERIAL = 4 << 20
# A process that has looked up so many keys asks often enough to hold the filters in memory.
_FEW_KEYS = 8


class Snapshot:
    """See the module. Made by ``Store.snapshot``."""

    #: True where its parts can be evaluated batch by batch, in other processes
    in_batches: ClassVar[bool] = True
    #: how the files name columns that ``fields`` have by the table's names (``renamed.py``)
    naming: Naming = SAME

    def __init__(
        self,
        location: Location,
        storage: Storage,
        parts: Sequence[Part],
        reasons: Sequence[Reason] = (),
        warn: Callable[[Reason], None] = lambda reason: None,
        packs: EncryptedPacks | None = None,
        slices: Mapping[str, int] | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        """``slices`` has the size of the bit slices of some parts, by the part's name; ``ahead``
        has bytes of an object store."""
        self.location, self.storage = location, storage
        self.parts = tuple(sorted(parts, key=lambda part: (part.mtime, part.name)))
        self._reasons = dict.fromkeys(reasons)
        self._warn, self._packs = warn, packs
        self.listed_slices = slices or {}
        self._ahead = ahead
        self._columns: dict[tuple[object, frozenset[str]], list[FactColumn]] = {}
        self._own: dict[str, pa.ChunkedArray] = {}
        self._matched: MatchedFacts | None = None
        #: keys that were looked up in Bloom filters so far, by the key of the index
        self.asked: Counter[tuple[str, str, str]] = Counter()
        self.background = Background()

    def __repr__(self) -> str:
        rows = sum(part.rows for part in self.parts)
        return f"Snapshot({self.location.root!r}, {len(self.parts):,} parts, {rows:,} rows)"

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What could not be read so far, and why."""
        of_packs = () if self._packs is None else self._packs.reasons
        return tuple(dict.fromkeys((*self._reasons, *of_packs)))

    def add_reason(self, reason: Reason) -> None:
        """Keep and log a reason."""
        self._reasons.setdefault(reason)
        self._warn(reason)

    # -- what the footers say ---------------------------------------------------------------------
    @cached_property
    def fields(self) -> tuple[FactField, ...]:
        """The index, null count and other columns of all parts; the same in two parts once."""
        found: dict[tuple[str, str, str], FactField] = {}
        for part in self.parts:
            for field_ in part.fields:
                known = found.get(field_.key)
                if known is None or field_.built > known.built:
                    found[field_.key] = field_
        return tuple(found.values())

    def fields_over(self, columns: Collection[str]) -> list[FactField]:
        """The fact columns that evidence over ``columns`` is made of."""
        return [
            field_
            for field_ in self.fields
            if field_.nulls in columns
            or (field_.definition and not set(field_.definition.columns).isdisjoint(columns))
        ]

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """One definition per kind and columns: the most recent, where parameters changed."""
        found: dict[tuple[str, tuple[str, ...]], Definition] = {}
        for field_ in self.fields:
            new = field_.definition
            if new is not None:
                known = found.get((new.kind, new.columns))
                if known is None or new.built >= known.built:
                    found[new.kind, new.columns] = new
        return tuple(found.values())

    @cached_property
    def inline_limit(self) -> int | None:
        """Up to how many bytes sidecars lie in the facts, by the newest part that has a limit."""
        limits = (part.inline_limit for part in reversed(self.parts))
        return next((limit for limit in limits if limit is not None), None)

    @cached_property
    def encryption(self) -> IndexEncryption | None:
        """How the newest encrypted part is encrypted, with all labels; ``None`` where none is."""
        return encryption_of(self.parts, self.definitions)

    @cached_property
    def size(self) -> int:
        """Bytes of all parts and bit slices."""
        return sum(part.size for part in self.parts) + sum(self.listed_slices.values())

    @cached_property
    def _opened(self) -> tuple[dict[str, OpenSlices], list[Reason]]:
        if not self.listed_slices or self.encryption is not None:
            return {}, []
        source = self.storage if self._ahead is None else self._ahead
        found = open_slices(self.parts, self.listed_slices, self.location, source)
        for reason in found[1]:
            self.add_reason(reason)
        return found

    @property
    def slices(self) -> Mapping[str, OpenSlices]:
        """The bit slices that can be used, by the name of their part."""
        return self._opened[0]

    @property
    def slice_reasons(self) -> Sequence[Reason]:
        """Why bit slices cannot be used."""
        return self._opened[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the index columns that were read so far, and are held."""
        pieces = [piece for column in list(self._columns.values()) for piece in column]
        return sum(piece.values.nbytes for piece in pieces)

    # -- what the columns say ---------------------------------------------------------------------

    def read_ahead(self, columns: Collection[str]) -> None:
        """Reads what a plan over ``columns``, in any case, needs of an object store at once."""
        if self._ahead is not None:
            with suppress(Exception):  # whoever needs the bytes reads them, and reports the error
                self._fetch_ahead(self._ahead, columns)

    def _fetch_ahead(self, ahead: ReadAhead, columns: Collection[str]) -> None:
        named = fields_named(self.fields, columns)
        own = own_for_plans(named) - self._own.keys()
        first = set() if "identities" in self.__dict__ else {*IDENTITY, ROWS}
        keys = {field_.key for field_ in named} - {key for key, _ in self._columns}
        ranges: list[ByteRange] = []
        for part in self.parts:
            sliced = self.slices.get(part.name)
            names = {part.by_key[key].arrow.name for key in keys if key in part.by_key}
            names = {name for name in names if sliced is None or sliced.column(name) is None}
            if part.held is not None:
                ranges += part.held.ranges(part.places({*own, *first, *names}))
        ahead.fetch(ranges, {part.path: part.held.id for part in self.parts if part.held})
        self._load(sorted(own))

    def drop_read_ahead(self) -> None:
        """Drops the bytes that were read ahead and not asked for."""
        if self._ahead is not None:
            self._ahead.clear()

    @cached_property
    def identities(self) -> Identities:
        """The identity and row count of every fact row."""
        read = self._read(self.parts, [[*IDENTITY, ROWS]] * len(self.parts))
        return Identities.of(read)

    def own(self, name: str) -> pa.ChunkedArray:
        """One of the columns of ``OWN``, over the rows of ``identities``."""
        if name not in self._own:  # with those of every plan: each read opens all parts
            self._load(sorted({name, *own_for_plans(())} - self._own.keys()))
        return self._own[name]

    def _load(self, names: Sequence[str]) -> None:
        """Reads columns of ``OWN`` together."""
        parts = self.identities.parts
        read = self._read(parts, [names] * len(parts)) if names else ()
        tables = {part.name: table for part, table in read}
        for name in names:
            type, chunks = OWN[name], list[pa.Array]()
            for part in parts:
                held = tables.get(part.name)
                chunks += [pa.nulls(part.rows, type)] if held is None else held.column(name).chunks
            self._own[name] = pa.chunked_array(chunks, type)

    def values(self, field_: FactField, without: frozenset[str] = frozenset()) -> list[FactColumn]:
        """One column over all parts that have it, except those ``without``, in pieces of at most
        about 1 GiB."""
        key = (field_.key, without)
        if key not in self._columns:
            self._columns[key] = list(in_pieces(self._chunks(field_, without)))
        return self._columns[key]

    def is_being_read(self, field_: FactField, without: frozenset[str]) -> bool:
        """Whether a thread is reading these ``values``; starts it unless they are read already.
        That takes as long as some 50 lookups in pieces, so a lookup does not wait for it."""
        key = (field_.key, without)
        if key in self._columns or self.storage.remote:
            return False
        return self.background.is_running(key, partial(self.values, field_, without))

    def _chunks(
        self, field_: FactField, without: frozenset[str]
    ) -> Iterator[tuple[int, pa.Array, Mapping[str, NDArray[Any]]]]:
        identities = self.identities
        having = [
            part
            for part in identities.parts
            if field_.key in part.by_key and part.name not in without
        ]
        names = [[part.by_key[field_.key].arrow.name] for part in having]
        for part, table in self._read(having, names, locked=field_.subject):
            first = identities.starts[part.name]
            for chunk in table.column(0).chunks:
                yield first, chunk, {}
                first += len(chunk)

    def _read(
        self, parts: Sequence[Part], names: Sequence[Sequence[str]], *, locked: str | None = None
    ) -> list[tuple[Part, pa.Table]]:
        """The columns ``names`` of each part. Unreadable parts are left out, with a reason; its
        subject is ``locked`` where a key is missing."""

        def read(part: Part, wanted: Sequence[str]) -> pa.Table | Reason:
            try:
                return part.read(self.storage, wanted)
            except Exception as error:  # whatever is wrong with a part, the query continues
                found = Reason.of_error(f"fact part {part.name}", error)
                if locked is None or found.cause is not Cause.UNDECRYPTABLE:
                    return found
                return replace(found, subject=locked)

        # A few small files are read before a pool of threads has started.
        if len(parts) < 2 or not (self.storage.remote or self.size > _SERIAL):
            results = list(map(read, parts, names))
        else:
            most = 32 if self.storage.remote else 8
            with ThreadPoolExecutor(min(most, len(parts))) as pool:
                results = list(pool.map(read, parts, names))
        found = []
        for part, result in zip(parts, results, strict=True):
            if isinstance(result, Reason):
                self.add_reason(result)
            else:
                found.append((part, result))
        return found

    def read_ranges(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, memoryview]:
        """Ranges of sidecars by the places in the facts, whether the index is encrypted or not."""
        return (self._packs or self.storage).read_ranges(ranges)

    def match(self, listing: Listing, fingerprint: str | None = None) -> MatchedFacts:
        """Which facts are about which files of ``listing``, as they are now.

        ``fingerprint`` is that of the reader's options and schema: facts that were built under
        another one are not used.
        """
        fingerprint, last = fingerprint or None, self._matched
        key = fingerprint, listing.root
        same = last is not None and (last.fingerprint, last.listing.root) == key
        if last is None or not same or not last.listing.same_files(listing):
            found = match_files(self.identities, listing, fingerprint)
            last = self._matched = MatchedFacts(
                **vars(found), snapshot=self, listing=listing, fingerprint=fingerprint
            )
        return last


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchedFacts(FileMatch):
    """The facts of a snapshot for the files of a listing, and their evidence."""

    snapshot: Snapshot
    listing: Listing
    fingerprint: str | None
    _unusable: dict[Reason, None] = field(default_factory=dict, init=False, repr=False)
    _evidence: dict[tuple[object, ...], list[Index]] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_slices: dict[tuple[str, str, str], SlicedField] = field(
        default_factory=dict, init=False, repr=False
    )
    _known_rows: dict[str, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)
    _known_places: dict[str, Places] = field(default_factory=dict, init=False, repr=False)
    #: what ``renamed.py`` has made of these facts
    renamed: dict[Namings, list[Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why some facts prove nothing; grows as evidence is made."""
        return tuple(dict.fromkeys((*self.snapshot.reasons, *self.notes, *self._unusable)))

    def evidence(
        self, columns: Collection[str], *, of_row_groups: bool = False, keys: int | None = None
    ) -> list[Index]:
        """The indexes and null counts over ``columns`` about files, or ``of_row_groups``.

        One per kind, parameters and types (and per GiB). What is unknown or of another type adds a
        reason. For the first few ``keys``, values to look up, Bloom filters are read in pieces."""
        found = [] if of_row_groups else self.sliced(columns)
        for field_ in self.snapshot.fields_over(columns):
            if field_.of_row_groups == of_row_groups:
                seldom = False
                if keys is not None and (of := field_.definition) and of.kind == "bloomfilter":
                    self.snapshot.asked[field_.key] += keys
                    seldom = self.snapshot.asked[field_.key] <= _FEW_KEYS
                    if not seldom and keys <= _FEW_KEYS:
                        without = self.sliced_parts(field_)
                        seldom = self.snapshot.is_being_read(field_, without)
                if (key := (field_.key, seldom)) not in self._evidence:
                    self._evidence[key] = self._read_back(field_, seldom)
                found += self._evidence[key]
        return found

    def sliced(self, columns: Collection[str]) -> list[Index]:
        """The bit slices of Bloom filters over ``columns``, as evidence."""
        fields = self.snapshot.fields_over(columns) if self.snapshot.slices else ()
        found = (self._sliced(field_).evidence for field_ in fields)
        return [each for each in found if each is not None]

    def sliced_parts(self, field_: FactField) -> frozenset[str]:
        """The parts whose filters of ``field_`` are asked through their bit slices."""
        return self._sliced(field_).parts

    def _sliced(self, field_: FactField) -> SlicedField:
        found = self._known_slices.get(field_.key)
        if found is None:
            snapshot, nulls = self.snapshot, partial(self._nulls, field_)
            of = snapshot.identities, self, nulls, snapshot.storage
            found = self._known_slices[field_.key] = read_back_sliced(field_, snapshot.slices, *of)
            for reason in found.reasons:
                snapshot.add_reason(reason)
        return found

    def _read_back(self, field_: FactField, seldom: bool) -> list[Index]:
        try:
            index = field_.index
            assert field_.types is not None
            type_ = field_.types.field(0).type
            stored = index.stored_type(type_)
        except Exception as error:  # a kind of the user's own may raise anything
            self._add_unusable(field_.subject, getattr(error, "message", str(error)))
            return []
        places = None if index.sidecar is None else self.places(index.sidecar)
        found: list[Index] = []
        snapshot, without = self.snapshot, self.sliced_parts(field_)
        if seldom:
            from .filter_pieces import read_back_pieces

            of = snapshot.identities, self, partial(self._nulls, field_), snapshot.storage
            pieced, parts = read_back_pieces(field_, without, *of)
            found, without = [*found, *pieced], without | parts
        pieces: Sequence[FactColumn] = snapshot.values(field_, without)
        for piece in joined(pieces) if index.joins else pieces:
            values = piece.values
            if values.type != stored and values.type not in index.former_types(type_):
                text = f"stored as {values.type}, where {stored} is expected"
                self._add_unusable(field_.subject, text)
                continue
            found.append(
                index.read_back(
                    Stored(
                        type=type_,
                        values=values,
                        rows=snapshot.identities.rows[piece.at],
                        nulls=self._nulls(field_)[piece.at],
                        row_of_file=self.row_of_file(piece.at, nonnull(piece.values)),
                        cache=piece.cache,
                        places=None if places is None else places.of_rows(piece.at),
                    )
                )
            )
        return found

    def _add_unusable(self, subject: str, text: str) -> None:
        reason = Reason(cause=Cause.UNSUPPORTED, subject=subject, text=text)
        self._unusable.setdefault(reason)

    def _nulls(self, field_: FactField) -> NDArray[np.int64]:
        """The null counts of an index (or count) column, over all fact rows."""
        found = np.full(len(self.snapshot.identities), -1, np.int64)
        assert field_.types is not None
        for other in self.snapshot.fields:
            if other.nulls is not None and other.types is not None and other.types == field_.types:
                for piece in self.snapshot.values(other):
                    found[piece.at] = integers(piece.values, -1)
        return np.maximum(found, -1)

    @cached_property
    def schemas(self) -> KnownSchemas | None:
        """The schemas of the files, by the newest fact row that has one; ``None`` without any."""
        texts = {name: text for part in self.snapshot.parts for name, text in part.schemas.items()}
        if not texts:
            return None
        names = whole(self.snapshot.own(SCHEMA))
        known, errors = KnownSchemas.of(names, texts, self.file_of_row, len(self.listing))
        for name, error in errors.items():
            self._unusable.setdefault(Reason.of_error(f"schema {name}", error))
        return known

    # -- sidecars ---------------------------------------------------------------------------------

    def has_sidecar(self, sidecar: str) -> NDArray[np.bool_]:
        """Flags of the fact rows whose ``sidecar`` lies in the row, or in a pack that exists."""
        places = self.places(sidecar)
        packs = self.snapshot.location.packs
        listed = set(self.snapshot.storage.list_all(packs).paths) if places.packs else set()
        exists = np.array([*(path in listed for path in places.packs), False], np.bool_)
        return exists[places.pack] | nonnull(places.inline)

    def sidecar_rows(self, sidecar: str) -> NDArray[np.int64]:
        """For each file the newest fact row that places its ``sidecar``, -1 for none."""
        found = self._known_rows.get(sidecar)
        if found is None:
            places = self.places(sidecar)
            placed = (places.pack >= 0) | nonnull(places.inline)
            usable = np.flatnonzero((self.file_of_row >= 0) & placed)
            found = np.full(len(self.listing), -1, np.int64)
            found[self.file_of_row[usable]] = usable  # the last of equal indexes: the newest
            self._known_rows[sidecar] = found
        return found

    def places(self, sidecar: str) -> Places:
        """Where the sidecars of all fact rows lie."""
        if sidecar not in self._known_places:
            columns = [self.snapshot.own(name) for name in place_columns(sidecar)]
            self._known_places[sidecar] = places_of(columns, self.snapshot.location)
        return self._known_places[sidecar]

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Over the files of the listing: bytes from the page index, or a long footer, to the end of
        a Parquet file; -1 unknown. They say how much to read, and not what it is."""
        own = self.snapshot.own
        return ends_of_files(self, self.listing, own(PAGE_INDEX_OFFSET), own(FOOTER_LENGTH))

    @cached_property
    def row_groups(self) -> NDArray[np.int64]:
        """Over fact rows: row groups of the file, -1 unknown."""
        return integers(self.snapshot.own(ROW_GROUPS), -1)
