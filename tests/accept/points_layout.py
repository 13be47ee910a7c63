"""The order of the rows: what another one would save, and a table written in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

FILES, EACH = 20, 2_000


def visits(root: Path) -> pa.Table:
    """20 files; users and amounts at random, so that no file can be skipped by either."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(11)
    parts = []
    for number in range(FILES):
        table = pa.table(
            {
                "user": [f"u-{each:06d}" for each in rng.integers(0, 50_000, EACH)],
                "amount": rng.random(EACH) * 1000,
                "pad": [rng.bytes(100).hex() for _ in range(EACH)],
            }
        )
        pq.write_table(table, root / f"part-{number:02}.parquet")
        parts.append(table)
    return pa.concat_tables(parts)


QUERIES = ("user = 'u-025000'", "amount BETWEEN 500 AND 501")


@point("layout: advise says what an order would save, and cluster saves it, with the same rows")
def layout(bench: Workbench) -> None:
    everything = visits(bench.home / "visits")
    table = Table(str(bench.home / "visits"))
    (bench.home / "queries.txt").write_text("\n".join(QUERIES))
    advise = ("advise", table.path, "--layout", "--queries", str(bench.home / "queries.txt"))
    found = json.loads(bench.skipstone(*advise, "--file-size", "256KiB", "--json").out)
    best = found["layouts"][0]
    assert found["chosen"] is True
    assert (best["curve"], sorted(best["by"])) == ("hilbert", ["amount", "user"])
    assert [each["files"]["before"] for each in found["queries"]] == [FILES, FILES]
    output = str(bench.home / "clustered")
    done = bench.skipstone(
        *("cluster", table.path, "--by", ",".join(best["by"]), "--to", output),
        *("--file-size", "256KiB", "--master", "local[2]"),
    )
    assert "the same rows: their number and the checksums of whole rows and of all" in done.out
    made = Table(output)
    made.build(indexes=["user:minmax", "amount:minmax"])
    kept = []
    for where in QUERIES:
        plan = made.plan(where)
        kept.append(plan.files_kept)
        assert made.query(where).sort_by("user").equals(table.query(where).sort_by("user"))
    assert np.mean(kept) <= 1.5 * best["files"]
    assert plan.files_total >= 2 * max(kept)
    keys = [("user", "ascending"), ("amount", "ascending"), ("pad", "ascending")]
    assert made.query().sort_by(keys).equals(everything.sort_by(keys))
