"""Null pages that replace damaged ones, so that the rest of their row group can be read.

A lost dictionary is replaced by an empty one, where the pages that refer to it hold only nulls:
they can be decoded without it, but most readers refuse to.

A null has to stand at the same place in the tree as the lost value, or the other columns of the
same group or list would disagree with it. A ``sibling`` column tells that place:

    list of struct a, b     page of b lost: the levels of a's same rows, cut down to what both have
                            in common, and null below that
    struct of one field     no column tells whether the struct was there: it becomes null itself
    list of its own         the list becomes null

The first node below the common one has to be optional: a null needs an optional node. The rows of a
page of a repeated column have to be known, and to begin and end with it, as in v2 pages.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.parquet.encodings.codecs import compress
from skipstone.parquet.encodings.rle import encode_prefixed
from skipstone.parquet.format.enums import Encoding, FieldRepetitionType, PageType
from skipstone.parquet.format.page_header import DataPageHeader, DictionaryPageHeader, PageHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from skipstone.parquet.format.schema import Leaf, Node
    from skipstone.parquet.pages.column_values import LeafColumn

    U8 = npt.NDArray[np.uint8]

__all__ = ["NullPage", "empty_dictionary", "null_page", "sibling_leaves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NullPage:
    """A whole page, header and body, of ``num_values`` entries."""

    data: bytes
    num_values: int
    uncompressed: int


def sibling_leaves(leaf: Leaf, leaves: Sequence[Leaf]) -> list[tuple[Leaf, Node]]:
    """The leaves that share most groups with this one, and the last node that they share with it.

    Any of them will do. A leaf that shares fewer groups does not tell about the inner ones.
    """
    found: list[tuple[Leaf, Node]] = []
    for each in leaves:
        pairs = zip(leaf.ancestors, each.ancestors, strict=False)
        common = [a for a, b in pairs if a.path == b.path and a.path]
        if each.ordinal != leaf.ordinal and common:
            found.append((each, common[-1]))
    most = max((len(node.path) for _, node in found), default=0)
    sibling = [pair for pair in found if len(pair[1].path) == most]
    return sorted(sibling, key=lambda pair: pair[0].max_repetition_level)


def null_page(
    leaf: Leaf, rows: int, codec: int, sibling: tuple[LeafColumn, Node] | None
) -> NullPage | None:
    """A page of ``rows`` rows without values of this leaf; ``None`` if no node may be null.

    ``sibling``: the same rows of another leaf, undamaged, and the last node that both share.
    """
    shared, repetition = 0, np.zeros(rows, np.uint8)
    definition = np.zeros(rows, np.uint8)
    depth = 0
    if sibling is not None:
        column, node = sibling
        depth, shared = len(node.path), node.max_definition_level
        repetition, definition = _shared(column, node)
    # Where the shared node is present, the next node has to be null.
    path = [*[each for each in leaf.ancestors if each.path], leaf.node]
    below = path[depth]
    while below.repetition is FieldRepetitionType.REQUIRED and depth + 1 < len(path):
        depth += 1
        below = path[depth]
    if below.repetition is not FieldRepetitionType.OPTIONAL and bool((definition == shared).any()):
        return None
    parts = []
    if leaf.max_repetition_level:
        parts.append(encode_prefixed(repetition, leaf.max_repetition_level.bit_length()))
    parts.append(encode_prefixed(definition, leaf.max_definition_level.bit_length()))
    plain = b"".join(parts)
    header = DataPageHeader(
        num_values=len(definition),
        encoding=Encoding.PLAIN,
        definition_level_encoding=Encoding.RLE,
        repetition_level_encoding=Encoding.RLE,
    )
    return _page(PageType.DATA_PAGE, codec, plain, len(definition), data_page_header=header)


def empty_dictionary(codec: int) -> NullPage:
    """A dictionary of no values."""
    header = DictionaryPageHeader(num_values=0, encoding=Encoding.PLAIN)
    return _page(PageType.DICTIONARY_PAGE, codec, b"", 0, dictionary_page_header=header)


def _page(type: PageType, codec: int, plain: bytes, num_values: int, **header: Any) -> NullPage:
    body = compress(codec, plain)
    crc = zlib.crc32(body)
    made = PageHeader(
        type=type,
        uncompressed_page_size=len(plain),
        compressed_page_size=len(body),
        crc=crc - (1 << 32) if crc >> 31 else crc,
        **header,
    ).to_bytes()
    return NullPage(data=made + body, num_values=num_values, uncompressed=len(made) + len(plain))


def _shared(column: LeafColumn, node: Node) -> tuple[U8, U8]:
    """The levels of a column's entries, cut down to a node above it."""
    count = column.num_entries
    definition, repetition = column.definition_levels, column.repetition_levels
    if definition is None:
        definition = np.full(count, column.leaf.max_definition_level, np.uint8)
    if repetition is None:
        repetition = np.zeros(count, np.uint8)
    begins = repetition <= node.max_repetition_level
    least = np.minimum(definition[begins], np.uint8(node.max_definition_level))
    return repetition[begins], least.astype(np.uint8)
