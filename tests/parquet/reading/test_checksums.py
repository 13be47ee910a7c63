"""Page checksums are checked wherever a page is decoded; a wrong one never gives a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import FormatError
from tests.damaged_page import ROWS, write_damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


READS: dict[str, Callable[[ParquetFile], object]] = {
    "read_rows": lambda file: file.read_rows(),
    "one column": lambda file: file.read_rows(["a"]),
    "some rows": lambda file: file.read_rows(["a"], [(i, i + 1) for i in range(0, ROWS, 100)]),
    "iter_rows": lambda file: list(file.iter_rows(["a"])),
    "read_row_group": lambda file: file.read_row_group(0),
    "query": lambda file: file.query("a <> 1500", ["a"]),
    "count": lambda file: file.count("a <> 1500"),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"write_page_index": False}])
def test_a_flipped_bit_is_an_error(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    path = write_damaged(tmp_path / "f.parquet", **options)
    with pytest.raises(FormatError, match="checksum") as caught:
        READS[name](ParquetFile(path))
    assert str(path) in str(caught.value)
    assert "verify_checksums=False" in str(caught.value)


@pytest.mark.parametrize("name", READS)
def test_verify_checksums_false_reads_the_page(tmp_path: Path, name: str) -> None:
    path = write_damaged(tmp_path / "f.parquet")
    READS[name](ParquetFile(path, verify_checksums=False))


def test_a_damaged_dictionary_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"s": [f"v{i * 7 % 50:03d}" for i in range(20_000)]})
    pq.write_table(table, path, compression="none", write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(b"v017") + 3] ^= 1  # v016 twice, v017 never
    path.write_bytes(content)
    assert ParquetFile(path, verify_checksums=False).count("s = 'v017'") == 0
    plan = ParquetFile(path).plan("s = 'v017'")
    assert plan.keep.all()
    assert any("checksum" in str(reason) for step in plan.steps for reason in step.reasons)
    with pytest.raises(FormatError, match="checksum"):
        ParquetFile(path).count("s = 'v017'")


def test_pages_that_are_not_read_are_not_checked(tmp_path: Path) -> None:
    path = write_damaged(tmp_path / "f.parquet")
    file = ParquetFile(path)
    assert file.read_rows(["a"], [(0, 10)]).column("a").to_pylist() == list(range(10))
    assert file.read_rows(["s", "l"]).num_rows == ROWS
