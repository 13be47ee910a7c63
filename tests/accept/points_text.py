"""Text in logs: what n-grams and tokens skip, and how they say so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import skipstone
from tests.accept.points_sessions import files
from tests.accept.registry import point
from tests.accept.tables import write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

FILES = 8


def trace(line: int) -> str:
    """The trace id of a line."""
    return f"{0x9E3779B97F4A7C15 * (line + 1) % 2**64:016x}"


def logs(root: Path) -> Path:
    """Eight files of 200 lines: file 5 has an error, and file f the trace ids from 200 f on."""
    for part in range(FILES):
        lines = [f"GET /item/{row} 200 trace={trace(part * 200 + row)} ok" for row in range(200)]
        if part == 5:
            lines[100] = "ERROR upstream Timeout after 30 s"
        write(root / f"{part}.parquet", {"id": range(part * 200, part * 200 + 200), "m": lines})
    return root


CONDITIONS = {
    "m LIKE '%Timeout%'": 1,
    "m ILIKE '%timeout%'": 1,
    "contains(m, 'Timeout after')": 1,
    "m RLIKE '(Timeout|Refused) after [0-9]+'": 1,
    "m RLIKE '(?i)upstream time'": 1,
    f"m LIKE '%{trace(677)[2:14]}%'": 1,
    "m LIKE '%absent words%'": 0,
    "m LIKE '%item/7%'": FILES,
}


@point("text: LIKE, contains, ILIKE and RLIKE open only the files that can match")
def skipping(bench: Workbench) -> None:
    root = logs(bench.home / "logs")
    done = bench.skipstone("build", root, "-c", "m:ngram,tokens", "--no-spark")
    assert done.code == 0, done.err
    for where, kept in CONDITIONS.items():
        done = bench.skipstone("explain", root, where, "--json", "--facts-only")
        assert json.loads(done.out)["files"]["kept"] == kept, where
        rows = json.loads(bench.skipstone("count", root, where, "--json").out)["rows"]
        assert (rows > 0) == (kept > 0), (where, rows)
    checked = json.loads(bench.skipstone("check", root, "--deep", "--json").out)
    assert (checked["ok"], checked["filters"]) == (True, 2 * FILES), checked


@point("text: skip(df) and enable() list only the files that can match")
def in_spark(bench: Workbench) -> None:
    spark, root = bench.spark, logs(bench.home / "logs")
    assert bench.skipstone("build", root, "-c", "m:ngram", "--no-spark").code == 0
    skipstone.enable(spark)
    spark.read.parquet(str(root)).createOrReplaceTempView("logs")
    try:
        for where, kept in CONDITIONS.items():
            found = files(bench, f"SELECT id FROM logs WHERE {where}")
            assert found == (kept, FILES), (where, found)
    finally:
        skipstone.disable(spark)


@point("text: a filter takes at most its share, and what is left out or not asked has a reason")
def told(bench: Workbench) -> None:
    root = logs(bench.home / "logs")
    assert bench.skipstone("build", root, "-c", "m:ngram(share=0.01)", "--no-spark").code == 0
    described = json.loads(bench.skipstone("describe", root, "--json").out)
    (index,) = described["indexes"]
    assert 0 < index["bytes"] <= FILES * 4_096 * 1.5, index
    text = bench.skipstone("explain", root, "m LIKE '%GE%'").out
    assert "needs no run of 3 characters" in text, text
    assert bench.skipstone("build", root, "-c", "m:tokens", "--no-spark").code == 0
    text = bench.skipstone("explain", root, "m LIKE '%Timeout%'").out
    assert "shows no token with what stands before and after it" in text, text


@point("text: of large files, a search reads the row groups that can match")
def row_groups(bench: Workbench) -> None:
    root = bench.home / "large"
    for part in range(2):
        agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)"
        lines = [f"GET /item/{row % 90} 200 by {agent} {trace(row)}" for row in range(40_000)]
        lines[33_000] = f"upstream Timeout {part}"
        write(root / f"{part}.parquet", {"m": lines}, row_group_size=10_000)
    done = bench.skipstone("build", root, "-c", "m:ngram", "--no-spark")
    assert done.code == 0, done.err
    for where, kept in {
        "m LIKE '%Timeout%'": 2,
        "m LIKE '%Timeout 1%'": 1,
        f"m LIKE '%{trace(12_000)}%'": 2,
        "m LIKE '%Mozilla%'": 8,
    }.items():
        told = json.loads(bench.skipstone("explain", root, where, "--json").out)
        assert told["forecast"]["row_groups"]["kept"] == kept, (where, told["forecast"])


@point("text: of large row groups, a search reads the pages that can match")
def pages(bench: Workbench) -> None:
    root, rows = bench.home / "long", 160_000
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/107.0"
    lines = [
        f"GET /item/{row % 90} 200 by {agent} {trace(row)} ms={row % 70}" for row in range(rows)
    ]
    write(root / "0.parquet", {"id": range(rows), "m": lines}, row_group_size=rows)
    done = bench.skipstone("build", root, "-c", "m:ngram", "--no-spark")
    assert done.code == 0, done.err
    for where, few in ((f"m LIKE '%{trace(90_000)}%'", True), ("m LIKE '%Mozilla%'", False)):
        told = json.loads(bench.skipstone("explain", root, where, "--json").out)
        pages = told["forecast"]["pages"]
        assert (pages["kept"] <= pages["total"] / 3) is few, (where, pages)
    found = bench.skipstone("query", root, f"m LIKE '%{trace(90_000)}%'", "--columns", "id")
    assert "90000" in found.out.replace(",", ""), found.out
    checked = json.loads(bench.skipstone("check", root, "--deep", "--json").out)
    assert checked["ok"], checked
    assert checked["filters"] > 4, checked


@point("grep: matching rows as grep prints them, by an index where there is one")
def grep(bench: Workbench) -> None:
    root = logs(bench.home / "logs")
    done = bench.skipstone("grep", root, "Time(out|r) after [0-9]+", "--columns", "id")
    assert done.code == 0, done.err
    assert done.out == "5.parquet:1100\tERROR upstream Timeout after 30 s\n", done.out
    assert "there is no index of text: reading 4 of 8 files" in done.err, done.err
    assert f"skipstone build {root} -c m:ngram" in done.err, done.err
    assert bench.skipstone("build", root, "-c", "m:ngram", "--no-spark").code == 0
    done = bench.skipstone("grep", root, "-F", "-i", "TIMEOUT", "--json")
    found = json.loads(done.out)
    assert (found["rows"], found["files"]) == (1, {"kept": 1, "total": FILES}), found
    assert bench.skipstone("grep", root, "-c", "item/19[89]").out.count(":2\n") == FILES
    done = bench.skipstone("grep", root, "a(?=b)")
    assert done.code == 2, done.err
    assert "-F searches" in done.err


@point("grep: exit codes are 0 for a match, 1 for none, and 2 for errors")
def codes(bench: Workbench) -> None:
    root = logs(bench.home / "logs")
    assert bench.skipstone("grep", root, "Timeout").code == 0
    assert bench.skipstone("grep", root, "absent words").code == 1
    for wrong in ((root, "a("), (root, "x", "-c", "-l"), (bench.home / "absent", "x")):
        assert bench.skipstone("grep", *wrong).code == 2, wrong
