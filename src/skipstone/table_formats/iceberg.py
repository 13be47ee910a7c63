"""Tables of Apache Iceberg, through ``pyiceberg``: snapshots, data files and deleted rows.

**The newest metadata file** is known to a catalog. In a directory, it is the one with the highest
number: a commit of Hadoop's catalog writes the file of the next number. With other catalogs, files
of commits that failed may be left over; two files with the highest number are refused.

**Deleted rows** are those of position deletes, deletion vectors and equality deletes. A position
delete applies to data files that are not newer than it. A deletion vector contains all older
position deletes of its file. These files are read when the snapshot is opened, side by side, each
once. For equality deletes see ``iceberg_equality.py``.

Columns, partitions and statistics: see ``iceberg_columns.py``.
"""

from __future__ import annotations

import math
import os
import re
import time
from datetime import UTC, datetime
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError, first_line
from skipstone.human import of_total
from skipstone.identity import canonical_path
from skipstone.predicate.naming import SAME, Namings
from skipstone.pruning import RowSet

from .iceberg_columns import DataFile, IcebergNames, IcebergStatistics, partitions_of, schema_of
from .iceberg_equality import EqualityDeletes, TableState, side_by_side
from .libraries import failing, library, store_options
from .snapshot import Connector, LazyRows, TableSnapshot, instant, known_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Storage

    from .puffin import FilterExport

FORMAT: Final = "Apache Iceberg"
#: names of metadata files of Hadoop's catalog, and of all others
_METADATA: Final = re.compile(r"(?:v(\d+)|(\d+)-[^/]*?)(?:\.gz)?\.metadata\.json")
#: for so many seconds, an incomplete metadata file may still be written
_WRITING: Final = 60
#: options of S3, and the properties that a table, its catalog and its configuration have for them
_OPTIONS: Final = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
}


