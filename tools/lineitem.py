"""The demo's table: TPC-H `lineitem` as a stream of deliveries, about 200 Parquet files.

`tpchgen-cli` writes the rows sorted by order key, unlike a real stream of events. Here the rows
arrive within some days of their shipping date, and in no order within a day; every file holds the
next rows to arrive. So

- `l_orderkey` is spread over the whole range in every file: its min/max exclude nothing;
- `l_extendedprice` does not depend on the arrival: min/max exclude only its rare extremes;
- `l_shipdate` is mildly clustered, and with it the flags that depend on the date: the pair
  returnflag N with linestatus F exists for a few weeks only.

One seed determines everything: two runs give equal files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["arrival_order", "generate", "lay_out", "prepare"]

SEED = 20_241_027
FILES = 200
# Standard deviation, in days, of a row's arrival around its ship date.
SPREAD_DAYS = 6.0
# Rows in memory at once while the files are written: about 170 bytes each.
ROWS_IN_MEMORY = 2_000_000


def prepare(home: Path, *, scale: float = 1.0, files: int = FILES) -> Path:
    """Make `home/lineitem`, unless an earlier run made the same table; returns its path."""
    table = home / "lineitem"
    recipe = home / "lineitem.recipe.json"
    wanted = {"scale": scale, "files": files, "seed": SEED, "spread_days": SPREAD_DAYS}
    if recipe.exists() and json.loads(recipe.read_text()) == wanted:
        return table
    shutil.rmtree(table, ignore_errors=True)
    recipe.unlink(missing_ok=True)
    raw = generate(home, scale)
    lay_out(raw, table, files=files)
    raw.unlink()
    # Written last: an interrupted run leaves no recipe, and the next run starts again.
    recipe.write_text(json.dumps(wanted))
    return table


def generate(home: Path, scale: float) -> Path:
    """Let `tpchgen-cli` write `home/raw/lineitem.parquet` at this scale; returns that path."""
    raw = home / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    # Next to this Python first: the environment need not be on the PATH.
    beside = Path(sys.executable).with_name("tpchgen-cli")
    tool = str(beside) if beside.exists() else "tpchgen-cli"
    command = [tool, "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem"]
    command += ["--output-dir", str(raw), "--overwrite", "--quiet"]
    subprocess.run(command, check=True)
    return raw / "lineitem.parquet"


def arrival_order(shipdate: np.ndarray, seed: int = SEED) -> np.ndarray:
    """Positions of the rows in the order of their arrival; `shipdate` in days since 1970."""
    rng = np.random.default_rng(seed)
    arrival = shipdate + rng.normal(0.0, SPREAD_DAYS, len(shipdate))
    return np.argsort(arrival, kind="stable")


def lay_out(raw: Path, table: Path, *, files: int = FILES) -> None:
    """Write the rows of `raw` into `table` as `files` files of equal row counts, as they arrived.

    Memory holds `ROWS_IN_MEMORY` rows and three integers for each row of the table: `raw` is read
    as often as necessary.
    """
    table.mkdir(parents=True)
    shipdate = pq.read_table(raw, columns=["l_shipdate"])["l_shipdate"]
    order = arrival_order(shipdate.cast(pa.int32()).to_numpy())
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    borders = np.linspace(0, len(order), files + 1).astype(np.int64)
    at_once = max(1, int(files * ROWS_IN_MEMORY // max(len(order), 1)))
    for first in range(0, files, at_once):
        last = min(first + at_once, files)
        low, high = borders[first], borders[last]
        rows, places = _rows_between(raw, rank, int(low), int(high))
        for number in range(first, last):
            part = places[borders[number] - low : borders[number + 1] - low]
            pq.write_table(rows.take(part), table / f"part-{number:05d}.parquet")


def _rows_between(raw: Path, rank: np.ndarray, low: int, high: int) -> tuple[pa.Table, np.ndarray]:
    """The rows that arrived as number `low` to `high`, and the position of each, in order."""
    kept = []
    start = 0
    ranks = []
    with pq.ParquetFile(raw) as file:
        for batch in file.iter_batches(batch_size=262_144):
            here = rank[start : start + len(batch)]
            start += len(batch)
            wanted = (here >= low) & (here < high)
            rows = _plain(pa.Table.from_batches([batch]))
            kept.append(rows.filter(pa.array(wanted)))
            ranks.append(here[wanted])
    return pa.concat_tables(kept).combine_chunks(), np.argsort(np.concatenate(ranks))


def _plain(rows: pa.Table) -> pa.Table:
    """The same rows with `string` for `string_view`: as Spark writes it."""
    text = pa.string_view()
    fields = [pa.field(f.name, pa.string() if f.type == text else f.type) for f in rows.schema]
    return rows.cast(pa.schema(fields))
