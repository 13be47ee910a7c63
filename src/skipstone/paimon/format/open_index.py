"""Reading any index of a container by kind: open it, ask it, or hear what bytes it takes.

An evidence over a blob at (offset, length) of some object needs no more than this::

    pieces = Pieces(length, [(offset in the blob, bytes), …])    # what is fetched, maybe nothing
    spans = needs(kind, type, ask, pieces)  # () when the answer can be had; else fetch these
    pieces.add([(span.offset, bytes), …])   # and ask again; new pieces do, but parse anew
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

__all__ = [
    "KINDS",
    "Index",
    "RowAnswer",
    "answer",
    "answer_of",
    "needs",
    "open_index",
    "open_uncached",
    "speaks",
]

Index: TypeAlias = "BitmapIndex | BloomFilterIndex | BsiIndex | RangeBitmapIndex"

KINDS: dict[str, type[Index]] = {
    "bitmap": BitmapIndex,
    "bloom-filter": BloomFilterIndex,
    "bsi": BsiIndex,
    "range-bitmap": RangeBitmapIndex,
}


@dataclass(frozen=True, slots=True, eq=False)
class RowAnswer:
    """What an index says: no other rows than ``may`` match, and all of ``may`` do if ``exact``.

    ``may`` is ``None`` where nothing is said. ``row_count`` is -1 where the index does not know.
    """

    may: BitMap | None
    exact: bool
    row_count: int


def open_index(kind: str, type: PaimonType, pieces: Pieces) -> Index:
    """The index of this kind. ``UnsupportedError`` for kinds and versions that nobody here knows,
    ``FormatError``, ``MissingBytes``."""
    return pieces.opened((kind, type), lambda: open_uncached(kind, type, pieces))


def open_uncached(kind: str, type: PaimonType, pieces: Pieces) -> Index:
    """The same, for a caller who keeps the index by himself."""
    if kind not in KINDS:
        raise UnsupportedError(f"file index of kind {kind!r} is not known")
    return KINDS[kind].open(type, pieces)


def speaks(kind: str, ask: Ask) -> bool:
    """Whether an index of this kind can say anything of such a question."""
    return kind in KINDS and (kind != "bloom-filter" or isinstance(ask, In))


def answer(kind: str, type: PaimonType, ask: Ask, pieces: Pieces) -> RowAnswer:
    """What the index says; found once for the same pieces, so do not change the rows. Errors as
    for ``open_index``."""
    return pieces.once(
        (kind, type, ask), lambda: answer_of(open_index(kind, type, pieces), type, ask)
    )


def answer_of(index: Index, type: PaimonType, ask: Ask) -> RowAnswer:
    """What an open index over a column of ``type`` says. Errors as for ``open_index``."""
    if isinstance(index, BloomFilterIndex):
        if isinstance(ask, In) and not index.may_contain(ask):
            return RowAnswer(BitMap(), True, -1)
        return RowAnswer(None, False, -1)
    # Nulls and the rest are known whatever digits the keys of values have lost.
    plain = isinstance(ask, Null) or (not isinstance(ask, In) and ask.lo is ask.hi is None)
    return RowAnswer(index.rows(ask), type.exact or plain, index.row_count)


def needs(kind: str, type: PaimonType, ask: Ask, pieces: Pieces) -> tuple[BlobSpan, ...]:
    """The spans still missing for ``answer``; all that can be known now, at once."""
    try:
        answer(kind, type, ask, pieces)
    except MissingBytes as missing:
        return missing.spans
    return ()
