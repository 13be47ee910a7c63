"""``spark.read.format("skipstone")``: fetches rows page by page, on any kind of session.

    spark.read.format("skipstone").option("where", "user_id = 'u-8814'").load("lake/events")
    CREATE TABLE t USING skipstone OPTIONS (path 'lake/events', where 'user_id = 7')

| option | |
|---|---|
| ``path`` | the table's directory, or ``load(path)`` |
| ``where`` | which rows; Spark's SQL text, with its meaning |
| ``columns`` | which columns, ``"ts, amount"``; all by default |
| ``orderBy``, ``limit`` | the first rows of an order: ``"amount desc"``, ``"10"`` |
| ``timeZone`` | of timestamps in ``where`` that have none |
| ``indexLocation`` | directory of the index, if not next to the table |
| ``memory`` | the most bytes of pages that a task decodes together |
| ``verifyChecksums`` | ``false`` reads pages whose checksum is wrong |
| ``recursiveFileLookup`` | ``true``: all files below, and no partition columns, as Spark's |
| ``version``, ``timestamp`` | of a table of a table format, as for ``Table`` |
| ``storage.<name>`` | an option of the object store |

Spark plans in a Python worker, which has no session. The session's time zone is unknown there, so a
``where`` whose meaning depends on it needs ``timeZone``. Spark passes no filter and no column list
to a Python source (a reader with ``pushFilters`` fails on a default session), hence the options;
Spark applies filters on the DataFrame afterwards. A DataFrame is planned once, as Spark lists files
once: ``load`` again to see new files. Encrypted files are refused (``session.encrypted_error``).
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    KeyUnavailableError,
    PredicateError,
    SkipstoneError,
    StaleError,
    UnsupportedError,
)
from skipstone.execution.ordering import first_rows, sorted_rows
from skipstone.execution.plan_rows import TableReader, plan_of
from skipstone.execution.table_engine import Engine
from skipstone.execution.table_files import Footers
from skipstone.execution.table_scan import TableQuery, limited
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.types import column_name, split_names
from skipstone.pruning.partitions import RECURSIVE
from skipstone.pruning.plan import FileDetail, Plan
from skipstone.storage import open_storage

from .schemas import in_types, spark_schema
from .session import encrypted_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from skipstone.execution import TableScan
    from skipstone.execution.file_columns import TableColumns
    from skipstone.predicate.tree import Bound
    from skipstone.pruning import RowSet


_STORAGE = "storage."
_NAMES = (
    "path, where, columns, orderBy, limit, timeZone, indexLocation, memory, "
    "recursiveFileLookup, verifyChecksums, version, timestamp"
)
_KNOWN = _NAMES.lower().split(", ")
# Two zones in which the same local time is always another instant.
_ZONES = ("Pacific/Kiritimati", "Pacific/Pago_Pago")
# Rows per batch that Spark receives.
_BATCH = 65_536


@dataclass
class ScanTaskPartition(InputPartition):
    """What one task reads."""

    value: ScanTask | None

    def __init__(self, value: ScanTask | None) -> None:
        super().__init__(value)


class SkipstoneSource(DataSource):
    """See the module. ``open_table`` is ``skipstone.Table``, which lies above this package."""

    open_table: ClassVar[Callable[..., Any]]

    @classmethod
    def name(cls) -> str:
        """The name for ``format`` and ``USING``."""
        return "skipstone"

    def _opening(self) -> partial[Any]:
        options = {key.lower(): value for key, value in self.options.items()}
        known = {key for key in options if key in _KNOWN or key.startswith(_STORAGE)}
        strange = sorted(options.keys() - known)
        if strange:
            raise SkipstoneError(
                f"no option {strange[0]!r} of format skipstone",
                hint=f"it has {_NAMES} and storage.<name>",
            )
        path = options.get("path")
        if not path:
            raise SkipstoneError("no path", hint='name the table: .load("lake/events")')
        storage = {
            key[len(_STORAGE) :]: value
            for key, value in options.items()
            if key.startswith(_STORAGE)
        }
        return partial(
            type(self).open_table,
            path,
            index_location=options.get("indexlocation"),
            storage_options=storage or None,
            memory=None if "memory" not in options else _whole("memory", options["memory"]),
            verify_checksums=_flag("verifyChecksums", options.get("verifychecksums", "true")),
            recursive_file_lookup=_flag(RECURSIVE, options.get(RECURSIVE.lower(), "false")),
            version=options.get("version"),
            timestamp=options.get("timestamp"),
        )

    def schema(self) -> StructType:
        """The requested columns, with Spark's types."""
        with _as_spark_takes_it():
            opening = self._opening()
            try:
                return spark_schema(opening(), _names(self.options.get("columns")))
            except SkipstoneError as error:
                raise _in_directory(str(opening.args[0]), error) from None

    def reader(self, schema: StructType) -> SkipstoneReader:
        """A reader; it plans when Spark requests the partitions."""
        return SkipstoneReader(
            self._opening(), {k.lower(): v for k, v in self.options.items()}, schema
        )


