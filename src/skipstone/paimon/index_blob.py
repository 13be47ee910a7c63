"""An index blob of any kind: opens it, answers a question, describes it.

Each function works on the bytes that are there, and raises ``MissingBytes`` for those to fetch::

    pieces = Pieces(length, [(offset in the blob, bytes), …])    # what is fetched, maybe nothing
    rows = answer(kind, type, ask, pieces)  # MissingBytes names the spans to fetch
    pieces.add([(span.offset, bytes), …])   # and ask again; new pieces work, but are parsed again

A blob does not state its type. Its keys have a width, or none if they are strings: a type fits if
the blob can be read with it. A width of 2 is SMALLINT, no width is a string; 1, 4 and 8 bytes may
be several types, and then keys are shown as numbers.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from .format.bitmap import BitmapIndex
from .format.bloom_filter import BloomFilterIndex
from .format.bsi import BsiIndex
from .format.keys import Ask, In, Key, Null, PaimonType, Range, Root, raw_of
from .format.partial_blob import MissingBytes, Pieces
from .format.range_bitmap import RangeBitmapIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.pruning import Fetched
    from skipstone.pruning.kind import Blob
    from skipstone.storage import ByteRange


Index: TypeAlias = "BitmapIndex | BloomFilterIndex | BsiIndex | RangeBitmapIndex"

#: A blob up to this size is read whole: that costs less than one more request.
SMALL = 32 * 1024

KINDS: dict[str, type[Index]] = {
    "bitmap": BitmapIndex,
    "bloom-filter": BloomFilterIndex,
    "bsi": BsiIndex,
    "range-bitmap": RangeBitmapIndex,
}


@dataclass(frozen=True, slots=True, eq=False)
class RowAnswer:
    """The answer of an index: only rows of ``may`` match, and all of them do if ``exact``.

    ``may`` is ``None`` if the index proves nothing. ``row_count`` is -1 if it is not stored.
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


T = TypeVar("T")

# The offset of the row count in a blob of each kind.
_ROWS_AT = {"bitmap": 1, "bsi": 1, "range-bitmap": 5}
_ROUNDS = 64
# The type with which keys of one width are read, and the others of this width.
_CANDIDATES: dict[PaimonType, tuple[str, ...]] = {
    PaimonType.parse("STRING"): (),
    PaimonType.parse("BIGINT"): ("DOUBLE", "TIMESTAMP", "DECIMAL"),
    PaimonType.parse("INT"): ("DATE", "TIME", "FLOAT"),
    PaimonType.parse("SMALLINT"): (),
    PaimonType.parse("TINYINT"): ("BOOLEAN",),
}
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "DATE", "TIME", "TIMESTAMP", "DECIMAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobDescription:
    """``rows``, ``nulls`` and ``distinct`` are -1 if the kind does not store them. ``min`` and
    ``max`` are keys as text; ``details`` depend on the kind."""

    rows: int = -1
    nulls: int = -1
    distinct: int = -1
    min: str | None = None
    max: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def ask_blob(
    place: Blob, fetch: Callable[[Sequence[ByteRange]], Fetched], question: Callable[[Pieces], T]
) -> T:
    """The result of ``question``, after as many rounds of reading as it takes. Errors are those of
    reading, and ``OSError`` for bytes that cannot be read."""
    pieces = Pieces(place.length, [] if place.inline is None else [(0, place.inline)])
    spans: list[tuple[int, int]] = []
    if place.inline is None and place.length <= SMALL:
        spans = [(0, place.length)]
    for round in range(_ROUNDS):
        if spans:
            grown = 2 ** max(0, round - 6)
            wanted = {
                place.span(at, min(size * grown, place.length - at)): at for at, size in spans
            }
            got = fetch(list(wanted))
            if len(got) < len(wanted):
                raise OSError(f"bytes of {place.path or 'the container'} could not be read")
            pieces.add([(at, got[each]) for each, at in wanted.items()])
        try:
            return question(pieces)
        except MissingBytes as missing:
            spans = [tuple(span) for span in missing.spans]  # type: ignore[misc]
    raise FormatError("the index needs more bytes in every round", got=f"{_ROUNDS} rounds")


