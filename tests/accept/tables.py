"""Tables that the points work on, with their layout in words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path


FILES, ROWS = 12, 200
_OLD = 1_700_000_000


def backdate(path: Path, age: int = 0) -> None:
    """Give a file an mtime long past, so that a build need not wait for it to settle."""
    os.utime(path, (_OLD - age, _OLD - age))


def write(path: Path, columns: dict[str, Any], *, row_group_size: int | None = None) -> Path:
    """One Parquet file, settled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    backdate(path)
    return path


def events(root: Path) -> Path:
    """Twelve files of 200 rows, with blanks, ``%``, ``é`` and ``=`` in their names.

    ``id`` is spread over all files (row r of file f has 12 r + f), so only a filter tells them
    apart; ``day`` is the file's number; ``kind`` is "even" or "odd" with it, and "rare" once, in
    file 7; ``note`` is null but for file 3; ``x`` holds NaN, nulls and both zeros in every file.
    """
    for number in range(FILES):
        kind = ["odd" if number % 2 else "even"] * ROWS
        if number == 7:
            kind[100] = "rare"
        x = np.linspace(-1, 1, ROWS)
        x[:3] = [np.nan, 0.0, -0.0]
        write(
            root / f"part {number:02d} é%=.parquet",
            {
                "id": np.arange(ROWS) * FILES + number,
                "day": pa.array(np.full(ROWS, number, np.int32)),
                "kind": kind,
                "note": pa.array(["here" if number == 3 else None] * ROWS, pa.string()),
                "x": pa.array(x, mask=np.arange(ROWS) % 50 == 9),
                "place": pa.array([{"city": f"c{number % 3}"}] * ROWS),
            },
        )
    return root
