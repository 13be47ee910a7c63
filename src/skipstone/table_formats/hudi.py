"""Tables of Apache Hudi, through ``hudi`` (hudi-rs): instants and base files.

**The files of an instant** come from the library: one base file of each file group. If a file group
has log files, its base file lacks some rows and has some that were deleted. Such a table is
refused.

**Columns** are those of the files, by name, as Hudi reads them: Hudi's own columns
(``_hoodie_commit_time`` …) come first, and the columns of partitions are in the files, too. Names
of folders mean nothing. A table is refused if its columns may have other names in the files (schema
on read). It is also refused if the type of a column has changed and Hudi's reader would change old
values: numbers become texts, or the float 0.1 becomes another double (``_check_types``).

**Old instants.** A cleaner removes the files of old instants, and the library then leaves their
rows out. A later commit says which file of a group it replaced (``prevCommit``), so an instant
whose files are not all there is an error. This can happen to the newest instant before its files
are listed. So the timeline is read again after the listing, and a newer instant replaces it.

The library would have to open each file for statistics and row counts.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.human import of_total, plural
from skipstone.identity import canonical_path
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.types import is_list
from skipstone.storage import open_storage

from .field_ids import READERS
from .libraries import DirectorySource, failing, library, store_options
from .snapshot import FileStatistics, TableSnapshot, canonical_schema, instant, known_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from skipstone.pruning.interval import Intervals

FORMAT: Final = "Apache Hudi"
_READ: Final = f"read it through {FORMAT}"
#: the pause before a timeline that cannot be read is read again, in seconds
_WAITS: Final = (0.02, 0.2)


class HudiSource(DirectorySource):
    """The table at ``root``, at an instant or a time if one is given."""

    format = FORMAT
    part = "the table"

    def _begin(self) -> None:
        # Each instant has one schema of files.
        self._stored: dict[str, pa.Schema] = {}
        root, options, version, timestamp = self.given
        self._library = library("hudi", root, FORMAT, "pip install 'skipstone[hudi]'")
        self._options = store_options(root, options) or None
        if self.pinned:
            self._at = self._named(version, timestamp)

    def _newest(self) -> tuple[list[str], Callable[[], TableSnapshot]]:
        table, instants = self._open()
        # The list changes with each commit and each rollback.
        return [each.timestamp for each in instants], partial(self._settled, table, instants)

    def _settled(self, table: Any, instants: Sequence[Any]) -> TableSnapshot:
        """The snapshot. A writer creates the file of a commit on a local disk, then fills it."""
        for wait in _WAITS:
            try:
                return self._read(table, instants)
            except SkipstoneError:
                raise
            except Exception:  # the library has no class of its own for its errors
                time.sleep(wait)
                table, instants = self._open()
        return self._read(table, instants)

    def _open(self) -> tuple[Any, list[Any]]:
        """The table as it is now, and its completed instants, the oldest first."""
        hint = f"check the options of the storage, or {_READ}"
        with failing(f"{self.root}: {FORMAT} does not open the table", hint):
            table = self._library.HudiTable(self.root, self._options)
            timeline = table.get_timeline()
            found = {
                each.timestamp: each
                for each in (
                    *timeline.get_completed_commits(),
                    *timeline.get_completed_deltacommits(),
                    *timeline.get_completed_replacecommits(),
                )
            }
        return table, [found[time] for time in sorted(found)]

    def _named(self, version: int | str | None, timestamp: str | datetime | None) -> str:
        """The instant of a version or a time."""
        _, instants = self._open()
        if timestamp is None:
            found = [each for each in instants if each.timestamp == str(version)]
            said = f"instant {version}"
        else:
            moment = instant(timestamp)
            found = [each for each in instants if _time(each) <= moment]
            said = f"instant at {moment}"
        if not found:
            oldest = f"the oldest is {instants[0].timestamp}" if instants else "it has none"
            raise SkipstoneError(
                f"{self.root} has no completed {said} in its timeline",
                hint=f"a version is an instant of a commit: {oldest}",
            )
        return str(found[-1].timestamp)

    def _read(self, table: Any, instants: Sequence[Any]) -> TableSnapshot:
        self._check(table, instants)
        found = [each for each in instants if not self.pinned or each.timestamp <= self._at]
        slices = []
        if found:
            options = self._library.HudiReadOptions()
            asked = options.with_as_of_timestamp(found[-1].timestamp)
            slices = table.get_file_slices(asked)
        else:
            self._require_new()
        logs = [each for each in slices if each.has_log_files()]
        if logs:
            total = of_total(len(logs), len(slices), "file groups")
            raise UnsupportedError(
                f"{self.root}: {total} have log files, which have to be merged, such as"
                f" {logs[0].log_files_relative_paths()[0]}",
                hint=f"compact it in Hudi (CALL run_compaction), or {_READ}",
            )
        again, now = self._open()
        if found and (lost := _cleaned_file(again, found[-1].timestamp, now, slices)):
            if not self.pinned:  # a commit and a cleaner came before the listing
                return self._read(again, now)
            raise self._cleaned(found[-1].timestamp, lost)
        schema = self._schema(table)
        self._check_types(schema, slices)
        root = self.root.rstrip("/")
        files = sorted(
            (canonical_path(f"{root}/{each.base_file_relative_path()}"), each.base_file_size)
            for each in slices
        )
        version = found[-1].timestamp if found else "0"
        return TableSnapshot(
            format=FORMAT,
            version=version,
            reopened=version,
            paths=[path for path, _ in files],
            sizes=np.array([size for _, size in files], np.int64),
            row_counts=np.full(len(files), -1, np.int64),
            schema=schema,
            partitions={},
            statistics=NoStatistics(),
            deleted={},
            committed=known_time(_time(found[-1]) if found else None),
        )

    def _require_new(self) -> None:
        """``SkipstoneError`` if a table without a completed instant has files that no instant will
        complete: its timeline is lost."""
        storage = open_storage(self.root, self.given[1])
        kept = storage.list_all(f"{self.root.rstrip('/')}/.hoodie").paths
        if any(path.endswith((".requested", ".inflight")) for path in kept):
            return
        if files := len(storage.list_files(self.root)):
            raise SkipstoneError(
                f"{self.root}: its timeline in .hoodie has no instant, but the table has"
                f" {plural(files, 'file')}",
                hint="copy the table again with all of .hoodie",
            )

    def _schema(self, table: Any) -> pa.Schema:
        own = table.hudi_options().get("hoodie.populate.meta.fields", "true") != "false"
        arrow = table.get_schema_with_meta_fields() if own else table.get_schema()
        return canonical_schema(self.root, arrow)

    def _check(self, table: Any, instants: Sequence[Any]) -> None:
        """``UnsupportedError`` for features that are not applied here. (The library itself refuses
        base files of ORC, and files without the columns of partitions.)"""
        why = ""
        if table.hudi_options().get("hoodie.bootstrap.base.path"):
            why = "its rows are in the files of another table, too (bootstrap)"
        elif instants:
            newest = _metadata(table, instants[-1])
            if newest["extraMetadata"].get("latest_schema"):
                why = "files may have columns under other names (hoodie.schema.on.read.enable)"
        if why:
            raise UnsupportedError(f"{self.root}: {why}, which is not applied here", hint=_READ)

    def _check_types(self, schema: pa.Schema, slices: Sequence[Any]) -> None:
        """``UnsupportedError`` for a column whose stored values change in the table's present type.
        A commit writes one schema, so one file of each is opened."""
        files = {each.creation_instant_time: each.base_file_relative_path() for each in slices}
        fresh = [each for each in files if each not in self._stored]
        with ThreadPoolExecutor(READERS) as pool:
            read = list(pool.map(lambda each: self._schema_in(files[each]), fresh))
        held = self._stored | dict(zip(fresh, read, strict=True))
        self._stored = {each: held[each] for each in files}
        for each, stored in self._stored.items():
            if found := _changed(stored, schema):
                name, old, now = found
                raise UnsupportedError(
                    f"{self.root}: {name!r} is {old} in {files[each]}, and {now} in the table,"
                    " whose reader converts such values in its own way",
                    hint=f"rewrite the table in Hudi (CALL run_clustering), or {_READ}",
                )

    def _schema_in(self, path: str) -> pa.Schema:
        return ParquetFile(f"{self.root.rstrip('/')}/{path}", storage_options=self.given[1]).schema

    def _cleaned(self, at: str, file: str) -> SkipstoneError:
        return SkipstoneError(
            f"{self.root}: files of instant {at} are gone, such as one of file group {file}",
            hint="a cleaner removes the files of old instants: open a newer one",
        )


class NoStatistics(FileStatistics):
    """No statistics: the library would open each file for them, and plans use those of the files
    anyway."""

    def read(self, column: str) -> Intervals | None:
        """See ``FileStatistics``."""
        return None


def _changed(stored: Iterable[pa.Field], now: Iterable[pa.Field]) -> tuple[str, Any, Any] | None:
    """A column of numbers whose new type changes its values, or makes them texts: its name and both
    types."""
    types = {each.name: each.type for each in now}
    for field in stored:
        old, new = field.type, types.get(field.name)
        if new is None or old == new:
            continue
        if is_list(old) and is_list(new):
            inner = _changed([old.value_field.with_name("")], [new.value_field.with_name("")])
        elif pa.types.is_map(old) and pa.types.is_map(new):
            inner = _changed([old.key_field, old.item_field], [new.key_field, new.item_field])
        elif pa.types.is_struct(old) and pa.types.is_struct(new):
            inner = _changed(old, new)
        else:
            number = pa.types.is_floating(old) or pa.types.is_decimal(old)
            exact = pa.types.is_int32(old) and new in (pa.int64(), pa.float64())
            other = number or (pa.types.is_integer(old) and not exact)
            inner = (field.name, old, new) if other else None
        if inner is not None:
            return field.name, *inner[1:]
    return None


def _cleaned_file(
    table: Any, at: str, instants: Iterable[Any], slices: Sequence[Any]
) -> str | None:
    """A file group whose file of the instant ``at`` was cleaned; see the module."""
    have = {each.file_id: each.creation_instant_time for each in slices}
    later: set[str] = set()
    for each in instants:
        if each.timestamp <= at:
            continue
        found = _metadata(table, each)
        stats = [one for of in found["partitionToWriteStats"].values() for one in of]
        replaced = [one for of in found["partitionToReplaceFileIds"].values() for one in of]
        before = {one["fileId"]: one["prevCommit"] for one in stats}
        for file, old in before.items():
            fresh = old in (None, "null") or old > at
            if file not in later and not fresh and have.get(file) != old:
                return str(file)
        for file in replaced:
            if file not in later and file not in have:
                return str(file)
        later |= before.keys()
    return None


def _metadata(table: Any, instant: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.get_timeline().get_instant_metadata_in_json(instant))
    names = ("partitionToWriteStats", "partitionToReplaceFileIds", "extraMetadata")
    return {name: found.get(name) or {} for name in names}


def _time(instant: Any) -> datetime:
    return datetime.fromtimestamp(instant.epoch_mills / 1e3, UTC)
