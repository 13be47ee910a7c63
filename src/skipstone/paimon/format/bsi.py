"""The ``bsi`` index: bit slices of the numbers themselves. Deprecated in favour of
``range-bitmap``.

    u8 version = 1 | i32 row count
    u8 has positive | [half]        the rows with a value of 0 or more
    u8 has negative | [half]        the others, by the number without its sign
    half:  u8 version = 1 | i64 min | i64 max | ebm | i32 slices c | slice 0 … slice c-1

A row's code is the number (without sign) less ``min``; c is the number of bits of max - min.
Writers always have min = 0; a reader honours others. Bitmaps are Roaring and their lengths are not
stored, so the whole index must be read for any answer. Types: TINYINT to BIGINT, DECIMAL (unscaled,
while it fits 64 bits), DATE, TIME, timestamps; the least BIGINT cannot be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from . import roaring
from .bit_slices import Slices, planes_for, planes_of
from .keys import Ask, In, Null, PaimonType, Range, Root, safe
from .partial_blob import BlobSpan, Cursor, Pieces
from .roaring import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .column_keys import CodedColumn


_NO = (Root.BOOLEAN, Root.FLOAT, Root.DOUBLE)
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def check_type(type: PaimonType) -> None:
    """``UnsupportedError`` for a type that a bsi index does not support."""
    if not type.width or type.root in _NO:
        raise UnsupportedError(f"a bsi index does not support a column of {type}")


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """The numbers of one sign, without the sign: codes are the number less ``min``."""

    min: int
    max: int
    ebm: BlobSpan
    slices: tuple[BlobSpan, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BsiIndex:
    """An open bsi index; its methods raise ``FormatError``."""

    type: PaimonType
    pieces: Pieces
    row_count: int
    positive: Half | None
    negative: Half | None

    @classmethod
    def open(cls, type: PaimonType, pieces: Pieces) -> BsiIndex:
        """Find all slices. ``MissingBytes`` unless the whole index is present."""
        check_type(type)
        pieces.need([BlobSpan(0, pieces.length)])
        cursor = pieces.cursor(0)
        version = cursor.u8()
        if version != 1:
            raise UnsupportedError(f"version {version} of a bsi index: 1 is the only one known")
        row_count = cursor.count("row count")
        positive = _read_half(cursor, pieces) if _flag(cursor) else None
        negative = _read_half(cursor, pieces) if _flag(cursor) else None
        if cursor.position != pieces.length:
            raise FormatError("bytes after the index", expected=pieces.length, got=cursor.position)
        return cls(
            type=type,
            pieces=pieces,
            row_count=row_count,
            positive=positive,
            negative=negative,
        )

    def rows(self, ask: Ask) -> BitMap:
        """The rows that ``ask`` wants; all that may match where keys are not exact."""
        ask = safe(ask, self.type)
        if isinstance(ask, In):
            ranges = [(int(key), int(key)) for key in ask.keys]
        elif isinstance(ask, Null):
            return BitMap(range(self.row_count)) - self.rows(Range())
        else:
            low = _LEAST if ask.lo is None else int(ask.lo) + ask.lo_open
            high = _GREATEST if ask.hi is None else int(ask.hi) - ask.hi_open
            ranges = [(low, high)]
        found = BitMap()
        if self.positive is not None:
            wanted = [(max(low, 0), high) for low, high in ranges]
            found |= self._half(self.positive, wanted)
        if self.negative is not None:
            wanted = [(max(-high, 1), -low) for low, high in ranges]
            found |= self._half(self.negative, wanted)
        return found

    def _half(self, half: Half, ranges: Sequence[tuple[int, int]]) -> BitMap:
        """Rows whose number without sign lies in one of these ranges, ends included."""
        ranges = [(max(low, half.min), min(high, half.max)) for low, high in ranges]
        ranges = [(low, high) for low, high in ranges if low <= high]
        if not ranges:
            return BitMap()
        sizes = [span.length for span in half.slices]
        planes, existing = planes_for(self.pieces.take(*half.ebm), sizes, self.row_count)
        slices = Slices(
            planes,
            existing,
            len(half.slices),
            lambda bit: planes.load(self.pieces.take(*half.slices[bit])),
        )
        found = None
        for low, high in ranges:
            codes = half.max - half.min + 1
            own = slices.between(low - half.min, high - half.min + 1, codes)
            found = own if found is None else planes.join(found, own)
        return planes.rows(found)


def _flag(cursor: Cursor) -> bool:
    at, value = cursor.position, cursor.u8()
    if value > 1:
        raise FormatError("neither true nor false", offset=at, expected="0 or 1", got=value)
    return bool(value)


def _read_half(cursor: Cursor, pieces: Pieces) -> Half:
    at, version = cursor.position, cursor.u8()
    if version != 1:
        raise UnsupportedError(f"version {version} of bit slices: 1 is the only one known")
    low, high = cursor.i64(), cursor.i64()
    if not 0 <= low <= high:
        raise FormatError("least and greatest of bit slices", offset=at, got=(low, high))
    ebm = _bitmap(cursor, pieces)
    count = cursor.count("number of slices")
    if count != (high - low).bit_length():
        raise FormatError(
            "number of slices", offset=at, expected=(high - low).bit_length(), got=count
        )
    return Half(low, high, ebm, tuple(_bitmap(cursor, pieces) for _ in range(count)))


def _bitmap(cursor: Cursor, pieces: Pieces) -> BlobSpan:
    at = cursor.position
    length = Layout.from_bytes(pieces.take(at, pieces.length - at)).length
    cursor.take(length)
    return BlobSpan(at, length)


def write_bsi(column: CodedColumn) -> bytes:
    """The index. ``UnsupportedError`` for types that have no bsi index, for the least BIGINT, and
    for 2 GiB and more."""
    check_type(column.type)
    rows, ordinals = column.rows, column.keys.values
    assert isinstance(ordinals, np.ndarray)
    values = ordinals[column.codes[rows]]
    if len(values) and int(values.min()) == _LEAST:
        raise UnsupportedError(f"a bsi index cannot store {_LEAST}")
    above = values >= 0
    parts = [b"\x01", column.row_count.to_bytes(4, "big")]
    for chosen in (above, ~above):
        parts += _write_half(np.abs(values[chosen]), rows[chosen], column.row_count)
    whole = b"".join(parts)
    if len(whole) >= 2**31:
        raise UnsupportedError("a bsi index of 2 GiB or more")
    return whole


def _write_half(
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int], np.dtype[np.uint32]],
    row_count: int,
) -> list[bytes]:
    if not len(values):
        return [b"\x00"]
    high = int(values.max())
    bits = high.bit_length()
    existing, planes = planes_of(values, rows, row_count, bits)
    head = b"\x01\x01" + (0).to_bytes(8, "big") + high.to_bytes(8, "big")
    return [
        head,
        roaring.write(existing),
        bits.to_bytes(4, "big"),
        *(roaring.write(plane) for plane in planes),
    ]
