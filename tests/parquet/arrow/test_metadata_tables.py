"""Metadata as Arrow tables: every chunk, every page, and bounds that people can read."""

from __future__ import annotations

import datetime
import io
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.arrow.metadata_tables import chunks, gathered, readable, row_groups
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.reading.file import ParquetFile
from tests.parquet.format.files import golden_files
from tests.parquet.format.wire import footer_of

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.format.schema import ColumnDescriptor


def written(table: pa.Table, **options: Any) -> tuple[bytes, FooterArrays]:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    data = file.getvalue()
    tail = Tail.from_bytes(data[-TAIL_LENGTH:], len(data))
    return data, FooterArrays.scan(data[tail.offset : -TAIL_LENGTH], tail.offset)


TABLE = pa.table(
    {
        "é %": pa.array([3, None, 1, 7, 5, 6], pa.int32()),
        "s": pa.array(["b", "a", None, "ab", "x", "y"]),
        "l": pa.array([[1.5], [], None, [2.5, -0.0], [1.0], [1.0]], pa.list_(pa.float64())),
    }
)


def test_chunks_say_what_arrow_says() -> None:
    data, footer = written(
        TABLE,
        row_group_size=4,
        compression="zstd",
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(0, descending=True)],
    )
    theirs = pq.read_metadata(io.BytesIO(data))
    rows = chunks(footer).to_pylist()
    assert len(rows) == 6
    for row in rows:
        column = theirs.row_group(row["row_group"]).column(row["leaf"])
        assert row["column"].replace("`", "") == column.path_in_schema
        assert row["type"] == column.physical_type
        assert row["codec"] == column.compression == "ZSTD"
        assert set(row["encodings"]) == set(column.encodings)
        for name in (
            "num_values",
            "data_page_offset",
            "dictionary_page_offset",
            "total_compressed_size",
            "total_uncompressed_size",
        ):
            assert row[name] == getattr(column, name)
        assert row["null_count"] == column.statistics.null_count
        shown = str(column.statistics.min).removesuffix(".0")
        assert row["min_text"] == shown
        assert row["is_min_value_exact"] is row["is_max_value_exact"] is True
        assert row["offset_index_offset"] > 0
        assert row["bloom_filter_offset"] is None
        assert row["nan_count"] is None
        assert row["dict_only"] is True
        assert (row["encrypted"], row["has_meta_data"]) == (False, True)
    groups = row_groups(footer).to_pylist()
    assert [(each["num_rows"], each["first_row"]) for each in groups] == [(4, 0), (2, 4)]
    assert groups[0]["sorting_columns"] == [
        {"column": rows[0]["column"], "descending": True, "nulls_first": False}
    ]


def test_tables_of_golden_files_have_a_row_for_each_chunk(golden: Path) -> None:
    for path in golden_files(golden):
        footer = FooterArrays.scan(*footer_of(path))
        table = chunks(footer)
        assert table.num_rows == footer.num_row_groups * footer.num_leaves
        assert row_groups(footer)["num_rows"].to_pylist() == footer.group("num_rows").tolist()
        for side in ("min", "max"):
            text, new, old = (table[f"{side}{end}"] for end in ("_text", "_value", ""))
            for shown, value, deprecated in zip(text, new, old, strict=True):
                assert shown.is_valid == (value.is_valid or deprecated.is_valid)


def test_pages_out_of_the_index_and_out_of_the_headers_agree(tmp_path: Path) -> None:
    found = {}
    for indexed in (False, True):
        path = tmp_path / f"{indexed}.parquet"
        pq.write_table(
            TABLE,
            path,
            row_group_size=4,
            max_rows_per_page=2,
            write_batch_size=1,
            data_page_size=1,
            write_page_index=indexed,
            write_page_checksum=True,
            use_dictionary=["s"],
        )
        found[indexed] = ParquetFile(path).pages().to_pylist()
    assert len(found[True]) == len(found[False]) > 8
    for ours, theirs in zip(found[True], found[False], strict=True):
        for name in ("row_group", "column", "page", "uncompressed_page_size", "encoding", "crc"):
            assert ours[name] == theirs[name]
        if theirs["column"] != "l.list.element":
            assert ours["num_rows"] == theirs["num_rows"]
            assert ours["first_row_index"] == theirs["first_row_index"]
        assert theirs["crc"] is not None
        assert theirs["min_value"] is theirs["null_page"] is None
    # Arrow puts the 3 alone on the first page, the null and the 1 on the second.
    first, second = [each for each in found[True] if each["page_type"] == "DATA_PAGE"][:2]
    assert (first["min_text"], first["max_text"], first["null_count"]) == ("3", "3", 0)
    assert (second["min_text"], second["max_text"], second["null_count"]) == ("1", "1", 1)
    others = {each["encoding"] for each in found[True] if each["page_type"] != "DATA_PAGE"}
    assert others == {"PLAIN"}


