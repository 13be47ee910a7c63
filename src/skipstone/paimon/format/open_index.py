"""Reads an index of any kind: opens it, answers a question, or names the bytes that are missing.

An evidence over a blob at (offset, length) of some object needs no more than this::

    pieces = Pieces(length, [(offset in the blob, bytes), …])    # what is fetched, maybe nothing
    spans = needs(kind, type, ask, pieces)  # () if the answer can be given; else fetch these
    pieces.add([(span.offset, bytes), …])   # and ask again; new pieces work, but are parsed again
    rows = answer(kind, type, ask, pieces)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyroaring import BitMap

from skipstone.errors import UnsupportedError

from .bitmap import BitmapIndex
from .bloom_filter import BloomFilterIndex
from .bsi import BsiIndex
from .keys import In, Null
from .partial_blob import MissingBytes
from .range_bitmap import RangeBitmapIndex

if TYPE_CHECKING:
    from .keys import Ask
    from .partial_blob import BlobSpan, Pieces
    from .types import PaimonType


Index: TypeAlias = "BitmapIndex | BloomFilterIndex | BsiIndex | RangeBitmapIndex"

KINDS: dict[str, type[Index]] = {
    "bitmap": BitmapIndex,
    "bloom-filter": BloomFilterIndex,
    "bsi": BsiIndex,
    "range-bitmap": RangeBitmapIndex,
}


@dataclass(frozen=True, slots=True, eq=False)
class RowAnswer:
    """The answer of an index: only rows of ``may`` match, and all of them do if ``exact``.

    ``may`` is ``None`` if the index says nothing. ``row_count`` is -1 if it is not stored.
    """

    may: BitMap | None
    exact: bool
    row_count: int


def open_index(kind: str, type: PaimonType, pieces: Pieces) -> Index:
    """The index of this kind. ``UnsupportedError`` for unknown kinds and versions, ``FormatError``,
    ``MissingBytes``."""
    return pieces.opened((kind, type), lambda: open_uncached(kind, type, pieces))


def open_uncached(kind: str, type: PaimonType, pieces: Pieces) -> Index:
    """The same without the cache of ``pieces``, for a caller that keeps the index."""
    if kind not in KINDS:
        raise UnsupportedError(f"file index of kind {kind!r} is not known")
    return KINDS[kind].open(type, pieces)


def speaks(kind: str, ask: Ask) -> bool:
    """Whether an index of this kind can say anything of such a question."""
    return kind in KINDS and (kind != "bloom-filter" or isinstance(ask, In))


def answer(kind: str, type: PaimonType, ask: Ask, pieces: Pieces) -> RowAnswer:
    """The answer of the index. It is cached in ``pieces``: do not change the rows. Errors as for
    ``open_index``."""
    return pieces.once(
        (kind, type, ask), lambda: answer_of(open_index(kind, type, pieces), type, ask)
    )


def answer_of(index: Index, type: PaimonType, ask: Ask) -> RowAnswer:
    """The answer of an open index over a column of ``type``. Errors as for ``open_index``."""
    if isinstance(index, BloomFilterIndex):
        if isinstance(ask, In) and not index.may_contain(ask):
            return RowAnswer(BitMap(), True, -1)
        return RowAnswer(None, False, -1)
    # Null and not-null rows are exact even where keys lose digits.
    plain = isinstance(ask, Null) or (not isinstance(ask, In) and ask.lo is ask.hi is None)
    return RowAnswer(index.rows(ask), type.exact or plain, index.row_count)


def needs(kind: str, type: PaimonType, ask: Ask, pieces: Pieces) -> tuple[BlobSpan, ...]:
    """The missing spans for ``answer``: all that can be named now."""
    try:
        answer(kind, type, ask, pieces)
    except MissingBytes as missing:
        return missing.spans
    return ()
