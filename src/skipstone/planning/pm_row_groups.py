"""The row group level of a table, from the ``_pm`` files in its facts.

It reads no data file. The ``_pm`` files lie in packs; adjacent ones are read in one request, and
opened ones are cached. To save more than it costs,

- it skips files that it cannot cut: a file of one row group, if each column of the predicate has
  facts with bounds or values;
- it reads a sample first (``SAMPLE`` files, evenly spread), and the other files only if at least
  one in ``WORTH`` row groups of the sample was dropped;
- it reads no ``_pm`` of a few files that the planner opens next: in an object store their footers
  come in one wave, and a local footer takes no longer than a ``_pm``. A plan that is shown reads
  the ``_pm`` of local files in any case;
- it reads at most ``MOST_FILES``, and ``MOST_BYTES`` of ``_pm``.

A ``_pm`` belongs to the file of its fact row and must state that file's size. A missing or damaged
one proves nothing, and gives the reason. Bloom filters in the data files are not used.
"""

from __future__ import annotations

import logging
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._arrays import among
from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.indexes.registry import kind
from skipstone.predicate.tree import Bound, Leaf, is_expression
from skipstone.predicate.tree import leaves as leaves_of
from skipstone.predicate.types import column_path
from skipstone.pruning import Cause, Evidence, Level, Reason, Units
from skipstone.pruning.evaluation import Fetch, fetch_round
from skipstone.pruning.evidence import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from skipstone.facts import MatchedFacts
    from skipstone.questdb.evidence.opened_pm import OpenedPm, SnapshotCache
    from skipstone.questdb.evidence.row_groups import PmBloomEvidence, PmSource
    from skipstone.questdb.format.pm import PmSnapshot
    from skipstone.storage import ByteRange, Listing


log = logging.getLogger("skipstone")

IntArray: TypeAlias = "NDArray[np.int64]"

#: Files in the sample.
SAMPLE: Final = 16
#: Unless one in this many row groups of the sample is dropped, the other ``_pm`` are not read.
#: Evaluating a ``_pm`` takes about 0.3 ms the first time; reading a file takes 3 ms or more.
WORTH: Final = 8
#: An object store returns this many footers together in the time of one ``_pm``. Of so many local
#: files, needles took 12 % less processor time without it: each ``_pm`` must be opened, too.
_AT_ONCE: Final = 32
#: The most files, and bytes of their ``_pm``, that are evaluated.
MOST_FILES: Final = 10_000
MOST_BYTES: Final = 256 * 2**20


# Shared by all plans of a process. A place in a pack is never written twice. A snapshot is opened
# once. What it stores for the columns of a predicate is found once per file and such columns, which
# takes as long; the sizes bound the snapshots that these hold.
_FILES: LruCache[Hashable, OpenedPm] = LruCache(
    MOST_FILES, most_bytes=MOST_BYTES, size=lambda file: len(file.snapshot.pm.data)
)


@cache
def _opened() -> SnapshotCache:
    from skipstone.questdb.evidence.opened_pm import SnapshotCache

    return SnapshotCache(most=MOST_FILES, most_bytes=MOST_BYTES)


