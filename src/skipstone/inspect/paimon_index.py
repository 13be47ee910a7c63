"""Shows a container of Paimon's file indexes, and the rows that it selects for a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, PredicateError, SkipstoneError
from skipstone.human import of_total
from skipstone.paimon.file_index import PaimonFileIndex, RowSelection
from skipstone.paimon.format.container import MAGIC, IndexEntry
from skipstone.paimon.format.keys import PaimonType
from skipstone.paimon.index_blob import KINDS, BlobDescription, describe_blob, likely_types
from skipstone.paimon.sidecar import PaimonColumnType

from .inspection import InspectionReport, InspectOptions, StoreInspection, is_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.storage import Storage


# The most row ranges in the text.
_MOST_RANGES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndexInspection(InspectionReport):
    """The container, and the rows that it selects for ``where``."""

    found: StoreInspection
    where: str | None = None
    selection: RowSelection | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; a range has its first and its last row."""
        document: dict[str, Any] = {"path": self.found.path, "found": [self.found.to_dict()]}
        if self.selection is not None:
            starts, stops = self.selection.rows.ranges()
            document["where"] = {
                "predicate": self.where,
                "exact": self.selection.exact,
                "rows": len(self.selection.rows),
                "rows_total": self.selection.row_count,
                "ranges": np.stack([starts, stops - 1], axis=1).tolist(),
                "steps": [step.to_dict() for step in self.selection.steps],
            }
        return document

    def __str__(self) -> str:
        lines = [str(self.found)]
        if self.selection is not None:
            found = self.selection
            count = of_total(len(found.rows), found.row_count, "rows")
            verb = "match" if found.exact else "may match"
            lines += ["", f"  where {self.where}", f"    {count} {verb}{_ranges(found)}"]
            lines += [
                f"    {step.index}({step.column}) is not used: {reason.text}"
                for step in found.steps
                if not step.used
                for reason in step.reasons
            ]
        return "\n".join(lines)


def is_file_index(storage: Storage, path: str) -> bool:
    """True for a file that begins with the magic bytes of a container."""
    if not is_file(storage, path):
        return False
    with storage.open(path) as file:
        return file.read(8) == MAGIC.to_bytes(8, "big")


def inspect_file_index(path: str, options: InspectOptions) -> FileIndexInspection:
    """Inspect the container at ``path``, and select rows for ``options.where``."""
    index = _opened(path, options)
    notes: list[str] = []
    sure = dict(index.types)
    shown = dict(sure)
    for name, others in _guessed(index).items():
        type, rest = others
        shown[name] = PaimonColumnType.of_paimon(type)
        if rest:
            width = "numbers" if "INT" in rest else f"keys of {type.width} bytes"
            notes.append(
                f"{name}: {width}, shown as {type}; may be {', '.join(rest)}"
                f" (--type {name}=… decides)"
            )
        else:
            sure[name] = shown[name]
    columns, rows = _columns(index, shown, notes)
    found = StoreInspection(
        path=index.path,
        format="Paimon file index",
        properties={
            "version": 1,
            "bytes": index.size,
            "bytes_of_head": index.sidecar.head.length,
            "rows": rows if rows >= 0 else None,
            "types_from": index.data or ("what was named" if options.types else None),
        },
        columns=tuple(columns),
        notes=tuple(notes),
    )
    if options.where is None:
        return FileIndexInspection(found=found)
    index.types = sure
    try:
        selection = index.select(options.where)
    except PredicateError as error:
        unsure = [name for name in shown if name not in sure]
        # The columns that the predicate names come first.
        unsure.sort(key=lambda name: name not in (options.where or ""))
        named = any(name.lower() in options.where.lower() for name in unsure)
        if not named:  # the types are not the cause
            raise
        names = ", ".join(unsure)
        hint = f"the types of {names} are not known: give --type {unsure[0]}=TYPE, or --data FILE"
        raise SkipstoneError(error.message, hint=hint) from error
    return FileIndexInspection(found=found, where=options.where, selection=selection)


