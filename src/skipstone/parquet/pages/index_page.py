"""Index pages: trees over the data pages of a column chunk, as the README of 2013 describes them.

    PageHeader   type INDEX_PAGE, sizes, crc, IndexPageHeader { 1: i32 num_entries }
    body         entry × num_entries, values_buffer                           little-endian

    entry        i32 min_value_byte_offset | min_ordinal    where its key begins in values_buffer;
                                                            or its first row in the row group
                 i32 page_offset                            from the first byte of the chunk
                 i32 page_len                               bytes, header included
    values_buffer  the keys, PLAIN; empty in an index of ordinals

A page that an entry points to is a data page or an index page again; the leaves of a tree are the
data pages of the chunk, in their order. ``ColumnMetaData.index_page_offset`` is that of the root.

A key is the **upper bound** of its page, inclusive, whatever the name of the field: of entries
{100, 0, 64K}, {500, 64K, 64K}, {502, 128K, 64K} the first page holds all values up to 100, the
second those in [100, 500], the third those in [500, 502], and no value is above 502. Keys need not
be unique: a value that equals a bound may also be in the next page, and in further pages with the
same bound. An ordinal is the **first** row of its page; the page ends where the next one begins.

Pages come in post order, children before their parents: DataPage, DataPage, IndexPage (of these
two), DataPage, IndexPage (of this one), IndexPage (of the two). They roll over at 64 KiB:

| key | bytes per entry | entries per page | data pages of three levels |
|---|---|---|---|
| ordinal | 12 | 5,461 | 29 million |
| i32 | 16 | 4,096 | 16 million |
| i64, double | 20 | 3,276 | 10 million |
| text of 64 bytes | 80 | 819 | 670,000 |

The body is never compressed. Booleans have no keys: PLAIN packs them into bits, and an entry points
to a byte. Source: README.md of parquet-format, 2013, "Index Pages".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import PLAIN_WIDTHS, PageType, Type
from skipstone.parquet.format.metadata import IndexPageHeader, PageHeader
from skipstone.parquet.values import ByteArrays

from .page import Page, page_checksum, read_page

if TYPE_CHECKING:
    from numpy.typing import NDArray


IntArray: TypeAlias = "NDArray[np.int64]"

ENTRY_BYTES: Final = 12
#: a writer begins another page before a body exceeds these bytes
ROLL_OVER: Final = 64 << 10
#: a longer body is not read
LONGEST_BODY: Final = 16 << 20

_ENTRY = np.dtype([("key", "<i4"), ("page_offset", "<i4"), ("page_len", "<i4")])
_PREFIX: Final = 4
# Keys may overlap in the buffer. A page with more key bytes than this multiple is hostile.
_SHARED: Final = 4


def key_bytes(type_: Type, type_length: int = 0) -> int:
    """Bytes of a key of a fixed length in the buffer, -1 for byte arrays; ``UnsupportedError`` for
    booleans."""
    if type_ is Type.BOOLEAN:
        raise UnsupportedError("booleans have no keys in index pages")
    if type_ is Type.BYTE_ARRAY:
        return -1
    return type_length if type_ is Type.FIXED_LEN_BYTE_ARRAY else PLAIN_WIDTHS[type_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IndexPage:
    """The entries of one index page: int64 ``(n,)`` each, and n ``keys`` or n ``ordinals``.

    ``keys`` are PLAIN bytes without their lengths.
    """

    page_offset: IntArray
    page_len: IntArray
    keys: ByteArrays | None = None
    ordinals: IntArray | None = None

    def __post_init__(self) -> None:
        held = self.keys if self.ordinals is None else self.ordinals
        if (self.keys is None) == (self.ordinals is None) or held is None:
            raise ValueError("an index page has keys or ordinals")
        if not len(self.page_offset) == len(self.page_len) == len(held):
            raise ValueError("entries of an index page of different numbers")

    def __len__(self) -> int:
        return len(self.page_offset)

    # -- bytes -------------------------------------------------------------------------------------

    @classmethod
    def from_page(cls, page: Page, type_: Type, type_length: int = 0) -> Self:
        """From an index page of a file; verifies its checksum."""
        if page.type != PageType.INDEX_PAGE:
            raise FormatError(
                "a page that is not an index page",
                offset=page.offset,
                expected=int(PageType.INDEX_PAGE),
                got=int(page.type),
            )
        page.verify_crc()
        header = page.header.index_page_header
        if header is None or header.num_entries is None:
            raise FormatError("an index page that does not count its entries", offset=page.offset)
        if page.uncompressed_page_size != len(page.body):
            raise FormatError(
                "a compressed index page",
                offset=page.offset,
                expected=page.uncompressed_page_size,
                got=len(page.body),
            )
        return cls.from_bytes(
            page.body, header.num_entries, type_, type_length, base=page.body_offset
        )

    @classmethod
    def from_bytes(
        cls,
        data: bytes | memoryview,
        num_entries: int,
        type_: Type,
        type_length: int = 0,
        *,
        base: int = 0,
    ) -> Self:
        """The body ``data``, which lies at byte ``base``, of a column of this physical type.

        ``FormatError`` where it is malformed. Ordinals must ascend; the order of keys is not
        checked, because it depends on the column.
        """
        if len(data) > LONGEST_BODY:
            raise FormatError(
                "an index page", offset=base, expected=f"at most {LONGEST_BODY}", got=len(data)
            )
        if not 1 <= num_entries <= len(data) // ENTRY_BYTES:
            raise FormatError(
                "entries of an index page",
                offset=base,
                expected=f"1 to {len(data) // ENTRY_BYTES}",
                got=num_entries,
            )
        entries = np.frombuffer(data, _ENTRY, num_entries)
        offset, length = (entries[name].astype(np.int64) for name in ("page_offset", "page_len"))
        if offset.min() < 0 or length.min() <= 0:
            raise FormatError("an entry at a negative offset, or of no bytes", offset=base)
        if np.any(offset[1:] < offset[:-1] + length[:-1]):
            raise FormatError("entries of an index page that are not in order", offset=base)
        first = entries["key"].astype(np.int64)
        start = num_entries * ENTRY_BYTES
        if start == len(data):
            if first.min() < 0 or np.any(first[1:] < first[:-1]):
                raise FormatError("ordinals of an index page that do not ascend", offset=base)
            return cls(page_offset=offset, page_len=length, ordinals=first)
        buffer = np.frombuffer(data, np.uint8, offset=start)
        keys = _keys(buffer, first, key_bytes(type_, type_length), base + start)
        return cls(page_offset=offset, page_len=length, keys=keys)

    def body(self, type_: Type, type_length: int = 0) -> bytes:
        """The bytes that ``from_bytes`` reads."""
        entries = np.zeros(len(self), _ENTRY)
        entries["page_offset"], entries["page_len"] = self.page_offset, self.page_len
        if self.keys is None:
            entries["key"] = self.ordinals
            return entries.tobytes()
        lengths, width = self.keys.lengths, key_bytes(type_, type_length)
        if width >= 0 and np.any(lengths != width):
            raise ValueError(f"keys of {width} bytes")
        if width < 0:
            lengths = lengths + _PREFIX
        entries["key"][1:] = np.cumsum(lengths[:-1])
        if width >= 0:
            return entries.tobytes() + self.keys.content.tobytes()
        values = [len(each).to_bytes(_PREFIX, "little") + each for each in self.keys]
        return entries.tobytes() + b"".join(values)

    def to_bytes(self, type_: Type, type_length: int = 0) -> bytes:
        """The whole page: header with a checksum, and body."""
        body = self.body(type_, type_length)
        header = PageHeader(
            type=PageType.INDEX_PAGE,
            uncompressed_page_size=len(body),
            compressed_page_size=len(body),
            crc=page_checksum(body),
            index_page_header=IndexPageHeader(num_entries=len(self)),
        )
        return header.to_bytes() + body

    # -- description ------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The entries by the names of the specification, JSON-ready: keys as hex."""
        named: dict[str, Any] = {}
        if self.keys is not None:
            named["min_value"] = [each.hex() for each in self.keys]
        else:
            assert self.ordinals is not None
            named["min_ordinal"] = self.ordinals.tolist()
        return named | {
            "page_offset": self.page_offset.tolist(),
            "page_len": self.page_len.tolist(),
        }


