"""Which fact rows are about which files of a listing.

A row is about a file of the listing when path, size and fingerprint agree, the mtimes agree in the
coarser of their units, and the etags agree where both sides have one. That is
``ObjectId.same_version`` on arrays.

A listing with less information (Spark's has neither etags nor nanoseconds) may match rows that
contradict each other: facts of two versions of a file that it cannot distinguish. One of them is
not about this version, and it is unknown which: such a file counts as stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, arrow_bytes, distinct, whole
from skipstone._dataclasses import dataclass
from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason
from skipstone.pruning.kind import Places

from .part_columns import (
    ETAG,
    FINGERPRINT,
    MTIME,
    PATH,
    ROWS,
    SIZE,
    UNIT,
    integers,
    nonnull,
)
from .read_ahead import END

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .location import Location
    from .parts import Part

_NUMBERS: Final = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Identities:
    """The identities in the ``n`` fact rows of the readable ``parts``.

    ``starts`` has the first row of each part, by name. ``paths``, ``etags`` and ``fingerprints``
    are Arrow strings; ``sizes`` and ``rows`` are -1 where unknown; ``units`` are units per second.
    ``valid`` is False for a row whose values are damaged and not an identity.
    """

    parts: tuple[Part, ...]
    starts: Mapping[str, int]
    paths: pa.ChunkedArray
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    units: NDArray[np.int64]
    etags: pa.ChunkedArray
    fingerprints: pa.ChunkedArray
    rows: NDArray[np.int64]
    valid: NDArray[np.bool_]

    @classmethod
    def of(cls, read: Sequence[tuple[Part, pa.Table]]) -> Identities:
        """The identities in the columns ``IDENTITY`` and ``ROWS`` of parts."""
        starts, total = {}, 0
        for part, _ in read:
            starts[part.name] = total
            total += part.rows
        text = pa.large_string()

        def strings(name: str) -> pa.ChunkedArray:
            chunks = [chunk for _, table in read for chunk in table[name].chunks]
            return pa.chunked_array(chunks, text)

        def numbers(name: str, unknown: int) -> NDArray[np.int64]:
            return np.concatenate(
                [np.empty(0, np.int64)] + [integers(table[name], unknown) for _, table in read]
            )

        paths = strings(PATH)
        per_second = units_per_second(strings(UNIT))
        lost = np.iinfo(np.int64).min
        mtimes = numbers(MTIME, lost)
        in_range = (mtimes != lost) & (mtimes != np.iinfo(np.int64).max)
        return cls(
            parts=tuple(part for part, _ in read),
            starts=starts,
            paths=paths,
            sizes=numbers(SIZE, -1),
            mtimes=mtimes,
            units=per_second,
            etags=strings(ETAG),
            fingerprints=strings(FINGERPRINT),
            rows=np.maximum(numbers(ROWS, -1), -1),
            valid=in_range & (per_second > 0) & nonnull(paths),
        )

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class FileMatch:
    """Fact rows matched with a listing. Arrays are over its files, or over fact rows where named
    so.

    - ``has_fact``: some row is about the file as it is now;
    - ``stale``: there are facts of the file's path, and none that surely is about this version;
    - ``rows``: row count, -1 where no fact has it;
    - ``orphaned``: number of paths below the listing's root with facts and without a file;
    - ``file_of_row``: over fact rows: the file that the row is about, -1 for none;
    - ``path_of_row``: over fact rows: the file at that path, whatever its version, -1 for none;
    - ``dead_rows``: over fact rows: rows of a file below the root that is gone or has changed;
    - ``notes``: how many files are stale, and why.
    """

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

    def row_of_file(self, at: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each file the position in ``at`` of the newest of these fact rows that is about it
        and is ``known`` to have a value; -1 for none."""
        file = self.file_of_row[at]
        usable = np.flatnonzero((file >= 0) & known)
        found = np.full(len(self), -1, np.int64)
        found[file[usable]] = usable  # of equal indexes NumPy keeps the last: the newest row
        return found

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Files without facts of any version."""
        return ~(self.has_fact | self.stale)


def match_files(facts: Identities, listing: Listing, fingerprint: str | None) -> FileMatch:
    """Match ``facts`` with ``listing``; see the module. Facts under another ``fingerprint`` (of the
    reader's options and schema) match no file."""
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
    return FileMatch(
        has_fact=has_fact,
        stale=stale,
        rows=rows,
        orphaned=_distinct(facts.paths, orphans),
        file_of_row=file_of_row,
        path_of_row=path_of_row,
        dead_rows=dead,
        notes=notes,
    )


def units_per_second(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """The units of times by their names, 0 for null and unknown names."""
    names = arrow_bytes(map(str.encode, UNITS_PER_SECOND)).view(column.type)
    per_second = np.array([*UNITS_PER_SECOND.values(), 0], np.int64)
    return per_second[integers(pc.index_in(column, value_set=names), -1)]


def _positions(paths: pa.ChunkedArray, listed: pa.Array) -> NDArray[np.int64]:
    """The position of each of ``paths`` in ``listed``, -1 for none."""
    if len(paths) == len(listed) and paths.equals(pa.chunked_array([listed], paths.type)):
        # One compacted store over an unchanged table: both are sorted, so no hash table is needed.
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
    # Each side is divided by the ratio of its unit to the other's, at least 1, and rounded down.
    fact_scale = np.maximum(ours // theirs, 1)
    file_scale = np.maximum(theirs // ours, 1)
    mtimes = listing.mtimes[file]
    limits = np.iinfo(np.int64)
    fits &= facts.mtimes[at] // fact_scale == mtimes // file_scale
    fits &= (mtimes != limits.min) & (mtimes != limits.max)
    if listing.etags is not None and facts.etags.null_count < len(facts.etags):
        fits &= _same_or_null(facts.etags, at, listing.etag_array, file)
    return fits


def _same_or_null(
    ours: pa.ChunkedArray, at: NDArray[np.int64], theirs: pa.Array, file: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the texts at these places are equal, or one is null, pair by pair."""
    same = pc.equal(pc.take(ours, arrow(at)), pc.take(theirs, arrow(file)))
    fits: NDArray[np.bool_] = integers(same, 1) != 0
    return fits


def _distinct(paths: pa.ChunkedArray, of: NDArray[np.bool_]) -> int:
    """The number of different paths of some rows."""
    if not of.any():
        return 0
    chosen = whole(pc.take(paths, arrow(np.flatnonzero(of))))
    return len(pc.dictionary_encode(chosen).dictionary)


def _same_fingerprint(facts: Identities, fingerprint: str | None) -> NDArray[np.bool_]:
    if fingerprint is None:
        return ~nonnull(facts.fingerprints)
    same = pc.equal(facts.fingerprints, fingerprint)
    equal: NDArray[np.bool_] = integers(same, 0) == 1
    return equal


def _contradicted(
    facts: Identities, file_of_row: NDArray[np.int64], files: int
) -> NDArray[np.int64]:
    """Files with two rows that cannot be about one version: their etags or mtimes differ. Sizes
    need no check: all known ones equal the listing's."""
    rows = np.flatnonzero(file_of_row >= 0)
    if len(rows) == files:
        return np.empty(0, np.int64)  # one row per file: no contradiction
    file = file_of_row[rows]
    several = np.bincount(file)[file] > 1
    rows, file = rows[several], file[several]
    units, mtimes = facts.units[rows], facts.mtimes[rows]
    etags = integers(facts.etags.take(arrow(rows)).combine_chunks().dictionary_encode().indices, -1)
    # Two mtimes are compared in the coarser of their units, as by ``ObjectId.same_version``.
    coarser = [
        (mtimes // np.maximum(units // unit, 1), units >= unit) for unit in distinct(units).tolist()
    ]
    order = np.argsort(file, kind="stable")
    found, starts = np.unique(file[order], return_index=True)
    doubtful = np.zeros(len(found), np.bool_)
    for values, known in [(etags, etags >= 0), *coarser]:
        low = np.where(known, values, _NUMBERS.max)[order]
        high = np.where(known, values, _NUMBERS.min)[order]
        doubtful |= np.maximum.reduceat(high, starts) > np.minimum.reduceat(low, starts)
    return found[doubtful]


def _orphans(
    facts: Identities, listing: Listing, path_of_row: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Rows of paths below the listing's root that are not listed.

    Facts of other tables may share a location; this listing has no information about those.
    """
    lost = (path_of_row < 0) & facts.valid
    if lost.any():
        below = pc.cast(pc.starts_with(facts.paths, f"{listing.root.rstrip('/')}/"), pa.int8())
        lost &= integers(below, 0) == 1
    return lost


def _notes(
    listing: Listing, stale: NDArray[np.bool_], other: int, doubtful: int
) -> tuple[Reason, ...]:
    found = []
    changed = int(stale.sum()) - other - doubtful
    for count, text in (
        (changed, "the file has changed since it was indexed: read in full"),
        (doubtful, "facts of two versions that this listing cannot distinguish: read in full"),
        (other, "indexed under other reader options or another schema: read in full"),
    ):
        if count > 0:
            reason = Reason(cause=Cause.STALE, subject=listing.root, text=text, units=count)
            found.append(reason)
    return tuple(found)


def places_of(columns: Sequence[pa.ChunkedArray], location: Location) -> Places:
    """Where sidecars lie, by the columns that ``place_columns`` names."""
    pack, offset, length, inline = columns
    encoded = pc.dictionary_encode(whole(pack))
    which, names = integers(encoded.indices, -1), encoded.dictionary.to_pylist()
    # A name with a slash would be a place outside the store.
    safe = np.array([*("/" not in name for name in names), True], np.bool_)
    return Places(
        packs=tuple(location.pack(name) for name in names),
        pack=np.where(safe[which], which, -1),
        offset=integers(offset, -1),
        length=integers(length, -1),
        inline=whole(inline),
    )


def ends_of_files(
    match: FileMatch,
    listing: Listing,
    page_index_offset: pa.ChunkedArray,
    footer_length: pa.ChunkedArray,
) -> NDArray[np.int64]:
    """Bytes from the page index, or a long footer, to the end of each file of ``listing``, by
    columns over fact rows; -1 unknown."""
    found = np.full(len(listing), -1, np.int64)
    at = np.flatnonzero(match.file_of_row >= 0)
    file = match.file_of_row[at]
    offset, length = integers(page_index_offset, -1)[at], integers(footer_length, -1)[at]
    size = listing.sizes[file]
    index = np.where((offset > 0) & (offset < size), size - offset, -1)
    footer = np.where((length > END) & (length <= size - 8), length + 8, -1)
    found[file] = np.maximum(index, footer)
    return found
