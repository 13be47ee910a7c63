"""Publishing sidecars as the files that others read.

Containers of file indexes become ``<data file>.index``, as Paimon has them; row group metadata
becomes ``_pm`` in a directory of one data file, as QuestDB has it, and ``<data file>._pm`` where
there are several.

Each is byte for byte what lies in the pack or in the fact row; where builds at different times made
several containers for a file, their blobs go into one, the newest of each kind. They go below a
directory of their own, in the folders that the data files have below the table; never among the
data files, where Spark would take them for data.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.paimon.format.container import ContainerHead, from_bytes, to_bytes
from skipstone.pruning import Cause, Reason
from skipstone.questdb.evidence.opened_pm import open_pm
from skipstone.storage import open_storage

from .packs import Place
from .part_columns import place_columns
from .reports import ExportReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .match import Matched

__all__ = ["export_containers", "export_pms"]

# Files whose containers are read together.
_WAVE = 32


def export_containers(
    matched: Matched, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the container of every file that has one below ``destination``.

    What cannot be read, or is no container, is left out with the reason. ``UnsupportedError`` where
    no file has one, and for a destination within the table.
    """
    home = _home(destination, table)
    listing, location = matched.listing, matched.snapshot.location
    source = open_storage(location.root, options)
    target = open_storage(home, options)
    written = size = 0
    left_out: list[Reason] = []
    places = _places(matched)
    for first in range(0, len(listing), _WAVE):
        files = [file for file in range(first, min(first + _WAVE, len(listing))) if file in places]
        wanted = [
            needed
            for file in files
            for place in places[file]
            if (needed := place.byte_range(location)) is not None
        ]
        got = source.read_ranges(wanted) if wanted else {}
        for file in files:
            path = listing.paths[file]
            parts = []
            for place in places[file]:
                needed = place.byte_range(location)
                data = place.inline if needed is None else got.get(needed)
                try:
                    if data is None:
                        raise OSError("a file index is not where the facts say")
                    ContainerHead.from_bytes(data, len(data))
                    parts.append(data)
                except (SkipstoneError, OSError) as error:
                    text = error.message if isinstance(error, SkipstoneError) else str(error)
                    left_out.append(Reason(cause=Cause.CORRUPT, subject=path, text=text))
            if parts:
                data = _joined(parts)
                target.put(f"{home}/{path[len(listing.root) :].lstrip('/')}.index", data)
                written, size = written + 1, size + len(data)
    lacking = len(listing) - len(places)
    if not written and not left_out:
        raise UnsupportedError(
            f"{table} has no file index of Paimon's kinds",
            hint="`skipstone build TABLE -c COLUMN:bitmap` builds one",
        )
    if lacking:
        text = "no file index was built"
        left_out.append(Reason(cause=Cause.ABSENT, subject="files", text=text, units=lacking))
    names = [
        f"{field.definition.column}:{field.definition.kind}"
        for field in matched.snapshot.fields
        if field.definition is not None and field.sidecar == "container"
    ]
    return ExportReport(
        table=table,
        destination=home,
        kind="paimon",
        files_total=len(listing),
        files=written,
        indexes=tuple(dict.fromkeys(names)),
        bytes=size,
        left_out=tuple(left_out),
    )


def _home(destination: str, table: str) -> str:
    home = canonical_path(destination).rstrip("/")
    if f"{home}/".startswith(f"{table.rstrip('/')}/"):
        raise UnsupportedError(
            f"{destination} lies within the table, where Spark would read sidecars as data",
            hint="export to a directory of its own",
        )
    return home


def export_pms(
    matched: Matched, *, table: str, destination: str, options: Mapping[str, str]
) -> ExportReport:
    """Write the ``_pm`` of every file that has one below ``destination``.

    What cannot be read, or is not the ``_pm`` of its file, is left out with the reason.
    ``UnsupportedError`` where no file has one, and for a destination within the table.
    """
    home = _home(destination, table)
    listing, places = matched.listing, matched.places("pm")
    source = open_storage(matched.snapshot.location.root, options)
    target = open_storage(home, options)
    rows = matched.sidecar_rows("pm")
    folders = Counter(path.rpartition("/")[0] for path in listing.paths)
    written = size = 0
    left_out: list[Reason] = []
    having = np.flatnonzero(rows >= 0).tolist()
    for first in range(0, len(having), _WAVE):
        blobs = {file: places.at(int(rows[file])) for file in having[first : first + _WAVE]}
        wanted = {
            file: blob.span(0, blob.length)
            for file, blob in blobs.items()
            if blob is not None and blob.inline is None
        }
        got = source.read_ranges(list(wanted.values())) if wanted else {}
        for file, blob in blobs.items():
            path = listing.paths[file]
            data = None if blob is None else blob.inline
            if file in wanted:
                data = got.get(wanted[file])
            try:
                if data is None:
                    raise OSError("a _pm is not where the facts say")
                open_pm(data, parquet_size=int(listing.sizes[file]))
            except (SkipstoneError, OSError) as error:
                text = error.message if isinstance(error, SkipstoneError) else str(error)
                left_out.append(Reason(cause=Cause.CORRUPT, subject=path, text=text))
                continue
            folder, _, name = path[len(listing.root) :].lstrip("/").rpartition("/")
            alone = folders[path.rpartition("/")[0]] == 1
            own = "_pm" if alone else f"{name}._pm"
            target.put("/".join(filter(None, (home, folder, own))), bytes(data))
            written, size = written + 1, size + len(data)
    lacking = len(listing) - len(having)
    if not written and not left_out:
        raise UnsupportedError(
            f"{table} has no row group metadata", hint="`skipstone build` makes it with an index"
        )
    if lacking:
        text = "no _pm was made"
        left_out.append(Reason(cause=Cause.ABSENT, subject="files", text=text, units=lacking))
    return ExportReport(
        table=table,
        destination=home,
        kind="questdb",
        files_total=len(listing),
        files=written,
        bytes=size,
        left_out=tuple(left_out),
    )


def _places(matched: Matched) -> dict[int, list[Place]]:
    """Where the containers of each file lie, the newest first."""
    pack, offset, length, inline = (matched.snapshot.own(n) for n in place_columns("container"))
    found: dict[int, list[Place]] = {}
    for row in np.flatnonzero(matched.file_of_row >= 0)[::-1].tolist():
        place = None
        if inline[row].is_valid:
            place = Place(inline=inline[row].as_py())
        elif pack[row].is_valid and offset[row].is_valid and length[row].is_valid:
            name, start, size = pack[row].as_py(), offset[row].as_py(), length[row].as_py()
            place = Place(pack=name, offset=start, length=size)
        if place is not None:
            found.setdefault(int(matched.file_of_row[row]), []).append(place)
    return found


def _joined(parts: list[bytes | memoryview]) -> bytes | memoryview:
    """One container of the blobs of several; what comes first wins."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, dict[str, bytes | None]] = {}
    for part in parts:
        for (column, kind), blob in from_bytes(part)[1].items():
            columns.setdefault(column, {}).setdefault(kind, blob)
    return to_bytes(columns)
