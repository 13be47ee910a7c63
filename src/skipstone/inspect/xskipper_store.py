"""Shows a metadata directory of Xskipper, of any version from 0 to 4.

Version 0 stores serialised objects that no reader supports: its columns are shown, its values are
not. The key labels of an encrypted store are shown if they are stored unencrypted.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.human import plain
from skipstone.parquet.encryption.master_keys import arrow_decryption
from skipstone.parquet.format.footer import read_footer as find_footer
from skipstone.predicate.types import spark_name
from skipstone.storage import hidden_by_spark
from skipstone.xskipper.format.java_bloom import BloomFilterMetaData
from skipstone.xskipper.format.part import footer_key_label, read_footer, read_part

from .inspection import StoreInspection, is_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import BinaryIO

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage
    from skipstone.xskipper.format.part import Footer
    from skipstone.xskipper.format.schema import StoreSchema


_LONGEST = 1 << 20
_BLOOM = "bloomfilter"


def inspect_xskipper_store(
    storage: Storage, path: str, rows: int, keys: LabelledKeys | None = None
) -> list[StoreInspection] | None:
    """The store at ``path``, or all stores below it; or, if ``path`` is a part, the store of that
    part alone. ``keys`` open encrypted stores."""
    opens = None if keys is None else arrow_decryption(keys)
    if is_file(storage, path):
        found = _store(storage, path, [path], [storage.stat(path).size or 0], rows, opens)
        return None if found is None else [found]
    listing = storage.list_all(path)
    folders: dict[str, list[int]] = {}
    for at, file in enumerate(listing.paths):
        folder, _, name = file.rpartition("/")
        if name.endswith(".parquet") and not hidden_by_spark(name):
            folders.setdefault(folder, []).append(at)
    stores = [
        _store(
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


def _store(
    storage: Storage,
    path: str,
    files: Sequence[str],
    sizes: Sequence[int],
    rows: int,
    opens: object | None,
) -> StoreInspection | None:
    """The store with the parts ``files``; ``None`` if the first readable file is not a part."""
    first: StoreSchema | None = None
    labels: set[str] = set()
    notes: list[str] = []
    shown: list[dict[str, Any]] = []
    unreadable = counted = 0
    for file in files:
        with storage.open(file) as source:
            if not _parquet(source):
                return None
            try:
                footer, by = _footer(source, file, opens)
            except KeyUnavailableError:
                unreadable += 1
                _, encrypted = find_footer(source, longest=_LONGEST)
                labels.update(filter(None, [footer_key_label(encrypted)]))
                continue
            except FormatError:
                if first is None and not _named_by_hash(path):
                    return None
                raise
            if first is None and not footer.schema.indexes and not _named_by_hash(path):
                return None
            first = first or footer.schema
            if footer.schema != first:
                notes.append(f"{file.rpartition('/')[2]} has another schema than the first part")
            labels.update(footer.schema.encryption.labels() if footer.schema.encryption else ())
            counted += footer.rows
            if len(shown) < rows:
                shown += _rows(source, footer.schema, rows - len(shown), notes, by)
            if opens is not None and by is None:
                notes.append(f"{file.rpartition('/')[2]} is not encrypted: keys make it unused")
    if first is None and not _named_by_hash(path):
        return None
    if unreadable:
        notes.append(
            f"{unreadable:,} of {len(files):,} parts have an encrypted footer: a key is needed"
        )
    properties: dict[str, Any] = {
        "version": None if first is None else first.version,
        "table_identifier": None if first is None else first.table_identifier,
        "parts": len(files),
        "rows": counted if unreadable == 0 else None,
        "bytes": sum(sizes),
        "key_labels": sorted(labels),
    }
    if first is not None and not first.usable:
        notes.append("version 0: its values cannot be read, so queries do not use it")
    return StoreInspection(
        path=path,
        format="Xskipper store",
        properties=properties,
        columns=() if first is None else tuple(_columns(first)),
        rows=tuple(shown),
        notes=tuple(notes),
    )


def _footer(source: BinaryIO, file: str, opens: object | None) -> tuple[Footer, object | None]:
    """The footer of a part, and the decryption of its columns, ``None`` if not encrypted."""
    reader = pa.PythonFile(source, mode="r")
    if opens is not None:
        try:
            return read_footer(reader, file=file, decryption=opens), opens
        except UnsupportedError:  # not encrypted, or too new: the next call tells which
            reader.seek(0)
    return read_footer(reader, file=file), None


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
    source: BinaryIO, schema: StoreSchema, rows: int, notes: list[str], opens: object | None
) -> list[dict[str, Any]]:
    source.seek(0)
    try:
        if opens is not None:
            part = read_part(pa.PythonFile(source, mode="r"), decryption=opens)
            notes += [f"{name}: {why}" for name, why in part.unreadable]
            found = part.table.slice(0, rows).to_pylist()
        else:
            with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet:
                batch = next(parquet.iter_batches(batch_size=rows), None)
            found = [] if batch is None else batch.to_pylist()
    except SkipstoneError as error:
        notes.append(f"rows cannot be read: {error.message}")
        return []
    except (pa.ArrowException, OSError, ValueError) as error:
        notes.append(f"rows cannot be read: {str(error).partition(chr(10))[0][:200]}")
        return []
    blooms = {index.name for index in schema.indexes if index.kind == _BLOOM and schema.usable}
    return [shown_row(row, blooms) for row in found]


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
