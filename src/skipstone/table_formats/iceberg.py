"""Tables of Apache Iceberg, through ``pyiceberg``: snapshots, data files and deleted rows.

**Which metadata file** is the newest, a catalog knows. In a directory it is the one with the
highest number: a commit of Hadoop's catalog is a file of the next number. Other catalogs name a
file, and files that lost against it may be left over; two with the highest number are refused.

**Deleted rows** are those of position deletes, deletion vectors and equality deletes. A delete of
positions applies to data files that are not newer than it, and a vector has all older deletes of
positions of its file. For the others see ``iceberg_equality.py``.

Columns, partitions and statistics: see ``iceberg_columns.py``.
"""

from __future__ import annotations

import io
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq

from skipstone.errors import SkipstoneError, UnsupportedError, first_line
from skipstone.human import of_total
from skipstone.identity import UNITS_PER_SECOND, canonical_path
from skipstone.predicate.naming import SAME, Namings
from skipstone.pruning import RowSet

from .field_ids import READERS
from .iceberg_columns import DataFile, ManifestStatistics, Names, partitions_of, schema_of
from .iceberg_equality import EqualityDeletes, Keys
from .snapshot import Connector, Snapshot, instant, known_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.storage import Storage

FORMAT: Final = "Apache Iceberg"
#: of Hadoop's catalog, and of all others
_METADATA: Final = re.compile(r"(?:v(\d+)|(\d+)-[^/]*?)(?:\.gz)?\.metadata\.json")
#: seconds in which a metadata file that is not whole may still be written
_WRITING: Final = 60
_OPTIONS: Final = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
}


class IcebergSource:
    """A table, at a snapshot or a time if one is given. ``load`` gives the table as it is now, from
    the one that it gave before."""

    format: Final = FORMAT

    def __init__(
        self,
        name: str,
        load: Callable[[Any], Any],
        version: int | str | None = None,
        timestamp: str | datetime | None = None,
    ) -> None:
        self.name, self._load, self._lock = name, load, Lock()
        self.pinned = version is not None or timestamp is not None
        self._files, self._names = _Files(), Names(name)
        self._equality = EqualityDeletes(name)
        self._last: tuple[Any, Snapshot] | None = None
        self._table: Any = None
        self._newest()
        self._at = self._snapshot_of(version, timestamp) if self.pinned else None

    @property
    def root(self) -> str:
        """The directory of the table, by its metadata."""
        return canonical_path(self._table.location())

    def snapshot(self) -> Snapshot:
        """See ``Source``."""
        with self._lock:
            if not self.pinned:
                self._newest()
            seen = self._table.metadata_location, self._table.metadata.last_updated_ms
            if self._last is None or self._last[0] != seen:
                try:
                    self._last = seen, self._read()
                except SkipstoneError:
                    raise
                except Exception as error:  # of the decoders, where bytes are damaged
                    raise SkipstoneError(
                        f"{self.name}: {FORMAT} does not read the snapshot: {first_line(error)}",
                        hint="a snapshot that was expired has lost its manifests",
                    ) from error
        return self._last[1]

    def _newest(self) -> None:
        try:
            self._table = self._load(self._table)
        except SkipstoneError:
            raise
        except Exception as error:  # each catalog has errors of its own
            raise SkipstoneError(
                f"{self.name}: {FORMAT} does not open the table: {error}",
                hint="pyiceberg has the configuration of catalogs: ~/.pyiceberg.yaml",
            ) from error

    def _snapshot_of(self, version: int | str | None, timestamp: str | datetime | None) -> Any:
        table, said = self._table, version
        if timestamp is not None:
            said = f"at {instant(timestamp)}"
            found = table.snapshot_as_of_timestamp(
                math.floor(instant(timestamp).timestamp() * 1_000)
            )
        elif re.fullmatch(r"\d+", str(version)):
            found = table.snapshot_by_id(int(version or 0))
        else:
            found = table.snapshot_by_name(version)
        if found is None:
            raise SkipstoneError(
                f"{self.name} has no snapshot {said}",
                hint="a version is the id of a snapshot, or the name of a branch or a tag",
            )
        return found

    def _read(self) -> Snapshot:
        table, specs = self._table, self._table.specs()
        found, fields = self._at or table.current_snapshot(), table.schema()
        if self._at is not None and self._at.schema_id is not None:
            fields = table.schemas()[self._at.schema_id]
        data, deletes = self._files.of(found, table.io)
        data = sorted(data, key=lambda each: each.path)
        self._check(data)
        by_values = [each for each in deletes if each.of_values]
        named = self._names.of(table, fields, [*data, *by_values])
        schema, defaults = schema_of(self.name, fields)
        # Without a version the connector takes the schema of the metadata, as is done here.
        at = {} if self._at is None else {"versionAsOf": str(self._at.snapshot_id)}
        made = None if found is None else datetime.fromtimestamp(found.timestamp_ms / 1e3, UTC)
        return Snapshot(
            format=FORMAT,
            version="0" if found is None else str(found.snapshot_id),
            paths=[each.path for each in data],
            sizes=np.array([each.file.file_size_in_bytes for each in data], np.int64),
            row_counts=np.array([each.file.record_count for each in data], np.int64),
            schema=schema,
            partitions=partitions_of(self.name, data, specs, fields, schema),
            statistics=ManifestStatistics(data, specs, fields, schema, self._names.doubtful),
            deleted=self._deleted(data, deletes, Keys(table, schema, fields, named)),
            committed=known_time(made),
            names=Namings.of([named.get(each.path, SAME) for each in data]),
            former=self._names.former(table, fields),
            defaults=defaults,
            connector=Connector("iceberg", table.metadata_location, at),
        )

    def _check(self, data: Sequence[DataFile]) -> None:
        other = [each for each in data if each.kind != "PARQUET"]
        if other:
            count = of_total(len(other), len(data), "files")
            raise UnsupportedError(
                f"{self.name}: {count} are not Parquet but {other[0].kind} files"
            )
        if any(each.file.key_metadata for each in data):
            raise UnsupportedError(f"{self.name}: its data files are encrypted by {FORMAT}")
        if len({each.path for each in data}) < len(data):
            raise UnsupportedError(f"{self.name}: the snapshot has a data file twice")

    def _deleted(
        self, data: Sequence[DataFile], deletes: Sequence[DataFile], keys: Keys
    ) -> dict[int, RowSet]:
        """The deleted rows of the files that have some."""
        oldest = min((each.sequence for each in data), default=math.inf)
        place = {each.file.file_path: at for at, each in enumerate(data)}
        vectors: dict[int, Any] = {}
        found: dict[int, list[Any]] = {}
        for delete in deletes:
            if delete.sequence < oldest or delete.of_values:
                continue
            for path, rows in self._files.positions(delete, self._table.io).items():
                at = place.get(path, -1)
                if at < 0 or data[at].sequence > delete.sequence:
                    continue
                if delete.kind == "PUFFIN":
                    vectors[at] = rows
                else:
                    found.setdefault(at, []).append(rows)
        found |= {at: [rows] for at, rows in vectors.items()}
        by_values = [each for each in deletes if each.of_values]
        for at, rows in self._equality.of(keys, data, by_values):
            found.setdefault(at, []).append(rows)
        gone = {at: np.concatenate(rows) for at, rows in found.items()}
        return {at: RowSet.of(rows) for at, rows in sorted(gone.items()) if len(rows)}


