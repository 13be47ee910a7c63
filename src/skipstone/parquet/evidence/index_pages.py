"""Index pages of 2013 in the place of a page index, for files that have nothing younger.

The roots of a chunk's trees, where they are its leaves' parents too, say what an offset index says,
and the keys bound the pages: page ``i`` holds values from key ``i - 1`` to key ``i``. They come in
one request. A tree of several levels, and one of keys alone, says nothing while planning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.format.enums import BoundaryOrder
from skipstone.parquet.format.index_pages import ROLL_OVER, read_root
from skipstone.parquet.format.page_index import ColumnIndexArrays, OffsetIndexArrays

if TYPE_CHECKING:
    from skipstone.parquet.format.schema import Leaf

__all__ = ["LONGEST_ROOTS", "page_index_of"]

#: two roots that rolled over, with their headers
LONGEST_ROOTS = 2 * (ROLL_OVER + 256)


def page_index_of(
    data: bytes | memoryview,
    leaf: Leaf,
    *,
    base: int,
    start: int,
    data_page_offset: int,
    size: int | None,
    num_rows: int,
) -> tuple[OffsetIndexArrays, ColumnIndexArrays | None]:
    """What the roots at the start of ``data``, at byte ``base`` of the file, say of the pages of a
    chunk that begins at ``start``.

    ``FormatError`` where they are damaged, ``UnsupportedError`` where they do not say enough.
    """
    root, beside = read_root(data, leaf.type, leaf.type_length, base=base)
    rows = root if root.keys is None else beside
    if rows is None or rows.ordinals is None:
        raise UnsupportedError("index pages that do not say the rows of their pages")
    if int(rows.page_offset[0]) != data_page_offset - start:
        raise UnsupportedError("index pages of several levels")
    if not np.array_equal(rows.page_offset, root.page_offset):
        raise FormatError("keys and ordinals of other pages", offset=base)
    made = OffsetIndexArrays(
        offset=rows.page_offset + start,
        compressed_page_size=rows.page_len,
        first_row_index=rows.ordinals,
    )
    # Held against the file as one that was read would be.
    places = OffsetIndexArrays.from_bytes(made.to_bytes(), size=size, num_rows=num_rows, base=base)
    if root.keys is None:
        return places, None
    count = len(root)
    # Nothing bounds the first page from below: no bytes are the least text, and no number at all.
    lower = ByteArrays.concat([ByteArrays.from_list([b""]), root.keys[: count - 1]])
    return places, ColumnIndexArrays(
        null_pages=np.zeros(count, np.bool_),
        min_values=lower,
        max_values=root.keys,
        boundary_order=BoundaryOrder.ASCENDING,
    )
