"""Somebody tries Skipstone on data of their own: builds, mistakes, interrupts and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table
from tests.accept.registry import point
from tests.accept.tables import FILES, backdate, events, write
from tests.folders import ROOT

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


@point("own data: a build runs in this process where that is shorter, and says so")
def shortest_way(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    ran = bench.skipstone("build", table, "-c", "id:bloom", "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["files_built"] == FILES
    assert report["engine"].startswith("in this process, "), report["engine"]
    assert "Spark would take longer" in report["engine"], report["engine"]
    again = bench.skipstone("build", table, "-c", "id:bloom", "--json")
    assert json.loads(again.out)["files_already"] == FILES
    assert json.loads(again.out)["engine"] == ""


@point("own data: an unreadable file is named, not tried again, and queries can leave it out")
def unreadable(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    bad = sorted(table.iterdir())[3]
    bad.write_bytes(bad.read_bytes()[:-50])
    backdate(bad)
    assert bench.skipstone("build", table, "-c", "id:bloom").code == 3
    told = bench.skipstone("describe", table).out
    assert "1 unreadable" in told, told
    assert "refresh`" not in told, told
    again = bench.skipstone("refresh", table)
    assert again.code == 3
    assert "not tried again" in again.out, again.out
    assert bench.skipstone("query", table, "day = 5", "--csv").code == 1
    rest = bench.skipstone("query", table, "day >= 0", "--skip-unreadable", "--csv")
    assert rest.code == 3
    assert rest.err.startswith("missing: the result lacks the rows of 1 of 12 files"), rest.err
    assert len(rest.out.splitlines()) == 1 + 11 * 200


@point("own data: check --repair replaces a part of the index that is corrupt")
def repaired(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    assert bench.skipstone("build", table, "-c", "id:bloom").code == 0
    assert bench.skipstone("build", table, "-c", "day:minmax").code == 0
    part = next((bench.home / "_lake.skipstone" / "facts").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-10])
    assert bench.skipstone("check", table).code == 3
    mended = bench.skipstone("check", table, "--repair")
    assert mended.code == 0, mended.out
    assert bench.skipstone("check", table).code == 0


@point("own data: a misprint drops no index, and a report replaces nothing but a page")
def misprint(bench: Workbench) -> None:
    table, key = events(bench.home / "lake"), bench.home / "key"
    key.write_bytes(os.urandom(16))
    assert bench.skipstone("build", table, "-c", "day:minmax").code == 0
    before = {each: each.read_bytes() for each in table.iterdir()}
    given = ("--footer-key", f"file:{key}", "--column-key", f"dya=file:{key}")
    failed = bench.skipstone("encrypt", table, *given)
    assert failed.code == 1
    assert "did you mean 'day'" in failed.err, failed.err
    one = next(iter(before))
    assert "is no page of HTML" in bench.skipstone("report", table, "-o", one).err
    assert {each: each.read_bytes() for each in table.iterdir()} == before
    assert "day:minmax" in [each.name for each in Table(table).describe().indexes]


@point("own data: timestamps of nanoseconds are indexed, and advise does not propose row labels")
def nanoseconds(bench: Workbench) -> None:
    table = bench.home / "lake"
    table.mkdir()
    for part in range(4):
        start = np.datetime64(f"2026-01-0{part + 1}", "ns")
        times = start + np.arange(500) * np.timedelta64(1_000_001, "ns")
        labels = np.arange(500) + 500 * part
        path = write(table / f"p{part}.parquet", {"t": times, "__index_level_0__": labels})
        assert pq.read_schema(path).field("t").type.unit == "ns"
    built = bench.skipstone("build", table, "-c", "t:minmax", "--json")
    assert json.loads(built.out)["left_out"] == [], built.out
    found = json.loads(bench.skipstone("explain", table, "t >= '2026-01-03'", "--json").out)
    assert found["files"]["kept"] == 2, found["files"]
    advised = json.loads(bench.skipstone("advise", table, "--json").out)
    assert advised["indexes"] == ["t:minmax"], advised["indexes"]


@point("own data: files of nanoseconds and of microseconds are one table, to the microsecond")
def mixed_units(bench: Workbench) -> None:
    root = bench.home / "mixed"
    for part, unit in enumerate(("ns", "us", "ns")):
        ticks = [
            1_767_225_600_000_000_007 + 10**9 * row for row in range(10 * part, 10 * part + 10)
        ]
        times = pa.array(ticks).cast(pa.timestamp("ns")).cast(pa.timestamp(unit), safe=False)
        write(root / f"p{part}.parquet", {"t": times, "n": [*range(10 * part, 10 * part + 10)]})
    assert bench.skipstone("build", root, "-c", "t:minmax").code == 0
    for row in (3, 13, 23):
        where = f"t = '2026-01-01 00:00:{row:02}'"
        found = bench.skipstone("query", root, where, "--csv")
        assert found.out.splitlines() == ["t,n", f"2026-01-01 00:00:{row:02}.000000,{row}"], found
        plan = json.loads(bench.skipstone("explain", root, where, "--json").out)
        assert plan["files"]["kept"] == 1, plan["files"]


@point("own data: advise stays within 300 MB where it samples a table of 240 MB")
def bounded_advice(bench: Workbench) -> None:
    table = bench.home / "lake"
    table.mkdir()
    draw = np.random.default_rng(7)
    for part in range(6):
        rows = pa.table({f"c{n}": draw.random(625_000) for n in range(8)})
        pq.write_table(rows, table / f"p{part}.parquet", use_dictionary=False, compression="none")
    assert sum(each.stat().st_size for each in table.iterdir()) > 230e6
    code = (
        "import sys; from skipstone.cli import cli\n"
        "try: cli(sys.argv[1:])\n"
        "finally: sys.stderr.write(open('/proc/self/status').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "advise", str(table)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status = dict(line.split(":", 1) for line in done.stderr.splitlines() if ":" in line)
    megabytes = int(status["VmHWM"].split()[0]) * 1024 / 1e6
    assert megabytes <= 300, f"{megabytes:.0f} MB"


@point("own data: Ctrl-C ends a build within a second with 130, and a closed pipe is a success")
def interrupted(bench: Workbench) -> None:
    table = bench.home / "lake"
    draw = np.random.default_rng(5)
    for part in range(40):
        write(table / f"p{part:02d}.parquet", {f"c{n}": draw.random(200_000) for n in range(4)})
    command = [sys.executable, "-m", "skipstone"]
    columns = [each for n in range(4) for each in ("-c", f"c{n}:bitmap")]
    running = subprocess.Popen([*command, "build", table, *columns], stderr=subprocess.PIPE)
    # Packs are written while files are indexed.
    packs, deadline = bench.home / "_lake.skipstone" / "packs", time.monotonic() + 60
    while not packs.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    start = time.perf_counter()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == 130, running.returncode
    assert "the same command continues from there" in errors.decode(), errors
    assert time.perf_counter() - start < 2, "it took more than a second, on a busy machine two"
    with subprocess.Popen([*command, "query", table, "--csv"], stdout=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"c0,c1,c2,c3\n"
        reading.stdout.close()
    assert reading.returncode == 0, reading.returncode


@point("own data: output stays aligned, an empty result has its names, and JSON has its schema")
def output(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    none = bench.skipstone("query", table, "day = 99", "--columns", "day,id")
    assert none.out.splitlines() == ["day  id", "---  --", "(0 rows)"], none.out
    assert bench.skipstone("query", table, "--columns", "").code == 2
    found = json.loads(bench.skipstone("explain", table, "day = 3", "--json").out)
    assert found["schema_version"] == 1
    schema = json.loads((ROOT / "docs" / "schemas" / "explain.json").read_text("utf-8"))
    assert found.keys() <= schema["properties"].keys()
    assert {*schema["required"]} <= found.keys()
    assert {step["level"] for step in found["steps"]} <= {"files", "row groups", "pages", "rows"}


@point("own data: the shell completes columns and index kinds")
def completion(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    words = f"skipstone build {table.name} -c da"
    done = subprocess.run(
        [sys.executable, "-m", "skipstone"],
        cwd=bench.home,
        env={**os.environ, "_SKIPSTONE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        | {"COMP_CWORD": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plain,day:minmax" in done.stdout.splitlines(), done.stdout + done.stderr


@point("own data: skipstone demo makes a table, shows four verbs, and ends in seconds")
def demo(bench: Workbench) -> None:
    ran = bench.skipstone("demo")
    assert ran.code == 0, ran.err
    shown = [line.split()[2] for line in ran.out.splitlines() if line.startswith("$ skipstone ")]
    assert shown == ["advise", "build", "explain", "query"], shown
    assert "1 of 40 files" in ran.out
    assert "The rows are the same." in ran.out
