"""Computes column index, statistics and size statistics of a column chunk, page by page.

Several threads compute the statistics of pages in any order (``look``). The pages are kept in file
order (``keep``). They give

    ColumnIndex     null_pages, bounds, boundary_order, null_counts, nan_counts, histograms
    Statistics      bounds with their exactness, null_count, nan_count
    SizeStatistics  histograms of the levels, bytes of byte arrays without their lengths
    Bloom filter    of all values, sized by their distinct number: bloom_builder.py

A chunk must not have a column index if one of its pages has values but no bounds (their order is
not known). In TYPE_ORDER bounds leave NaN out, and most readers skip as if there were no NaN: Spark
4.3 and DataFusion lose the NaN that ``f > 1`` selects. So a chunk that holds NaN gets no column
index, and no chunk of its column gets new bounds (DataFusion takes the bounds of some row groups
for those of the file). NaN are counted. Histograms of levels that are always 0 are left out.
"""

from __future__ import annotations

from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.format.enums import BoundaryOrder, Type
from skipstone.parquet.format.metadata import SizeStatistics, Statistics
from skipstone.parquet.format.page_index import ColumnIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.bloom_filter import BloomFilter
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn, Run

    from .bloom_builder import BloomFilterBuilder
    from .column_order import Ordering


#: for ``Statistics`` whose bounds are removed
NO_BOUNDS: Final[dict[str, Any]] = dict.fromkeys(
    ("min_value", "max_value", "is_min_value_exact", "is_max_value_exact")
)


class PageStatistics(NamedTuple):
    """Statistics of one page. Bounds are not cut; ``size`` counts byte arrays without lengths."""

    rows: int
    nulls: int
    nans: int
    low: bytes | None
    high: bytes | None
    empty: bool
    size: int
    definition: NDArray[np.int64]
    repetition: NDArray[np.int64]
    within_row: bool


