"""The smallest Parquet files: one required column, pages as they are, and no compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.parquet.format.enums import (
    CompressionCodec,
    Encoding,
    FieldRepetitionType,
    PageType,
    Type,
)
from skipstone.parquet.format.footer import MAGIC, Tail, read_metadata
from skipstone.parquet.format.metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    DictionaryPageHeader,
    FileMetaData,
    PageHeader,
    RowGroup,
    SchemaElement,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def column_file(
    type_: Type,
    type_length: int | None,
    encoding: Encoding,
    pages: Sequence[tuple[int, bytes]],
    dictionary: tuple[int, bytes] | None = None,
) -> bytes:
    """A file of one column ``x``, from the number of values and the bytes of each page."""
    body = bytearray(MAGIC)
    first_data = len(body)
    if dictionary is not None:
        count, data = dictionary
        body += PageHeader(
            type=PageType.DICTIONARY_PAGE,
            uncompressed_page_size=len(data),
            compressed_page_size=len(data),
            dictionary_page_header=DictionaryPageHeader(num_values=count, encoding=Encoding.PLAIN),
        ).to_bytes()
        body += data
        first_data = len(body)
    for count, data in pages:
        body += PageHeader(
            type=PageType.DATA_PAGE,
            uncompressed_page_size=len(data),
            compressed_page_size=len(data),
            data_page_header=DataPageHeader(
                num_values=count,
                encoding=encoding,
                definition_level_encoding=Encoding.RLE,
                repetition_level_encoding=Encoding.RLE,
            ),
        ).to_bytes()
        body += data
    size, rows = len(body) - len(MAGIC), sum(count for count, _ in pages)
    meta = ColumnMetaData(
        type=type_,
        encodings=(encoding, Encoding.RLE),
        path_in_schema=("x",),
        codec=CompressionCodec.UNCOMPRESSED,
        num_values=rows,
        total_uncompressed_size=size,
        total_compressed_size=size,
        data_page_offset=first_data,
        dictionary_page_offset=None if dictionary is None else len(MAGIC),
    )
    chunk = ColumnChunk(file_offset=0, meta_data=meta)
    footer = FileMetaData(
        version=2,
        schema=(
            SchemaElement(name="schema", num_children=1),
            SchemaElement(
                name="x",
                type=type_,
                type_length=type_length,
                repetition_type=FieldRepetitionType.REQUIRED,
            ),
        ),
        num_rows=rows,
        row_groups=(RowGroup(columns=(chunk,), total_byte_size=size, num_rows=rows),),
    ).to_bytes()
    body += footer
    return bytes(body + Tail(len(body) + 8, len(footer), False).to_bytes())


def pages_of(data: bytes) -> Iterator[tuple[bool, Encoding | int, int, memoryview]]:
    """Whether it is the dictionary, encoding, number of values and bytes of each page.

    Of the only column of a file, which is required and not compressed.
    """
    metadata = read_metadata(data)
    for group in metadata.row_groups:
        meta = group.columns[0].meta_data
        assert meta is not None
        assert meta.codec == CompressionCodec.UNCOMPRESSED
        at = meta.dictionary_page_offset or meta.data_page_offset
        end = at + meta.total_compressed_size
        while at < end:
            header = PageHeader.from_bytes(data[at:end])
            at += len(header.to_bytes())
            body = memoryview(data)[at : at + header.compressed_page_size]
            at += header.compressed_page_size
            if header.dictionary_page_header is not None:
                page = header.dictionary_page_header
                yield True, page.encoding, page.num_values, body
            else:
                assert header.data_page_header is not None
                data_page = header.data_page_header
                yield False, data_page.encoding, data_page.num_values, body
