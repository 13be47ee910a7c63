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

from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.parquet.encodings.plain import DTYPES
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.pages import page_headers as headers
from skipstone.parquet.pages.column_values import Run
from skipstone.parquet.reading import bulk_chunks as bulk
from skipstone.parquet.reading.bulk_chunks import ROOM
from skipstone.parquet.values import as_bytes

from .chunk_statistics import NO_HISTOGRAM, PageStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.values import I64, U8, Values

    from .chunk_modules import Window
    from .chunk_statistics import ChunkStatistics
    from .column_order import Ordering


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKernels:
    """The compiled loops; see ``many_pages_jit``."""

    plan: Callable[..., tuple[int, int, int, int, int]]
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

#: the most values of a page, and the most bytes of a window after decompression
MOST_VALUES: Final = 1 << 20
MOST_BYTES: Final = 16 << 20
#: the ``status`` of pages that no kernel looks at
LEFT: Final = 9
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
        self.data, self.rows = as_bytes(window.data), rows
        self.highest = facts.leaf.max_definition_level
        self.table = np.empty((len(rows), bulk.COLUMNS), np.int64)
        self.status = np.empty(len(rows), np.int64)

    def fill(self, made: list[PageStatistics | None], kernels: PageKernels) -> None:
        """Put the statistics of each page into its place."""
        filling, dictionary = self.facts.filling is not None, self.dictionary
        is_number = self.facts.leaf.type in DTYPES
        has_values = dictionary is not None and len(dictionary) > 0
        size, most, others, numbers, coded = kernels.plan(
            self.rows, self.codec, is_number, has_values, filling, len(self.data), self.table,
            self.status,
        )  # fmt: skip
        self.plain = np.empty(size + ROOM, np.uint8)
        if others:
            self._decompress_others()
        levels = np.empty(most, np.uint8)
        if numbers:
            self._numbers(made, kernels, levels)
        if coded:
            self._indices(made, kernels, levels)

    def _decompress_others(self) -> None:
        """Decompress the pages that the kernels cannot decompress."""
        table, status = self.table, self.status
        for n in np.flatnonzero((table[:, bulk.HOW] == bulk.OTHER) & (status == 0)).tolist():
            if not bulk.decompress_page(table[n], self.codec, self.data, self.plain):
                status[n] = LEFT  # the decoder of single pages explains it

    def _numbers(self, made: list[PageStatistics | None], kernels: PageKernels, levels: U8) -> None:
        facts, order, filling = self.facts, self.order, self.facts.filling is not None
        kind = DTYPES[facts.leaf.type]
        width, status, (nans, starts) = kind.itemsize, self.status.copy(), self._zeros(2)
        low, high = np.zeros((2, len(made)), f"<i{width}")
        how = FLOATING if order.floating else UNSIGNED if order.unsigned else SIGNED
        infinite = int(np.array(np.inf, kind).view(low.dtype)) if order.floating else 0
        counts = np.zeros((len(made), self.highest + 1), np.int64)
        kernels.numbers(
            self.data, self.table, self.highest, self.highest.bit_length(), how, infinite,
            self.plain, levels, counts, starts, low, high, nans, status,
        )  # fmt: skip
        lows, highs = (order.of_keys(each, kind, low=each is low).tobytes() for each in (low, high))
        for n, values, missing, start in self._looked_at(status, counts, nans, starts, plain=True):
            if order.total and missing == values > 0:  # bounds of NaN alone are NaN
                continue
            if filling and values:
                facts.fill(Run(self.plain[start : start + values * width].view(kind)))
            first = last = None
            if values > missing:
                at = slice(n * width, (n + 1) * width)
                first, last = lows[at], highs[at]
            made[n] = self._made(n, values, missing, first, last, 0, counts)

    def _indices(self, made: list[PageStatistics | None], kernels: PageKernels, levels: U8) -> None:
        facts, order, dictionary = self.facts, self.order, self.dictionary
        assert dictionary is not None  # pages without it are left
        ranked = order.ranked(dictionary)
        if ranked is None:
            return
        places, ranks = ranked
        status, (sizes, low, high) = self.status.copy(), self._zeros(3)
        used = facts.used_of(dictionary).view(np.uint8) if facts.filling is not None else _NO_FLAGS
        counts = np.zeros((len(made), self.highest + 1), np.int64)
        kernels.indices(
            self.data, self.table, self.highest, self.highest.bit_length(), len(dictionary), ranks,
            facts.lengths_of(dictionary), self.plain, levels, np.empty(len(levels), np.int32),
            counts, used, low, high, sizes, status,
        )  # fmt: skip
        lows, highs = places[low].tolist(), places[high].tolist()
        for n, values, size, _ in self._looked_at(status, counts, sizes, sizes, plain=False):
            first = last = None
            if values:
                first = order.entry(dictionary, lows[n], low=True)
                last = order.entry(dictionary, highs[n], low=False)
            made[n] = self._made(n, values, 0, first, last, size, counts)

    def _zeros(self, count: int) -> I64:
        return np.zeros((count, len(self.rows)), np.int64)

    def _looked_at(
        self, status: I64, counts: I64, one: I64, other: I64, *, plain: bool
    ) -> list[tuple[int, int, int, int]]:
        """The pages that a kernel has looked at: their places, how many values they hold, and two
        more numbers."""
        held = counts[:, self.highest] if self.highest else self.rows[:, headers.NUM_VALUES]
        is_plain = self.table[:, bulk.ENCODING] == Encoding.PLAIN
        found = np.flatnonzero((status == 0) & (is_plain == plain))
        columns = (found, held[found], one[found], other[found])
        return list(zip(*[each.tolist() for each in columns], strict=True))

    def _made(
        self,
        n: int,
        held: int,
        nans: int,
        low: bytes | None,
        high: bytes | None,
        size: int,
        counts: I64,
    ) -> PageStatistics:
        count = int(self.rows[n, headers.NUM_VALUES])
        histogram = counts[n] if self.highest else NO_HISTOGRAM
        empty = not held
        return PageStatistics(
            count, count - held, nans, low, high, empty, size, histogram, NO_HISTOGRAM, False
        )