@dataclass(slots=True, eq=False, kw_only=True)
class PmRowGroups:
    """The row groups of files with a ``_pm`` in one store; ``sources`` go to the planner."""

    matched: MatchedFacts
    listing: Listing
    columns: frozenset[str]
    schema: tuple[pa.Field, ...]
    fetch: Fetch
    bounded: bool
    #: whether the footer of a file is in memory: it proves at least as much
    is_open: Callable[[int], bool]
    #: with up to this many candidates no ``_pm`` is read
    few: int = 0
    sampled: dict[int, OpenedPm] = field(default_factory=dict)
    #: the file of each unit that may hold a match
    alive: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    reasons: list[Reason] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        tree: Bound,
        matched: MatchedFacts,
        columns: frozenset[str],
        fetch: Fetch,
        *,
        is_open: Callable[[int], bool] = lambda file: False,
        opened_next: bool = False,
        shown: bool = True,
    ) -> PmRowGroups | None:
        """``None`` where no ``_pm`` can help; ``columns`` are those that have facts. With
        ``opened_next`` the planner opens the files that are left. ``shown`` as of ``PlanInput``."""
        if not matched.snapshot.in_batches:
            return None  # a foreign store
        count, storage = len(matched.listing), matched.snapshot.storage
        if count <= SAMPLE and all(map(is_open, range(count))):
            return None
        if not count or matched.sidecar_rows("pm").max() < 0:
            return None
        fields: dict[str, pa.Field] = {}
        for leaf in leaves_of(tree):
            path = column_path(leaf.column)
            stored = leaf.column in columns and not is_expression(leaf.column)
            # A ``_pm`` has the names of the file.
            stored = stored and matched.snapshot.naming.to_file(leaf.column) == leaf.column
            if stored and len(path) == 1 and isinstance(path[0], str):
                fields[leaf.column] = pa.field(path[0], leaf.type)
        if not fields:
            return None
        definitions = (d for d in matched.snapshot.definitions if d.column in fields)
        kinds = ((each.column, kind(each.kind)) for each in definitions)
        having = {column for column, found in kinds if found is not None and found.like_pm}
        return cls(
            matched=matched,
            listing=matched.listing,
            columns=frozenset(fields),
            schema=tuple(fields.values()),
            fetch=fetch,
            bounded=fields.keys() <= having,
            is_open=is_open,
            few=_AT_ONCE if opened_next and (storage.remote or not shown) else 0,
        )

    @property
    def sources(self) -> tuple[_Phase, ...]:
        """Two sources: the sample, then the other files."""
        return _Phase(self, sample=True), _Phase(self, sample=False)

    def candidates(self, files: IntArray) -> IntArray:
        """The ``files`` with a ``_pm`` that may prove more than the facts do."""
        row = self.matched.sidecar_rows("pm")[files]
        files, row = files[row >= 0], row[row >= 0]
        if self.bounded and len(row):
            files = files[self.matched.row_groups[row] != 1]
        if len(files) <= SAMPLE:
            files = files[[not self.is_open(file) for file in files.tolist()]]
        return files

    def among(self, files: IntArray, chosen: IntArray | list[int]) -> NDArray[np.bool_]:
        """Which of ``files`` are ``chosen``."""
        return among(files, np.asarray(chosen, np.int64), len(self.listing))

    def worth(self) -> bool:
        """Whether enough of the sample's row groups were dropped."""
        total = sum(len(file.row_starts) - 1 for file in self.sampled.values())
        left = int(self.among(self.alive, [*self.sampled]).sum())
        return (total - left) * WORTH >= total > 0

    def open(self, files: IntArray) -> tuple[dict[int, OpenedPm], int, int]:
        """The ``_pm`` of each of ``files``, and the bytes and requests of reading them."""
        places = self.matched.places("pm")
        found: dict[int, OpenedPm] = {}
        wanted: dict[int, ByteRange] = {}
        for file, row in zip(
            files.tolist(), self.matched.sidecar_rows("pm")[files].tolist(), strict=True
        ):
            blob = places.at(row)
            if blob is None:
                continue
            if blob.inline is not None:
                self._take(found, file, ("inline", bytes(blob.inline)), blob.inline)
                continue
            place = blob.span(0, blob.length)
            if (known := _FILES.get((place, self._size(file), self.schema))) is not None:
                found[file] = known
                continue
            try:
                snapshot = _opened().snapshot(place, _not_open, parquet_size=self._size(file))
                found[file] = self._file(file, place, snapshot)
            except _NotOpenError:
                wanted[file] = place
        have: dict[ByteRange, bytes | memoryview] = {}
        if wanted:
            errors = fetch_round(list(wanted.values()), self.fetch, have)
        for file, place in wanted.items():
            data = have.get(place)
            if data is None:
                error = errors.get(place.path) or LookupError(f"{place.path} has no such bytes")
                self._lost(file, error)
            else:
                # A copy: a slice would keep the whole buffer in memory.
                self._take(found, file, place, bytes(data))
        return found, sum(len(data) for data in have.values()), len(have)

    def _take(
        self, found: dict[int, OpenedPm], file: int, key: Hashable, data: bytes | memoryview
    ) -> None:
        size = self._size(file)
        try:
            snapshot = _opened().snapshot(key, lambda: data, parquet_size=size)
            found[file] = self._file(file, key, snapshot)
        except (SkipstoneError, ValueError) as error:
            self._lost(file, error)

    def _file(self, file: int, key: Hashable, snapshot: PmSnapshot) -> OpenedPm:
        from skipstone.questdb.evidence.opened_pm import OpenedPm

        path = self.listing.paths[file]
        # Opened as a foreign ``_pm``: where the table's type is wider than the file's, the file's
        # may be unsigned, and the meaning of a value out of range is unknown here.
        made = OpenedPm.of(snapshot, path=path, schema=pa.schema(list(self.schema)))
        _FILES.put((key, self._size(file), self.schema), made)
        return made

    def _size(self, file: int) -> int:
        return int(self.listing.sizes[file])

    def _lost(self, file: int, error: Exception) -> None:
        path = self.listing.paths[file]
        reason = Reason.of_error(f"_pm of {path}", error)
        if not self.reasons:
            log.warning("the _pm of %s proves nothing: %s", path, reason.text)
        cause = Cause.UNREADABLE if isinstance(error, LookupError) else reason.cause
        self.reasons.append(replace(reason, cause=cause, units=1))