class _Files:
    """What was read of files that never change, of those that the last snapshot has."""

    def __init__(self) -> None:
        self._manifests: dict[str, list[DataFile]] = {}
        self._positions: dict[tuple[str, int], dict[str, Any]] = {}

    def of(self, snapshot: Any, io: Any) -> tuple[list[DataFile], list[DataFile]]:
        """The data files and the delete files of a snapshot."""
        manifests = [] if snapshot is None else snapshot.manifests(io)
        fresh = [each for each in manifests if each.manifest_path not in self._manifests]
        with ThreadPoolExecutor(READERS) as pool:
            read = list(pool.map(lambda each: _entries(each, io), fresh))
        known = self._manifests
        known |= {m.manifest_path: each for m, each in zip(fresh, read, strict=True)}
        self._manifests = {m.manifest_path: known[m.manifest_path] for m in manifests}
        found: tuple[list[DataFile], list[DataFile]] = [], []
        for manifest in manifests:
            found[int(manifest.content)].extend(known[manifest.manifest_path])
        blobs = {_blob(each) for each in found[1]}
        self._positions = {k: each for k, each in self._positions.items() if k in blobs}
        return found

    def positions(self, delete: DataFile, io: Any) -> dict[str, Any]:
        """The deleted rows by the path of the data file, as the delete spells it."""
        key = _blob(delete)
        if key not in self._positions:
            self._positions[key] = _positions(delete, io)
        return self._positions[key]


def _blob(delete: DataFile) -> tuple[str, int]:
    """Where a deletion vector begins; 0 for a file of position deletes."""
    return delete.path, delete.file[-2] or 0


def _entries(manifest: Any, io: Any) -> list[DataFile]:
    """The files of a manifest that are in the table. The manifest's own method leaves out the
    fields of version 3, which say where a deletion vector lies."""
    of, avro = import_module("pyiceberg.manifest"), import_module("pyiceberg.avro.file")
    kinds = {0: of.ManifestEntryStatus, 101: of.FileFormat, 134: of.DataFileContent}
    records = {-1: of.ManifestEntry, 2: of.DataFile}
    found, file = [], io.new_input(manifest.manifest_path)
    with avro.AvroFile(file, of.MANIFEST_ENTRY_SCHEMAS[3], records, kinds) as entries:
        schema = str(entries.header.meta.get("schema", ""))
        for entry in entries:
            if entry.status is of.ManifestEntryStatus.DELETED:
                continue
            # A file that the manifest adds has the number of the manifest.
            number = entry.sequence_number
            number = manifest.sequence_number if number is None else number
            entry.data_file.spec_id = manifest.partition_spec_id
            path = canonical_path(entry.data_file.file_path)
            found.append(DataFile(path, entry.data_file, number or 0, schema))
    return found


