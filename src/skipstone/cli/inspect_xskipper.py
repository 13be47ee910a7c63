"""How ``inspect`` shows a metadata directory of Xskipper, of any version from 0 to 4.

Version 0 keeps serialised objects that nothing reads any more: its columns are shown, not its
values. Of an encrypted store the labels of its keys are shown, as far as they are in clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError, SkipstoneError
from skipstone.formats.xskipper.javaser import BloomFilterMetaData
from skipstone.formats.xskipper.schema import ROW_METADATA_KEY, StoreSchema
from skipstone.predicate.types import spark_name
from skipstone.storage import hidden_by_spark

from .inspection import Found, is_file, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.storage import Storage

__all__ = ["bloom", "look"]

_PLAIN, _ENCRYPTED = b"PAR1", b"PARE"
_BLOOM = "bloomfilter"


def look(storage: Storage, path: str, rows: int) -> list[Found] | None:
    """The store at ``path``, or all stores below it, or the one that the part at ``path`` is of."""
    if is_file(storage, path):
        found = _store(storage, path, [path], [storage.stat(path).size or 0], rows)
        return None if found is None else [found]
    listing = storage.list_all(path)
    folders: dict[str, list[int]] = {}
    for at, file in enumerate(listing.paths):
        folder, _, name = file.rpartition("/")
        if name.endswith(".parquet") and not hidden_by_spark(name):
            folders.setdefault(folder, []).append(at)
    stores = [
        _store(storage, folder, [listing.paths[i] for i in at], listing.sizes[at].tolist(), rows)
        for folder, at in folders.items()
    ]
    return [store for store in stores if store is not None] or None


def _store(
    storage: Storage, path: str, files: Sequence[str], sizes: Sequence[int], rows: int
) -> Found | None:
    """The store whose parts are ``files``; ``None`` where the first readable one is of no store."""
    schema: StoreSchema | None = None
    notes: list[str] = []
    shown: list[dict[str, Any]] = []
    encrypted = counted = 0
    for file in files:
        tail = _tail(storage, file)
        if tail == _ENCRYPTED:
            encrypted += 1
            continue
        if tail != _PLAIN and not file.endswith(".parquet"):
            return None
        with storage.open(file) as source, _opened(source, file) as parquet:
            text = (parquet.metadata.metadata or {}).get(ROW_METADATA_KEY.encode())
            if text is None or b'"obj_name"' not in text:
                return None
            own = StoreSchema.from_json(text, file=file)
            schema = schema or own
            if own != schema:
                notes.append(f"{file.rpartition('/')[2]} has another schema than the first part")
            counted += parquet.metadata.num_rows
            if len(shown) < rows:
                shown += _rows(parquet, own, rows - len(shown), notes)
    if encrypted:
        notes.append(
            f"{encrypted:,} of {len(files):,} parts have an encrypted footer: keys are needed"
        )
    if schema is None:
        return _sealed(path, files, sizes, notes) if _named_by_hash(path) else None
    if not schema.usable:
        notes.append("version 0: no values can be read, queries get nothing from it")
    return Found(
        path=path,
        format="Xskipper store",
        properties={
            "version": schema.version,
            "table_identifier": schema.table_identifier,
            "parts": len(files),
            "rows": counted,
            "bytes": sum(sizes),
            "key_labels": list(schema.encryption.labels()) if schema.encryption else [],
            "plaintext_footer": schema.encryption.plaintext_footer if schema.encryption else None,
        },
        columns=tuple(_columns(schema)),
        rows=tuple(shown),
        notes=tuple(notes),
    )


def _sealed(path: str, files: Sequence[str], sizes: Sequence[int], notes: Sequence[str]) -> Found:
    properties = {"version": None, "parts": len(files), "rows": None, "bytes": sum(sizes)}
    return Found(path=path, format="Xskipper store", properties=properties, notes=tuple(notes))


def _named_by_hash(path: str) -> bool:
    name = path.rpartition("/")[2]
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


def _tail(storage: Storage, file: str) -> bytes:
    with storage.open(file) as source:
        if source.seek(0, 2) < 12:
            return b""
        source.seek(-4, 2)
        return source.read(4)


def _opened(source: Any, file: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"not readable as Parquet ({error})", file=file) from error


def _columns(schema: StoreSchema) -> list[dict[str, Any]]:
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


def _rows(
    parquet: pq.ParquetFile, schema: StoreSchema, rows: int, notes: list[str]
) -> list[dict[str, Any]]:
    try:
        batch = next(parquet.iter_batches(batch_size=rows), None)
    except (pa.ArrowException, OSError) as error:
        notes.append(f"rows cannot be read: {str(error).partition(chr(10))[0][:200]}")
        return []
    blooms = {index.name for index in schema.indexes if index.kind == _BLOOM and schema.usable}
    return [
        {
            name: bloom(value) if name in blooms and isinstance(value, bytes) else plain(value)
            for name, value in row.items()
        }
        for row in ([] if batch is None else batch.to_pylist())
    ]


def bloom(blob: bytes) -> Any:
    """What a serialised filter says of itself; where it is none, why."""
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
