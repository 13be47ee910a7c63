"""The tree of one chunk from its pages as they lie there: looked at once, and placed.

For a tree of keys every page is decoded; for one of ordinals the headers are enough, unless the
column is repeated: there only the levels tell where rows begin, or the offset index.

DataFusion looks beyond the last page of a repeated column that has no offset index, and takes the
entries of an index page for a header: such a chunk has no tree but where it is interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.index_pages import ROLL_OVER
from skipstone.parquet.pages.page_values import decode_data_page, decode_dictionary_page

from .tree_keys import PageBounds
from .tree_writer import place_index_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.page import Page

    from .tree_writer import IndexPagePlan

__all__ = ["ChunkIndexPages", "index_pages_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndexPages:
    """``plan`` is ``None`` where a chunk can have no tree, and ``reason`` says why; it also says
    why a tree that was to hold keys holds ordinals.

    ``dictionary`` and ``sources`` are offset and length of the pages that were looked at: of the
    dictionary if there is one, and of each data page; ``uncompressed`` is what all of these take
    when they are decompressed, headers included.
    """

    plan: IndexPagePlan | None
    reason: str | None = None
    dictionary: tuple[int, int] | None = None
    sources: Sequence[tuple[int, int]] = ()
    uncompressed: int = 0
    rows: int = 0


def index_pages_of(
    pages: Iterable[Page],
    leaf: Leaf,
    codec: int,
    *,
    keyed: bool,
    interleave: bool = False,
    roll_over: int = ROLL_OVER,
    first_rows: Sequence[int] | None = None,
) -> ChunkIndexPages:
    """Of the pages of a chunk in the clear, in their order; index pages among them are passed over.

    ``keyed`` asks for keys. ``first_rows`` are those of its data pages, where the new file has an
    offset index that says them; a repeated column wants them. In the new file the dictionary begins
    the chunk, and the data pages follow back to back but for index pages. ``FormatError`` for
    damaged pages.
    """
    bounds = PageBounds(leaf) if keyed else None
    if bounds is not None and bounds.order is None:
        keyed = False
    unplaced = bool(leaf.max_repetition_level) and first_rows is None
    decoded = keyed or (unplaced and interleave)
    head: tuple[int, int] | None = None
    dictionary: Values | None = None
    sources: list[tuple[int, int]] = []
    rows: list[int] = []
    uncompressed = 0
    why_not = "it is repeated and has no offset index" if unplaced and not interleave else None
    for page in pages:
        place = (page.offset, page.stop - page.offset)
        if page.is_data or page.type == PageType.DICTIONARY_PAGE:
            uncompressed += page.header_length + page.uncompressed_page_size
        if page.type == PageType.DICTIONARY_PAGE:
            if sources or head is not None:
                raise FormatError("a dictionary behind its data pages", offset=page.offset)
            head = place
            if decoded:
                page.verify_crc()
                dictionary = decode_dictionary_page(page, leaf, codec, page.body)
        elif page.is_data:
            sources.append(place)
            if not decoded or why_not:
                rows.append(page.num_values)
                continue
            page.verify_crc()
            column = decode_data_page(page, leaf, codec, dictionary, page.body)
            levels = column.repetition_levels
            if levels is not None and len(levels) and levels[0]:
                why_not = "a page of it begins within a row"
            rows.append(column.num_rows)
            if keyed and bounds is not None:
                bounds.add(column)
    if not sources or why_not:
        return ChunkIndexPages(
            plan=None,
            reason=why_not or "it has no data pages",
            dictionary=head,
            sources=sources,
            uncompressed=uncompressed,
            rows=sum(rows),
        )
    if first_rows is None:
        ordinals = [0, *np.cumsum(rows[:-1], dtype=np.int64).tolist()]
    elif len(first_rows) != len(sources):
        raise FormatError("pages in an offset index", expected=len(sources), got=len(first_rows))
    else:
        ordinals = list(first_rows)
    keys = bounds.keys() if keyed and bounds is not None else None
    plan = place_index_pages(
        first=0 if head is None else head[1],
        sizes=[length for _, length in sources],
        keys=keys,
        ordinals=None if keys is not None and interleave else ordinals,
        leaf=leaf,
        interleave=interleave,
        roll_over=roll_over,
    )
    return ChunkIndexPages(
        plan=plan,
        reason=None if bounds is None else bounds.reason,
        dictionary=head,
        sources=sources,
        uncompressed=uncompressed,
        rows=sum(rows),
    )
