"""Tables of Apache Paimon, through ``pypaimon``: snapshots, data files, deletion vectors.

**The rows of a file** come from the plan of the library, which its own reader follows. In a table
with a primary key, a file can be read alone if no other file may have newer rows of its keys: after
a compaction to one level, or with deletion vectors. Other files would have to be merged, so such a
snapshot is refused. So are files that hold only some columns of their rows.

**Names.** Paimon knows columns by ids, plans and facts by names. Each file names its schema, which
has the names in that file. If the type of a column there is neither equal nor narrower, the table
is refused.

**Statistics** of the manifests are made by Java and by Python:

- an upper bound of floats may leave NaN out, the largest of all: it is not used;
- bounds of timestamps may be cut to milliseconds: both are moved by one, outwards;
- texts may be cut: a bound is then not a value, but still a bound.

They are read when a predicate first needs them: the plan of the library does not contain them.

**File indexes** that a manifest embeds, or names next to a file, belong to that file;
``paimon/adjacent_index.py`` says what is checked before they are used. Those of files that have
another name for a column are left out.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import of_total
from skipstone.identity import canonical_path
from skipstone.predicate.naming import SAME, Naming, Namings
from skipstone.predicate.types import column_path
from skipstone.pruning import RowSet

from .field_ids import Fields, FieldWithId, former_names, naming_of
from .libraries import DirectorySource, failing, library, store_options
from .snapshot import (
    FileStatistics,
    TableSnapshot,
    canonical_schema,
    instant,
    known_time,
    outer_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from skipstone.pruning.interval import Intervals

FORMAT: Final = "Apache Paimon"
_COMPACT: Final = "compact it in Paimon (CALL sys.compact), or read the table there"
_TABLE: Final = "pypaimon.table.file_store_table"
_INSTALL: Final = "pip install 'skipstone[paimon]', then pip install --no-deps 'pypaimon>=2.1,<2.2'"
_OPTIONS: Final = {
    "access_key_id": "fs.s3.accessKeyId",
    "secret_access_key": "fs.s3.accessKeySecret",
    "session_token": "fs.s3.securityToken",
    "region": "fs.s3.region",
    "endpoint": "fs.s3.endpoint",
}
#: types in order: each can be read as a later one
_WIDER: Final = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)
_LENGTH: Final = re.compile(r"(VARCHAR|VARBINARY|TIMESTAMP|TIMESTAMP_LTZ)\((\d+)\)")
_WITHOUT_END: Final = {"STRING": "VARCHAR", "BYTES": "VARBINARY"}
_SMALL: Final = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}


@dataclass(frozen=True, slots=True, eq=False)
class _DataFile:
    """A data file: its canonical path, the library's record of it, its partition and bucket, and
    where its deletion vector lies."""

    path: str
    file: Any
    partition: tuple[Any, ...]
    bucket: int
    vector: Any


class PaimonSource(DirectorySource):
    """The table at ``root``, at a snapshot, a tag, a branch or a time if one is given. A snapshot
    of a branch is named ``branch@number``."""

    format = FORMAT
    part, hint = "the snapshot", "a snapshot that expired has lost its manifests"

    def _begin(self) -> None:
        root, options, version, timestamp = self.given
        self._table_type = library(_TABLE, root, FORMAT, _INSTALL).FileStoreTable
        self._options = store_options(root, options, _OPTIONS)
        # The name of the tag, or of the snapshot of a branch, if one was selected.
        self._name = ""
        # What reopens a branch in the schema that it has beside its name.
        self._schema = ""
        self._empty = False
        self._table = self._open()
        if self.pinned:
            self._table = self._selected(version, timestamp)

    def _newest(self) -> tuple[Any, Callable[[], TableSnapshot]]:
        if self.pinned:
            return None, self._read
        self._table = self._open()
        found = self._table.snapshot_manager().get_latest_snapshot()
        # The value changes with each commit, rollback and change of the schema. A change that comes
        # before the snapshot is read is seen the next time.
        seen = self._table.table_schema.id, found and (found.id, found.delta_manifest_list)
        return seen, self._read

    def _open(self) -> Any:
        hint = "check the options of the storage"
        with failing(f"{self.root}: {FORMAT} does not open the table", hint):
            return self._table_type.from_path(self.root, self._options)

    def _selected(self, version: int | str | None, at: str | datetime | None) -> Any:
        """The table at a snapshot, which must exist."""
        table, text, said = self._table, str(version), f"snapshot {version}"
        if at is not None:
            said = f"snapshot at {instant(at)}"
            millis = math.floor(instant(at).timestamp() * 1_000)
            found = table.snapshot_manager().earlier_or_equal_time_mills(millis)
        elif table.tag_manager().get(text) is not None:
            # A tag can be read after its snapshot has expired.
            self._name = text
            return table.copy({"scan.tag-name": text})
        elif reopened := re.fullmatch(r"(\d+)@(\d+)", text):
            found = table.snapshot_manager().get_snapshot_by_id(int(reopened[1]))
            if found is not None or reopened[1] == "0":
                self._empty = found is None
                table = self._in(table.identifier, table.schema_manager, int(reopened[2]))
                return table.copy_without_time_travel({"scan.snapshot-id": reopened[1]})
        elif re.fullmatch(r"\d+", text):
            found = table.snapshot_manager().get_snapshot_by_id(int(text))
        else:
            return self._of_branch(text)
        if found is None:
            raise self._absent(said)
        return table.copy({"scan.snapshot-id": str(found.id)})

    def _absent(self, said: str) -> SkipstoneError:
        hint = "a version is the number of a snapshot, or the name of a tag or a branch"
        return SkipstoneError(f"{self.root} has no {said}", hint=hint)

    def _of_branch(self, text: str) -> Any:
        """A branch as it is now, ``branch@number``, or what ``branch@number@schema`` reopens: 0 is
        the number without a snapshot."""
        parts = re.fullmatch(r"(.+?)(?:@(\d+))?(?:@(\d+))?", text, re.DOTALL)
        branch, number, schema = parts.groups() if parts else (text, None, None)
        table = self._branch(branch, None if schema is None else int(schema))
        if table is None:
            raise self._absent(f"snapshot {text}")
        snapshots = table.snapshot_manager()
        now = number is None or schema is not None
        if number is None:
            found = snapshots.get_latest_snapshot()
        else:
            found = snapshots.get_snapshot_by_id(int(number))
        self._empty = now and found is None and number in (None, "0")
        if found is None and not self._empty:
            raise self._absent(f"snapshot {text}")
        self._name = f"{branch}@{0 if self._empty else found.id}"
        if not now:
            return table.copy({"scan.snapshot-id": number})
        self._schema = f"@{table.table_schema.id}"
        options = {} if self._empty else {"scan.snapshot-id": str(found.id)}
        return table.copy_without_time_travel(options)

    def _branch(self, name: str, schema: int | None) -> Any:
        """The table as a branch has it, with its own schemas; ``None`` without the branch."""
        main = self._table
        if name not in main.branch_manager().branches():
            return None
        named = import_module("pypaimon.common.identifier").Identifier
        schemas = import_module("pypaimon.schema.schema_manager").SchemaManager
        own = schemas(main.file_io, main.table_path, branch=name)
        return self._in(named("default", "table", branch=name), own, schema)

    def _in(self, identifier: Any, schemas: Any, id: int | None = None) -> Any:
        """The table in its newest schema, or in one that has a number."""
        schema = schemas.latest() if id is None else schemas.get_schema(id)
        file_io, path = self._table.file_io, self._table.table_path
        return self._table_type(file_io, identifier, path, schema)

    def _read(self) -> TableSnapshot:
        table = self._table
        if table.options.query_auth_enabled:
            raise UnsupportedError(
                f"{self.root}: its catalog says who may read which rows (query-auth.enabled)",
                hint=f"read it through {FORMAT}",
            )
        if table.options.scan_fallback_branch():
            raise UnsupportedError(
                f"{self.root}: partitions that it lacks are read from another branch"
                " (scan.fallback-branch)",
                hint=f"read it through {FORMAT}, or open the branch by its name, as a version",
            )
        # Splits as small as they get: a file that needs no merge is not in one with files that do.
        scan = table.copy_without_time_travel(_SMALL).new_read_builder().new_scan()
        splits = [] if self._empty else scan.plan().splits()
        found = None if self._empty else scan.file_scanner._scanned_snapshot
        files = sorted(self._files(splits), key=lambda each: each.path)
        self._check(files)
        schema, named = schema_of(self.root, table.fields), self._named(files)
        namings = [named[each.file.schema_id] for each in files]
        made = None if found is None else datetime.fromtimestamp(found.time_millis / 1e3, UTC)
        version = "0" if found is None else str(found.id)
        return TableSnapshot(
            format=FORMAT,
            version=self._name or version,
            reopened=f"{self._name}{self._schema}" or f"{version}@{table.table_schema.id}",
            paths=[each.path for each in files],
            sizes=np.array([each.file.file_size for each in files], np.int64),
            row_counts=np.array([each.file.row_count for each in files], np.int64),
            schema=schema,
            partitions={
                name: _values([each.partition[at] for each in files], schema.field(name).type)
                for at, name in enumerate(table.partition_keys)
            },
            statistics=PaimonStatistics(table, found, files, schema, namings),
            deleted=dict(_deleted(table, files)),
            committed=known_time(made),
            containers={
                each.path: bytes(each.file.embedded_index)
                for each, naming in zip(files, namings, strict=True)
                if each.file.embedded_index and not naming
            },
            sidecars={
                each.path: canonical_path(each.file.aligned_file_path(name))
                for each, naming in zip(files, namings, strict=True)
                for name in each.file.extra_files or ()
                if name.endswith(".index") and not naming
            },
            names=Namings.of(namings),
            former=self._former(named),
        )

    def _files(self, splits: Sequence[Any]) -> Iterator[_DataFile]:
        merged = [each for each in splits if not each.raw_convertible]
        if self._table.is_primary_key_table and merged:
            files = sum(len(each.files) for each in merged)
            total = of_total(files, sum(len(each.files) for each in splits), "files")
            raise UnsupportedError(
                f"{self.root}: {total} have to be merged by the primary key, such as "
                f"{merged[0].files[0].file_path}",
                hint=f"{_COMPACT}; with deletion-vectors.enabled no merge is needed",
            )
        for split in splits:
            for at, file in enumerate(split.files):
                vectors = split.data_deletion_files
                vector = None if vectors is None else vectors[at]
                path = canonical_path(file.file_path)
                yield _DataFile(path, file, tuple(split.partition.values), split.bucket, vector)

    def _check(self, files: Sequence[_DataFile]) -> None:
        other = [each.path for each in files if not each.path.endswith(".parquet")]
        if other:
            raise UnsupportedError(
                f"{self.root}: {of_total(len(other), len(files), 'files')} are not Parquet files,"
                f" such as {other[0]}",
                hint="file.format = parquet and a compaction rewrite them, or read it in Paimon",
            )
        if not self._table.options.data_evolution_enabled():
            return
        ranges = sorted((each.file.first_row_id, each.file.row_count) for each in files)
        ends = [start + count for start, count in ranges]
        if any(start < end for (start, _), end in zip(ranges[1:], ends, strict=False)):
            raise UnsupportedError(
                f"{self.root}: some rows are in several files, each with some columns"
                " (data-evolution.enabled)",
                hint=_COMPACT,
            )

    def _named(self, files: Sequence[_DataFile]) -> dict[int, Naming]:
        """The names of the columns in the files of a schema, by its id."""
        now, found = self._table.fields, {self._table.table_schema.id: SAME}
        for id in {each.file.schema_id for each in files} - found.keys():
            old = self._table.schema_manager.get_schema(id).fields
            self._check_types(old, now)
            found[id] = naming_of(_fields(now), _fields(old))
        return found

    def _former(self, schemas: Iterable[int]) -> dict[str, str]:
        """The columns by their names in these schemas, without names that a column has now."""
        schema = self._table.schema_manager.get_schema
        own = self._table.table_schema.id
        old = (_fields(schema(id).fields) for id in sorted(schemas) if id != own)
        return former_names(_fields(self._table.fields), old)

    def _check_types(self, old: Sequence[Any], now: Sequence[Any]) -> None:
        """``UnsupportedError`` if values of an older schema change in the present types."""
        by_id = {each.id: each for each in now}
        for field in old:
            same = by_id.get(field.id)
            if same is None or _is_read_as(field.type, same.type):
                continue
            inner, outer = getattr(field.type, "fields", None), getattr(same.type, "fields", None)
            if inner is None or outer is None:
                raise UnsupportedError(
                    f"{self.root}: {same.name!r} is {field.type} in some files, and {same.type} in"
                    " the table",
                    hint=_COMPACT,
                )
            self._check_types(inner, outer)


def _fields(fields: Sequence[Any]) -> Fields:
    return tuple(FieldWithId(each.name, each.id, _below(each.type)) for each in fields)


def _below(type: Any) -> Fields:
    """The fields below a type."""
    if hasattr(type, "fields"):
        return _fields(type.fields)
    parts = (("element", "element"), ("key", "key"), ("value", "value"))
    return tuple(
        FieldWithId(name, None, _below(getattr(type, own)))
        for name, own in parts
        if hasattr(type, own)
    )


def schema_of(root: str, fields: Sequence[Any]) -> pa.Schema:
    """The columns in canonical types."""
    types = import_module("pypaimon.schema.data_types").PyarrowFieldParser
    try:
        arrow = types.from_paimon_schema(fields)
    except ValueError as error:
        raise UnsupportedError(f"{root}: {error}", hint=f"read it through {FORMAT}") from error
    return canonical_schema(root, arrow)


def _is_read_as(old: Any, now: Any) -> bool:
    """Whether values of the type ``old`` are those of the type ``now``."""
    parser = import_module("pypaimon.schema.data_types").PyarrowFieldParser
    before, after = _plain(old), _plain(now)
    if before == after:
        return True
    lengths = [_LENGTH.fullmatch(each) for each in (before, after)]
    if lengths[0] is not None and before != after:
        kind, length = lengths[0].groups()
        longer = (
            lengths[1] is not None and lengths[1][1] == kind and int(lengths[1][2]) >= int(length)
        )
        return longer or _WITHOUT_END.get(after) == kind
    try:
        first, last = parser.from_paimon_type(old), parser.from_paimon_type(now)
    except ValueError:
        return False
    if pa.types.is_decimal(first) and pa.types.is_decimal(last):
        return bool(first.scale == last.scale and first.precision <= last.precision)
    return any(
        first in types and last in types and types.index(first) <= types.index(last)
        for types in _WIDER
    )


def _plain(type: Any) -> str:
    """A type without ``NOT NULL``."""
    return str(type).upper().replace(" NOT NULL", "")


def _values(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type) and type.tz is not None:
        # They are in UTC, without saying so.
        return pa.array(values, pa.timestamp("us")).cast(pa.int64()).cast(type)
    return pa.array(values, type)


def _deleted(table: Any, files: Sequence[_DataFile]) -> Iterator[tuple[int, RowSet]]:
    """The deleted rows of each file that has some."""
    read = import_module("pypaimon.deletionvectors.deletion_vector").DeletionVector.read
    for at, each in enumerate(files):
        if each.vector is None:
            continue
        try:
            rows = np.fromiter(read(table.file_io, each.vector).bit_map(), np.int64)
        except RuntimeError as error:
            raise UnsupportedError(
                f"{each.path}: its deletion vector is not read here: {error}",
                hint=f"pypaimon reads those of 32 bits; {_COMPACT}",
            ) from error
        if len(rows):
            yield at, RowSet.of(rows)


class PaimonStatistics(FileStatistics):
    """The statistics of the manifests, column by column."""

    def __init__(
        self,
        table: Any,
        snapshot: Any,
        files: Sequence[_DataFile],
        schema: pa.Schema,
        namings: Sequence[Naming],
    ) -> None:
        super().__init__()
        self.table, self.snapshot, self.files, self.schema = table, snapshot, files, schema
        self.namings = namings

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled plan has used them already, and the library's table cannot be pickled.
        return PaimonStatistics, (None, None, (), self.schema, ())

    @cached_property
    def of_files(self) -> list[tuple[Any, dict[str, int]]] | None:
        """The statistics by file, with the places of the columns; ``None`` if they are gone."""
        if self.snapshot is None:
            return None
        of = import_module("pypaimon.manifest.manifest_list_manager").ManifestListManager
        entries = import_module("pypaimon.manifest.manifest_file_manager").ManifestFileManager
        try:
            manifests = of(self.table).read_all(self.snapshot)
            read = entries(self.table).read_entries_parallel(manifests, drop_stats=False)
        except Exception:  # the snapshot may have expired, and statistics are only advice
            return None
        known = {
            (tuple(each.partition.values), each.bucket, each.file.file_name): each.file.value_stats
            for each in read
        }
        found = []
        for each in self.files:
            stats = known.get((each.partition, each.bucket, each.file.file_name))
            names = () if stats is None else [field.name for field in stats.min_values.fields]
            found.append((stats, {name: at for at, name in enumerate(names)}))
        return found

    def read(self, column: str) -> Intervals | None:
        """See ``FileStatistics``."""
        path = column_path(column)
        if len(path) > 1 or path[0] not in self.schema.names or self.of_files is None:
            return None
        type = self.schema.field(path[0]).type
        if pa.types.is_nested(type):
            return None
        lows, highs, nulls = list[Any](), list[Any](), list[int]()
        for (stats, names), naming in zip(self.of_files, self.namings, strict=True):
            own = naming.to_file(column)
            at = -1 if own is None else names.get(column_path(own)[0], -1)
            counts = () if stats is None else stats.null_counts or ()
            lows.append(_bound(stats and stats.min_values, at))
            highs.append(_bound(stats and stats.max_values, at))
            count = counts[at] if 0 <= at < len(counts) else None
            nulls.append(-1 if count is None else count)
        rows = np.array([each.file.row_count for each in self.files], np.int64)
        try:
            low, high = _values(lows, type), _values(highs, type)
        except (pa.ArrowException, OverflowError):
            return None  # they are of a type that the column had before
        return outer_bounds(low, high, rows, np.array(nulls, np.int64))


def _bound(row: Any, at: int) -> Any:
    if row is None or not 0 <= at < len(row):
        return None
    try:
        value = row.get_field(at)
    except (TypeError, ValueError, struct.error):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value
