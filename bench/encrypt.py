"""Encrypting an existing file, module by module, compared with writing it again with Arrow.

One file of integers, text, floats and few values, snappy, with page indexes; one key, AES_GCM_V1,
an encrypted footer. Both sides read the file from the page cache, and both leave the new one synced
to the disk: ours always does, Arrow's is synced in the time that counts. Decrypting has no peer and
is reported with it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from skipstone import Decryption, Encryption
from skipstone.rewrite import decrypt, encrypt

from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .workbench import Workbench

__all__ = ["figures"]

VERSION = 1
ROWS, TOY_ROWS = 6_000_000, 60_000
GROUP = 1_000_000
#: Times as fast as Arrow.
TARGET = 5.0
KEY = b"0123456789012345"


def lay(folder: Path, rows: int) -> None:
    """120 MB at full size."""
    draw = np.random.default_rng(rows)
    users = pa.array([f"u-{each}" for each in draw.integers(0, 1_000_000, rows)])
    table = pa.table(
        {
            "id": np.arange(rows),
            "user": users,
            "amount": draw.random(rows),
            "q": draw.integers(0, 100, rows),
        }
    )
    pq.write_table(table, folder / "plain.parquet", row_group_size=GROUP, write_page_index=True)


def figures(bench: Workbench) -> Iterator[Figure]:
    """Encrypt, and decrypt."""
    rows = TOY_ROWS if bench.sizes.runs == 1 else ROWS
    folder = bench.generated("encrypt", partial(lay, rows=rows), rows=rows, version=VERSION)
    source, ours, theirs, back = (
        folder / f"{name}.parquet" for name in ("plain", "ours", "theirs", "back")
    )

    def arrow() -> None:
        pq.write_table(
            pq.read_table(source),
            theirs,
            row_group_size=GROUP,
            write_page_index=True,
            encryption_properties=pe.create_encryption_properties(KEY),
        )
        with theirs.open("rb") as file:
            os.fsync(file.fileno())

    source.read_bytes()  # into the page cache
    taken = interleaved(
        bench.sizes.runs,
        {
            "encrypt": lambda: encrypt(source, ours, encryption=Encryption(footer_key=KEY)),
            "arrow": arrow,
            "decrypt": lambda: decrypt(ours, back, decryption=Decryption(footer_key=KEY)),
        },
    )
    details = {"bytes": source.stat().st_size, "rows": rows, "runs": bench.sizes.runs}
    for each in (ours, theirs, back):
        each.unlink()
    value, peer = median(taken["encrypt"]), median(taken["arrow"])
    yield Figure(
        name="encrypt.file",
        value=value,
        unit="s",
        peer=Peer(what="pyarrow: read, and write encrypted", value=peer),
        ratio=peer / value,
        target=f">= {TARGET:g} x as fast as Arrow",
        met=peer >= TARGET * value,
        details=details | {"fastest_s": min(taken["encrypt"])},
    )
    yield Figure(
        name="encrypt.decrypt",
        value=median(taken["decrypt"]),
        unit="s",
        details=details | {"fastest_s": min(taken["decrypt"])},
    )