class IcebergSource:
    """A table, at a snapshot or a time if one is given. ``load`` takes the table that it returned
    before, and returns the present one."""

    format: Final = FORMAT

    def __init__(
        self,
        name: str,
        load: Callable[[Any], Any],
        version: int | str | None = None,
        timestamp: str | datetime | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._load, self._lock = name, load, Lock()
        self._options = dict(options or {})
        self.pinned = version is not None or timestamp is not None
        self._files, self._names = _Files(), IcebergNames(name)
        self._equality = EqualityDeletes(name)
        self._last: tuple[Any, TableSnapshot] | None = None
        self._table: Any = None
        self._newest()
        self._at = self._snapshot_of(version, timestamp) if self.pinned else None

    @property
    def root(self) -> str:
        """The directory of the table, by its metadata."""
        return canonical_path(self._table.location())

    @property
    def storage_options(self) -> dict[str, str]:
        """The options that were given. For S3 also those of the catalog and of its configuration,
        but keys only if the environment has none: the catalog's temporary keys may not reach the
        index."""
        if not self.root.startswith("s3://"):
            return self._options
        own = {"endpoint", "region"} if "AWS_ACCESS_KEY_ID" in os.environ else _OPTIONS
        known = self._table.io.properties
        found = {name: str(known[_OPTIONS[name]]) for name in own if known.get(_OPTIONS[name])}
        return {**found, **self._options}

    def snapshot(self) -> TableSnapshot:
        """See ``SnapshotSource``."""
        with self._lock:
            if not self.pinned:
                self._newest()
            seen = self._table.metadata_location, self._table.metadata.last_updated_ms
            if self._last is None or self._last[0] != seen:
                hint = "a snapshot that was expired has lost its manifests"
                what = f"{self.name}: {FORMAT} does not read the snapshot"
                with failing(what, hint, words=first_line):
                    self._last = seen, self._read()
        return self._last[1]

    def _newest(self) -> None:
        hint = "pyiceberg has the configuration of catalogs: ~/.pyiceberg.yaml"
        if "/" in self.name:
            hint = "what pyiceberg does not know, Spark with Iceberg's connector may read"
        with failing(f"{self.name}: {FORMAT} does not open the table", hint, words=_words):
            self._table = self._load(self._table)

    def _snapshot_of(
        self, version: int | str | None, timestamp: str | datetime | None
    ) -> tuple[Any, Any]:
        """A snapshot with its schema, or with that of ``TableSnapshot.reopened``; 0 is none."""
        table, said = self._table, version
        if timestamp is not None:
            said = f"at {instant(timestamp)}"
            found = table.snapshot_as_of_timestamp(
                math.floor(instant(timestamp).timestamp() * 1_000)
            )
        elif reopened := re.fullmatch(r"(\d+)@(\d+)", str(version)):
            found = table.snapshot_by_id(int(reopened[1]))
            schema = table.schemas().get(int(reopened[2]))
            if schema is not None and (found is not None or reopened[1] == "0"):
                return found, schema
            found = None
        elif re.fullmatch(r"\d+", str(version)):
            found = table.snapshot_by_id(int(version or 0))
        else:
            found = table.snapshot_by_name(version)
        if found is None:
            raise SkipstoneError(
                f"{self.name} has no snapshot {said}",
                hint="a version is the id of a snapshot, or the name of a branch or a tag",
            )
        own = found.schema_id
        return found, table.schema() if own is None else table.schemas()[own]

    def filters(self) -> FilterExport:
        """The export of Bloom filters over the files of the snapshot."""
        from .puffin import FilterExport

        self.snapshot()
        with self._lock:
            table, (found, fields) = self._table, self._snapshot_and_fields()
            data, _ = self._files.of(found, table.io)
        data = sorted(data, key=lambda each: each.path)
        return FilterExport(name=self.name, table=table, snapshot=found, fields=fields, data=data)

    def _snapshot_and_fields(self) -> tuple[Any, Any]:
        if self._at is not None:
            return self._at
        return self._table.current_snapshot(), self._table.schema()

    def _read(self) -> TableSnapshot:
        table, specs = self._table, self._table.specs()
        found, fields = self._snapshot_and_fields()
        data, deletes = self._files.of(found, table.io)
        data = sorted(data, key=lambda each: each.path)
        self._check(data)
        by_values = [each for each in deletes if each.of_values]
        named = self._names.of(table, fields, [*data, *by_values])
        schema, defaults = schema_of(self.name, fields)
        statistics = IcebergStatistics(data, specs, fields, schema, self._names.doubtful)
        state = TableState(
            table=table,
            fields=fields,
            schema=schema,
            names=named,
            data=data,
            statistics=statistics,
        )
        # Without a version the connector takes the schema of the metadata, as is done here.
        version = "0" if found is None else str(found.snapshot_id)
        at = {"versionAsOf": version} if self.pinned and found is not None else {}
        made = None if found is None else datetime.fromtimestamp(found.timestamp_ms / 1e3, UTC)
        return TableSnapshot(
            format=FORMAT,
            version=version,
            paths=[each.path for each in data],
            sizes=np.array([each.file.file_size_in_bytes for each in data], np.int64),
            row_counts=np.array([each.file.record_count for each in data], np.int64),
            schema=schema,
            partitions=partitions_of(self.name, data, specs, fields, schema),
            statistics=statistics,
            deleted=self._deleted(state, deletes),
            committed=known_time(made),
            names=Namings.of([named.get(each.path, SAME) for each in data]),
            former=self._names.former(table, fields),
            defaults=defaults,
            connector=Connector("iceberg", table.metadata_location, at),
            reopened=f"{version}@{fields.schema_id}",
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

    def _deleted(self, state: TableState, deletes: Sequence[DataFile]) -> Mapping[int, RowSet]:
        """The deleted rows of the files that have some."""
        positions = self._positions(state, [each for each in deletes if not each.of_values])
        by_values = self._equality.of(state, [each for each in deletes if each.of_values])
        if not len(by_values.files):
            return {at: RowSet.of(rows) for at, rows in positions.items()}

        def find(files: Sequence[int]) -> dict[int, RowSet]:
            try:
                found = by_values.of(files)
            except SkipstoneError:
                raise
            except FileNotFoundError as error:
                raise StaleError(f"{self.name}: a file of the snapshot is gone: {error}") from error
            except Exception as error:  # the decoders raise whatever damaged bytes lead to
                raise SkipstoneError(
                    f"{self.name}: rows of equality deletes are not found: {first_line(error)}"
                ) from error
            none = np.empty(0, np.int64)
            both = ((at, (positions.get(at, none), found.get(at, none))) for at in files)
            return {at: RowSet.of(np.concatenate(rows)) for at, rows in both if any(map(len, rows))}

        some = np.array(sorted({*positions, *by_values.files.tolist()}), np.int64)
        return LazyRows(some, find)

    def _positions(
        self, state: TableState, deletes: Sequence[DataFile]
    ) -> dict[int, NDArray[np.int64]]:
        """The rows that deletes of positions and vectors delete, ascending, by the data file."""
        data = state.data
        oldest = min((each.sequence for each in data), default=math.inf)
        deletes = [each for each in deletes if each.sequence >= oldest]
        read = self._files.positions(deletes, state.table.io)
        if not read:
            return {}
        names = pa.array([each.file.file_path for each in data], pa.string())
        sequences = np.array([each.sequence for each in data], np.int64)
        # The data file of each row of each delete; -1 for files that the snapshot lacks.
        paths = pa.concat_arrays([each.paths for each in read])
        places = numbers(pc.index_in(paths, names), -1).astype(np.int64)
        counts = np.array([len(each.paths) for each in read], np.int64)
        starts = np.repeat(np.cumsum(counts) - counts, [len(each.rows) for each in read])
        at = places[starts + np.concatenate([each.codes for each in read])]
        rows = np.concatenate([each.rows for each in read])
        sizes = [len(each.rows) for each in read]
        newest = np.repeat(np.array([each.sequence for each in deletes], np.int64), sizes)
        vector = np.repeat(np.array([each.kind == "PUFFIN" for each in deletes]), sizes)
        with_vector = np.zeros(len(data) + 1, np.bool_)
        applies = (at >= 0) & (sequences[at] <= newest)
        with_vector[at[applies & vector]] = True
        applies &= vector | ~with_vector[at]
        at, rows = at[applies], rows[applies]
        order = np.lexsort((rows, at))
        at, rows = at[order], rows[order]
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1])) if len(at) else at
        parts = np.split(rows, first[1:])
        return dict(zip(at[first].tolist(), parts, strict=True)) if len(at) else {}


