"""What trips somebody who tries it on tables of their own: paths, errors, what is forecast."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import skipstone
from skipstone import Table
from skipstone.storage.base import metered
from tests.accept.points_spark import indexed
from tests.accept.registry import point
from tests.accept.tables import FILES, ROWS, events
from tests.folders import ROOT

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


def _error(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    raise AssertionError("no error")


@point("first hour: last_scan is about the last query, or says why that has no scan")
def last_scan(bench: Workbench) -> None:
    spark, root = bench.spark, indexed(bench)
    plain = events(bench.home / "plain")
    skipstone.skip(spark.read.parquet(str(root))).where("day = 3").collect()
    assert skipstone.last_scan(spark).files_kept == 1
    skipstone.skip(spark.read.parquet(str(plain))).where("day = 3").collect()
    assert skipstone.last_scan(spark).scans == ()
    assert "has no index" in str(skipstone.last_scan(spark))
    spark.read.parquet(str(root)).where("day = 3").collect()
    assert "was not passed through it" in str(skipstone.last_scan(spark))
    mistyped = str(bench.home / "mistyped")
    assert "no index at" in _error(lambda: skipstone.skip(spark.read.parquet(str(root)), mistyped))


@point("first hour: an index location without an index is an error, but for build")
def mistyped_location(bench: Workbench) -> None:
    root = events(bench.home / "located")
    table = Table(root, index_location=bench.home / "idx")
    for call in (table.describe, table.check, table.refresh, lambda: table.query("day = 3")):
        assert "there is no index at" in _error(call)
    assert table.build(indexes=["day:minmax"]).files_built == FILES
    assert table.explain("day = 3").plan.files_kept == 1


@point("first hour: no more is read than was forecast, and no more is forecast than there is")
def forecasts(bench: Workbench) -> None:
    root = events(bench.home / "forecast")
    for where in ("day = 3", "kind = 'rare'", "id < 300", "x IS NULL", "note = 'here'"):
        with metered() as planned:
            scan = Table(root).scan(where)
            explanation = scan.explain()
        forecast, plan = explanation.forecast, explanation.plan
        assert forecast is not None
        assert plan.planning == (planned.bytes_read, planned.requests)
        with metered() as read:
            list(scan.to_batches())
        assert read.bytes_of_objects <= forecast.total.bytes <= plan.bytes_total, where
        assert not forecast.unopened
        assert read.requests <= forecast.total.requests, where
        with metered() as shown:
            told = Table(root).explain(where)
        assert told.forecast is not None
        assert told.plan.planning == (shown.bytes_read, shown.requests)
        with metered() as both:
            Table(root).query(where)
        assert both.bytes_of_objects <= told.plan.planning[0] + told.forecast.total.bytes, where
        assert both.requests <= told.plan.planning[1] + told.forecast.total.requests, where


@point("first hour: advice on thousands of columns reads few files, and says how many")
def wide(bench: Workbench) -> None:
    root, names = bench.home / "wide", [f"c{n}" for n in range(6_000)]
    root.mkdir()
    for at in range(8):
        rows = pa.table([[10 * at, 10 * at + 5]] * len(names), names)
        pq.write_table(rows, root / f"{at}.parquet")
    done = bench.skipstone("advise", root)
    assert done.code == 0, done
    assert "sampled 5 of 8 files" in done.out, done.out[:200]
    assert "c5999:minmax" in done.out, done.out[-200:]


@point("first hour: advice for queries tries indexes of rows, and a build saves what it says")
def advised_rows(bench: Workbench) -> None:
    root, rows = bench.home / "rows", 140_000
    root.mkdir()
    rng = np.random.default_rng(7)
    for at in range(2):
        table = pa.table({"k": rng.integers(0, 9_000, rows), "pad": rng.random(rows)})
        path = root / f"{at}.parquet"
        pq.write_table(table, path, max_rows_per_page=1_000, write_page_index=True)
    queries = bench.home / "queries.txt"
    queries.write_text("40\tk = 7\n")
    done = bench.skipstone("advise", root, "--queries", queries)
    assert done.code == 0, done
    *_, command = done.out.splitlines()
    assert "-c k:rangebitmap" in command or "-c k:bitmap" in command, done.out
    before = Table(root).query("k = 7")
    built = bench.skipstone(*shlex.split(command)[1:])
    assert built.code == 0, built
    assert Table(root).query("k = 7").equals(before)
    explained = Table(root).explain("k = 7")
    assert explained.plan.rows_kept == before.num_rows


@point("first hour: a column in folders and in the files is that of the folders, in every verb")
def column_twice(bench: Workbench) -> None:
    root = bench.home / "twice"
    for day in range(3):
        folder = root / f"day={day}"
        folder.mkdir(parents=True)
        rows = pa.table({"id": range(100), "day": [99] * 100})
        pq.write_table(rows, folder / "a.parquet")
    assert bench.skipstone("count", root, "day = 2").out.strip() == "100"
    assert bench.skipstone("count", root, "day = 99").out.strip() == "0"
    for verb in (["advise"], ["advise", "--layout"], ["build", "-c", "id:minmax"]):
        done = bench.skipstone(verb[0], root, *verb[1:])
        assert done.code == 0, done
    assert Table(root).query("day = 1 AND id = 7").to_pylist() == [{"id": 7, "day": 1}]
    to = bench.home / "ordered"
    Table(root).cluster(bench.spark, by=["id"], to=str(to))
    assert Table(to).count("day = 2") == 100


@point("first hour: a table is a directory, a file, a pattern or a list, and may be called q[1]")
def paths(bench: Workbench) -> None:
    root = events(bench.home / "q[1]")
    Table(root).build(indexes=["day:minmax"])
    first, *rest = sorted(root.iterdir())
    assert Table(root).count() == FILES * ROWS
    assert Table(first).count() == ROWS
    assert Table([first, rest[0]]).count() == 2 * ROWS
    assert Table(f"{root}/part 0[0-4]*").count() == 5 * ROWS
    assert Table(root).read(bench.spark, "day = 3").count() == ROWS
    assert Table(root / "part 0*").explain("day = 3").plan.files_kept == 1


@point("first hour: an error names what the user named, and what to write instead")
def errors(bench: Workbench) -> None:
    root = events(bench.home / "errors")
    Table(root).build(indexes=["day:minmax", "kind:bloom"])
    cases = {
        "did you mean 'day'": lambda: Table(root).query("dya = 3"),
        "a number is 42": lambda: Table(root).query("id = 'x'"),
        "did you mean 'kind:bloom": lambda: Table(root).drop("kind:minmax"),
        "did you mean 'minmax'": lambda: Table(root).build(indexes=["id:minmx"]),
        "no data file matches": lambda: Table(f"{root}/nope-*").count(),
    }
    for said, call in cases.items():
        assert said in _error(call), said


@point("first hour: the shell lines of the guided pages run as they are written")
def shell_lines(bench: Workbench) -> None:
    """All lines of all pages run in ``tests/docs/test_shell_lines.py``; here the first ones."""
    root = bench.home / "events"
    root.mkdir()
    for part in range(3):
        ids = [f"u-{8_813 + part + 3 * row}" for row in range(100)]
        rows = {
            "user_id": ids,
            "ts": pa.array(range(100), pa.timestamp("s")),
            "amount": [1.5] * 100,
        }
        pq.write_table(pa.table(rows), root / f"part-{part}.parquet")
    page = (ROOT / "docs/index.md").read_text("utf-8")
    lines = [line[2:] for line in page.splitlines() if line.startswith("$ skipstone ")]
    assert len(lines) >= 3
    for line in lines:
        words = [str(root) if word == "events/" else word for word in shlex.split(line)[1:]]
        done = bench.skipstone(*words)
        assert done.code == 0, (line, done.err)


@point("first hour: a type checker knows the types of tables, plans and rows")
def types(bench: Workbench) -> None:
    program = "from skipstone import Table\nreveal_type(Table('t').query('a = 1').num_rows)\n"
    (bench.home / "program.py").write_text(program)
    options = ["--config-file=", "--follow-imports=silent", "--cache-dir=cache"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"],
        cwd=bench.home,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", ""), done.stdout


@point("first hour: commands for S3A, --py-files and clusters are written down")
def documented(bench: Workbench) -> None:
    for page, command in (
        ("storage.md", "hadoop-aws:$HADOOP"),
        ("install.md", "--py-files skipstone.zip"),
        ("install.md", "PYSPARK_PYTHON=./environ"),
    ):
        assert command in (ROOT / "docs" / page).read_text(encoding="utf-8"), command