def read_root(
    data: memoryview | bytes, type_: Type, type_length: int = 0, *, base: int = 0
) -> tuple[IndexPage, IndexPage | None]:
    """The index page at the start of ``data``, at byte ``base`` of the file, and a page of ordinals
    directly after it, if there is one.

    Skipstone writes a second tree for a chunk with keys (``rewrite/index_pages_file.py``): its root
    follows the root of the keys. Other bytes there are ignored.
    """
    page = read_page(data, base=base)
    root = IndexPage.from_page(page, type_, type_length)
    at = page.stop - base
    if root.keys is None or at >= len(data):
        return root, None
    try:
        following = read_page(data, at, base=base)
        if following.type != PageType.INDEX_PAGE:
            return root, None
        found = IndexPage.from_page(following, type_, type_length)
    except FormatError:
        return root, None
    return root, found if found.keys is None else None


def _keys(buffer: NDArray[np.uint8], first: IntArray, width: int, base: int) -> ByteArrays:
    """The PLAIN values that begin at ``first``."""
    room = len(buffer) - (_PREFIX if width < 0 else width)
    if width == 0 or first.min() < 0 or int(first.max()) > room:
        raise FormatError(
            "a key outside its index page",
            offset=base,
            expected=f"from 0 to {room}",
            got=int(first.min() if first.min() < 0 else first.max()),
        )
    if width >= 0:
        windows = np.lib.stride_tricks.sliding_window_view(buffer, width)
        if width * len(first) > _SHARED * len(buffer) + ENTRY_BYTES * len(first):
            raise FormatError("keys of an index page that overlap", offset=base)
        return ByteArrays(
            windows[first].reshape(-1), np.arange(0, width * len(first) + 1, width, dtype=np.int64)
        )
    head = np.lib.stride_tricks.sliding_window_view(buffer, _PREFIX)[first]
    lengths = np.ascontiguousarray(head).view("<u4").ravel().astype(np.int64)
    start = first + _PREFIX
    if np.any(lengths > len(buffer) - start):
        raise FormatError(
            "a key that ends beyond its index page",
            offset=base,
            expected=f"at most {len(buffer)} bytes",
            got=int(lengths.max()),
        )
    offsets = np.zeros(len(first) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _SHARED * len(buffer):
        raise FormatError("keys of an index page that overlap", offset=base)
    data = buffer.tobytes()
    ends = (start + lengths).tolist()
    held = b"".join([data[a:b] for a, b in zip(start.tolist(), ends, strict=True)])
    return ByteArrays(np.frombuffer(held, np.uint8), offsets)
