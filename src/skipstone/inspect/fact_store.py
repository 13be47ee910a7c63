"""Shows the fact store of a table, one fact part, or one encrypted pack.

Of an encrypted pack, the segments, the labels of their keys, and which segments open are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.facts.encrypted_packs import MAGIC, EncryptedPack, pack_end, pack_labels
from skipstone.facts.location import Location
from skipstone.facts.part_columns import OWN
from skipstone.facts.parts import PREFIX, open_part
from skipstone.indexes.bloom import Bloom
from skipstone.predicate.types import spark_name

from .inspection import StoreInspection, is_file, message_of
from .xskipper_store import shown_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.facts.part_columns import FactField
    from skipstone.facts.parts import Part
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage


_TAIL = 32 * 1024


def inspect_fact_store(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The store at ``path``, or the fact part at ``path``; ``keys`` open an encrypted one."""
    if is_file(storage, path):
        if not path.rpartition("/")[2].startswith(PREFIX) or path.endswith(".parquet"):
            return None
        stat = storage.stat(path)
        return [_part(open_part(path, stat.size or 0, stat.mtime, storage, keys), storage, rows)]
    location = Location(path)
    if not storage.has_children(location.facts):
        return None
    return [_store(storage, location, rows, keys)]


def _store(
    storage: Storage, location: Location, rows: int, keys: LabelledKeys | None
) -> StoreInspection:
    parts, notes = [], []
    listing = storage.list_all(location.facts)
    for at, path in enumerate(listing.paths):
        if not path.rpartition("/")[2].startswith(PREFIX):
            continue
        try:
            size, mtime = int(listing.sizes[at]), int(listing.mtimes[at])
            parts.append(open_part(path, size, mtime, storage, keys))
        except (SkipstoneError, OSError) as error:
            notes.append(f"part not used: {message_of(error)}")
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
    return StoreInspection(
        path=location.root,
        format="fact store",
        properties={
            "parts": len(parts),
            "rows": sum(part.rows for part in parts),
            "bytes": sum(part.size for part in parts),
            "packs": len(packs),
            "bytes_in_packs": packs.total_bytes,
            **_key_labels(parts),
        },
        columns=tuple(described.values()),
        rows=tuple(shown),
        notes=tuple(notes),
    )


def _part(part: Part, storage: Storage, rows: int) -> StoreInspection:
    notes: list[str] = []
    return StoreInspection(
        path=part.path,
        format="fact part",
        properties={
            "rows": part.rows,
            "bytes": part.size,
            "own_columns": _own(part),
            **_key_labels([part]),
        },
        columns=tuple(_columns(part)),
        rows=tuple(_rows(part, storage, rows, notes)),
        notes=tuple(notes),
    )


def _key_labels(parts: Iterable[Part]) -> dict[str, Any]:
    """The labels of the keys of encrypted parts; empty if no part is encrypted."""
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
    """The label of the key that encrypts the leaves of a column."""
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
    locked = {name: error for name in names if (error := part.locked(name)) is not None}
    notes += dict.fromkeys(f"{name}: {error.message}" for name, error in locked.items())
    names = [name for name in names if name not in locked]
    try:
        table = part.read(storage, names).slice(0, rows)
    except (SkipstoneError, OSError) as error:
        notes.append(f"rows cannot be read: {message_of(error)}")
        return []
    blooms = {
        field.arrow.name
        for field in part.fields
        if field.definition is not None and field.definition.kind == Bloom.name
    }
    return [
        shown_row({name: value for name, value in row.items() if value is not None}, blooms)
        for row in table.to_pylist(maps_as_pydicts="lossy")
    ]


def inspect_encrypted_pack(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The encrypted pack at ``path``; ``FormatError`` if it is damaged or was changed."""
    if not path.endswith(".pack") or not is_file(storage, path):
        return None
    id_, tail = storage.read_tail(path, _TAIL)
    if bytes(tail[-len(MAGIC) :]) != MAGIC:
        return None
    size = id_.size or 0
    end = pack_end(tail, size, path)
    if end > len(tail):
        _, tail = storage.read_tail(path, end)
    properties: dict[str, Any] = {
        "bytes": size,
        "key_labels": list(dict.fromkeys(pack_labels(tail, size, path))),
    }
    pack, notes = None, []
    try:
        if keys is None:
            raise KeyUnavailableError("it is encrypted, and no key was given (--index-key)")
        pack = EncryptedPack.open(path, size, tail, keys)
    except KeyUnavailableError as error:
        notes.append(f"the directory cannot be read: {error.message}")
    if pack is None or keys is None:
        return [
            StoreInspection(
                path=path, format="encrypted pack", properties=properties, notes=tuple(notes)
            )
        ]
    properties |= {
        "bytes_of_plaintext": int(pack.starts[-1]),
        "bytes_of_a_frame": pack.frame,
        "segments": len(pack.key),
    }
    columns = tuple(_segment(storage, pack, at, keys) for at in range(len(pack.key)))
    return [
        StoreInspection(path=path, format="encrypted pack", properties=properties, columns=columns)
    ]


def _segment(storage: Storage, pack: EncryptedPack, at: int, keys: LabelledKeys) -> dict[str, Any]:
    """One segment, and whether all its frames decrypt."""
    start, stop = int(pack.starts[at]), int(pack.starts[at + 1])
    frames, opens = pack.frames(start, stop - start) or [], "yes"
    try:
        for segment, frame, place in frames:
            data = storage.read_ranges([place]).get(place)
            if data is None:
                raise FormatError("a frame is cut short", file=pack.path)
            pack.plain(segment, frame, data, keys)
    except KeyUnavailableError as error:
        opens = error.message
    except SkipstoneError as error:
        opens = f"no: {error.message}"
    return {
        "name": pack.names[at],
        "key_label": pack.label(at),
        "bytes": stop - start,
        "frames": len(frames),
        "opens": opens,
    }
