"""Files to encrypt, the places of their modules, and what is in them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Decryption, ParquetFile
from skipstone.parquet.encryption.file_decryptor import EncryptedFooter
from skipstone.parquet.encryption.modules import ModuleType, module_length
from skipstone.parquet.format.enums import PageType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


KEY = b"0123456789012345"
KEYS = {"s": b"1234567890123450" * 2, "l.list.element": b"1234567890123451"}
KEY_192 = b"123456789012345678901234"


def rows(count: int = 1000) -> pa.Table:
    """An int with nulls, text of few values, floats with NaN and both zeros, nothing, lists."""
    x = [(float("nan"), -0.0, 0.0, i / 3, None)[i % 5] for i in range(count)]
    return pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else i for i in range(count)], pa.int32()),
            "s": pa.array([f"é{i % 40}" for i in range(count)]),
            "x": pa.array(x, pa.float64()),
            "n": pa.nulls(count, pa.int64()),
            "l": pa.array(
                [[j * i for j in range(i % 3)] for i in range(count)], pa.list_(pa.int64())
            ),
        }
    )


def plain(path: Path, table: pa.Table | None = None, **options: object) -> Path:
    """Row groups of 400 rows, pages of 100, both indexes, checksums, a Bloom filter on a."""
    sink = io.BytesIO()
    table = rows() if table is None else table
    settings: dict[str, object] = {
        "row_group_size": 400,
        "max_rows_per_page": 100,
        "write_page_index": True,
        "write_page_checksum": True,
        "bloom_filter_options": {"a": {"ndv": 400, "fpp": 0.01}},
    }
    pq.write_table(table, sink, **(settings | options))
    path.write_bytes(sink.getvalue())
    return path


def equal(found: pa.Table, expected: pa.Table) -> bool:
    """NaN equals NaN, and -0.0 is not 0.0."""
    found = found.cast(expected.schema)
    names = [
        name
        for name, one, other in zip(
            expected.column_names, found.columns, expected.columns, strict=True
        )
        if pa.types.is_floating(one.type) or not one.equals(other)
    ]
    return repr(found.select(names).to_pydict()) == repr(expected.select(names).to_pydict())


class Module(NamedTuple):
    """A module at ``start`` to ``stop`` of a file."""

    type: ModuleType
    row_group: int
    column: int
    page: int
    start: int
    stop: int


def modules(path: Path, decryption: Decryption) -> Iterator[Module]:
    """Every module of an encrypted file, but metadata of columns that lie within the footer."""
    file, data = ParquetFile(path, decryption=decryption), path.read_bytes()
    for r, group in enumerate(file.metadata.row_groups):
        for c, chunk in enumerate(group.columns):
            if chunk.crypto_metadata is None:
                continue
            for page in file.chunk_pages.walk((r, c)):
                kinds = (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE)
                if page.header.type == PageType.DICTIONARY_PAGE:
                    kinds = (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE)
                body, end = page.offset + page.header_length, page.offset + page.size
                yield Module(kinds[0], r, c, page.ordinal, page.offset, body)
                yield Module(kinds[1], r, c, page.ordinal, body, end)
            for kind, start, length in (
                (ModuleType.COLUMN_INDEX, chunk.column_index_offset, chunk.column_index_length),
                (ModuleType.OFFSET_INDEX, chunk.offset_index_offset, chunk.offset_index_length),
            ):
                if start is not None and length is not None:
                    yield Module(kind, r, c, -1, start, start + length)
            start = chunk.meta_data.bloom_filter_offset if chunk.meta_data else None
            if start is not None:
                middle = start + module_length(data, start)
                end = middle + module_length(data, middle)
                yield Module(ModuleType.BLOOM_FILTER_HEADER, r, c, -1, start, middle)
                yield Module(ModuleType.BLOOM_FILTER_BITSET, r, c, -1, middle, end)
    tail = file.tail
    if tail.encrypted:
        footer = EncryptedFooter.from_bytes(data[tail.offset : -8], base=tail.offset)
        yield Module(ModuleType.FOOTER, -1, -1, -1, footer.offset, len(data) - 8)
