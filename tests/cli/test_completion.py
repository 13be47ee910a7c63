"""What a shell completes, asked as a shell asks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import Table
from skipstone.cli import cli

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path / "lake" / "day=1"
    root.mkdir(parents=True)
    rows = pa.table({"user_id": ["a"], "user_name": ["b"], "n": [1], "place": [{"city": "x"}]})
    pq.write_table(rows, root / "part.parquet")
    return tmp_path / "lake"


def completed(words: str, last: str = "") -> list[str]:
    """What bash would offer for ``last`` after ``words``."""
    count = len(shlex.split(words))
    env = {
        "_SKIPSTONE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"{words} {last}",
        "COMP_CWORD": str(count),
    }
    done = CliRunner().invoke(cli, [], env=env, prog_name="skipstone")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_columns_and_kinds(lake: Path) -> None:
    build = f"skipstone build {lake} -c"
    assert completed(build, "us") == ["user_id:", "user_name:"]
    assert {"place.city:bitmap", "place.city:bloom"} <= {*completed(build, "pl")}
    assert completed(build, "n:min") == ["n:minmax"]
    assert "n:minmax,bitmap" in completed(build, "n:minmax,b")
    assert completed(f"skipstone query {lake} --columns", "n,us") == ["n,user_id", "n,user_name"]
    assert completed(f"skipstone query {lake}x --columns", "u") == []


def test_paths_verbs_and_indexes(lake: Path) -> None:
    done = CliRunner().invoke(
        cli,
        [],
        env={
            "_SKIPSTONE_COMPLETE": "bash_complete",
            "COMP_WORDS": "skipstone build la",
            "COMP_CWORD": "2",
        },
    )
    assert done.stdout == "file,la\n"
    assert completed("skipstone", "co") == ["count", "compact"]
    Table(str(lake)).build(indexes=["n:minmax", "user_id:bloom"])
    assert completed(f"skipstone drop {lake}", "n") == ["n:minmax"]
