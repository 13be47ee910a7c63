"""Bloom filters as evidence: a header once, then one block of 32 bytes per value and row group.

Where ``bloom_filter_length`` is known, the usual header leaves only one size for the bitset. Then
the blocks are requested together with the header, which is checked before a block is used. Headers
are cached. For many values of a small filter the whole bitset is read in one request. An encrypted
filter is two modules that are read and decrypted whole.

A filter proves absence, never presence: it excludes row groups for ``=`` and ``IN``.

Writers hash a value's PLAIN bytes (byte arrays without their length). A literal is looked up under
the hashes of **all** byte patterns that represent it:

| column | patterns of a literal |
|---|---|
| INT32, INT64: integers, dates, decimals | its two's complement; none if it does not fit |
| INT64 timestamps | milliseconds: none unless whole; microseconds as they are |
| FLOAT, DOUBLE, FLOAT16 | its bits; 0.0 has two patterns |
| BYTE_ARRAY, FLBA: text, bytes, UUID | its bytes; in an FLBA none of another length |
| FLBA decimals | two's complement, big-endian, of the column's length |

A literal without a pattern is in no row. There is no answer where there are too many patterns: NaN
(millions), nanoseconds and INT96 (a thousand in every microsecond), decimals in BYTE_ARRAY (any
length). There is none for booleans either, nor for long lists of FLBA decimals or FLOAT16.
"""

from __future__ import annotations

import math
import struct
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.encryption.modules import GCM_OVERHEAD, ModuleType, module_length
from skipstone.parquet.format.bloom_filter import (
    BLOCK_BYTES,
    HEADER_GUESS,
    MAX_BYTES,
    BloomFilter,
    any_in,
    block_of,
    guess_bitset,
    read_header,
    set_in,
    xxh64,
    xxh64_values,
)
from skipstone.parquet.format.enums import Type
from skipstone.parquet.values import ByteArrays
from skipstone.predicate.members import from_keys, lists_nan
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.pruning import Answer, BoolArray, Cause, Fetched, Level, Reason, Units
from skipstone.pruning.column_types import binary_parts
from skipstone.pruning.interval import window, with_nulls
from skipstone.storage import ByteRange

from .indexed_file import ColumnEvidence, IndexedFile
from .stored_values import Form, StoredColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.values import I64
    from skipstone.predicate.literals import Keys
    from skipstone.predicate.types import Value


# Bytes of a second request, for a header that the first one did not hold whole.
_LONG_HEADER = 4_096
# Bytes to read for an encrypted header: parquet-java pads it to 100, and its module adds 32.
_ENCRYPTED_HEADER = 160
_LONGEST = (1 << 63) - 1
# A request costs about as much as reading this many more bytes in another request.
_REQUEST = 8_192


@dataclass(slots=True, eq=False)
class _Filters:
    """The filters of one leaf of one file, per row group.

    ``bitset`` is where the bitset begins in the file, and ``blocks`` its number of blocks: 0 not
    known yet, -1 no usable filter. ``header`` is the number of bytes to read for the header.
    """

    offset: I64
    length: I64
    bitset: I64
    blocks: I64
    header: I64
    encrypted: BoolArray
    reasons: dict[int, Reason] = field(default_factory=dict)


