"""What a file says of itself, as tables and as values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.page_index import OffsetIndex
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two row groups of 50 rows in pages of 10; ``s`` has a dictionary, ``l`` lists of two."""
    table = pa.table(
        {
            "n": pa.array(range(100)),
            "s": pa.array([None if n % 10 == 3 else f"v{n % 4}" for n in range(100)]),
            "l": pa.array([[n, n] for n in range(100)]),
        }
    )
    made = tmp_path / "t.parquet"
    pq.write_table(
        table, made, row_group_size=50, max_rows_per_page=10, write_batch_size=10,
        use_dictionary=["s"], write_page_index=True, write_page_checksum=True,
        bloom_filter_options={"s": {"ndv": 4, "fpp": 0.01}},
    )  # fmt: skip
    return made


def test_tables_of_row_groups_chunks_and_pages(path: Path) -> None:
    file = ParquetFile(str(path))
    assert file.row_groups().column("num_rows").to_pylist() == [50, 50]
    assert file.chunks().num_rows == 6
    pages = file.pages()
    assert pages.num_rows == 2 * (5 + 6 + 5)
    of_s = pages.filter(pc.equal(pages["column"], "s")).slice(0, 6).to_pylist()
    assert [page["page_type"] for page in of_s] == ["DICTIONARY_PAGE", *["DATA_PAGE"] * 5]
    assert [page["first_row_index"] for page in of_s] == [None, 0, 10, 20, 30, 40]
    assert [page["null_count"] for page in of_s[1:]] == [1] * 5
    assert {page["min_text"] for page in of_s[1:]} == {"v0"}
    lists = file.pages(["l"]).slice(0, 5).to_pylist()
    assert [page["num_values"] for page in lists] == [20] * 5
    assert [page["num_rows"] for page in lists] == [10] * 5


def test_values_of_one_chunk(path: Path) -> None:
    file = ParquetFile(str(path))
    where, bounds = file.offset_index(1, "n"), file.column_index(1, "n")
    assert where is not None
    assert bounds is not None
    assert where.first_row_index.tolist() == [0, 10, 20, 30, 40]
    assert len(bounds) == 5
    headers = file.page_headers(0, "s")
    assert [header.type for header in headers] == [
        PageType.DICTIONARY_PAGE,
        *[PageType.DATA_PAGE] * 5,
    ]
    assert all(header.crc is not None for header in headers)
    assert file.bloom_filter(0, "n") is None
    assert file.bloom_filter(0, "s") is not None
    assert file.metadata.num_rows == 100
    assert file.offset_index(0, "l") is not None  # the one leaf below it


def test_names_of_chunks_are_checked(path: Path) -> None:
    file = ParquetFile(str(path))
    with pytest.raises(SkipstoneError, match="no row group 2"):
        file.page_headers(2, "n")
    with pytest.raises(SkipstoneError, match="no column 'm'"):
        file.page_headers(0, "m")


def test_a_file_without_a_page_index_says_none(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"n": [1, 2]}), path)
    file = ParquetFile(path)
    assert file.offset_index(0, "n") is None
    assert file.column_index(0, "n") is None
    assert file.pages().filter(pc.equal(file.pages()["page_type"], "DATA_PAGE")).num_rows == 1


def test_damage_is_named(path: Path) -> None:
    where = ParquetFile(str(path)).footer.chunk("offset_index_offset")[0, 0]
    data = bytearray(path.read_bytes())
    data[where] = 0xFF
    path.write_bytes(data)
    file = ParquetFile(str(path))
    with pytest.raises(FormatError, match=r"t\.parquet"):
        file.offset_index(0, "n")
    with pytest.raises(FormatError, match=r"t\.parquet"):
        file.read_rows(["n"], [(3, 4)])
    assert file.read_rows(["s"], [(3, 4)]).to_pylist() == [{"s": None}]
    assert file.count("n = 77") == 1
    whole = path.read_bytes()
    for cut in (0, 3, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FormatError, match=r"t\.parquet"):
            ParquetFile(str(path))


def test_an_offset_index_is_checked_wherever_it_lies(path: Path) -> None:
    """The last page of a chunk of 50 rows begins with row 60, also to a file that names this one,
    and to a reader of rows."""
    summary = path.with_name("_metadata")
    found = pq.ParquetFile(path).metadata
    found.set_file_path(path.name)
    found.write_metadata_file(summary)
    chunk = ParquetFile(str(path)).metadata.row_groups[0].columns[0]
    offset, length = chunk.offset_index_offset, chunk.offset_index_length
    assert offset is not None
    assert length is not None
    data = path.read_bytes()
    index = OffsetIndex.from_bytes(data[offset : offset + length])
    *others, last = index.page_locations
    lie = replace(index, page_locations=(*others, replace(last, first_row_index=60))).to_bytes()
    assert len(lie) == length
    path.write_bytes(data[:offset] + lie + data[offset + length :])
    for name in (path, summary):
        with pytest.raises(FormatError, match="a page past the rows of its row group") as error:
            ParquetFile(str(name)).offset_index(0, "n")
        assert error.value.file == str(path)
    with pytest.raises(FormatError, match="a page past the rows of its row group") as error:
        ParquetFile(str(path)).read_rows(["n"], [(3, 5)])
    assert (error.value.file, error.value.offset) == (str(path), offset)