class ChunkStatistics:
    """Statistics of one chunk; ``order`` is ``None`` if the order of its values is not known."""

    def __init__(
        self, leaf: Leaf, order: Ordering | None, *, filling: BloomFilterBuilder | None = None
    ) -> None:
        self.leaf, self.order, self.filling = leaf, order, filling
        self.rows: list[int] = []
        self.nulls: list[int] = []
        self.nans: list[int] = []
        self.lows: list[bytes | None] = []
        self.highs: list[bytes | None] = []
        self.empty: list[bool] = []
        self.sizes: list[int] = []
        self.definition: list[NDArray[np.int64]] = []
        self.repetition: list[NDArray[np.int64]] = []
        #: a page begins within a row: there can be no page index
        self.within_rows = False
        self._used: tuple[Any, NDArray[np.bool_]] | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.rows)

    def prepare(self, dictionary: Values) -> None:
        """Prepare the values of the dictionary, before pages refer to it."""
        if self.order is not None:
            self.order.prepare(dictionary)

    def look(self, column: LeafColumn) -> PageStatistics:
        """The statistics of the entries of a page."""
        leaf, values = self.leaf, column.num_values
        repetition, definition = column.repetition_levels, column.definition_levels
        low: bytes | None = None
        high: bytes | None = None
        nans = size = 0
        for run in column.runs:
            if not len(run):
                continue
            if leaf.type is Type.BYTE_ARRAY:
                size += _bytes_of(run)
            if self.filling is not None:
                self._fill(self.filling, run)
            if self.order is not None:
                found = self.order.extremes(run)
                nans += found.nans
                low, high = self._wider(low, high, found.low, found.high)
        entries = column.num_entries
        return PageStatistics(
            rows=column.num_rows,
            nulls=entries - values,
            nans=nans,
            low=low,
            high=high,
            empty=not values,
            size=size,
            definition=_histogram(definition, leaf.max_definition_level, entries, top=True),
            repetition=_histogram(repetition, leaf.max_repetition_level, entries, top=False),
            within_row=repetition is not None and bool(len(repetition)) and bool(repetition[0]),
        )

    def keep(self, page: PageStatistics) -> None:
        """Keep the statistics of the next page."""
        self.rows.append(page.rows)
        self.nulls.append(page.nulls)
        self.nans.append(page.nans)
        self.lows.append(page.low)
        self.highs.append(page.high)
        self.empty.append(page.empty)
        self.sizes.append(page.size)
        self.definition.append(page.definition)
        self.repetition.append(page.repetition)
        self.within_rows |= page.within_row

    def _wider(
        self, low: bytes | None, high: bytes | None, lower: bytes | None, higher: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        assert self.order is not None
        if lower is None or higher is None:
            return low, high
        if low is None or high is None:
            return lower, higher
        return min(low, lower, key=self.order.key), max(high, higher, key=self.order.key)

    # -- Bloom filter ------------------------------------------------------------------------------

    def _fill(self, filling: BloomFilterBuilder, run: Run) -> None:
        if run.indices is None:
            filling.add(run.values)
            return
        # Of a dictionary only the used values, each once.
        with self._lock:
            if self._used is None or self._used[0] is not run.values:
                self._flush(filling)
                self._used = (run.values, np.zeros(len(run.values), np.bool_))
            used = self._used[1]
        used[run.indices] = True

    def _flush(self, filling: BloomFilterBuilder) -> None:
        if self._used is not None:
            values, used = self._used
            self._used = None
            filling.add_used(values, used)

    def bloom_filter(self) -> BloomFilter:
        """The filter of all values, sized by their distinct number."""
        assert self.filling is not None
        self._flush(self.filling)
        return self.filling.filter()

    # -- what is written ---------------------------------------------------------------------------

    @property
    def misleading(self) -> bool:
        """Whether there are NaN that bounds leave out; see the module."""
        return self.order is not None and self.order.misleads and any(self.nans)

    def column_index(self) -> ColumnIndex | None:
        """The column index; ``None`` if the chunk must not have one."""
        order = self.order
        if order is None or self.within_rows or not len(self) or self.misleading:
            return None
        lows, highs = list[bytes](), list[bytes]()
        for low, high, empty in zip(self.lows, self.highs, self.empty, strict=True):
            if empty:
                lows.append(b"")
                highs.append(b"")
            elif low is None or high is None:
                return None
            else:
                lows.append(order.lower(low).value)
                highs.append(order.upper(high).value)
        known = [at for at, empty in enumerate(self.empty) if not empty]
        return ColumnIndex(
            null_pages=tuple(self.empty),
            min_values=tuple(lows),
            max_values=tuple(highs),
            boundary_order=_boundary_order(
                [order.key(lows[at]) for at in known], [order.key(highs[at]) for at in known]
            ),
            null_counts=tuple(self.nulls),
            repetition_level_histograms=self._histograms(
                self.repetition, self.leaf.max_repetition_level
            ),
            definition_level_histograms=self._histograms(
                self.definition, self.leaf.max_definition_level
            ),
            nan_counts=tuple(self.nans) if order.floating else None,
        )

    def _histograms(self, found: Sequence[NDArray[np.int64]], level: int) -> tuple[int, ...] | None:
        if not level:
            return None
        return tuple(np.concatenate(found).tolist())

    def statistics(self, old: Statistics | None, *, trusted: bool) -> Statistics | None:
        """The old statistics, with missing fields added. Old bounds stay if they are ``trusted``
        (the footer names their order) and cannot hide NaN."""
        made: dict[str, Any] = {}
        order = self.order
        if old is not None:
            made = {name: getattr(old, name) for name in ("max", "min", "distinct_count")}
            made["unknown"] = old.unknown
            if order is None:
                names = ("min_value", "max_value", "is_min_value_exact", "is_max_value_exact")
                made |= {name: getattr(old, name) for name in names} if trusted else {}
        made["null_count"] = sum(self.nulls)
        if order is not None:
            if order.floating:
                made["nan_count"] = sum(self.nans)
            lows = [each for each in self.lows if each is not None]
            highs = [each for each in self.highs if each is not None]
            if lows:
                low = order.lower(min(lows, key=order.key))
                high = order.upper(max(highs, key=order.key))
                made |= {
                    "min_value": low.value,
                    "is_min_value_exact": low.exact,
                    "max_value": high.value,
                    "is_max_value_exact": high.exact,
                }
        return Statistics(**made)

    def size_statistics(self) -> SizeStatistics:
        """The size statistics of the whole chunk."""

        def summed(found: list[NDArray[np.int64]], level: int) -> tuple[int, ...] | None:
            if not level:
                return None
            return tuple(np.sum(found, axis=0).tolist()) if found else (0,) * (level + 1)

        return SizeStatistics(
            unencoded_byte_array_data_bytes=self.unencoded,
            repetition_level_histogram=summed(self.repetition, self.leaf.max_repetition_level),
            definition_level_histogram=summed(self.definition, self.leaf.max_definition_level),
        )

    @property
    def unencoded(self) -> int | None:
        """Bytes of all byte arrays; ``None`` for other types."""
        return sum(self.sizes) if self.leaf.type is Type.BYTE_ARRAY else None


def _histogram(
    levels: NDArray[np.uint8] | None, highest: int, count: int, *, top: bool
) -> NDArray[np.int64]:
    if levels is None:
        found = np.zeros(highest + 1, np.int64)
        found[highest if top else 0] = count
        return found
    return np.bincount(levels, minlength=highest + 1).astype(np.int64)


def has_bounds(old: Statistics | None) -> bool:
    """Whether there are already bounds of floating point numbers; NaN does not count."""
    if old is None:
        return False
    return any(
        all(each is not None and not np.isnan(_number(each)) for each in bounds)
        for bounds in ((old.min_value, old.max_value), (old.min, old.max))
    )


def _number(value: bytes) -> Any:
    return np.frombuffer(value, f"<f{len(value)}")[0] if len(value) in (2, 4, 8) else np.nan


def _bytes_of(run: Run) -> int:
    values = run.values
    assert isinstance(values, ByteArrays)
    if run.indices is None:
        return values.nbytes
    return int(values.lengths.take(run.indices).sum())


def _boundary_order(lows: list[Any], highs: list[Any]) -> BoundaryOrder:
    def rises(values: list[Any]) -> bool:
        return all(a <= b for a, b in pairwise(values))

    if rises(lows) and rises(highs):
        return BoundaryOrder.ASCENDING
    if rises(lows[::-1]) and rises(highs[::-1]):
        return BoundaryOrder.DESCENDING
    return BoundaryOrder.UNORDERED
