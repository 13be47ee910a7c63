"""The inside of a file as JSON-ready lists: row groups × columns × pages.

Pages come from the page index. If a chunk has none, its page headers are read one by one, within
the ``Budget`` that all files of a report share. A chunk whose pages were not read has a reason
(``why``). Damaged and encrypted parts become messages on the page, never errors.

    groups   rows, bytes, first, hit                        one of each per row group
    columns  name, type, named, scale, order, low, high     of the column
             codec, encodings, bytes, raw, values, nulls,   one per row group
             min, max, lo, hi, bloom, why
             pages  first, rows, bytes, hit, lo, hi, min,   lists over the pages of a row group
                    max, nulls, encoding

``hit`` is the number of rows that a plan selects. -1 means "not known" in every list of numbers.

``lo`` and ``hi`` are positions from 0 to ``PLACES`` between the smallest and the largest bound of a
column. Numbers and instants have a ``linear`` scale. All other types, and numbers too far apart for
float64, have the scale ``order``: the i-th of n distinct bounds lies at i / (n - 1). Positions are
for display; no decision depends on them.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, first_line
from skipstone.human import cut
from skipstone.parquet.arrow.metadata_tables import readable, shown
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import Encoding, PageType, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.reading.chunk_pages import ChunkKey
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.pruning import RowSet


IntArray: TypeAlias = "NDArray[np.int64]"

#: The most columns and row groups of a file that are drawn.
MOST_COLUMNS: Final = 60
MOST_GROUPS: Final = 500
# A Bloom filter is read whole to count its bits.
_MOST_FILTER: Final = 4 << 20
PLACES: Final = 100_000
_LONGEST: Final = 80
_NUMBERS = {Type.INT32: "<i4", Type.INT64: "<i8", Type.FLOAT: "<f4", Type.DOUBLE: "<f8"}
_ENCODINGS: Final = {int(each): each.name for each in Encoding}


@dataclass(slots=True)
class Budget:
    """The limits for all files of one report: pages that are drawn, page headers that are read
    one by one, and bytes of Bloom filters."""

    pages: int = 100_000
    headers: int = 4_000
    filters: int = 64 << 20
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, init=False)

    def take(self, what: str, amount: int) -> bool:
        """Take ``amount``; false if less than that is left."""
        with self._lock:
            left: int = getattr(self, what) - amount
            if left >= 0:
                setattr(self, what, left)
            return left >= 0


class _Selected:
    """Counts the rows that a plan selects in a range."""

    def __init__(self, rows: RowSet | None) -> None:
        self.whole = rows is None
        empty = np.empty(0, np.int64)
        self.starts, self.stops = (empty, empty) if rows is None else rows.ranges()
        self.before = np.concatenate(([0], np.cumsum(self.stops - self.starts)))

    def until(self, row: IntArray) -> IntArray:
        """The count of selected rows before each ``row``."""
        if self.whole:
            return row
        at = np.searchsorted(self.stops, row, side="right")
        partial = np.zeros(len(row), np.int64)
        within = at < len(self.starts)
        partial[within] = np.maximum(row[within] - self.starts[at[within]], 0)
        found: IntArray = self.before[at] + partial
        return found

    def of(self, first: IntArray, count: IntArray) -> IntArray:
        """The count of selected rows in each range of ``count`` rows from ``first``."""
        return self.until(first + count) - self.until(first)


@dataclass(slots=True)
class _Pages:
    """The pages of one chunk; ``low`` and ``high`` are bounds as bytes."""

    first: IntArray
    rows: IntArray
    stored: IntArray
    low: list[bytes | None]
    high: list[bytes | None]
    nulls: list[int]
    encoding: list[str]


def inside(
    file: ParquetFile, selected: RowSet | None, named: Collection[str], budget: Budget
) -> dict[str, Any]:
    """The lists that the module describes. ``selected`` are rows of the file (``None``: all).
    ``named`` are the columns of the predicate; they are drawn first if there are too many."""
    footer = file.footer
    every = footer.schema.leaves
    wanted = {name.lower() for name in named}
    chosen = sorted(every, key=lambda leaf: leaf.name.lower() not in wanted)[:MOST_COLUMNS]
    groups = min(footer.num_row_groups, MOST_GROUPS)
    rows = footer.group("num_rows")[:groups]
    first = footer.row_starts[:groups]
    hits = _Selected(selected)
    chunks = file.chunks()
    return {
        "size": file.size,
        "rows": file.num_rows,
        "groups_total": footer.num_row_groups,
        "columns_total": len(every),
        "stored_total": int(footer.chunk("total_compressed_size").clip(0).sum()),
        "groups": {
            "first": first.tolist(),
            "rows": rows.tolist(),
            "bytes": footer.chunk("total_compressed_size")[:groups].clip(0).sum(axis=1).tolist(),
            "hit": hits.of(first, rows).tolist(),
        },
        "columns": [
            _column(file, leaf, chunks, groups, hits, leaf.name.lower() in wanted, budget)
            for leaf in sorted(chosen, key=lambda leaf: leaf.ordinal)
        ],
    }


def _column(
    file: ParquetFile,
    leaf: ColumnDescriptor,
    chunks: pa.Table,
    groups: int,
    hits: _Selected,
    named: bool,
    budget: Budget,
) -> dict[str, Any]:
    footer, ordinal = file.footer, leaf.ordinal
    at = np.arange(groups) * footer.num_leaves + ordinal
    table = _chunk_rows(chunks.take(pa.array(at)))
    pages: list[_Pages | None] = []
    why: list[str | None] = []
    blooms: list[list[int] | None] = []
    for group in range(groups):
        found, because = _pages(file, (group, ordinal), budget)
        pages.append(found)
        why.append(because)
        blooms.append(_bloom(file, (group, ordinal), budget))
    low, high = table["low"], table["high"]
    # Row groups and pages share one scale.
    units = [each for each in pages if each is not None]
    lows = [*low, *(value for each in units for value in each.low)]
    highs = [*high, *(value for each in units for value in each.high)]
    placed = bands(lows, highs, leaf)
    words = texts(pa.array([*lows, *highs], pa.binary()), leaf)
    drawn = _drawn(pages, footer.row_starts, hits, placed, words)
    after = groups + sum(len(each.low) for each in units)
    fine = slice(groups, None) if after > groups else slice(0, groups)
    order = type(placed)(placed.low[fine], placed.high[fine], placed.scale).order
    return {
        "name": shown(leaf.name),
        "type": leaf.type.name,
        "named": named,
        "scale": placed.scale,
        "order": order,
        "low": _extreme(placed.low, words[: len(lows)], 0),
        "high": _extreme(placed.high, words[len(lows) :], 1),
        **{name: table[name] for name in ("codec", "encodings", "bytes", "raw", "values", "nulls")},
        "min": words[:groups],
        "max": words[len(lows) : len(lows) + groups],
        "lo": placed.low[:groups].tolist(),
        "hi": placed.high[:groups].tolist(),
        "bloom": blooms,
        "why": why,
        "pages": drawn,
    }


def _drawn(
    pages: Sequence[_Pages | None],
    starts: IntArray,
    hits: _Selected,
    placed: Bands,
    words: Sequence[str | None],
) -> list[dict[str, Any] | None]:
    """The pages of each row group as the page of a file draws them; ``None`` where there are none.

    ``placed`` and ``words`` have the bounds of all row groups first, then those of their pages.
    """
    drawn: list[dict[str, Any] | None] = []
    after = len(pages)
    for each, start in zip(pages, starts.tolist(), strict=False):
        if each is None:
            drawn.append(None)
            continue
        here = slice(after, after + len(each.low))
        there = slice(len(placed.low) + after, len(placed.low) + after + len(each.low))
        after += len(each.low)
        drawn.append(
            {
                "first": each.first.tolist(),
                "rows": each.rows.tolist(),
                "bytes": each.stored.tolist(),
                "hit": hits.of(start + each.first, each.rows).tolist(),
                "lo": placed.low[here].tolist(),
                "hi": placed.high[here].tolist(),
                "min": words[here],
                "max": words[there],
                "nulls": each.nulls,
                "encoding": each.encoding,
            }
        )
    return drawn


def _chunk_rows(table: pa.Table) -> dict[str, list[Any]]:
    """The footer's values of a column's chunks, by the names that the page uses."""
    lists = {
        ours: table[theirs].to_pylist()
        for ours, theirs in (
            ("codec", "codec"),
            ("bytes", "total_compressed_size"),
            ("raw", "total_uncompressed_size"),
            ("values", "num_values"),
            ("nulls", "null_count"),
        )
    }
    for name in ("bytes", "raw", "values", "nulls"):
        lists[name] = [-1 if each is None else each for each in lists[name]]
    lists["encodings"] = [", ".join(each or ()) for each in table["encodings"].to_pylist()]
    for ours, theirs in (("low", "min"), ("high", "max")):
        best = zip(table[f"{theirs}_value"].to_pylist(), table[theirs].to_pylist(), strict=True)
        lists[ours] = [new if new is not None else old for new, old in best]
    return lists


def _extreme(places: IntArray, words: Sequence[str | None], highest: int) -> str | None:
    """The text of the lowest or highest bound."""
    known = np.flatnonzero(places >= 0)
    if not len(known):
        return None
    at = known[np.argmax(places[known]) if highest else np.argmin(places[known])]
    return words[int(at)]


def _pages(file: ParquetFile, key: ChunkKey, budget: Budget) -> tuple[_Pages | None, str | None]:
    """The pages of a chunk, or the reason why they are not drawn."""
    if key[1] in file.unavailable:
        return None, first_line(file.unavailable[key[1]])
    name = file.footer.schema.leaves[key[1]].name
    try:
        offsets = file.offset_index(key[0], name)
        if offsets is None:
            return _walked(file, key, budget)
        if not budget.take("pages", len(offsets)):
            return None, "pages are not drawn: there are too many for one page"
        known = file.column_index(key[0], name)
        rows = offsets.rows(int(file.footer.group("num_rows")[key[0]]))
        none: list[bytes | None] = [None] * len(offsets)
        low, high, nulls = none, none, [-1] * len(offsets)
        if known is not None and len(known) == len(offsets):
            low = _bounds(known.min_values, known.null_pages)
            high = _bounds(known.max_values, known.null_pages)
            if known.null_counts is not None:
                nulls = known.null_counts.tolist()
        found = _Pages(
            first=offsets.first_row_index,
            rows=rows,
            stored=offsets.compressed_page_size,
            low=low,
            high=high,
            nulls=nulls,
            encoding=[],
        )
        return found, None
    except SkipstoneError as error:
        return None, first_line(error)


def _bounds(values: Iterable[bytes], null_pages: NDArray[np.bool_]) -> list[bytes | None]:
    return [None if null else v for v, null in zip(values, null_pages.tolist(), strict=True)]


def _walked(file: ParquetFile, key: ChunkKey, budget: Budget) -> tuple[_Pages | None, str | None]:
    """The pages from their headers. Headers of a nested column do not always show where rows begin,
    so such columns are left out."""
    leaf = file.footer.schema.leaves[key[1]]
    if leaf.max_repetition_level or not budget.take("headers", 1):
        return None, "no page index; page headers were not read"
    first: list[int] = []
    rows: list[int] = []
    sizes: list[int] = []
    encodings: list[str] = []
    for each in file.chunk_pages.walk(key):
        header = each.header
        data = header.data_page_header or header.data_page_header_v2
        if data is None or header.type not in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
            continue
        if not budget.take("headers", 1) or not budget.take("pages", 1):
            return None, "no page index; not all page headers were read"
        first.append(first[-1] + rows[-1] if first else 0)
        rows.append(data.num_values)
        sizes.append(each.header_length + header.compressed_page_size)
        kind = int(data.encoding)
        encodings.append(_ENCODINGS.get(kind, str(kind)))
    none: list[bytes | None] = [None] * len(first)
    found = _Pages(
        first=np.array(first, np.int64),
        rows=np.array(rows, np.int64),
        stored=np.array(sizes, np.int64),
        low=none,
        high=none,
        nulls=[-1] * len(first),
        encoding=encodings,
    )
    return found, "no page index; sizes are from the page headers"


def _bloom(file: ParquetFile, key: ChunkKey, budget: Budget) -> list[int] | None:
    """The bytes of the filter, and how many of 1000 bits are set; -1 if that was not counted."""
    footer = file.footer
    if int(footer.chunk("bloom_filter_offset")[key]) < 0 or key[1] in file.unavailable:
        return None
    length = int(footer.chunk("bloom_filter_length")[key])
    amount = length if length > 0 else _MOST_FILTER
    if amount > _MOST_FILTER + 64 or not budget.take("filters", amount):
        return [length, -1]
    try:
        found = file.bloom_filter(key[0], footer.schema.leaves[key[1]].name)
    except SkipstoneError:
        return [length, -1]
    if found is None:
        return None
    words = np.frombuffer(found.bitset(), np.uint64)
    return [found.num_bytes, round(1000 * int(np.bitwise_count(words).sum()) / (64 * len(words)))]


# -- positions of bounds ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """Positions of n pairs of bounds: ``low`` and ``high`` are int64 ``(n,)``, on ``scale``."""

    low: IntArray
    high: IntArray
    scale: str

    @property
    def order(self) -> str | None:
        """The order of the pairs: ``ascending``, ``descending`` or ``unsorted``; ``None`` for fewer
        than two."""
        known = (self.low >= 0) & (self.high >= 0)
        low, high = self.low[known], self.high[known]
        if len(low) < 2:
            return None
        if np.all(high[:-1] <= low[1:]):
            return "ascending"
        return "descending" if np.all(low[:-1] >= high[1:]) else "unsorted"


def bands(
    low: Sequence[bytes | None], high: Sequence[bytes | None], leaf: ColumnDescriptor
) -> Bands:
    """The positions of n pairs of bounds of a leaf column; bounds are PLAIN bytes or ``None``."""
    both = [*low, *high]
    keys = _numbers(both, leaf)
    scale = "linear"
    if keys is None or not np.isfinite(_extent(keys)):
        scale, keys = "order", _ranks(both, leaf)
    extent = _extent(keys)
    placed = np.full(len(both), -1, np.int64)
    known = ~np.isnan(keys)
    if known.any():
        share = (keys[known] - np.nanmin(keys)) / extent if extent else np.full(known.sum(), 0.5)
        placed[known] = np.rint(share * PLACES).astype(np.int64)
    return Bands(placed[: len(low)], placed[len(low) :], scale)


def texts(values: pa.Array, leaf: ColumnDescriptor) -> list[str | None]:
    """The bounds as text; long ones are cut."""
    found = readable(values, leaf).to_pylist()
    return [None if each is None else cut(each, _LONGEST) for each in found]


def _extent(keys: NDArray[np.float64]) -> float:
    known = keys[~np.isnan(keys)]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(known.max() - known.min()) if len(known) else 0.0


def _numbers(values: Sequence[bytes | None], leaf: ColumnDescriptor) -> NDArray[np.float64] | None:
    """The values as float64, NaN for none; ``None`` if the leaf holds no numbers."""
    dtype = _NUMBERS.get(leaf.type)
    if dtype is None:
        return None
    if StoredColumn.of(leaf).form is Form.UNSIGNED:
        dtype = dtype.replace("i", "u")
    width = np.dtype(dtype).itemsize
    fits = np.array([each is not None and len(each) == width for each in values], np.bool_)
    content = b"".join(each for each, fit in zip(values, fits, strict=True) if fit and each)
    keys = np.full(len(values), np.nan)
    keys[fits] = np.frombuffer(content, dtype).astype(np.float64)
    return keys


def _ranks(values: Sequence[bytes | None], leaf: ColumnDescriptor) -> NDArray[np.float64]:
    key = _key_of(leaf)
    known = [None if each is None else key(each) for each in values]
    ordered = sorted({each for each in known if each is not None})
    rank = {each: at for at, each in enumerate(ordered)}
    return np.array([np.nan if each is None else float(rank[each]) for each in known])


def _key_of(leaf: ColumnDescriptor) -> Callable[[bytes], Any]:
    """A function from the bytes of a value to its sort key."""
    form = StoredColumn.of(leaf).form
    if leaf.type in _NUMBERS or form is Form.FLOATING:
        dtype = _NUMBERS.get(leaf.type, "<f2")
        return lambda value: _number(value, dtype)
    if form is Form.INT96:
        return lambda value: (value[8:][::-1], value[:8][::-1])
    if form is Form.DECIMAL:
        return lambda value: int.from_bytes(value, "big", signed=True)
    return lambda value: value


def _number(value: bytes, dtype: str) -> float:
    whole = len(value) == np.dtype(dtype).itemsize
    found = float(np.frombuffer(value, dtype)[0]) if whole else -np.inf
    return found if found == found else np.inf
