"""Bit slices of Bloom filters through the public API, over real files."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table

FILES, KEYS, STEP = 1_030, 20, 1_000_003


def lay(path: Path, number: int, first: int = 0) -> None:
    """20 keys that span the same range in every file, and as texts; a null."""
    keys = [*(np.arange(KEYS) * STEP + number + first).tolist(), None]
    table = pa.table({"id": pa.array(keys, pa.int64()), "name": [f"n-{key}" for key in keys]})
    pq.write_table(table, path / f"part-{number:05d}.parquet")
    os.utime(path / f"part-{number:05d}.parquet", (1 + first, 1 + first))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("slices") / "t"
    path.mkdir()
    for number in range(FILES):
        lay(path, number)
    table = Table(str(path))
    table.build(indexes=["id:bloom", "name:bloom"], pm="none")
    return table


def test_a_needle_in_a_thousand_files(table: Table) -> None:
    """The same files and rows before and after; then a file is replaced, and one is new."""
    wheres = [f"id = {7 * STEP + 500}", f"name = 'n-{3 * STEP + 1029}'", f"id = {STEP + 5_000}"]
    wheres += [f"id IN ({4 * STEP + 3}, {STEP - 7_000}, {9 * STEP + 77})", "id IS NULL"]
    before = [(table.plan(where).keep.tolist(), table.query(where)) for where in wheres]
    report = table.compact()
    assert (report.sliced, report.filters) == (2 * FILES, 2 * FILES)
    assert "bit slices of 2,060 of 2,060 Bloom filters" in str(report)
    assert report.bytes_after == table.describe().bytes_index
    assert "bit slices: of 2,060 filters" in str(table.describe())
    for where, (keep, rows) in zip(wheres, before, strict=True):
        plan = table.plan(where)
        assert plan.keep.tolist() == keep
        assert table.query(where).equals(rows)
        if where != "id IS NULL":
            # Filters of 320 bits: a value whose second hash is a multiple of 80 asks four bits.
            assert plan.files_kept < FILES // 4
            assert "bloom slices" in {step.index for step in plan.steps if step.used}
    assert "bloom slices" in str(table.explain(wheres[0]))
    assert table.check().ok

    path = Path(table.path)
    lay(path, 500, first=10_000)
    lay(path, FILES)
    assert table.plan(wheres[0]).keep[500]
    table.refresh()
    assert table.plan(f"id = {7 * STEP + 10_500}").keep[500]
    assert table.query(f"id = {7 * STEP + 10_500}").num_rows == 1
    assert table.query(wheres[0]).num_rows == 0
    assert table.query(f"id = {7 * STEP + FILES}").num_rows == 1
    table.compact()
    assert table.query(f"id = {7 * STEP + 10_500}").num_rows == 1
    assert table.query(f"id = {7 * STEP + FILES}").num_rows == 1
    assert table.query(wheres[0]).num_rows == 0
    assert table.check().ok
    assert table.vacuum(timedelta(seconds=-60)).removed == ()

    facts = Path(table.location.facts)
    assert len(list(facts.glob("slices-*"))) == 1
    table.drop("name:bloom")
    assert list(facts.glob("slices-*")) == []
    table.drop()
    assert not facts.exists()
