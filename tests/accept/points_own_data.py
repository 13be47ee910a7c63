"""Somebody tries Skipstone on data of their own: builds, mistakes, interrupts and output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.accept.registry import point
from tests.accept.tables import FILES, events

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
    assert "Spark is started from" in report["engine"], report["engine"]
    again = bench.skipstone("build", table, "-c", "id:bloom", "--json")
    assert json.loads(again.out)["files_already"] == FILES
    assert json.loads(again.out)["engine"] == ""
