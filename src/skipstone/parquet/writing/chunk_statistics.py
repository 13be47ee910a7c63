"""Computes column index, statistics and Bloom filter of a column chunk, page by page.

Several threads compute the statistics of pages in any order (``look``). The pages are kept in file
order (``keep``). They give

    ColumnIndex     null_pages, bounds, boundary_order, null_counts, nan_counts, histograms
    Statistics      bounds with their exactness, null_count, nan_count
    SizeStatistics  histograms of the levels, bytes of byte arrays without their lengths
    Bloom filter    of all values, sized by their distinct number

A chunk must not have a column index if one of its pages has values but no bounds (their order is
not known). In TYPE_ORDER bounds leave NaN out, and most readers skip as if there were no NaN: Spark
4.3 and DataFusion lose the NaN that ``f > 1`` selects. So a chunk that holds NaN gets no column
index, and no chunk of its column gets new bounds (DataFusion takes the bounds of some row groups
for those of the file). NaN are counted. Histograms of levels that are always 0 are left out.

``BloomFilterBuilder`` finds the right size of a filter without holding the values:

    fill    a filter for the largest possible number of values
    count   n distinct values leave z bits unset in b blocks of 8 words:  n = -32 b ln(z / 256 b)
    fold    halve the filter until it has the size for n

The highest bits of a hash choose the block. So blocks 2k and 2k + 1 of a filter whose size is a
power of two are block k of the filter of half the size: folding gives, bit for bit, the filter that
filling the smaller one would give. A value sets one bit of each word of its block, so the number of
unset bits gives the count. Its error is below 0.5 %: the size differs from that of the
exact count only if n is that close to a limit. Up to 65,536 values the hashes are held and counted.

Spark looks up zeros and NaN by the bits of its literal, and means all equal values. So if the
values have a zero, both zeros are added; if they have a NaN, the NaN that Spark looks up is added.
"""

from __future__ import annotations

import math
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from skipstone.parquet.format.bloom_filter import COMPILED, BloomFilter, optimal_bytes, xxh64_values
from skipstone.parquet.format.enums import BoundaryOrder, Type
from skipstone.parquet.format.metadata import SizeStatistics, Statistics
from skipstone.parquet.format.page_index import ColumnIndex
from skipstone.parquet.values import ByteArrays, Values

from ..._arrays import distinct, read_only

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.parquet.format.bloom_filter import BloomKernels
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.pages.column_values import LeafColumn, Run

    from .column_order import Ordering


