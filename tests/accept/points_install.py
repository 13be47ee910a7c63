"""How Skipstone comes to a machine, and the recipes that keep an index there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import skipstone
from tests.accept.registry import point
from tests.accept.tables import FILES, events, write
from tests.folders import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

_READER = "skipstone.parquet.reading.file_reader"
# One file has the id; a build in this process, and a query.
_CODE = """
import json, sys
if {without!r}:
    sys.modules[{without!r}] = None
import skipstone
table = skipstone.Table({table!r})
table.build(indexes=["id:bloom", "day:minmax", "kind:bitmap"])
print(json.dumps([skipstone.__file__, table.query("id = 1000", ["id", "day"]).to_pylist(),
    table.count("kind = 'rare'"), table.plan("day = 3", inside=False).files_kept]))
"""


def _answer(table: Path, path: str, without: str = "") -> tuple[str, list[object]]:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(table=str(table), without=without)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.strip()[-300:]
    file, *answer = json.loads(done.stdout)
    return file, answer


@point("install: PySpark is no dependency, and comes by an extra for machines without a Spark")
def no_spark(bench: Workbench) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [each for each in project["dependencies"] if each.startswith(("pyspark", "pandas"))]
    assert not needed, f"pip brings {', '.join(needed)}"
    extras = project["optional-dependencies"]
    assert any(each.startswith("pyspark>=") for each in extras["spark"])
    assert any(each.startswith("pyspark-client>=") for each in extras["connect"])


@point("install: the source as one zip on the path builds an index and answers from it")
def from_a_zip(bench: Workbench) -> None:
    archive = bench.home / "skipstone.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in (ROOT / "src").rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                out.write(file, file.relative_to(ROOT / "src"))
    found, answer = _answer(events(bench.home / "lake"), str(archive))
    assert found.startswith(str(archive)), f"it ran from {found}"
    assert answer == [[{"id": 1000, "day": 1000 % FILES}], 1, 1], answer


@point("install: without numba, builds and queries give the same")
def without(bench: Workbench) -> None:
    _, answer = _answer(events(bench.home / "lake"), str(ROOT / "src"), without="numba")
    assert answer == [[{"id": 1000, "day": 1000 % FILES}], 1, 1], answer


# Texts in files of more rows than are compared one by one.
_FIRST = """
import json, sys
import skipstone
found = skipstone.Table({table!r}).query("user = {user!r}", ["row"])["row"].to_pylist()
print(json.dumps([found, sorted(sys.modules)]))
"""


@point(
    "install: a first lookup loads no pandas, numba or pyarrow.compute; without a hit, no reader"
)
def first_lookup(bench: Workbench) -> None:
    table = bench.home / "users"
    for part in range(2):
        users = [f"u-{row * 2 + part:07}" for row in range(20_000)]
        write(table / f"{part}.parquet", {"user": users, "row": range(20_000)})
    assert bench.skipstone("build", table, "-c", "user:bloom", "--no-spark").code == 0
    late = {"pandas", "numba", "pyarrow.compute"}
    for user, rows, none in (("u-0000014", [7], late), ("u-x", [], {*late, _READER})):
        done = subprocess.run(
            [sys.executable, "-c", _FIRST.format(table=str(table), user=user)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        found, loaded = json.loads(done.stdout)
        assert found == rows, found
        assert none.isdisjoint(loaded), sorted(none.intersection(loaded))


@point("recipes: a table overwritten at night is right at once, and skips again after a refresh")
def overwritten(bench: Workbench) -> None:
    table = events(bench.home / "lake")
    assert bench.skipstone("build", table, "-c", "id:bloom", "--no-spark").code == 0
    shutil.rmtree(table)
    for part in range(4):
        write(table / f"night-{part}.parquet", {"id": range(part * 100, part * 100 + 100)})
    opened = skipstone.Table(str(table))
    assert opened.query("id = 250").num_rows == 1
    assert opened.plan("id = 250", inside=False).files_kept == 4, "old facts were used"
    assert bench.skipstone("refresh", table, "--no-spark").code == 0
    assert bench.skipstone("compact", table).code == bench.skipstone("vacuum", table).code == 0
    assert skipstone.Table(str(table)).plan("id = 250", inside=False).files_kept == 1
    found = bench.skipstone("check", table)
    assert found.code == 0, found.out