def row_count_of(kind: str, place: Blob, fetch: Callable[[Sequence[ByteRange]], Fetched]) -> int:
    """The row count in the blob; -1 for a Bloom filter and for unknown kinds."""
    at = _ROWS_AT.get(kind)
    if at is None:
        return -1
    raw = ask_blob(place, fetch, lambda pieces: pieces.take(at, 4))
    found = int.from_bytes(raw, "big", signed=True)
    if found < 0:
        raise FormatError("negative row count", offset=at, got=found)
    return found


def likely_types(
    kind: str, place: Blob, fetch: Callable[[Sequence[ByteRange]], Fetched]
) -> tuple[PaimonType, tuple[str, ...]] | None:
    """The type with which the blob's keys can be read, and the names of others of the same width;
    ``None`` if it is unknown (a Bloom filter, a column of nulls)."""
    if kind == "bsi":
        return PaimonType.parse("BIGINT"), _NUMBERS
    if kind not in ("bitmap", "range-bitmap"):
        return None
    fitting = []
    for type, others in _CANDIDATES.items():

        def keys(pieces: Pieces, type: PaimonType = type) -> tuple[Key | None, Key | None, int]:
            return _bounds(kind, type, pieces)

        try:
            low, high, distinct = ask_blob(place, fetch, keys)
        except (FormatError, UnsupportedError):
            continue
        if not distinct:
            return None
        if type.root is Root.TINYINT and not {low, high} <= {0, 1}:
            others = ()
        fitting.append((type, others))
    return fitting[0] if len(fitting) == 1 else None


