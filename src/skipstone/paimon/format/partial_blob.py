"""A blob with some of its bytes present: readers take the bytes that they need, or name the missing
ones.

A reader is a plain function over ``Pieces``. Where bytes are missing, it raises ``MissingBytes``
with their spans; the caller fetches them and calls again. Each call starts from the beginning, with
the same ``Pieces`` and more bytes, or with new ones. Parsed parts stay with the pieces (``once``).
Offsets are relative to the start of the blob.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.values import ByteArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from _typeshed import DataclassInstance

    from skipstone.parquet.values import U8


T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")

# Bytes of the first read of a head of unknown length.
_GUESS = 4_096
_I32, _I64 = struct.Struct(">i"), struct.Struct(">q")


class BlobSpan(NamedTuple):
    """``length`` bytes from ``offset`` of a blob."""

    offset: int
    length: int


class MissingBytes(Exception):
    """Not an error: these spans of the blob must be fetched before the call is repeated."""

    def __init__(self, spans: tuple[BlobSpan, ...]) -> None:
        self.spans = spans
        super().__init__(spans)


class Pieces:
    """A blob of ``length`` bytes, of which ``parts`` (offset, bytes) are present."""

    __slots__ = ("_given", "_parsed", "_parts", "_starts", "length")

    def __init__(
        self,
        length: int,
        parts: Iterable[tuple[int, bytes | memoryview]] = (),
        parsed: dict[Hashable, Any] | None = None,
    ) -> None:
        """Parts may overlap, in any order. ``parsed`` keeps parsed parts for other pieces of the
        same blob. ``FormatError`` for a part outside the blob."""
        self.length = length
        self._given: list[tuple[int, memoryview]] = []
        self._starts: list[int] = []
        self._parts: list[memoryview] = []
        self._parsed: dict[Hashable, Any] = {} if parsed is None else parsed
        if parts != ():
            self.add(parts)

    def add(self, parts: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Adds bytes. Errors as for the constructor."""
        given = [(offset, memoryview(part)) for offset, part in parts]
        for offset, part in given:
            if offset < 0 or offset + len(part) > self.length:
                raise _outside(offset, len(part), self.length)
        if len(given) == 1 and not self._given:
            self._given = given
            self._starts, self._parts = [given[0][0]], [given[0][1]]
            return
        self._given = sorted(self._given + given, key=lambda each: each[0])
        self._starts, self._parts = [], []
        reach = 0
        for offset, part in self._given:
            if offset + len(part) > reach:
                self._starts.append(offset)
                self._parts.append(part)
                reach = offset + len(part)

    @classmethod
    def whole(cls, blob: bytes | memoryview) -> Pieces:
        """All of a blob."""
        return cls(len(blob), [(0, blob)])

    def once(self, key: Hashable, parse: Callable[[], T]) -> T:
        """The result of ``parse``, called at most once for ``key`` unless it raises."""
        if key not in self._parsed:
            self._parsed[key] = parse()
        found: T = self._parsed[key]
        return found

    def opened(self, key: Hashable, open: Callable[[], D]) -> D:
        """``once`` for a dataclass whose field ``pieces`` is this object. The cached copy does not
        refer to it: a reference cycle would delay freeing both."""
        bare = self.once(key, lambda: replace(open(), pieces=_NOTHING))
        return replace(bare, pieces=self)

    def at_hand(self, offset: int, wanted: int) -> memoryview:
        """``wanted`` bytes from ``offset`` on, or more, or as many as are present without a gap.

        They are copied only if they span several parts.
        """
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return memoryview(b"")
        found = self._parts[at][offset - self._starts[at] :]
        if len(found) >= wanted:
            return found
        joined = bytearray(found)
        end = offset + len(found)
        for start, part in zip(self._starts[at + 1 :], self._parts[at + 1 :], strict=True):
            if start > end or end >= offset + wanted:
                break
            joined += part[end - start :]
            end = start + len(part)
        return memoryview(joined).toreadonly()

    def need(self, spans: Iterable[BlobSpan]) -> None:
        """Returns if all spans are present. ``MissingBytes`` names all missing ones;
        ``FormatError`` for a span outside the blob."""
        missing = []
        for span in spans:
            if span.offset < 0 or span.length < 0 or span.offset + span.length > self.length:
                raise _outside(span.offset, span.length, self.length)
            if len(self.at_hand(span.offset, span.length)) < span.length:
                missing.append(span)
        if missing:
            raise MissingBytes(tuple(missing))

    def take(self, offset: int, length: int) -> memoryview:
        """These bytes. Errors as for ``need``."""
        self.need((BlobSpan(offset, length),))
        return self.at_hand(offset, length)[:length]

    def cursor(self, offset: int, stop: int | None = None) -> Cursor:
        """Read field by field from ``offset``, up to ``stop`` (default: the blob's end)."""
        stop = self.length if stop is None else stop
        if not 0 <= offset <= stop <= self.length:
            raise _outside(offset, stop - offset, self.length)
        return Cursor(self, offset, stop)


_NOTHING = Pieces(0)


