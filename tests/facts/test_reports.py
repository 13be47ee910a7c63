"""Reports say each count with its denominator, and give the same as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from skipstone.facts.reports import (
    BuildReport,
    CheckReport,
    CompactReport,
    Description,
    DropReport,
    ExportReport,
    IndexInfo,
    VacuumReport,
)
from skipstone.pruning import Cause, Reason

LEFT_OUT = Reason(
    cause=Cause.NOT_APPLICABLE, subject="valuelist(id)", text="more than 1,000 values", units=7
)
INDEX = IndexInfo(
    column="user_id",
    kind="bloomfilter",
    params=(("fpp", "0.01"), ("max_bytes", "64")),
    type="string",
    files=1238,
    bytes=40_000_000,
    left_out=2,
)
BUILT = BuildReport(
    table="/d/events",
    location="/d/_events.skipstone",
    files_total=1240,
    files_built=1230,
    files_already=2,
    files_failed=tuple((f"/d/events/{i}", "not Parquet") for i in range(7)),
    files_too_fresh=("/d/events/z",),
    left_out=(LEFT_OUT,),
    bytes_data=6_900_000_000,
    bytes_index=41_700_000,
    seconds=131,
    merged=1,
)
DESCRIBED = Description(
    table="/d/events",
    location="/d/_events.skipstone",
    files_total=1240,
    fresh=1238,
    stale=1,
    missing=1,
    orphaned=3,
    bytes_data=6_900_000_000,
    bytes_index=41_700_000,
    parts=1,
    indexes=(INDEX, IndexInfo(column="x", kind="soundex", known=False)),
    notes=("a part says nothing",),
)
CHECKED = CheckReport(
    table="/d/events",
    files_total=5,
    fresh=2,
    stale=("/d/events/a",),
    missing=2,
    corrupt=("part-1: torn",),
    untrue=("/d/events/b: min",),
    deep=True,
    sampled=2,
    compared=30,
)
ALL = [
    BUILT,
    INDEX,
    DESCRIBED,
    CHECKED,
    DropReport(table="t", dropped=("a:bloom",), remaining=("b:minmax",), bytes_removed=10),
    CompactReport(table="t", parts_before=9, parts_after=1, facts_before=20, facts_after=18),
    VacuumReport(table="t", removed=("/t/_x",), kept_young=2, bytes_removed=5),
    ExportReport(table="t", destination="/x", kind="xskipper", files_total=4, files=3),
]


@pytest.mark.parametrize("report", ALL, ids=lambda report: type(report).__name__)
def test_reports_are_values_that_json_has(report: Any) -> None:
    told = report.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told) >= {field.name for field in dataclasses.fields(report)}
    assert dataclasses.replace(report) == report
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(report, dataclasses.fields(report)[0].name, "other")
    assert not hasattr(report, "__dict__")


def test_a_build_in_words() -> None:
    assert str(BUILT).splitlines() == [
        "indexed 1,230 of 1,240 files, 2 had their facts already, in 2m11s",
        "wrote 41.7 MB of index (0.6 % of 6.9 GB) to /d/_events.skipstone",
        "merged 1 part",
        "could not read 7 of 1,240 files: no facts, so they are read in full",
        *(f"  /d/events/{i}: not Parquet" for i in range(5)),
        "  and 2 more",
        "still changing, 1 of 1,240 files: run `refresh` later",
        "  /d/events/z",
        "left out:",
        "  valuelist(id): more than 1,000 values (7)",
    ]
    assert not BUILT.ok
    assert BuildReport(table="t", files_total=1, files_built=1).ok
    nothing = BuildReport(table="t", files_total=1, files_built=0, files_already=1, seconds=0.5)
    assert str(nothing) == "indexed 0 of 1 files, 1 had their facts already, in 500 ms"


def test_a_description_in_words() -> None:
    lines = str(DESCRIBED).splitlines()
    assert lines[:3] == [
        "table /d/events   1,240 files   6.9 GB",
        "index /d/_events.skipstone   1 part   41.7 MB (0.6 % of the data)",
        "covers 1,238 of 1,240 files; 1 new and 1 changed since: read in full, run `refresh`; "
        "3 facts of files that are gone, or not part of the table",
    ]
    assert lines[4].split() == [
        *("user_id", "string", "bloomfilter", "fpp=0.01,", "max_bytes=64"),
        *("1,238", "of", "1,240", "files", "40.0", "MB", "2"),
    ]
    assert "soundex (unknown here)" in lines[5]
    assert lines[6] == "note: a part says nothing"
    fresh = dataclasses.replace(DESCRIBED, fresh=1240, stale=0, missing=0, orphaned=0)
    assert "covers 1,240 of 1,240 files (fresh)" in str(fresh)


def test_an_index_is_named_as_build_takes_it() -> None:
    assert INDEX.name == "user_id:bloomfilter(fpp=0.01,max_bytes=64)"
    assert INDEX.to_dict()["params"] == {"fpp": "0.01", "max_bytes": "64"}
    assert DESCRIBED.to_dict()["indexes"][0] == INDEX.to_dict()


def test_a_check_in_words() -> None:
    text = str(CHECKED)
    assert "stale     1 of 5 files changed since" in text
    assert "missing   2 of 5 files without facts" in text
    assert "rebuilt the facts of 2 of 5 files, asked 30 predicates with and without" in text
    assert text.endswith("not well: facts are wrong, run `drop` and `build`")


@pytest.mark.parametrize(
    "found, end",
    [
        ({}, "all is well"),
        ({"orphaned": 1}, "not well: unused facts, run `compact`"),
        ({"missing": 1}, "not well: these files are read in full, run `refresh`"),
        ({"stale": ("/a",)}, "not well: these files are read in full, run `refresh`"),
        ({"missing": 5}, "not well: the table has no index, run `build`"),
        ({"missing": 5, "orphaned": 1}, "not well: these files are read in full, run `refresh`"),
        (
            {"corrupt": ("x",), "stale": ("/a",)},
            "not well: what is corrupt counts as missing facts, run `check --repair`",
        ),
    ],
)
def test_a_check_ends_with_what_to_do(found: dict[str, Any], end: str) -> None:
    report = CheckReport(table="t", files_total=5, fresh=5, **found)
    assert str(report).splitlines()[-1] == end
    assert report.ok is (not found)
    assert report.to_dict()["ok"] is report.ok


def test_upkeep_in_words() -> None:
    dropped, compacted, vacuumed, exported = map(str, ALL[4:])
    assert dropped.splitlines() == [
        "dropped 1 of 2 indexes of t, 10 B",
        "  a:bloom",
        "remaining: b:minmax",
    ]
    assert compacted.startswith("merged 9 parts into 1, kept 18 of 20 facts, ")
    assert vacuumed.splitlines() == [
        "removed 1 of 3 unnamed objects, 5 B:",
        "  /t/_x",
        "kept 2 younger than 1d00h",
    ]
    assert str(VacuumReport(table="t", dry_run=True)).startswith("would remove 0 of 0")
    assert exported == "published 3 of 4 files as xskipper, 0 B, to /x"
