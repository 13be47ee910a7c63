"""A needle in a table of Delta Lake of many small files, as a stream of appends leaves it, beside
engines that have the same log.

Each file is one commit of 2,000 rows. Users are scattered over all files, so the bounds of the log
exclude none; ids ascend, so they exclude all but one.

| figure | |
|---|---|
| needle | one user, by Bloom filters: at least 10 x the fastest peer |
| absent | a user of no file: at least 10 x |
| id | by the statistics of the log, which all have: not behind |

The peers keep the log that they have read. Skipstone asks at each query for a newer version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import skipstone

from .lake_queries import Query, compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .figure import Figure
    from .workbench import Workbench

__all__ = ["figures"]

VERSION, ROWS = 1, 2_000
_AHEAD, _EQUAL = 10.0, 1.0


def _users(number: int) -> list[str]:
    drawn = np.random.default_rng((7, number)).integers(0, 2**40, ROWS)
    return [f"u-{each:013d}" for each in drawn.tolist()]


def lay_table(folder: Path, files: int) -> None:
    """Write the table, one commit a file, with a checkpoint now and then."""
    from deltalake import DeltaTable, write_deltalake

    for number in range(files):
        rng = np.random.default_rng((8, number))
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        columns = {
            "id": ids,
            "user_id": _users(number),
            "amount": rng.random(ROWS),
            "country": [f"c-{each:02d}" for each in rng.integers(0, 40, ROWS).tolist()],
        }
        write_deltalake(str(folder), pa.table(columns), mode="append")
        if number % 200 == 199:
            DeltaTable(str(folder)).create_checkpoint()


def _peers(path: str) -> dict[str, Callable[[str], pa.Table]]:
    import duckdb
    from deltalake import DeltaTable, QueryBuilder

    opened = DeltaTable(path)
    datafusion = QueryBuilder().register("t", opened)
    session = duckdb.connect()
    session.register("t", opened.to_pyarrow_dataset())
    return {
        "deltalake with DataFusion": lambda text: pa.table(datafusion.execute(text).read_all()),
        "DuckDB over deltalake's dataset": lambda text: session.sql(text).to_arrow_table(),
    }


def figures(bench: Workbench) -> Iterator[Figure]:
    """All of them, over the files that the bench has."""
    files = bench.sizes.files
    folder = bench.generated(
        "delta", lambda to: lay_table(to / "table", files), files=files, version=VERSION
    )
    path = str(folder / "table")
    table = skipstone.Table(path, index_location=str(folder / "index"))
    table.build(indexes=["user_id:bloom"])
    table.compact()

    def query(name: str, where: str, target: float) -> Query:
        return Query(
            name=name,
            sql=f"SELECT * FROM t WHERE {where}",
            ask=lambda table: table.query(where),
            target=target,
        )

    peers = _peers(path)
    user, known = _users(files // 2)[ROWS // 2], (files // 3) * ROWS + 17
    for each in (
        query("needle", f"user_id = '{user}'", _AHEAD),
        query("absent", f"user_id = 'u-{2**39:013d}x'", _AHEAD),
        query("id", f"id = {known}", _EQUAL),
    ):
        yield compared(bench, each, table, peers, "delta")
