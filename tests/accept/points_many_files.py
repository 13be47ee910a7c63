"""Tables of many files: read together, with filters that fit their number, and bit slices."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone import Table
from skipstone.parquet.reading.bulk_chunks import KERNELS
from tests.accept.registry import point
from tests.accept.tables import backdate, write
from tests.oracle import matching_rows
from tests.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

MANY, EACH = 40, 20_000


def lake(root: Path) -> pa.Table:
    """40 files of 20,000 rows; every file has each kind, and no range leaves a file out."""
    root.mkdir(parents=True)
    tables = []
    for number in range(MANY):
        rng = np.random.default_rng(number)
        table = pa.table(
            {
                "id": np.arange(EACH) * MANY + number,
                "kind": [f"k-{each}" for each in rng.integers(0, 50, EACH)],
                "x": np.where(rng.random(EACH) < 1e-3, np.nan, rng.random(EACH)),
            }
        )
        path = root / f"part-{number:02}.parquet"
        pq.write_table(table, path)
        backdate(path)
        tables.append(table)
    return pa.concat_tables(tables)


@point("many files: rows, counts and first rows are those of brute force where no file is skipped")
def together(bench: Workbench) -> None:
    everything = lake(bench.home / "lake")
    table = Table(str(bench.home / "lake"))
    KERNELS.load()
    for where in ("kind = 'k-7' AND x > 0.99", "kind LIKE 'k-4%' AND id < 900", "x <=> NULL"):
        at = pa.array(matching_rows(everything, where), pa.int64())
        wanted = everything["id"].take(at).to_pylist()
        assert table.query(where, ["id"])["id"].to_pylist() == wanted, where
        assert table.count(where) == len(wanted), where
    (nan,) = table.query(columns=["x"], order_by="x desc", limit=1)["x"].to_pylist()
    assert nan != nan, nan


@point("many files: a few rows that row indexes find are those of brute force, again and again")
def few_rows(bench: Workbench) -> None:
    everything = lake(bench.home / "lake")
    table = Table(str(bench.home / "lake"))
    table.build(indexes=["kind:bitmap", "id:rangebitmap"])
    KERNELS.load()
    kind, id = pc.field("kind"), pc.field("id")
    for where, matches in (
        ("kind = 'k-7' AND id < 9000", (kind == "k-7") & (id < 9000)),
        ("id IN (1, 77777, 799999)", id.isin([1, 77777, 799999])),
        ("kind = 'k-7'", kind == "k-7"),
    ):
        wanted = everything.filter(matches).select(["id", "kind"])  # NaN of x equals nothing
        for _ in range(2):
            assert table.query(where, ["id", "kind"]).equals(wanted), where
            assert table.count(where) == len(wanted), where


@point("one file of many row groups: a lookup and the first rows are those of brute force")
def one_file(bench: Workbench) -> None:
    rng = np.random.default_rng(1)
    rows = pa.table(
        {
            "id": np.arange(100_000),
            "key": rng.permutation(100_000),
            "x": pa.array(rng.random(100_000), mask=rng.random(100_000) < 0.01),
            "text": [f"t-{each}" for each in rng.integers(0, 9_999, 100_000)],
        }
    )
    root = bench.home / "one"
    root.mkdir()
    path = root / "big.parquet"
    pq.write_table(rows, path, row_group_size=9_000, max_rows_per_page=500, write_page_index=True)
    backdate(path)
    table = Table(str(root))
    table.build(indexes=["key:bitmap", "x:minmax"])
    KERNELS.load()
    for where, matches in (
        ("id = 77777", pc.field("id") == 77777),
        ("key = 4242", pc.field("key") == 4242),
        ("id IN (5, 50005, 99999)", pc.field("id").isin([5, 50005, 99999])),
        ("key = -1", pc.field("key") == -1),
    ):
        assert table.query(where).equals(rows.filter(matches)), where
    for column, down in (("key", "descending"), ("x", "descending"), ("x", "ascending")):
        filled = rows.filter(pc.field(column).is_valid())
        wanted = filled.sort_by([(column, down)]).slice(0, 10)
        order = f"{column} {down[:-6]} nulls last"
        assert table.query(order_by=order, limit=10).equals(wanted), order


def users(root: Path, files: range) -> None:
    for number in files:
        write(root / f"part-{number:04}.parquet", {"user": [f"u-{number}-{n}" for n in range(40)]})


@point("many files: bloom fits the number of files, and a refresh says when the table outgrew it")
def outgrown(bench: Workbench) -> None:
    root = bench.home / "growing"
    users(root, range(2))
    table = Table(str(root))
    table.build(indexes=["user:bloom"])
    (index,) = table.describe().indexes
    assert "fpp=0.01" in str(index), index
    users(root, range(2, 600))
    said = str(Table(str(root)).refresh())
    assert "bloom" in said, said
    assert "build" in said, said


@point("many files: compact stores filters by bit position, and a lookup keeps the same files")
def slices(bench: Workbench) -> None:
    root = bench.home / "sliced"
    users(root, range(1_100))
    table = Table(str(root))
    table.build(indexes=["user:bloom"])
    before = table.plan("user = 'u-1003-7'")
    table.compact()
    after = Table(str(root)).plan("user = 'u-1003-7'")
    assert any(step.index == "bloom slices" for step in after.steps), after.steps
    assert list(after.keep) == list(before.keep)
    assert after.files_kept <= 10, after.files_kept
    assert Table(str(root)).count("user = 'u-1003-7'") == 1


@point("many files: a lookup by bit position reads at most seven rows of a bit per file")
def seven_rows(bench: Workbench) -> None:
    root = bench.home / "sliced"
    users(root, range(1_100))
    table = Table(str(root))
    table.build(indexes=["user:bloom(files=1000000)"])
    table.compact()
    plan = Table(str(root)).plan("user = 'u-1003-7'")
    (step,) = (each for each in plan.steps if each.index == "bloom slices")
    assert step.requests <= 7, step
    assert step.bytes_read <= 7 * (1_100 // 8 + 5), step
    assert plan.files_kept == 1, plan.files_kept


@point("many files: two filters as they are for 1,000 files take at most 4 % of everyday rows")
def share_of_the_data(bench: Workbench) -> None:
    """A row has two keys, a number, and two texts that do not repeat: 120 bytes."""
    root, rows = bench.home / "everyday", 50_000
    root.mkdir(parents=True)
    rng = np.random.default_rng(4)
    letters = [rng.integers(97, 123, (rows, width), dtype=np.uint8) for width in (16, 60)]
    table = pa.table(
        {
            "id": rng.integers(0, 2**62, rows),
            "user": [f"u-{each:07d}" for each in rng.integers(0, 5_000_000, rows)],
            "amount": rng.random(rows),
            "session": [bytes(each).decode() for each in letters[0]],
            "note": [bytes(each).decode() for each in letters[1]],
        }
    )
    pq.write_table(table, root / "part-0.parquet")
    backdate(root / "part-0.parquet")
    indexed = Table(str(root))
    indexed.build(indexes=["id:bloom(files=1000)", "user:bloom(files=1000)"])
    told = indexed.describe()
    assert told.bytes_index <= 0.04 * told.bytes_data, (told.bytes_index, told.bytes_data)


@point(
    "many files: the first lookup of a process loads no compiled code for some large dictionaries"
)
def first_lookup(bench: Workbench) -> None:
    root = bench.home / "first"
    for number in range(12):
        keys = [f"k-{row * 12 + number:07}" for row in range(30_000)]
        write(root / f"part-{number:04}.parquet", {"key": keys})
    Table(str(root)).build(indexes=["key:bloom"])
    code = (
        "import sys, skipstone\n"
        "found = skipstone.Table(sys.argv[1]).query(\"key = 'k-0123456'\").num_rows\n"
        "assert (found, 'numba' in sys.modules) == (1, False), found"
    )
    command = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
