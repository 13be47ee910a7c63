"""Metadata apart from the data: summaries of a table, and columns in files of their own."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import ParquetFile, Table
from skipstone.cli import cli
from skipstone.rewrite import split_columns
from skipstone.storage.base import metered
from tests.accept.registry import point

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

_NAMES = [f"k={at % 3} é/part {at}%.parquet" for at in range(12)]


def laid(root: Path) -> None:
    """Twelve files of 20,000 rows with ids going on from one to the next, as if of long ago."""
    for at, name in enumerate(_NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        n = range(20_000 * at, 20_000 * (at + 1))
        pq.write_table(pa.table({"id": n, "x": [i * 7_919 % 10_007 for i in n]}), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))


@point("rewrite: _metadata holds the footers of a table for pyarrow, and plans read nothing else")
def summed_up(bench: Workbench) -> None:
    root = bench.home / "t"
    laid(root)
    run = CliRunner().invoke(cli, ["metadata", str(root), "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["files"] == 12
    theirs = ds.parquet_dataset(root / "_metadata").to_table(filter=ds.field("id") == 123_456)
    assert theirs.num_rows == 1
    assert pq.read_metadata(root / "_common_metadata").num_rows == 0
    with metered() as meter:
        plan = Table(str(root)).plan("id < 0")
    assert meter.paths == {f"{root}/_metadata"}
    assert meter.requests == 1
    assert plan.files_kept == 0
    assert Table(str(root)).query("id = 123456")["id"].to_pylist() == [123_456]


@point("rewrite: a file that is newer than _metadata is opened itself, and explain says so")
def outdated(bench: Workbench) -> None:
    root = bench.home / "t"
    laid(root)
    Table(str(root)).write_metadata()
    more = pa.table({"id": [-5] * 90_000, "x": range(90_000)})
    pq.write_table(more, root / _NAMES[3])
    pq.write_table(more, root / "k=0 é" / "new.parquet")
    table = Table(str(root))
    assert table.count("id = -5") == 180_000
    assert "_metadata: 2 of 13 files are new, or changed" in str(table.explain("id = -5"))
    collected = [pq.read_metadata(root / _NAMES[0])]
    collected[0].set_file_path(_NAMES[0])
    pq.write_metadata(more.schema, root / "_metadata", metadata_collector=collected)
    assert Table(str(root)).count("id = -5") == 180_000


@point("rewrite: columns of one file in several others are read by their indexes, or not at all")
def apart(bench: Workbench) -> None:
    path = bench.home / "wide.parquet"
    rows = pa.table({"id": range(50_000), "s": [f"v{n % 100}" for n in range(50_000)]})
    split_columns(rows, path, row_group_size=10_000, max_rows_per_page=1_000)
    file = ParquetFile(path)
    assert file.plan("id = 33333").rows_kept == 1_000
    assert file.query("id = 33333")["s"].to_pylist() == ["v33"]
    assert file.verify().ok
    sides = {name.rpartition(".")[2]: bench.home / name for name in file.column_files}
    assert pq.read_table(sides["s"]).num_rows == 50_000
    sides["s"].unlink()
    file = ParquetFile(path)
    assert file.query("id = 33333", ["id"]).num_rows == 1
    with pytest.raises(OSError, match="which is not there"):
        file.query("id = 33333")
