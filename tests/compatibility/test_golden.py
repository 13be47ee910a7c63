"""Each released version's index is read as well as that version read it: the same rows, and no more
files. A refresh continues it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from skipstone._version import __version__
from tests.compatibility.golden import FILES, HOME, Golden, bucket, fill, versions
from tests.compatibility.make import data, rows
from tests.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3 import Gate

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=versions())
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def golden(version: str, s3_server: tuple[str, list[str], Gate]) -> Iterator[Golden]:
    """The bucket of a version, as it left it."""
    with bucket(s3_server, version) as filled:
        fill(filled, version)
        yield filled


def test_every_version_has_its_files() -> None:
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", log, re.MULTILINE)
    assert {*released, __version__} <= set(versions()), "run `python -m tests.compatibility.make`"


@pytest.mark.parametrize("locked", [False, True], ids=["clear", "encrypted"])
def test_rows_and_files(golden: Golden, version: str, locked: bool) -> None:
    expected = json.loads((HOME / version / "expected.json").read_text(encoding="utf-8"))
    assert len(expected) >= 10
    skipped = 0
    for where, answer in expected.items():
        assert golden.ids(where, locked=locked) == answer["ids"], where
        kept = golden.files(where, locked=locked)
        assert set(kept) <= set(answer["files_locked" if locked else "files"]), where
        skipped += FILES - len(kept)
    assert skipped > 0


@pytest.mark.parametrize("locked", [False, True], ids=["clear", "encrypted"])
def test_it_is_whole_and_fresh(golden: Golden, locked: bool) -> None:
    found = golden.table(locked=locked).check(deep=True)
    assert found.ok, str(found)
    assert (found.fresh, found.files_total) == (FILES, FILES)


def test_a_refresh_continues_it(golden: Golden, version: str) -> None:
    golden.put("table/day=2/part-8.parquet", data(FILES))
    table = golden.table()
    before = table.describe()
    assert (before.fresh, before.missing) == (FILES, 1)
    report = table.refresh()
    assert (report.files_built, report.files_already) == (1, FILES)
    after = golden.table().describe()
    assert after.fresh == FILES + 1
    assert {each.name for each in after.indexes} == {each.name for each in before.indexes}
    golden.table().compact()
    assert golden.files("city = 'town-8'") == ["day=2/part-8.parquet"]
    assert golden.ids("city = 'town-8'") == sorted(row["id"] for row in rows(FILES))
    assert golden.ids("id = 403") == [403]
    assert golden.table().check(deep=True).ok
