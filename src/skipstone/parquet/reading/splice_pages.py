"""A small Parquet file in memory around fetched pages, so that Arrow decodes them.

    PAR1
    row group      for each leaf: dictionary page, if there is one, then the wanted data pages
    …
    FileMetaData   the leaves' own schema elements, and these row groups
    length u32 PAR1

Each leaf has its own ancestors, without their LIST, MAP and other annotations: levels do not depend
on them, and Arrow refuses half a map. So a group decodes as a struct of one field and a repeated
node as a list, one layer per node of the path; ``assembly.join`` combines the layers of several
leaves. Nodes are renamed (``0``, ``v``), so that no name of the file matters here.

Sizes, offsets and value counts are those of the fetched pages; there are no statistics and no page
index. ``created_by`` is kept, because Arrow uses it to work around faults of old writers, and
``ARROW:schema`` is written where it changes the type of a leaf.

``plain_pages`` prepares the pages. If a page contradicts the offset index in its rows or its size,
values would get into wrong rows: that is a ``FormatError``. Encrypted pages are decrypted, and get
new headers for their plaintext bodies, without the checksums, which are those of the stored bodies:
with ``verify_crc`` they are checked before. The decoder checks those of the other pages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone._parquet import ArrowParquetFile
from skipstone.errors import FormatError, first_line
from skipstone.parquet.format.enums import FieldRepetitionType, PageType
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.pages.page import Page, check_crc, read_page

from .arrow_footer import ArrowChunks, ArrowFrame, arrow_schema_pair
from .chunk_pages import header_at, plain_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.format.schema import ColumnDescriptor

    from .page_tables import ChunkPlace, PageTable


Buffer: TypeAlias = "bytes | memoryview"

_NODE = "v"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one leaf in a row group of the splice.

    ``dictionary`` is the whole dictionary page or empty, ``data`` the data pages with their
    headers, ``num_values`` their values, nulls counted. ``headers`` are these pages, parsed.
    """

    codec: int
    num_values: int
    dictionary: Buffer
    data: Sequence[Buffer]
    headers: Sequence[Page] = ()


@dataclass(frozen=True, slots=True)
class SplicedGroup:
    """One row group of the splice: ``rows`` rows of each leaf, in the template's order."""

    rows: int
    leaves: Sequence[Pages]


class Template:
    """The constant parts of all splices of the same leaves; make it once.

    ``types`` are the leaves' Arrow types where the file has an ``ARROW:schema``, else ``None``.
    """

    def __init__(
        self,
        leaves: Sequence[ColumnDescriptor],
        types: Sequence[pa.DataType] | None,
        created_by: str | None,
        dictionaries: Sequence[int] = (),
    ) -> None:
        """``dictionaries``: places of the leaves that are decoded as dictionaries of strings."""
        self.leaves = tuple(leaves)
        self._dictionaries = [str(at) for at in dictionaries]
        elements = [SchemaElement(name="schema", num_children=len(self.leaves))]
        for at, leaf in enumerate(self.leaves):
            elements += _elements(leaf, str(at))
        self._frame = self._framed(elements, created_by)
        if types is not None:
            fields = [
                _field(leaf, str(at), type)
                for at, (leaf, type) in enumerate(zip(self.leaves, types, strict=True))
            ]
            made = self.decode(()).schema
            if any(
                field.type != made.field(at).type
                for at, field in enumerate(fields)
                if at not in dictionaries
            ):
                self._frame = self._framed(elements, created_by, pa.schema(fields))

    def _framed(
        self, elements: list[SchemaElement], created_by: str | None, schema: pa.Schema | None = None
    ) -> ArrowFrame:
        columns = [
            (leaf.type, (str(at), *[_NODE] * (len(leaf.path) - 1)))
            for at, leaf in enumerate(self.leaves)
        ]
        return ArrowFrame.of(
            tuple(elements),
            columns,
            tuple(range(len(columns))),
            key_values=None if schema is None else (arrow_schema_pair(schema),),
            created_by=created_by,
        )

    def file(self, groups: Sequence[SplicedGroup]) -> pa.Buffer:
        """The bytes of the file, in Arrow's memory: its threads may hold them until after Python
        has ended, when no Python object can be released."""
        parts: list[Buffer] = [MAGIC]
        numbers: list[tuple[int, ...]] = []
        at = len(MAGIC)
        for pages in (pages for group in groups for pages in group.leaves):
            first, data = at, at + len(pages.dictionary)
            parts += [pages.dictionary, *pages.data]
            at = data + sum(map(len, pages.data))
            dictionary = first if pages.dictionary else 0
            numbers.append(
                (pages.codec, pages.num_values, at - first, at - first, data, dictionary)
            )
        chunks = ArrowChunks(
            numbers=np.array(numbers, np.int64).reshape(len(groups), len(self.leaves), 6),
            rows=np.array([group.rows for group in groups], np.int64),
        )
        made = self._frame.footer_of(chunks)
        parts += [made, len(made).to_bytes(4, "little"), MAGIC]
        held = pa.allocate_buffer(sum(map(len, parts)))
        view, at = memoryview(held).cast("B"), 0
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        return held

    def decode(
        self, groups: Sequence[SplicedGroup], *, threads: bool = False, verify_crc: bool = True
    ) -> pa.Table:
        """The rows, one column per leaf; ``FormatError`` where Arrow cannot decode the pages, with
        ``verify_crc`` also where a checksum is wrong. ``NotImplementedError`` where Arrow does not
        support them.
        """
        source = pa.BufferReader(self.file(groups))
        try:
            file = ArrowParquetFile(
                source,
                read_dictionary=self._dictionaries,
                page_checksum_verification=verify_crc,
                coerce_int96_timestamp_unit="us",
            )
            return file.read(use_threads=threads)
        except NotImplementedError:
            raise
        except (OSError, pa.ArrowException, ValueError) as error:
            names = ", ".join(leaf.name for leaf in self.leaves[:3])
            said = first_line(error, 200)
            raise FormatError(f"pages of {names} do not decode: {said}") from error


