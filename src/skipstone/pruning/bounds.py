"""``Bounds(must, may)``: what an index proves about a predicate, as two sets of units.

- ``may`` holds every unit in which **some row** may match: a unit outside holds no match.
- ``must`` holds only units in which **every row** surely matches. It is never "some row surely
  matches": that breaks under AND (two halves of a unit) and under ``count(*)``.

At the object, row group and page levels a set is a NumPy boolean array over the units; at the row
level it is a ``RowSet`` of row positions, where both readings are the same.

Combining, with ``&`` and ``|`` on sets:

    AND       must = a.must & b.must     may = a.may & b.may
    OR        must = a.must | b.must     may = a.may | b.may
    sharpen   must = a.must | b.must     may = a.may & b.may      (two indexes on one leaf)

There is no NOT: complementing bounds is unsound under SQL's three-valued logic. NOT is pushed to
the leaves first (``skipstone.predicate``), so leaves come in pairs.

Invariant: ``must`` is a subset of ``may``. A unit without rows matches vacuously and holds no
match; it counts as outside both.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import numpy as np

from skipstone._dataclasses import dataclass

from .row_set import RowSet

if TYPE_CHECKING:
    from numpy.typing import NDArray


BoolArray: TypeAlias = "NDArray[np.bool_]"
S = TypeVar("S")


def _and(a: S, b: S) -> S:
    return cast("S", cast("Any", a) & cast("Any", b))


def _or(a: S, b: S) -> S:
    return cast("S", cast("Any", a) | cast("Any", b))


@dataclass(frozen=True, slots=True, eq=False)
class Bounds(Generic[S]):
    """Lower (``must``) and upper (``may``) bound of the units that match; see the module."""

    must: S
    may: S

    # The methods that combine the bounds of several sources. Only ``pruning`` and ``planning`` may
    # call them.
    COMBINATORS: ClassVar[tuple[str, ...]] = ("meet_and", "meet_or", "sharpen")

    def __post_init__(self) -> None:
        # Two sources may contradict each other, and a unit may be empty: a unit outside `may` is
        # never in `must`.
        if isinstance(self.may, np.ndarray) and isinstance(self.must, np.ndarray):
            if self.must.shape != self.may.shape:
                raise ValueError(f"must has shape {self.must.shape}, may {self.may.shape}")
            if self.must is not self.may and (self.must > self.may).any():
                object.__setattr__(self, "must", self.must & self.may)
        elif isinstance(self.may, RowSet) and isinstance(self.must, RowSet):
            if self.must and self.must is not self.may:
                object.__setattr__(self, "must", self.must & self.may)
        else:
            raise TypeError(f"must is {type(self.must).__name__}, may {type(self.may).__name__}")

    @classmethod
    def unknown(cls, count: int) -> Bounds[BoolArray]:
        """Proves nothing about ``count`` units: every one may match, none must."""
        return Bounds(np.zeros(count, dtype=np.bool_), np.ones(count, dtype=np.bool_))

    @classmethod
    def nothing(cls, count: int) -> Bounds[BoolArray]:
        """No row of any of ``count`` units matches."""
        none = np.zeros(count, dtype=np.bool_)
        return Bounds(none, none)

    @classmethod
    def everything(cls, count: int) -> Bounds[BoolArray]:
        """Every row of every one of ``count`` units matches."""
        every = np.ones(count, dtype=np.bool_)
        return Bounds(every, every)

    @property
    def exact(self) -> bool:
        """True when ``must == may``: the predicate is decided, and ``count(*)`` is legal."""
        if self.must is self.may:
            return True
        if isinstance(self.must, np.ndarray) and isinstance(self.may, np.ndarray):
            return bool(np.array_equal(self.must, self.may))
        return bool(self.must == self.may)

    @staticmethod
    def over(part: Bounds[BoolArray], at: NDArray[Any], count: int) -> Bounds[BoolArray]:
        """Bounds over the units ``at`` (mask or positions) as bounds over ``count`` units; the
        others are unknown."""
        found = Bounds.unknown(count)
        if at.dtype == np.bool_:
            at = np.flatnonzero(at)  # several times as fast, unless nearly all are set
        if part.must.any():
            found.must[at] = part.must
        found.may[at] = part.may
        return found

    def meet_and(self, other: Bounds[S]) -> Bounds[S]:
        """Bounds of ``p AND q`` from bounds of ``p`` and of ``q``."""
        if self.must is self.may and other.must is other.may:  # both decided: one set is enough
            both = _and(self.may, other.may)
            return Bounds(both, both)
        return Bounds(_and(self.must, other.must), _and(self.may, other.may))

    def meet_or(self, other: Bounds[S]) -> Bounds[S]:
        """Bounds of ``p OR q`` from bounds of ``p`` and of ``q``."""
        if self.must is self.may and other.must is other.may:
            either = _or(self.may, other.may)
            return Bounds(either, either)
        return Bounds(_or(self.must, other.must), _or(self.may, other.may))

    def sharpen(self, other: Bounds[S]) -> Bounds[S]:
        """Bounds of one leaf from those of two indexes."""
        return Bounds(_or(self.must, other.must), _and(self.may, other.may))


class Constants:
    """Bounds over ``count`` units of a leaf of which nothing is known, of one that no row matches,
    and of one that every row matches; each is made when it is first needed."""

    def __init__(self, count: int) -> None:
        self.count = count

    @cached_property
    def unknown(self) -> Bounds[Any]:
        return Bounds.unknown(self.count)

    @cached_property
    def nothing(self) -> Bounds[Any]:
        return Bounds.nothing(self.count)

    @cached_property
    def everything(self) -> Bounds[Any]:
        return Bounds.everything(self.count)


class RowConstants(Constants):
    """``Constants`` over the ``count`` rows of one file, as ``RowSet``."""

    @cached_property
    def unknown(self) -> Bounds[Any]:
        return Bounds(RowSet(), self.everything.may)

    @cached_property
    def nothing(self) -> Bounds[Any]:
        none = RowSet()
        return Bounds(none, none)

    @cached_property
    def everything(self) -> Bounds[Any]:
        every = RowSet.all(self.count)
        return Bounds(every, every)


@lru_cache(maxsize=64)
def row_constants(rows: int) -> RowConstants:
    """The constants over one file's rows."""
    return RowConstants(rows)