class BloomEvidence(ColumnEvidence):
    """The Bloom filters of one column in all files that have it; see the module."""

    name = "bloom filter"
    level = Level.ROW_GROUP
    cost = 5.0

    def __init__(self, column: str, files: Mapping[int, IndexedFile]) -> None:
        super().__init__(column, files)
        self._hashes: dict[tuple[Leaf, int], Asked | None] = {}
        self._plans: dict[object, _Probe] = {}

    @staticmethod
    def exists(file: IndexedFile, leaf: int) -> bool:
        """Whether any chunk has a filter."""
        return bool((_filters(file, leaf).offset > 0).any())

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        """Headers that are not known yet, and the blocks of every wanted value."""
        wanted: list[ByteRange] = []
        for probe in self._probes(leaves, units):
            wanted += probe.needs(have)
        return wanted

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        answers = []
        for leaf in leaves:
            probes = self._probes((leaf,), units)
            if not probes:
                answers.append(self.silent(leaf))
                continue
            some = np.ones(len(units), np.bool_)
            nulls = np.full(len(units), -1, np.int64)
            reasons: dict[Reason, None] = {}
            for probe in probes:
                some[probe.at] = probe.found(have, reasons)
                bounds = probe.file.chunk_bounds(probe.leaf)
                nulls[probe.at] = bounds.all.nulls[probe.groups]
            none = np.zeros(len(units), np.bool_)
            bounds_ = with_nulls(leaf.op, some, none, units.rows, nulls)
            answers.append(Answer(bounds=bounds_, reasons=self.named(reasons)))
        return answers

    def _probes(self, leaves: Sequence[Leaf], units: Units) -> list[_Probe]:
        found = []
        for ordinal, file in self.files.items():
            at = None
            for leaf in leaves:
                key = (leaf, ordinal)
                if key not in self._hashes:
                    self._hashes[key] = hashes_of(leaf, file.stored(file.columns[self.column]))
                hashes = self._hashes[key]
                if hashes is None:
                    continue
                if at is None:
                    at = np.flatnonzero(units.file == ordinal)
                if not len(at):
                    continue
                groups = units.ordinal[at]
                known = self._plans.get(key)
                if known is None or not np.array_equal(known.groups, groups):
                    known = _Probe(file, file.columns[self.column], *hashes, groups, at)
                    self._plans[key] = known
                known.at = at
                found.append(known)
        return found


