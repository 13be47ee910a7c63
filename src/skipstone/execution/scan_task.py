"""Splits a plan into scan tasks. Each Spark task receives one and reads its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.pruning.plan import FileDetail
from skipstone.storage import open_storage

from .ordering import first_rows, sorted_rows
from .plan_rows import TableReader
from .table_scan import limited
from .table_sources import Engine, Footers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.predicate.tree import Bound
    from skipstone.pruning import RowSet
    from skipstone.pruning.plan import Plan

    from .file_columns import TableColumns
    from .table_scan import TableQuery


#: Bytes of files in one task; a larger file is split over several.
TARGET = 128 << 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScanTask:
    """Some files of a plan, or rows in a given order; it can be pickled.

    ``plan`` holds these files alone. ``rows`` are the file ordinals (in ``plan``) and row positions
    of the result, in order, known to match; ``None`` for all rows of the plan.
    """

    plan: Plan
    tree: Bound
    table: TableColumns
    columns: tuple[str, ...] | None
    storage_options: Mapping[str, str]
    limit: int | None = None
    rows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """The rows, piece by piece."""
        storage = open_storage(self.plan.table, self.storage_options)
        engine = Engine(storage, self.storage_options)
        footers = Footers(engine.files, self.plan.listing, lambda: self.table)
        reader = TableReader(footers, self.tree, self.columns)
        if self.rows is not None:
            footers.open(np.unique(self.rows[0]).tolist())
            yield sorted_rows(reader, *self.rows)
            return
        yield from limited(reader.tables(self.plan), self.limit)


def scan_tasks(plan: Plan, query: TableQuery, storage_options: Mapping[str, str]) -> list[ScanTask]:
    """Splits the plan of ``query`` into tasks; none where there is nothing to read.

    With an order, this call finds the first rows, and the task reads only their columns. With a
    limit alone there is one task, which stops when it has enough rows.
    """
    whole = ScanTask(
        plan=plan,
        tree=query.tree,
        table=query.footers.table,
        columns=query.columns,
        storage_options=dict(storage_options),
    )
    kept = np.flatnonzero(plan.keep)
    if not len(kept) or query.limit == 0:
        return []
    if query.orders:
        found = first_rows(query.reader(), plan, query.orders, query.limit, query.bounds)
        if not len(found):
            return []
        files, at = np.unique(found.file, return_inverse=True)
        return [replace(_of_files(whole, files), rows=(at.astype(np.int64), found.row))]
    if query.limit is not None:
        return [replace(_of_files(whole, kept), limit=query.limit)]
    made: list[ScanTask] = []
    group: list[int] = []
    size = 0
    for file in kept.tolist():
        own = int(plan.listing.sizes[file])
        detail = plan.details.get(file)
        if detail is not None and detail.rows is not None and plan.row_counts[file] > 0:
            own = own * len(detail.rows) // int(plan.row_counts[file])
        if own > TARGET:
            made += _cut(whole, query, file)
            continue
        if group and size + own > TARGET:
            made.append(_of_files(whole, np.array(group)))
            group, size = [], 0
        group.append(file)
        size += own
    if group:
        made.append(_of_files(whole, np.array(group)))
    return made


def _of_files(whole: ScanTask, files: NDArray[np.int64]) -> ScanTask:
    """The task that reads all of these files."""
    plan = whole.plan
    chosen = files.tolist()
    details = {at: plan.details[file] for at, file in enumerate(chosen) if file in plan.details}
    part = replace(
        plan,
        listing=plan.listing.where(files),
        keep=np.ones(len(files), np.bool_),
        must=plan.must[files],
        row_counts=plan.row_counts[files],
        details=details,
        steps=(),
        reasons=(),
    )
    return replace(whole, plan=part, table=whole.table.of_files(chosen))


def _cut(whole: ScanTask, query: TableQuery, file: int) -> list[ScanTask]:
    """The tasks of one large file: some row groups each."""
    reader = query.reader()
    alone = np.zeros_like(whole.plan.keep)
    alone[file] = True
    pieces = list(reader.pieces(replace(whole.plan, keep=alone & whole.plan.keep)))
    return [_rows_of(whole, file, piece.rows, sure=piece.sure) for piece in pieces]


def _rows_of(whole: ScanTask, file: int, rows: RowSet | None, *, sure: bool) -> ScanTask:
    part = _of_files(whole, np.array([file]))
    must = np.array([False])
    detail = FileDetail(rows=rows, exact=sure)
    plan = replace(part.plan, details={0: detail}, must=must)
    return replace(part, plan=plan)
