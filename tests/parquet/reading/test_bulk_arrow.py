"""Columns of many files that Arrow decodes as one, before compiled code is there."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone
from skipstone.errors import FormatError
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    FileMetaData,
    PageHeader,
)
from skipstone.parquet.reading.bulk_chunks import KERNELS
from tests.fuzz.mutate import mutated
from tests.parquet.reading.bulk import by_arrow, opened, part, read_together, same

if TYPE_CHECKING:
    from pathlib import Path

FILES = 20
TYPES = [
    pa.int64(), pa.int32(), pa.int8(), pa.uint16(), pa.float32(), pa.float64(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.time64("us"), pa.decimal128(9, 2),
    pa.decimal128(18, 6),
]  # fmt: skip


def lay(folder: Path, type: pa.DataType, *, nulls: bool = True, **options: Any) -> list[Path]:
    """Files of different lengths, of two row groups each; half of the values repeat."""
    paths = []
    for number in range(FILES):
        rows = 40 + 3 * number
        values = (np.arange(rows) % (rows // 2) + 1).tolist()
        if pa.types.is_decimal(type):
            column = pa.array([Decimal(value) for value in values], type)
        else:
            width = pa.int32() if pa.types.is_date(type) else pa.int64()
            column = pa.array(values, width).cast(type)
        if nulls:
            column = pa.array([*column.to_pylist()[:-1], None], type)
        paths.append(folder / f"{number}.parquet")
        pq.write_table(pa.table({"a": column}), paths[-1], row_group_size=rows // 2 + 1, **options)
    return paths


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "compression": "zstd", "nulls": False},
        {"data_page_version": "2.0", "compression": "none", "write_page_checksum": True},
    ],
)
def test_files_of_one_writer_are_decoded(
    tmp_path: Path, type: pa.DataType, options: dict[str, Any]
) -> None:
    paths = lay(tmp_path, type, store_decimal_as_integer=True, **options)
    found = read_together([opened(path) for path in paths], ["a"], None)
    assert found is not None
    assert found.done.all()
    found.arrays[0].validate(full=True)
    for number, path in enumerate(paths):
        assert same(part(found, 0, number), by_arrow(path, "a", type)), path


@pytest.mark.parametrize("times", [1, 2, FILES])
def test_few_files_too(tmp_path: Path, times: int) -> None:
    path = lay(tmp_path, pa.int64())[0]
    found = read_together([opened(path)] * times, ["a"], None)
    assert found is not None
    assert found.done.all()
    assert same(part(found, 0, times - 1), by_arrow(path, "a"))


def test_a_chunk_of_another_number_of_values_moves_no_others(tmp_path: Path) -> None:
    """One footer claims a row more than there is, another one less: the sum is right."""
    paths = lay(tmp_path, pa.int64(), nulls=False, use_dictionary=False)
    for path, rows, claimed in ((paths[3], 25, 26), (paths[4], 27, 26)):
        data = path.read_bytes()
        assert pq.read_metadata(path).row_group(0).num_rows == rows
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        # num_values of the chunk, and num_rows of the row group: 0x16 and a zigzag varint.
        old, new = bytes([0x16, 2 * rows]), bytes([0x16, 2 * claimed])
        assert data[footer:].count(old) >= 2
        path.write_bytes(data[:footer] + data[footer:].replace(old, new))
        assert opened(path).row_group_rows[2][0] == claimed
    found = read_together([opened(path) for path in paths], ["a"], None)
    assert found is not None
    assert not found.done.any()


def test_texts_of_an_encoding_that_the_footer_does_not_list_are_left_alone(tmp_path: Path) -> None:
    """Prefixes that repeat may take any size: the bytes of the pages do not say it."""
    files = []
    for number in range(FILES):
        path = tmp_path / f"{number}.parquet"
        rows = pa.table({"a": ["a" * 5_000] * 200})
        pq.write_table(rows, path, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
        data = path.read_bytes()
        stop = len(data) - 8
        start = stop - int.from_bytes(data[stop : stop + 4], "little")
        footer = FileMetaData.from_bytes(data[start:stop])
        (group,) = footer.row_groups
        (chunk,) = group.columns
        assert chunk.meta_data is not None
        told = replace(chunk.meta_data, encodings=(Encoding.PLAIN, Encoding.RLE))
        lying = replace(group, columns=(replace(chunk, meta_data=told),))
        made = replace(footer, row_groups=(lying,)).to_bytes()
        path.write_bytes(data[:start] + made + len(made).to_bytes(4, "little") + b"PAR1")
        files.append(opened(path))
    found = read_together(files, ["a"], None)
    assert found is not None
    assert not found.done.any()
    assert files[0].read_rows(["a"]).column(0).to_pylist() == ["a" * 5_000] * 200


def _header(type: PageType, size: int, values: tuple[int, int]) -> bytes:
    """A page header with the structs of both versions, each with its number of values."""
    return PageHeader(
        type=type,
        uncompressed_page_size=size,
        compressed_page_size=size,
        data_page_header=DataPageHeader(
            num_values=values[0],
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
        data_page_header_v2=DataPageHeaderV2(
            num_values=values[1],
            num_nulls=0,
            num_rows=values[1],
            encoding=Encoding.PLAIN,
            definition_levels_byte_length=0,
            repetition_levels_byte_length=0,
        ),
    ).to_bytes()


def test_values_of_a_struct_that_is_not_of_the_type_of_its_page_move_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chunk has no values, and a later one twice as many: the other structs hide both."""
    monkeypatch.setattr(KERNELS, "disabled", True)
    rows, field = 40, pa.field("a", pa.int64(), nullable=False)
    for number in range(FILES):
        path = tmp_path / f"{number:02}.parquet"
        values = np.arange(number * rows, (number + 1) * rows)
        table = pa.table([pa.array(values)], schema=pa.schema([field]))
        pq.write_table(table, path, use_dictionary=False, compression="none")
        data, body = path.read_bytes(), values.tobytes()
        stop = len(data) - 8
        footer = FileMetaData.from_bytes(
            data[stop - int.from_bytes(data[stop : stop + 4], "little") : stop]
        )
        if number == 8:
            page = _header(PageType.INDEX_PAGE, len(body), (rows, rows)) + body
        elif number == 12:
            page = _header(PageType.DATA_PAGE, 2 * len(body), (2 * rows, rows)) + 2 * body
        else:
            page = _header(PageType.DATA_PAGE, len(body), (rows, rows)) + body
        (group,) = footer.row_groups
        (chunk,) = group.columns
        assert chunk.meta_data is not None
        meta = replace(
            chunk.meta_data,
            data_page_offset=4,
            total_compressed_size=len(page),
            total_uncompressed_size=len(page),
        )
        chunks = (replace(chunk, meta_data=meta),)
        made = replace(footer, row_groups=(replace(group, columns=chunks),)).to_bytes()
        path.write_bytes(b"PAR1" + page + made + len(made).to_bytes(4, "little") + b"PAR1")
    table = skipstone.Table(str(tmp_path))
    with pytest.raises(FormatError, match="values"):
        table.query()


@given(st.integers(0, 1 << 32), st.integers(0, FILES - 1))
def test_damaged_pages_are_refused_or_read_as_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, number: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    paths = lay(folder, pa.int32())
    data = paths[number].read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    pages = mutated(data[4:-footer] + bytes(8), seed)[: len(data) - footer - 4]
    paths[number].write_bytes(
        data[:4] + pages.ljust(len(data) - footer - 4, b"\0") + data[-footer:]
    )
    files = [opened(path) for path in paths]
    found = read_together(files, ["a"], None)
    assert found is not None
    if not found.done.all():
        return
    for at, file in enumerate(files):
        if at != number:
            assert same(part(found, 0, at), by_arrow(file.path, "a"))
    try:
        alone = files[number].read_rows(["a"]).column(0).combine_chunks()
    except (ValueError, OSError):
        return
    assert same(part(found, 0, number), alone)
