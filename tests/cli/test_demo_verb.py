"""``skipstone demo``: a guided start that needs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_it_makes_a_table_and_shows_the_verbs(run: Run, tmp_path: Path) -> None:
    done = run("demo", tmp_path / "d")
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(list((tmp_path / "d" / "orders").glob("*.parquet"))) == 40
    for verb in ("advise", "build", "explain", "query"):
        assert f"\n$ skipstone {verb} " in done.stdout
    assert "indexed 40 of 40 files" in done.stdout
    assert "read 1 of 40 files" in done.stdout
    assert "The rows are the same." in done.stdout
    again = run("demo", tmp_path / "d")
    assert again.exit_code == 0
    assert "It is there already." in again.stdout
    # The commands that it shows work as they are shown.
    root = tmp_path / "d" / "orders"
    assert run("count", root, "order_id = 654321").stdout == "1\n"
    assert run("query", root, "order_id = 654321").stdout in done.stdout


def test_it_does_not_touch_another_table(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "d" / "orders"
    root.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), root / "mine.parquet")
    done = run("demo", tmp_path / "d")
    assert done.exit_code == 1
    assert "is not the table of a demo" in done.stderr
    assert [each.name for each in root.iterdir()] == ["mine.parquet"]
