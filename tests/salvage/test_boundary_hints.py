"""Columns that look alike: what else is in the file tells them apart, or the report says what may.

Two columns of one type without dictionaries, four row groups of 1,000 rows in pages of 100: by
their counts alone any two pages might be a row group.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.parquet.format.footer import Tail, read_metadata
from skipstone.parquet.pages.page import chunk_range
from skipstone.salvage import salvage
from tests.parquet.format.files import same_table
from tests.parquet.whole_file import read_table

if TYPE_CHECKING:
    from pathlib import Path

GROUP, GROUPS = 1_000, 4
ROWS = GROUP * GROUPS


def alike() -> pa.Table:
    return pa.table({"a": np.arange(float(ROWS)), "b": -np.arange(float(ROWS))})


def content(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    given: dict[str, Any] = {
        "row_group_size": GROUP,
        "data_page_size": 800,
        "write_batch_size": 100,
        "use_dictionary": False,
        "compression": "none",
    }
    pq.write_table(rows, sink, **(given | options))
    return sink.getvalue()


def saved(home: Path, data: bytes, like: pa.Table, **options: Any) -> tuple[Any, Any]:
    torn, out = home / "torn", home / "out.parquet"
    torn.write_bytes(data)
    out.unlink(missing_ok=True)
    report = salvage(str(torn), output=str(out), schema=like.schema, **options)
    found = None if report.output is None else read_table(out.read_bytes())
    if found is not None:
        found = found.cast(like.schema)
        assert same_table(found, like.slice(0, found.num_rows))
    return found, report


def pages_end(data: bytes) -> int:
    groups = read_metadata(data).row_groups
    metas = [chunk.meta_data for group in groups for chunk in group.columns]
    return max(chunk_range(each, file_size=len(data))[1] for each in metas if each is not None)


def test_what_may_be_is_said_and_each_answer_is_one(tmp_path: Path) -> None:
    data = content(alike())
    found, report = saved(tmp_path, data[: pages_end(data)], alike())
    assert found is None
    (left,) = report.left_out
    assert (left.start, left.stop) == (4, pages_end(data))
    assert left.pages == report.pages_found == 80
    assert "in more than a million ways" in left.why
    assert left.row_counts == tuple(range(100, 1_000, 100))  # the least ones, of more
    assert "--row-group-rows decides" in str(report)
    assert report.to_dict()["left_out"][0]["row_counts"] == list(left.row_counts)
    found, report = saved(tmp_path, data[: pages_end(data)], alike(), row_group_rows=GROUP)
    assert found.num_rows == ROWS
    assert not report.left_out


def test_one_row_group_in_two_ways(tmp_path: Path) -> None:
    # Two pages of two columns each, all of 100 rows: one row group of 200 rows, or two of 100.
    rows = alike().slice(0, 200)
    data = content(rows, data_page_size=800)
    found, report = saved(tmp_path, data[: pages_end(data)], rows, footer_only=True)
    assert found is None
    assert report.left_out[0].row_counts == (100, 200)
    assert "in 2 ways" in report.left_out[0].why
    assert "may be 100, 200" in str(report)


def test_what_is_left_of_the_footer_tells(tmp_path: Path) -> None:
    data = content(alike())
    tail = Tail.from_bytes(data[-8:], len(data))
    # The chunks of the first row groups are described: no other division agrees with them.
    counts = []
    for part in (0.5, 0.7, 0.9, 1.0):
        found, report = saved(tmp_path, data[: tail.offset + int(tail.length * part)], alike())
        counts.append(0 if found is None else found.num_rows)
        assert report.footer == "lost"
    assert counts == sorted(counts)
    assert counts[-1] == ROWS
    assert GROUP <= counts[1] <= counts[2]


def test_metadata_behind_each_chunk_tells(tmp_path: Path) -> None:
    # As Arrow wrote it up to version 17: the metadata of a chunk once more behind its pages.
    data = content(alike())
    made = bytearray(b"PAR1")
    for group in read_metadata(data).row_groups:
        for chunk in group.columns:
            meta = chunk.meta_data
            assert meta is not None
            start, stop = chunk_range(meta, file_size=len(data))
            moved = {"data_page_offset": len(made)}
            made += data[start:stop]
            made += type(meta)(**{name: getattr(meta, name) for name in FIELDS} | moved).to_bytes()
    found, report = saved(tmp_path, bytes(made), alike())
    assert found is not None
    assert found.num_rows == ROWS, report
    found, report = saved(tmp_path, bytes(made[: len(made) * 5 // 8]), alike())
    assert found.num_rows == 2 * GROUP


FIELDS = (
    "type",
    "encodings",
    "path_in_schema",
    "codec",
    "num_values",
    "total_uncompressed_size",
    "total_compressed_size",
)


def test_column_indexes_without_the_offset_indexes_tell(tmp_path: Path) -> None:
    data = content(alike(), write_page_index=True, max_rows_per_page=100)
    first = read_metadata(data).row_groups[0].columns[0]
    assert first.column_index_offset is not None
    assert first.offset_index_offset is not None
    found, report = saved(tmp_path, data[: first.offset_index_offset + 5], alike())
    assert found is not None, report
    assert found.num_rows == ROWS
    # Not all of them: how many pages the last chunks have is not said.
    found, report = saved(tmp_path, data[: first.column_index_offset + 5], alike())
    assert found is None
    assert report.ambiguous_pages == report.pages_found


def test_chunks_of_other_codecs_are_told_apart(tmp_path: Path) -> None:
    # One page each, so that a chunk of two pages would be of two codecs.
    rows = alike()
    same = content(rows, compression="zstd", data_page_size=1 << 20)
    found, report = saved(tmp_path, same[: pages_end(same)], rows, footer_only=True)
    assert found is None
    data = content(rows, compression={"a": "zstd", "b": "snappy"}, data_page_size=1 << 20)
    found, report = saved(tmp_path, data[: pages_end(data)], rows, footer_only=True)
    assert found is not None, report
    assert found.num_rows == ROWS


UNLIKE = {
    "text and bytes": (
        pa.array([f"text {i}" for i in range(ROWS)]),
        pa.array([b"\xff\xfe%d" % i for i in range(ROWS)]),
    ),
    "small and large numbers": (
        pa.array([i % 100 for i in range(ROWS)], pa.int8()),
        pa.array(range(1000, 1000 + ROWS), pa.int32()),
    ),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_what_a_column_may_hold_tells(tmp_path: Path, kind: str) -> None:
    # Bytes that are no text cannot be of a column of text, nor 1,000 of one of eight bits: so the
    # first column ends there. The other way round nothing is known.
    a, b = UNLIKE[kind]
    rows = pa.table({"a": a, "b": b})
    data = content(rows, data_page_size=1 << 20)
    found, report = saved(tmp_path, data[: pages_end(data)], rows, footer_only=True)
    assert found is not None, report
    assert found.num_rows == ROWS


def test_statistics_of_pages_tell_numbers_from_floats(tmp_path: Path) -> None:
    # Floats read as integers lie outside the bounds that were computed of floats.
    rows = pa.table({"a": pa.array(range(-ROWS, 0), pa.int64()), "b": -np.arange(1.0, ROWS + 1.0)})
    data = content(rows, data_page_size=1 << 20)
    found, report = saved(tmp_path, data[: pages_end(data)], rows, footer_only=True)
    assert found is not None, report
    assert found.num_rows == ROWS


def test_a_list_at_the_end_may_continue(tmp_path: Path) -> None:
    rows = pa.table({"n": range(300), "l": [[i, i + 1] for i in range(300)]})
    data = content(rows)
    end = pages_end(data)
    found, report = saved(tmp_path, data[:end], rows)
    assert found is None
    assert "its last list may continue" in str(report)
    found, report = saved(tmp_path, data[:end], rows, footer_only=True)
    assert found.num_rows == 300
