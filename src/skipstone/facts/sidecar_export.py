"""Publishes sidecars as the files that other systems read.

Containers of file indexes become ``<data file>.index``, as Paimon has them; row group metadata
becomes ``_pm`` in a directory of one data file, as QuestDB has it, and ``<data file>._pm`` where
a directory has several.

Each file is byte for byte the stored sidecar. Where builds at different times made several
containers for a file, their blobs go into one, the newest of each kind. The files go below a
directory of their own, in the folders that the data files have below the table; never among the
data files, where Spark would take them for data.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.paimon.format.container import ContainerHead, from_bytes, to_bytes
from skipstone.pruning import Cause, Reason
from skipstone.questdb.evidence.opened_pm import open_pm
from skipstone.storage import open_storage

from .part_columns import nonnull
from .reports import ExportReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.pruning.kind import Blob

    from .snapshot import MatchedFacts


# Files whose sidecars are read together.
_WAVE = 32
_Bytes: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """What is published: ``what`` is its name; ``check`` raises for bytes that are not the sidecar
    of that file; ``path_of`` is the published path of a data file, below the destination."""

    kind: str
    what: str
    lacking: str
    hint: str
    check: Callable[[_Bytes, int], object]
    path_of: Callable[[str], str]
    indexes: tuple[str, ...] = ()


def export_containers(
    matched: MatchedFacts, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the container of every file that has one below ``destination``.

    What cannot be read, or is no container, is left out with the reason. ``UnsupportedError`` where
    no file has one, and for a destination within the table.
    """
    places = matched.places("container")
    placed = (places.pack >= 0) | nonnull(places.inline)
    blobs: dict[int, list[Blob | None]] = {}
    for row in np.flatnonzero((matched.file_of_row >= 0) & placed)[::-1].tolist():
        blobs.setdefault(int(matched.file_of_row[row]), []).append(places.at(row))
    names = [
        f"{field.definition.column}:{field.definition.kind}"
        for field in matched.snapshot.fields
        if field.definition is not None and field.sidecar == "container"
    ]
    form = _Format(
        kind="paimon",
        what="a file index",
        lacking=f"{table} has no file index of Paimon's kinds",
        hint="`skipstone build TABLE -c COLUMN:bitmap` builds one",
        check=lambda data, file: ContainerHead.from_bytes(data, len(data)),
        path_of=lambda path: f"{path}.index",
        indexes=tuple(dict.fromkeys(names)),
    )
    return _export(matched, blobs, form, table, destination, options)


def export_pms(
    matched: MatchedFacts, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the ``_pm`` of every file that has one below ``destination``.

    What cannot be read, or is not the ``_pm`` of its file, is left out with the reason.
    ``UnsupportedError`` where no file has one, and for a destination within the table.
    """
    listing, places, rows = matched.listing, matched.places("pm"), matched.sidecar_rows("pm")
    start = len(listing.root)
    folders = Counter(path[start:].lstrip("/").rpartition("/")[0] for path in listing.paths)

    def path_of(path: str) -> str:
        folder, _, name = path.rpartition("/")
        return "/".join(filter(None, (folder, "_pm" if folders[folder] == 1 else f"{name}._pm")))

    form = _Format(
        kind="questdb",
        what="a _pm",
        lacking=f"{table} has no row group metadata",
        hint="`skipstone build` makes it with an index",
        check=lambda data, file: open_pm(data, parquet_size=int(listing.sizes[file])),
        path_of=path_of,
    )
    blobs = {file: [places.at(int(rows[file]))] for file in np.flatnonzero(rows >= 0).tolist()}
    return _export(matched, blobs, form, table, destination, options)


def _export(
    matched: MatchedFacts,
    blobs: Mapping[int, list[Blob | None]],
    form: _Format,
    table: str,
    destination: str,
    options: Mapping[str, str],
) -> ExportReport:
    """Write the sidecars of each file, the newest first in ``blobs``, as one file each."""
    home = canonical_path(destination).rstrip("/")
    if f"{home}/".startswith(f"{table.rstrip('/')}/"):
        raise UnsupportedError(
            f"{destination} lies within the table, where Spark would read sidecars as data",
            hint="export to a directory of its own",
        )
    listing = matched.listing
    source = open_storage(matched.snapshot.location.root, options)
    target = open_storage(home, options)
    written = size = 0
    left_out: list[Reason] = []
    files = sorted(blobs)
    for first in range(0, len(files), _WAVE):
        wave = files[first : first + _WAVE]
        held = [blob for file in wave for blob in blobs[file]]
        spans = {b: b.span(0, b.length) for b in held if b is not None and b.inline is None}
        got = source.read_ranges(list(spans.values())) if spans else {}
        for file in wave:
            path = listing.paths[file]
            sidecars: list[_Bytes] = []
            for blob in blobs[file]:
                data: _Bytes | None = None
                if blob is not None:
                    data = blob.inline if blob.inline is not None else got.get(spans[blob])
                try:
                    if data is None:
                        raise OSError(f"{form.what} is not where the facts say")
                    form.check(data, file)
                    sidecars.append(data)
                except (SkipstoneError, OSError) as error:
                    text = error.message if isinstance(error, SkipstoneError) else str(error)
                    left_out.append(Reason(cause=Cause.CORRUPT, subject=path, text=text))
            if sidecars:
                data = _joined(sidecars)
                target.put(f"{home}/{form.path_of(path[len(listing.root) :].lstrip('/'))}", data)
                written, size = written + 1, size + len(data)
    if not written and not left_out:
        raise UnsupportedError(form.lacking, hint=form.hint)
    if lacking := len(listing) - len(files):
        text = f"no {form.what.partition(' ')[2]} was built"
        left_out.append(Reason(cause=Cause.ABSENT, subject="files", text=text, units=lacking))
    return ExportReport(
        table=table,
        destination=home,
        kind=form.kind,
        files_total=len(listing),
        files=written,
        indexes=form.indexes,
        bytes=size,
        left_out=tuple(left_out),
    )


def _joined(parts: list[_Bytes]) -> _Bytes:
    """One container of the blobs of several; what comes first wins."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, dict[str, bytes | None]] = {}
    for part in parts:
        for (column, kind), blob in from_bytes(part)[1].items():
            columns.setdefault(column, {}).setdefault(kind, blob)
    return to_bytes(columns)
