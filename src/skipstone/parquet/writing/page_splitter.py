"""Splits data pages of many rows: decodes them, cuts them where rows begin, encodes them again.

A page keeps its version, its codec and its encoding: dictionary indices refer to the same
dictionary, other values are encoded as before. A page that is small enough is copied, unless rows
of its column may cross page ends: such a column (lists in v1 pages) is encoded again as a whole, so
that every page begins with a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.parquet.encodings import encode_values, rle
from skipstone.parquet.encodings.codecs import compress
from skipstone.parquet.encodings.levels import row_starts
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import DataPageHeader, DataPageHeaderV2, PageHeader
from skipstone.parquet.pages.column_values import LeafColumn, Run, concat, no_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.page import Page


_DICTIONARY = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)


class PageSplitter:
    """The data pages of one chunk, in their order."""

    def __init__(self, leaf: Leaf, codec: int, page_rows: int) -> None:
        self.leaf, self.codec, self.page_rows = leaf, codec, page_rows
        # v1 pages of lists: the last row may continue in the next page.
        self._held: tuple[Page, LeafColumn] | None = None

    def leaves(self, page: Page, column: LeafColumn) -> bool:
        """Whether a page is copied unchanged."""
        reaches = self.leaf.max_repetition_level and page.type == PageType.DATA_PAGE
        return not reaches and column.num_rows <= self.page_rows

    def split(self, page: Page, column: LeafColumn) -> Iterator[tuple[Page, LeafColumn]]:
        """The pages that are complete so far, each with its entries."""
        if page.type == PageType.DATA_PAGE_V2 or not self.leaf.max_repetition_level:
            yield from self._cut(page, column, column.num_rows)
            return
        if self._held is not None:
            before, held = self._held
            if before.encoding == page.encoding:
                column = concat(self.leaf, [held, column])
            else:
                # A row in two encodings: its beginning is encoded again like its end.
                starts = _starts(column)
                first = int(starts[0]) if len(starts) else column.num_entries
                if first:
                    held = _plain(concat(self.leaf, [held, column.entries(0, first)]))
                if first == column.num_entries:
                    self._held = (before, held)
                    return
                yield from self._cut(before, held, held.num_rows)
                column = column.entries(first, column.num_entries)
        starts = _starts(column)
        last = int(starts[-1]) if len(starts) else 0
        self._held = (page, column.entries(last, column.num_entries))
        whole = column.entries(0, last)
        if whole.num_entries:
            yield from self._cut(page, whole, whole.num_rows)

    def rest(self) -> Iterator[tuple[Page, LeafColumn]]:
        """The pages held back for rows that could continue."""
        if self._held is not None:
            page, column = self._held
            self._held = None
            if column.num_entries:
                yield from self._cut(page, column, column.num_rows)

    def _cut(self, page: Page, column: LeafColumn, rows: int) -> Iterator[tuple[Page, LeafColumn]]:
        for start in range(0, max(rows, 1), self.page_rows):
            part = column.rows(start, start + self.page_rows)
            yield self._encoded(page, part), part

    def _encoded(self, page: Page, column: LeafColumn) -> Page:
        leaf, encoding = self.leaf, Encoding(page.encoding)
        if encoding in _DICTIONARY and any(run.indices is None for run in column.runs):
            encoding = Encoding.PLAIN
        if encoding in _DICTIONARY:
            parts = [run.indices for run in column.runs if run.indices is not None]
            values = np.concatenate(parts) if parts else np.empty(0, np.int32)
            body = encode_values(encoding, values, leaf.type, leaf.type_length)
        elif column.num_values:
            try:
                body = encode_values(encoding, column.values(), leaf.type, leaf.type_length)
            except TypeError as error:
                raise UnsupportedError(f"pages of {leaf.name} cannot be split: {error}") from None
        else:
            body = encode_values(Encoding.PLAIN, no_values(leaf), leaf.type, leaf.type_length)
            encoding = Encoding.PLAIN
        repetition = _levels(column.repetition_levels, leaf.max_repetition_level, column, 0)
        definition = _levels(
            column.definition_levels, leaf.max_definition_level, column, leaf.max_definition_level
        )
        if page.type == PageType.DATA_PAGE_V2:
            packed = compress(self.codec, body) if page.is_compressed and body else body
            stored = repetition + definition + packed
            size = len(repetition) + len(definition) + len(body)
            header = PageHeader(
                type=PageType.DATA_PAGE_V2,
                uncompressed_page_size=size,
                compressed_page_size=len(stored),
                data_page_header_v2=DataPageHeaderV2(
                    num_values=column.num_entries,
                    num_nulls=column.num_nulls,
                    num_rows=column.num_rows,
                    encoding=encoding,
                    definition_levels_byte_length=len(definition),
                    repetition_levels_byte_length=len(repetition),
                    is_compressed=page.is_compressed,
                ),
            )
        else:
            whole = b"".join(
                [
                    _prefixed(repetition) if leaf.max_repetition_level else b"",
                    _prefixed(definition) if leaf.max_definition_level else b"",
                    body,
                ]
            )
            stored = compress(self.codec, whole)
            size = len(whole)
            header = PageHeader(
                type=PageType.DATA_PAGE,
                uncompressed_page_size=size,
                compressed_page_size=len(stored),
                data_page_header=DataPageHeader(
                    num_values=column.num_entries,
                    encoding=encoding,
                    definition_level_encoding=Encoding.RLE,
                    repetition_level_encoding=Encoding.RLE,
                ),
            )
        return page._replace(
            header_bytes=header.to_bytes(),
            body=memoryview(stored),
            uncompressed_page_size=size,
            crc=None,
            num_values=column.num_entries,
            encoding=int(encoding),
        )


def _starts(column: LeafColumn) -> NDArray[np.int64]:
    """Positions of the entries that begin a row."""
    if column.repetition_levels is None:
        return np.arange(column.num_entries)
    return row_starts(column.repetition_levels)


def _plain(column: LeafColumn) -> LeafColumn:
    """The same with values instead of indices."""
    return replace(column, runs=tuple([Run(run.plain()) for run in column.runs]))


def _levels(levels: object, highest: int, column: LeafColumn, trivial: int) -> bytes:
    if not highest:
        return b""
    held = levels if isinstance(levels, np.ndarray) else np.full(column.num_entries, trivial)
    return rle.encode(held.astype(np.uint8), highest.bit_length())


def _prefixed(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels
