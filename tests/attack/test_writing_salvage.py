"""What ``salvage`` saves, attacked: others have to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.salvage import salvage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_a_lost_dictionary_that_nobody_needs(
    tmp_path: Path, codec: str, version: str, skip: bool
) -> None:
    """Pages of nulls that name a dictionary are whole without it; pyarrow refused what was saved:
    "Dictionary page must be before data page"."""
    rows = pa.table({"n": pa.array([None] * 90, pa.int64())})
    path, torn = tmp_path / "a.parquet", tmp_path / "torn.bin"
    options: dict[str, Any] = {"max_rows_per_page": 30, "write_batch_size": 30}
    pq.write_table(rows, path, compression=codec, data_page_version=version, **options)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    assert chunk.has_dictionary_page
    data = bytearray(path.read_bytes())
    for at in range(chunk.dictionary_page_offset, chunk.data_page_offset):
        data[at] = 0xAA
    torn.write_bytes(data[: chunk.dictionary_page_offset + chunk.total_compressed_size])
    report = salvage(torn, schema=path, skip_bad_pages=skip, footer_only=True)
    assert report.output is not None, str(report)
    assert pq.read_table(report.output).equals(rows)
    file = ParquetFile(report.output)
    assert file.query().equals(rows)
    assert file.verify().ok
