"""Writes a page of HTML that draws what a plan reads and skips, or what a Parquet file contains.

The overview of a plan has these JSON-ready lists and values:

    state   one digit per file: ``READ``, or the level that skipped it plus 1; ``SKIPPED`` if the
            plan does not record the level
    mark    one digit per file: 0, ``STALE`` or ``MISSING``: the file has no valid fact
    tally   files, bytes and rows (-1: unknown) of all files, per state; ``marks`` the same per mark

The page draws ``MOST_FILES`` files at most and counts all of them.

The page loads nothing from the network. Its data are JSON in elements that no browser runs. ``<``
is written ``\\u003c`` in them, so that no file name can end the element, and the script shows text
only as text. A content security policy allows only this script and this style, by their hashes,
and no connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone._version import __version__
from skipstone.errors import SkipstoneError, StaleError, first_line
from skipstone.execution import TableScan
from skipstone.execution.open_files import OpenFiles
from skipstone.human import Report, of_total, size
from skipstone.parquet.arrow.metadata_tables import shown
from skipstone.parquet.reading.file import ParquetFile, Where
from skipstone.planning.explain import Explanation
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import leaves
from skipstone.storage import open_storage
from skipstone.storage.atomic_replace import put_atomically, remove_temporary

from .file_page import Budget, inside

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.pruning.plan import Plan


MOST_FILES: Final = 100_000
#: The page shows the inside of the first files that the plan reads, this many at most.
MOST_OPENED: Final = 200

READ: Final = 0
SKIPPED: Final = 5
STALE: Final = 1
MISSING: Final = 2

_SCRIPTS: Final = ("words.js", "cells.js", "grid.js", "inside.js", "main.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFiles(Report):
    """The numbers of files whose inside is drawn, that the plan reads, and that are listed."""

    opened: int
    kept: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport(Report):
    """A page was written: its path, the table or file that it draws, and its size in bytes."""

    report: str
    table: str
    bytes: int
    files: DrawnFiles

    def __str__(self) -> str:
        inner = of_total(self.files.opened, self.files.kept, "files to read")
        listed = f"{self.files.total:,} listed"
        return f"{self.report}: {size(self.bytes)}, the inside of {inner} ({listed})"


def write(
    what: Plan | TableScan,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> PageReport:
    """Draw a plan or a scan to an HTML file at ``path``; an existing file is replaced.

    The inside of the first ``MOST_OPENED`` files that the plan reads is read now. A file that is
    not Parquet or has changed since has a message on the page instead. ``storage_options`` are for
    the files of a plan; a scan uses those of its table.
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

    def describe(ordinal: int) -> dict[str, Any]:
        [file] = known.open([plan.listing.object_id(ordinal)])
        if isinstance(file, Exception):
            return {"trouble": first_line(file)}
        if not file.id.same_version(plan.listing.object_id(ordinal)):
            return {"trouble": first_line(StaleError(f"{file.path} has changed since"))}
        detail = plan.details.get(ordinal)
        try:
            return inside(file, None if detail is None else detail.rows, named, budget)
        except Exception as error:  # the rest of the page is still useful
            return {"trouble": first_line(error)}

    inner = dict(zip(kept, known.map(describe, kept), strict=True))
    return _written(scan.explain(look=False), inner, path, "table")