class Cursor:
    """Reads fields one after another; ``position`` is the offset of the next one in the blob."""

    __slots__ = ("_pieces", "_start", "_stop", "_view", "position")

    def __init__(self, pieces: Pieces, offset: int, stop: int) -> None:
        self._pieces, self._start, self._stop = pieces, offset, stop
        self._view = pieces.at_hand(offset, 1)[: stop - offset]
        self.position = offset

    def take(self, length: int) -> memoryview:
        """The next ``length`` bytes."""
        at = self.position - self._start
        if length < 0 or self.position + length > self._stop:
            raise FormatError(
                "the structure ends early",
                offset=self.position,
                expected=f"{length} more bytes",
                got=self._stop - self.position,
            )
        if at + length > len(self._view):
            self._view = self._pieces.at_hand(self._start, at + length)
        if at + length > len(self._view):
            # The length of the head is unknown: ask for twice what was read so far.
            wanted = max(at + length, min(max(_GUESS, 2 * at), self._stop - self._start))
            raise MissingBytes((BlobSpan(self._start, wanted),))
        self.position += length
        return self._view[at : at + length]

    def u8(self) -> int:
        """An unsigned byte."""
        return self.take(1)[0]

    def i32(self) -> int:
        """A signed int of 4 bytes."""
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def i64(self) -> int:
        """A signed int of 8 bytes."""
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def texts(self, count: int, tail: int) -> tuple[ByteArrays, U8]:
        """``count`` × { i32 length, bytes, ``tail`` more bytes }: the strings, and their tails,
        uint8 ``(count, tail)``."""
        found = self._short_texts(count, tail)
        if found is not None:
            return found
        texts, tails = self._any_texts(count, tail)
        return ByteArrays.from_list(texts), np.frombuffer(tails, np.uint8).reshape(count, tail)

    def _short_texts(self, count: int, tail: int) -> tuple[ByteArrays, U8] | None:
        """``texts`` if all bytes are present and each string is below 256 bytes: only the last byte
        of each length is read one by one."""
        view, at = self._view, self.position - self._start
        found = self._equal_texts(count, tail)
        if found is not None:
            return found
        heads: list[int] = []
        step, append = 4 + tail, heads.append
        try:
            for _ in range(count):
                append(at)
                at += view[at + 3] + step
        except IndexError:
            return None
        if at > len(view):
            return None
        raw = np.frombuffer(view, np.uint8)
        starts = np.array(heads, np.int64)
        if count and (raw[starts] | raw[starts + 1] | raw[starts + 2]).any():
            return None
        lengths = raw[starts + 3].astype(np.int64)
        base = self.position - self._start
        inside = np.ones(at - base, np.bool_)
        for byte in range(4):
            inside[starts - base + byte] = False
        ends = starts + 4 + lengths
        tails = np.empty((count, tail), np.uint8)
        for byte in range(tail):
            inside[ends - base + byte] = False
            tails[:, byte] = raw[ends + byte]
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        self.position += at - base
        return ByteArrays(raw[base:at][inside], offsets), tails

    def _equal_texts(self, count: int, tail: int) -> tuple[ByteArrays, U8] | None:
        """``texts`` if all bytes are present and all strings are as long as the first: each entry
        then begins where it would for strings of one length."""
        view, at = self._view, self.position - self._start
        if not count or at + 4 > len(view):
            return None
        length = _I32.unpack_from(view, at)[0]
        stop = at + count * (4 + length + tail)
        if not 0 <= length < 256 or stop > len(view):
            return None
        table = np.frombuffer(view[at:stop], np.uint8).reshape(count, -1)
        if (table[:, :4] != table[0, :4]).any():
            return None
        self.position += stop - at
        offsets = np.arange(0, count * length + 1, max(length, 1), dtype=np.int64)
        if not length:
            offsets = np.zeros(count + 1, np.int64)
        return ByteArrays(table[:, 4 : 4 + length].ravel(), offsets), table[:, 4 + length :].copy()

    def _any_texts(self, count: int, tail: int) -> tuple[list[bytes], bytes]:
        texts, tails = [], []
        view, at = self._view, self.position - self._start
        unpack = _I32.unpack_from
        for _ in range(count):
            if at + 4 <= len(view):
                length = unpack(view, at)[0]
                stop = at + 4 + length
                if length >= 0 and stop + tail <= len(view):
                    texts.append(bytes(view[at + 4 : stop]))
                    tails.append(bytes(view[stop : stop + tail]))
                    at = stop + tail
                    continue
            # Some bytes are missing: reading step by step raises the error.
            self.position = self._start + at
            texts.append(bytes(self.take(self.count("key length"))))
            tails.append(bytes(self.take(tail)))
            view, at = self._view, self.position - self._start
        self.position = self._start + at
        return texts, b"".join(tails)

    def count(self, what: str) -> int:
        """An int of 4 bytes that counts something: negative is a ``FormatError``."""
        at, value = self.position, self.i32()
        if value < 0:
            raise FormatError(f"negative {what}", offset=at, expected="0 or more", got=value)
        return value


def _outside(offset: int, length: int, size: int) -> FormatError:
    return FormatError(
        "bytes outside the index",
        offset=offset,
        expected=f"at most {size} bytes in all",
        got=f"{length} bytes from {offset}",
    )