def describe_blob(
    kind: str,
    type: PaimonType | None,
    place: Blob,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> BlobDescription:
    """The description of a blob; its ``type`` adds the bounds. Errors as for"""

    def describe(pieces: Pieces) -> BlobDescription:
        if kind == "bloom-filter":
            return _bloom(pieces)
        if type is None:
            return BlobDescription(rows=int.from_bytes(pieces.take(_ROWS_AT[kind], 4), "big"))
        return describe_keys(kind, type, pieces)

    return ask_blob(place, fetch, describe)


def shown_key(key: Key, type: PaimonType) -> str:
    """The text of a key's value: dates and instants in ISO, decimals with their point."""
    if isinstance(key, bytes):
        return key.decode("utf-8", "backslashreplace")
    if type.is_float:
        raw = raw_of(np.array([key], np.int64), type)
        return str(float(raw.view(f">f{type.width}")[0]))
    if type.root is Root.BOOLEAN:
        return "true" if key else "false"
    if type.root is Root.DECIMAL:
        digits = f"{abs(key):0{type.scale + 1}d}"
        whole, part = digits[: len(digits) - type.scale], digits[len(digits) - type.scale :]
        return f"{'-' if key < 0 else ''}{whole}{'.' if part else ''}{part}"
    if type.root is Root.DATE:
        return str(np.datetime64(key, "D"))
    if type.root is Root.TIME:
        return str(np.datetime64(key, "ms")).partition("T")[2]
    if type.is_timestamp:
        zone = "Z" if type.root is Root.TIMESTAMP_LTZ else ""
        return str(np.datetime64(key, "ms" if type.in_millis else "us")) + zone
    return str(key)


def _bloom(pieces: Pieces) -> BlobDescription:
    # The type decides how values are hashed, not the layout of a filter.
    index = BloomFilterIndex.open(PaimonType.parse("INT"), pieces)
    raw = np.frombuffer(pieces.take(4, pieces.length - 4), np.uint8)
    share = int(np.bitwise_count(raw).sum()) / index.bits
    return BlobDescription(
        details={
            "hash_functions": index.k,
            "bits": index.bits,
            "bits_set": float(f"{share:.3g}"),
            "false_positives": float(f"{share**index.k:.3g}"),
        }
    )


def describe_keys(kind: str, type: PaimonType, pieces: Pieces) -> BlobDescription:
    """The description of an index that knows the value of each row. ``FormatError`` where it
    contradicts itself, ``MissingBytes``."""
    low, high, distinct = _bounds(kind, type, pieces)
    index = open_index(kind, type, pieces)
    assert not isinstance(index, BloomFilterIndex)
    details: dict[str, Any] = {"version": 1}
    if isinstance(index, BitmapIndex):
        details["version"] = index.version
        if index.version == 2:
            details["blocks"] = len(index.firsts)
    elif isinstance(index, RangeBitmapIndex):
        bits = max(1, (index.cardinality - 1).bit_length()) if index.cardinality else 64
        chunks = len(index.open_dictionary().firsts) if index.cardinality else 0
        details.update(chunks=chunks, slices=bits)
    else:
        halves = [half for half in (index.positive, index.negative) if half is not None]
        details["slices"] = sum(len(half.slices) for half in halves)
    nulls = index.rows(Null())
    if low is not None:
        _check_rows(index, low, len(nulls))
    return BlobDescription(
        rows=index.row_count,
        nulls=len(nulls),
        distinct=distinct,
        min=None if low is None else shown_key(low, type),
        max=None if high is None else shown_key(high, type),
        details=details,
    )


def _check_rows(index: BitmapIndex | BsiIndex | RangeBitmapIndex, low: Key, nulls: int) -> None:
    """Reads the whole index and checks that each row is null or has a value. ``FormatError``."""
    if isinstance(index, RangeBitmapIndex):
        index.open_dictionary().keys()
        bits = list(range(max(1, (index.cardinality - 1).bit_length())))
        slices = index.slices(bits)
        codes = slices.between(0, index.cardinality, index.cardinality)
        for bit in bits:
            codes = slices.planes.join(codes, slices.slice(bit))
        values = len(slices.planes.rows(codes))
    else:
        values = len(index.rows(Range(lo=low)))
    if values + nulls != index.row_count:
        raise FormatError(
            "rows with a value and rows without",
            expected=f"{index.row_count:,} rows",
            got=f"{values:,} and {nulls:,}",
        )


def _bounds(kind: str, type: PaimonType, pieces: Pieces) -> tuple[Key | None, Key | None, int]:
    """Least and greatest key, and the number of keys, -1 if the kind does not store it."""
    index = open_index(kind, type, pieces)
    if isinstance(index, RangeBitmapIndex):
        if index.cardinality:
            index.open_dictionary()  # its heads repeat the width
        return index.min, index.max, index.cardinality
    if isinstance(index, BitmapIndex):
        keys = index.entries().keys
        if not len(keys):
            return None, None, 0
        every = keys.to_list()
        if index.version == 2 and not keys.ascending():
            raise FormatError("keys of a bitmap index do not ascend")
        return min(every), max(every), len(every)
    assert not isinstance(index, BloomFilterIndex)
    return *_extremes(index.rows, Range()), -1


def _extremes(rows: Callable[[Any], Any], every: Range) -> tuple[int | None, int | None]:
    """Least and greatest number of a bsi, by bisecting the range of numbers."""
    if not len(rows(every)):
        return None, None
    found = []
    for upper in (False, True):
        low, high = -(2**63), 2**63 - 1
        while low < high:
            if upper:
                middle = low + (high - low + 1) // 2
                low, high = (middle, high) if len(rows(Range(lo=middle))) else (low, middle - 1)
            else:
                middle = low + (high - low) // 2
                low, high = (low, middle) if len(rows(Range(hi=middle))) else (middle + 1, high)
        found.append(low)
    assert len(rows(In((found[0],))))
    return found[0], found[1]
