"""``Matched``: the facts of a snapshot laid over a listing, and the evidence that comes of it.

A row is about a file of the listing when path and size agree, the mtimes agree in the coarser of
their units, the etags agree where both sides have one, and the fingerprints are equal. That is
``ObjectId.same_version`` on arrays.

A listing that knows less (Spark's has neither etags nor nanoseconds) may match rows that contradict
each other: facts of two versions of a file that it cannot tell apart. One of them is not about this
version, and nobody can say which: such a file counts as stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Index, Places, Stored

from .packs import Place
from .part_columns import ROW_GROUPS, place_columns
from .snapshot import Column, Identities, Snapshot, integers, nonnull

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .part_columns import FactField

__all__ = ["Matched", "match"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Matched:
    """See the module. Arrays are over the files of ``listing`` unless they are over fact rows.

    - ``has_fact``: some row is about the file as it is now;
    - ``stale``: there are facts of the file's path, and none that surely is about this version;
    - ``rows``: row count, -1 where no fact says it;
    - ``orphaned``: paths below the listing's root with facts and without a file;
    - ``file_of_row``: over fact rows: the file that the row is about, -1 for none;
    - ``path_of_row``: over fact rows: the file at that path, whatever its version, -1 for none;
    - ``dead_rows``: over fact rows: of a file below the root that is gone or has changed.
    """

    snapshot: Snapshot
    listing: Listing
    fingerprint: str | None
    has_fact: NDArray[np.bool_]
    stale: NDArray[np.bool_]
    rows: NDArray[np.int64]
    orphaned: int
    file_of_row: NDArray[np.int64]
    path_of_row: NDArray[np.int64]
    dead_rows: NDArray[np.bool_]
    notes: tuple[Reason, ...] = ()

    def __len__(self) -> int:
        return len(self.has_fact)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Files that no fact of any version speaks about."""
        return ~(self.has_fact | self.stale)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why some facts say nothing; grows as evidence is asked for."""
        return tuple(dict.fromkeys((*self.snapshot.reasons, *self.notes, *self._unusable)))

    @cached_property
    def _unusable(self) -> dict[Reason, None]:
        return {}

    @cached_property
    def _read_back(self) -> dict[tuple[str, str, str], list[Index]]:
        return {}

    def evidence(self, columns: Collection[str]) -> list[Index]:
        """The indexes and null counts over ``columns``, read back; reads only their fact columns.

        One per kind, parameters, column type and stored type (and per GiB). Kinds that are not
        known here, and values that are not of their kind's type, add a reason instead.
        """
        found = []
        for field in self.snapshot.fields:
            if field.definition is not None:
                wanted = not set(field.definition.columns).isdisjoint(columns)
            else:
                wanted = field.nulls in columns
            if wanted:
                if field.key not in self._read_back:
                    self._read_back[field.key] = self._evidence(field)
                found += self._read_back[field.key]
        return found

    def place(self, sidecar: str, file: int) -> Place | None:
        """Where the newest ``sidecar`` ("container", "pm") of a file lies; ``None`` for none."""
        pack, offset, length, inline = (self.snapshot.own(n) for n in place_columns(sidecar))
        for row in np.flatnonzero(self.file_of_row == file)[::-1].tolist():
            if inline[row].is_valid:
                return Place(inline=inline[row].as_py())
            if pack[row].is_valid and offset[row].is_valid and length[row].is_valid:
                name, start, size = pack[row].as_py(), offset[row].as_py(), length[row].as_py()
                return Place(pack=name, offset=start, length=size)
        return None

    def has_sidecar(self, sidecar: str) -> NDArray[np.bool_]:
        """Over fact rows: is the row's ``sidecar`` there, in the row or in a pack that exists."""
        places = self.places(sidecar)
        packs = self.snapshot.location.packs
        there = set(self.snapshot.storage.list_all(packs).paths) if places.packs else set()
        exists = np.array([*(path in there for path in places.packs), False], np.bool_)
        return exists[places.pack] | nonnull(places.inline)

    def _evidence(self, field: FactField) -> list[Index]:
        try:
            index = _index(field)
            assert field.types is not None
            type_ = field.types.field(0).type
            stored = index.stored_type(type_)
        except Exception as error:  # an index kind of one's own may raise anything
            text = getattr(error, "message", str(error))
            reason = Reason(cause=Cause.UNSUPPORTED, subject=_subject(field), text=text)
            self._unusable.setdefault(reason)
            return []
        places = None if index.sidecar is None else self.places(index.sidecar)
        found: list[Index] = []
        for piece in self.snapshot.values(field):
            values = piece.values
            if values.type != stored and values.type not in index.former_types(type_):
                text = f"stored as {values.type}, where {stored} is expected"
                reason = Reason(cause=Cause.UNSUPPORTED, subject=_subject(field), text=text)
                self._unusable.setdefault(reason)
                continue
            nulls = self._nulls(field)[piece.at]
            found.append(
                index.read_back(
                    Stored(
                        type=type_,
                        values=values,
                        rows=self.snapshot.identities.rows[piece.at],
                        nulls=nulls,
                        row_of_file=self._row_of_file(piece),
                        cache=piece.cache,
                        places=None if places is None else _places_at(places, piece.at),
                    )
                )
            )
        return found

    def sidecar_rows(self, sidecar: str) -> NDArray[np.int64]:
        """For each file the newest fact row that says where its ``sidecar`` lies, -1 for none."""
        found = self._known_rows.get(sidecar)
        if found is None:
            places = self.places(sidecar)
            placed = (places.pack >= 0) | nonnull(places.inline)
            usable = np.flatnonzero((self.file_of_row >= 0) & placed)
            found = np.full(len(self.listing), -1, np.int64)
            found[self.file_of_row[usable]] = usable  # the last of equal indexes: the newest
            self._known_rows[sidecar] = found
        return found

    @cached_property
    def row_groups(self) -> NDArray[np.int64]:
        """Over fact rows: row groups of the file, -1 unknown."""
        return integers(self.snapshot.own(ROW_GROUPS), -1)

    def places(self, sidecar: str) -> Places:
        """Where the sidecars of all fact rows lie; found once."""
        if sidecar not in self._known_places:
            pack, offset, length, inline = (self.snapshot.own(n) for n in place_columns(sidecar))
            encoded = pack.combine_chunks().dictionary_encode()
            names = encoded.dictionary.to_pylist()
            which = integers(encoded.indices, -1)
            # A name with a slash in it would lead out of the store.
            safe = np.array([*("/" not in name for name in names), True], np.bool_)
            self._known_places[sidecar] = Places(
                packs=tuple(self.snapshot.location.pack(name) for name in names),
                pack=np.where(safe[which], which, -1),
                offset=integers(offset, -1),
                length=integers(length, -1),
                inline=inline.combine_chunks(),
            )
        return self._known_places[sidecar]

    @cached_property
    def _known_rows(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def _known_places(self) -> dict[str, Places]:
        return {}

    def _row_of_file(self, piece: Column) -> NDArray[np.int64]:
        """For each file the newest of the rows of ``piece`` that is about it and has a value."""
        file = self.file_of_row[piece.at]
        usable = np.flatnonzero((file >= 0) & nonnull(piece.values))
        found = np.full(len(self.listing), -1, np.int64)
        found[file[usable]] = usable  # of equal indexes NumPy keeps the last: the newest row
        return found

    def _nulls(self, field: FactField) -> NDArray[np.int64]:
        """The null counts over all fact rows that belong to an index (or count) column."""
        found = np.full(len(self.snapshot.identities), -1, np.int64)
        assert field.types is not None
        for other in self.snapshot.fields:
            if other.nulls is not None and other.types is not None and other.types == field.types:
                for piece in self.snapshot.values(other):
                    found[piece.at] = integers(piece.values, -1)
        return np.maximum(found, -1)


def _places_at(places: Places, at: NDArray[np.int64]) -> Places:
    """Those of some fact rows."""
    return Places(
        packs=places.packs,
        pack=places.pack[at],
        offset=places.offset[at],
        length=places.length[at],
        inline=places.inline.take(pa.array(at)),
    )


def _index(field: FactField) -> Index:
    if field.definition is None:
        from skipstone.indexes.minmax import NullCounts

        assert field.nulls is not None
        return NullCounts(field.nulls)
    index = field.definition.index
    if index is None:
        raise LookupError(f"kind {field.definition.kind!r} is not known here: it says nothing")
    return index


def _subject(field: FactField) -> str:
    return str(field.definition) if field.definition is not None else f"nulls({field.nulls})"


def match(snapshot: Snapshot, listing: Listing, fingerprint: str | None) -> Matched:
    """Lay the facts of ``snapshot`` over ``listing``; see the module."""
    facts = snapshot.identities
    path_of_row = _positions(facts.paths, listing.path_array)
    path_of_row[~facts.valid] = -1
    at = np.flatnonzero(path_of_row >= 0)
    file = path_of_row[at]

    fits = _same_version(facts, listing, at, file)
    same_options = _same_fingerprint(facts, fingerprint)[at]
    current = fits & same_options
    file_of_row = np.full(len(facts), -1, np.int64)
    file_of_row[at[current]] = file[current]

    has_fact = np.zeros(len(listing), np.bool_)
    has_fact[file[current]] = True
    doubtful = _contradicted(facts, file_of_row, int(has_fact.sum()))
    has_fact[doubtful] = False
    in_doubt = np.zeros(len(listing), np.bool_)
    in_doubt[doubtful] = True
    about = np.flatnonzero(file_of_row >= 0)
    file_of_row[about[in_doubt[file_of_row[about]]]] = -1

    stale = np.zeros(len(listing), np.bool_)
    stale[file] = True
    stale &= ~has_fact
    rows = np.full(len(listing), -1, np.int64)
    counted = np.flatnonzero((file_of_row >= 0) & (facts.rows >= 0))
    rows[file_of_row[counted]] = facts.rows[counted]

    orphans = _orphans(facts, listing, path_of_row)
    dead = orphans | ~facts.valid
    dead[at[~fits]] = True
    other = np.zeros(len(listing), np.bool_)
    other[file[fits & ~same_options]] = True
    notes = _notes(listing, stale, int((other & stale).sum()), len(doubtful))
    return Matched(
        snapshot=snapshot,
        listing=listing,
        fingerprint=fingerprint,
        has_fact=has_fact,
        stale=stale,
        rows=rows,
        orphaned=int(pc.count_distinct(facts.paths.filter(pa.array(orphans))).as_py()),
        file_of_row=file_of_row,
        path_of_row=path_of_row,
        dead_rows=dead,
        notes=notes,
    )


def _positions(paths: pa.ChunkedArray, listed: pa.Array) -> NDArray[np.int64]:
    """The position of each of ``paths`` in ``listed``, -1 for none."""
    if len(paths) == len(listed) and paths.equals(pa.chunked_array([listed], paths.type)):
        # One compacted store over an unchanged table: both are sorted, no hash table is needed.
        found = np.arange(len(listed), dtype=np.int64)
        found[~nonnull(listed)] = -1
        return found
    return integers(pc.index_in(paths, value_set=listed, skip_nulls=True), -1)


def _same_version(
    facts: Identities, listing: Listing, at: NDArray[np.int64], file: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """``ObjectId.same_version`` of fact rows ``at`` and files ``file``, pair by pair."""
    sizes = facts.sizes[at]
    fits: NDArray[np.bool_] = (sizes < 0) | (sizes == listing.sizes[file])
    ours, theirs = facts.units[at], UNITS_PER_SECOND[listing.unit]
    # Floor division by how much finer each side is; by 1 on the coarser side.
    fact_scale = np.maximum(ours // theirs, 1)
    file_scale = np.maximum(theirs // ours, 1)
    mtimes = listing.mtimes[file]
    limits = np.iinfo(np.int64)
    fits &= facts.mtimes[at] // fact_scale == mtimes // file_scale
    fits &= (mtimes != limits.min) & (mtimes != limits.max)
    if listing.etags is not None and facts.etags.null_count < len(facts.etags):
        rows, files = pa.array(at), pa.array(file)
        same = pc.equal(facts.etags.take(rows), listing.etag_array.take(files))
        fits &= integers(same.cast(pa.int8()), 1) != 0
    return fits


def _same_fingerprint(facts: Identities, fingerprint: str | None) -> NDArray[np.bool_]:
    if fingerprint is None:
        return ~nonnull(facts.fingerprints)
    same = pc.equal(facts.fingerprints, fingerprint).cast(pa.int8())
    equal: NDArray[np.bool_] = integers(same, 0) == 1
    return equal


def _contradicted(
    facts: Identities, file_of_row: NDArray[np.int64], files: int
) -> NDArray[np.int64]:
    """Files of whose rows two cannot be about one version: sizes, etags or mtimes differ."""
    rows = np.flatnonzero(file_of_row >= 0)
    if len(rows) == files:
        return np.empty(0, np.int64)  # one row per file: nothing to contradict
    file = file_of_row[rows]
    several = np.bincount(file)[file] > 1
    rows, file = rows[several], file[several]
    sizes = facts.sizes[rows]
    units = facts.units[rows]
    coarsest = units.min()
    columns = {
        "file": pa.array(file),
        "size": pa.array(sizes, mask=sizes < 0),
        "etag": facts.etags.take(pa.array(rows)).combine_chunks(),
        "coarse": pa.array(facts.mtimes[rows] // (units // coarsest)),
    }
    for unit in np.unique(units).tolist():
        columns[f"mtime {unit}"] = pa.array(facts.mtimes[rows], mask=units != unit)
    table = pa.table(columns)
    counts = table.group_by("file").aggregate(
        [(name, "count_distinct", pc.CountOptions(mode="only_valid")) for name in columns][1:]
    )
    worst = np.max([integers(counts[f"{name}_count_distinct"], 0) for name in [*columns][1:]], 0)
    doubtful: NDArray[np.int64] = integers(counts["file"], -1)[worst > 1]
    return doubtful


def _orphans(
    facts: Identities, listing: Listing, path_of_row: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Rows of paths below the listing's root that are not listed.

    Facts of other tables may share a location; of those this listing says nothing.
    """
    lost = (path_of_row < 0) & facts.valid
    if lost.any():
        below = pc.starts_with(facts.paths, f"{listing.root.rstrip('/')}/").cast(pa.int8())
        lost &= integers(below, 0) == 1
    return lost


def _notes(
    listing: Listing, stale: NDArray[np.bool_], other: int, doubtful: int
) -> tuple[Reason, ...]:
    found = []
    changed = int(stale.sum()) - other - doubtful
    for count, text in (
        (changed, "the file has changed since it was indexed: read in full"),
        (doubtful, "facts of two versions that this listing cannot tell apart: read in full"),
        (other, "indexed under other reader options or another schema: read in full"),
    ):
        if count > 0:
            reason = Reason(cause=Cause.STALE, subject=listing.root, text=text, units=count)
            found.append(reason)
    return tuple(found)
