"""Nulls that stand for damaged pages: in the place of what was lost, and nowhere else."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.pages.page import chunk_range, walk_pages
from skipstone.salvage import salvage
from tests.parquet.format.files import same_table

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 400


def table() -> pa.Table:
    """Structs and fields of them that may be null, or not; maps; lists of structs."""
    person = pa.struct([pa.field("age", pa.int32()), pa.field("town", pa.string(), False)])
    pairs = pa.list_(pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.float64())]))
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "who": pa.array(
                [
                    None if i % 5 == 0 else {"age": None if i % 3 == 0 else i, "town": f"t{i}"}
                    for i in range(ROWS)
                ],
                person,
            ),
            "alone": pa.array([{"z": i} for i in range(ROWS)], pa.struct([("z", pa.int16())])),
            "tags": pa.array([None if i % 7 == 0 else [f"x{i}"] * (i % 3) for i in range(ROWS)]),
            "pairs": pa.array(
                [[{"x": j, "y": None if j else 0.5} for j in range(i % 4)] for i in range(ROWS)],
                pairs,
            ),
            "map": pa.array(
                [[(f"k{j}", i) for j in range(i % 3)] for i in range(ROWS)],
                pa.map_(pa.string(), pa.int64()),
            ),
        },
        schema=None,
    )


def damaged(rows: pa.Table, name: str, page: int = 1, **options: Any) -> tuple[bytes, int, int]:
    """A file of one row group with a wrong byte in a page of a column; the rows of that page."""
    sink = io.BytesIO()
    given: dict[str, Any] = {
        "data_page_version": "2.0",
        "write_page_checksum": True,
        "use_dictionary": False,
        "data_page_size": 300,
        "write_batch_size": 50,
    }
    pq.write_table(rows, sink, **{**given, **options})
    data = bytearray(sink.getvalue())
    for chunk in read_metadata(bytes(data)).row_groups[0].columns:
        meta = chunk.meta_data
        assert meta is not None
        if ".".join(meta.path_in_schema or ()) == name:
            start, stop = chunk_range(meta, file_size=len(data))
            pages = list(walk_pages(bytes(data[start:stop]), base=start))
            wrong = [each for each in pages if each.is_data][page]
            data[wrong.stop - 1] ^= 0x55
            counts = [each.num_rows or each.num_values for each in pages if each.is_data]
            return bytes(data), sum(counts[:page]), sum(counts[: page + 1])
    raise AssertionError(name)


def saved(tmp_path: Path, data: bytes) -> tuple[pa.Table | None, Any]:
    (tmp_path / "x").write_bytes(data)
    report = salvage(str(tmp_path / "x"), output=str(tmp_path / "y"), skip_bad_pages=True)
    return (pq.read_table(tmp_path / "y") if report.output else None), report


LOST = {
    "who.age": lambda value: None if value is None else {**value, "age": None},
    "alone.z": lambda value: None,
    "tags.list.element": lambda value: None,
    "pairs.list.element.y": lambda value: [{**each, "y": None} for each in value],
    "map.key_value.value": lambda value: [(key, None) for key, _ in value],
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_is_lost_is_null_and_the_rest_is_there(
    tmp_path: Path, name: str, compression: str
) -> None:
    rows = table()
    data, first, stop = damaged(rows, name, compression=compression)
    found, report = saved(tmp_path, data)
    assert found is not None, report
    column = name.split(".")[0]
    assert same_table(found.drop([column]), rows.drop([column]))
    want = rows[column].to_pylist()
    want[first:stop] = map(LOST[name], want[first:stop])
    assert found[column].to_pylist() == want
    assert 0 < stop - first < ROWS
    read = duckdb.read_parquet(str(tmp_path / "y")).to_arrow_table()
    assert read[column].to_pylist() == want


@pytest.mark.parametrize(
    "name, why, options",
    [
        ("who.town", "nulls cannot replace", {}),
        ("map.key_value.key", "nulls cannot replace", {}),
        ("tags.list.element", "the number of its rows", {"data_page_version": "1.0"}),
    ],
)
def test_where_no_null_can_stand_the_row_group_is_left_out(
    tmp_path: Path, name: str, why: str, options: dict[str, Any]
) -> None:
    data, _, _ = damaged(table(), name, **options)
    found, report = saved(tmp_path, data)
    assert found is None
    assert why in report.row_groups[0].why


def test_a_struct_of_which_all_columns_are_damaged(tmp_path: Path) -> None:
    rows = table().select(["pairs"])
    data, _, _ = damaged(rows, "pairs.list.element.y")
    other, _, _ = damaged(rows, "pairs.list.element.y", page=0)
    third, _, _ = damaged(rows, "pairs.list.element.x", page=0)
    # Of two files with one wrong byte each, what both others agree on is right.
    both = bytes(a if b == c else b ^ c ^ a for a, b, c in zip(data, other, third, strict=True))
    found, report = saved(tmp_path, both)
    assert found is None
    assert "no other column" in report.row_groups[0].why
