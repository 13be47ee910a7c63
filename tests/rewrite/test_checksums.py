"""No file is written from a page whose checksum is wrong, and nothing is left of the attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone import Encryption, Table
from skipstone.errors import FormatError
from skipstone.rewrite import add_index_pages, encrypt, retrofit, split_columns
from tests.damaged_page import write_damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


KEY = b"0123456789abcdef"
WRITES: dict[str, Callable[[Path, Path], object]] = {
    "encrypt": lambda path, out: encrypt(path, out, encryption=Encryption(footer_key=KEY)),
    # Column a stays in the clear: its chunk is copied as it is.
    "encrypt another column": lambda path, out: encrypt(
        path, out, encryption=Encryption(footer_key=KEY, column_keys={"s": KEY})
    ),
    "retrofit": lambda path, out: retrofit(path, output=out, bloom={"s": 0.01}),
    "retrofit pages": lambda path, out: retrofit(path, output=out, page_rows=100),
    "index pages": lambda path, out: add_index_pages(path, output=out),
    "index pages of keys": lambda path, out: add_index_pages(path, output=out, keys=["a"]),
    "split": lambda path, out: split_columns(path, out),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written(tmp_path: Path, name: str) -> None:
    path = write_damaged(tmp_path / "f.parquet")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="checksum") as caught:
        WRITES[name](path, tmp_path / "out.parquet")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["f.parquet"]


def test_a_table_is_retrofitted_without_the_file(tmp_path: Path) -> None:
    path = write_damaged(tmp_path / "lake" / "f.parquet")
    before = path.read_bytes()
    report = Table(str(tmp_path / "lake")).retrofit(bloom={"s": 0.01})
    assert "checksum" in str(report)
    assert not report.ok
    assert path.read_bytes() == before