@dataclass(frozen=True, slots=True, eq=False)
class _Positions:
    """The rows that a delete deletes. ``paths`` are the data files, as the delete spells them. For
    each deleted row, ``codes`` says which of them, and ``rows`` has its position there."""

    paths: pa.StringArray
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]


class _Files:
    """The content of files that never change, for the files of the last snapshot."""

    def __init__(self) -> None:
        self._manifests: dict[str, list[DataFile]] = {}
        self._positions: dict[tuple[str, int], _Positions] = {}

    def of(self, snapshot: Any, io: Any) -> tuple[list[DataFile], list[DataFile]]:
        """The data files and the delete files of a snapshot."""
        manifests = [] if snapshot is None else snapshot.manifests(io)
        fresh = [each for each in manifests if each.manifest_path not in self._manifests]
        read = side_by_side(lambda each: _entries(each, io), fresh)
        known = self._manifests
        known |= {m.manifest_path: each for m, each in zip(fresh, read, strict=True)}
        self._manifests = {m.manifest_path: known[m.manifest_path] for m in manifests}
        found: tuple[list[DataFile], list[DataFile]] = [], []
        for manifest in manifests:
            found[int(manifest.content)].extend(known[manifest.manifest_path])
        blobs = {_blob(each) for each in found[1]}
        self._positions = {k: each for k, each in self._positions.items() if k in blobs}
        return found

    def positions(self, deletes: Sequence[DataFile], io: Any) -> list[_Positions]:
        """The deleted rows of each delete."""
        fresh: dict[str, list[DataFile]] = {}
        for each in deletes:
            if _blob(each) not in self._positions:
                fresh.setdefault(each.path, []).append(each)
        for found in side_by_side(lambda each: _positions(each, io), list(fresh.values())):
            self._positions |= found
        return [self._positions[_blob(each)] for each in deletes]


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


