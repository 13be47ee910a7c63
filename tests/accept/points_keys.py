"""Keys as an argument: an array, a DataFrame or a file of values that a column is searched for."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone import Table
from skipstone.predicate.tree import ColumnRef, Literal, Membership
from tests.accept.registry import point
from tests.accept.tables import backdate, write
from tests.oracle import matching_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

FILES, EACH = 30, 500


def orders(root: Path) -> pa.Table:
    """30 files of 500 rows: ids in no order, users of their own file, one float in two is NaN."""
    root.mkdir(parents=True)
    tables = []
    for number in range(FILES):
        ids = np.random.default_rng(number).permutation(EACH) + number * EACH
        table = pa.table(
            {
                "id": ids,
                "user": [f"u-{n:05}" for n in ids.tolist()],
                "x": pa.array([None if n % 3 == 0 else n % 2 * np.nan for n in ids.tolist()]),
            }
        )
        path = root / f"part-{number:02}.parquet"
        pq.write_table(table, path)
        backdate(path)
        tables.append(table)
    return pa.concat_tables(tables)


@point("keys: the rows are those of IN with the same values, nulls, NaN and other types included")
def rows(bench: Workbench) -> None:
    everything = orders(bench.home / "orders")
    table = Table(str(bench.home / "orders"))
    table.build(indexes=["id:minmax", "id:bloom", "user:bloom", "x:valuelist"])
    given = {
        "id": pa.array([7.0, 14_999.0, 3.5, None, float("nan")]),
        "user": pa.array(["u-00007", None, "u-07500", "nobody"]).dictionary_encode(),
        "x": pa.array([float("nan"), -0.0]),
    }
    for column, keys in given.items():
        literals = tuple(Literal(each) for each in keys.to_pylist())
        at = matching_rows(everything, Membership(ColumnRef((column,)), literals))
        wanted = everything["id"].take(pa.array(at, pa.int64())).to_pylist()
        assert table.query(keys={column: keys})["id"].to_pylist() == wanted, column
        assert table.count(keys={column: keys}) == len(wanted) > 0, column
    both = {"id": np.arange(0, 15_000, 2), "user": ["u-00007", "u-00008"]}
    assert table.query(keys=both)["id"].to_pylist() == [8]


@point("keys: a million of them read only the files that may hold one, and are no Python objects")
def million(bench: Workbench) -> None:
    everything = orders(bench.home / "orders")
    table = Table(str(bench.home / "orders"))
    table.build(indexes=["id:minmax", "id:bloom"])
    keys = np.append(np.arange(1_000_000, 2_000_000), [4_000, 4_001])
    before = sys.getallocatedblocks()
    plan = table.plan(keys={"id": keys}, inside=False)
    assert sys.getallocatedblocks() - before < 200_000
    assert [path.rpartition("/")[2] for path in plan.paths] == ["part-08.parquet"]
    assert sorted(table.query(keys={"id": keys})["id"].to_pylist()) == [4_000, 4_001]
    assert len(everything) == FILES * EACH


@point("keys: skipstone query takes them from a column of a Parquet or CSV file, or lines of text")
def files(bench: Workbench) -> None:
    orders(bench.home / "orders")
    assert bench.skipstone("build", "orders", "-c", "user:bloom", "--no-spark").code == 0
    write(bench.home / "users.parquet", {"who": ["u-00007", "u-07500", "nobody"]})
    (bench.home / "users.csv").write_text("n,who\n1,u-00007\n2,u-07500\n")
    (bench.home / "users.txt").write_text("u-00007\nu-07500\n")
    for named in ("users.parquet:who=user", "users.csv:who=user", "users.txt:user"):
        done = bench.skipstone("query", "orders", "--keys", named, "--json", "--columns", "id")
        assert done.code == 0, done.err
        assert json.loads(done.out)["rows"] == [[7], [7500]], named
        assert bench.skipstone("count", "orders", "id > 7", "--keys", named).out.strip() == "1"


@point("keys: a file that is no list of keys of the column is refused with what to write instead")
def refused(bench: Workbench) -> None:
    orders(bench.home / "orders")
    write(bench.home / "users.parquet", {"who": ["u-00007", "nobody", None, "nobody"]})
    done = bench.skipstone("query", "orders", "--keys", "users.parquet")
    assert done.code == 1
    assert "write FILE:COLUMN" in done.err
    assert "its columns are who" in done.err, done.err
    done = bench.skipstone("query", "orders", "--keys", "users.parquet:who=id")
    assert "users.parquet, row 1: 'u-00007' is not a key of id, which is bigint" in done.err
    done = bench.skipstone("explain", "orders", "--keys", "users.parquet:who=user")
    assert "user IN (2 distinct keys of 4, 1 null left out)" in done.out, done.out


@point("keys: Table.read takes a DataFrame, and Spark lists only the files that may hold one")
def frames(bench: Workbench) -> None:
    orders(bench.home / "orders")
    table = Table(str(bench.home / "orders"))
    table.build(indexes=["id:minmax"])
    spark = bench.spark
    keys = spark.createDataFrame([(7,), (7_500,), (None,)], "id int")
    found = table.read(spark, keys=keys)
    assert sorted(row.id for row in found.collect()) == [7, 7_500]
    scan = skipstone.last_scan(spark)
    assert (scan.files_kept, scan.files_total) == (2, FILES), scan
    pairs = spark.createDataFrame([(7, "u-00007"), (8, "u-00007")], ["id", "user"])
    assert [row.id for row in table.read(spark, keys=pairs).collect()] == [7]
