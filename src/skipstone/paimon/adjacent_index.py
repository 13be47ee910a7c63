"""Finds Paimon's sidecars next to the data files: ``x.parquet.index`` for ``x.parquet``.

A sidecar does not state which version of its file it belongs to. It is used if all of this holds:

- It is not older than the file. But Paimon writes it before it closes the file: if the name of the
  data file is used only once (``data-<uuid>-0.parquet``), it may be up to ten minutes older.
- Its indexes agree with the footer of the file (``sidecar_match``): rows, nulls, least and
  greatest values of every queried column. If one column disagrees, the whole sidecar is not used.

``docs/paimon.md`` says what these checks cannot find. After a rewrite Paimon names a sidecar
``x.parquet-1.index``, and so on: the highest number counts. A file with such a name that is itself
Parquet is a data file, not a sidecar, because Spark reads it.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.identity import ObjectId, canonical_path
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED
from skipstone.pruning import Answer, Cause, Evidence, Fetched, Reason
from skipstone.storage import ByteRange, Listing, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

    from .sidecar import PaimonColumnType, Sidecar
    from .sidecar_match import ColumnCounts
    from .top_rows import TopFile


_NAME = re.compile(r"(?P<data>.+?)(?:-(?P<number>\d{1,9}))?\.index")
_PARQUET = (MAGIC, MAGIC_ENCRYPTED)
# A name that Paimon gives to one version of one file only.
_ONCE = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+(?:\.\w+)*")
_AHEAD_SECONDS = 600
_WORKERS = 8
#: a data file, and its sidecar or the bytes of its container
_Pair: TypeAlias = "tuple[ObjectId, ObjectId | bytes]"


def without_sidecars(
    listing: Listing, data: Collection[str] = ()
) -> tuple[Listing, dict[int, ObjectId]]:
    """The data files of a listing, and the newest sidecar of each by its ordinal. Files in ``data``
    are data files whatever their names."""
    if ".index" not in "\n".join(listing.paths):  # saves a loop over many files
        return listing, {}
    named = [
        at for at, path in enumerate(listing.paths) if path.endswith(".index") and path not in data
    ]
    if not named:
        return listing, {}
    known = set(listing.paths)
    keep = np.ones(len(listing), np.bool_)
    newest: dict[str, tuple[int, int]] = {}
    for at in named:
        path = listing.paths[at]
        plain = path.removesuffix(".index")
        match = _NAME.fullmatch(path)
        if plain in known:
            owner, number = plain, 0
        elif match is not None and match["data"] in known:
            owner, number = match["data"], int(match["number"])
        else:
            continue
        keep[at] = False
        if owner not in newest or newest[owner][0] < number:
            newest[owner] = (number, at)
    rest = listing.where(keep)
    place = {path: at for at, path in enumerate(rest.paths)}
    # A sidecar of a sidecar does not count: its data file is not a file of the table.
    return rest, {
        place[owner]: listing.object_id(at) for owner, (_, at) in newest.items() if owner in place
    }


@dataclass(slots=True, eq=False)
class _FileWithContainer:
    """A data file and its container; ``why`` is the reason if the container is not used.

    ``types`` are the types in the container of the columns queried so far, ``None`` if unknown.
    ``of_file`` are the types in the file, ``counts`` are the footer's numbers about the columns.
    """

    subject: str
    rows: int = -1
    of_file: Mapping[str, PaimonColumnType] = field(default_factory=dict)
    counts: Mapping[str, ColumnCounts] = field(default_factory=dict)
    sidecar: Sidecar | None = None
    why: Reason | None = None
    types: dict[str, PaimonColumnType | None] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, PaimonColumnType]:
        return {name: type for name, type in self.types.items() if type is not None}

    def silence(self, cause: Cause, error: Exception | str) -> None:
        text = error.message if isinstance(error, SkipstoneError) else str(error)
        self.why = Reason(cause=cause, subject=self.subject, text=text, units=1)
        self.sidecar = None


@dataclass(slots=True, eq=False)
class AdjacentIndexes:
    """The sidecars of one table. A sidecar stays open while it and its data file are unchanged, and
    so does a container that the caller gives."""

    storage: Storage
    _opened: dict[tuple[ObjectId, ObjectId | bytes], _FileWithContainer] = field(
        default_factory=dict
    )
    _sidecars: dict[str, ObjectId] = field(default_factory=dict)
    _parquet: dict[ObjectId, bool] = field(default_factory=dict)
    _listed: Listing | None = None

    def __bool__(self) -> bool:
        """Whether the last listing had sidecars."""
        return bool(self._sidecars)

    def data_files(self, listing: Listing) -> Listing:
        """The listing without its sidecars. They are kept for ``rows_of``."""
        if listing is self._listed:
            return listing  # the last call found no sidecars in it
        rest, found = without_sidecars(listing)
        self._listed = listing if rest is listing else None
        if len(rest) != len(listing):
            data = self._data_among(listing, rest)
            if data:
                rest, found = without_sidecars(listing, data)
        self._sidecars = {rest.paths[file]: id for file, id in found.items()}
        return rest

    def _data_among(self, listing: Listing, rest: Listing) -> set[str]:
        """Files with the name of a sidecar that are Parquet."""
        known = set(rest.paths)
        asked = [
            listing.object_id(at) for at, path in enumerate(listing.paths) if path not in known
        ]
        fresh = [id for id in asked if id not in self._parquet]
        if fresh:
            head = {id: ByteRange(id.path, 0, 4) for id in fresh if (id.size or 0) >= 4}
            got = self.storage.read_ranges(list(head.values()), {id.path: id for id in head})
            found = {id: bytes(got.get(head[id], b"")) if id in head else b"" for id in fresh}
            known_now = {id: self._parquet[id] for id in asked if id in self._parquet}
            self._parquet = known_now | {id: start in _PARQUET for id, start in found.items()}
        return {id.path for id in asked if self._parquet[id]}

    def rows_of(
        self,
        listing: Listing,
        columns: Iterable[str] = (),
        containers: Mapping[str, bytes] | None = None,
        *,
        sidecars: Mapping[str, ObjectId] | None = None,
    ) -> AdjacentRows:
        """The evidence about ``columns`` over the files that ``data_files`` gave.

        ``containers`` are given by the caller, by path of the data file from the listing's root or
        in full; they take precedence over adjacent sidecars. ``ValueError`` for a file that is not
        in the listing. ``sidecars``, by path of the data file, replace those that were found.
        """
        from .base import paimon_column

        handed = _by_path(listing, containers or {})
        adjacent = self._sidecars if sidecars is None else sidecars
        wanted = {paimon_column(column) for column in columns}
        pairs = {
            file: (listing.object_id(file), handed[path] if path in handed else adjacent[path])
            for file, path in enumerate(listing.paths)
            if path in adjacent or path in handed
        }
        with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
            lacking = [pair for pair in pairs.values() if pair not in self._opened]
            fresh = dict(zip(lacking, pool.map(self._open, lacking), strict=True))
            known = {pair: self._opened.get(pair) or fresh[pair] for pair in pairs.values()}
            self._opened = known
            files = {file: known[pair] for file, pair in pairs.items()}
            versions = {id.path: id for _, id in pairs.values() if isinstance(id, ObjectId)}
            fetch = _fetcher(self.storage, versions)
            for done in pool.map(lambda each: _find_types(each, wanted, fetch), files.values()):
                assert done is None
        return AdjacentRows(storage=self.storage, files=files, versions=versions)

    def _open(self, pair: _Pair) -> _FileWithContainer:
        from .sidecar import open_sidecar

        data, sidecar = pair
        if isinstance(sidecar, bytes):
            return self._given(data, sidecar)
        found = self._described(data, sidecar.path)
        if found.why is not None:
            return found
        seconds = (data.mtime_ns - sidecar.mtime_ns) / 1e9
        if seconds > 0 and not (_ONCE.fullmatch(data.path) and seconds <= _AHEAD_SECONDS):
            found.silence(Cause.STALE, "older than the data file: it may be of another version")
            return found
        fetch = _fetcher(self.storage, {sidecar.path: sidecar})
        try:
            found.sidecar = open_sidecar(sidecar.size or 0, fetch, sidecar.path)
        except (SkipstoneError, OSError) as error:
            found.silence(Cause.CORRUPT, error)
        return found

    def _given(self, data: ObjectId, container: bytes) -> _FileWithContainer:
        from .sidecar import of_bytes

        found = self._described(data, f"container of {data.path}")
        try:
            found.sidecar = of_bytes(container) if found.why is None else None
        except SkipstoneError as error:
            found.silence(Cause.CORRUPT, error)
        return found

    def _described(self, data: ObjectId, subject: str) -> _FileWithContainer:
        """Schema, row count and column counts of the data file."""
        from .sidecar import footer_and_schemas, types_of
        from .sidecar_match import column_counts

        try:
            footer, *schemas = footer_and_schemas(self.storage, data)
            types = types_of(*schemas, millis=True)
            rows = int(footer.row_starts[-1])
            return _FileWithContainer(subject, rows, types, column_counts(footer, types))
        except (SkipstoneError, OSError, ValueError) as error:
            found = _FileWithContainer(data.path)
            found.silence(Cause.UNREADABLE, error)
            return found


def _by_path(listing: Listing, containers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Containers by canonical path of their files."""
    if not containers:
        return {}
    found = {}
    for name, held in containers.items():
        in_full = name.startswith(("/", "file:")) or "://" in name
        found[canonical_path(name if in_full else f"{listing.root}/{name}")] = bytes(held)
    strange = found.keys() - set(listing.paths)
    if strange:
        raise ValueError(f"{min(strange)} is not a data file of {listing.root}")
    return found


