"""Bit slices of Bloom filters: the filters of many files, stored by bit position.

A lookup asks ``k`` bits of every file's filter. Stored by file, these bits are in as many places as
there are files. Here the bits at one position lie together: a lookup reads ``k`` rows of one bit
per file and combines them by AND, for filters of any size. The answers equal those of the filters.

One object holds the slices of one fact part, for every Bloom filter column of the part::

    "SKSLICES"                              8 bytes
    sections, back to back
    directory                               JSON, UTF-8
    length | CRC-32 of the directory        uint32 each
    "SKSLICES"                              8 bytes

All integers are little-endian; a CRC-32 is zlib's. The directory::

    {"version": 1, "part": "part-<uuid>", "rows": 250000, "columns": [
       {"name": "key_bloomfilter", "groups": [
          {"version": 1, "seed": 0, "hashes": 7, "words": 15, "files": 249000,
           "slices": 8, "members": 29880008, "crc": …}],
        "rest": {"files": 12, "at": 29911258, "length": 1932, "crc": …}}]}

A **group** has the filters of equal size: ``words`` 64-bit words, ``hashes`` hash functions, and
the ``version`` and ``seed`` of the sketch (``xskipper/format/sketch.py``). Sizes are rounded where
filters are made (``bloom.size_class``), so that files of similar numbers of values are one group.
Its section at ``slices`` has a row for each of ``64 x words`` positions::

    row r:   ceil(files / 8) bytes: bit i & 7 of byte i >> 3 is of member i
             CRC-32 of these bytes, uint32

    position p of a filter is row  r = p XOR 56

since Java writes the words big-endian, and the rows keep the order of the stored bytes. A row is
``ceil(files / 8) + 4`` bytes long. ``k`` rows for ``N`` files are ``k (N / 8 + 4)`` bytes: 875 kB
for a million files and ``k = 7``, the most that builds choose. The members are the fact rows of the
part that are set, ascending, in a bitmap of ``ceil(rows / 8)`` bytes at ``members`` with CRC-32
``crc``; without ``members`` every row is one.

The **rest** are filters of sizes that fewer than ``LEAST_GROUP`` files have. They are stored whole:
``files`` fact rows (int32), ``files + 1`` offsets (int64), and the filters. A fact row in no group
and not in the rest has no filter.

Spark's sketch spreads the bits of a value over the whole filter. Blocks of the filter could not
be stored together to save reads, as they could for the split-block filters of Parquet.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone._arrays import validity
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.xskipper.format.bloom_probe import BlobColumn
from skipstone.xskipper.format.sketch import MAX_HASHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from skipstone.xskipper.format.bloom_probe import BlobChunk


MAGIC = b"SKSLICES"
#: the bytes at the end that give the place of the directory
TAIL = struct.Struct("<II8s")
VERSION = 1
#: fewer files of one size get no slices: a row would be mostly checksum
LEAST_GROUP = 256
# If a larger share of the files is in the rest, the column gets no slices.
_MOST_REST = 0.25
_MOST_WORDS, _MOST_GROUPS, _MOST_COLUMNS = 1 << 28, 4_096, 10_000
_LONGEST_DIRECTORY = 64 << 20
# How many bytes of filters are transposed at a time.
_BLOCK = 1 << 22
#: position -> row
SWAP = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGroup:
    """The filters of one size; see the module. ``members`` is ``None`` if every row is a member."""

    version: int
    seed: int
    hashes: int
    words: int
    files: int
    slices: int
    members: int | None = None
    crc: int = 0

    @property
    def bits(self) -> int:
        """Positions of a filter, and rows of the section."""
        return 64 * self.words

    @property
    def row_bytes(self) -> int:
        """Bytes of one row without its checksum."""
        return -(-self.files // 8)

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return self.row_bytes + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRest:
    """Filters that are stored whole: ``length`` bytes from ``at``."""

    files: int
    at: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceColumn:
    """The slices of the fact column ``name``."""

    name: str
    groups: tuple[SliceGroup, ...]
    rest: SliceRest | None = None

    @property
    def files(self) -> int:
        """Files with a filter."""
        return sum(group.files for group in self.groups) + (self.rest.files if self.rest else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDirectory:
    """The directory of the slices of the part ``part``, which has ``rows`` fact rows."""

    part: str
    rows: int
    columns: tuple[SliceColumn, ...]

    def to_bytes(self) -> bytes:
        """The directory and the tail: the end of an object."""
        text = json.dumps({"version": VERSION, **asdict(self)}, ensure_ascii=False).encode()
        return text + TAIL.pack(len(text), zlib.crc32(text), MAGIC)

    @classmethod
    def from_bytes(cls, end: memoryview, size: int, file: str | None = None) -> SliceDirectory:
        """The directory from the last bytes of an object of ``size`` bytes.

        ``FormatError`` where it is damaged, or ``end`` does not have it whole: see
        ``directory_bytes``. ``UnsupportedError`` for a newer version.
        """
        length = directory_bytes(end, size, file)
        start = size - length
        if len(end) < length:
            raise FormatError(
                "the directory", file=file, offset=start, expected=length, got=len(end)
            )
        text = bytes(end[len(end) - length : len(end) - TAIL.size])
        if zlib.crc32(text) != TAIL.unpack(end[-TAIL.size :])[1]:
            raise FormatError("the checksum of the directory is wrong", file=file, offset=start)
        try:
            found = json.loads(text)
            version = found["version"]
            if type(version) is int and version > VERSION:
                raise UnsupportedError(
                    f"{file} has slices of version {version}, and {VERSION} is the newest known",
                    hint="update Skipstone",
                )
            columns = tuple(_column(each) for each in found["columns"])
            made = cls(part=_text(found["part"]), rows=_whole(found["rows"]), columns=columns)
            made._check(start)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, FormatError | UnsupportedError):
                raise
            raise FormatError(f"not a directory of slices ({error})", file=file) from error
        return made

    def _check(self, end: int) -> None:
        """``ValueError`` unless all sections lie before ``end`` and all counts are possible."""
        if len(self.columns) > _MOST_COLUMNS:
            raise ValueError(f"{len(self.columns):,} columns")
        for column in self.columns:
            if column.files > self.rows or len(column.groups) > _MOST_GROUPS:
                raise ValueError(f"{column.files:,} files of {self.rows:,} in {column.name}")
            for group in column.groups:
                if not (1 <= group.words <= _MOST_WORDS and 1 <= group.hashes <= MAX_HASHES):
                    raise ValueError(f"{group.words:,} words, {group.hashes:,} hashes")
                if group.version not in (1, 2) or not group.files:
                    raise ValueError(f"version {group.version}, {group.files:,} files")
                _inside(group.slices, group.bits * group.stride, end)
                if group.members is not None:
                    _inside(group.members, -(-self.rows // 8), end)
                elif group.files != self.rows:
                    raise ValueError(f"{group.files:,} files and no members")
            if column.rest is not None:
                rest = column.rest
                _inside(rest.at, rest.length, end)
                if rest.length < 12 * rest.files + 8:
                    raise ValueError(f"{rest.files:,} filters in {rest.length:,} bytes")


def directory_bytes(end: memoryview, size: int, file: str | None = None) -> int:
    """Bytes of the directory and its tail, from the last bytes of an object of ``size`` bytes."""
    if size < len(MAGIC) + TAIL.size or len(end) < TAIL.size:
        raise FormatError("slices", file=file, expected="a directory", got=f"{size:,} bytes")
    length, _, magic = TAIL.unpack(end[-TAIL.size :])
    most = min(size - len(MAGIC) - TAIL.size, _LONGEST_DIRECTORY)
    if magic != MAGIC or length > most:
        got = (magic, length)
        raise FormatError("the tail of slices", file=file, offset=size - TAIL.size, got=got)
    return int(length) + TAIL.size


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a count or a place")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _inside(at: int, length: int, end: int) -> None:
    if at < len(MAGIC) or at + length > end:
        raise ValueError(f"{length:,} bytes at {at:,} end after {end:,}")


def _column(found: dict[str, Any]) -> SliceColumn:
    groups = []
    for each in found["groups"]:
        numbers = {
            name: _whole(each[name])
            for name in ("version", "hashes", "words", "files", "slices", "crc")
        }
        members, seed = each["members"], each["seed"]
        if type(seed) is not int or not -(1 << 31) <= seed < 1 << 31:
            raise ValueError(f"seed {seed!r}")
        whole = None if members is None else _whole(members)
        groups.append(SliceGroup(**numbers, seed=seed, members=whole))
    rest = found["rest"]
    if rest is not None:
        rest = SliceRest(**{n: _whole(rest[n]) for n in ("files", "at", "length", "crc")})
    return SliceColumn(name=_text(found["name"]), groups=tuple(groups), rest=rest)


# -- making them -----------------------------------------------------------------------------------


class SliceWriter:
    """Collects the bytes of an object: ``add`` each column, then ``finish``."""

    def __init__(self, part: str, rows: int) -> None:
        self.part, self.rows = part, rows
        self._data = bytearray(MAGIC)
        self._columns: list[SliceColumn] = []

    def add(self, name: str, filters: pa.Array, least: int = LEAST_GROUP) -> bool:
        """Add the column ``name`` of the part; False where its filters are of too many sizes, or
        one of them is not readable.

        ``filters``: a serialised filter per fact row, null where there is none.
        """
        column = BlobColumn(filters)
        (chunk,) = column.chunks
        if not np.array_equal(chunk.ok, validity(filters)):
            return False
        having = np.flatnonzero(chunk.ok)
        keys = np.stack([getattr(chunk, each)[having] for each in _SIZE], axis=1)
        sizes, group_of = np.unique(keys, axis=0, return_inverse=True)
        group_of = group_of.reshape(-1)
        counts = np.bincount(group_of, minlength=len(sizes))
        large = counts >= least
        small = ~large[group_of]
        if not large.any() or small.sum() > _MOST_REST * len(having):
            return False
        groups = [
            self._group(chunk, having[group_of == at], *sizes[at].tolist())
            for at in np.flatnonzero(large).tolist()
        ]
        rest = self._rest(filters, having[small]) if small.any() else None
        self._columns.append(SliceColumn(name=name, groups=tuple(groups), rest=rest))
        return True

    def finish(self) -> memoryview | None:
        """The bytes of the object; ``None`` without columns."""
        if not self._columns:
            return None
        directory = SliceDirectory(part=self.part, rows=self.rows, columns=tuple(self._columns))
        self._data += directory.to_bytes()
        return memoryview(self._data)

    def _group(
        self,
        chunk: BlobChunk,
        rows: NDArray[np.int64],
        version: int,
        seed: int,
        hashes: int,
        words: int,
    ) -> SliceGroup:
        slices = len(self._data)
        for block in _transposed(chunk, rows, words):
            self._data += block
        members, crc = None, 0
        if len(rows) < self.rows:
            flags = np.zeros(self.rows, np.bool_)
            flags[rows] = True
            bits = np.packbits(flags, bitorder="little").tobytes()
            members, crc = len(self._data), zlib.crc32(bits)
            self._data += bits
        return SliceGroup(
            version=version,
            seed=seed,
            hashes=hashes,
            words=words,
            files=len(rows),
            slices=slices,
            members=members,
            crc=crc,
        )

    def _rest(self, filters: pa.Array, rows: NDArray[np.int64]) -> SliceRest:
        blobs = [each.as_py() for each in filters.take(pa.array(rows))]
        offsets = np.cumsum([0, *map(len, blobs)], dtype="<i8")
        data = b"".join([rows.astype("<i4").tobytes(), offsets.tobytes(), *blobs])
        at = len(self._data)
        self._data += data
        return SliceRest(files=len(rows), at=at, length=len(data), crc=zlib.crc32(data))


_SIZE = ("version", "seed", "hashes", "words")


def _transposed(chunk: BlobChunk, rows: NDArray[np.int64], words: int) -> Iterator[bytes]:
    """The rows of a group, with their checksums, in pieces."""
    count, nbytes = len(rows), 8 * words
    padded = -(-count // 8) * 8
    width = padded // 8
    step = max(1, _BLOCK // padded)
    for low in range(0, nbytes, step):
        high = min(low + step, nbytes)
        q = np.arange(low, high)
        # The bytes of a file's filter lie between headers of blocks, and are copied from there.
        held = np.zeros((padded, len(q)), np.uint8)
        every = max(1, _BLOCK // len(q))
        for first in range(0, count, every):
            some = rows[first : first + every]
            places = chunk.start[some][:, None] + q
            owners = np.broadcast_to(some[:, None], places.shape)
            held[first : first + len(some)] = chunk.byte_at(owners, places)
        x = np.ascontiguousarray(held.reshape(width, 8, len(q)).transpose(2, 0, 1))
        bits = _transpose_bits(x.view("<u8").reshape(len(q), width))
        out = np.zeros((8 * len(q), width + 4), np.uint8)
        out[:, :width] = (
            bits.view(np.uint8).reshape(len(q), width, 8).transpose(0, 2, 1).reshape(-1, width)
        )
        view = memoryview(out.data).cast("B")
        stride = width + 4
        sums = [zlib.crc32(view[at : at + width]) for at in range(0, len(out) * stride, stride)]
        out[:, width:] = np.array(sums, "<u4").view(np.uint8).reshape(-1, 4)
        yield out.tobytes()


def _transpose_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each word as an 8 x 8 bit matrix, transposed: bit f of byte b was bit b of byte f."""
    for shift, mask in (
        (7, 0x00AA00AA00AA00AA),
        (14, 0x0000CCCC0000CCCC),
        (28, 0x00000000F0F0F0F0),
    ):
        moved = (x ^ (x >> np.uint64(shift))) & np.uint64(mask)
        x = x ^ moved ^ (moved << np.uint64(shift))
    return x


