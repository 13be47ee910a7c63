"""Another process commits while builds, refreshes and queries run."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import skipstone
from tests.folders import ROOT
from tests.processes import environment
from tests.table_formats.committing import contents

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 34
#: all files that the formats' own libraries write into a table of this test
NAMES = {
    "delta": re.compile(r"_delta_log(/\d{20}\.json)?|part-[\w.-]+\.parquet"),
    "iceberg": re.compile(
        r"(data|metadata)|data/[\w-]+\.parquet|metadata/([\w-]+\.metadata\.json|[\w-]+\.avro)"
    ),
}


@pytest.mark.parametrize("format", NAMES)
def test_each_result_is_one_committed_version(tmp_path: Path, format: str) -> None:
    """Appends, deletes, compactions, and Delta's vacuum of what they leave: results never go back,
    the writer sees nothing of it, and nothing of ours lies in the table."""
    versions = contents(COMMITS)
    module = "tests.table_formats.committing"
    command = [sys.executable, "-m", module, format, str(tmp_path), str(COMMITS)]
    writer = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    with writer:
        assert writer.stdout.readline() == "made\n"
        table = skipstone.Table(tmp_path / "t")
        at = 0
        for round in range(COMMITS // 3):
            writer.stdin.write("\n")
            writer.stdin.flush()
            if round % 4 == 0:
                table.build(indexes=["id:bloom", "u:valuelist"])
            elif round % 4 == 3:
                table.compact()
            else:
                # A vacuum may take a file between the listing and the build.
                failed = table.refresh().files_failed
                assert all(why.endswith("is gone since it was listed") for _, why in failed), failed
            for where in ("id >= 0", "u = 'u1'", None):
                found = sorted(table.query(where)["id"].to_pylist())
                expected = [
                    [i for i in ids if where != "u = 'u1'" or i % 3 == 1] for ids in versions
                ]
                same = [each for each in range(at, COMMITS) if expected[each] == found]
                assert same, (format, round, where, found)
                at = same[0]
            count = table.count("u = 'u1' AND id >= 0")
            assert count in {sum(each % 3 == 1 for each in ids) for ids in versions[at:]}
        rest, errors = writer.communicate()
    assert (writer.returncode, rest) == (0, "done\n"), errors
    table.refresh()
    assert sorted(table.query()["id"].to_pylist()) == versions[-1]
    assert table.plan("id = 0").facts_missing == 0
    names = [path.relative_to(tmp_path / "t") for path in (tmp_path / "t").rglob("*")]
    assert [each for each in names if not NAMES[format].fullmatch(each.as_posix())] == []
