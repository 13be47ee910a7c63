"""The row group level of a plan from ``_pm`` snapshots: no Parquet footer is read for it.

``PmSource`` splits files by NUM_ROWS of their row groups. Its evidence per column: ``_pm
statistics``, which costs nothing, and ``_pm bloom filter``, which costs nothing where filters are
inlined and a block per value where they lie in the data file. The descriptors and chunks of all
columns that are asked about are taken from a file in one gather; a file whose ``_pm`` is damaged
where it is looked at says nothing, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.errors import SkipstoneError
from skipstone.parquet.evidence.indexed_file import why
from skipstone.parquet.evidence.row_groups import StatisticsEvidence, Together
from skipstone.pruning import Answer, Level, Reason, Units
from skipstone.pruning.source import Source
from skipstone.questdb.format.statistics import ChunkStats

from .bloom import PmBloomEvidence
from .chunk_bounds import chunk_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import Evidence, Fetched

    from .pm_file import PmFile

__all__ = ["PmSource", "PmStatistics", "pm_source"]

IntArray: TypeAlias = "NDArray[np.int64]"


class PmSource(Source):
    """Units and evidence of the row groups of ``files``, by their ordinals in the plan's listing.

    Keep it as long as the files: it remembers what it has put together.
    """

    level = Level.ROW_GROUP

    def __init__(self, files: Mapping[int, PmFile]) -> None:
        self.files = files
        self._found: dict[str, Sequence[Evidence[Leaf]]] = {}

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """The row groups of every file that is here."""
        here = [(at, file) for at, file in enumerate(units.file.tolist()) if file in self.files]
        starts = [self.files[file].row_starts for _, file in here]
        counts = np.array([len(each) - 1 for each in starts], np.int64)
        parent = np.repeat(np.array([at for at, _ in here], np.int64), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        none = np.empty(0, np.int64)
        return Units(
            level=Level.ROW_GROUP,
            file=units.file[parent],
            ordinal=np.arange(len(parent), dtype=np.int64) - before,
            first_row=np.concatenate([none, *(each[:-1] for each in starts)]),
            rows=np.concatenate([none, *(self.files[file].rows for _, file in here)]),
        ), parent

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics and Bloom filters of the columns that are here."""
        missing = sorted(columns - self._found.keys())
        if missing:
            self._found.update(_evidence(self.files, missing))
        return [each for column in sorted(columns) for each in self._found[column]]


def pm_source(files: Mapping[int, PmFile]) -> PmSource:
    """The row group level of these files, by their ordinals in the plan's listing."""
    return PmSource(files)


class PmStatistics(StatisticsEvidence):
    """MIN_STAT, MAX_STAT and NULL_COUNT of row groups (``chunk_bounds.py``)."""

    name = "_pm statistics"

    def __init__(
        self, column: str, together: Sequence[Together], reasons: Sequence[Reason]
    ) -> None:
        super().__init__(column, together)
        self.reasons = tuple(reasons)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, over exactly these units."""
        found = super().answer(leaves, units, have)
        if not self.reasons:
            return found
        return [
            Answer(bounds=each.bounds, reasons=(*each.reasons, *self.reasons)) for each in found
        ]


def _evidence(
    files: Mapping[int, PmFile], columns: Sequence[str]
) -> dict[str, Sequence[Evidence[Leaf]]]:
    """The evidence of each of these columns, from one gather per file."""
    parts: dict[str, dict[object, list[tuple[int, Stored, ChunkStats]]]]
    parts = {column: {} for column in columns}
    reasons: dict[str, dict[Reason, None]] = {column: {} for column in columns}
    for ordinal, file in files.items():
        asked: list[tuple[str, int, Stored]] = []
        for column in columns:
            try:
                known = file.stored(column)
            except (SkipstoneError, ValueError) as error:
                reasons[column].setdefault(_why(error, column))
                continue
            if known is not None:
                asked.append((column, *known))
        if not asked:
            continue
        stats = file.snapshot.stats([place for _, place, _ in asked])
        for at, (column, _, stored) in enumerate(asked):
            of_column = ChunkStats(
                chunks=stats.chunks[:, at : at + 1],
                out_of_line=stats.out_of_line,
                data=stats.data,
                end=stats.end,
                file=stats.file,
            )
            key = (stored.form, stored.type, stored.unit, stored.column.type,
                   stored.column.type_length, stored.column.max_definition_level)  # fmt: skip
            parts[column].setdefault(key, []).append((ordinal, stored, of_column))
    found: dict[str, Sequence[Evidence[Leaf]]] = {}
    for column in columns:
        together: list[Together] = []
        for members in parts[column].values():
            together += _together(files, column, members, reasons[column])
        evidence: list[Evidence[Leaf]] = []
        if together or reasons[column]:
            evidence.append(PmStatistics(column, together, list(reasons[column])))
        filters = PmBloomEvidence.of(column, files)
        if filters is not None:
            evidence.append(filters)
        found[column] = evidence
    return found


def _together(
    files: Mapping[int, PmFile],
    column: str,
    members: Sequence[tuple[int, Stored, ChunkStats]],
    reasons: dict[Reason, None],
) -> list[Together]:
    """Bounds of files that store a column alike, without those that are damaged there."""
    try:
        rows = np.concatenate([files[ordinal].rows for ordinal, _, _ in members])
        bounds = chunk_bounds(members[0][1], [part for _, _, part in members], rows)
    except (SkipstoneError, ValueError) as error:
        if len(members) == 1:
            reasons.setdefault(_why(error, column))
            return []
        # Halves, so that one damaged file of many silences itself and nobody else.
        half = len(members) // 2
        return [
            *_together(files, column, members[:half], reasons),
            *_together(files, column, members[half:], reasons),
        ]
    base = np.full(max(files) + 1, -1, np.int64)
    sizes = np.cumsum([0, *(len(part.chunks) for _, _, part in members)])
    base[[ordinal for ordinal, _, _ in members]] = sizes[:-1]
    return [Together(bounds, base)]


def _why(error: Exception, column: str) -> Reason:
    return why(error, f"{PmStatistics.name}({column})")
