"""Walking from page to page: headers, what lies between, where chunks begin and end, checksums."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from skipstone.errors import FormatError
from skipstone.parquet.format.enums import CompressionCodec, Encoding, PageType, Type
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.metadata import (
    ColumnMetaData,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    IndexPageHeader,
    PageHeader,
    Statistics,
)
from skipstone.parquet.pages.page import Page, chunk_range, read_page, walk_pages
from skipstone.parquet.thrift.compact import BINARY, I32, Field
from tests.parquet.format.files import golden_files

if TYPE_CHECKING:
    from pathlib import Path

DATA = DataPageHeader(
    num_values=3,
    encoding=Encoding.PLAIN,
    definition_level_encoding=Encoding.RLE,
    repetition_level_encoding=Encoding.BIT_PACKED,
    statistics=Statistics(min=b"a", max=b"b" * 200, null_count=1),
)
V2 = DataPageHeaderV2(
    num_values=3,
    num_nulls=1,
    num_rows=2,
    encoding=Encoding.RLE_DICTIONARY,
    definition_levels_byte_length=1,
    repetition_levels_byte_length=2,
    is_compressed=False,
)


def stored(header: PageHeader, body: bytes) -> bytes:
    return header.to_bytes() + body


def data_page(body: bytes = b"0123456789ab", **given: Any) -> bytes:
    header = PageHeader(
        type=PageType.DATA_PAGE,
        uncompressed_page_size=12,
        compressed_page_size=len(body),
        data_page_header=DATA,
    )
    return stored(dataclasses.replace(header, **given), body)


def other_page(kind: int, body: bytes) -> bytes:
    header = PageHeader(
        type=kind,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        index_page_header=IndexPageHeader() if kind == PageType.INDEX_PAGE else None,
    )
    return stored(header, body)


def agrees(page: Page) -> bool:
    """What the quick walk found is what the whole header says."""
    header = page.header
    inner = header.data_page_header or header.dictionary_page_header or header.data_page_header_v2
    same = (page.type, page.uncompressed_page_size, page.compressed_page_size, page.crc) == (
        header.type,
        header.uncompressed_page_size,
        header.compressed_page_size,
        header.crc,
    )
    if inner is not None:
        for field in dataclasses.fields(inner):
            if field.name in Page._fields and field.name != "is_compressed":
                same = same and getattr(page, field.name) == getattr(inner, field.name)
    return same


def test_a_walk_finds_every_page_of_every_golden_file(golden: Path) -> None:
    pages = 0
    for path in golden_files(golden):
        data = path.read_bytes()
        metadata = read_metadata(data)
        for group in metadata.row_groups:
            for chunk in group.columns:
                meta = chunk.meta_data
                assert meta is not None
                start, stop = chunk_range(meta, file_size=len(data), created_by=metadata.created_by)
                at = start
                values = ordinal = 0
                walk = walk_pages(
                    memoryview(data)[start:stop], base=start, num_values=meta.num_values
                )
                for page in walk:
                    assert page.offset == at
                    assert agrees(page), path
                    assert bytes(page.body) == data[page.body_offset : page.stop]
                    at = page.stop
                    if page.is_data:
                        assert page.ordinal == ordinal
                        ordinal += 1
                        values += page.num_values
                    pages += 1
                assert values == meta.num_values, path
    # overflow_i16_page_cnt alone has 40,000, more than 16 bits count.
    assert pages > 40_900


def test_unknown_and_index_pages_are_passed_over_but_told() -> None:
    body = data_page() + other_page(PageType.INDEX_PAGE, b"xyz") + other_page(9, b"") + data_page()
    walk = list(walk_pages(body, base=100))
    assert [page.type for page in walk] == [PageType.DATA_PAGE, PageType.INDEX_PAGE, 9, 0]
    assert [page.ordinal for page in walk] == [0, -1, -1, 1]
    assert walk[0].offset == 100
    assert walk[-1].stop == 100 + len(body)


def test_a_walk_ends_with_the_values_or_with_the_bytes() -> None:
    body = data_page() * 3
    assert len(list(walk_pages(body))) == 3
    assert len(list(walk_pages(body, num_values=6))) == 2
    assert len(list(walk_pages(body, num_values=4))) == 2
    assert len(list(walk_pages(body + b"\xff\xff rubbish", num_values=9))) == 3
    assert not list(walk_pages(body, num_values=0))
    assert not list(walk_pages(b""))


def test_headers_with_anything_unusual_read_the_same() -> None:
    strange = PageHeader(
        type=PageType.DATA_PAGE_V2,
        uncompressed_page_size=3,
        compressed_page_size=3,
        crc=-1,
        data_page_header_v2=V2,
        unknown=(Field(40, BINARY, b"later"), Field(41, I32, 7)),
    )
    page = read_page(stored(strange, b"abc"))
    assert agrees(page)
    assert page.header == strange
    assert not page.is_compressed
    dictionary = PageHeader(
        type=PageType.DICTIONARY_PAGE,
        uncompressed_page_size=3,
        compressed_page_size=3,
        dictionary_page_header=DictionaryPageHeader(num_values=1, encoding=0, is_sorted=True),
    )
    page = read_page(stored(dictionary, b"abc"))
    assert agrees(page)
    assert (page.ordinal, page.num_values) == (-1, 1)


@pytest.mark.parametrize(
    "given",
    [
        {"compressed_page_size": 13},
        {"compressed_page_size": -1},
        {"uncompressed_page_size": -5},
        {"data_page_header": None},
        {"data_page_header": dataclasses.replace(DATA, num_values=-1)},
        {"type": PageType.DATA_PAGE_V2},
    ],
)
def test_lying_headers(given: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        list(walk_pages(data_page(**given), base=7))


def test_every_cut_of_a_chunk_is_refused_or_ends_with_a_page() -> None:
    body = data_page() + other_page(PageType.INDEX_PAGE, b"xyz") + data_page()
    ends = {page.stop for page in walk_pages(body)} | {0}
    for cut in range(len(body)):
        if cut in ends:
            assert all(page.stop <= cut for page in walk_pages(body[:cut]))
        else:
            with pytest.raises(FormatError):
                list(walk_pages(body[:cut]))


# -- checksums -------------------------------------------------------------------------------------


def test_checksums_cover_the_stored_body() -> None:
    import zlib

    body = b"0123456789ab"
    assert read_page(data_page(body)).crc_matches() is None
    right = zlib.crc32(body)
    signed = right - (1 << 32) if right >> 31 else right
    page = read_page(data_page(body, crc=signed))
    assert page.crc_matches() is True
    page.verify_crc()
    wrong = read_page(data_page(body, crc=signed ^ 1), base=50)
    assert wrong.crc_matches() is False
    with pytest.raises(FormatError, match="checksum") as caught:
        wrong.verify_crc()
    assert caught.value.offset == wrong.body_offset


# -- where chunks lie ------------------------------------------------------------------------------


def meta(**given: Any) -> ColumnMetaData:
    made = ColumnMetaData(
        type=Type.INT32,
        encodings=(),
        codec=CompressionCodec.UNCOMPRESSED,
        num_values=1,
        total_uncompressed_size=100,
        total_compressed_size=100,
        data_page_offset=50,
    )
    return dataclasses.replace(made, **given)


def test_the_dictionary_counts_only_where_it_can_be() -> None:
    assert chunk_range(meta(), file_size=1000) == (50, 150)
    assert chunk_range(meta(dictionary_page_offset=20), file_size=1000) == (20, 120)
    assert chunk_range(meta(dictionary_page_offset=0), file_size=1000) == (50, 150)
    assert chunk_range(meta(dictionary_page_offset=50), file_size=1000) == (50, 150)
    assert chunk_range(meta(dictionary_page_offset=70), file_size=1000) == (50, 150)
    assert chunk_range(meta(dictionary_page_offset=-3), file_size=1000) == (50, 150)


@pytest.mark.parametrize(
    "created_by, allowance",
    [
        ("parquet-mr", 100),
        ("parquet-mr version 1.2.8 (build x)", 100),
        ("parquet-mr version 1.1.0", 100),
        ("parquet-mr version 1.2.9", 0),
        ("parquet-mr version 1.12.3 (build x)", 0),
        ("parquet-mr version 1.20.0", 0),
        ("parquet-mr version 2.0.0", 0),
        ("parquet-cpp-arrow version 1.0.0", 0),
        (None, 0),
    ],
)
def test_old_writers_left_a_header_out_of_the_size(created_by: str | None, allowance: int) -> None:
    found = chunk_range(meta(), file_size=1000, created_by=created_by)
    assert found == (50, 150 + allowance)
    assert chunk_range(meta(), file_size=160, created_by=created_by)[1] <= 160


@pytest.mark.parametrize(
    "given",
    [
        {"data_page_offset": -1},
        {"total_compressed_size": -1},
        {"data_page_offset": 950},
        {"total_compressed_size": 1 << 62},
    ],
)
def test_chunks_outside_the_file(given: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        chunk_range(meta(**given), file_size=1000)
