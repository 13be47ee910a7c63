"""Paimon's sidecars that lie beside the data files: ``x.parquet.index`` for ``x.parquet``.

A sidecar does not say which version of its file it was made of. It is used where it is not older
than the file, and where the rows that its indexes count are those that the file's footer has; a
file that was replaced by another with as many rows, in the same instant or with an older sidecar
copied over, cannot be told apart. Bloom filters count no rows. That is why nobody's sidecars are
used unless the table is opened so (``Table(path, sidecars=True)``).

After a rewrite Paimon calls a sidecar ``x.parquet-1.index``, and so on: the highest number counts.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.bounds import Answer, Cause, Reason
from skipstone.errors import SkipstoneError
from skipstone.index.paimon.sidecar import ColumnType, Sidecar, Silent, open_sidecar, types_of
from skipstone.index.schema import file_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.bounds import ByteRange, Evidence, Fetched
    from skipstone.identity import ObjectId
    from skipstone.index.paimon.topn import TopFile
    from skipstone.predicate.tree import Leaf
    from skipstone.storage import Listing, Storage

__all__ = ["Beside", "BesideRows", "without_sidecars"]

_NAME = re.compile(r"(?P<data>.+?)(?:-(?P<number>\d{1,9}))?\.index")
_WORKERS = 8


def without_sidecars(listing: Listing) -> tuple[Listing, dict[int, ObjectId]]:
    """The data files of a listing, and by their place in it the newest sidecar of each."""
    known = set(listing.paths)
    keep = np.ones(len(listing), np.bool_)
    newest: dict[str, tuple[int, int]] = {}
    for at, path in enumerate(listing.paths):
        if not path.endswith(".index"):
            continue
        plain = path.removesuffix(".index")
        match = _NAME.fullmatch(path)
        if plain in known:
            data, number = plain, 0
        elif match is not None and match["data"] in known:
            data, number = match["data"], int(match["number"])
        else:
            continue
        keep[at] = False
        if data not in newest or newest[data][0] < number:
            newest[data] = (number, at)
    rest = listing.where(keep)
    place = {path: at for at, path in enumerate(rest.paths)}
    # A sidecar of a sidecar is none: its data file is no file of the table.
    return rest, {
        place[data]: listing.object_id(at) for data, (_, at) in newest.items() if data in place
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A data file and its sidecar; ``why`` it says nothing, where it does not."""

    rows: int
    types: Mapping[str, ColumnType]
    sidecar: Sidecar | None
    why: Reason | None = None


@dataclass(slots=True, eq=False)
class Beside:
    """The sidecars of one table; what was opened once is kept while both files are the same."""

    storage: Storage
    _opened: dict[tuple[ObjectId, ObjectId], _Opened] = field(default_factory=dict)
    _sidecars: dict[str, ObjectId] = field(default_factory=dict)

    def data_files(self, listing: Listing) -> Listing:
        """A listing without its sidecars, which are remembered for ``rows_of``."""
        rest, found = without_sidecars(listing)
        self._sidecars = {rest.paths[file]: id for file, id in found.items()}
        return rest

    def rows_of(self, listing: Listing) -> BesideRows:
        """The evidence over the files that ``data_files`` gave."""
        sidecars = {
            file: self._sidecars[path]
            for file, path in enumerate(listing.paths)
            if path in self._sidecars
        }
        pairs = {file: (listing.object_id(file), id) for file, id in sidecars.items()}
        lacking = [pair for pair in pairs.values() if pair not in self._opened]
        with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
            fresh = dict(zip(lacking, pool.map(self._open, lacking), strict=True))
        known = {pair: self._opened.get(pair) or fresh[pair] for pair in pairs.values()}
        self._opened = known
        return BesideRows(
            storage=self.storage,
            files={file: known[pair] for file, pair in pairs.items()},
            versions={id.path: id for id in sidecars.values()},
        )

    def _open(self, pair: tuple[ObjectId, ObjectId]) -> _Opened:
        data, beside = pair
        try:
            rows, types = self._data(data)
        except (SkipstoneError, OSError, ValueError) as error:
            return _Opened(-1, {}, None, _reason(data.path, Cause.UNREADABLE, error))
        if beside.mtime < data.mtime:
            text = "older than the data file"
            reason = Reason(cause=Cause.STALE, subject=beside.path, text=text, units=1)
            return _Opened(rows, types, None, reason)

        def fetch(ranges: Sequence[ByteRange]) -> Fetched:
            return dict(self.storage.read_ranges(ranges, {beside.path: beside}))

        try:
            opened = open_sidecar(beside.size or 0, fetch, beside.path)
        except (SkipstoneError, OSError) as error:
            return _Opened(rows, types, None, _reason(beside.path, Cause.CORRUPT, error))
        return _Opened(rows, types, opened)

    def _data(self, id: ObjectId) -> tuple[int, dict[str, ColumnType]]:
        """Row count and types of a data file."""
        import pyarrow.parquet as pq

        with self.storage.open(id.path, id) as source:
            footer = pq.read_metadata(source)
            physical = footer.schema.to_arrow_schema()
            return footer.num_rows, types_of(physical, file_schema(source, id.path))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BesideRows:
    """A source of the row level: sidecars by file ordinal."""

    storage: Storage
    files: Mapping[int, _Opened]
    versions: Mapping[str, ObjectId]

    def row_counts(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """``counts`` with those of the footers that were read."""
        found = counts.copy()
        for file, opened in self.files.items():
            if opened.rows >= 0:
                found[file] = opened.rows
        return found

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """What the sidecar of one file can be asked."""
        opened = self.files.get(file)
        if opened is None:
            return ()
        if opened.sidecar is None:
            assert opened.why is not None
            said = Answer(bounds=None, reasons=(opened.why,))
            return [Silent(name="sidecar", column=each, said=said) for each in sorted(columns)]
        return opened.sidecar.evidence(opened.types, opened.rows, columns)

    def top_file(self, file: int, column: str) -> TopFile | None:
        """The range-bitmap of a column, to ask which rows of one file come first."""
        opened = self.files.get(file)
        if opened is None or opened.sidecar is None:
            return None
        return opened.sidecar.top_file(opened.types, opened.rows, column)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why sidecars say nothing."""
        return tuple(each.why for each in self.files.values() if each.why is not None)

    def fetch(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, Any]:
        """Bytes of the sidecars, each of the version that was listed."""
        return dict(self.storage.read_ranges(ranges, self.versions))


def _reason(subject: str, cause: Cause, error: Exception) -> Reason:
    text = error.message if isinstance(error, SkipstoneError) else str(error)
    return Reason(cause=cause, subject=subject, text=text, units=1)
