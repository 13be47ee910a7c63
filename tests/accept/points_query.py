"""Pictures of plans and files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone import Table
from tests.accept.registry import Missing, point
from tests.accept.tables import FILES, events, write
from tests.report.browser import Browser, chromium
from tests.report.data import parsed

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


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
