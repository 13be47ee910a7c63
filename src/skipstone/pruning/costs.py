"""The cost gate: where evaluating a finer level costs more than it may save.

A level evaluates a unit only where

    EXPECTED x bytes of the unit / bytes_per_second  >  seconds of evaluating it

``EXPECTED`` is the share of the evaluated bytes that is skipped in the end. It is unknown before;
with a half, a wrong guess loses no more than was invested. The other constants were measured on
local files in the page cache, and against an object store at 20 ms per request with 32 concurrent
requests. Bytes are the stored bytes of the undecided rows in all columns, because the levels do not
know which columns will be read.

``SPARK`` is for the choice between Spark's own reader on the remaining files and Python workers
that read planned pages, measured with two cores. A Python worker has a start-up time and plans
again; after that both take the same time per byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import distinct
from . import Cause, Level, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from . import Units
    from .evidence import Source


EXPECTED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds: ``file`` to open one and decode its footer, ``chunk`` for the page index of a column
    chunk, ``rows`` to evaluate one index for the rows of a file. ``bytes_per_second`` is how fast
    stored bytes are read and decoded."""

    file: float
    chunk: float
    rows: float
    bytes_per_second: float

    def looking(self, level: Level, columns: int) -> float:
        """Seconds of evaluating one unit: a file, or for pages a row group."""
        match level:
            case Level.ROW_GROUP:
                return self.file
            case Level.PAGE:
                return self.chunk * columns
            case Level.ROW:
                return self.rows * columns
            case _:
                return 0.0

    def rows_first(self, columns: int) -> bool:
        """Whether row indexes that decide every row cost less than opening the file and reading its
        page indexes. Where evaluating is free, all levels keep their order."""
        return self.rows * columns < self.file + self.chunk * columns

    def worth(self, level: Level, stored: NDArray[np.int64], columns: int) -> NDArray[np.bool_]:
        """Flags of the units, of ``stored`` bytes each, whose evaluation is expected to pay."""
        return EXPECTED * stored > self.looking(level, columns) * self.bytes_per_second


LOCAL = Costs(file=250e-6, chunk=60e-6, rows=200e-6, bytes_per_second=500e6)
REMOTE = Costs(file=1.5e-3, chunk=0.8e-3, rows=1.5e-3, bytes_per_second=80e6)
#: evaluates every unit
FREE = Costs(file=0.0, chunk=0.0, rows=0.0, bytes_per_second=1.0)


class CostGate:
    """Decides which units a source evaluates, and counts those that do not pay."""

    def __init__(
        self, costs: Costs, sizes: NDArray[np.int64], rows: NDArray[np.int64], columns: int
    ) -> None:
        self.costs, self.sizes, self.rows, self.columns = costs, sizes, rows, columns
        self.reasons: list[Reason] = []
        self.passed = np.zeros(len(sizes), np.bool_)  # files that were left out

    def choose(
        self, source: Source, units: Units, undecided: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Those of the ``undecided`` positions that ``source`` evaluates."""
        if source.limits_cost or self.costs is FREE or not len(undecided):
            return undecided
        level = source.level
        file = units.file[undecided]
        stored = self.sizes[file]
        if units.level is not Level.OBJECT:
            # Without a row count the unit is the whole file.
            part = units.rows[undecided]
            known = np.maximum(np.maximum(self.rows[file], part), 1)
            stored = (stored * np.where(part < 0, 1.0, part / known)).astype(np.int64)
        worth = self.costs.worth(level, stored, self.columns)
        if level is Level.ROW_GROUP:
            # Some units may be row groups already, but a file is opened or not as a whole.
            passed = distinct(file[~worth])
            self.passed[passed] = True
            self._report(level, Level.OBJECT, len(passed), len(distinct(file)))
        else:
            # Unopened files were counted above.
            counted = ~self.passed[file]
            self._report(level, units.level, int(np.sum(~worth & counted)), int(np.sum(counted)))
        return undecided[worth]

    def _report(self, level: Level, unit: Level, passed: int, total: int) -> None:
        """Adds the reason for ``passed`` of ``total`` units that were left out."""
        if passed:
            text = f"not looked at in {passed:,} of {total:,} {unit.unit}, which take less to read"
            # The text has the count and its denominator.
            self.reasons.append(Reason(cause=Cause.COSTLY, subject=level.unit, text=text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCosts:
    """``native``, ``pages``: stored bytes per second that Spark's own reader and a page reader read
    and decode; ``start``: seconds until the first page arrives; ``most_rows``: above this ``limit``
    Spark sorts the rows, in parts."""

    native: float
    pages: float
    start: float
    most_rows: int

    def native_seconds(self, stored: int) -> float:
        """Seconds of Spark's own reader for this many bytes of undecided row groups."""
        return stored / self.native

    def pages_seconds(self, stored: int) -> float:
        """Seconds for this many bytes of planned pages."""
        return self.start + stored / self.pages


SPARK = SparkCosts(native=40e6, pages=40e6, start=0.3, most_rows=1_000_000)
