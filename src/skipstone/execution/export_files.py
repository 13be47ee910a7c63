"""The files of a plan as other engines read them (``plan/handover.py``).

Every file is opened for it, as those engines will do again: only its footer says how it spells the
table's columns. One that had changed when it was opened first is handed over whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import StaleError, UnsupportedError
from skipstone.parquet.format.summary_file import is_summary
from skipstone.parquet.reading.row_ranges import group_rows
from skipstone.predicate.types import column_name

from .engine_export import Handed, HandedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.pruning import RowSet
    from skipstone.pruning.plan import Plan

    from .table_sources import Footers

__all__ = ["handed"]


def handed(footers: Footers, plan: Plan) -> Handed:
    """``UnsupportedError`` for files of which others would read more than the plan's version,
    ``StaleError`` for one that is not what it was when its indexes were asked."""
    kept = np.flatnonzero(plan.keep).tolist()
    footers.open(kept)
    for error in footers.files.map(lambda at: _changed(footers, at), kept):
        if error is not None:
            raise error
    schema = footers.table.schema
    _require_own_names(schema)
    return Handed(
        schema=schema,
        files=tuple(_file(footers, plan, at) for at in kept),
        storage_options=footers.files.options,
    )


def _changed(footers: Footers, at: int) -> Exception | None:
    """What is wrong with a file that is open no more as it is now."""
    if at in footers.failed:
        return footers.failed[at]
    opened = footers.opened[at].opened
    now = footers.files.storage.stat(opened.path)
    if opened.id.same_version(now) or "size" in footers.files.opening(opened.id):
        return None
    footers.files.forget(opened.path)
    return StaleError(f"{opened.path} changed since it was planned", hint="make the plan again")


def _require_own_names(schema: pa.Schema) -> None:
    lower = [name.lower() for name in schema.names]
    if len(set(lower)) < len(lower):
        raise UnsupportedError(
            "columns that differ in case alone are one column to some engines",
            hint="read the plan with to_arrow()",
        )


def _file(footers: Footers, plan: Plan, at: int) -> HandedFile:
    if "size" in footers.files.opening(footers.listing.object_id(at)):
        raise UnsupportedError(
            f"{plan.listing.paths[at]} may grow: other engines would read past the snapshot",
            hint="read the plan with to_arrow()",
        )
    view = footers.opened[at]
    file = view.opened
    if is_summary(file.footer):
        raise UnsupportedError(
            f"the columns of {file.path} lie in other files: other engines do not look there",
            hint="read the plan with to_arrow()",
        )
    if file.chunk_pages.decryptor is not None:
        raise UnsupportedError(
            f"{file.path} is encrypted: its keys are not handed to other engines",
            hint="read the plan with to_arrow(), or leave files in the clear for them",
        )
    names: dict[str, str] = {}
    given: dict[str, pa.Scalar] = {}
    for name in footers.table.schema.names:
        value = footers.table.partition_value(name, at)
        path = view.path(column_name((name,)))
        if value is not None:
            given[name] = value
        elif path is not None:
            names[name] = path[0]
    rows: RowSet | None = None
    detail = plan.details.get(at)
    if detail is not None and footers.fresh(at):
        rows = detail.rows
    groups = [group.row_group for group in group_rows(rows, file.row_starts)]
    return HandedFile(
        path=file.path,
        num_rows=file.num_rows,
        rows=None if rows is None or len(rows) == file.num_rows else rows,
        row_groups=None if len(groups) == file.num_row_groups else tuple(groups),
        schema=file.schema,
        names=names,
        given=given,
    )