def _positions(deletes: Sequence[DataFile], source: Any) -> dict[tuple[str, int], _Positions]:
    """The positions of the deletes that lie in one file, by their blobs."""
    one = deletes[0]
    with source.new_input(one.file.file_path).open() as opened:
        content = opened.read()
    if len(content) != one.file.file_size_in_bytes:
        raise ValueError(
            f"{one.path} has {len(content):,} bytes, and its manifest says"
            f" {one.file.file_size_in_bytes:,}"
        )
    if one.kind == "PUFFIN":
        puffin = import_module("pyiceberg.table.puffin").PuffinFile(content)
        read = import_module("pyiceberg.table.deletion_vector").deletion_vectors_from_puffin_file
        wanted = {_blob(each)[1]: _blob(each) for each in deletes}
        blobs = [each for each in puffin.footer.blobs if each.offset in wanted]
        if lost := wanted.keys() - {each.offset for each in blobs}:
            raise ValueError(f"{one.path} has no vector at byte {min(lost):,}")
        puffin.footer = puffin.footer.model_copy(update={"blobs": blobs})
        return {
            wanted[blob.offset]: _vector(vector)
            for blob, vector in zip(blobs, read(puffin), strict=True)
        }
    if one.kind != "PARQUET":
        raise UnsupportedError(f"{one.path}: position deletes in {one.kind}, not in Parquet")
    rows = pq.ParquetFile(pa.BufferReader(content)).read(["file_path", "pos"], use_threads=False)
    if any(each.null_count for each in rows.columns):
        raise ValueError(f"{one.path} has positions that are null")
    named = rows.column("file_path").combine_chunks().dictionary_encode()
    codes = named.indices.to_numpy().astype(np.int64)
    paths = named.dictionary.cast(pa.string())
    return {_blob(one): _Positions(paths, codes, rows.column("pos").to_numpy())}


def _vector(vector: Any) -> _Positions:
    rows = vector.to_vector().to_numpy().astype(np.int64)
    paths = pa.array([vector.referenced_data_file], pa.string())
    return _Positions(paths, np.zeros(len(rows), np.int64), rows)


# -- opening --------------------------------------------------------------------------------------


def in_folder(
    root: str, storage: Storage, options: Mapping[str, str]
) -> tuple[str, Callable[[Any], Any]]:
    """The name, and what loads the table whose metadata lie below ``root``."""
    static, properties = _library(root, "table").StaticTable, store_options(root, options, _OPTIONS)
    cut: type[Exception] = _library(root, "exceptions").ValidationError

    def load(last: Any) -> Any:
        newest, age = _newest_metadata(root, storage)
        if last is not None and last.metadata_location == newest:
            return last
        try:
            return static.from_metadata(newest, properties)
        except (cut, ValueError, EOFError) as error:
            if age > _WRITING or not _is_cut(error):
                raise
        # A writer is still writing it: the catalog learns of the file when it is complete.
        newest, _ = _newest_metadata(root, storage, but=newest)
        return static.from_metadata(newest, properties)

    return root, load


def _is_cut(error: Exception) -> bool:
    """Whether a metadata file is incomplete. A complete one is the newest, even if it has what the
    library does not know."""
    cut = isinstance(error, EOFError | UnicodeDecodeError)
    return cut or any(each["type"] == "json_invalid" for each in _mistakes(error))


def _mistakes(error: BaseException) -> list[Any]:
    """The errors that pydantic found."""
    told = getattr(error.__cause__ or error, "errors", None)
    return told() if callable(told) else []


def _words(error: Exception) -> str:
    found = dict.fromkeys(str(each["msg"]) for each in _mistakes(error))
    return "; ".join(found)[:300] or first_line(error)


def by_name(name: str, options: Mapping[str, str]) -> tuple[str, Callable[[Any], Any]]:
    """The name, and what loads the table ``catalog.namespace.table`` of a catalog that
    ``pyiceberg`` is configured for, or the table of one metadata file."""
    if name.endswith(".metadata.json"):
        path, static = canonical_path(name), _library(name, "table").StaticTable
        return (
            path,
            lambda last: last or static.from_metadata(path, store_options(path, options, _OPTIONS)),
        )
    catalog, _, identifier = name.partition(".")
    if "." not in identifier:
        raise SkipstoneError(
            f"{name!r} does not name a table of {FORMAT}",
            hint="iceberg:catalog.namespace.table, or iceberg:/path/of/one.metadata.json",
        )
    opened = _library(name, "catalog").load_catalog
    return name, lambda last: last.refresh() if last else opened(catalog).load_table(identifier)


def _library(name: str, module: str) -> Any:
    return library(f"pyiceberg.{module}", name, FORMAT, "pip install 'skipstone[iceberg]'")


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
    written = listing.object_id(listing.paths.index(newest[0])).mtime_ns
    return newest[0], (time.time_ns() - written) / 1e9
