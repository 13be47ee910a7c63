"""A page that was never read: of a chunk of which it is known that every value is null.

A data page of definition levels alone, one run of zeros. It goes where a page that was fetched
would go, so that nothing below needs to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.parquet.format.enums import CompressionCodec, Encoding, PageType
from skipstone.parquet.format.page_header import DataPageHeader, PageHeader
from skipstone.parquet.pages.page import read_page

from .page_places import PageTable
from .splice_pages import Pages

if TYPE_CHECKING:
    from .chunk_place import ChunkPlace

__all__ = ["null_pages", "table_of_nulls"]


def table_of_nulls(place: ChunkPlace) -> PageTable:
    """One entry without bytes, which holds all rows."""
    zero = np.zeros(1, np.int64)
    rows = np.array([place.rows], np.int64)
    return PageTable(
        offset=zero,
        length=zero,
        first_row=np.array([0, place.rows], np.int64),
        values=rows,
        ordinal=zero,
        dictionary=(0, 0),
    )


def null_pages(rows: int) -> Pages:
    """The page of ``rows`` nulls of a flat column."""
    run, left = bytearray(), rows << 1
    while left >= 0x80:
        run.append(left & 0x7F | 0x80)
        left >>= 7
    run += bytes((left, 0))
    body = len(run).to_bytes(4, "little") + run
    header = PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        data_page_header=DataPageHeader(
            num_values=rows,
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    page = header.to_bytes() + body
    return Pages(CompressionCodec.UNCOMPRESSED, rows, b"", (page,), (read_page(page),))