def _find_types(
    opened: _FileWithContainer, wanted: Collection[str], fetch: Callable[..., Fetched]
) -> None:
    """Finds the types of columns that were not queried before."""
    from .sidecar_match import ColumnCounts, type_in

    for name in sorted(wanted):
        type = opened.of_file.get(name)
        if opened.sidecar is None or name in opened.types or type is None:
            continue
        counts = opened.counts.get(name, ColumnCounts())
        try:
            opened.types[name] = type_in(opened.sidecar, name, type, counts, opened.rows, fetch)
        except Exception as error:  # a broken sidecar must not fail the query
            opened.silence(Cause.CORRUPT, error)


def _fetcher(storage: Storage, versions: Mapping[str, ObjectId]) -> Callable[..., Fetched]:
    def fetch(ranges: Sequence[ByteRange]) -> Fetched:
        return dict(storage.read_ranges(ranges, versions))

    return fetch


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdjacentRows:
    """A source of the row level: sidecars by file ordinal."""

    storage: Storage
    files: Mapping[int, _FileWithContainer]
    versions: Mapping[str, ObjectId]

    def row_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """``counts`` with the row counts of the footers that were read."""
        found = counts.copy()
        for file, opened in self.files.items():
            if opened.rows >= 0:
                found[file] = opened.rows
        return found

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The evidence of one file's sidecar."""
        from .sidecar import Silent

        opened = self.files.get(file)
        if opened is None:
            return ()
        sidecar = opened.sidecar
        if sidecar is None:
            assert opened.why is not None
            said = Answer(bounds=None, reasons=(opened.why,))
            return [Silent(name="sidecar", column=each, said=said) for each in sorted(columns)]
        return sidecar.evidence(opened.known, opened.rows, columns)

    def top_file(self, file: int, column: str) -> TopFile | None:
        """The range-bitmap of a column of one file, for Top-N."""
        opened = self.files.get(file)
        sidecar = None if opened is None else opened.sidecar
        if opened is None or sidecar is None:
            return None
        return sidecar.top_file(opened.known, opened.rows, column)

    @property
    def used(self) -> int:
        """The number of files with a usable sidecar."""
        return sum(opened.sidecar is not None for opened in self.files.values())

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why sidecars are not used."""
        return tuple(each.why for each in self.files.values() if each.why is not None)

    def fetch(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, Any]:
        """Bytes of the sidecars, each of the version that was listed."""
        return dict(self.storage.read_ranges(ranges, self.versions))
