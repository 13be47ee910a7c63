"""A Parquet file with page checksums, and one flipped bit in a value of column ``a``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import ParquetFile

if TYPE_CHECKING:
    from pathlib import Path


ROWS = 4000


def write_damaged(
    path: Path, *, page: int = 1, rows: pa.Table | None = None, **options: Any
) -> Path:
    """Flip a bit in the last value of page ``page`` of column ``a`` of ``rows``.

    The page still decodes, so that only its checksum shows the damage.
    """
    path.parent.mkdir(exist_ok=True)
    table = rows or pa.table(
        {
            "a": pa.array(range(ROWS), pa.int64()),
            "s": [f"v{i % 50:03d}" for i in range(ROWS)],
            "l": [[i, i + 1] for i in range(ROWS)],
        }
    )
    given = {
        "compression": "none",
        "use_dictionary": ["s"],
        "write_page_checksum": True,
        "data_page_size": 4096,
        "write_page_index": True,
        **options,
    }
    pq.write_table(table, path, **given)
    found = ParquetFile(path).pages(["a"]).to_pylist()
    content = bytearray(path.read_bytes())
    content[found[page]["offset"] + found[page]["compressed_size"] - 8] ^= 8
    path.write_bytes(content)
    return path
