"""Indices of a dictionary that a damaged page has: without checksums nothing else shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import ParquetFile
from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("nested", [False, True])
def test_an_index_outside_the_dictionary_is_a_format_error(tmp_path: Path, nested: bool) -> None:
    path, texts = tmp_path / "a.parquet", [f"text {i % 33}" for i in range(3_000)]
    lists = pa.array([[i] for i in range(3_000)])
    columns = {"s": texts, "l": lists} if nested else {"s": texts}
    pq.write_table(pa.table(columns), path, compression="none", row_group_size=2_000)
    file = ParquetFile(path)
    for row_group in (0, 1):  # the last indices of each row group: 63 of 33 entries
        start, size = (
            int(file.footer.chunk(name)[row_group, 0])
            for name in ("start", "total_compressed_size")
        )
        data = bytearray(path.read_bytes())
        data[start + size - 6 : start + size] = b"\xff" * 6
        path.write_bytes(data)
    reads: list[Callable[[], pa.Table]] = [
        lambda: ParquetFile(path).read_row_group(0),
        lambda: ParquetFile(path).read_row_group(1, ["s"]),
        lambda: ParquetFile(path).query(),
        lambda: ParquetFile(path).read_rows(["s"], [(10, 2_990)]),
        lambda: ParquetFile(path).query("s > 'text 2'"),
    ]
    for read in reads:
        with pytest.raises(FormatError, match="index outside the dictionary"):
            read()