class _NotOpenError(LookupError):
    """The ``_pm`` is not in the cache."""


def _not_open() -> bytes:
    raise _NotOpenError


@dataclass(slots=True, eq=False)
class _Phase(Source):
    """A source of the planner: the sample of ``of``, or all other files."""

    of: PmRowGroups
    sample: bool
    level: Level = Level.ROW_GROUP
    limits_cost: ClassVar[bool] = True
    #: bytes and requests of opening
    spent: tuple[int, int] = (0, 0)
    _source: PmSource | None = None

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why some ``_pm`` files are not used."""
        return self.of.reasons if not self.sample else ()

    def observe(self, alive: Units) -> None:
        """Records the files that may hold a match."""
        self.of.alive = alive.file

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """The row groups of the files of this phase."""
        at, chosen = self._chosen(units)
        if not len(chosen):
            return replace(units.where(at), level=self.level), at

        from skipstone.questdb.evidence.row_groups import PmSource

        files, *spent = self.of.open(chosen)
        self.spent = spent[0], spent[1]
        if self.sample:
            self.of.sampled = files
        self._source = PmSource(files)
        parts, parent = self._source.split(units.where(at), columns)
        return parts, at[parent]

    def _chosen(self, units: Units) -> tuple[IntArray, IntArray]:
        """Positions of the units to split, and their files."""
        whole = np.flatnonzero(units.rows == self.of.matched.rows[units.file])
        files = self.of.candidates(units.file[whole])
        if not self.of.sampled and len(files) <= self.of.few:
            files = files[:0]
        if self.sample:
            if len(files) > SAMPLE:
                files = files[np.linspace(0, len(files) - 1, SAMPLE).astype(np.int64)]
        else:
            if self.of.sampled:
                files = files[~self.of.among(files, [*self.of.sampled])]
            if len(files) and not self.of.worth():
                asked = len(self.of.sampled)
                total = asked + len(files)
                text = f"_pm asked in {asked:,} of {total:,} files, where it skipped too little"
                self._left(text)
                files = files[:0]
            files = self._affordable(files)
        return whole[self.of.among(units.file[whole], files)], files

    def _affordable(self, files: IntArray) -> IntArray:
        """The files within the limits; a reason counts the others."""
        rows = self.of.matched.sidecar_rows("pm")[files]
        size = np.cumsum(np.maximum(self.of.matched.places("pm").length[rows], 0))
        most = min(MOST_FILES, int(np.searchsorted(size, MOST_BYTES, side="right")))
        if len(files) > most:
            text = f"evaluated for {most:,} more files and not for the others"
            self._left(text, len(files) - most)
        return files[:most]

    def _left(self, why: str, files: int | None = None) -> None:
        """Notes why files with a ``_pm`` are not asked."""
        reason = Reason(cause=Cause.COSTLY, subject=Level.ROW_GROUP.unit, text=why, units=files)
        self.of.reasons.append(reason)

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Bounds, null counts, and Bloom filters that lie in the ``_pm``."""
        if self._source is None or not len(units):
            return ()
        from skipstone.questdb.evidence.row_groups import PmBloomEvidence

        return [
            each
            for each in self._source.evidence(units, columns & self.of.columns)
            if not (isinstance(each, PmBloomEvidence) and _reads_data(each))
        ]


def _reads_data(evidence: PmBloomEvidence) -> bool:
    """Whether a filter lies in a data file."""
    return any(each.words is None for each in evidence.filters.values())
