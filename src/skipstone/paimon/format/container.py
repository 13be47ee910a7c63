"""The container of all index blobs of one data file, version 1.

    i64 magic 1493475289347502 | i32 version = 1 | i32 head length | i32 columns
    per column:  name | i32 indexes | per index:  kind | i32 start | i32 length
    i32 redundant length = 0
    blobs, one after another

``head length`` counts from byte 0 to the first blob. ``start`` counts from byte 0 too. A blob that
its writer left out is start -1, length 0: for columns without any non-null value, and for map keys
of files without rows. Names and kinds are Java's ``writeUTF``: u16 length and modified UTF-8 (NUL
is C0 80, characters beyond U+FFFF are two surrogates of 3 bytes). A map's key has the name
``column[key]``. Bytes after the columns in the head are for later versions: they are kept as
``redundant``. There is no checksum. Every number is an i32, so a container is below 2 GiB.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

from .keys import i32
from .partial_blob import Cursor, Pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MAGIC = 1493475289347502
VERSION = 1
HEAD_PREFIX = 16
LARGEST = 2**31 - 1
_CUT_OFF = (
    "it was cut off, or is still being written: copy it or write it again; until then its data "
    "file is read in full"
)
_PREFIX = struct.Struct(">qii")
_EMPTY_START = -1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One blob: ``kind`` may be unknown here; ``start`` is -1 for an empty one."""

    kind: str
    start: int
    length: int

    @property
    def is_empty(self) -> bool:
        """The writer left the blob out: no row of the column holds a value. It proves nothing about
        nulls: some writers did not count them."""
        return self.start == _EMPTY_START


@dataclass(frozen=True, slots=True)
class ColumnIndexes:
    """One column's blobs, by the column's name in the data file's own schema."""

    name: str
    indexes: tuple[IndexEntry, ...]


@dataclass(frozen=True, slots=True)
class ContainerHead:
    """Where each blob lies."""

    columns: tuple[ColumnIndexes, ...]
    length: int
    redundant: bytes = b"\0\0\0\0"

    @classmethod
    def from_bytes(cls, head: bytes | memoryview, size: int | None = None) -> ContainerHead:
        """From the first ``head_length`` bytes (more may follow) of a container of ``size`` bytes;
        with ``size``, blobs outside the container are a ``FormatError``."""
        length = head_length(head)
        if len(head) < length:
            raise FormatError(
                "the head ends early", expected=f"{length} bytes", got=len(head), hint=_CUT_OFF
            )
        cursor = Pieces.whole(memoryview(head)[:length]).cursor(HEAD_PREFIX)
        columns = []
        # A column or an index takes some bytes each, so that counts cannot outrun the head.
        for _ in range(cursor.count("number of columns")):
            name = _read_utf(cursor)
            entries = []
            for _ in range(cursor.count("number of indexes")):
                at = cursor.position
                kind = _read_utf(cursor)
                entry = IndexEntry(kind, cursor.i32(), cursor.i32())
                _check(entry, at, length, size)
                entries.append(entry)
            columns.append(ColumnIndexes(name, tuple(entries)))
        redundant = bytes(cursor.take(length - cursor.position))
        return cls(tuple(columns), length, redundant)

    def to_bytes(self) -> bytes:
        """The head again."""
        parts = [_PREFIX.pack(MAGIC, VERSION, self.length), i32(len(self.columns))]
        for column in self.columns:
            parts += [_utf(column.name), i32(len(column.indexes))]
            for entry in column.indexes:
                parts += [_utf(entry.kind), i32(entry.start), i32(entry.length)]
        return b"".join([*parts, self.redundant])

    def of_column(self, name: str) -> tuple[IndexEntry, ...]:
        """All blobs of a column, of every entry that names it."""
        return tuple(e for column in self.columns if column.name == name for e in column.indexes)


