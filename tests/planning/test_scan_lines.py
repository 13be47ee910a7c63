"""Lines of the log of scans: both forms are read back, inside whatever a log puts around them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.planning.scan_lines import IndexUse, ScanLine

LINE = ScanLine(
    time="2026-01-02T03:04:05.678+00:00",
    table="spark_catalog.db.events",
    roots=("s3://lake/events",),
    files_kept=2,
    files_total=1240,
    bytes_kept=11_744_051,
    bytes_total=7_408_512_345,
    milliseconds=38.24,
    predicate="user_id = 'u-8814'",
    indexes=(IndexUse("user_id:bloom", 2, 1240), IndexUse("ts:minmax", 900, 1240)),
    reasons=("files: changed",),
    execution=12,
)


def test_the_forms() -> None:
    assert LINE.to_text() == (
        "scan table=spark_catalog.db.events roots=s3://lake/events format=parquet files=2/1240 "
        'bytes=11744051/7408512345 ms=38.2 indexes="user_id:bloom 2/1240 files; ts:minmax 900/1240 '
        'files" where="user_id = \'u-8814\'" reasons="files: changed" execution=12'
    )
    found = json.loads(LINE.to_json())
    assert (found["event"], found["files"]) == ("scan", {"kept": 2, "total": 1240})
    assert found["indexes"][0] == {
        "index": "user_id:bloom",
        "kept": 2,
        "considered": 1240,
        "unit": "files",
    }


texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.text(st.characters(codec="utf-8", exclude_characters=",;"), min_size=1, max_size=8)
roots = st.builds(
    "{}{}".format,
    st.sampled_from(["/", "s3://", "hdfs://host:8020/"]),
    st.text(st.characters(codec="utf-8", exclude_characters=":/"), min_size=1, max_size=8),
)
counts = st.integers(0, 10**12)
lines = st.builds(
    ScanLine,
    time=st.just(""),
    table=names,
    roots=st.lists(roots, max_size=2).map(tuple),
    files_kept=counts,
    files_total=counts,
    bytes_kept=counts,
    bytes_total=counts,
    milliseconds=st.integers(0, 10**6).map(float),
    format=st.sampled_from(["parquet", "csv"]),
    predicate=st.none() | texts.filter(bool),
    indexes=st.lists(
        st.builds(IndexUse, st.builds("{}:bloom".format, names), counts, counts), max_size=2
    ).map(tuple),
    reasons=st.lists(names, max_size=2).map(tuple),
    execution=st.none() | st.integers(0, 10**6),
)


@given(line=lines, before=st.sampled_from(["", "26/01/02 INFO skipstone: ", '{"level": "x"} ']))
def test_both_forms_are_read_back(line: ScanLine, before: str) -> None:
    assert ScanLine.found(before + line.to_json()) == line
    assert "\n" not in line.to_text()
    assert ScanLine.found(f"{before}{line.to_text()}\n") == line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a scan of the table",
        "scan table=x",
        "scan table=x files=1 bytes=2/3 ms=1",
        'scan table="x files=1/2 bytes=2/3 ms=1',
        '{"event": "scan"}',
        '{"event": "scan", "table": ',
        LINE.to_json().replace("1240", '"many"'),
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert ScanLine.found(line) is None


def test_rounding_is_all_that_is_lost() -> None:
    found = ScanLine.found(LINE.to_text())
    assert found == replace(LINE, time="", milliseconds=38.2)
