"""The row group level: splits files into row groups, with evidence from the footer.

``RowGroupSource`` splits files by the row counts of their row groups. Its evidence: ``statistics``
from the footer, without reads; ``bloom filter``, a header and a block per value; ``dictionary``, a
page per row group where that is cheap enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.pruning import Answer, Bounds, Cause, Level, Reason, Units
from skipstone.pruning.evidence import Source

from .bloom import BloomEvidence
from .dictionary import DictionaryEvidence
from .indexed_file import ColumnEvidence, files_with
from .value_bounds import ValueBounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf
    from skipstone.pruning import BoolArray, Evidence, Fetched
    from skipstone.storage import ByteRange

    from .indexed_file import IndexedFile


IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True, eq=False)
class FilesBounds:
    """Bounds of several files that store a column in the same way: row group ``r`` of file ``f`` is
    at ``base[f] + r``; ``base`` is -1 for all other files."""

    bounds: ValueBounds
    base: IntArray


class RowGroupSource(Source):
    """Units and evidence of the row groups of ``files``, by their ordinals in the plan's listing.

    Keep it as long as the files: it caches combined bounds.
    """

    level = Level.ROW_GROUP

    def __init__(self, files: Mapping[int, IndexedFile]) -> None:
        self.files = files
        self._combined: dict[str, list[FilesBounds]] = {}

    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, IntArray]:
        """The row groups of every file of this source."""
        ordinals, starts, rows = [], [], []
        known: list[int] = []
        for at, file in enumerate(units.file.tolist()):
            if file in self.files:
                footer = self.files[file].footer
                known.append(at)
                starts.append(footer.row_starts[:-1])
                rows.append(footer.group("num_rows"))
        counts = np.array([len(each) for each in rows], np.int64)
        parent = np.repeat(np.array(known, np.int64), counts)
        ordinals = [np.arange(count) for count in counts.tolist()]
        none = np.empty(0, np.int64)
        return Units(
            level=Level.ROW_GROUP,
            file=units.file[parent],
            ordinal=np.concatenate([none, *ordinals]),
            first_row=np.concatenate([none, *starts]),
            rows=np.concatenate([none, *rows]),
        ), parent

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """Statistics, Bloom filters and dictionaries of these columns."""
        found: list[Evidence[Leaf]] = []
        for column in sorted(columns):
            holding = files_with(column, self.files)
            if not holding:
                continue
            found.append(StatisticsEvidence(column, self._bounds(column, holding)))
            for kind in (BloomEvidence, DictionaryEvidence):
                evidence = kind.of(column, holding)
                if evidence is not None:
                    found.append(evidence)
        return found

    def _bounds(self, column: str, holding: Mapping[int, IndexedFile]) -> list[FilesBounds]:
        known = self._combined.get(column)
        if known is not None:
            return known
        groups: dict[object, list[tuple[int, ValueBounds]]] = {}
        for ordinal, file in holding.items():
            bounds = file.chunk_bounds(file.columns[column])
            stored = bounds.stored
            key = (stored.form, stored.type, stored.unit, stored.column.type)
            groups.setdefault(key, []).append((ordinal, bounds))
        combined = []
        for members in groups.values():
            base = np.full(max(self.files) + 1, -1, np.int64)
            sizes = np.cumsum([0, *(len(bounds) for _, bounds in members)])
            base[[ordinal for ordinal, _ in members]] = sizes[:-1]
            combined.append(FilesBounds(ValueBounds.concat([each for _, each in members]), base))
        self._combined[column] = combined
        return combined


class StatisticsEvidence(ColumnEvidence):
    """Bounds and null counts of row groups (``written_bounds.py``)."""

    name = "statistics"
    level = Level.ROW_GROUP
    cost = 1.0

    def __init__(self, column: str, combined: Sequence[FilesBounds]) -> None:
        super().__init__(column, {})
        self.combined = combined

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Nothing: statistics are in the footer."""
        return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf, over exactly these units."""
        chosen: list[tuple[BoolArray | None, ValueBounds]] = []
        covered = np.zeros(len(units), np.bool_)
        for each in self.combined:
            inside = units.file < len(each.base)
            base = each.base[np.where(inside, units.file, 0)]
            here = inside & (base >= 0)
            at = base[here] + units.ordinal[here]
            if not len(at):
                continue
            covered |= here
            whole = len(at) == len(each.bounds) and bool(np.array_equal(at, np.arange(len(at))))
            bounds = each.bounds if whole else each.bounds.where(at)
            chosen.append((None if here.all() else here, bounds))
        reasons: tuple[Reason, ...] = ()
        absent = len(units) - int(np.count_nonzero(covered))
        if absent:
            text = f"{absent:,} of {len(units):,} row groups have no such column"
            reasons = (Reason(cause=Cause.ABSENT, subject=self.subject, text=text, units=absent),)
        return [self._answer(leaf, chosen, len(units), reasons) for leaf in leaves]

    def _answer(
        self,
        leaf: Leaf,
        chosen: Sequence[tuple[BoolArray | None, ValueBounds]],
        count: int,
        reasons: tuple[Reason, ...],
    ) -> Answer:
        if len(chosen) == 1 and chosen[0][0] is None:
            found = chosen[0][1].bounds_of(leaf)
            return self.silent(leaf) if found is None else Answer(bounds=found, reasons=reasons)
        must, may = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        decided = False
        for here, bounds in chosen:
            found = bounds.bounds_of(leaf)
            if found is not None:
                must[here], may[here] = found.must, found.may
                decided = True
        return Answer(bounds=Bounds(must, may), reasons=reasons) if decided else self.silent(leaf)
