"""The ``range-bitmap`` index: a dictionary of the distinct values, and bit slices of their codes.

    i32 head length
    u8 version = 1 | i32 row count | i32 cardinality C
    min key | max key                                    unless C = 0
    i32 dictionary length
    dictionary                                           see ``dictionary``
    i32 head length = 10 + 8m
    u8 version = 1 | u8 slices m | i32 length of ebm | i32 indexes length = 8m
    m × (i32 offset from the end of ebm, i32 length)
    ebm | slice 0 … slice m-1                            Roaring bitmaps; slice 0 is the lowest bit

m is the number of bits of C - 1, at least 1, but 64 for C = 0: then all slices are empty. ``ebm``
are the rows that are not null. Types: all but binary, DECIMAL above 18 digits and TIMESTAMP(7) to
(9).

Three waves of reading answer most questions: the heads; one chunk of the dictionary and the head of
the slices; then the slices that distinguish the wanted codes from the others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from . import roaring
from .bit_slices import Dense, Slices, compare_bits, planes_for, planes_of
from .dictionary import Dictionary, default_chunk_size, write_dictionary
from .keys import Ask, In, Key, Null, PaimonType, Range, Root, i32, key_bytes, read_key, safe
from .partial_blob import BlobSpan, MissingBytes, Pieces

if TYPE_CHECKING:
    from .column_keys import CodedColumn


_LARGEST = 2**31 - 1
# From this many separate codes on, the codes of all rows are looked up instead of compared.
_MANY = 64


def check_type(type: PaimonType) -> None:
    """``UnsupportedError`` for a type that a range-bitmap index does not support."""
    wide = type.root is Root.DECIMAL and type.precision > 18
    if type.is_binary or wide or (type.is_timestamp and not type.exact):
        raise UnsupportedError(f"a range-bitmap index does not support a column of {type}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RangeBitmapIndex:
    """An open range-bitmap index; ``min`` and ``max`` are ``None`` where every row is null.

    Every method raises ``MissingBytes`` for missing bytes, ``FormatError`` for wrong ones.
    """

    type: PaimonType
    pieces: Pieces
    row_count: int
    cardinality: int
    min: Key | None
    max: Key | None
    dictionary: BlobSpan

    @classmethod
    def open(cls, type: PaimonType, pieces: Pieces) -> RangeBitmapIndex:
        """Read the first head."""
        check_type(type)
        cursor = pieces.cursor(0)
        length = cursor.count("head length")
        if length + 4 > pieces.length:
            raise FormatError("the head ends past the index", offset=0, got=length)
        version = cursor.u8()
        if version != 1:
            raise UnsupportedError(f"version {version} of a range-bitmap: 1 is the only one known")
        row_count, cardinality = cursor.count("row count"), cursor.count("cardinality")
        low = read_key(cursor, type) if cardinality else None
        high = read_key(cursor, type) if cardinality else None
        size = cursor.count("dictionary length")
        ordered = low is None or high is None or low <= high  # type: ignore[operator]
        if (
            cursor.position != length + 4
            or cardinality > row_count
            or not ordered
            or (low == high) != (cardinality <= 1)
            or cursor.position + size > pieces.length
        ):
            raise FormatError(
                "not the head of a range-bitmap", offset=0, got=(length, row_count, cardinality)
            )
        return cls(
            type=type,
            pieces=pieces,
            row_count=row_count,
            cardinality=cardinality,
            min=low,
            max=high,
            dictionary=BlobSpan(cursor.position, size),
        )

    def rows(self, ask: Ask) -> BitMap:
        """The rows that ``ask`` wants; all that may match where keys are not exact."""
        ask = safe(ask, self.type)
        if isinstance(ask, Null):
            return BitMap(range(self.row_count)) - self._existing()
        if not self.cardinality:
            return BitMap()
        if isinstance(ask, In):
            return self._code_rows(_merged(self._codes(ask)))
        return self._code_rows([self._code_range(ask)])

    def first(
        self,
        k: int,
        *,
        descending: bool = False,
        nulls_first: bool,
        ties: bool = False,
        among: BitMap | None = None,
    ) -> BitMap:
        """The ``k`` first rows in the column's order, of the rows ``among`` (default: all).

        Exactly k rows, or all if there are fewer. If values tie, the greatest positions win; of
        nulls, the least. With ``ties`` all that tie are included: the first k rows by several
        columns are among them.
        """
        base = BitMap(range(self.row_count)) if among is None else among
        existing = self._existing()
        nulls, values = base - existing, base & existing
        if len(base) <= k or (not self.cardinality and ties):
            return base
        if nulls_first:
            if len(nulls) >= k:
                return nulls if ties else BitMap(nulls[:k])
            return nulls | self._first_values(k - len(nulls), values, descending, ties)
        if len(values) < k:
            short = k - len(values)
            return values | (nulls if ties else BitMap(nulls[:short]))
        return self._first_values(k, values, descending, ties)

    def key(self, code: int) -> Key:
        """The key of a code, 0 for the least."""
        if not 0 <= code < self.cardinality:
            raise IndexError(f"code {code} of {self.cardinality}")
        return self.open_dictionary().key(code)

    def open_dictionary(self) -> Dictionary:
        """The dictionary of the distinct values."""
        return self.pieces.opened(
            ("dictionary", self.dictionary),
            lambda: Dictionary.open(self.type, self.pieces, self.dictionary, self.cardinality),
        )

    def slices(self, needed: list[int]) -> Slices:
        """The slices of these bits, read together with the rows that are not null."""
        ebm, spans = self._slice_head()
        wanted = {bit: spans[bit] for bit in needed}
        self.pieces.need([ebm, *wanted.values()])
        sizes = [span.length for span in wanted.values()]
        planes, existing = planes_for(self.pieces.take(*ebm), sizes, self.row_count)

        @cache
        def load(bit: int) -> object:
            return planes.load(self.pieces.take(*wanted[bit]))

        return Slices(planes, existing, len(spans), load)

    def _first_values(self, k: int, values: BitMap, descending: bool, ties: bool) -> BitMap:
        if k <= 0:
            return BitMap()
        slices = self.slices(list(range(self._bits())))
        return slices.first(k, slices.planes.of(values), largest=descending, ties=ties)

    def _bits(self) -> int:
        return max(1, (self.cardinality - 1).bit_length()) if self.cardinality else 64

    def _existing(self) -> BitMap:
        ebm, _ = self._slice_head()
        return roaring.read(self.pieces.take(*ebm), self.row_count)

    def _slice_head(self) -> tuple[BlobSpan, list[BlobSpan]]:
        """Where the rows that are not null lie, and each slice."""
        return self.pieces.once("slices", self._read_slice_head)

    def _read_slice_head(self) -> tuple[BlobSpan, list[BlobSpan]]:
        bits = self._bits()
        start = self.dictionary.offset + self.dictionary.length
        base = start + 14 + 8 * bits
        cursor = self.pieces.cursor(start)
        self.pieces.need([BlobSpan(start, base - start)])
        length, version, count = cursor.i32(), cursor.u8(), cursor.u8()
        if version != 1:
            raise UnsupportedError(f"version {version} of bit slices: 1 is the only one known")
        size, indexes = cursor.count("length"), cursor.count("length")
        if (length, count, indexes) != (10 + 8 * bits, bits, 8 * bits):
            raise FormatError(
                "head of bit slices", offset=start, expected=f"{bits} slices", got=count
            )
        table = np.frombuffer(cursor.take(8 * bits), ">i4").astype(np.int64).reshape(bits, 2)
        ends = np.cumsum(table[:, 1])
        if int(table.min()) < 0 or not np.array_equal(table[:, 0], ends - table[:, 1]):
            raise FormatError("slices do not follow each other", offset=start)
        if base + size + int(ends[-1]) > self.pieces.length:
            raise FormatError("slices end past the index", offset=start)
        slices = [BlobSpan(base + size + offset, length) for offset, length in table.tolist()]
        return BlobSpan(base, size), slices

    def _codes(self, ask: In) -> list[int]:
        """Codes of the keys that exist; min and max are known without the dictionary."""
        inside = [k for k in ask.keys if self.min < k < self.max]  # type: ignore[operator]
        codes = [code for code, found in self._locate(list(inside)) if found]
        if self.min in ask.keys:
            codes.append(0)
        if self.max in ask.keys:
            codes.append(self.cardinality - 1)
        return codes

    def _code_range(self, ask: Range) -> tuple[int, int]:
        """Which codes lie in the range: from the first up to before the second."""
        inner = [
            key
            for key in (ask.lo, ask.hi)
            if key is not None and self.min < key < self.max  # type: ignore[operator]
        ]
        located = dict(zip(inner, self._locate(inner), strict=True))
        low = self._below(ask.lo, located, after=ask.lo_open) if ask.lo is not None else 0
        if ask.hi is None:
            return low, self.cardinality
        return low, self._below(ask.hi, located, after=not ask.hi_open)

    def _below(self, key: Key, located: dict[Key, tuple[int, bool]], *, after: bool) -> int:
        """How many codes have keys less than ``key``, or, with ``after``, not greater."""
        if key in located:
            code, found = located[key]
            return code + (after and found)
        if key < self.min:  # type: ignore[operator]
            return 0
        if key > self.max:  # type: ignore[operator]
            return self.cardinality
        return (0 if key == self.min else self.cardinality - 1) + after

    def _locate(self, keys: list[Key]) -> list[tuple[int, bool]]:
        if not keys:
            return []
        try:
            return self.open_dictionary().locate(keys)
        except MissingBytes as missing:
            # The head of the slices is needed next in any case: same wave.
            try:
                self._slice_head()
            except MissingBytes as too:
                raise MissingBytes((*missing.spans, *too.spans)) from None
            raise

    def _code_rows(self, ranges: list[tuple[int, int]]) -> BitMap:
        """Rows whose code lies in one of these ranges."""
        whole, bits = self.cardinality, self._bits()
        ranges = [(low, stop) for low, stop in ranges if low < stop]
        if not ranges:
            return BitMap()
        if ranges == [(0, whole)]:
            return self._existing()
        needed: set[int] = set()
        for low, stop in ranges:
            if low + 1 == stop:
                needed.update(range(bits))
            else:
                needed.update(compare_bits(low, bits) if low else ())
                needed.update(compare_bits(stop, bits) if stop < whole else ())
        slices = self.slices(sorted(needed))
        if len(ranges) > _MANY and isinstance(slices.planes, Dense):
            wanted = np.zeros(whole, np.bool_)
            for low, stop in ranges:
                wanted[low:stop] = True
            planes = [slices.slice(bit) for bit in range(bits)]
            return slices.planes.among(slices.existing, planes, wanted)
        found = None
        for low, stop in ranges:
            own = slices.between(low, stop, whole)
            found = own if found is None else slices.planes.join(found, own)
        return slices.planes.rows(found)


def _merged(codes: list[int]) -> list[tuple[int, int]]:
    """Ranges of neighbouring codes."""
    merged: list[tuple[int, int]] = []
    for code in sorted(set(codes)):
        if merged and merged[-1][1] == code:
            merged[-1] = (merged[-1][0], code + 1)
        else:
            merged.append((code, code + 1))
    return merged


def write_range_bitmap(column: CodedColumn, *, chunk_size: int | None = None) -> bytes:
    """The index; ``chunk_size`` in bytes, by default that of the type.

    ``UnsupportedError`` for types that have no range-bitmap index, and 2 GiB and more.
    """
    type, keys, cardinality = column.type, column.keys, len(column.keys)
    check_type(type)
    size = default_chunk_size(type) if chunk_size is None else chunk_size
    dictionary = write_dictionary(keys, size)
    head = [b"\x01", i32(column.row_count), i32(cardinality)]
    if cardinality:
        head += [key_bytes(keys[0], type), key_bytes(keys[cardinality - 1], type)]
    head.append(i32(len(dictionary)))
    front = b"".join(head)
    if cardinality:
        rows = column.rows
        bits = max(1, (cardinality - 1).bit_length())
        existing, planes = planes_of(column.codes[rows], rows, column.row_count, bits)
    else:
        existing, planes = BitMap(), [BitMap()] * 64
    ebm, slices = roaring.write(existing), [roaring.write(plane) for plane in planes]
    lengths = np.array([len(each) for each in slices], np.int64)
    offsets = np.cumsum(lengths) - lengths
    if int(lengths.sum()) + len(ebm) + len(dictionary) + len(front) > _LARGEST - 1024:
        raise UnsupportedError("a range-bitmap index of 2 GiB or more")
    table = np.stack([offsets, lengths], axis=1).astype(">i4").tobytes()
    counts = b"\x01" + len(slices).to_bytes(1, "big") + i32(len(ebm)) + i32(len(table))
    slice_head = [i32(len(counts) + len(table)), counts, table]
    return b"".join([i32(len(front)), front, dictionary, *slice_head, ebm, *slices])