# -- reading them ----------------------------------------------------------------------------------


def members_of(
    group: SliceGroup, rows: int, data: memoryview, file: str | None = None
) -> NDArray[np.int64]:
    """The fact rows of a group from its bitmap; ``FormatError`` where it is damaged."""
    if zlib.crc32(data) != group.crc:
        raise FormatError("the checksum of members is wrong", file=file, offset=group.members)
    flags = np.unpackbits(np.frombuffer(data, np.uint8), count=rows, bitorder="little")
    found = np.flatnonzero(flags)
    if len(found) != group.files:
        raise FormatError("members", file=file, expected=group.files, got=len(found))
    return found


def rest_of(
    rest: SliceRest, rows: int, data: memoryview, file: str | None = None
) -> tuple[NDArray[np.int64], pa.Array]:
    """Fact rows and filters of the rest; ``FormatError`` where it is damaged."""
    if zlib.crc32(data) != rest.crc:
        raise FormatError("the checksum of the rest is wrong", file=file, offset=rest.at)
    at = np.frombuffer(data, "<i4", rest.files).astype(np.int64)
    offsets = np.frombuffer(data, "<i8", rest.files + 1, 4 * rest.files)
    blobs = data[4 * rest.files + 8 * (rest.files + 1) :]
    good = offsets[0] == 0 and offsets[-1] == len(blobs) and (np.diff(offsets) >= 0).all()
    if not good or (np.diff(at) <= 0).any() or at[0] < 0 or at[-1] >= rows:
        raise FormatError("rows or offsets of the rest", file=file, offset=rest.at)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(bytes(blobs))]
    return at, pa.Array.from_buffers(pa.large_binary(), rest.files, buffers)


def row_of(data: memoryview | bytes, group: SliceGroup) -> NDArray[np.uint8] | None:
    """The bits of one row as it was read; ``None`` where its checksum is wrong."""
    bits = data[: group.row_bytes]
    (crc,) = struct.unpack_from("<I", data, group.row_bytes)
    return np.frombuffer(bits, np.uint8) if zlib.crc32(bits) == crc else None
