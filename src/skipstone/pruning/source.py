"""``Source``: the units and the evidence of one level below the files, for the planner.

The object level's units are all files of the listing. A ``Source`` splits units that are still
undecided into finer ones (row groups, pages) and gives the evidence about them. A ``RowSource``
gives the evidence about the rows of one file. A unit that a source cannot split (no footer, no
fact) stays whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Leaf

    from . import Evidence, Level, Reason, Units


class Source(ABC):
    """Units and evidence of the row group or the page level; see the module.

    ``split`` and ``evidence`` are what a source must have. The planner calls ``observe`` and
    ``split`` once per plan, in this order, and reads ``spent`` and ``reasons`` after that.
    """

    __slots__ = ()

    #: ``ROW_GROUP`` or ``PAGE``
    level: Level
    #: True where ``split`` limits its own cost: the planner's ``CostGate`` passes every unit
    limits_cost: ClassVar[bool] = False

    @property
    def spent(self) -> tuple[int, int]:
        """Bytes and requests that ``split`` took."""
        return 0, 0

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why some units were not asked about."""
        return ()

    def observe(self, alive: Units) -> None:  # noqa: B027 - most sources ignore it
        """Takes all units that may hold a match, the decided ones included."""

    @abstractmethod
    def split(self, units: Units, columns: frozenset[str]) -> tuple[Units, NDArray[np.int64]]:
        """The finer units, and for each the position in ``units`` of the one it lies in.

        The parts of a unit cover all its rows; a unit that cannot be split has no parts.
        """

    @abstractmethod
    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The evidence about these units."""


class RowSource(Protocol):
    """Evidence of the row level, file by file."""

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[Evidence[Leaf]]:
        """The evidence about the rows of one file; may be empty."""