def write_file(
    file: ParquetFile | str | os.PathLike[str],
    path: str | os.PathLike[str],
    where: Where = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    decryption: Decryption | None = None,
) -> PageReport:
    """Draw one Parquet file, and the rows that ``where`` selects, to an HTML file at ``path``.

    ``decryption`` has the keys of an encrypted file; the page is not encrypted. Raises as
    ``ParquetFile`` and its ``plan`` do.
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


def _require_page(place: Path) -> None:
    """``SkipstoneError`` for a file that is no page of HTML, such as a data file."""
    if not place.exists():
        return
    with place.open("rb") as file:
        begin = file.read(15).lower()
    if begin and not begin.startswith((b"<!doctype html", b"<html")):
        raise SkipstoneError(
            f"{place} exists, and is no page of HTML",
            hint="name another file for the report: only a page is replaced",
        )


def _written(
    explanation: Explanation,
    inner: Mapping[int, Mapping[str, Any]],
    path: str | os.PathLike[str],
    kind: str,
) -> PageReport:
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
    place = Path(path).resolve()
    if place.is_file() or not place.exists():
        _require_page(place)
        # It shows values: only users who may read the files may read it.
        remove_temporary(place)
        put_atomically(place, encoded, plan.listing.paths)
    else:
        place.write_bytes(encoded)  # e.g. /dev/stdout
    return PageReport(
        report=str(path),
        table=plan.table,
        bytes=len(encoded),
        files=DrawnFiles(
            opened=sum("trouble" not in each for each in inner.values()),
            kept=plan.files_kept,
            total=plan.files_total,
        ),
    )


def states(plan: Plan) -> NDArray[np.int8]:
    """The state of each file."""
    found = np.full(plan.files_total, SKIPPED, np.int8)
    if plan.dropped is not None:
        known = plan.dropped >= 0
        found[known] = plan.dropped[known] + 1
    found[plan.keep] = READ
    return found


def _marks(plan: Plan) -> NDArray[np.int8]:
    found = np.zeros(plan.files_total, np.int8)
    if plan.stale is not None:
        found[plan.stale] = STALE
    if plan.missing is not None:
        found[plan.missing] = MISSING
    return found


def overview(explanation: Explanation) -> dict[str, Any]:
    """The JSON-ready overview of a plan that the module describes."""
    plan = explanation.plan
    listing, drawn = plan.listing, slice(0, MOST_FILES)
    state, mark = states(plan), _marks(plan)
    selected = plan.row_counts.copy()
    selected[~plan.keep] = 0
    for file, detail in plan.details.items():
        if detail.rows is not None:
            selected[file] = len(detail.rows)
    below = f"{listing.root.rstrip('/')}/"
    return {
        "version": __version__,
        "table": shown(plan.table),
        "predicate": shown(plan.predicate),
        "headline": shown(explanation.headline),
        "exact": plan.exact,
        "root": shown(listing.root),
        "files_total": plan.files_total,
        "names": [shown(path.removeprefix(below)) for path in listing.paths[drawn]],
        "sizes": listing.sizes[drawn].tolist(),
        "rows": plan.row_counts[drawn].tolist(),
        "selected": selected[drawn].tolist(),
        "state": "".join(map(str, state[drawn].tolist())),
        "mark": "".join(map(str, mark[drawn].tolist())),
        "tally": [_tally(plan, state == each) for each in range(SKIPPED + 1)],
        "marks": [_tally(plan, mark == each) for each in range(MISSING + 1)],
        "total": _tally(plan, np.ones(plan.files_total, np.bool_)),
        "steps": [step.to_dict() for step in plan.steps],
    }


def _tally(plan: Plan, of: NDArray[np.bool_]) -> list[int]:
    rows = plan.row_counts[of]
    unknown = bool(np.any(rows < 0))
    sizes = plan.listing.sizes[of]
    return [int(np.count_nonzero(of)), int(sizes.sum()), -1 if unknown else int(rows.sum())]


def document(
    data: Mapping[str, Any], inner: Mapping[int, Mapping[str, Any]], *, title: str, explain: str
) -> str:
    """The HTML page. ``data`` describe the plan, ``inner`` the files by their ordinals."""
    page = files(__package__).joinpath("page")
    style = page.joinpath("style.css").read_text("utf-8")
    parts = [page.joinpath(name).read_text("utf-8") for name in _SCRIPTS]
    script = "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"
    elements = [_element("data", data), *(_element(f"file-{at}", inner[at]) for at in inner)]
    values = {
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        "title": escape(shown(title)),
        "style": style,
        "explain": escape(shown(explain)),
        "data": "\n".join(elements),
        "script": script,
    }
    text = page.joinpath("page.html").read_text("utf-8")
    # The template is split once, so inserted text is never expanded again.
    pieces = text.split("{{")
    done = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        done += [values[name], rest]
    return "".join(done)


def _element(id: str, value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return f'<script type="application/json" id="{id}">{text}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