#: fields that remove the bounds of ``Statistics``
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
        self,
        leaf: ColumnDescriptor,
        order: Ordering | None,
        *,
        filling: BloomFilterBuilder | None = None,
    ) -> None:
        self.leaf, self.order, self.filling = leaf, order, filling
        self.pages: list[PageStatistics] = []
        #: whether a page begins within a row, so that there can be no page index
        self.within_rows = False
        self._used: tuple[Any, NDArray[np.bool_]] | None = None
        self._lengths: tuple[Values, NDArray[np.int64]] | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def rows(self) -> list[int]:
        """The rows of each page."""
        return [page.rows for page in self.pages]

    def prepare(self, dictionary: Values) -> None:
        """Prepare the values of the dictionary, before pages refer to it."""
        if self.order is not None:
            self.order.prepare(dictionary)

    @property
    def at_once(self) -> bool:
        """Whether ``many_pages`` may find the statistics of pages in place of ``look``."""
        leaf = self.leaf
        return not leaf.max_repetition_level and leaf.max_definition_level < 1 << 8

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
                size += self._bytes_of(run)
            if self.filling is not None:
                self.fill(run)
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

    def _bytes_of(self, run: Run) -> int:
        if run.indices is None:
            return run.values.nbytes
        return int(self.lengths_of(run.values).take(run.indices).sum())

    def lengths_of(self, dictionary: Values) -> NDArray[np.int64]:
        """The lengths of its byte arrays; empty for other values."""
        if not isinstance(dictionary, ByteArrays):
            return np.zeros(0, np.int64)
        held = self._lengths
        if held is None or held[0] is not dictionary:
            held = self._lengths = (dictionary, dictionary.lengths)
        return held[1]

    def keep(self, page: PageStatistics) -> None:
        """Keep the statistics of the next page."""
        self.pages.append(page)
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

    def fill(self, run: Run) -> None:
        """Add the values of a run to the filter."""
        assert self.filling is not None
        if run.indices is None:
            self.filling.add(run.values)
        else:
            self.used_of(run.values)[run.indices] = True

    def used_of(self, dictionary: Values) -> NDArray[np.bool_]:
        """Flags to set for its values that pages refer to: the filter gets those, each once."""
        assert self.filling is not None
        with self._lock:
            if self._used is None or self._used[0] is not dictionary:
                self._flush(self.filling)
                self._used = (dictionary, np.zeros(len(dictionary), np.bool_))
            return self._used[1]

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
        return (
            self.order is not None and self.order.misleads and any(page.nans for page in self.pages)
        )

    def column_index(self) -> ColumnIndex | None:
        """The column index; ``None`` if the chunk must not have one."""
        order = self.order
        if order is None or self.within_rows or not len(self) or self.misleading:
            return None
        lows, highs = list[bytes](), list[bytes]()
        for page in self.pages:
            if page.empty:
                lows.append(b"")
                highs.append(b"")
            elif page.low is None or page.high is None:
                return None
            else:
                lows.append(order.lower(page.low).value)
                highs.append(order.upper(page.high).value)
        known = [at for at, page in enumerate(self.pages) if not page.empty]
        return ColumnIndex(
            null_pages=tuple([page.empty for page in self.pages]),
            min_values=tuple(lows),
            max_values=tuple(highs),
            boundary_order=_boundary_order(
                order.keys([lows[at] for at in known]), order.keys([highs[at] for at in known])
            ),
            null_counts=tuple([page.nulls for page in self.pages]),
            repetition_level_histograms=_joined(self._repetition),
            definition_level_histograms=_joined(self._definition),
            nan_counts=tuple([page.nans for page in self.pages]) if order.floating else None,
        )

    # Histograms of the levels of each page; None for levels that are always 0.

    @property
    def _repetition(self) -> list[NDArray[np.int64]] | None:
        return [page.repetition for page in self.pages] if self.leaf.max_repetition_level else None

    @property
    def _definition(self) -> list[NDArray[np.int64]] | None:
        return [page.definition for page in self.pages] if self.leaf.max_definition_level else None

    def statistics(self, old: Statistics | None, *, trusted: bool) -> Statistics | None:
        """The statistics of the chunk. ``max``, ``min``, ``distinct_count`` and unknown fields of
        ``old`` stay. So do its bounds if their order is not known here, and they are ``trusted``
        (the footer names their order)."""
        made: dict[str, Any] = {}
        order = self.order
        if old is not None:
            made = {name: getattr(old, name) for name in ("max", "min", "distinct_count")}
            made["unknown"] = old.unknown
            if order is None:
                names = ("min_value", "max_value", "is_min_value_exact", "is_max_value_exact")
                made |= {name: getattr(old, name) for name in names} if trusted else {}
        made["null_count"] = sum(page.nulls for page in self.pages)
        if order is not None:
            if order.floating:
                made["nan_count"] = sum(page.nans for page in self.pages)
            lows = [page.low for page in self.pages if page.low is not None]
            highs = [page.high for page in self.pages if page.high is not None]
            if lows:
                low_keys, high_keys = order.keys(lows), order.keys(highs)
                low = order.lower(lows[low_keys.index(min(low_keys))])
                high = order.upper(highs[high_keys.index(max(high_keys))])
                made |= {
                    "min_value": low.value,
                    "is_min_value_exact": low.exact,
                    "max_value": high.value,
                    "is_max_value_exact": high.exact,
                }
        return Statistics(**made)

    def size_statistics(self) -> SizeStatistics:
        """The size statistics of the whole chunk."""
        unencoded, leaf = self.unencoded, self.leaf
        return SizeStatistics(
            unencoded_byte_array_data_bytes=None if unencoded is None else sum(unencoded),
            repetition_level_histogram=_summed(self._repetition, leaf.max_repetition_level),
            definition_level_histogram=_summed(self._definition, leaf.max_definition_level),
        )

    @property
    def unencoded(self) -> tuple[int, ...] | None:
        """Bytes of the byte arrays of each page; ``None`` for other types."""
        return (
            tuple([page.size for page in self.pages]) if self.leaf.type is Type.BYTE_ARRAY else None
        )


def _joined(found: list[NDArray[np.int64]] | None) -> tuple[int, ...] | None:
    return None if found is None else tuple(np.concatenate(found).tolist())