class _Probe:
    """One leaf's hashes against the filters of some row groups of one file. With ascending
    ``keys``, only hashes within the bounds of a row group are looked up.

    Filters are read block by block (``single``: one range per hash), or whole; ``ranges`` are
    those of all known filters, the single ones first. They are set when no header is missing.
    """

    def __init__(
        self, file: IndexedFile, leaf: int, hashes: Hashes, keys: Keys | None, groups: I64, at: I64
    ) -> None:
        self.file, self.leaf, self.hashes, self.groups, self.at = file, leaf, hashes, groups, at
        self.filters = _filters(file, leaf)
        self.windows = None
        if keys is not None:
            self.windows = window(keys, file.chunk_bounds(leaf).all.where(groups))
        self.single = self.whole = np.empty(0, np.int64)
        self.ranges: list[ByteRange] | None = None if len(hashes) else []

    def needs(self, have: Fetched) -> list[ByteRange]:
        """The ranges still needed; parses fetched headers."""
        if self.ranges is None:
            wanted = self._headers(have)
            if wanted:
                return wanted
            self.ranges = self._plan()
        if not have:
            return self.ranges
        return [each for each in self.ranges if each not in have]

    def _headers(self, have: Fetched) -> list[ByteRange]:
        """Parses fetched headers. Headers still needed, and the blocks where usual headers imply
        them."""
        filters, wanted = self.filters, []
        for group in self.groups[filters.blocks[self.groups] == 0].tolist():
            need = _take_header(self.file, self.leaf, group, filters, have)
            if need is None:
                continue
            wanted.append(need)
            start, length = int(filters.offset[group]), int(filters.length[group])
            guess = guess_bitset(length) if self.file.fits(start, length, self.leaf) else None
            if guess is not None and not filters.encrypted[group]:
                blocks = np.array([guess[0] // BLOCK_BYTES])
                if not self._takes_whole(blocks)[0]:
                    wanted += self._blocks(np.array([start + guess[1]]), blocks)
        return wanted

    def _takes_whole(self, blocks: I64) -> BoolArray:
        """Whether reading the whole bitset is cheaper than a block per hash."""
        many = len(self.hashes)
        return np.asarray((many > 1) & (many * _REQUEST >= blocks * BLOCK_BYTES))

    def _blocks(self, bitset: I64, blocks: I64) -> list[ByteRange]:
        """The block of every hash in each of these bitsets, bitset by bitset."""
        places = bitset[:, None] + BLOCK_BYTES * block_of(self.hashes, blocks[:, None])
        path = self.file.home(self.leaf)[0]
        return [ByteRange(path, place, BLOCK_BYTES) for place in places.ravel().tolist()]

    def _plan(self) -> list[ByteRange]:
        filters = self.filters
        blocks, bitset = filters.blocks[self.groups], filters.bitset[self.groups]
        known, encrypted = blocks > 0, filters.encrypted[self.groups]
        whole = known & (encrypted | self._takes_whole(blocks))
        self.single, self.whole = np.flatnonzero(known & ~whole), np.flatnonzero(whole)
        ranges = self._blocks(bitset[self.single], blocks[self.single])
        for i in self.whole.tolist():
            size = int(blocks[i]) * BLOCK_BYTES + (GCM_OVERHEAD if encrypted[i] else 0)
            ranges.append(ByteRange(self.file.home(self.leaf)[0], int(bitset[i]), size))
        return ranges

    def found(self, have: Fetched, reasons: dict[Reason, None]) -> BoolArray:
        """For each row group, False if it holds none of the values."""
        some = np.ones(len(self.groups), np.bool_)
        if not len(self.hashes):
            some[:] = False
            return some
        blocks = self.filters.blocks[self.groups]
        for i in np.flatnonzero(blocks <= 0).tolist():
            reasons.setdefault(self.filters.reasons.get(int(self.groups[i]), _UNREAD))
        if self.ranges is None:
            return some
        count = len(self.single) * len(self.hashes)
        parts = [have.get(each) for each in self.ranges]
        blocks_read = [each for each in parts[:count] if each is not None]
        if len(blocks_read) < count:
            reasons.setdefault(_UNREAD)
        elif count:
            words = np.frombuffer(b"".join(blocks_read), "<u4").reshape(-1, len(self.hashes), 8)
            some[self.single] = set_in(words, self.hashes).any(axis=1)
        wholes = zip(self.whole.tolist(), parts[count:], self.ranges[count:], strict=True)
        for i, data, where in wholes:
            if data is None:
                reasons.setdefault(_UNREAD)
            else:
                some[i] = self._whole(i, data, where, reasons)
        return some

    def _whole(
        self, at: int, data: bytes | memoryview, where: ByteRange, reasons: dict[Reason, None]
    ) -> bool:
        group, hashes = int(self.groups[at]), self.hashes
        if self.windows is not None:
            hashes = hashes[int(self.windows[0][at]) : int(self.windows[1][at])]
        try:
            if self.filters.encrypted[group]:
                decryptor = self.file.decryptor_of(group, self.leaf)
                assert decryptor is not None
                data = decryptor.decrypt(ModuleType.BLOOM_FILTER_BITSET, data, base=where.offset)
            found = BloomFilter.from_bitset(data, base=where.offset)
            if len(found.blocks) != self.filters.blocks[group]:
                raise FormatError("a bitset of another size than its header says")
            return any_in(found.blocks, hashes)
        except SkipstoneError as error:
            reasons.setdefault(Reason.of_error("bloom filter", error))
            return True


_UNREAD = Reason(cause=Cause.UNREADABLE, subject="bloom filter", text="not fetched")


def _filters(file: IndexedFile, leaf: int) -> _Filters:
    """The filters of a leaf; made once per file."""
    key = ("bloom", leaf)
    known: _Filters | None = file.cache.get(key)
    if known is not None:
        return known
    footer = file.footer
    offset = footer.chunk("bloom_filter_offset")[:, leaf].copy()
    length = footer.chunk("bloom_filter_length")[:, leaf]
    encrypted = footer.chunk("encrypted")[:, leaf] > 0
    made = _Filters(
        offset=offset,
        length=length,
        bitset=np.full(len(offset), -1, np.int64),
        blocks=np.where(offset > 0, 0, -1),
        header=np.where(encrypted, _ENCRYPTED_HEADER, HEADER_GUESS),
        encrypted=encrypted,
    )
    absent = Reason(cause=Cause.ABSENT, subject="bloom filter", text="not in the file")
    for group in range(len(offset)):
        if made.blocks[group] < 0:
            made.reasons[group] = absent
        elif not file.fits(int(offset[group]), 1, leaf) or file.elsewhere(group, leaf):
            made.blocks[group] = -1
            made.reasons[group] = absent
        elif made.encrypted[group]:
            try:
                file.decryptor_of(group, leaf)
            except (SkipstoneError, ValueError) as error:
                made.blocks[group] = -1
                made.reasons[group] = Reason.of_error("bloom filter", error)
    file.cache[key] = made
    return made


def _take_header(
    file: IndexedFile, leaf: int, group: int, filters: _Filters, have: Fetched
) -> ByteRange | None:
    """Parse a filter's header; returns the range that is still needed, if any."""
    offset, length = int(filters.offset[group]), int(filters.header[group])
    path, file_size = file.home(leaf)
    room = _LONG_HEADER + MAX_BYTES if file_size is None else file_size - offset
    whole = int(filters.length[group])
    if whole > 0:
        room = min(room, whole)
    need = ByteRange(path, offset, min(length, room))
    data = have.get(need)
    if data is None:
        return need
    try:
        if filters.encrypted[group]:
            bitset, size = _encrypted_header(file, leaf, group, data, offset, room)
        else:
            size, at = read_header(data, base=offset, end=room)
            bitset = offset + at
    except (SkipstoneError, ValueError) as error:
        if need.length < min(_LONG_HEADER, room) and length < _LONG_HEADER:
            filters.header[group] = _LONG_HEADER  # longer than those of known writers
            return _take_header(file, leaf, group, filters, have)
        filters.blocks[group] = -1
        filters.reasons[group] = Reason.of_error("bloom filter", error)
        return None
    filters.bitset[group], filters.blocks[group] = bitset, size // BLOCK_BYTES
    return None


def _encrypted_header(
    file: IndexedFile, leaf: int, group: int, data: bytes | memoryview, offset: int, room: int
) -> tuple[int, int]:
    """Where the module of the bitset begins, and how long the bitset is."""
    stop = module_length(data, base=offset)
    decryptor = file.decryptor_of(group, leaf)
    assert decryptor is not None
    plain = decryptor.decrypt(ModuleType.BLOOM_FILTER_HEADER, data[:stop], base=offset)
    size, _ = read_header(plain, base=offset)
    if size > room - stop - GCM_OVERHEAD:
        raise FormatError("an encrypted Bloom filter that ends past the file", offset=offset)
    return offset + stop, size


Hashes: TypeAlias = "NDArray[np.uint64]"
#: hashes, and of many values their keys, ascending
Asked: TypeAlias = "tuple[Hashes, Keys | None]"

_FLOATS = {Type.FLOAT: "<f", Type.DOUBLE: "<d", Type.FIXED_LEN_BYTE_ARRAY: "<e"}


def hashes_of(leaf: Leaf, stored: StoredColumn) -> Asked | None:
    """Hashes, uint64 ``(m,)``, of which a filter holds at least one if any row matches.

    ``None``: a filter says nothing about this leaf.
    """
    if leaf.op not in (Op.EQ, Op.IN):
        return None
    local = stored.restate(leaf)
    if local is None:
        return None
    if isinstance(local, Const):
        return None if local.value else (np.empty(0, np.uint64), None)
    if local.op not in (Op.EQ, Op.IN):
        return None
    if not isinstance(local.values, tuple):
        column, cache = stored.column, local.values.cache
        key = ("xxh64", stored.form, column.type, column.type_length, stored.unit)
        if key not in cache:
            plain = None if lists_nan(local) else _plain(local.values.keys, stored)
            cache[key] = None if plain is None else (xxh64_values(plain[0]), plain[1])
        made: Asked | None = cache[key]
        return made
    found: list[int] = []
    for value in local.values:
        patterns = _patterns(value, stored)
        if patterns is None:
            return None
        found.extend(map(xxh64, patterns))
    return np.array(sorted(set(found)), np.uint64), None


def _plain(keys: Keys, stored: StoredColumn) -> tuple[NDArray[Any] | ByteArrays, Keys] | None:
    """``_patterns`` of many values: one pattern for each of the returned keys."""
    column, data = stored.column, keys.data
    if not isinstance(data, np.ndarray):
        if stored.form is not Form.TEXT:
            return None
        if column.type is Type.FIXED_LEN_BYTE_ARRAY:
            keys = keys.take(numbers(pc.binary_length(data)) == column.type_length)
            assert not isinstance(keys.data, np.ndarray)
            data = keys.data
        return ByteArrays(*binary_parts(data)), keys
    if stored.form is Form.TIMESTAMP and stored.unit in ("us", "ms"):
        whole = keys if stored.unit == "us" else keys.take(data % 1000 == 0)
        ticks = np.asarray(whole.data)
        return (ticks if stored.unit == "us" else ticks // 1000), whole
    width = _WIDTHS.get(column.type)
    if stored.form in (Form.SIGNED, Form.DECIMAL, Form.UNSIGNED) and width is not None:
        half = 1 << (8 * width - 1)
        low, high = (0, 2 * half - 1) if stored.form is Form.UNSIGNED else (-half, half - 1)
        fits = keys.take((data >= low) & (data <= min(high, _LONGEST)))
        return np.asarray(fits.data).astype(f"<i{width}", casting="unsafe"), fits
    if stored.form is Form.FLOATING and column.type in (Type.FLOAT, Type.DOUBLE):
        values = numbers(from_keys(keys, pa.float64()))
        if column.type is Type.FLOAT:
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32)
            keys, values = keys.take(narrow == values), narrow[narrow == values]
        if not (values == 0).any():
            return values, keys
        # Zero has a second pattern, -0.0.
        at = int(np.flatnonzero(values == 0)[0])
        twice = np.insert(np.arange(len(values)), at, at)
        values = values[twice]
        values[at] = -0.0
        return values, keys.take(twice)
    return None


def _patterns(value: Value, stored: StoredColumn) -> list[bytes] | None:
    """All PLAIN byte patterns that stand for ``value``; ``None`` for too many."""
    column = stored.column
    match stored.form, value:
        case Form.TEXT, str() | bytes():
            text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            fixed = column.type is Type.FIXED_LEN_BYTE_ARRAY
            return [] if fixed and len(text) != column.type_length else [text]
        case Form.FLOATING, float():
            if math.isnan(value):
                return None
            code = _FLOATS[column.type]
            if value == 0:
                return [struct.pack(code, 0.0), struct.pack(code, -0.0)]
            try:
                packed = struct.pack(code, value)
            except OverflowError:
                return []
            return [packed] if struct.unpack(code, packed)[0] == value else []
        case Form.TIMESTAMP, int():
            if stored.unit == "us":
                return _integer(value, 8, "little")
            if stored.unit == "ms":
                return [] if value % 1000 else _integer(value // 1000, 8, "little")
            return None
        case ((Form.SIGNED | Form.DECIMAL), int()) if column.type in _WIDTHS:
            return _integer(value, _WIDTHS[column.type], "little")
        case Form.UNSIGNED, int() if column.type in _WIDTHS:
            width = _WIDTHS[column.type]
            return [value.to_bytes(width, "little")] if 0 <= value < 1 << (8 * width) else []
        case Form.DECIMAL, int() if column.type is Type.FIXED_LEN_BYTE_ARRAY:
            return _integer(value, column.type_length, "big")
        case _:
            return None


_WIDTHS = {Type.INT32: 4, Type.INT64: 8}


def _integer(value: int, width: int, order: str) -> list[bytes]:
    most = 1 << (8 * width - 1)
    if not -most <= value < most:
        return []
    return [value.to_bytes(width, "big" if order == "big" else "little", signed=True)]