def _opened(path: str, options: InspectOptions) -> PaimonFileIndex:
    storage_options = options.storage_options
    named = {name: PaimonType.parse(type) for name, type in options.types.items()}
    try:
        index = PaimonFileIndex(path, data=options.data, storage_options=storage_options)
    except FormatError:
        # The adjacent data file is not Parquet, so it has no types to take.
        if options.data is not None:
            raise
        index = PaimonFileIndex(path, types=named, storage_options=storage_options)
    index.types.update({name: PaimonColumnType.of_paimon(type) for name, type in named.items()})
    unknown = [name for name in named if not index.sidecar.head.of_column(name)]
    if unknown:
        names = ", ".join(column.name for column in index.sidecar.head.columns)
        raise SkipstoneError(f"{path} has no column {unknown[0]!r}", hint=f"it has {names}")
    return index


def _guessed(index: PaimonFileIndex) -> dict[str, tuple[PaimonType, tuple[str, ...]]]:
    """The likely types, by their keys, of columns without a given type."""
    found: dict[str, tuple[PaimonType, tuple[str, ...]]] = {}
    for column in index.sidecar.head.columns:
        for entry in column.indexes:
            place = index.blob(entry.start, entry.length)
            if column.name in index.types or place is None:
                continue
            likely = likely_types(entry.kind, place, index.fetch)
            # A bsi only shows that the values are numbers; other indexes of the column show more.
            if likely is not None and (entry.kind != "bsi" or column.name not in found):
                found[column.name] = likely
    return found


def _columns(
    index: PaimonFileIndex, types: Mapping[str, PaimonColumnType], notes: list[str]
) -> tuple[list[dict[str, Any]], int]:
    shown, counts = [], set()
    for column in index.sidecar.head.columns:
        type = types.get(column.name)
        for entry in column.indexes:
            blob = _described(index, column.name, entry, type, notes)
            if blob.rows >= 0:
                counts.add(blob.rows)
            shown.append(
                {
                    "column": column.name,
                    "kind": entry.kind,
                    "type": None if type is None else str(type.paimon),
                    "bytes": entry.length,
                    "rows": blob.rows if blob.rows >= 0 else None,
                    "nulls": blob.nulls if blob.nulls >= 0 else None,
                    "distinct": blob.distinct if blob.distinct >= 0 else None,
                    "min": blob.min,
                    "max": blob.max,
                    "details": blob.details,
                }
            )
    if len(counts) > 1:
        raise FormatError(
            "indexes of files with different row counts",
            file=index.path,
            got=", ".join(f"{count:,}" for count in sorted(counts)),
        )
    return shown, next(iter(counts), -1)


def _described(
    index: PaimonFileIndex,
    column: str,
    entry: IndexEntry,
    type: PaimonColumnType | None,
    notes: list[str],
) -> BlobDescription:
    name = f"{entry.kind}({column})"
    if entry.is_empty:
        return BlobDescription(details={"empty": True})
    if entry.kind not in KINDS:
        notes.append(f"{name}: an unknown kind: it is not used")
        return BlobDescription()
    place = index.blob(entry.start, entry.length)
    if place is None:
        raise FormatError(f"{name} has no bytes", file=index.path, offset=entry.start)
    try:
        return describe_blob(entry.kind, None if type is None else type.paimon, place, index.fetch)
    except FormatError as error:
        raise FormatError(
            f"{name}: {error.about}",
            file=index.path,
            offset=entry.start + (error.offset or 0),
            expected=error.expected,
            got=error.got,
        ) from error


def _ranges(found: RowSelection) -> str:
    starts, stops = found.rows.ranges()
    if not len(starts):
        return ""
    parts = [
        f"{start:,}" if start + 1 == stop else f"{start:,} to {stop - 1:,}"
        for start, stop in zip(
            starts[:_MOST_RANGES].tolist(), stops[:_MOST_RANGES].tolist(), strict=True
        )
    ]
    more = f", … in {len(starts):,} ranges" if len(starts) > _MOST_RANGES else ""
    return f": {', '.join(parts)}{more}"
