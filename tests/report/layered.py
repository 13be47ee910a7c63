"""A table of which each level skips some files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table

if TYPE_CHECKING:
    from pathlib import Path


WHERE = "k = 50"
#: what a plan for ``WHERE`` makes of the files, by the letter in their names
LEVELS = {"a": 0, "b": 1, "c": 2, "d": 3, "e": -1}
_OLD = 1_700_000_000
_PAGE = 500


def _keys(
    letter: str, rows: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    low, high = np.sort(rng.integers(0, 41, rows)), np.sort(rng.integers(60, 101, rows))
    half = rows // 2
    if letter == "a":
        return low
    if letter == "b":  # the first of two row groups is low, the second high
        return np.concatenate((low[:half], high[:half]))
    if letter == "c":  # pages in turn
        return np.where(np.arange(rows) // _PAGE % 2, high, low)
    mixed = np.where(rng.random(rows) < 0.5, low, high)
    mixed[::_PAGE] = 0
    mixed[1::_PAGE] = 100
    if letter == "e":
        mixed[rng.integers(0, rows, 1 + rows // 10_000)] = 50
    return mixed


def layered(root: Path, letters: str, *, rows: int = 4_000) -> Table:
    """A file per letter, of two row groups and pages of 500 rows; ``k`` never is 50 but in "e".

    ``a``: k is below 41 in the whole file; ``b``: in one row group, and above 59 in the other;
    ``c``: so by page; ``d``: both in each page; ``e``: the same, and a few rows of 50. Indexed are
    bounds of k over files and its bitmap over rows, of all but the last two files, of which one is
    written anew and one is new. ``t`` is sorted over the file, ``x`` is not, and
    ``s`` has Bloom filters.
    """
    rng = np.random.default_rng(5)
    root.mkdir(parents=True, exist_ok=True)

    def write(at: int, letter: str) -> None:
        table = pa.table(
            {
                "t": pa.array(np.arange(rows) * 1_000_000 + at * rows, pa.timestamp("us", "UTC")),
                "k": _keys(letter, rows, rng),
                "x": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.01),
                "s": [f"user-{n:05d}" for n in rng.integers(0, 20_000, rows).tolist()],
            }
        )
        path = root / f"part-{at:04d}-{letter}.parquet"
        pq.write_table(
            table,
            path,
            row_group_size=rows // 2,
            write_page_index=True,
            use_dictionary=False,
            max_rows_per_page=_PAGE,
            write_batch_size=_PAGE,
            bloom_filter_options={"s": {"ndv": rows // 2, "fpp": 0.01}},
        )
        os.utime(path, (_OLD + at, _OLD + at))

    for at, letter in enumerate(letters[:-1]):
        write(at, letter)
    found = Table(str(root))
    found.build(indexes=["k:minmax", "k:bitmap"])
    write(len(letters) - 2, letters[-2])
    os.utime(root / f"part-{len(letters) - 2:04d}-{letters[-2]}.parquet", (_OLD - 9, _OLD - 9))
    write(len(letters) - 1, letters[-1])
    return found
