"""Over S3 on loopback: requests and bytes are counted, and a file that changes is noticed."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import StaleError
from skipstone.parquet.reading.file import ParquetFile
from tests.s3 import S3, s3, s3_server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["s3", "s3_server"]  # fixtures


def _bytes(start: int = 0) -> bytes:
    """20 row groups of 5,000 rows in pages of 500; ``text`` has 200 bytes: 20 MB of it."""
    rows = range(start, start + 100_000)
    table = pa.table({"id": pa.array(rows), "text": pa.array([f"{n:0200}" for n in rows])})
    out = io.BytesIO()
    pq.write_table(
        table, out, row_group_size=5_000, max_rows_per_page=500, write_batch_size=500,
        use_dictionary=False, compression="none", write_page_index=True,
        bloom_filter_options={"id": {"ndv": 5_000, "fpp": 0.01}},
    )  # fmt: skip
    return out.getvalue()


@pytest.fixture(scope="module")
def content() -> bytes:
    return _bytes()


def test_a_lookup_takes_few_requests_and_bytes(s3: S3, content: bytes) -> None:
    s3.fill("t/a b é.parquet", data=content)
    path = f"{s3.base}/t/a b é.parquet"
    before = len(s3.requests())
    file = ParquetFile(path, storage_options=s3.options)
    assert len(s3.requests()) - before == 1
    assert file.bytes_read == 64 * 1024
    before, read = len(s3.requests()), file.bytes_read
    assert file.query("id = 51234", ["text"]).to_pylist() == [{"text": f"{51234:0200}"}]
    # A block of the Bloom filter, the page of the predicate, the page of the text; and the indexes
    # of pages, as far as they are not among the last 64 KiB.
    assert len(s3.requests()) - before <= 5
    assert file.bytes_read - read < 120_000
    before, read = len(s3.requests()), file.bytes_read
    assert file.query("id = 51235", ["text"]).num_rows == 1
    assert len(s3.requests()) - before <= 3
    assert file.bytes_read - read < 110_000
    assert {line.split()[0] for line in s3.requests()[before:]} == {"GET"}


def test_rows_by_position_take_two_waves(s3: S3, content: bytes) -> None:
    s3.fill("t.parquet", data=content)
    before = len(s3.requests())
    file = ParquetFile(f"{s3.base}/t.parquet", storage_options=s3.options)
    found = file.read_rows(["id"], [(10, 20), (60_000, 60_010)])
    assert found.column("id").to_pylist() == [*range(10, 20), *range(60_000, 60_010)]
    assert len(s3.requests()) - before <= 5


def test_an_object_that_is_replaced_is_stale(s3: S3, content: bytes) -> None:
    s3.fill("t.parquet", data=content)
    file = ParquetFile(f"{s3.base}/t.parquet", storage_options=s3.options)
    assert file.read_rows(["id"], [(5, 6)]).num_rows == 1
    s3.fill("t.parquet", data=_bytes(1))
    with pytest.raises(StaleError, match="has changed since it was opened"):
        file.read_rows(["id"], [(5, 6)])
    with pytest.raises(StaleError):
        file.query("id = 77777")


@pytest.mark.parametrize("how", ["replaced", "rewritten in place", "touched"])
def test_a_local_file_that_changes_is_stale(tmp_path: Path, content: bytes, how: str) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    file = ParquetFile(str(path))
    file.read_rows(["id"], [(5, 6)])
    before = path.stat()
    if how == "touched":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif how == "replaced":
        other = tmp_path / "other"
        other.write_bytes(content)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.rename(path)
    else:
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StaleError):
        file.read_rows(["id"], [(5, 6)])
    with pytest.raises(StaleError):
        file.count("id = 81234")


def test_a_file_that_is_gone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    file = ParquetFile(str(path))
    path.unlink()
    with pytest.raises(StaleError, match="gone since it was opened"):
        file.read_rows(["id"], [(5, 6)])
    with pytest.raises(FileNotFoundError):
        ParquetFile(str(path))