def _positions(delete: DataFile, source: Any) -> dict[str, Any]:
    with source.new_input(delete.file.file_path).open() as opened:
        content = opened.read()
    size = delete.file.file_size_in_bytes
    if len(content) != size:
        raise ValueError(
            f"{delete.path} has {len(content):,} bytes, and its manifest says {size:,}"
        )
    if delete.kind == "PUFFIN":
        puffin = import_module("pyiceberg.table.puffin").PuffinFile(content)
        read = import_module("pyiceberg.table.deletion_vector").deletion_vectors_from_puffin_file
        found = {
            vector.referenced_data_file: vector.to_vector().to_numpy()
            for blob, vector in zip(puffin.footer.blobs, read(puffin), strict=True)
            if blob.offset == _blob(delete)[1]
        }
        if not found:
            raise ValueError(f"{delete.path} has no vector at byte {_blob(delete)[1]:,}")
        return found
    if delete.kind != "PARQUET":
        raise UnsupportedError(f"{delete.path}: position deletes in {delete.kind}, not in Parquet")
    rows = pq.ParquetFile(io.BytesIO(content)).read(["file_path", "pos"], use_threads=False)
    named = rows.column("file_path").combine_chunks().dictionary_encode()
    codes, at = named.indices.to_numpy(), rows.column("pos").to_numpy()
    return {path: at[codes == code] for code, path in enumerate(named.dictionary.to_pylist())}


# -- opening --------------------------------------------------------------------------------------


def in_folder(
    root: str, storage: Storage, options: Mapping[str, str]
) -> tuple[str, Callable[[Any], Any]]:
    """The name, and what loads the table whose metadata lie below ``root``."""
    static, properties = _library(root, "table").StaticTable, _properties(root, options)

    def load(last: Any) -> Any:
        newest, age = _newest_metadata(root, storage)
        if last is not None and last.metadata_location == newest:
            return last
        try:
            return static.from_metadata(newest, properties)
        except ValueError:
            if age > _WRITING:
                raise
        # A writer is at it still: its catalog gets to know the file when it is whole.
        newest, _ = _newest_metadata(root, storage, but=newest)
        return static.from_metadata(newest, properties)

    return root, load


def by_name(name: str, options: Mapping[str, str]) -> tuple[str, Callable[[Any], Any]]:
    """The name, and what loads the table ``catalog.namespace.table`` of a catalog that
    ``pyiceberg`` is configured for, or that of one metadata file."""
    if name.endswith(".metadata.json"):
        path, static = canonical_path(name), _library(name, "table").StaticTable
        return path, lambda last: last or static.from_metadata(path, _properties(path, options))
    catalog, _, identifier = name.partition(".")
    if "." not in identifier:
        raise SkipstoneError(
            f"{name!r} does not name a table of {FORMAT}",
            hint="iceberg:catalog.namespace.table, or iceberg:/path/of/one.metadata.json",
        )
    opened = _library(name, "catalog").load_catalog
    return name, lambda last: last.refresh() if last else opened(catalog).load_table(identifier)


def _library(name: str, module: str) -> Any:
    try:
        return import_module(f"pyiceberg.{module}")
    except ImportError as error:
        raise UnsupportedError(
            f"{name} is a table of {FORMAT}, and pyiceberg is not installed",
            hint="pip install 'skipstone[iceberg]'",
        ) from error


def _properties(root: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of an object store by the names of ``pyiceberg``."""
    if "://" not in root:
        return {}
    from skipstone.storage.objects import named_options

    named = {name.removeprefix("aws_"): v for name, v in named_options(root, options).items()}
    return {**options, **{_OPTIONS[name]: v for name, v in named.items() if name in _OPTIONS}}


def _newest_metadata(root: str, storage: Storage, but: str = "") -> tuple[str, float]:
    """The newest metadata file, without the file ``but``, and its age in seconds."""
    found: dict[bool, list[tuple[int, str]]] = {}
    listing = storage.list_all(f"{root}/metadata")
    for path in listing.paths:
        match = _METADATA.fullmatch(path.rpartition("/")[2])
        if match is not None and path != but:
            found.setdefault(match[1] is None, []).append((int(match[1] or match[2]), path))
    newest = [path for each in found.values() for at, path in each if at == max(each)[0]]
    if len(newest) != 1:
        names = ", ".join(sorted(path.rpartition("/")[2] for path in newest)) or "none"
        raise UnsupportedError(
            f"{root}/metadata does not show which metadata file of {FORMAT} is the newest: {names}",
            hint="name the table in its catalog, iceberg:catalog.namespace.table, or the file,"
            " iceberg:/path/of/one.metadata.json",
        )
    written = int(listing.mtimes[list(listing.paths).index(newest[0])])
    return newest[0], time.time() - written / UNITS_PER_SECOND[listing.unit]
