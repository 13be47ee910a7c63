"""Chunks that lie in other files: ``_metadata`` summaries read as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.errors import FormatError
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    """Three files of 100 rows, one of them in a folder, and the summary of all three."""
    metadata = None
    for at, name in enumerate(["a b.parquet", "k=é/x.parquet", "c.parquet"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        rows = range(100 * at, 100 * at + 100)
        table = pa.table({"n": pa.array(rows), "t": [[str(n)] for n in rows]})
        found: list[pq.FileMetaData] = []
        pq.write_table(
            table, path, row_group_size=50, max_rows_per_page=10, write_batch_size=10,
            write_page_index=True, metadata_collector=found,
        )  # fmt: skip
        found[0].set_file_path(name)
        if metadata is None:
            metadata = found[0]
        else:
            metadata.append_row_groups(found[0])
    assert metadata is not None
    metadata.write_metadata_file(str(tmp_path / "_metadata"))
    return tmp_path / "_metadata"


def test_reads_follow_the_paths(summary: Path) -> None:
    file = ParquetFile(str(summary))
    assert file.num_rows == 300
    assert file.read_rows(["n"]).column("n").to_pylist() == list(range(300))
    found = file.read_rows(["t", "n"], [(45, 55), (149, 251)])
    assert found.column("n").to_pylist() == [*range(45, 55), *range(149, 251)]
    assert found.column("t").to_pylist() == [[str(n)] for n in (*range(45, 55), *range(149, 251))]


def test_predicates_prune_by_the_statistics_of_the_summary(summary: Path) -> None:
    file = ParquetFile(str(summary))
    plan = file.plan("n BETWEEN 120 AND 130")
    assert plan.files[0].detail.row_groups == (2,)
    assert file.query("n BETWEEN 120 AND 130", ["t"]).to_pylist() == [
        {"t": [str(n)]} for n in range(120, 131)
    ]
    assert file.count("n >= 290") == 10


def test_a_path_that_leaves_the_folder_is_refused(summary: Path) -> None:
    whole = summary.read_bytes().replace(b"c.parquet", b"../parque")
    evil = summary.with_name("evil")
    evil.write_bytes(whole)
    with pytest.raises(FormatError, match="file_path"):
        ParquetFile(str(evil)).read_rows(["n"])


def test_a_file_that_is_gone_is_said(summary: Path) -> None:
    summary.with_name("c.parquet").unlink()
    file = ParquetFile(str(summary))
    assert file.read_rows(["n"], [(0, 200)]).num_rows == 200
    with pytest.raises(FileNotFoundError):
        file.read_rows(["n"], [(200, 300)])
