"""Takes the encryption off a whole file in memory, so that Arrow can say what is in it.

Every page header and page of every readable column goes through the decryptors, and every offset
index, column index and Bloom filter is checked against them on the way; columns without a key are
left out of the plain file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.encryption.modules import GCM_OVERHEAD, ModuleType, module_length
from skipstone.parquet.encryption.open_footer import DecryptedFooter, chunk_decryptor, open_footer
from skipstone.parquet.format.bloom_filter import BloomFilterHeader
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC, Tail
from skipstone.parquet.format.metadata import PageHeader
from skipstone.parquet.format.page_index import ColumnIndex, OffsetIndex
from skipstone.parquet.thrift.compact import Reader
from tests.parquet.whole_file import with_instants

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData


@dataclass
class Seen:
    """How many modules of each kind were decrypted."""

    pages: int = 0
    dictionaries: int = 0
    v2_pages: int = 0
    column_indexes: int = 0
    offset_indexes: int = 0
    bloom_filters: dict[tuple[int, str], tuple[BloomFilterHeader, bytes]] = field(
        default_factory=dict
    )


def open_bytes(
    data: bytes,
    decryption: Decryption | None,
    *,
    file: str | None = None,
    load_key_material: Callable[[], bytes] | None = None,
) -> DecryptedFooter:
    """``open_footer`` of a whole file."""
    tail = Tail.from_bytes(data[-8:], len(data))
    return open_footer(
        data[tail.offset : -8],
        encrypted=tail.encrypted,
        base=tail.offset,
        decryption=decryption,
        file=file,
        load_key_material=load_key_material,
    )


def plain_table(
    data: bytes, opened: DecryptedFooter, *, instants: bool = False
) -> tuple[pa.Table, Seen]:
    """The rows of the columns whose keys are there, as Arrow reads them; with ``instants`` INT96 as
    Skipstone does."""
    footer, seen = opened.footer, Seen()
    out = bytearray(MAGIC)
    row_groups = []
    kept = [c for c in range(footer.num_leaves) if c not in opened.unavailable]
    for r, group in enumerate(footer.metadata.row_groups):
        columns = []
        for c in kept:
            chunk = footer.column_chunk(r, c)
            column = None
            if opened.decryptor is not None:
                column = chunk_decryptor(footer, opened.decryptor, r, c)
            columns.append(_chunk(data, out, chunk, column, seen, r))
        row_groups.append(
            replace(group, columns=tuple(columns), sorting_columns=None, file_offset=None)
        )
    assert kept == list(range(footer.num_leaves)) or all(
        len(leaf.path) == 1 for leaf in footer.schema.leaves
    )
    schema = footer.metadata.schema
    if len(kept) < footer.num_leaves:
        root = replace(schema[0], num_children=len(kept))
        schema = (root, *(schema[1 + c] for c in kept))
    metadata = replace(
        footer.metadata,
        schema=schema,
        row_groups=tuple(row_groups),
        encryption_algorithm=None,
        footer_signing_key_metadata=None,
        column_orders=None,
        key_value_metadata=None,
    ).to_bytes()
    out += metadata + len(metadata).to_bytes(4, "little") + MAGIC
    plain = pa.BufferReader(bytes(out))
    if not instants:
        return pq.read_table(plain), seen
    file = pq.ParquetFile(plain, coerce_int96_timestamp_unit="us")
    return with_instants(file.read(), file.schema), seen


def _chunk(
    data: bytes,
    out: bytearray,
    chunk: ColumnChunk,
    column: ColumnDecryptor | None,
    seen: Seen,
    row_group: int,
) -> ColumnChunk:
    meta = chunk.meta_data
    assert meta is not None
    at = meta.dictionary_page_offset or meta.data_page_offset
    stop = at + meta.total_compressed_size
    start = len(out)
    dictionary_at: int | None = None
    data_at: int | None = None
    places: list[tuple[int, int]] = []
    while at < stop:
        page_at = at
        if column is None:
            reader = Reader(data, at)
            header, is_dictionary = PageHeader.read(reader), False
            at = reader.at
        else:
            plain, at, is_dictionary = column.decrypt_page_header(
                data,
                at,
                len(places),
                may_be_dictionary=page_at == stop - meta.total_compressed_size,
            )
            header = PageHeader.from_bytes(plain)
            assert is_dictionary == (header.type == PageType.DICTIONARY_PAGE)
        body = data[at : at + header.compressed_page_size]
        at += header.compressed_page_size
        if header.type == PageType.DICTIONARY_PAGE:
            dictionary_at = len(out)
            seen.dictionaries += 1
        else:
            data_at = len(out) if data_at is None else data_at
        if column is not None:
            ordinal = None if is_dictionary else len(places)
            body = column.decrypt_page(header, body, ordinal, base=page_at)
        if header.type != PageType.DICTIONARY_PAGE:
            places.append((page_at, at - page_at))
            seen.pages += 1
            seen.v2_pages += header.data_page_header_v2 is not None
        out += replace(header, compressed_page_size=len(body), crc=None).to_bytes() + body
    assert at == stop
    assert data_at is not None
    if column is not None:
        _check_indexes(data, chunk, meta, column, places, seen, row_group)
    return replace(
        chunk,
        file_offset=start,
        meta_data=replace(
            meta,
            data_page_offset=data_at,
            dictionary_page_offset=dictionary_at,
            total_compressed_size=len(out) - start,
            bloom_filter_offset=None,
            bloom_filter_length=None,
        ),
        crypto_metadata=None,
        encrypted_column_metadata=None,
        offset_index_offset=None,
        offset_index_length=None,
        column_index_offset=None,
        column_index_length=None,
    )


def _check_indexes(
    data: bytes,
    chunk: ColumnChunk,
    meta: ColumnMetaData,
    column: ColumnDecryptor,
    places: list[tuple[int, int]],
    seen: Seen,
    row_group: int,
) -> None:
    if chunk.offset_index_offset is not None and chunk.offset_index_length is not None:
        at = chunk.offset_index_offset
        module = data[at : at + chunk.offset_index_length]
        plain = column.decrypt(ModuleType.OFFSET_INDEX, module, base=at)
        found = OffsetIndex.from_bytes(plain).page_locations
        assert [(each.offset, each.compressed_page_size) for each in found] == places
        seen.offset_indexes += 1
    if chunk.column_index_offset is not None and chunk.column_index_length is not None:
        at = chunk.column_index_offset
        module = data[at : at + chunk.column_index_length]
        plain = column.decrypt(ModuleType.COLUMN_INDEX, module, base=at)
        assert len(ColumnIndex.from_bytes(plain).null_pages) == len(places)
        seen.column_indexes += 1
    if meta.bloom_filter_offset is not None:
        at = meta.bloom_filter_offset
        size = module_length(data, at)
        size += module_length(data, at + size)
        assert meta.bloom_filter_length in (None, size)
        head, stop = column.decrypt_at(ModuleType.BLOOM_FILTER_HEADER, data, at)
        bitset, stop = column.decrypt_at(ModuleType.BLOOM_FILTER_BITSET, data, stop)
        assert stop == at + size
        header = BloomFilterHeader.from_bytes(head)
        assert header.numBytes == len(bitset)
        assert column.encrypted_length(len(bitset), ModuleType.BLOOM_FILTER_BITSET) == (
            len(bitset) + GCM_OVERHEAD
        )
        seen.bloom_filters[row_group, column.name] = header, bitset
