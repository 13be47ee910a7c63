"""The object level: kinds whose stored values lie in memory, one per fact row.

``PerFile.answer`` does what is the same for all of them: it finds the fact row of each unit,
brings the leaf to the type that the column had when it was indexed, asks ``judge`` about the rows
that have a value, and says of all other files nothing, with a count. A kind of one's own at this
level writes ``judge`` and no more than that.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.predicate.tree import Const, Op

from . import Answer, BoolArray, Bounds, Cause, Reason
from .column_leaf import localise
from .interval import null_bounds
from .kind import Index, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

    from . import Fetched, Units

__all__ = ["PerFile", "Rows"]

IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, eq=False)
class Rows:
    """The fact rows that are asked about: those at ``at``, or all of them in order (``None``)."""

    stored: Stored
    at: IntArray | None = None

    def __len__(self) -> int:
        return len(self.stored.rows) if self.at is None else len(self.at)

    def pick(self, array: NDArray[np.int64]) -> IntArray:
        """The entries of an array over all fact rows."""
        return array if self.at is None else array[self.at]

    @cached_property
    def rows(self) -> IntArray:
        """Row counts, -1 unknown."""
        return self.pick(self.stored.rows)

    @cached_property
    def nulls(self) -> IntArray:
        """Null counts, -1 unknown."""
        return self.pick(self.stored.nulls)

    @property
    def values(self) -> pa.Array:
        """The stored values at these rows; null where not built."""
        if self.at is None:
            return self.stored.values
        return self.stored.values.take(pa.array(self.at))


class PerFile(Index):
    """Base of the kinds whose evidence is one stored value per file; see the module."""

    #: leaves that this kind can say something of; others get a silent answer
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    #: judging all rows in the order of memory costs no more than gathering an eighth of them
    sweeps: ClassVar[bool] = False

    @abstractmethod
    def judge(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """Bounds of ``leaf`` over exactly ``rows``, or ``None``: this kind says nothing of it.

        The leaf's type is ``rows.stored.type``. What is said of rows without a value is not heard.
        """

    def read_back(self, stored: Stored) -> Self:
        """The same definition as evidence over ``stored``."""
        other = super().read_back(stored)
        other.__dict__.pop("_of_every_file", None)  # that is about the rows of another
        return other

    def known(self, stored: Stored) -> BoolArray:
        """Which of all fact rows have a value."""
        found: BoolArray | None = stored.cache.get("known")
        if found is None:
            valid = stored.values.is_valid().to_numpy(zero_copy_only=False)
            found = stored.cache["known"] = np.asarray(valid, dtype=np.bool_)
        return found

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """One answer per leaf; see the module."""
        if self.stored is None:
            return [Answer.silent(Cause.ABSENT, self._subject, "not read back")] * len(leaves)
        if len(units) == len(self.stored.row_of_file) and self._every_file(units.file):
            rows, held = self._of_every_file
        else:
            rows, held = self._rows_of(self.stored.row_of_file[units.file])
        lacking = self._lacking(len(units) - len(rows), len(units))
        return [self._answer(leaf, rows, held, lacking) for leaf in leaves]

    @staticmethod
    def _every_file(file: IntArray) -> bool:
        return bool(np.array_equal(file, np.arange(len(file))))

    @cached_property
    def _of_every_file(self) -> tuple[Rows, BoolArray]:
        """What most questions begin with: worked out once per listing, and not per query."""
        assert self.stored is not None
        return self._rows_of(self.stored.row_of_file)

    def _rows_of(self, row: IntArray) -> tuple[Rows, BoolArray]:
        """Fact rows to judge, and which of ``row`` (fact rows, -1 for none) have a value there."""
        assert self.stored is not None
        known = self.known(self.stored)
        held = row >= 0
        held[held] = known[row[held]]
        at = row[held]
        whole = len(at) == len(known) and self._every_file(at)
        return Rows(self.stored, None if whole else at), held

    def _answer(
        self, leaf: Leaf, rows: Rows, held: BoolArray, lacking: tuple[Reason, ...]
    ) -> Answer:
        if not len(rows):
            return Answer(bounds=None, reasons=lacking)
        local = localise(leaf, rows.stored.type)
        if local is None:
            text = f"built when the column was {rows.stored.type}: {leaf} has no exact counterpart"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text, len(rows))
        bounds: Bounds[BoolArray] | None
        if isinstance(local, Const):
            bounds = (Bounds.everything if local.value else Bounds.nothing)(len(rows))
        elif local.op in (Op.IS_NULL, Op.NOT_NULL) and local.op is not leaf.op:
            bounds = null_bounds(local.op, rows.rows, rows.nulls)
        elif local.op not in self.ops:
            bounds = None
        elif self.sweeps and rows.at is not None and 8 * len(rows) >= len(rows.stored.rows):
            bounds = self.judge(local, Rows(rows.stored))
            if bounds is not None:
                bounds = Bounds(bounds.must[rows.at], bounds.may[rows.at])
        else:
            bounds = self.judge(local, rows)
        if bounds is None:
            text = f"says nothing of {leaf.op}"
            return Answer.silent(Cause.NOT_APPLICABLE, self._subject, text)
        if held.all():
            return Answer(bounds=bounds, reasons=lacking)
        must, may = np.zeros(len(held), np.bool_), np.ones(len(held), np.bool_)
        must[held], may[held] = bounds.must, bounds.may
        return Answer(bounds=Bounds(must, may), reasons=lacking)

    def _lacking(self, count: int, total: int) -> tuple[Reason, ...]:
        if not count:
            return ()
        text = f"not built for {count:,} of {total:,} files"
        return (Reason(cause=Cause.ABSENT, subject=self._subject, text=text, units=count),)

    @property
    def _subject(self) -> str:
        return f"{self.name}({self.column})"
