"""Decoding is bounded: what pages claim is checked against a limit before memory is allocated."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import FormatError, MemoryLimitError
from skipstone.parquet.encodings.rle import uleb128
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.pages.page import walk_pages
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

MANY = 100_000_000
LONG = "x" * (1 << 20)

LIMITED = """
import resource, sys
import skipstone
from skipstone.errors import MemoryLimitError
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]) << 20,) * 2)
file, table = skipstone.ParquetFile(sys.argv[1] + "/f.parquet"), skipstone.Table(sys.argv[1])
try:
    print(eval(sys.argv[2]))
except MemoryLimitError as error:
    print(f"{error.column} {error.needed} {error.limit}")
"""


def within(folder: Path, what: str, mebibytes: int) -> str:
    """What the expression gives in a process that may not take more memory."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder), what, str(mebibytes)],
        env=environment() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(params=["flat", "nested"])
def texts(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """4,096 rows of one string of 1 MiB."""
    codes = pa.array(np.zeros(4096, np.int32))
    strings: pa.Array = pa.DictionaryArray.from_arrays(codes, [LONG])
    if request.param == "nested":
        strings = pa.ListArray.from_arrays(np.arange(4097, dtype=np.int32), strings)
    table = pa.table({"id": range(4096), "s": strings})
    pq.write_table(
        table, tmp_path / "f.parquet", store_schema=False, dictionary_pagesize_limit=1 << 24
    )
    return tmp_path


def claiming(folder: Path, rows: int) -> Path:
    """A file of a few hundred bytes whose one page is runs of ``rows`` equal values."""
    out = io.BytesIO()
    pq.write_table(
        pa.table({"a": pa.array([7], pa.int32())}), out, store_schema=False, compression="none"
    )
    data = out.getvalue()
    metadata = read_metadata(data)
    (group,) = metadata.row_groups
    (chunk,) = group.columns
    meta = chunk.meta_data
    assert meta is not None
    assert meta.dictionary_page_offset is not None
    start = meta.dictionary_page_offset
    dictionary, page = walk_pages(data[start : start + meta.total_compressed_size], base=start)
    levels, indices = uleb128(rows << 1) + b"\x01", b"\x01" + uleb128(rows << 1) + b"\x00"
    body = len(levels).to_bytes(4, "little") + levels + indices
    inner = page.header.data_page_header
    assert inner is not None
    header = replace(
        page.header,
        uncompressed_page_size=len(body),
        compressed_page_size=len(body),
        crc=None,
        data_page_header=replace(inner, num_values=rows, statistics=None),
    ).to_bytes()
    pages = data[dictionary.offset : dictionary.stop] + header + body
    meta = replace(
        meta,
        num_values=rows,
        dictionary_page_offset=4,
        data_page_offset=4 + dictionary.stop - dictionary.offset,
        total_compressed_size=len(pages),
        total_uncompressed_size=len(pages),
        statistics=None,
        size_statistics=None,
    )
    group = replace(group, num_rows=rows, columns=(replace(chunk, meta_data=meta),))
    footer = replace(metadata, num_rows=rows, row_groups=(group,), column_orders=None).to_bytes()
    made = b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (folder / "f.parquet").write_bytes(made)
    return folder


def test_a_few_rows_of_a_long_string_take_the_memory_of_these_rows(texts: Path) -> None:
    assert within(texts, "file.read_rows(['s'], [(5, 10)]).num_rows", 1500) == "5"
    assert within(texts, "table.query('id between 3 and 6').num_rows", 1500) == "4"
    assert within(texts, "file.query('id = 3', ['id'])['id'].to_pylist()", 1500) == "[3]"


def test_all_rows_of_it_are_refused_before_they_are_made(texts: Path) -> None:
    told = within(texts, "file.read_rows(['s']).num_rows", 1500).split()
    assert told[0].startswith("s")
    assert int(told[1]) >= 4096 << 20
    assert int(told[2]) == 2 << 30


def test_the_limit_is_the_users(texts: Path) -> None:
    small = skipstone.ParquetFile(texts / "f.parquet", memory=16 << 20)
    assert small.read_rows(["s"], [(0, 2)]).num_rows == 2
    with pytest.raises(MemoryLimitError, match=r"f\.parquet.*column s.*--memory") as caught:
        small.read_rows(["s"], [(0, 40)])
    assert caught.value.limit == 16 << 20
    assert caught.value.needed >= 40 << 20
    with pytest.raises(MemoryLimitError):
        skipstone.Table(str(texts), memory=16 << 20).query("id < 40")
    assert skipstone.Table(str(texts), memory=256 << 20).query("id < 40").num_rows == 40
    assert small.count("id < 40") == 40


def test_runs_that_claim_many_values(tmp_path: Path) -> None:
    folder = claiming(tmp_path, MANY)
    assert within(folder, "file.count('a = 7')", 2600) == str(MANY)
    assert within(folder, "table.count('a = 7 or a is null')", 2600) == str(MANY)
    for what in ("file.count('a = 7')", "table.count('a = 7')", "file.read_rows(None, [(7, 9)])"):
        small = what.replace(
            "file", "skipstone.ParquetFile(sys.argv[1] + '/f.parquet', memory=1 << 20)"
        )
        small = small.replace("table", "skipstone.Table(sys.argv[1], memory=1 << 20)")
        assert within(folder, small, 1500).startswith("a 4"), what


def test_front_coded_strings_are_counted_before_they_are_made(tmp_path: Path) -> None:
    table = pa.table({"s": [LONG] * 500})
    pq.write_table(
        table, tmp_path / "f.parquet", use_dictionary=False,
        column_encoding={"s": "DELTA_BYTE_ARRAY"}, data_page_size=1 << 30,
    )  # fmt: skip
    assert skipstone.ParquetFile(tmp_path / "f.parquet").read_rows().equals(table)
    small = skipstone.ParquetFile(tmp_path / "f.parquet", memory=100 << 20)
    with pytest.raises((FormatError, MemoryLimitError), match=str(500 << 20)) as caught:
        small.read_rows(None, [(0, 3)])
    assert "memory" in str(caught.value)


def test_strings_beyond_two_gibibytes_come_in_several_chunks(tmp_path: Path) -> None:
    codes = pa.array(np.zeros(2100, np.int32))
    table = pa.table({"s": pa.DictionaryArray.from_arrays(codes, [LONG])})
    pq.write_table(
        table, tmp_path / "f.parquet", store_schema=False, dictionary_pagesize_limit=1 << 24
    )
    found = skipstone.ParquetFile(tmp_path / "f.parquet", memory=4 << 30).read_rows()
    assert found.num_rows == 2100
    assert found.column(0).num_chunks > 1
    assert {found.column(0)[at].as_py() for at in (0, 1023, 1024, 2099)} == {LONG}


@pytest.mark.parametrize("type", [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
])  # fmt: skip
@pytest.mark.parametrize("nulls", [False, True])
def test_strings_by_dictionary_are_those_of_the_file(
    tmp_path: Path, type: pa.DataType, nulls: bool
) -> None:
    """Every way to decode them, with pages that leave the dictionary in between."""
    words = [f"w{n % 7}" * (n % 5) for n in range(3000)] + [f"other {n}" for n in range(3000)]
    held = [None if nulls and n % 3 == 0 else word for n, word in enumerate(words)]
    values = pa.array(held, pa.string())
    values = values.cast(pa.binary()) if pa.types.is_large_binary(type) else values
    table = pa.table({"id": range(6000), "s": values.cast(type)})
    pq.write_table(
        table, tmp_path / "f.parquet", data_page_size=2000, dictionary_pagesize_limit=6000,
        row_group_size=3500, write_page_index=True,
    )  # fmt: skip
    file = skipstone.ParquetFile(tmp_path / "f.parquet", memory=1 << 20)
    assert file.read_rows().column("s").cast(values.type).to_pylist() == values.to_pylist()
    for start, stop in ((0, 1), (700, 1500), (2990, 3010), (3499, 3502), (0, 6000)):
        found = file.read_rows(["s"], [(start, stop)]).column(0).cast(values.type)
        assert found.to_pylist() == values.to_pylist()[start:stop]


def test_null_rows_of_a_missing_column_share_their_memory(tmp_path: Path) -> None:
    """2**31 rows of null, which a file of a hundred bytes may claim, are one chunk many times."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table({"b": [1]}), out, store_schema=False)
    metadata = read_metadata(out.getvalue())
    group = replace(metadata.row_groups[0], num_rows=1 << 31, columns=())
    footer = replace(
        metadata, schema=(replace(metadata.schema[0], num_children=0),), num_rows=1 << 31,
        row_groups=(group,), column_orders=None,
    ).to_bytes()  # fmt: skip
    made = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "f.parquet").write_bytes(made)
    what = "table.query('a is null').num_rows"
    assert within(tmp_path, what, 1500) == str(1 << 31)