def head_length(prefix: bytes | memoryview) -> int:
    """Bytes of the head, from the first ``HEAD_PREFIX`` bytes of a container.

    ``FormatError`` if this is not a container, ``UnsupportedError`` for a version above 1.
    """
    if len(prefix) < HEAD_PREFIX:
        raise FormatError(
            "too short for a file index",
            expected=f"{HEAD_PREFIX} bytes",
            got=len(prefix),
            hint=_CUT_OFF,
        )
    magic, version, length = _PREFIX.unpack(prefix[:HEAD_PREFIX])
    if magic != MAGIC:
        raise FormatError("not a file index", offset=0, expected=hex(MAGIC), got=hex(magic))
    if version != VERSION:
        if version > VERSION:
            raise UnsupportedError(f"version {version} of a file index: 1 is the newest known")
        raise FormatError("not a version", offset=8, expected=VERSION, got=version)
    if length < HEAD_PREFIX + 4:
        raise FormatError("head too short", offset=12, expected="at least 20 bytes", got=length)
    return int(length)


def from_bytes(
    data: bytes | memoryview,
) -> tuple[ContainerHead, dict[tuple[str, str], bytes | None]]:
    """A whole container: its head, and each blob by column and kind, ``None`` for an empty one."""
    head = ContainerHead.from_bytes(data, len(data))
    blobs: dict[tuple[str, str], bytes | None] = {}
    for column in head.columns:
        for entry in column.indexes:
            blob = bytes(data[entry.start : entry.start + entry.length])
            blobs.setdefault((column.name, entry.kind), None if entry.is_empty else blob)
    return head, blobs


def to_bytes(
    columns: Mapping[str, Mapping[str, bytes | None]], *, order: Iterable[str] | None = None
) -> bytes:
    """A container of these blobs by column and kind, ``None`` for an empty one.

    Columns are sorted by name and kinds within a column, so that equal input gives equal bytes;
    ``order`` names the columns in another order, and then kinds stay as they are given.
    ``UnsupportedError`` for 2 GiB and more.
    """
    names = sorted(columns) if order is None else list(order)
    kinds = {
        name: sorted(columns[name]) if order is None else list(columns[name]) for name in names
    }
    length = HEAD_PREFIX + 4 + 4
    length += sum(len(_utf(name)) + 4 for name in names)
    length += sum(len(_utf(kind)) + 8 for name in names for kind in kinds[name])
    start, entries, blobs = length, [], []
    for name in names:
        own = []
        for kind in kinds[name]:
            blob = columns[name][kind]
            own.append(IndexEntry(kind, _EMPTY_START if blob is None else start, len(blob or b"")))
            start += len(blob or b"")
            blobs.append(blob or b"")
        entries.append(ColumnIndexes(name, tuple(own)))
    if start > LARGEST:
        raise UnsupportedError(f"a file index of {start:,} bytes: it must stay below 2 GiB")
    return b"".join([ContainerHead(tuple(entries), length).to_bytes(), *blobs])


def _check(entry: IndexEntry, at: int, head: int, size: int | None) -> None:
    if entry.is_empty and entry.length == 0:
        return
    end = entry.start + entry.length
    if entry.start < head or entry.length < 0 or end > LARGEST or (size is not None and end > size):
        raise FormatError(
            f"index {entry.kind!r} lies outside the container",
            offset=at,
            expected=f"bytes {head} to {LARGEST if size is None else size}",
            got=f"{entry.length} bytes from {entry.start}",
            hint=_CUT_OFF,
        )


def _utf(text: str) -> bytes:
    """Java's ``writeUTF``. ``UnsupportedError`` above 65,535 bytes."""
    units = text.encode("utf-16-be", "surrogatepass")
    raw = b"".join(
        b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")
        for (unit,) in struct.iter_unpack(">H", units)
    )
    if len(raw) > 0xFFFF:
        raise UnsupportedError(f"a name of {len(raw):,} bytes: a file index allows 65,535")
    return len(raw).to_bytes(2, "big") + raw


def _read_utf(cursor: Cursor) -> str:
    at = cursor.position
    raw = bytes(cursor.take(int.from_bytes(cursor.take(2), "big")))
    try:
        if b"\0" in raw:
            raise ValueError("a plain NUL")
        # Python's UTF-8 refuses the long NUL; surrogates that pass as units pair up in UTF-16.
        units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        if any(character > "\uffff" for character in units):
            raise ValueError("a sequence of 4 bytes")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    except ValueError as error:
        raise FormatError(
            "a name is not modified UTF-8", offset=at, expected="Java's writeUTF", got=str(error)
        ) from None
