"""Shows the index stores: the fact store of a table, fact parts, encrypted packs, Xskipper stores.

For an encrypted pack it shows the segments, the labels of their keys, and which segments open.

A metadata directory of Xskipper may have any version from 0 to 4. Version 0 stores serialised
objects that no reader supports: its columns are shown, its values are not. The key labels of an
encrypted store are shown if they are stored unencrypted.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    first_line,
    in_words,
)
from skipstone.facts.encrypted_packs import MAGIC, EncryptedPack, pack_end, pack_labels
from skipstone.facts.location import Location
from skipstone.facts.part_columns import OWN
from skipstone.facts.parts import PREFIX, open_part
from skipstone.human import of_total, plain
from skipstone.indexes.bloom import Bloom
from skipstone.parquet.encryption.master_keys import arrow_decryption
from skipstone.parquet.format.footer import read_footer as find_footer
from skipstone.predicate.types import spark_name
from skipstone.storage import hidden_by_spark
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.part import footer_key_label, plain_part, read_footer, read_part

from .inspection import StoreInspection, is_file
from .parquet_file import python_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import BinaryIO

    from skipstone.facts.part_columns import FactField
    from skipstone.facts.parts import Part
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage
    from skipstone.xskipper.format.part import PartFooter
    from skipstone.xskipper.format.schema import StoreSchema


_PACK_TAIL = 32 * 1024
_LONGEST_FOOTER = 1 << 20
_BLOOM = "bloomfilter"


def inspect_fact_store(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The store at ``path``, or the fact part at ``path``; ``keys`` open an encrypted one."""
    if is_file(storage, path):
        if not path.rpartition("/")[2].startswith(PREFIX) or path.endswith(".parquet"):
            return None
        stat = storage.stat(path)
        return [
            _fact_part(open_part(path, stat.size or 0, stat.mtime, storage, keys), storage, rows)
        ]
    location = Location(path)
    if not storage.has_children(location.facts):
        return None
    return [_fact_store(storage, location, rows, keys)]


