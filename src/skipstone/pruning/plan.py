"""``Plan``: what to read and why, as a value that every reader and every display consumes.

A plan names files, row groups, row ranges and byte ranges; a file without an entry in
``details`` is read whole. Each count comes with its denominator. ``keep`` and ``must`` are over
the files of the listing: a file outside ``keep`` holds no match, every row of a file in ``must``
matches. ``residual`` is what is still to be checked of the rows that a plan names, ``None`` where
all of them match. ``sidecars`` is of how many files Paimon's index beside them was asked.
``dropped`` says of each file at which level its last row went, -1 where it is kept, and ``stale``
and ``missing`` which files have no fact that counts: int8 and booleans over the files, ``None``
where the plan was not made from levels, or from facts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.human import of_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    import pyarrow.dataset as ds
    from numpy.typing import NDArray

    from skipstone.execution.engine_export import Handed
    from skipstone.planning.forecast import Analysis, Forecast
    from skipstone.storage import ByteRange, Listing

    from . import Level, Reason, RowSet

__all__ = ["Coverage", "FileDetail", "Plan", "PlannedFile", "Reader", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one index did at one level: ``considered`` units came in, ``kept`` went on.

    ``used`` is False when it said nothing of the predicate, and ``reasons`` say why. ``bytes_read``
    and ``requests`` are what its answer took beyond what was in memory.
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
        """The same index at the same level over more units."""
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
            "level": self.level.name.lower(),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a table is read at all: ``read`` of ``total`` partitions, without ``left_out``.

    Every result from a part of a table says so.
    """

    read: int
    total: int
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return of_total(self.read, self.total, "partitions")

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"read": self.read, "total": self.total, "left_out": list(self.left_out)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDetail:
    """What to read of one file below the object level; ``None`` = all of it.

    ``row_groups`` are ordinals, ``rows`` positions from the start of the file, ``byte_ranges``
    what a reader that fetches pages will ask for, ``exact`` that every selected row matches.
    """

    row_groups: tuple[int, ...] | None = None
    rows: RowSet | None = None
    byte_ranges: tuple[ByteRange, ...] | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file to read. ``rows`` is its row count, -1 where no fact says it."""

    path: str
    size: int
    rows: int
    whole_file_matches: bool
    detail: FileDetail


class Reader(Protocol):
    """Who reads the rows of a plan without Spark (``scan/dataset``)."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""

    def table_of(self, plan: Plan) -> pa.Table:
        """All rows."""

    def batches(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        """The same, piece by piece."""

    def foresee(self, plan: Plan, *, look: bool) -> Forecast:
        """What reading will ask for; with ``look`` the places of pages are read for it."""

    def handed(self, plan: Plan) -> Handed:
        """The files as other engines read them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """See the module. Arrays are over the files of ``listing``, in its order.

    ``coverage`` is of a table that was opened for those of its partitions that can be read.
    ``forecast`` is what reading will take where somebody looked (``Table.explain``).
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
    reader: Reader | None = field(default=None, repr=False)
    forecast: Forecast | None = None

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
        if self.foreseen is not None:
            return self.foreseen.total.bytes
        kept = np.flatnonzero(self.keep)
        whole = int(self.listing.sizes[kept].sum())
        for ordinal, detail in self.details.items():
            if detail.byte_ranges is not None and self.keep[ordinal]:
                whole -= int(self.listing.sizes[ordinal])
                whole += sum(part.length for part in detail.byte_ranges)
        return whole

    @property
    def rows_total(self) -> int:
        """Rows of all files, -1 where that of one is not known."""
        return -1 if np.any(self.row_counts < 0) else int(self.row_counts.sum())

    @cached_property
    def rows_kept(self) -> int:
        """Rows that may match, by what ``details`` say of the files to open; -1 for unknown."""
        if self.rows_total < 0:
            return -1
        counts = self.row_counts * self.keep
        for ordinal, detail in self.details.items():
            if detail.rows is not None:
                counts[ordinal] = len(detail.rows)
        return int(counts.sum())

    @property
    def rows_of_files_kept(self) -> int:
        """All rows of the files that must be opened, -1 where that of one is not known."""
        counts = self.row_counts[self.keep]
        return -1 if np.any(counts < 0) else int(counts.sum())

    @property
    def exact(self) -> bool:
        """True when the predicate is decided for every file: all rows of those kept match."""
        return bool(np.array_equal(self.keep, self.must)) and bool(
            np.all(self.row_counts[self.must] >= 0)
        )

    def count(self) -> int | None:
        """How many rows match, ``None`` where the indexes do not know it exactly of every file."""
        from .counting import exact_count

        return exact_count(self)

    @property
    def requests(self) -> int:
        """Requests that a page-fetching reader will make; one per whole file."""
        if self.foreseen is not None:
            return self.foreseen.total.requests
        total = self.files_kept
        for ordinal, detail in self.details.items():
            if detail.byte_ranges is not None and self.keep[ordinal]:
                total += len(detail.byte_ranges) - 1
        return total

    @cached_property
    def paths(self) -> list[str]:
        """Canonical paths of the files to open, in listing order."""
        paths = self.listing.paths
        return [paths[i] for i in np.flatnonzero(self.keep)]

    @cached_property
    def files(self) -> tuple[PlannedFile, ...]:
        """The files to open, in listing order, with what to read of each."""
        ranges = {} if self.foreseen is None else self.foreseen.byte_ranges
        return tuple(
            PlannedFile(
                path=self.listing.paths[i],
                size=int(self.listing.sizes[i]),
                rows=int(self.row_counts[i]),
                whole_file_matches=bool(self.must[i]),
                detail=_with_ranges(self.details.get(i, _WHOLE), ranges.get(i)),
            )
            for i in np.flatnonzero(self.keep).tolist()
        )

    # -- what it will take -------------------------------------------------------------------------

    @cached_property
    def foreseen(self) -> Forecast | None:
        """What reading will ask for, from what is known now; ``None`` for a plan without a reader.

        Of chunks whose pages planning did not look at it counts all; ``Table.explain`` looks.
        """
        if self.forecast is not None or self.reader is None:
            return self.forecast
        return self.reader.foresee(self, look=False)

    def explained(self) -> Plan:
        """The same plan after a look at where the pages lie that reading will ask for."""
        if self.forecast is not None or self.reader is None:
            return self
        return replace(self, forecast=self.reader.foresee(self, look=True))

    def analyze(self) -> Analysis:
        """Run it with the embedded engine, and say what that took; the rows are dropped.

        Counted are the reads of this run alone, whatever else reads meanwhile. Raises as
        ``to_arrow``.
        """
        from skipstone.planning.forecast import Amount, Analysis
        from skipstone.storage.base import metered

        plan = self.explained()
        rows, started = 0, time.perf_counter()
        with metered() as meter:
            for batch in plan.to_batches():
                rows += batch.num_rows
        return Analysis(
            plan=plan,
            rows=rows,
            files_read=len(meter.paths),
            read=Amount(bytes=meter.bytes_read, requests=meter.requests),
            milliseconds=(time.perf_counter() - started) * 1e3,
        )

    # -- reading -----------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """The rows that match, as a table: read now, and decided exactly.

        ``UnsupportedError`` where the plan has no reader (that of a store of another's), or a part
        of the predicate cannot be decided without Spark; ``StaleError`` for a file that changes
        while it is read.
        """
        return self._reader.table_of(self)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The same, batch by batch: what is held does not grow with the result, but for an order
        without a limit."""
        return self._reader.batches(self)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that the plan gives."""
        return self._reader.schema

    @property
    def _reader(self) -> Reader:
        if self.reader is None:
            raise UnsupportedError(
                "this plan has no reader", hint="make it with Table.plan, or read its `paths`"
            )
        return self.reader

    # -- handing over ------------------------------------------------------------------------------

    def to_duckdb(self, connection: Any = None) -> Any:
        """What is to be read, as a ``DuckDBPyRelation``; see ``handover``: nothing is filtered.

        ``connection`` is DuckDB's; by default one is opened in memory. Its ``sql_query()`` is the
        text.
        """
        from skipstone.execution.engine_export import duckdb_relation

        return duckdb_relation(self._reader.handed(self), connection)

    def to_polars(self) -> Any:
        """The same as a ``polars.LazyFrame``."""
        from skipstone.execution.engine_export import polars_frame

        return polars_frame(self._reader.handed(self))

    def to_pyarrow(self) -> ds.Dataset:
        """The same as a ``pyarrow.dataset.Dataset``, of whole row groups."""
        from skipstone.execution.engine_export import pyarrow_dataset

        return pyarrow_dataset(self._reader.handed(self))

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
            "requests": self.requests,
            "forecast": None if self.foreseen is None else self.foreseen.to_dict(),
            "steps": [step.to_dict() for step in self.steps],
            "reasons": [str(reason) for reason in self.reasons],
            "milliseconds": {key: round(value, 3) for key, value in self.milliseconds.items()},
            "paths": self.paths,
        }

    def __str__(self) -> str:
        from skipstone.planning.explain import render

        return render(self)

    def __repr__(self) -> str:
        from skipstone.planning.explain import one_line

        return f"Plan({one_line(self)})"

    def _repr_html_(self) -> str:
        from skipstone.planning.explain import render_html

        return render_html(self)


_WHOLE = FileDetail()


def _with_ranges(detail: FileDetail, ranges: tuple[ByteRange, ...] | None) -> FileDetail:
    return detail if ranges is None else replace(detail, byte_ranges=ranges)


def _known(count: int) -> int | None:
    return None if count < 0 else count
