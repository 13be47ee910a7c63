"""The tree of one chunk from its pages as they lie there: looked at once, and placed.

For a tree of keys every page is decoded; for one of ordinals the headers are enough, unless the
column is repeated: there only the levels tell where rows begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.formats.parquet.enums import PageType
from skipstone.formats.parquet.index_pages import ROLL_OVER
from skipstone.formats.parquet.page_values import decode_data_page, decode_dictionary_page

from .index_pages import place_index_pages
from .index_pages_keys import PageBounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.formats.parquet.encodings.values import Values
    from skipstone.formats.parquet.page import Page
    from skipstone.formats.parquet.schema import Leaf

    from .index_pages import IndexPagePlan

__all__ = ["ChunkIndexPages", "index_pages_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkIndexPages:
    """``plan`` is ``None`` where a chunk can have no tree, and ``reason`` says why; it also says
    why a tree that was to hold keys holds ordinals.

    ``dictionary`` and ``sources`` are offset and length of the pages that were looked at: of the
    dictionary if there is one, and of each data page.
    """

    plan: IndexPagePlan | None
    reason: str | None = None
    dictionary: tuple[int, int] | None = None
    sources: Sequence[tuple[int, int]] = ()


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

    ``keyed`` asks for keys. ``first_rows`` of its data pages, from the offset index, save decoding
    a repeated column. In the new file the dictionary begins the chunk, and the data pages follow
    back to back but for index pages. ``FormatError`` for damaged pages.
    """
    bounds = PageBounds(leaf) if keyed else None
    if bounds is not None and bounds.order is None:
        keyed = False
    decoded = keyed or (bool(leaf.max_repetition_level) and first_rows is None)
    head: tuple[int, int] | None = None
    dictionary: Values | None = None
    sources: list[tuple[int, int]] = []
    rows: list[int] = []
    for page in pages:
        place = (page.offset, page.stop - page.offset)
        if page.type == PageType.DICTIONARY_PAGE:
            if sources or head is not None:
                raise FormatError("a dictionary behind its data pages", offset=page.offset)
            head = place
            if decoded:
                page.verify_crc()
                dictionary = decode_dictionary_page(page, leaf, codec, page.body)
        elif page.is_data:
            sources.append(place)
            if not decoded:
                rows.append(page.num_values)
                continue
            page.verify_crc()
            column = decode_data_page(page, leaf, codec, dictionary, page.body)
            levels = column.repetition_levels
            if levels is not None and len(levels) and levels[0]:
                reason = "a page of it begins within a row"
                return ChunkIndexPages(plan=None, reason=reason)
            rows.append(column.num_rows)
            if keyed and bounds is not None:
                bounds.add(column)
    if not sources:
        return ChunkIndexPages(plan=None, reason="it has no data pages", dictionary=head)
    ordinals = first_rows
    if ordinals is None:
        ordinals = [0, *np.cumsum(rows[:-1], dtype=np.int64).tolist()]
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
    )
