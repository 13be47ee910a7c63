"""The statistics of many pages of a chunk in one call of compiled code.

Page by page, decoding in Python takes longer than the work on the bytes. The kernels
(``many_pages_jit``) take all pages of a window at once: they decompress them, count their levels
and find their bounds. They do what most pages need: columns without lists, PLAIN numbers, indices
into a dictionary. All other pages, and damaged ones, are left to ``ChunkStatistics.look``, which
gives the same statistics.

    page     decompressed into its place in ``plain``: Snappy by a kernel, other codecs before it
    numbers  bounds are signed integers whose order is that of the column

             signed      the number
             unsigned    its highest bit flipped
             floating    the other bits of negative numbers flipped: -inf … -0 +0 … inf

    indices  bounds are ranks among the values of the dictionary

Every size that a page claims is checked before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._numba import CompiledKernels
from skipstone.errors import SkipstoneError
from skipstone.parquet.encodings.codecs import decompress
from skipstone.parquet.encodings.plain import DTYPES
from skipstone.parquet.format.enums import CompressionCodec, Encoding
from skipstone.parquet.pages import page_headers as headers
from skipstone.parquet.pages.column_values import Run
from skipstone.parquet.reading import bulk_chunks as bulk
from skipstone.parquet.reading.bulk_chunks import BEHIND, ROOM, SNAPPY_RATIO
from skipstone.parquet.values import as_bytes, room

from .chunk_statistics import NO_HISTOGRAM, PageStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from skipstone.parquet.values import I64, U8, Values

    from .chunk_modules import Window
    from .chunk_statistics import ChunkStatistics
    from .column_order import Ordering


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKernels:
    """The compiled loops; see ``many_pages_jit``."""

    numbers: Callable[..., None]
    indices: Callable[..., None]
    walk: headers.Walk


#: In values: a page of 20,000 takes a tenth of a millisecond less.
KERNELS: Final = CompiledKernels[PageKernels](
    module=f"{__package__}.many_pages_jit",
    once=100_000_000,
    total=100_000_000,
    share=1 / 16,
    patience=0.0,
)
#: the orders of numbers
SIGNED, UNSIGNED, FLOATING = 0, 1, 2

# The most values of a page, and the most bytes of a window after decompression.
_MOST_VALUES: Final = 1 << 20
_MOST_BYTES: Final = 16 << 20
# The ``status`` of pages that no kernel looks at.
_LEFT: Final = 9
_NO_FLAGS: Final = np.zeros(0, np.uint8)


def compiled_walk() -> headers.Walk | None:
    """``page_headers.walk`` as machine code, if the kernels are loaded."""
    kernels = KERNELS.for_work(0)
    return None if kernels is None else kernels.walk


def look_at_many(
    facts: ChunkStatistics, codec: int, window: Window, first: int, dictionary: Values | None
) -> list[PageStatistics | None]:
    """The statistics of the pages of a ``window`` from ``first`` on, as ``facts.look`` gives them;
    ``None`` for a page that is left to it. Checksums are not verified."""
    pages = window.pages[first:]
    made: list[PageStatistics | None] = [None] * len(pages)
    if facts.order is not None and facts.at_once:
        kernels = KERNELS.for_work(sum([page.num_values for page in pages if page.is_data]))
        if kernels is not None:
            look = _Look(facts, facts.order, codec, window, window.headers[first:], dictionary)
            look.fill(made, kernels)
    return made


class _Look:
    """Arguments and results of the kernels for some pages."""

    def __init__(
        self,
        facts: ChunkStatistics,
        order: Ordering,
        codec: int,
        window: Window,
        rows: I64,
        dictionary: Values | None,
    ) -> None:
        self.facts, self.order, self.codec, self.dictionary = facts, order, codec, dictionary
        self.body, self.data = window.data, as_bytes(window.data)
        self.highest = facts.leaf.max_definition_level
        self.count = rows[:, headers.NUM_VALUES]
        self.table = self._table(rows)
        self.status = np.where(self._is_usual(rows), np.int64(0), _LEFT)

    def _table(self, rows: I64) -> I64:
        """The page table, but for ``PLACE``."""
        table = np.zeros((len(rows), bulk.COLUMNS), np.int64)
        is_v2 = rows[:, headers.TYPE] == headers.DATA_PAGE_V2
        stored = rows[:, headers.COMPRESSED]
        at = rows[:, headers.OFFSET] + rows[:, headers.HEADER_LENGTH]
        by_runs = rows[:, headers.DEFINITION] == Encoding.RLE
        table[:, bulk.VERSION] = np.where(is_v2, 2, 1)
        table[:, bulk.ENCODING] = rows[:, headers.ENCODING]
        table[:, bulk.AT], table[:, bulk.STORED] = at, stored
        table[:, bulk.SIZE] = rows[:, headers.UNCOMPRESSED]
        table[:, bulk.VALUES] = self.count
        table[:, bulk.LEVELS] = np.where(
            is_v2, rows[:, headers.DEFINITION_LENGTH], np.where(by_runs, -1, -2)
        )
        table[:, bulk.READY] = -1
        if self.codec != CompressionCodec.UNCOMPRESSED:
            # The kernel may read bytes behind a page.
            inside = at + stored + ROOM <= len(self.data)
            is_snappy = inside & (self.codec == CompressionCodec.SNAPPY)
            how = np.where(is_snappy, bulk.SNAPPY, bulk.OTHER)
            table[:, bulk.HOW] = np.where(rows[:, headers.IS_COMPRESSED] == 1, how, bulk.COPIED)
        return table

    def _is_usual(self, rows: I64) -> NDArray[np.bool_]:
        """Which pages the kernels look at, by their headers."""
        kind, encoding = rows[:, headers.TYPE], rows[:, headers.ENCODING]
        size, stored = self.table[:, bulk.SIZE], self.table[:, bulk.STORED]
        levels = self.table[:, bulk.LEVELS]
        usual = (rows[:, headers.REPETITION_LENGTH] == 0) & (levels >= 0)
        usual = np.where(kind == headers.DATA_PAGE_V2, usual, kind == headers.DATA_PAGE)
        usual &= (self.count > 0) & (self.count <= _MOST_VALUES)
        usual &= (levels <= size) & (levels <= stored) & (size <= SNAPPY_RATIO * stored + 8)
        known = np.zeros(len(rows), np.bool_)
        if self.facts.leaf.type in DTYPES:  # those without an order have been left
            known |= encoding == Encoding.PLAIN
        if self.dictionary is not None and len(self.dictionary):
            for each in headers.INDICES:
                known |= encoding == each
        return np.asarray(usual & known)

    def fill(self, made: list[PageStatistics | None], kernels: PageKernels) -> None:
        """Put the statistics of each page into its place."""
        if self.status.all():
            return
        self._place()
        is_plain = self.table[:, bulk.ENCODING] == Encoding.PLAIN
        levels = np.empty(int(np.where(self.status == 0, self.count, 0).max()), np.uint8)
        if (is_plain & (self.status == 0)).any():
            self._numbers(made, kernels, levels)
        if (~is_plain & (self.status == 0)).any():
            self._indices(made, kernels, levels)

    def _place(self) -> None:
        """Give each page its place, and decompress those that the kernels cannot decompress."""
        table, status = self.table, self.status
        size, others = table[:, bulk.SIZE], table[:, bulk.HOW] == bulk.OTHER
        # So that values are aligned: in v2 pages they begin behind the levels, in v1 pages they
        # usually end with the page.
        shift = -np.where(table[:, bulk.VERSION] == 2, table[:, bulk.LEVELS], size) % 8
        spans = np.where(status == 0, (shift + size + BEHIND + 7) // 8 * 8, 0)
        # Pages that need not stay share the first place.
        alone = others | (self.facts.filling is not None)
        shared = int(np.where(alone, 0, spans).max())
        ends = shared + np.cumsum(np.where(alone, spans, 0))
        status[ends > _MOST_BYTES] = _LEFT
        table[:, bulk.PLACE] = np.where(alone, ends - spans, 0) + shift
        self.plain = room(min(int(ends[-1]), _MOST_BYTES) + ROOM, np.uint8)
        for n in np.flatnonzero(others & (status == 0)).tolist():
            page = table[n]
            levels, at, to = max(int(page[bulk.LEVELS]), 0), page[bulk.AT], page[bulk.PLACE]
            stop, count = at + page[bulk.STORED], int(page[bulk.SIZE])
            try:
                rest = decompress(self.codec, self.body[at + levels : stop], count - levels)
            except SkipstoneError:  # the decoder of single pages explains it
                status[n] = _LEFT
                continue
            self.plain[to : to + levels] = self.data[at : at + levels]
            self.plain[to + levels : to + count] = np.frombuffer(rest, np.uint8)
            page[bulk.READY] = count

    def _numbers(self, made: list[PageStatistics | None], kernels: PageKernels, levels: U8) -> None:
        facts, order, status = self.facts, self.order, self.status.copy()
        kind = DTYPES[facts.leaf.type]
        counts, nans, starts = self._counts(), self._zeros(), self._zeros()
        low, high = (np.zeros(len(made), f"<i{kind.itemsize}") for _ in range(2))
        how = FLOATING if order.floating else UNSIGNED if order.unsigned else SIGNED
        infinite = int(np.array(np.inf, kind).view(low.dtype)) if order.floating else 0
        kernels.numbers(
            self.data, self.table, self.highest, self.highest.bit_length(), how, infinite,
            self.plain, levels, counts, starts, low, high, nans, status,
        )  # fmt: skip
        held = self._held(counts)
        if order.total:  # bounds of NaN alone are NaN
            status[(held > 0) & (held == nans)] = _LEFT
        first, last = order.of_keys(low, kind, low=True), order.of_keys(high, kind, low=False)
        lows, highs, width = first.tobytes(), last.tobytes(), kind.itemsize
        every = list(zip(held.tolist(), nans.tolist(), starts.tolist(), strict=True))
        for n in self._looked_at(status, plain=True):
            values, missing, start = every[n]
            if facts.filling is not None and values:
                facts.fill(Run(self.plain[start : start + values * width].view(kind)))
            at = slice(n * width, (n + 1) * width)
            bounds = (lows[at], highs[at]) if values > missing else (None, None)
            made[n] = self._made(n, values, counts, bounds, nans=missing)

    def _indices(self, made: list[PageStatistics | None], kernels: PageKernels, levels: U8) -> None:
        facts, order, status = self.facts, self.order, self.status.copy()
        assert self.dictionary is not None  # pages without it are left
        ranked = order.ranked(self.dictionary)
        if ranked is None:
            return
        places, ranks = ranked
        counts, sizes, low, high = self._counts(), *[self._zeros() for _ in range(3)]
        filling = facts.filling is not None
        kernels.indices(
            self.data, self.table, self.highest, self.highest.bit_length(), len(self.dictionary),
            ranks, facts.lengths_of(self.dictionary), self.plain, levels,
            np.empty(len(levels), np.int32), counts,
            facts.used_of(self.dictionary).view(np.uint8) if filling else _NO_FLAGS,
            low, high, sizes, status,
        )  # fmt: skip
        held, size = self._held(counts).tolist(), sizes.tolist()
        lows, highs = places[low].tolist(), places[high].tolist()
        for n in self._looked_at(status, plain=False):
            bounds: tuple[bytes | None, bytes | None] = (None, None)
            if held[n]:
                bounds = (
                    order.entry(self.dictionary, lows[n], low=True),
                    order.entry(self.dictionary, highs[n], low=False),
                )
            made[n] = self._made(n, held[n], counts, bounds, size=size[n])

    def _looked_at(self, status: I64, *, plain: bool) -> list[int]:
        is_plain = self.table[:, bulk.ENCODING] == Encoding.PLAIN
        return np.flatnonzero((status == 0) & (is_plain == plain)).tolist()

    def _zeros(self) -> I64:
        return np.zeros(len(self.count), np.int64)

    def _counts(self) -> I64:
        return np.zeros((len(self.count), self.highest + 1), np.int64)

    def _held(self, counts: I64) -> I64:
        """How many values each page holds, from how often it has each level."""
        return counts[:, self.highest] if self.highest else self.count

    def _made(
        self,
        n: int,
        held: int,
        counts: I64,
        bounds: tuple[bytes | None, bytes | None],
        *,
        nans: int = 0,
        size: int = 0,
    ) -> PageStatistics:
        count = int(self.count[n])
        return PageStatistics(
            rows=count,
            nulls=count - held,
            nans=nans,
            low=bounds[0],
            high=bounds[1],
            empty=not held,
            size=size,
            definition=counts[n] if self.highest else NO_HISTOGRAM,
            repetition=NO_HISTOGRAM,
            within_row=False,
        )