def _elements(leaf: ColumnDescriptor, name: str) -> list[SchemaElement]:
    """The nodes from below the root to the leaf, groups without annotation."""
    found = []
    for node in (*leaf.ancestors[1:], leaf.node):
        element = node.element
        if node is not leaf.node:
            found.append(SchemaElement(name=name, repetition_type=node.repetition, num_children=1))
        else:
            found.append(
                SchemaElement(
                    type=element.type,
                    type_length=element.type_length,
                    repetition_type=node.repetition,
                    name=name,
                    converted_type=element.converted_type,
                    scale=element.scale,
                    precision=element.precision,
                    logicalType=element.logicalType,
                )
            )
        name = _NODE
    return found


def _field(leaf: ColumnDescriptor, name: str, type: pa.DataType) -> pa.Field:
    """The Arrow field that the leaf's part of the splice reads as."""
    nodes = (*leaf.ancestors[1:], leaf.node)
    for depth in range(len(nodes) - 1, -1, -1):
        node = nodes[depth]
        repetition = node.repetition
        inner = name if depth == 0 else _NODE
        if repetition is FieldRepetitionType.REPEATED:
            type = pa.list_(pa.field(inner, type, nullable=False))
        field = pa.field(inner, type, nullable=repetition is FieldRepetitionType.OPTIONAL)
        if depth:
            type = pa.struct([field])
    return field


def plain_pages(
    place: ChunkPlace,
    table: PageTable,
    entries: NDArray[np.int64],
    dictionary: memoryview,
    data: Sequence[memoryview],
    decryptor: ColumnDecryptor | None,
    *,
    verify_crc: bool = False,
) -> Pages:
    """The dictionary (may be empty) and the ``data`` of these entries of a chunk's page table."""
    read = partial(_page, decryptor, verify_crc)
    headers: list[Page] = []
    head: bytes | memoryview = b""
    if len(dictionary):
        page, part, _ = read(dictionary, table.dictionary[0], 0, first=True)
        # Writers may leave any bytes before the first data page.
        if page.type == PageType.DICTIONARY_PAGE:
            head = part
            headers.append(page)
    total = 0
    plain: list[bytes | memoryview] = []
    for entry, held in zip(entries.tolist(), data, strict=True):
        values, parts, first = _entry(place, table, entry, held, read, headers)
        if len(first):
            head = first
        total += values
        plain += parts
    return Pages(place.codec, total, head, plain, headers)


def _entry(
    place: ChunkPlace,
    table: PageTable,
    entry: int,
    held: memoryview,
    read: Callable[..., tuple[Page, bytes | memoryview, int]],
    headers: list[Page],
) -> tuple[int, list[bytes | memoryview], bytes | memoryview]:
    """Values and data pages of one entry; for a whole chunk also its dictionary."""
    base, ordinal = int(table.offset[entry]), int(table.ordinal[entry])
    at = total = 0
    parts: list[bytes | memoryview] = []
    head: bytes | memoryview = b""
    values = None if table.values is None else int(table.values[entry])
    while at < len(held) and not (table.whole and parts and total == values):
        first = table.whole and not at
        page, part, size = read(held[at:], base + at, ordinal, first=first)
        at += size
        if page.is_data:
            ordinal += 1
            total += page.num_values
            parts.append(part)
            headers.append(page)
        elif first and page.type == PageType.DICTIONARY_PAGE:
            headers.append(page)
            head = part
    if not parts or (values is not None and total != values):
        raise FormatError(
            "a page holds other values than in the index of its chunk",
            file=place.path,
            offset=base,
            expected=values,
            got=total,
        )
    return total, parts, head


def _page(
    decryptor: ColumnDecryptor | None,
    verify_crc: bool,
    held: memoryview,
    offset: int,
    ordinal: int,
    *,
    first: bool,
) -> tuple[Page, bytes | memoryview, int]:
    """The page at the start of ``held``, its plaintext bytes, and its size on disk."""
    if decryptor is None:
        page = read_page(held, base=offset, ordinal=ordinal)
        size = page.header_length + page.compressed_page_size
        return page, held[:size], size
    header, length = header_at(held, offset, decryptor, ordinal, first)
    size = length + header.compressed_page_size
    if header.compressed_page_size < 0 or size > len(held):
        raise FormatError("a page ends beyond its place", offset=offset, expected=len(held))
    if verify_crc:
        check_crc(held[length:size], header.crc, offset + length)
    body = decryptor.decrypt_page(header, held[length:size], ordinal, base=offset + length)
    part = plain_header(header, len(body)) + body
    return read_page(part, base=offset, ordinal=ordinal), part, size
