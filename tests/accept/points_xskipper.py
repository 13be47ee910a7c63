"""Xskipper's stores: published, inspected, read where the user names one."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from skipstone import Table
from tests.accept.registry import Missing, point
from tests.accept.tables import FILES, events
from tests.folders import GOLDEN

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench

XSKIPPER = GOLDEN / "xskipper"
KEY = b"org.apache.spark.sql.parquet.row.metadata"


@point("xskipper: export publishes version 4 whole, under the name that the original looks for")
def published(bench: Workbench) -> None:
    root = events(bench.home / "events")
    specs = ("id:bloom", "day:minmax", "kind:valuelist", "place.city:valuelist")
    flags = [flag for spec in specs for flag in ("-c", spec)]
    assert bench.skipstone("build", root, *flags, "--no-spark").code == 0
    ran = bench.skipstone("export", root, bench.home / "out", "--xskipper")
    assert ran.code == 0, ran.err
    directory = bench.home / "out" / hashlib.sha256(str(root).encode()).hexdigest()
    parts = list(directory.glob("part-*.parquet"))
    assert parts, f"nothing in {directory.name}"
    schema = pq.read_schema(parts[0])
    document = json.loads(schema.metadata[KEY])
    assert document["fields"][0]["metadata"]["version"] == 4, document["fields"][0]
    names = set(schema.names)
    wanted = {"obj_name", "id_bloomfilter_2", "day_minmax_3", "kind_valuelist_4"}
    assert wanted <= names, names
    assert "place$#$city_valuelist_12" in names, names
    rows = pq.read_table(parts[0])
    assert len(rows) == FILES, f"{len(rows)} rows for {FILES} files"
    assert all(rows[name].null_count == 0 for name in wanted), "a null means: skip this file"


@point("xskipper: a published store is read as evidence where the user names it, and says so")
def read_back(bench: Workbench) -> None:
    root = events(bench.home / "events")
    Table(str(root)).build(indexes=["id:bloom", "day:minmax", "kind:valuelist"])
    assert bench.skipstone("export", root, bench.home / "out", "--xskipper").code == 0
    store = next((bench.home / "out").iterdir())
    for location in (store, bench.home / "out"):
        ran = bench.skipstone("explain", root, "day = 3", "--index-location", location, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["files"] == {"kept": 1, "total": FILES}, ran.out
    text = bench.skipstone("explain", root, "kind = 'rare'", "--index-location", store).out
    assert "read 1 of" in text, text
    ran = bench.skipstone("refresh", root, "--index-location", store, "--no-spark")
    assert (ran.code, ran.err.count("hint:")) == (1, 1), ran


@point("xskipper: stores of versions 1 to 4 that the original wrote are shown and used")
def of_the_original(bench: Workbench) -> None:
    if not XSKIPPER.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    for version in (1, 2, 3, 4):
        store = next((XSKIPPER / "testID=01" / "metadata" / f"version={version}").iterdir())
        ran = bench.skipstone("inspect", store, "--json")
        assert ran.code == 0, ran.err
        assert f'"version": {version}' in ran.out, ran.out[:300]
        assert "valuelist" in ran.out, ran.out[:300]
