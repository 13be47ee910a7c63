"""Tables of Delta Lake, through ``deltalake``: the log, its statistics and its deletion vectors.

**Statistics** of the log come from many writers:

- bounds of timestamps are cut to milliseconds: both are moved by one, outwards;
- an upper bound of floats says nothing of NaN, the largest of all: it is left out;
- decimals of more than 15 digits may have gone through a double: their bounds are left out;
- texts may be cut: a bound is then not a value, but still a bound.

A file with a deletion vector has the statistics of all its rows; null counts may then be counts
before the deletion, which is the same.

**Column mapping.** Statistics use physical names. In the mode ``name``, the files use them too; in
the mode ``id``, the ids in their footers identify the columns. A physical name never gets another
meaning, so facts by that name stay true when a column is renamed or dropped.

**Refused:** tables whose protocol requires reader features that are not applied here.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers
from skipstone.errors import SkipstoneError, UnsupportedError, first_line
from skipstone.identity import canonical_path
from skipstone.predicate.naming import SAME, Named, Naming, Namings
from skipstone.predicate.types import MapKey, column_path
from skipstone.pruning import RowSet
from skipstone.pruning.table_schema import find_field

from .field_ids import Fields, FieldWithId, FilesByIds
from .libraries import DirectorySource, failing, library, store_options
from .snapshot import Connector, FileStatistics, TableSnapshot, instant, outer_bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.pruning.interval import Intervals


FORMAT: Final = "Delta Lake"
# Reader features that are applied, or that do not affect how files are read.
_APPLIED: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        # Columns of this type are refused by the type.
        "variantType",
        "variantType-preview",
    }
)
_MODES: Final = ("none", "name", "id")
_EXACT_DIGITS: Final = 15
_CHECK: Final = "check the log, and the options of the storage"


class DeltaSource(DirectorySource):
    """The table at ``root``, at a version or a time if one is given."""

    format = FORMAT
    part = "the log"
    hint = _CHECK

    def _begin(self) -> None:
        root, options, version, timestamp = self.given
        hint = "pip install 'skipstone[delta]'"
        self._library = library("deltalake", root, FORMAT, hint)
        if "://" not in root and re.search(r"[%\\\n]", root):
            # The library changes such a path, and would read the log of another directory.
            raise UnsupportedError(
                f"{root!r}: deltalake does not read paths with a percent sign, a backslash or a"
                " line break",
                hint="give the directory another name",
            )
        self._options = store_options(root, options) or None
        self._place = {"table_uri": root, "storage_options": self._options}
        self.errors = library("deltalake.exceptions", root, FORMAT, hint).DeltaError, OSError
        at = None if timestamp is None else instant(timestamp)
        wanted = at if version is None else _whole(version)
        newest = ""
        try:
            self._table = self._library.DeltaTable(**self._place)
            newest = f"the newest version is {self._table.version()}"
            if wanted is not None:
                self._table.load_as_version(wanted)
        except (*self.errors, ValueError) as error:
            what = "the table" if at is None else f"it at {at}"
            what = what if version is None else f"version {version}"
            raise SkipstoneError(
                f"{root}: {FORMAT} does not open {what}: {error}",
                hint=newest or _CHECK,
            ) from error
        if at is not None:
            made = self._committed(self._table.version())
            if made is None or made > at:
                raise SkipstoneError(
                    f"{root} has no version at {at}",
                    hint=None if made is None else f"the oldest of the log is of {made}",
                )
        self._files = FilesByIds()
        self._seen: list[str] | None = None

    def _newest(self) -> tuple[int, Callable[[], TableSnapshot]]:
        if not self.pinned:
            # Listed before the update, so that a commit in between changes the next list.
            names = self._names_in_log()
            if names is None or names != self._seen:
                self._table.update_incremental()
                self._seen = names
        return self._table.version(), self._read

    def _names_in_log(self) -> list[str] | None:
        """The file names in the log of a table on a local disk; each commit adds one. Listing them
        is five times as fast as asking the library for new commits."""
        if "://" in self.root:
            return None
        try:
            return os.listdir(f"{self.root}/_delta_log")  # noqa: PTH208 - a third of the time
        except OSError:
            return None  # the library reports what is wrong

    def _read(self) -> TableSnapshot:
        table = self._table
        self._check_protocol()
        schema = pa.schema(table.schema().to_arrow()).remove_metadata()
        files = pa.table(table.get_add_actions(flatten=False))
        paths = [_path_of(self.root, each) for each in files.column("path").to_pylist()]
        order = sorted(range(len(paths)), key=paths.__getitem__)
        files = files.take(pa.array(order, pa.int64())).combine_chunks()
        paths = [paths[at] for at in order]
        physical, mode = SAME, self._mapping
        if mode != "none":
            physical = _physical(json.loads(table.schema().to_json()))
        named = [physical] * len(paths)
        if mode == "id":
            named = self._by_ids(files.column("path").to_pylist())
        return TableSnapshot(
            format=FORMAT,
            version=str(table.version()),
            reopened=str(table.version()),
            paths=paths,
            sizes=np.asarray(files.column("size_bytes"), np.int64),
            row_counts=numbers(files.column("num_records").combine_chunks(), -1).astype(np.int64),
            schema=schema,
            partitions=_partitions(files, schema, table.metadata().partition_columns),
            statistics=LogStatistics(files, schema, physical),
            deleted=self._deleted(paths),
            committed=partial(self._committed, table.version()),
            names=Namings.of(named),
            connector=Connector("delta", self.root, {"versionAsOf": str(table.version())}),
        )

    @property
    def _mapping(self) -> str:
        """The mode of column mapping: ``none``, ``name`` or ``id``."""
        found = self._table.metadata().configuration
        return str(found.get("delta.columnMapping.mode", "none"))

    def _by_ids(self, paths: list[str]) -> list[Naming]:
        """The names in each file, by its footer."""
        from deltalake.fs import DeltaStorageHandler

        files = DeltaStorageHandler.from_table(self._table._table, self._options)
        opened = {path: partial(files.open_input_file, unquote(path)) for path in paths}
        found = self._files.of(_fields(json.loads(self._table.schema().to_json())), opened)
        return [found[path] for path in paths]

    def _committed(self, version: int) -> datetime | None:
        """When a version was made. The library counts commits from the newest version."""
        what, hint = f"{self.root}: {FORMAT} does not read the history", _CHECK
        with failing(what, hint, (*self.errors, ValueError), first_line):
            newest = self._library.DeltaTable(**self._place)
            commits = newest.history(newest.version() - version + 1)
        if len(commits) <= newest.version() - version:
            return None
        return datetime.fromtimestamp(commits[newest.version() - version]["timestamp"] / 1e3, UTC)

    def _check_protocol(self) -> None:
        protocol = self._table.protocol()
        asked = set(protocol.reader_features or ())
        if self._mapping not in _MODES:
            raise UnsupportedError(
                f"{self.root}: delta.columnMapping.mode is {self._mapping!r}, which is not known",
                hint=f"read it through {FORMAT}",
            )
        strange = sorted(asked - _APPLIED)
        if strange:
            raise UnsupportedError(
                f"{self.root}: its protocol asks readers for {', '.join(strange)}, which is not"
                " applied here",
                hint=f"read it through {FORMAT}",
            )

    def _deleted(self, paths: list[str]) -> dict[int, RowSet]:
        """The deleted rows of the files that have a deletion vector."""
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return {}
        place = {path: at for at, path in enumerate(paths)}
        found: dict[int, RowSet] = {}
        for batch in self._table.deletion_vectors():
            vectors = pa.record_batch(batch)
            for file, keeps in zip(vectors.column(0), vectors.column(1), strict=True):
                gone = np.flatnonzero(~np.asarray(keeps.values.to_numpy(zero_copy_only=False)))
                if len(gone):
                    found[place[_path_of_uri(file.as_py())]] = RowSet.of(gone)
        return found


#: the types below a list or a map, in the log and here
_BELOW: Final = (("elementType", "element"), ("keyType", "key"), ("valueType", "value"))


def _physical(type: Any) -> Naming:
    """The physical names of the fields below a type of the log."""
    if not isinstance(type, dict):
        return SAME
    found = {}
    for field in type.get("fields", ()):
        name, below = field["name"], _physical(field["type"])
        own = field["metadata"].get("delta.columnMapping.physicalName", name)
        if own != name or below:
            found[name] = Named(own, below)
    for key, name in _BELOW:
        if below := _physical(type.get(key)):
            found[name] = Named(name, below)
    return Naming(found) if found else SAME


def _fields(type: Any) -> Fields:
    """The fields below a type of the log, with their ids."""
    if not isinstance(type, dict):
        return ()
    found = [
        FieldWithId(
            each["name"], each["metadata"].get("delta.columnMapping.id"), _fields(each["type"])
        )
        for each in type.get("fields", ())
    ]
    found += [FieldWithId(name, None, _fields(type[key])) for key, name in _BELOW if key in type]
    return tuple(found)


def _whole(version: int | str) -> int:
    if not re.fullmatch(r"\d{1,18}", str(version).strip(), re.ASCII):
        raise SkipstoneError(
            f"a version of {FORMAT} is a whole number from 0, not {version!r}",
            hint="a time is named by timestamp (--at-timestamp), a version by its number",
        )
    return int(version)


def _path_of(root: str, path: str) -> str:
    """The canonical path for a path of the log, which is encoded as in a URI."""
    return _path_of_uri(path) if "://" in path else f"{root.rstrip('/')}/{unquote(path)}"


def _path_of_uri(uri: str) -> str:
    return canonical_path(unquote(uri))


def _partitions(files: pa.Table, schema: pa.Schema, names: list[str]) -> dict[str, pa.Array]:
    if not names:
        return {}
    values = files.column("partition").combine_chunks()
    return {name: pc.struct_field(values, [name]).cast(schema.field(name).type) for name in names}


class LogStatistics(FileStatistics):
    """The statistics of the log, column by column."""

    def __init__(self, files: pa.Table, schema: pa.Schema, physical: Naming) -> None:
        super().__init__()
        self.files, self.schema, self.physical = files, schema, physical
        self.rows = numbers(files.column("num_records").combine_chunks(), -1).astype(np.int64)

    def read(self, column: str) -> Intervals | None:
        """See ``FileStatistics``."""
        path = column_path(column)
        stored = self.physical.to_file(column)
        if stored is None or any(isinstance(part, MapKey) for part in path):
            return None
        path = column_path(stored)
        nulls = self._field("null_count", path)
        lo, hi = self._field("min", path), self._field("max", path)
        field = find_field(self.schema, column)
        if field is None or pa.types.is_nested(field.type) or (nulls is None and lo is None):
            return None
        type = field.type
        low, high = self._bound(lo, type), self._bound(hi, type)
        known = np.full(len(low), -1, np.int64) if nulls is None else numbers(nulls, -1)
        return outer_bounds(low, high, self.rows, known.astype(np.int64))

    def _bound(self, values: pa.Array | None, type: pa.DataType) -> pa.Array:
        """The values, or nulls where they may not be bounds; see the module."""
        lossy = pa.types.is_decimal(type) and type.precision > _EXACT_DIGITS
        if values is None or lossy or not values.type.equals(type):
            return pa.nulls(len(self.files), type)
        return values

    def _field(self, kind: str, path: tuple[str, ...]) -> pa.Array | None:
        if kind not in self.files.column_names:
            return None
        values = self.files.column(kind).combine_chunks()
        for part in path:
            if not pa.types.is_struct(values.type) or values.type.get_field_index(part) < 0:
                return None
            values = pc.struct_field(values, [part])
        return None if pa.types.is_nested(values.type) else values
