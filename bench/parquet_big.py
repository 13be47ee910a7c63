"""One large Parquet file with everything that a lookup can use, as the lookups are measured on.

50 row groups of 1,000,000 rows (times ``factor``), Snappy, pages of 20,000 rows, page index, and a
bloom filter on ``key`` for 1,000,000 values at 1 % (also times ``factor``):

| column | |
|---|---|
| ``id`` | int64, ascending without gaps |
| ``ts`` | timestamp in microseconds, ascending by a thousand |
| ``key`` | int64, even, random over the whole range: odd keys are absent amid those there are |
| ``val`` | double, random |
| ``s`` | string, one of 20,000, in a dictionary |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["ROW_GROUPS", "VERSION", "absent_keys", "keys_of", "lay_big"]

SEED = 20_260_301
#: of the recipe: a file of another one is made anew
VERSION = 1
ROW_GROUPS = 50
_HIGHEST = 2**61
_STRINGS = 20_000


def rows_per_group(factor: float) -> int:
    """Rows of a row group, at least one page of 20 rows."""
    return max(20, int(1_000_000 * factor))


def keys_of(group: int, rows: int) -> NDArray[np.int64]:
    """The keys of row group ``group``."""
    return np.random.default_rng((SEED, group)).integers(-_HIGHEST, _HIGHEST, rows) * 2


def absent_keys(count: int) -> list[int]:
    """Keys that no row has."""
    found = np.random.default_rng(SEED + 1).integers(-_HIGHEST, _HIGHEST, count) * 2 + 1
    return [int(key) for key in found]


def lay_big(folder: Path, factor: float = 1.0) -> None:
    """Write ``big.parquet`` into ``folder``."""
    rows = rows_per_group(factor)
    strings = pa.array([f"customer-{number:06d}" for number in range(_STRINGS)])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us")),
            ("key", pa.int64()),
            ("val", pa.float64()),
            ("s", pa.string()),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(
        folder / "big.parquet",
        schema,
        compression="snappy",
        use_dictionary=["s"],
        write_page_index=True,
        max_rows_per_page=max(20, min(20_000, rows // 10)),
        bloom_filter_options={"key": {"ndv": rows, "fpp": 0.01}},
    ) as writer:
        for group in range(ROW_GROUPS):
            rng = np.random.default_rng((SEED, group, 1))
            first = group * rows
            ids = np.arange(first, first + rows, dtype=np.int64)
            writer.write_table(
                pa.table(
                    [
                        pa.array(ids),
                        pa.array(1_700_000_000_000_000 + ids * 1_000).cast(schema.field("ts").type),
                        pa.array(keys_of(group, rows)),
                        pa.array(rng.random(rows)),
                        strings.take(pa.array(rng.integers(0, _STRINGS, rows))),
                    ],
                    schema=schema,
                ),
                row_group_size=rows,
            )
