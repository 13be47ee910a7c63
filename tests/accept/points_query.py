"""What plans are good for: pictures, advice, the way Spark reads, a watch."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import skipstone
from skipstone import Table
from tests.accept.registry import Missing, point
from tests.accept.tables import FILES, backdate, events, write
from tests.processes import environment
from tests.report.browser import Browser, chromium
from tests.report.data import parsed

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

# Seconds until what should happen in the background counts as not happening.
DEADLINE = 240


@point("report: a page says of each file of a table what skipped it, as the plan has it")
def table(bench: Workbench) -> None:
    root = events(bench.home / "events")
    assert bench.skipstone("build", root, "-c", "day:minmax", "--no-spark").code == 0
    done = bench.skipstone("report", root, "day = 3", "-o", "report.html", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["files"] == {"opened": 1, "kept": 1, "total": FILES}
    data = parsed(bench.home / "report.html").data
    plan = Table(str(root)).plan("day = 3")
    assert [each == "0" for each in data["state"]] == plan.keep.tolist()
    assert data["state"].count("1") == FILES - 1


@point("report: one file's row groups, columns and pages are drawn")
def file(bench: Workbench) -> None:
    path = write(bench.home / "a é%=.parquet", {"id": np.arange(1_000), "s": ["x"] * 1_000})
    done = bench.skipstone("report", path, "id < 10", "-o", "file.html")
    assert done.code == 0, done.err
    found = parsed(bench.home / "file.html").inside(0)
    assert [column["name"] for column in found["columns"]] == ["id", "s"]
    assert found["groups"]["rows"] == [1_000]


@point("report: hostile names stay text, and the page opens in a browser without a request")
def hostile(bench: Workbench) -> None:
    if chromium() is None:
        raise Missing("no chromium here")
    name = "<img src=x onerror=alert(1)><script>document.title='owned'"
    path = bench.home / f"{name}.parquet"
    write(path, {name: pa.array(["</script>"] * 3)})
    assert bench.skipstone("report", path, "-o", "file.html").code == 0
    with Browser() as browser:
        page = browser.open(bench.home / "file.html")
        assert name in page.text("#table")
        assert page.js("document.querySelectorAll('main img, main script').length") == 0
        assert page.complaints == []


@point("advise: queries are tried on a sample, and the command that saves most is one that runs")
def advised(bench: Workbench) -> None:
    root = events(bench.home / "it's events")
    queries = bench.home / "queries.txt"
    queries.write_text("# needles\n900\tid = 1234\n300\tday = 3\n", encoding="utf-8")
    text = bench.skipstone("advise", root, "--queries", queries, "--sample", "8").out
    assert f"sampled 8 of {FILES} files" in text, text
    command = shlex.split(text.splitlines()[-1])
    assert command[:3] == ["skipstone", "build", str(root)], command
    told = bench.skipstone("advise", root, "--queries", queries, "--sample", "8", "--json").out
    assert json.loads(told)["command"] == text.splitlines()[-1]
    assert bench.skipstone(*command[1:], "--no-spark").code == 0
    assert Table(str(root)).plan("id = 1234").files_kept == 1
    queries.write_text("day = 3\nda = 3\n", encoding="utf-8")
    wrong = bench.skipstone("advise", root, "--queries", queries)
    assert (wrong.code, "line 2" in wrong.err) == (1, True), wrong.err


@point("reading: Table.read with a limit goes by pages, says so, and gives the first rows")
def limited(bench: Workbench) -> None:
    spark, root = bench.spark, events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=["id:minmax"])
    plain = spark.read.parquet(str(root)).where("day < 6").orderBy("id", ascending=False)
    first = [row.id for row in plain.limit(3).collect()]
    found = table.read(spark, "day < 6", columns=["id"], order_by="id desc", limit=3).collect()
    assert "read by: planned pages" in (text := str(skipstone.last_scan(spark))), text
    assert [row.id for row in found] == first
    rest = table.read(spark, "id = 5", columns=["day"])
    assert [row.day for row in rest.collect()] == [5]
    assert "read by: Spark's own reader" in (text := str(skipstone.last_scan(spark))), text


@point("watch: a file that arrives, and one that is replaced, are indexed without being asked")
def watched(bench: Workbench) -> None:
    root = events(bench.home / "events")
    table = Table(str(root))
    table.build(indexes=["day:minmax"])
    with skipstone.watch(bench.spark, table, interval=0.5) as watch:
        write(root / "part 12 é.parquet", {"day": [77]})
        other = write(bench.home / "other.parquet", {"day": [78]})
        backdate(other, 9)
        other.replace(min(root.glob("*.parquet")))
        end = time.monotonic() + DEADLINE
        while table.describe().fresh != FILES + 1:
            assert time.monotonic() < end, repr(watch)
            assert not watch.awaitTermination(1), repr(watch)
    for day in (77, 78):
        assert table.plan(f"day = {day}").files_kept == 1, day


@point("query: a command that ends at once has written every row, to a pipe and to a file")
def complete(bench: Workbench) -> None:
    root = bench.home / "many"
    root.mkdir()
    write(root / "a.parquet", {"id": np.arange(50_000), "s": ["text"] * 50_000})
    done = bench.skipstone("query", root, "id >= 1", "--csv")
    assert done.code == 0, done.err
    rows = done.out.splitlines()
    assert (len(rows), rows[-1]) == (50_000, "49999,text")
    assert bench.skipstone("count", root, "id >= 1").out.strip().replace(",", "") == "49999"
    assert bench.skipstone("query", root, "nothing = 1").code != 0
    kept = bench.home / "kept.csv"
    with kept.open("w") as file:
        command = [sys.executable, "-m", "skipstone", "query", str(root), "id >= 1", "--csv"]
        subprocess.run(command, stdout=file, check=True, env=environment())
    assert kept.read_text() == done.out
