"""Tables to encrypt, and what is asked of them afterwards."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from skipstone import Decryption, Encryption, ParquetFile
from tests.rewrite.encrypted_files import KEY, equal
from tests.table.data import rows

if TYPE_CHECKING:
    from pathlib import Path

OTHER = b"another key 1234"
NAMES = ("day=1/a b.parquet", "day=1/é%20.parquet", "day=2/a b.parquet", "day=0/c=d.parquet")
OPENS = Decryption(footer_key=KEY)
SEALS = Encryption(footer_key=KEY)


def table(root: Path, names: tuple[str, ...] = NAMES) -> Path:
    """Files of two row groups with page indexes, in folders with awkward names."""
    for number, name in enumerate(names):
        sink = io.BytesIO()
        pq.write_table(
            rows(number), sink, row_group_size=120, write_page_index=True, write_page_checksum=True
        )
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sink.getvalue())
    return root


def files(root: Path, names: tuple[str, ...] = NAMES) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in names}


def same_rows(
    root: Path, decryption: Decryption | None = OPENS, names: tuple[str, ...] = NAMES
) -> bool:
    """Whether every file reads, with the prefix of its place, as it was written."""
    return all(
        equal(ParquetFile(root / name, decryption=decryption).query(), rows(number))
        for number, name in enumerate(names)
    )


def bodies(path: Path) -> list[bytes]:
    file, data = ParquetFile(path), path.read_bytes()
    return [
        data[page.offset + page.header_length : page.offset + page.size]
        for r in range(file.num_row_groups)
        for c in range(3)
        for page in file.chunk_pages.walk((r, c))
    ]
