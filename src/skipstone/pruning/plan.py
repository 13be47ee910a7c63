"""``Plan``: what to read and why, as data for every reader and every display."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.human import Report, of_total

from . import Level, RowSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from skipstone.storage import ByteRange, Listing

    from . import Reason
    from .table_schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The work of one index at one level: it kept ``kept`` of ``considered`` units.

    ``used`` is False when it proved nothing about the predicate; ``reasons`` say why.
    ``bytes_read`` and ``requests`` count its reads from storage.
    """

    level: Level
    index: str
    column: str
    used: bool
    considered: int
    kept: int
    bytes_read: int = 0
    requests: int = 0
    milliseconds: float = 0.0
    reasons: tuple[Reason, ...] = ()

    def plus(self, other: Step) -> Step:
        """The work of one index at one level, together with that of ``other`` on more units."""
        return replace(
            self,
            used=self.used or other.used,
            considered=self.considered + other.considered,
            kept=self.kept + other.kept,
            bytes_read=self.bytes_read + other.bytes_read,
            requests=self.requests + other.requests,
            milliseconds=self.milliseconds + other.milliseconds,
            reasons=tuple(dict.fromkeys((*self.reasons, *other.reasons))),
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "level": self.level.unit,
            "index": self.index,
            "column": self.column,
            "used": self.used,
            "considered": self.considered,
            "kept": self.kept,
            "unit": self.level.unit,
            "bytes_read": self.bytes_read,
            "requests": self.requests,
            "milliseconds": round(self.milliseconds, 3),
            "reasons": [str(reason) for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class SortKey:
    """One sort key. Spark puts nulls first where it ascends, and last where it descends."""

    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Report):
    """How much of a table can be read: ``read`` of ``total`` partitions, without ``left_out``.

    Every result from a part of a table shows it.
    """

    read: int
    total: int
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return of_total(self.read, self.total, "partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDetail:
    """What to read of one file below the object level; ``None`` = all of it.

    ``row_groups`` are ordinals, ``rows`` positions from the start of the file, ``byte_ranges``
    the requests of a reader of pages, ``exact`` that every selected row matches.
    """

    row_groups: tuple[int, ...] | None = None
    rows: RowSet | None = None
    byte_ranges: tuple[ByteRange, ...] | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file to read. ``rows`` is its row count, -1 where unknown."""

    path: str
    size: int
    rows: int
    whole_file_matches: bool
    detail: FileDetail


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """What to read of a table and why: files, row groups, row ranges and byte ranges.

    >>> plan = skipstone.Table("events/").plan("user_id = 'u-8814'")
    >>> print(plan.files_kept, "of", plan.files_total, "files", plan.paths)

    Arrays are over the files of ``listing``, in its order, of shape ``(files,)``. A file outside
    ``keep`` holds no match; every row of a file in ``must`` matches. A file without an entry in
    ``details`` is read whole. ``residual`` is the predicate that the rows of the plan must still be
    checked against, ``None`` where all of them match.

    ``dropped`` (int8) is the level at which the last row of a file was dropped, -1 for a kept file;
    ``stale`` and ``missing`` (booleans) say which files have no valid fact. They are ``None`` where
    the plan was not made from levels, or from facts. ``sidecars`` counts the files whose adjacent
    Paimon index was used. ``coverage`` is set for a table that was opened for its readable
    partitions only. ``schema`` says how the schema of the table was found, where this plan needed
    it.
    """

    table: str
    predicate: str
    listing: Listing
    keep: NDArray[np.bool_]
    must: NDArray[np.bool_]
    row_counts: NDArray[np.int64]
    residual: str | None = None
    details: Mapping[int, FileDetail] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    reasons: tuple[Reason, ...] = ()
    facts_fresh: int = 0
    facts_stale: int = 0
    facts_missing: int = 0
    dropped: NDArray[np.int8] | None = None
    stale: NDArray[np.bool_] | None = None
    missing: NDArray[np.bool_] | None = None
    sidecars: int = 0
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    coverage: Coverage | None = None
    schema: TableSchema | None = None
    #: the files with rows that the table has deleted, by their number
    deleted: Mapping[int, int] = field(default_factory=dict)
    #: what planning itself read: facts, footers, page indexes, dictionaries; bytes and requests
    planning: tuple[int, int] = (0, 0)

    @property
    def files_total(self) -> int:
        """Files of the table as listed."""
        return len(self.keep)

    @cached_property
    def files_kept(self) -> int:
        """Files that must be opened."""
        return int(np.count_nonzero(self.keep))

    @cached_property
    def bytes_total(self) -> int:
        """Bytes of all files."""
        return int(self.listing.sizes.sum())

    @cached_property
    def bytes_kept(self) -> int:
        """Bytes of the files that must be opened, or of the byte ranges where those are planned."""
        kept = np.flatnonzero(self.keep)
        whole = int(self.listing.sizes[kept].sum())
        for ordinal, detail in self.details.items():
            if detail.byte_ranges is not None and self.keep[ordinal]:
                whole -= int(self.listing.sizes[ordinal])
                whole += sum(part.length for part in detail.byte_ranges)
        return whole

    @property
    def rows_total(self) -> int:
        """Rows of all files, -1 where the count of one is unknown."""
        return -1 if np.any(self.row_counts < 0) else int(self.row_counts.sum())

    @cached_property
    def rows_kept(self) -> int:
        """Rows that may match by the ``details`` of the files to open; -1 for unknown."""
        if self.rows_total < 0:
            return -1
        counts = self.row_counts * self.keep
        for ordinal, detail in self.details.items():
            if detail.rows is not None:
                counts[ordinal] = len(detail.rows)
        return int(counts.sum())

    @property
    def rows_of_files_kept(self) -> int:
        """All rows of the files that must be opened, -1 where the count of one is unknown."""
        counts = self.row_counts[self.keep]
        return -1 if np.any(counts < 0) else int(counts.sum())

    @property
    def exact(self) -> bool:
        """True when the predicate is decided for every file: all rows of those kept match."""
        return bool(np.array_equal(self.keep, self.must)) and bool(
            np.all(self.row_counts[self.must] >= 0)
        )

    def count(self) -> int | None:
        """The number of matching rows, ``None`` where the plan is not exact for every file."""
        count, rest = self.known_count()
        return None if rest else count

    def known_count(self) -> tuple[int, list[int]]:
        """The matching rows of all files whose count is known exactly, and the ordinals of the
        others."""
        count, rest = 0, []
        for file in np.flatnonzero(self.keep).tolist():
            detail = self.details.get(file)
            if self.must[file] and self.row_counts[file] >= 0:
                count += int(self.row_counts[file])
            elif detail is not None and detail.exact and detail.rows is not None:
                count += len(detail.rows)
            else:
                rest.append(file)
        return count, rest

    @property
    def requests(self) -> int:
        """Requests of a reader of pages; one per whole file."""
        total = self.files_kept
        for ordinal, detail in self.details.items():
            if detail.byte_ranges is not None and self.keep[ordinal]:
                total += len(detail.byte_ranges) - 1
        return total

    def with_byte_ranges(self, ranges: Mapping[int, tuple[ByteRange, ...]]) -> Plan:
        """The same plan with the byte ranges that a reader will request, by file."""
        found = {
            at: replace(self.details.get(at, _WHOLE), byte_ranges=each)
            for at, each in ranges.items()
        }
        return replace(self, details={**self.details, **found})

    def without_rows(self, deleted: Mapping[int, RowSet]) -> Plan:
        """The same plan without rows that the table has deleted, by file; files that the plan has
        left out need not be there.

        No file of these is in ``must`` then: its row count has the deleted rows too.
        ``UnsupportedError`` where it is not known how many rows such a file has.
        """
        if not deleted:
            return self
        keep, must, details = self.keep.copy(), self.must.copy(), dict(self.details)
        dropped = None if self.dropped is None else self.dropped.copy()
        for file, gone in deleted.items():
            if not keep[file]:
                continue
            detail = details.pop(file, _WHOLE)
            rows = detail.rows
            if rows is None:
                if self.row_counts[file] < 0:
                    raise UnsupportedError(
                        f"{self.listing.paths[file]} has {len(gone):,} deleted rows, and the table"
                        " does not say of how many"
                    )
                rows = RowSet.all(int(self.row_counts[file]))
            left, sure = rows - gone, detail.exact or bool(must[file])
            keep[file], must[file] = bool(left), False
            if left:
                details[file] = replace(detail, rows=left, exact=sure)
            elif dropped is not None:
                dropped[file] = Level.ROW
        counts = {file: len(gone) for file, gone in deleted.items()}
        return replace(self, keep=keep, must=must, details=details, dropped=dropped, deleted=counts)

    @cached_property
    def paths(self) -> list[str]:
        """Canonical paths of the files to open, in listing order."""
        paths = self.listing.paths
        return [paths[i] for i in np.flatnonzero(self.keep)]

    @cached_property
    def files(self) -> tuple[PlannedFile, ...]:
        """The files to open, in listing order, with what to read of each."""
        return tuple(
            PlannedFile(
                path=self.listing.paths[i],
                size=int(self.listing.sizes[i]),
                rows=int(self.row_counts[i]),
                whole_file_matches=bool(self.must[i]),
                detail=self.details.get(i, _WHOLE),
            )
            for i in np.flatnonzero(self.keep).tolist()
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values: totals, steps, reasons; file paths only of the files to open."""
        return {
            "table": self.table,
            "predicate": self.predicate,
            "residual": self.residual,
            "exact": self.exact,
            "files": {"kept": self.files_kept, "total": self.files_total},
            "bytes": {"kept": self.bytes_kept, "total": self.bytes_total},
            "rows": {"kept": _known(self.rows_kept), "total": _known(self.rows_total)},
            "facts": {
                "fresh": self.facts_fresh,
                "stale": self.facts_stale,
                "missing": self.facts_missing,
            },
            **({"sidecars": self.sidecars} if self.sidecars else {}),
            **({} if self.coverage is None else {"partitions": self.coverage.to_dict()}),
            **({} if self.schema is None else {"schema": self.schema.to_dict()}),
            "requests": self.requests,
            "planning": {"bytes": self.planning[0], "requests": self.planning[1]},
            "steps": [step.to_dict() for step in self.steps],
            "reasons": [str(reason) for reason in self.reasons],
            "milliseconds": {key: round(value, 3) for key, value in self.milliseconds.items()},
            "paths": self.paths,
        }

    def __repr__(self) -> str:
        kept = of_total(self.files_kept, self.files_total, "files")
        return f"Plan({self.table!r}, where {self.predicate}: {kept})"


_WHOLE = FileDetail()


def _known(count: int) -> int | None:
    return None if count < 0 else count
