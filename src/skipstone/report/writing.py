"""A plan, or a file, to a page on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import StaleError
from skipstone.execution import TableScan
from skipstone.execution.open_files import OpenFiles
from skipstone.human import of_total, size
from skipstone.parquet.reading.file import ParquetFile
from skipstone.planning.explain import Explanation
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import leaves
from skipstone.storage import open_storage

from .document import document
from .file_page import Budget, inside
from .plan_page import MOST_FILES, overview

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.reading.query import Where
    from skipstone.pruning.plan import Plan

__all__ = ["MOST_OPENED", "Written", "write", "write_file"]

#: Files to read whose inside is drawn: the first of them.
MOST_OPENED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A page that was written: its ``bytes``, and of how many files the inside can be opened, of
    those that the plan reads."""

    path: str
    subject: str
    bytes: int
    opened: int
    kept: int
    total: int

    def __str__(self) -> str:
        inner = of_total(self.opened, self.kept, "files to read")
        return f"{self.path}: {size(self.bytes)}, the inside of {inner} ({self.total:,} listed)"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "report": self.path,
            "table": self.subject,
            "bytes": self.bytes,
            "files": {"opened": self.opened, "kept": self.kept, "total": self.total},
        }


def write(
    what: Plan | TableScan,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Written:
    """Draw a plan or a scan to an HTML file at ``path``, over what was there.

    The insides are read now, of the first ``MOST_OPENED`` files that the plan reads; one that is
    no Parquet, or another version by now, says so on the page. ``storage_options`` reach the files
    of a plan; a scan has those of its table.
    """
    scan = what if isinstance(what, TableScan) else TableScan(what)
    plan, query = scan.plan, scan.query
    if query is None:
        known = OpenFiles(open_storage(plan.listing.root, storage_options), storage_options)
        named = {step.column for step in plan.steps if step.used}
    else:
        known = query.footers.files
        named = {leaf.column for leaf in leaves(query.tree)}
    kept = np.flatnonzero(plan.keep[:MOST_FILES])[:MOST_OPENED].tolist()
    budget = Budget()

    def look(ordinal: int) -> dict[str, Any]:
        [file] = known.open([plan.listing.object_id(ordinal)])
        if isinstance(file, Exception):
            return {"trouble": _first_line(file)}
        if not file.id.same_version(plan.listing.object_id(ordinal)):
            return {"trouble": _first_line(StaleError(f"{file.path} has changed since"))}
        detail = plan.details.get(ordinal)
        try:
            return inside(file, None if detail is None else detail.rows, named, budget)
        except Exception as error:  # a picture of the rest is better than none
            return {"trouble": _first_line(error)}

    inner = dict(zip(kept, known.map(look, kept), strict=True))
    return _written(scan.explain(look=False), inner, path, "table")


def write_file(
    file: ParquetFile | str | os.PathLike[str],
    path: str | os.PathLike[str],
    where: Where = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    decryption: Decryption | None = None,
) -> Written:
    """Draw one Parquet file, and what ``where`` selects of it, to an HTML file at ``path``.

    ``decryption`` has the keys of an encrypted one; the page is in the clear. Raises as
    ``ParquetFile`` and its ``plan``.
    """
    if not isinstance(file, ParquetFile):
        file = ParquetFile(file, storage_options=storage_options, decryption=decryption)
    plan = file.plan(where)
    detail = plan.details.get(0)
    rows = None if detail is None else detail.rows
    if not plan.keep[0]:
        from skipstone.pruning import RowSet

        rows = RowSet()
    found = inside(
        file, rows, _columns_of(plan.predicate, file), Budget(headers=40_000, filters=256 << 20)
    )
    return _written(Explanation(plan), {0: found}, path, "file")


def _columns_of(predicate: str, file: ParquetFile) -> set[str]:
    return {leaf.column for leaf in leaves(bind(parse_sql(predicate), file.schema))}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _written(
    explanation: Explanation,
    inner: Mapping[int, Mapping[str, Any]],
    path: str | os.PathLike[str],
    kind: str,
) -> Written:
    plan = explanation.plan
    data = {
        "kind": kind,
        **overview(explanation),
        "opened": list(inner),
        "opened_most": MOST_OPENED,
    }
    title = f"{Path(plan.table).name or plan.table}: {plan.predicate}"
    text = document(data, inner, title=title, explain=str(explanation))
    encoded = text.encode()
    Path(path).write_bytes(encoded)
    return Written(
        path=str(path),
        subject=plan.table,
        bytes=len(encoded),
        opened=sum("trouble" not in each for each in inner.values()),
        kept=plan.files_kept,
        total=plan.files_total,
    )
