"""What makes the project one to rely on: `doctor`, and indexes of earlier versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.accept.registry import point
from tests.accept.tables import events
from tests.compatibility.golden import FILES, HOME, bucket, fill, versions
from tests.s3 import serve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


@point("doctor: a package that ends the process, and no Java, are findings with what to do")
def broken(bench: Workbench) -> None:
    (bench.home / "pyarrow.py").write_text("import os, signal; os.kill(os.getpid(), 11)")
    path = os.pathsep.join([str(bench.home), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "skipstone", "doctor", "--json"],
        env={"PATH": str(bench.home), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    problems = [each for each in json.loads(done.stdout)["findings"] if each["state"] == "problem"]
    named = {each["area"] for each in problems}
    assert {"packages", "java"} <= named, f"only {sorted(named)} have a problem"
    assert all(each["hint"] for each in problems), "a problem says not what to do"


@point("doctor: a table and its index, absent, fresh and stale, each in a line")
def of_a_table(bench: Workbench) -> None:
    table: Path = events(bench.home / "lake")
    index = "-c", "id:bloom"
    assert "no index: queries read all" in bench.skipstone("doctor", table).out
    assert bench.skipstone("build", table, *index, "--no-spark").code == 0
    fresh = bench.skipstone("doctor", table, "--write")
    assert (fresh.code, "an object was written" in fresh.out) == (0, True), fresh.out
    (table / "new.parquet").write_bytes(next(table.glob("*.parquet")).read_bytes())
    stale = bench.skipstone("doctor", table)
    assert "; 1 new or changed, which queries read in full" in stale.out, stale.out
    assert f"run `skipstone refresh {table}`" in stale.out


@point("compatibility: the index of each released version gives its rows from its files")
def released(bench: Workbench) -> None:
    with contextmanager(serve)() as server:
        for version in versions():
            with bucket(server, version) as golden:
                fill(golden, version)
                expected = json.loads((HOME / version / "expected.json").read_text("utf-8"))
                for where, answer in expected.items():
                    found = golden.ids(where)
                    assert found == answer["ids"], f"{version}: {where}: {len(found)} rows"
                    kept = len(golden.files(where))
                    assert kept <= len(answer["files"]), f"{version}: {where}: {kept} of {FILES}"
