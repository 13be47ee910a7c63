"""What queries read of a table that ``cluster`` wrote, beside the orders of Delta and Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from tests.interop.clustering_spark import SHAPES
from tests.interop.java_systems import run_with_connectors

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.spark]

FILES, ROWS = 10, 50_000
OTHERS = ("delta z-order", "iceberg z-order", "iceberg sort")


def rows_of(shape: str, rng: np.random.Generator, file: int) -> pa.Table:
    """Users and amounts that are even and independent, or skewed and related."""
    if shape == "even":
        user, amount = rng.integers(0, 250_000, ROWS), rng.random(ROWS) * 1000
    else:
        user = rng.zipf(1.3, ROWS) % 250_000
        amount = np.exp(rng.normal(3, 1.5, ROWS)) + user % 50
    number = np.arange(file * ROWS, (file + 1) * ROWS)
    pad = [rng.bytes(24).hex() for _ in range(ROWS)]
    return pa.table({"user": user, "amount": amount, "n": number, "pad": pad})


def queries(rows: pa.Table, rng: np.random.Generator) -> list[str]:
    """One user, a thousandth of the amounts, a hundredth of the users, a tenth of both."""
    user, amount = (np.sort(rows[name].to_numpy()) for name in ("user", "amount"))
    found = []

    def between(name: str, values: np.ndarray, share: float) -> str:
        start = int(rng.random() * (1 - share) * len(values))
        low, high = values[start], values[start + int(share * len(values)) - 1]
        return f"{name} BETWEEN {low.item()!r} AND {high.item()!r}"

    for _ in range(25):
        found.append(f"user = {rng.choice(user)}")
        found.append(between("amount", amount, 0.001))
        found.append(between("user", user, 0.01))
        found.append(f"{between('user', user, 0.1)} AND {between('amount', amount, 0.1)}")
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in every order."""
    home = tmp_path_factory.mktemp("clustering")
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        (home / shape).mkdir()
        for file in range(FILES):
            pq.write_table(rows_of(shape, rng, file), home / shape / f"{file:02}.parquet")
    run_with_connectors("tests.interop.clustering_spark", home)
    return home


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_read_no_more_than_of_the_better_of_delta_and_iceberg(
    home: Path, shape: str
) -> None:
    """Bytes of the files that the bounds of the two columns leave, a mean of 100 queries."""
    asked = queries(skipstone.Table(str(home / shape)).query(), np.random.default_rng(9))
    read, counts = {}, {}
    for order in ("z-order", "hilbert", *OTHERS):
        table = skipstone.Table(str(home / f"{shape} {order}"))
        table.build(indexes=["user:minmax", "amount:minmax"])
        plans = [table.plan(query) for query in asked]
        read[order] = float(np.mean([sum(file.size for file in plan.files) for plan in plans]))
        counts[order] = [table.count(query) for query in asked]
    print(shape, {order: f"{bytes / 1e6:.2f} MB" for order, bytes in read.items()})
    assert all(each == counts["hilbert"] for each in counts.values())
    assert sum(counts["hilbert"])
    assert read["hilbert"] <= 1.1 * min(read[order] for order in OTHERS)
    assert read["z-order"] <= 1.1 * read["delta z-order"]
