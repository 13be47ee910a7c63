"""``RowSet``: a set of row positions of one file, as ranges or as a roaring bitmap.

Positions are 0-based and below 2**63 - 1, so that every stop fits an int64. Invariants of the
ranges form: starts ascend, every range is non-empty, and two ranges neither overlap nor touch
(``stops[i] < starts[i + 1]``), so equal sets have equal arrays. The bitmap form is
``pyroaring.BitMap64``. The form of a set only affects speed: few long runs stay ranges, scattered
rows become a bitmap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._arrays import distinct

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray


IntArray: TypeAlias = "NDArray[np.int64]"

_LAST = 2**63 - 1
_NONE = np.empty(0, np.int64)
_NONE.flags.writeable = False
# Adding up to this many runs to a bitmap is faster than turning the bitmap into ranges.
_FEW = 1_000
_ONE_HALF = (1).to_bytes(8, "little") + (0).to_bytes(4, "little")


class RowSet:
    """An immutable set of row positions with ``&``, ``|``, ``-`` and ``==``; see the module."""

    __slots__ = ("_bitmap", "_starts", "_stops")

    _starts: IntArray | None
    _stops: IntArray | None
    _bitmap: Any

    def __init__(self, starts: ArrayLike = (), stops: ArrayLike = ()) -> None:
        """The union of the half-open ranges ``[starts[i], stops[i])``, in any order, empty ones
        dropped."""
        self._bitmap = None
        if isinstance(starts, tuple) and not starts and stops == ():
            self._starts = self._stops = _NONE
            return
        self._starts, self._stops = _normalise(
            np.asarray(starts, dtype=np.int64), np.asarray(stops, dtype=np.int64)
        )

    @classmethod
    def all(cls, rows: int) -> RowSet:
        """Rows ``0 … rows - 1``."""
        return cls([0], [rows])

    @classmethod
    def of(cls, positions: Iterable[int] | ArrayLike) -> RowSet:
        """The given positions, in any order, repeats allowed."""
        if isinstance(positions, Iterable) and not isinstance(positions, np.ndarray):
            positions = np.fromiter(positions, np.int64)
        array = np.asarray(positions, np.int64)
        if array.ndim != 1 or not bool((array[1:] > array[:-1]).all()):
            array = distinct(array)
        if len(array):
            _check(int(array[0]), int(array[-1]))
        breaks = np.flatnonzero(np.diff(array) != 1)
        starts = array[np.concatenate(([0], breaks + 1))] if len(array) else array
        stops = array[np.concatenate((breaks, [len(array) - 1]))] + 1 if len(array) else array
        return cls._canonical(starts, stops)

    @classmethod
    def of_bitmap(cls, bitmap: Any) -> RowSet:
        """A ``pyroaring.BitMap`` or ``BitMap64`` of positions; it is frozen by copy."""
        from pyroaring import BitMap, BitMap64

        if isinstance(bitmap, BitMap):
            # The portable form of 64 bits is that of 32 below a count and the upper half: some
            # hundred times as fast as adding row by row.
            own = BitMap64.deserialize(_ONE_HALF + bitmap.serialize()) if bitmap else BitMap64()
        else:
            own = bitmap.copy() if isinstance(bitmap, BitMap64) else BitMap64(bitmap)
        if own:
            _check(own.min(), own.max())
        return cls._of_own_bitmap(own)

    @classmethod
    def _of_own_bitmap(cls, bitmap: Any) -> RowSet:
        self = cls.__new__(cls)
        self._starts = self._stops = None
        self._bitmap = bitmap
        return self

    @classmethod
    def _canonical(cls, starts: IntArray, stops: IntArray) -> RowSet:
        self = cls.__new__(cls)
        self._starts, self._stops, self._bitmap = starts, stops, None
        return self

    # -- views ------------------------------------------------------------------------------------

    def ranges(self) -> tuple[IntArray, IntArray]:
        """``(starts, stops)``: the maximal half-open runs, ascending."""
        if self._starts is None or self._stops is None:
            # A run starts where the position before is absent, and stops before the first absent
            # one. Costs memory by runs: a billion rows in one run are two numbers here.
            after = self._bitmap.shift(1)
            self._starts = _positions(self._bitmap - after)
            self._stops = _positions(after - self._bitmap)
        return self._starts, self._stops

    def bitmap(self) -> Any:
        """The set as a ``pyroaring.BitMap64``; do not change it."""
        if self._bitmap is None:
            from pyroaring import BitMap64

            bitmap = BitMap64()
            starts, stops = self.ranges()
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                bitmap.add_range(start, stop)
            self._bitmap = bitmap
        return self._bitmap

    def positions(self) -> IntArray:
        """All positions, ascending, shape ``(len(self),)``."""
        if self._starts is None:
            return _positions(self._bitmap)
        starts, stops = self.ranges()
        lengths = stops - starts
        if not len(lengths):
            return np.empty(0, np.int64)
        if len(lengths) == 1:
            return np.arange(starts[0], stops[0], dtype=np.int64)
        ends = np.cumsum(lengths)
        return np.asarray(
            np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths), np.int64
        )

    def counts(self, edges: IntArray) -> IntArray:
        """How many positions lie between each of ``edges``, which ascend, and the next."""
        if self._starts is None:
            ranks = [self._bitmap.rank(edge - 1) if edge else 0 for edge in edges.tolist()]
            return np.diff(np.array(ranks, np.int64)).astype(np.int64)
        starts, stops = self.ranges()
        if not len(starts):
            return np.zeros(len(edges) - 1, np.int64)
        ends = np.cumsum(stops - starts)
        run = np.searchsorted(starts, edges)  # how many runs begin before
        last = np.maximum(run - 1, 0)
        below = np.where(run > 0, ends[last] - np.maximum(stops[last] - edges, 0), 0)
        return np.diff(below).astype(np.int64)

    def at(self, ordinals: IntArray) -> IntArray:
        """The positions with these ordinals, each below ``len(self)``: 0 is the first position."""
        starts, stops = self.ranges()
        ends = np.cumsum(stops - starts)
        run = np.searchsorted(ends, ordinals, side="right")
        return np.asarray(ordinals + (stops - ends)[run], np.int64)

    def mask(self, rows: int) -> NDArray[np.bool_]:
        """Boolean array of shape ``(rows,)``; positions at or past ``rows`` are an error."""
        starts, stops = self.ranges()
        if len(stops) and stops[-1] > rows:
            raise ValueError(f"row {stops[-1] - 1} is past the last of {rows} rows")
        delta = np.zeros(rows + 1, np.int8)
        delta[starts] += 1
        delta[stops] -= 1
        return np.cumsum(delta[:-1], dtype=np.int8).astype(np.bool_)

    def to_list(self) -> list[int]:
        """All positions, ascending."""
        found: list[int] = self.positions().tolist()
        return found

    def __iter__(self) -> Iterator[int]:
        """Position by position, ascending, without an array of all of them."""
        for start, stop in zip(*self.ranges(), strict=True):
            yield from range(int(start), int(stop))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """``np.asarray(rows)``: ``positions``, always a new array."""
        if copy is False:
            raise ValueError("the positions of a RowSet are computed: they are always a copy")
        return self.positions().astype(dtype or np.int64, copy=False)

    # -- algebra ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self._starts is None or self._stops is None:
            return len(self._bitmap)
        return int((self._stops - self._starts).sum())

    def __bool__(self) -> bool:
        return bool(self._bitmap) if self._starts is None else len(self._starts) > 0

    def __contains__(self, position: int) -> bool:
        starts, stops = self.ranges()
        at = int(np.searchsorted(starts, position, side="right")) - 1
        return at >= 0 and position < int(stops[at])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowSet):
            return NotImplemented
        if self is other:
            return True
        if self._bitmap is not None and other._bitmap is not None:
            return bool(self._bitmap == other._bitmap)
        mine, theirs = self.ranges(), other.ranges()
        return np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])

    def __hash__(self) -> int:
        starts, stops = self.ranges()
        return hash((starts.tobytes(), stops.tobytes()))

    def __and__(self, other: RowSet) -> RowSet:
        if self is other:
            return self
        if self._as_bitmap_with(other):
            return RowSet._of_own_bitmap(self.bitmap() & other.bitmap())
        return self._sweep(other, lambda a, b: a & b)

    def __or__(self, other: RowSet) -> RowSet:
        if self is other:
            return self
        if self._as_bitmap_with(other):
            return RowSet._of_own_bitmap(self.bitmap() | other.bitmap())
        return self._sweep(other, lambda a, b: a | b)

    def __sub__(self, other: RowSet) -> RowSet:
        if self._as_bitmap_with(other):
            return RowSet._of_own_bitmap(self.bitmap() - other.bitmap())
        return self._sweep(other, lambda a, b: a & ~b)

    def _as_bitmap_with(self, other: RowSet) -> bool:
        """Whether both are bitmaps, or one is and the other has few runs."""
        if self._bitmap is None and other._bitmap is None:
            return False
        return all(
            each._bitmap is not None or (each._starts is not None and len(each._starts) <= _FEW)
            for each in (self, other)
        )

    def _sweep(self, other: RowSet, rule: Any) -> RowSet:
        """Cuts both sets at every boundary of either; ``rule`` decides each piece."""
        a, b = self.ranges(), other.ranges()
        edges = distinct(np.concatenate((*a, *b)))
        if not len(edges):
            return RowSet()
        inside = rule(_covers(a, edges[:-1]), _covers(b, edges[:-1]))
        return RowSet(edges[:-1][inside], edges[1:][inside])

    def __repr__(self) -> str:
        starts, stops = self.ranges()
        shown = ", ".join(
            f"{a}" if b == a + 1 else f"{a}-{b - 1}"
            for a, b in zip(starts[:4].tolist(), stops[:4].tolist(), strict=True)
        )
        more = f", … {len(starts):,} runs" if len(starts) > 4 else ""
        return f"RowSet({len(self):,} rows: {shown}{more})"


def _positions(bitmap: Any) -> IntArray:
    return np.frombuffer(bitmap.to_array(), np.int64)  # below 2**63: the sign bit is not set


def _check(first: int, last: int) -> None:
    if first < 0:
        raise ValueError(f"row position {first} is negative")
    if last >= _LAST:
        raise ValueError(f"row position {last} is not below {_LAST}")


def _covers(ranges: tuple[IntArray, IntArray], points: IntArray) -> NDArray[np.bool_]:
    starts, stops = ranges
    if not len(starts):
        return np.zeros(len(points), np.bool_)
    at = np.searchsorted(starts, points, side="right") - 1
    return np.asarray((at >= 0) & (points < stops[np.maximum(at, 0)]))


def _normalise(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    if starts.shape != stops.shape or starts.ndim != 1:
        raise ValueError(f"starts {starts.shape} and stops {stops.shape} must be equal and flat")
    if len(starts) == 1:  # most files: no sort is needed
        if stops[0] <= starts[0]:
            return _NONE, _NONE
        _check(int(starts[0]), 0)
        return starts, stops
    full = stops > starts
    starts, stops = starts[full], stops[full]
    if not len(starts):
        return starts, stops
    _check(int(starts.min()), 0)
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], stops[order]
    reach = np.maximum.accumulate(stops)
    new = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(starts) - 1]))
    return starts[new], reach[last]
