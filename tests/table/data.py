"""Rows of the tables that these tests encrypt."""

from __future__ import annotations

import pyarrow as pa


def rows(number: int) -> pa.Table:
    """200 rows: id counts on from file to file, x has NaN, both zeros and nulls, s repeats."""
    ids = range(200 * number, 200 * number + 200)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([(float("nan"), -0.0, 0.0, None, i / 7)[i % 5] for i in ids]),
            "s": [f"é{i % 9}" for i in ids],
        }
    )
