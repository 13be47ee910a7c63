"""How ``inspect`` shows the fact store of a table, and one fact part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError
from skipstone.facts.location import Location
from skipstone.facts.part_columns import OWN
from skipstone.facts.parts import PREFIX, EncryptedPart, open_part
from skipstone.human import plain
from skipstone.indexes.bloom import Bloom
from skipstone.predicate.types import spark_name

from .found import Found, is_file
from .xskipper import bloom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.facts.part_columns import FactField
    from skipstone.facts.parts import Part
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage

__all__ = ["look"]

_FORMAT = "fact store"


def look(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[Found] | None:
    """The store at ``path``, or the one part that it is; ``keys`` open an encrypted one."""
    if is_file(storage, path):
        if not path.rpartition("/")[2].startswith(PREFIX) or path.endswith(".parquet"):
            return None
        stat = storage.stat(path)
        return [_part(open_part(path, stat.size or 0, stat.mtime, storage, keys), storage, rows)]
    location = Location(path)
    if not storage.has_children(location.facts):
        return None
    return [_store(storage, location, rows, keys)]


def _store(storage: Storage, location: Location, rows: int, keys: LabelledKeys | None) -> Found:
    parts, notes = [], []
    listing = storage.list_all(location.facts)
    for at, path in enumerate(listing.paths):
        if not path.rpartition("/")[2].startswith(PREFIX):
            continue
        try:
            size, mtime = int(listing.sizes[at]), int(listing.mtimes[at])
            parts.append(open_part(path, size, mtime, storage, keys))
        except (SkipstoneError, OSError) as error:
            text = error.message if isinstance(error, SkipstoneError) else str(error)
            notes.append(f"says nothing: {text}")
    packs = storage.list_all(location.packs)
    described: dict[tuple[str, ...], dict[str, Any]] = {}
    for part in parts:
        for column in _columns(part):
            key = tuple(map(str, column.values()))
            described.setdefault(key, {**column, "parts": 0})["parts"] += 1
    shown: list[dict[str, Any]] = []
    for part in parts:
        if len(shown) < rows:
            shown += _rows(part, storage, rows - len(shown), notes)
    return Found(
        path=location.root,
        format=_FORMAT,
        properties={
            "parts": len(parts),
            "rows": sum(part.rows for part in parts),
            "bytes": sum(part.size for part in parts),
            "packs": len(packs),
            "bytes_in_packs": packs.total_bytes,
            **_sealed(parts),
        },
        columns=tuple(described.values()),
        rows=tuple(shown),
        notes=tuple(notes),
    )


def _part(part: Part, storage: Storage, rows: int) -> Found:
    notes: list[str] = []
    return Found(
        path=part.path,
        format="fact part",
        properties={
            "rows": part.rows,
            "bytes": part.size,
            "own_columns": _own(part),
            **_sealed([part]),
        },
        columns=tuple(_columns(part)),
        rows=tuple(_rows(part, storage, rows, notes)),
        notes=tuple(notes),
    )


def _sealed(parts: Iterable[Part]) -> dict[str, Any]:
    """The labels of the keys of encrypted parts, where there are any."""
    found = {label for part in parts if part.encryption for label in part.encryption.labels()}
    return {"key_labels": sorted(found)} if found else {}


def _own(part: Part) -> list[str]:
    return [name for name in part.schema.names if name in OWN]


def _columns(part: Part) -> list[dict[str, Any]]:
    columns = []
    for field in part.fields:
        index = field.definition
        kind = "null count" if field.nulls is not None else "unknown"
        of = field.nulls or "-"
        type_ = field.types.field(0).type if field.types is not None and field.types else None
        columns.append(
            {
                "name": field.arrow.name,
                "kind": kind if index is None else index.kind,
                "column": of if index is None else index.column,
                "type": "-" if type_ is None else spark_name(type_),
                "params": {} if index is None else dict(index.params),
                **({} if part.encryption is None else {"key_label": _label(part, field)}),
            }
        )
    return columns


def _label(part: Part, field: FactField) -> str | None:
    """Of the key that the leaves of a column are encrypted with."""
    assert part.encryption is not None
    name = f"{field.arrow.name}."
    return next(
        (
            label
            for label, paths in part.encryption.paths().items()
            if any(f"{path}.".startswith(name) for path in paths)
        ),
        None,
    )


def _rows(part: Part, storage: Storage, rows: int, notes: list[str]) -> list[dict[str, Any]]:
    if rows == 0:
        return []
    names: list[str] = list(part.schema.names)
    if isinstance(part, EncryptedPart):
        locked = {name: error for name in names if (error := part.locked(name)) is not None}
        notes += dict.fromkeys(f"{name}: {error.message}" for name, error in locked.items())
        names = [name for name in names if name not in locked]
    try:
        table = part.read(storage, names).slice(0, rows)
    except (SkipstoneError, OSError) as error:
        text = error.message if isinstance(error, SkipstoneError) else str(error)
        notes.append(f"rows cannot be read: {text}")
        return []
    blooms = {
        field.arrow.name
        for field in part.fields
        if field.definition is not None and field.definition.kind == Bloom.name
    }
    return [
        {
            name: bloom(value) if name in blooms and isinstance(value, bytes) else plain(value)
            for name, value in row.items()
            if value is not None
        }
        for row in table.to_pylist(maps_as_pydicts="lossy")
    ]