class SkipstoneReader(DataSourceReader):
    """Plans in ``partitions``, and reads the rows of the plan."""

    def __init__(
        self, opening: Callable[[], Any], options: Mapping[str, str], spark_schema: StructType
    ) -> None:
        self.opening, self.options, self.spark_schema = opening, dict(options), spark_schema

    @cached_property
    def table(self) -> Any:
        """The opened table; connections are not pickled."""
        return self.opening()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "table"}

    def partitions(self) -> list[InputPartition]:
        """The scan tasks. Spark treats ``[]`` as one empty partition, so there is one at least."""
        with _as_spark_takes_it():
            if self.table.txn is not None:
                # Tasks would read the footer at the end of a file, not at the end of its snapshot.
                raise UnsupportedError(
                    f"{self.table.path} has a _txn: format skipstone reads no snapshots",
                    hint="read it with skipstone.Table(path).read(spark, where)",
                )
            limit = self.options.get("limit")
            made = self.table.retried(
                partial(_tasks_of, self.table.storage_options),
                self.options.get("where"),
                columns=[column_name((name,)) for name in self.spark_schema.names],
                order_by=self.options.get("orderby"),
                limit=None if limit is None else _whole("limit", limit),
                time_zone=checked_zone(self.table, self.options),
            )
            return [ScanTaskPartition(each) for each in made] or [ScanTaskPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a scan task, in exactly the schema that Spark was given."""
        if partition.value is None:
            return
        with _as_spark_takes_it():
            for table in partition.value.tables():
                yield from in_types(table, self.spark_schema).to_batches(max_chunksize=_BATCH)


def _tasks_of(storage_options: Mapping[str, str], scan: TableScan) -> list[ScanTask]:
    assert scan.query is not None  # a table of Parquet files
    return scan_tasks(scan.plan, scan.query, storage_options)


@contextmanager
def _as_spark_takes_it() -> Iterator[None]:
    """Replaces ``NotImplementedError``, for which Spark would plan nothing and return no rows."""
    try:
        with _without_traceback():
            yield
    except KeyUnavailableError as error:
        raise encrypted_error(error) from None
    except NotImplementedError as error:
        if isinstance(error, SkipstoneError):
            raise SkipstoneError(error.message, hint=error.hint) from error
        hint = "read with skipstone.Table.read"
        raise SkipstoneError(f"not implemented: {error}", hint=hint) from error


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Lets a Spark worker report a user's error without a traceback.

    The worker ends after an error, so the variable reaches no other.
    """
    try:
        yield
    except (SkipstoneError, FileNotFoundError, PermissionError):
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _in_directory(path: str, error: SkipstoneError) -> SkipstoneError:
    """The error, with a better hint where a relative path does not exist: this worker may run in
    another directory than the user."""
    is_relative = ":" not in path and not path.startswith(("/", "~"))
    if not is_relative or not error.message.startswith("no such file"):
        return error
    hint = f"Spark opens {path!r} in {Path.cwd()}: give an absolute path or a URL"
    return SkipstoneError(error.message, hint=hint)


def checked_zone(table: Any, options: Mapping[str, str]) -> str:
    """The time zone of ``where``.

    ``PredicateError`` where it has timestamps without a zone, and no option has the zone.
    """
    zone, where = options.get("timezone"), options.get("where")
    if zone is not None or where is None:
        return zone or "UTC"
    schema = table.schema(table.listing())
    meanings = [
        bind(parse_sql(where), schema, session_zone=each, text=where, map_keys=True)
        for each in _ZONES
    ]
    # Compared as text: a NaN is not equal to itself.
    if repr(meanings[0]) != repr(meanings[1]):
        raise PredicateError(
            f"the meaning of {where!r} depends on the session's time zone, and a data source "
            "has none",
            hint='set it: .option("timeZone", "Europe/Berlin"), or write the zone into the text',
        )
    return "UTC"


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in split_names(text) if name.strip()]


def _whole(name: str, text: str) -> int:
    try:
        return min(int(text), 2**63 - 1)
    except ValueError:
        raise SkipstoneError(f"{name} is {text!r}", hint="give a whole number") from None


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SkipstoneError(f"{name} is {text!r}", hint="give true or false")
    return text.lower() == "true"


