"""Facts evaluated run by run prove the same as facts in memory.

The layout: 12 files of 20 rows; file i has ids 20 i to 20 i + 19, `s` is "v" and i mod 3, `x` is i,
and null in every row of file 5. The facts lie in parts of several row groups of three rows each,
and not all in the same parts: minmax of `id` over files 0 to 9, a bloom filter of `s` added later
over all, minmax of `x` later still. File 3 has changed since it was indexed.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts import part_writer
from skipstone.planning.fact_runs import batches_over, column_bytes
from skipstone.pruning import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skipstone.planning.fact_runs import PartBatch, RunAnswer, RunJob

FILES = 12

WHERES = [
    "id = 47",
    "id = -1",
    "id BETWEEN 30 AND 95",
    "s = 'v1'",
    "s IN ('v0', 'nowhere')",
    "x IS NULL",
    "x IS NOT NULL",
    "x >= 4 AND x <= 9",
    "id = 47 OR s = 'v9'",
    "id < 40 OR x = 11",
    "id < 40 AND s = 'v1' AND x = 1",
    "NOT (id < 100)",
    "id >= 0",
    "upper(s) = 'V1' AND id < 30",
    "id IS NULL",
    "TRUE",
]


def write(path: Path, number: int, rows: int = 20) -> None:
    ids = np.arange(rows) + 20 * number
    x = pa.array([None if number == 5 else number] * rows, pa.int32())
    pq.write_table(pa.table({"id": ids, "s": [f"v{number % 3}"] * rows, "x": x}), path)
    os.utime(path, (1_600_000_000 + number,) * 2)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> skipstone.Table:
    monkeypatch.setattr(part_writer, "ROW_GROUP", 3)
    root = tmp_path / "t"
    root.mkdir()
    for number in range(10):
        write(root / f"{number:02d} é%.parquet", number)
    table = skipstone.Table(str(root))
    table.build(indexes=["id:minmax"], pm="none")
    for number in (10, 11):
        write(root / f"{number:02d} é%.parquet", number)
    table.build(indexes=["s:bloom"], pm="none")
    table.build(indexes=["x:minmax"], pm="none")
    write(root / "03 é%.parquet", 3, rows=25)
    return table


@pytest.mark.parametrize("where", WHERES)
def test_run_by_run_is_as_in_memory(table: skipstone.Table, where: str) -> None:
    held = table.plan(where)
    pieces = table.plan(where, memory=0)
    assert pieces.paths == held.paths
    assert pieces.must.tolist() == held.must.tolist()
    assert pieces.row_counts.tolist() == held.row_counts.tolist()
    assert pieces.exact == held.exact
    assert {step.index for step in pieces.steps if step.used} == {
        step.index for step in held.steps if step.used
    }


def test_something_is_skipped_run_by_run(table: skipstone.Table) -> None:
    """File 2 holds id 47, file 3 has changed, and of 10 and 11 no fact speaks of ids."""
    plan = table.plan("id = 47", memory=0)
    assert names(plan) == ["02", "03", "10", "11"]
    (step,) = (step for step in plan.steps if step.index == "minmax" and step.used)
    assert (step.considered, step.kept) == (9, 1)


def test_an_or_is_excluded_by_facts_in_different_parts(table: skipstone.Table) -> None:
    """No part alone says anything of `id = 47 OR s = 'v9'`: bounds of the leaves meet per file."""
    plan = table.plan("id = 47 OR s = 'v9'", memory=0)
    assert names(plan) == ["02", "03", "10", "11"]


def test_runs_are_row_groups_that_are_about_a_file(table: skipstone.Table) -> None:
    matched = table.store.snapshot().match(table.listing())
    found = batches_over(matched, {"id"})
    assert all(run.rows <= 3 and 0 < len(run.about) <= run.rows for run in found)
    alive = np.concatenate([run.first + run.about for run in found])
    assert (matched.file_of_row[alive] >= 0).all()
    assert sum(run.nbytes for run in found) <= column_bytes(matched, {"id"})
    assert column_bytes(matched, {"absent"}) == 0


def test_a_job_and_its_answers_travel(table: skipstone.Table) -> None:
    seen: list[bytes] = []

    def runner(job: RunJob, found: Sequence[PartBatch]) -> Iterable[RunAnswer]:
        for run in found:
            copied: Any = pickle.loads(pickle.dumps((job, run)))
            answer = pickle.dumps(copied[0].run(copied[1]))
            seen.append(answer)
            yield pickle.loads(answer)

    plan = planned(table, "id = 47 OR x = 2", runner)
    assert seen
    assert plan.paths == table.plan("id = 47 OR x = 2").paths


def test_a_part_that_is_damaged_says_nothing(table: skipstone.Table) -> None:
    before = table.plan("id = 47", memory=0)
    for part in table.store.snapshot().parts:
        if any(field.definition and "id" in field.definition.columns for field in part.fields):
            data = bytearray(Path(part.path).read_bytes())
            data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
            Path(part.path).write_bytes(data)
    plan = skipstone.Table(table.path).plan("id = 47", memory=0)
    assert before.files_kept == 4
    assert plan.files_kept == FILES
    assert any(reason.cause is Cause.CORRUPT for reason in plan.reasons)


def test_a_runner_that_fails_keeps_every_file(table: skipstone.Table) -> None:
    def runner(job: RunJob, found: Sequence[PartBatch]) -> Iterable[RunAnswer]:
        raise RuntimeError("no executors")

    plan = planned(table, "id = 47", runner)
    assert plan.files_kept == FILES
    assert [r.cause for r in plan.reasons if "no executors" in r.text] == [Cause.UNREADABLE]


def names(plan: skipstone.Plan) -> list[str]:
    """The numbers that the names of the files to read begin with."""
    return [path.rpartition("/")[2][:2] for path in plan.paths]


def planned(table: skipstone.Table, where: str, runner: Any) -> skipstone.Plan:
    """The plan by a runner of one's own."""
    from skipstone.planning.fact_runs import RunSettings
    from skipstone.planning.table_facts import ObjectPlanRequest, plan_objects
    from skipstone.predicate.binding import bind
    from skipstone.predicate.sql import parse_sql
    from skipstone.pruning.partitions import PartitionColumns

    listing = table.listing()
    return plan_objects(
        ObjectPlanRequest(
            tree=bind(parse_sql(where), table.schema(listing)),
            listing=listing,
            matches=[table.store.snapshot().match(listing)],
            partitions=PartitionColumns({}),
            table=table.path,
            predicate=where,
            runs=RunSettings(limit=0, runner=runner),
        )
    )