def _summed(found: list[NDArray[np.int64]] | None, level: int) -> tuple[int, ...] | None:
    if found is None:
        return None
    return tuple(np.sum(found, axis=0).tolist()) if found else (0,) * (level + 1)


#: the histogram of levels that are always 0
NO_HISTOGRAM: Final = np.zeros(0, np.int64)


def _histogram(
    levels: NDArray[np.uint8] | None, highest: int, count: int, *, top: bool
) -> NDArray[np.int64]:
    if not highest:
        return NO_HISTOGRAM
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


def _boundary_order(lows: list[Any], highs: list[Any]) -> BoundaryOrder:
    def rises(values: list[Any]) -> bool:
        return all(a <= b for a, b in pairwise(values))

    if rises(lows) and rises(highs):
        return BoundaryOrder.ASCENDING
    if rises(lows[::-1]) and rises(highs[::-1]):
        return BoundaryOrder.DESCENDING
    return BoundaryOrder.UNORDERED


_FEW: Final = 1 << 16
# Hashes that wait for one insertion by NumPy, which takes about as long for few as for many.
_WAITING: Final = 1 << 20


class BloomFilterBuilder:
    """Builds the filter of one chunk of at most ``num_values`` values."""

    def __init__(self, num_values: int, fpp: float) -> None:
        self._fpp = fpp
        self._held: list[NDArray[np.uint64]] | None = [] if num_values <= _FEW else None
        few = 1 if num_values <= _FEW else num_values
        self._filter = BloomFilter.of_size(optimal_bytes(few, fpp))
        self._waiting: list[NDArray[np.uint64]] = []
        self._lock = Lock()
        self._equal = set[int]()

    def add(self, values: Values) -> None:
        """Add values; some of them may have been added before."""
        self._add_equal(values)
        compiled = self._compiled(len(values))
        if compiled is None or not isinstance(values, np.ndarray) or values.dtype.itemsize != 8:
            self._insert(xxh64_values(values), compiled)
            return
        words = read_only(np.ascontiguousarray(values).view(np.uint64))
        with self._lock:
            compiled.words(self._filter.blocks, words)

    def add_used(self, values: Values, used: NDArray[np.bool_]) -> None:
        """Add those values that are ``used``."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            self._add_equal(values[used])
        hashes = xxh64_values(values)[used]
        self._insert(hashes, self._compiled(len(hashes)))

    def _add_equal(self, values: Values) -> None:
        """Add values that equal some of these in other bits; they do not count as distinct."""
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
            return
        equal = [0.0, -0.0] if not values.all() else []
        if np.isnan(values).any():
            equal.append(np.nan)
        self._equal.update(xxh64_values(np.array(equal, values.dtype)).tolist())

    def _compiled(self, values: int) -> BloomKernels | None:
        return None if self._held is not None else COMPILED.for_work(values)

    def _insert(self, hashes: NDArray[np.uint64], compiled: BloomKernels | None) -> None:
        if self._held is not None:
            self._held.append(hashes)
            return
        hashes = read_only(hashes)
        with self._lock:
            if compiled is not None:
                compiled.hashes(self._filter.blocks, hashes)
                return
            self._waiting.append(hashes)
            if sum(map(len, self._waiting)) >= _WAITING:
                self._insert_waiting()

    def _insert_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._filter.insert(np.concatenate(waiting))

    @property
    def ndv(self) -> int:
        """The number of distinct values; see the module."""
        if self._held is not None:
            return len(distinct(np.concatenate(self._held))) if self._held else 0
        self._insert_waiting()
        blocks = self._filter.blocks
        bits = 8 * blocks.nbytes
        unset = bits - int(np.bitwise_count(blocks).sum())
        return round(-bits / 8 * math.log(max(unset, 1) / bits))

    def filter(self) -> BloomFilter:
        """The filter for that number, once all values are added."""
        wanted = optimal_bytes(self.ndv, self._fpp)
        if self._held is not None:
            made = BloomFilter.of_size(wanted)
            for hashes in self._held:
                made.insert(hashes)
        else:
            blocks = self._filter.blocks
            while blocks.nbytes > wanted:
                blocks = blocks[::2] | blocks[1::2]
            made = BloomFilter(blocks)
        if self._equal:
            made.insert(np.array(sorted(self._equal), np.uint64))
        return made
