"""Tables of real files: events that are not sorted by their key.

Each file has ``key`` (bigint, even, spread over the whole range: its min/max exclude nothing),
``ts`` (bigint, the files follow one another), ``amount`` (double), ``code`` (one of 200 ints) and
``name`` (one of 20,000 strings): five columns, as the build is measured on. Odd keys are absent,
between existing ones. Drawn from one seed, file by file: equal runs give equal files.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.indexes.registry import parse_index
from skipstone.storage import open_storage

from .factstore import lay_facts, ranges

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["VERSION", "absent_keys", "lay_events", "lay_one_row_files", "present_keys"]

SEED = 20_241_027
#: of the recipe: files of another one are made anew
VERSION = 2
_HIGHEST = 2**61


def keys_of(number: int, rows: int) -> NDArray[np.int64]:
    """The keys of file ``number``."""
    return np.random.default_rng((SEED, number)).integers(0, _HIGHEST, rows) * 2


def present_keys(files: int, rows: int, count: int) -> list[int]:
    """Keys that there are, one of each of ``count`` files."""
    chosen = np.random.default_rng(SEED).integers(0, files, count)
    return [int(keys_of(number, rows)[rows // 2]) for number in chosen.tolist()]


def absent_keys(count: int) -> list[int]:
    """Keys that no file has."""
    found = np.random.default_rng(SEED + 1).integers(0, _HIGHEST, count) * 2 + 1
    return [int(key) for key in found]


def lay_events(folder: Path, files: int, rows: int, first: int = 0) -> None:
    """Write files number ``first`` to ``first + files - 1`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)

    names = pa.array([f"customer-{number:06d}" for number in range(20_000)])

    def write(number: int) -> None:
        rng = np.random.default_rng((SEED, number, 1))
        table = pa.table(
            {
                "key": keys_of(number, rows),
                "ts": np.arange(rows, dtype=np.int64) + number * rows,
                "amount": rng.integers(0, 10**6, rows) / 100,
                "code": rng.integers(0, 200, rows).astype(np.int32),
                "name": names.take(pa.array(rng.integers(0, len(names), rows))),
            }
        )
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(table, path, use_dictionary=["code", "name"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(first, first + files)))


def lay_one_row_files(folder: Path, files: int) -> None:
    """``folder/table``: ``files`` copies of one file of one row; beside it facts about each."""
    table = folder / "table"
    table.mkdir(parents=True)
    one = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": [2], "ts": [1], "amount": [0.5]}), one)
    data = one.getvalue().to_pybytes()
    for number in range(files):
        (table / f"part-{number:05d}.parquet").write_bytes(data)
    listing = open_storage(str(table)).list_files(str(table))
    ones, twos = pa.array(np.full(files, 1)), pa.array(np.full(files, 2))
    schema = pa.schema([("key", pa.int64()), ("ts", pa.int64())])
    lay_facts(
        folder / "_table.skipstone",
        listing,
        schema,
        [parse_index("key:minmax"), parse_index("ts:minmax")],
        [ranges(twos, twos), ranges(ones, ones)],
        rows_per_file=1,
    )