#: Bytes of files in one task; a larger file is split over several.
TARGET = 128 << 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScanTask:
    """Some files of a plan, or rows in a given order; it can be pickled.

    ``plan`` holds these files alone. ``rows`` are the file ordinals (in ``plan``) and row positions
    of the result, in order, known to match; ``None`` for all rows of the plan. ``pinned``: the task
    reads rows by their positions in the listed versions of its files. In other versions these would
    be wrong rows, or rows that other tasks read too: that is a ``StaleError``. Other tasks read a
    file that was replaced as it is now, as Spark does.
    """

    plan: Plan
    tree: Bound
    table: TableColumns
    columns: tuple[str, ...] | None
    storage_options: Mapping[str, str]
    verify_checksums: bool
    memory: int | None = None
    limit: int | None = None
    pinned: bool = False
    rows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """The rows, piece by piece."""
        storage = open_storage(self.plan.table, self.storage_options)
        engine = Engine(storage, self.storage_options)
        engine.files.verify_checksums = self.verify_checksums
        engine.files.memory = self.memory
        footers = Footers(engine.files, self.plan.listing, self.table)
        reader = TableReader(footers, self.tree, self.columns)
        if self.pinned:
            _require_listed(footers)
        if self.rows is not None:
            yield sorted_rows(reader, *self.rows)
            return
        yield from limited(reader.tables(self.plan), self.limit)


def scan_tasks(plan: Plan, query: TableQuery, storage_options: Mapping[str, str]) -> list[ScanTask]:
    """Splits the plan of ``query`` into tasks; none where there is nothing to read.

    With an order, this call finds the first rows, and the task reads only their columns. With a
    limit alone there is one task, which stops when it has enough rows.
    """
    whole = ScanTask(
        plan=plan,
        tree=query.tree,
        table=query.footers.table,
        columns=query.columns,
        storage_options=dict(storage_options),
        verify_checksums=query.footers.files.verify_checksums,
        memory=query.footers.files.memory,
    )
    kept = np.flatnonzero(plan.keep)
    if not len(kept) or query.limit == 0:
        return []
    if query.orders:
        found = first_rows(query.reader(), plan, query.orders, query.limit, query.bounds)
        if not len(found):
            return []
        files, at = np.unique(found.file, return_inverse=True)
        rows = at.astype(np.int64), found.row
        return [replace(_of_files(whole, files), rows=rows, pinned=True)]
    if query.limit is not None:
        return [replace(_of_files(whole, kept), limit=query.limit)]
    made: list[ScanTask] = []
    group: list[int] = []
    size = 0
    for file in kept.tolist():
        own = int(plan.listing.sizes[file])
        detail = plan.details.get(file)
        if detail is not None and detail.rows is not None and plan.row_counts[file] > 0:
            own = own * len(detail.rows) // int(plan.row_counts[file])
        if own > TARGET:
            made += _cut(whole, query, file)
            continue
        if group and size + own > TARGET:
            made.append(_of_files(whole, np.array(group)))
            group, size = [], 0
        group.append(file)
        size += own
    if group:
        made.append(_of_files(whole, np.array(group)))
    return made


def _of_files(whole: ScanTask, files: NDArray[np.int64]) -> ScanTask:
    """The task that reads all of these files."""
    plan = whole.plan
    chosen = files.tolist()
    details = {at: plan.details[file] for at, file in enumerate(chosen) if file in plan.details}
    part = replace(
        plan,
        listing=plan.listing.where(files),
        keep=np.ones(len(files), np.bool_),
        must=plan.must[files],
        row_counts=plan.row_counts[files],
        details=details,
        deleted={at: plan.deleted[file] for at, file in enumerate(chosen) if file in plan.deleted},
        steps=(),
        reasons=(),
    )
    return replace(whole, plan=part, table=whole.table.of_files(chosen))


def _cut(whole: ScanTask, query: TableQuery, file: int) -> list[ScanTask]:
    """The tasks of one large file: some row groups each."""
    reader = query.reader()
    pieces = list(reader.pieces(plan_of(whole.plan, [file])))
    if len(pieces) == 1:
        return [_of_files(whole, np.array([file]))]
    return [_rows_of(whole, file, piece.rows, sure=piece.sure) for piece in pieces]


def _rows_of(whole: ScanTask, file: int, rows: RowSet | None, *, sure: bool) -> ScanTask:
    part = _of_files(whole, np.array([file]))
    must = np.array([False])
    detail = FileDetail(rows=rows, exact=sure)
    plan = replace(part.plan, details={0: detail}, must=must)
    return replace(part, plan=plan, pinned=True)


def _require_listed(footers: Footers) -> None:
    """Opens all files. ``StaleError`` where one is not in the version of the listing."""
    footers.open(range(len(footers.listing)))
    for at, path in enumerate(footers.listing.paths):
        if at in footers.failed:
            raise footers.failed[at]
        if not footers.fresh(at):
            raise StaleError(
                f"{path} has changed since the DataFrame was planned",
                hint="load the table again: it is planned once, when it is loaded",
            )
