"""The lake that everyday queries are measured on: files whose ranges exclude little.

| column | |
|---|---|
| `ts` | timestamp; the files follow one another |
| `id` | bigint, unique, in no order |
| `user_id` | text, one of five million (`u-0000000` to `u-4999999`), ten rows each |
| `country`, `kind` | texts, one of 40 and one of 200 |
| `referrer` | text, null in one of a thousand rows, else one of 1,000 |
| `amount` | double, in no order |
| `quantity` | int, 1 to 100 |
| `session`, `note` | texts without repetition, 16 and about 60 bytes: what makes rows wide |

`country = 'c-07' and kind = 'k-123'` is a rare pair: each value is in every file, and the two meet
in about 110 rows. Drawn from one seed, file by file: equal runs give equal files.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["INDEXES", "USERS", "VERSION", "ids_of", "lay_lake", "users_of"]

SEED = 20_261_125
#: of the recipe: files of another one are made anew
VERSION = 1
USERS, COUNTRIES, KINDS, REFERRERS = 5_000_000, 40, 200, 1_000
_RARE_COUNTRY, _RARE_KIND, _TOGETHER = 7, 123, 2.2e-6

#: two Bloom filters, two ranges and two lists of values
INDEXES = (
    "user_id:bloom",
    "id:bloom",
    "ts:minmax",
    "amount:minmax",
    "country:valuelist",
    "kind:valuelist",
)


def ids_of(number: int, rows: int) -> NDArray[np.int64]:
    """The ids of file ``number``: odd multiples of a constant, so that none comes twice."""
    positions = np.arange(number * rows, (number + 1) * rows, dtype=np.uint64)
    mixed = positions * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(1)).astype(np.int64)


def users_of(number: int, rows: int) -> NDArray[np.int64]:
    """The users of file ``number``, as numbers."""
    return np.random.default_rng((SEED, number)).integers(0, USERS, rows)


def lay_lake(folder: Path, files: int, rows: int) -> None:
    """Write the files into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    users = pa.array([f"u-{number:07d}" for number in range(USERS)])
    countries = pa.array([f"c-{number:02d}" for number in range(COUNTRIES)])
    kinds = pa.array([f"k-{number:03d}" for number in range(KINDS)])
    referrers = pa.array([f"https://r{number}.example/" for number in range(REFERRERS)])

    def texts(rng: np.random.Generator, width: int) -> pa.Array:
        letters = rng.integers(97, 123, rows * width, dtype=np.uint8)
        offsets = pa.py_buffer(np.arange(0, rows * width + 1, width, dtype=np.int32))
        return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(letters)])

    def write(number: int) -> None:
        rng = np.random.default_rng((SEED, number, 1))
        country, kind = rng.integers(0, COUNTRIES, rows), rng.integers(0, KINDS, rows)
        both = (country == _RARE_COUNTRY) & (kind == _RARE_KIND)
        kind[both] = (_RARE_KIND + 1) % KINDS
        together = rng.random(rows) < _TOGETHER
        country[together], kind[together] = _RARE_COUNTRY, _RARE_KIND
        start = 1_767_225_600_000_000 + number * rows * 1_000
        table = pa.table(
            {
                "ts": pa.array(start + np.arange(rows) * 1_000, pa.timestamp("us", "UTC")),
                "id": ids_of(number, rows),
                "user_id": users.take(pa.array(users_of(number, rows))),
                "country": countries.take(pa.array(country)),
                "kind": kinds.take(pa.array(kind)),
                "referrer": referrers.take(
                    pa.array(rng.integers(0, REFERRERS, rows), mask=rng.random(rows) < 1e-3)
                ),
                "amount": rng.random(rows) * 1_000,
                "quantity": rng.integers(1, 101, rows).astype(np.int32),
                "session": texts(rng, 16),
                "note": texts(rng, 60),
            }
        )
        pq.write_table(table, folder / f"part-{number:05d}.parquet", write_page_index=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(files)))