def test_a_null_page_has_no_bounds(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([None, None, 0, 0], pa.int64())})
    path = tmp_path / "a.parquet"
    options = {"max_rows_per_page": 2, "write_batch_size": 1, "use_dictionary": False}
    pq.write_table(rows, path, write_page_index=True, **options)
    found = ParquetFile(path).pages().to_pylist()
    assert [each["null_page"] for each in found] == [True, False]
    assert [each["min_text"] for each in found] == [None, "0"]
    assert [each["null_count"] for each in found] == [2, 0]


def test_no_pages_make_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    file = ParquetFile(path)
    assert file.pages([]).num_rows == 0
    assert file.pages([]).schema == file.pages().schema


def leaf_of(type_: pa.DataType) -> ColumnDescriptor:
    _, footer = written(pa.table({"c": pa.array([], type_)}))
    return footer.schema.leaves[0]


@pytest.mark.parametrize(
    "type_, value, text",
    [
        (pa.bool_(), b"\x01", "true"),
        (pa.int8(), struct.pack("<i", -5), "-5"),
        (pa.uint32(), b"\xff\xff\xff\xff", "4294967295"),
        (pa.uint64(), b"\xff" * 8, "18446744073709551615"),
        (pa.float64(), struct.pack("<d", float("nan")), "nan"),
        (pa.float64(), struct.pack("<d", -0.0), "-0"),
        (pa.float16(), struct.pack("<e", 1.5), "1.5"),
        (pa.date32(), struct.pack("<i", -1), "1969-12-31"),
        (pa.time32("ms"), struct.pack("<i", 1), "00:00:00.001"),
        (pa.timestamp("us", "UTC"), struct.pack("<q", 1), "1970-01-01 00:00:00.000001Z"),
        (pa.timestamp("ns"), struct.pack("<q", 1), "1970-01-01 00:00:00.000000001"),
        (pa.decimal128(9, 2), struct.pack(">i", -12345), "-123.45"),
        (pa.decimal128(38, 0), (-7).to_bytes(16, "big", signed=True), "-7"),
        (pa.string(), "é".encode(), "é"),
        (pa.string(), b"caf\xc3", "caf\\xc3"),
        (pa.binary(), b"text", "text"),
        (pa.binary(), b"\x00\x01", "0x0001"),
        (pa.binary(), b"", "0x"),
        (pa.uuid(), bytes(range(16)), str(UUID(bytes=bytes(range(16))))),
        # What does not fit its type.
        (pa.int32(), b"\x01", "0x01"),
        (pa.float64(), b"", "0x"),
        (pa.decimal128(38, 0), b"\x01", "0x01"),
    ],
)
def test_bounds_read_as_their_type(type_: pa.DataType, value: bytes, text: str) -> None:
    found = readable(pa.array([None, value, None], pa.binary()), leaf_of(type_))
    assert found.to_pylist() == [None, text, None]


def test_instants_of_int96() -> None:
    elements = [SchemaElement(name="r", num_children=1), SchemaElement(name="t", type=Type.INT96)]
    leaf = Schema.of(elements).leaves[0]
    day = datetime.date(2001, 2, 3).toordinal() - datetime.date(1970, 1, 1).toordinal()
    value = struct.pack("<qi", 5 * 10**9, 2_440_588 + day)
    found = readable(pa.array([value], pa.binary()), leaf)
    assert found.to_pylist() == ["2001-02-03 00:00:05.000000Z"]


def test_decimals_of_golden_files_read_as_numbers(golden: Path) -> None:
    path = golden / "parquet-testing" / "data" / "int32_decimal.parquet"
    row = chunks(FooterArrays.scan(*footer_of(path))).to_pylist()[0]
    assert (Decimal(row["min_text"]), Decimal(row["max_text"])) == (Decimal(1), Decimal(24))


def test_gathering_places() -> None:
    buffer = np.frombuffer(b"abcdef", np.uint8)
    start, length = np.array([4, -1, 0, 3]), np.array([2, -1, 3, 0])
    found = gathered(buffer, start, length)
    found.validate(full=True)
    assert found.to_pylist() == [b"ef", None, b"abc", b""]
    assert gathered(buffer, start[:0], length[:0]).to_pylist() == []