def _fact_store(
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
            notes.append(f"part not used: {in_words(error)}")
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


def _fact_part(part: Part, storage: Storage, rows: int) -> StoreInspection:
    notes: list[str] = []
    return StoreInspection(
        path=part.path,
        format="fact part",
        properties={
            "rows": part.rows,
            "bytes": part.size,
            "own_columns": [name for name in part.schema.names if name in OWN],
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
        notes.append(f"rows cannot be read: {in_words(error)}")
        return []
    blooms = {
        field.arrow.name
        for field in part.fields
        if field.definition is not None and field.definition.kind == Bloom.name
    }
    return [
        shown_row({name: value for name, value in row.items() if value is not None}, blooms)
        for row in _python_rows(table)
    ]


def inspect_encrypted_pack(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The encrypted pack at ``path``; ``FormatError`` if it is damaged or was changed."""
    if not path.endswith(".pack") or not is_file(storage, path):
        return None
    id_, tail = storage.read_tail(path, _PACK_TAIL)
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
    columns: list[dict[str, Any]] = []
    if pack is not None and keys is not None:
        properties |= {
            "bytes_of_plaintext": int(pack.starts[-1]),
            "bytes_of_a_frame": pack.frame,
            "segments": len(pack.key),
        }
        columns = [_segment(storage, pack, at, keys) for at in range(len(pack.key))]
    return [
        StoreInspection(
            path=path,
            format="encrypted pack",
            properties=properties,
            columns=tuple(columns),
            notes=tuple(notes),
        )
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


def inspect_xskipper_store(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The store at ``path``, or all stores below it; or, if ``path`` is a part, the store of that
    part alone. ``keys`` open encrypted stores."""
    opens = None if keys is None else arrow_decryption(keys)
    if is_file(storage, path):
        found = _xskipper_store(storage, path, [path], [storage.stat(path).size or 0], rows, opens)
        return None if found is None else [found]
    listing = storage.list_all(path)
    folders: dict[str, list[int]] = {}
    for at, file in enumerate(listing.paths):
        folder, _, name = file.rpartition("/")
        if name.endswith(".parquet") and not hidden_by_spark(name):
            folders.setdefault(folder, []).append(at)
    stores = [
        _xskipper_store(
            storage,
            folder,
            [listing.paths[i] for i in at],
            listing.sizes[at].tolist(),
            rows,
            opens,
        )
        for folder, at in folders.items()
    ]
    return [store for store in stores if store is not None] or None


def _xskipper_store(
    storage: Storage,
    path: str,
    files: Sequence[str],
    sizes: Sequence[int],
    rows: int,
    opens: object | None,
) -> StoreInspection | None:
    """The store with the parts ``files``; ``None`` if the first readable file is not a part."""
    first: StoreSchema | None = None
    labels, notes, shown = set[str](), list[str](), list[dict[str, Any]]()
    unreadable = counted = 0
    named = _named_by_hash(path)
    for file in files:
        with storage.open(file) as source:
            if not _parquet(source):
                return None
            try:
                footer, by = _footer(source, file, opens)
            except KeyUnavailableError:
                unreadable += 1
                labels |= _footer_label(source)
                continue
            except FormatError:
                if first is None and not named:
                    return None
                raise
            if first is None and not footer.schema.indexes and not named:
                return None
            first = first or footer.schema
            if footer.schema != first:
                notes.append(f"{file.rpartition('/')[2]} has another schema than the first part")
            labels.update(footer.schema.encryption.labels() if footer.schema.encryption else ())
            counted += footer.rows
            if len(shown) < rows:
                shown += _xskipper_rows(source, footer.schema, rows - len(shown), notes, by)
            if opens is not None and by is None:
                notes.append(f"{file.rpartition('/')[2]} is not encrypted: keys make it unused")
    if first is None and not named:
        return None
    if unreadable:
        count = of_total(unreadable, len(files), "parts")
        notes.append(f"{count} have an encrypted footer: a key is needed")
    if first is not None and not first.usable:
        notes.append("version 0: its values cannot be read, so queries do not use it")
    return StoreInspection(
        path=path,
        format="Xskipper store",
        properties={
            "version": None if first is None else first.version,
            "table_identifier": None if first is None else first.table_identifier,
            "parts": len(files),
            "rows": counted if unreadable == 0 else None,
            "bytes": sum(sizes),
            "key_labels": sorted(labels),
        },
        columns=() if first is None else tuple(_xskipper_columns(first)),
        rows=tuple(shown),
        notes=tuple(notes),
    )


def _footer(source: BinaryIO, file: str, opens: object | None) -> tuple[PartFooter, object | None]:
    """The footer of a part, and the decryption of its columns, ``None`` if not encrypted."""
    reader = pa.PythonFile(source, mode="r")
    if opens is not None:
        try:
            return read_footer(reader, file=file, decryption=opens), opens
        except UnsupportedError:  # not encrypted, or too new: the next call raises the right error
            reader.seek(0)
    return read_footer(reader, file=file), None


def _footer_label(source: BinaryIO) -> set[str]:
    """The label of the key of an encrypted footer, if the part states one."""
    label = footer_key_label(find_footer(source, longest=_LONGEST_FOOTER)[1])
    return set() if not label else {label}


def _named_by_hash(path: str) -> bool:
    name = path.rpartition("/")[2]
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


def _parquet(source: BinaryIO) -> bool:
    """True for Parquet, encrypted or not; leaves ``source`` at its start."""
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - 4))
    tail = source.read(4)
    source.seek(0)
    return tail in (b"PAR1", b"PARE")


def _xskipper_columns(schema: StoreSchema) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = [
        {
            "name": virtual.name,
            "kind": "partition column",
            "columns": [virtual.column],
            "type": virtual.type.strip('"'),
            "params": {},
            "key_label": None,
        }
        for virtual in schema.virtual_columns
    ]
    for index in schema.indexes:
        try:
            type_ = "-" if index.kind == _BLOOM else spark_name(index.value_type())
        except SkipstoneError:
            type_ = "not understood"
        columns.append(
            {
                "name": index.name,
                "kind": index.kind,
                "columns": list(index.columns),
                "type": type_,
                "params": dict(index.params),
                "key_label": index.key_metadata,
            }
        )
    return columns


def _xskipper_rows(
    source: BinaryIO, schema: StoreSchema, rows: int, notes: list[str], opens: object | None
) -> list[dict[str, Any]]:
    source.seek(0)
    try:
        if opens is not None:
            part = read_part(pa.PythonFile(source, mode="r"), decryption=opens)
            notes += [f"{name}: {why}" for name, why in part.unreadable]
            found = _python_rows(part.table.slice(0, rows))
        else:
            found = _python_rows(plain_part(source).read_rows(None, [(0, rows)]))
    except SkipstoneError as error:
        notes.append(f"rows cannot be read: {error.message}")
        return []
    except (pa.ArrowException, OSError, ValueError) as error:
        notes.append(f"rows cannot be read: {first_line(error, 200)}")
        return []
    blooms = {index.name for index in schema.indexes if index.kind == _BLOOM and schema.usable}
    return [shown_row(row, blooms) for row in found]


def _python_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = map(python_values, table.columns)
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown_row(row: Mapping[str, Any], blooms: Collection[str]) -> dict[str, Any]:
    """The values of a row, JSON-ready; those of the columns ``blooms`` are serialised filters."""
    return {
        name: _bloom(value) if name in blooms and isinstance(value, bytes) else plain(value)
        for name, value in row.items()
    }


def _bloom(blob: bytes) -> Any:
    """The parameters of a serialised filter; a message if it is damaged."""
    try:
        found = BloomFilterMetaData.from_bytes(blob).filter
    except FormatError as error:
        return error.message
    return {
        "sketch_version": found.version,
        "bits": found.bit_size,
        "hashes": found.num_hash_functions,
        "bits_set": found.cardinality(),
    }
