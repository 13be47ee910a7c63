"""Random tables, layouts, indexes and predicates through the public API: no matching row is lost.

A file that the plan leaves out holds no matching row; every row of a file that the plan calls fully
matching matches; after files came, went and changed, both still hold.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.indexes.registry import parse_index
from skipstone.predicate.types import column_name

from . import oracle, strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning.kind import Index

# Arrow writes a duration as a plain INT64, which Spark reads as a bigint: another column.
TYPES = [type for type in strategies.SPARK_TYPES if not pa.types.is_duration(type)]
KINDS = (
    "minmax",
    "minmax(truncate=2)",
    "valuelist",
    "valuelist(max_count=2)",
    "bloom(fpp=0.2)",
    "bitmap",
    "bitmap(version=1)",
    "rangebitmap",
    "bsi",
    "bloom-filter(items=20)",
)
OLD = 1_600_000_000
# Shrinking a table on disk takes minutes, and the drawn example is small as it is.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def write(root: Path, files: Sequence[strategies.DataFile], age: int = 0) -> None:
    """Write the files with an mtime long past, so that no build waits for them to settle."""
    for file in files:
        path = root / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(file.rows, path, row_group_size=3)
        os.utime(path, (OLD + age, OLD + age))


def applicable(table: pa.Table) -> list[Index]:
    """Every index that some kind can build over the table's columns."""
    found = []
    for path, type in strategies.leaf_columns(table.schema):
        for kind in KINDS:
            try:
                index = parse_index(f"{column_name(path)}:{kind}")
                index.stored_type(type)
            except (UnsupportedError, ValueError):
                continue
            found.append(index)
    return found


def assert_sound(table: Table, files: Sequence[strategies.DataFile], where: str) -> None:
    """Compare the plan for ``where`` with brute force over each file's rows."""
    plan = table.plan(where)
    at = {path: i for i, path in enumerate(plan.listing.paths)}
    for file in files:
        matches = oracle.matching_rows(file.rows, where, may=True)
        surely = oracle.matching_rows(file.rows, where)
        i = at[f"{table.path}/{file.name}"]
        assert plan.keep[i] or not surely, f"{file.name} is skipped and holds rows {surely}"
        if plan.must[i]:
            assert len(matches) == len(file.rows), f"{file.name}: not all rows match"
        detail = plan.details.get(i)
        if detail is not None and detail.rows is not None:
            selected = detail.rows.positions().tolist()
            assert set(surely) <= set(selected), f"{file.name}: rows are lost"
            if detail.exact:
                assert set(selected) <= set(matches), f"{file.name}: not all rows match"


@settings(phases=PHASES)
@given(st.data())
def test_no_matching_row_is_lost(data: st.DataObject) -> None:
    """Build some indexes over files as drawn; plans for drawn predicates miss nothing."""
    table = data.draw(strategies.tables(TYPES), label="table")
    partitioned = data.draw(st.booleans(), label="partitioned")
    files = data.draw(strategies.layouts(table, partitioned=partitioned), label="files")
    every = applicable(table)
    indexes = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=6)) if every else []
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "a table"
        root.mkdir()
        write(root, files)
        subject = Table(str(root))
        if indexes:
            report = subject.build(indexes=indexes)
            assert report.files_built == len(files), report
        for _ in range(3):
            try:
                assert_sound(subject, files, data.draw(strategies.sql_texts(table), label="where"))
            except (oracle.NotModelled, oracle.SparkError):
                continue


@settings(phases=PHASES)
@given(st.data())
def test_no_matching_row_is_lost_when_files_change(data: st.DataObject) -> None:
    """After the build a file is replaced, one is added and one removed; then refresh catches up."""
    table = data.draw(strategies.tables(TYPES), label="table")
    partitioned = data.draw(st.booleans(), label="partitioned")
    files = data.draw(strategies.layouts(table, partitioned=partitioned), label="files")
    other = data.draw(strategies.layouts(table, partitioned=partitioned), label="other rows")
    every = applicable(table)
    if not every:
        return
    indexes = data.draw(st.lists(st.sampled_from(every), unique=True, min_size=1, max_size=4))
    where = data.draw(strategies.sql_texts(table), label="where")
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "a table"
        root.mkdir()
        write(root, files)
        subject = Table(str(root))
        subject.build(indexes=indexes)
        now = {file.name: file for file in files}
        gone = data.draw(st.sampled_from(files), label="removed")
        (root / gone.name).unlink()
        del now[gone.name]
        for file in other:
            now[file.name] = file
        write(root, other, age=data.draw(st.sampled_from([0, 1])))
        try:
            assert_sound(subject, list(now.values()), where)
            subject.refresh()
            assert_sound(subject, list(now.values()), where)
        except (oracle.NotModelled, oracle.SparkError):
            return
        assert subject.check().stale == ()
        assert subject.check().missing == 0
        subject.compact()
        assert subject.check().ok
        assert_sound(subject, list(now.values()), where)
        assert subject.check(deep=True).untrue == ()
