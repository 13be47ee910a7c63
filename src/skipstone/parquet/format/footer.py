"""Finds the footer of a file, and reads ``FileMetaData`` from it.

    PAR1  pages … page index, bloom filters …  FileMetaData [nonce 12, tag 16]  length u32  PAR1
    PARE  …                FileCryptoMetaData  encrypted FileMetaData           length u32  PARE

``length`` is the number of bytes between the index structures and itself. In a ``PAR1`` file with
an ``encryption_algorithm``, the last 28 bytes of the footer are its signature. Source: README.md
and Encryption.md of parquet-format.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .metadata import FileMetaData, KeyValue

MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
TAIL_LENGTH = 8
#: bytes at the end of a file that the first read takes: most footers are shorter
TAIL_GUESS = 64 * 1024
# The first magic, the length and the second magic; a footer of 0 bytes fails later.
_SMALLEST = len(MAGIC) + TAIL_LENGTH
# Readers take the length as signed.
_LONGEST = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Tail:
    """The last 8 bytes of a file of ``size`` bytes: the footer's ``length``, and its magic."""

    size: int
    length: int
    encrypted: bool

    @property
    def magic(self) -> bytes:
        """The first and the last 4 bytes of the file."""
        return MAGIC_ENCRYPTED if self.encrypted else MAGIC

    @property
    def offset(self) -> int:
        """Where the footer begins."""
        return self.size - TAIL_LENGTH - self.length

    @classmethod
    def from_bytes(cls, end: bytes | memoryview, size: int) -> Tail:
        """From at least the last 8 bytes of a file of ``size`` bytes; checks magic and lengths."""
        data = bytes(end[-TAIL_LENGTH:])
        if size < _SMALLEST or len(data) != TAIL_LENGTH:
            raise FormatError(
                "too short for a Parquet file",
                offset=0,
                expected=f"at least {_SMALLEST} bytes",
                got=size,
            )
        magic = data[4:]
        if magic not in (MAGIC, MAGIC_ENCRYPTED):
            raise FormatError(
                "no Parquet magic at the end",
                offset=size - len(MAGIC),
                expected="PAR1 or PARE",
                got=magic,
                hint="if it was cut off or overwritten, `skipstone salvage FILE` saves its rows; "
                "otherwise it is of another kind",
            )
        length = int.from_bytes(data[:4], "little")
        if length > size - _SMALLEST:
            raise FormatError(
                "a footer longer than the file",
                offset=size - TAIL_LENGTH,
                expected=f"at most {size - _SMALLEST}",
                got=length,
            )
        return cls(size, length, magic == MAGIC_ENCRYPTED)

    @classmethod
    def behind(cls, footer: bytes, at: int, *, encrypted: bool = False) -> Tail:
        """The tail of a file whose ``footer`` begins at byte ``at``."""
        if len(footer) > _LONGEST:
            raise UnsupportedError("a footer of more than 2 GiB", hint="write fewer row groups")
        return cls(at + len(footer) + TAIL_LENGTH, len(footer), encrypted)

    def footer_in(self, end: bytes | memoryview) -> memoryview | None:
        """The footer in ``end``, the last bytes of the file; ``None`` where they are too few."""
        start = len(end) - TAIL_LENGTH - self.length
        return memoryview(end)[start : start + self.length] if start >= 0 else None

    def to_bytes(self) -> bytes:
        """The last 8 bytes."""
        return self.length.to_bytes(4, "little") + self.magic


def file_of(footer: bytes, before: bytes = b"") -> bytes:
    """A whole file: the magic, the bytes ``before`` the footer, and the footer, not encrypted."""
    tail = Tail.behind(footer, len(MAGIC) + len(before))
    return b"".join([MAGIC, before, footer, tail.to_bytes()])


def find_footer(data: bytes | memoryview) -> tuple[Tail, memoryview]:
    """The tail and the footer of a whole file in memory."""
    tail = Tail.from_bytes(data, len(data))
    return tail, memoryview(data)[tail.offset : -TAIL_LENGTH]


def read_footer(
    source: BinaryIO, *, guess: int = TAIL_LENGTH, longest: int | None = None
) -> tuple[Tail, memoryview]:
    """The tail and the footer of an open file; the first read takes its last ``guess`` bytes.

    ``FormatError`` for a footer of more than ``longest`` bytes.
    """
    size = source.seek(0, io.SEEK_END)
    source.seek(-min(size, guess), io.SEEK_END)
    end = source.read(guess)
    tail = Tail.from_bytes(end, size)
    if longest is not None and tail.length > longest:
        raise FormatError("a footer that is too long", expected=longest, got=tail.length)
    footer = tail.footer_in(end)
    if footer is None:
        source.seek(tail.offset)
        footer = memoryview(source.read(tail.length))
    return tail, footer


def read_metadata(data: bytes | memoryview) -> FileMetaData:
    """The metadata of a whole file in memory whose footer is not encrypted."""
    from .metadata import FileMetaData

    tail, footer = find_footer(data)
    if tail.encrypted:
        raise FormatError("the footer is encrypted", offset=tail.offset)
    return FileMetaData.from_bytes(footer, base=tail.offset)


def bytes_of_pairs(pairs: Iterable[KeyValue] | None) -> dict[bytes, bytes]:
    """The key-value pairs of a footer as stored: texts that are not UTF-8 keep their bytes."""
    return {
        pair.key.encode("utf-8", "surrogateescape"): (pair.value or "").encode(
            "utf-8", "surrogateescape"
        )
        for pair in pairs or ()
    }
