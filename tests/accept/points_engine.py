"""The embedded engine: rows, orders, counts and extremes without Spark, and format skipstone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from skipstone.storage.base import metered
from tests.accept.registry import point
from tests.accept.tables import FILES, ROWS, backdate, events
from tests.oracle import matching_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

QUESTIONS = [
    "id = 1234",
    "id IN (7, 1234, 99999)",
    "kind = 'rare' OR id BETWEEN 100 AND 103",
    "x = 0",
    "x > 0.99",
    "isnan(x) OR x IS NULL",
    "note IS NOT NULL AND id < 300",
    "place.city = 'c1' AND day > 9",
    "NOT (id > 5)",
]


def whole(root: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(root.glob("*.parquet"))])


def sizable(root: Path) -> Path:
    """Two files of 100,000 rows in pages of 5,000: id ascends through both, noise does not."""
    root.mkdir(parents=True)
    for part in range(2):
        n = np.arange(100_000) + 100_000 * part
        noise = np.random.default_rng(part).permutation(100_000) * 2 + part
        path = root / f"part {part}.parquet"
        table = pa.table({"id": n, "noise": noise, "text": [f"row {each:07d}" for each in n]})
        pq.write_table(table, path, write_page_index=True, max_rows_per_page=5_000)
        backdate(path)
    return root


@point("engine: rows that match, in file order, are those of brute force, whatever is indexed")
def rows(bench: Workbench) -> None:
    root = events(bench.home / "events")
    everything = whole(root)
    table = Table(str(root))
    for turn in ("plain", "indexed"):
        for where in QUESTIONS:
            if "isnan" in where:
                continue  # a function call takes an engine
            found = table.query(where, columns=["id"])["id"].to_pylist()
            wanted = everything["id"].take(matching_rows(everything, where)).to_pylist()
            assert found == wanted, (turn, where)
            assert table.count(where) == len(wanted), (turn, where)
        if turn == "plain":
            table.build(indexes=["id:bloom", "day:minmax", "kind:bitmap", "x:rangebitmap"])


@point("engine: only pages that may hold a match are fetched, other columns for matches alone")
def pages(bench: Workbench) -> None:
    table = Table(str(sizable(bench.home / "two")))
    table.query("id = 1")  # opens the files
    scan = table.scan("id = 150003", columns=["text"])
    plan = scan.plan
    assert [d.rows and len(d.rows) for d in plan.details.values()] == [5_000]
    (step,) = (each for each in plan.steps if each.index == "page index" and each.used)
    assert (step.considered, step.kept) == (20, 1)
    assert scan.to_arrow()["text"].to_pylist() == ["row 0150003"]


@point("engine: order and limit read the first rows only; NaN is the largest, nulls where told")
def order(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    everything = whole(root)
    top = table.query(order_by="id desc", limit=3)["id"].to_pylist()
    assert top == sorted(everything["id"].to_pylist())[-3:][::-1]
    assert all(np.isnan(table.query(order_by="x desc", limit=FILES)["x"].to_pylist()))
    last = table.query(order_by="x desc nulls first, id", limit=2)
    assert last["x"].to_pylist() == [None, None]
    assert (
        last["id"].to_pylist()
        == sorted(row["id"] for row in everything.to_pylist() if row["x"] is None)[:2]
    )


@point("engine: count, min and max come from the facts where those are exact")
def extremes(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=["id:minmax", "x:minmax"])
    assert table.count() == FILES * ROWS
    assert (table.min("id"), table.max("id")) == (0, FILES * ROWS - 1)
    assert table.min("id", "id > 500") == 501
    greatest = table.max("x")
    assert isinstance(greatest, float)
    assert np.isnan(greatest)
    assert table.max("id", "id > 1000000") is None


@point("engine: an index that is stale, missing or damaged costs time and no row")
def damaged(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=["id:bloom", "kind:bitmap"])
    victim = sorted(root.glob("*.parquet"))[4]
    changed = pq.read_table(victim).set_column(0, "id", pa.array(np.arange(ROWS) + 10**6))
    pq.write_table(changed, victim)
    assert table.count("id >= 1000000") == ROWS
    for pack in (bench.home / "_events.skipstone" / "packs").glob("*"):
        pack.write_bytes(bytes(pack.stat().st_size))
    everything = whole(root)
    for where in ("kind = 'rare'", "id = 1000007", "kind = 'odd' AND id < 50"):
        assert table.count(where) == len(matching_rows(everything, where)), where


@point("engine: first lookups read little of large Bloom filters, and damage in these costs no row")
def pieces(bench: Workbench) -> None:
    root = bench.home / "many"
    root.mkdir()
    for part in range(12):
        ids = np.arange(20_000) * 12 + part
        pq.write_table(pa.table({"id": ids}), root / f"part {part:02d}.parquet")
    Table(str(root)).build(indexes=["id:bloom(fpp=0.0001)"])
    facts = sorted((bench.home / "_many.skipstone" / "facts").glob("part-*"))
    size = sum(each.stat().st_size for each in facts)
    with metered() as meter:
        plan = Table(str(root)).plan("id = 1234", inside=False)
    assert plan.files_kept == 1
    assert meter.bytes_read < size / 4
    for each in facts:
        data = each.read_bytes()
        each.write_bytes(data[: len(data) // 4] + bytes(len(data) // 2) + data[-len(data) // 4 :])
    assert Table(str(root)).query("id = 1234").to_pylist() == [{"id": 1234}]


@point("engine: `query` prints a table, CSV or JSON; `count` a number; bad input one line")
def verbs(bench: Workbench) -> None:
    root = events(bench.home / "events")
    shown = bench.skipstone("query", root, "id = 7", "--columns", "id,kind")
    assert shown.code == 0, shown
    assert shown.out.splitlines()[2].split() == ["7", "odd"]
    as_csv = bench.skipstone("query", root, "id < 3", "--columns", "id", "--csv").out
    assert as_csv == "id\n0\n1\n2\n"
    document = json.loads(bench.skipstone("query", root, "id < 3", "--json").out)
    assert document["count"] == 3
    counted = json.loads(bench.skipstone("count", root, "id < 3", "--json").out)
    assert counted == {"schema_version": 1, "rows": 3}
    assert bench.skipstone("count", root, "day = 3").out.strip() == str(ROWS)
    bad = bench.skipstone("query", root, "idd = 3")
    assert bad.code != 0
    assert "id" in bad.err
    assert "hint:" in bad.err


@point("engine: format skipstone gives Spark the same rows, unregistered, in SQL too")
def source(bench: Workbench) -> None:
    root = events(bench.home / "events")
    Table(str(root)).build(indexes=["id:bloom"])
    spark = bench.spark
    found = spark.read.format("skipstone").option("where", "id = 1234").load(str(root))
    assert [row.id for row in found.collect()] == [1234]
    top = spark.read.format("skipstone").options(orderBy="id desc", limit="2", columns="id")
    assert [row.id for row in top.load(str(root)).collect()] == [FILES * ROWS - 1, FILES * ROWS - 2]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW by_page USING skipstone "
        f"OPTIONS (path '{root}', where 'id < 0')"
    )
    assert spark.sql("SELECT count(*) AS n FROM by_page").collect()[0].n == 0


@point("engine: what costs more to look at than it saves is not looked at, and the plan says so")
def thrift(bench: Workbench) -> None:
    small = Table(str(events(bench.home / "events"))).plan("id = 3")
    assert not any(step.index == "statistics" and step.used for step in small.steps)
    large = Table(str(sizable(bench.home / "two"))).plan("id = 3")
    assert any(step.index == "statistics" and step.used for step in large.steps)
    assert large.files_kept == 1
