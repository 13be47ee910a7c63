"""Stores of Xskipper from the command line: publish, read, show, upgrade."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four files of ten ids each."""
    root = tmp_path / "t"
    root.mkdir()
    for number in range(4):
        path = root / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(10 * number, 10 * number + 10)}), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return root


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_what_is_exported_is_read_again(run: Run, table: Path, tmp_path: Path) -> None:
    told(run("build", table, "-c", "id:minmax", "--no-spark", "--json", "-q"))
    exported = told(run("export", table, "--xskipper", "--json"))
    assert exported["destination"].startswith(f"{tmp_path}/_t.skipstone/xskipper/")
    for place in (exported["destination"], tmp_path / "_t.skipstone" / "xskipper"):
        found = told(run("explain", table, "id = 15", "--index-location", place, "--json"))
        assert found["files"] == {"kept": 1, "total": 4}
        assert any("path and time of a file" in each for each in found["reasons"])
    refused = run("refresh", table, "--no-spark", "--index-location", exported["destination"])
    assert refused.exit_code == 1
    assert "is a store of Xskipper" in refused.output
    assert "hint:" in refused.output


def test_compact_upgrades_a_store(run: Run, golden: Path, tmp_path: Path) -> None:
    [source] = (golden / "xskipper" / "testID=15" / "metadata" / "version=1").iterdir()
    home = tmp_path / source.name
    shutil.copytree(source, home)
    upgraded = told(run("compact", home, "--upgrade", "--json"))
    assert (upgraded["versions"], upgraded["rows"], upgraded["parts"]) == ([1], 3, 1)
    shown = told(run("inspect", home, "--json"))
    assert [found["version"] for found in shown["found"]] == [4]
    again = run("compact", home, "--upgrade")
    assert "is of version 4 already" in again.stdout
    missing = run("compact", tmp_path, "--upgrade")
    assert missing.exit_code == 1
    assert "no parts of a store" in missing.output
