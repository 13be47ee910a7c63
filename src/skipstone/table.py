"""``Table``: the face over all of it, one table of plain files and its index.

>>> table = skipstone.Table("lake/events")
>>> table.build(spark, indexes=["user_id:bloom", "ts:minmax"])
>>> print(table.explain("user_id = 'u-8814'"))

The index lies beside the table (``lake/_events.skipstone``) unless ``index_location`` says
otherwise; nothing is ever written into the table's own directory. Spark is imported by the calls
that are given a session, and by no other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from skipstone.bounds import Cause, Reason
from skipstone.errors import PredicateError, SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.index.build import BuildSettings
from skipstone.index.partitions import PartitionColumns
from skipstone.index.registry import parse_indexes
from skipstone.index.schema import find_field, table_schema
from skipstone.plan.objects import plan_objects
from skipstone.predicate import Const, bind, from_dnf, parse_sql, to_sql
from skipstone.storage import open_storage, table_format
from skipstone.store import Location, Store
from skipstone.store.coverage import by_lacking
from skipstone.store.job import BuildJob, Outcome, run_here
from skipstone.store.reports import BuildReport
from skipstone.store.upkeep import compact, needs_merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.index.kind import Index
    from skipstone.plan import Plan
    from skipstone.predicate.tree import Expr
    from skipstone.storage import Listing, Storage
    from skipstone.store import Matched

__all__ = ["Table", "explain", "last_scan", "read", "skip"]

Progress: TypeAlias = Callable[[int, int], None]
#: SQL text, or pyarrow's DNF tuples
Where: TypeAlias = "str | Any"

DEFAULT_MEMORY = 512 * 2**20


class Table:
    """A table of plain files below one directory, and its index; see the module."""

    def __init__(
        self,
        path: str,
        *,
        index_location: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.path = canonical_path(path)
        self.storage_options = dict(storage_options or {})
        self.location = Location.of_table(self.path, index_location)
        self.storage: Storage = open_storage(self.path, self.storage_options)
        index_storage = open_storage(self.location.root, self.storage_options)
        self.store = Store(self.location, index_storage)

    def __repr__(self) -> str:
        return f"Table({self.path!r})"

    # -- what there is -----------------------------------------------------------------------------

    def listing(self) -> Listing:
        """The data files now. ``UnsupportedError`` for a table of a table format."""
        found = table_format(self.path, self.storage)
        if found is not None:
            raise UnsupportedError(
                f"{self.path} is a table of {found}: its directory holds files that are not part "
                "of the table",
                hint=f"read it through {found}, which has file statistics of its own",
            )
        return self.storage.list_files(self.path)

    def schema(self, listing: Listing, needed: Iterable[str] = ()) -> pa.Schema:
        """The table's schema as Spark reads it, partition columns last."""
        import pyarrow as pa

        schema = table_schema(listing, self.storage.open, list(needed))
        partitions = PartitionColumns.of_paths(self.path, listing.paths)
        data = {field.name for field in schema}
        extra = [
            pa.field(name, values.type)
            for name, values in partitions.values.items()
            if name not in data
        ]
        return pa.schema([*schema, *extra])

    # -- build and refresh -------------------------------------------------------------------------

    def build(
        self,
        spark: SparkSession | None = None,
        indexes: Iterable[str | Index] = (),
        *,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
    ) -> BuildReport:
        """Build ``indexes`` (``"user_id:bloom(fpp=0.001)"``) for all files that lack them.

        One Spark job; without a session it runs in this process. ``memory`` bounds what a task
        holds, in bytes. What an earlier, killed build finished is not done again; other indexes are
        left alone. ``progress`` is called with files done and files to do.
        """
        wanted = parse_indexes(indexes)
        if not wanted:
            raise SkipstoneError(
                "no index was named", hint="`skipstone advise TABLE` proposes some"
            )
        return self._run(spark, wanted, memory, progress)

    def refresh(
        self,
        spark: SparkSession | None = None,
        *,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
    ) -> BuildReport:
        """Build the indexes that the table has for its new and changed files, and for no others."""
        definitions = self.store.snapshot().definitions
        known = [found for found in (each.index for each in definitions) if found is not None]
        if not definitions:
            raise SkipstoneError(f"{self.path} has no index", hint="run `skipstone build TABLE`")
        return self._run(spark, known, memory, progress)

    def _run(
        self,
        spark: SparkSession | None,
        wanted: Sequence[Index],
        memory: int,
        progress: Progress | None,
    ) -> BuildReport:
        started = time.perf_counter()
        listing = self.listing()
        schema = self._checked(listing, wanted)
        before = self.store.snapshot()
        matched = before.match(listing)
        outcomes: list[Outcome] = []
        todo = np.zeros(len(listing), np.bool_)
        for lacking, files in by_lacking(matched, wanted):
            todo |= files
            job = BuildJob(
                table=self.path,
                location=self.location.root,
                storage_options=self.storage_options,
                definitions=lacking,
                schema=schema,
                settings=BuildSettings(memory=memory),
            )
            outcomes += self._execute(spark, job, listing.where(files), progress)
        merged = self._merge_if_needed()
        good = [outcome for outcome in outcomes if outcome.built]
        left_out = Counter(text for o in good for text in o.reasons.items())
        return BuildReport(
            table=self.path,
            location=self.location.root,
            files_total=len(listing),
            files_built=len({outcome.path for outcome in good}),
            files_already=int(np.count_nonzero(~todo)),
            files_failed=tuple(
                (o.path, o.error or "") for o in outcomes if not o.built and not o.too_fresh
            ),
            files_too_fresh=tuple(o.path for o in outcomes if o.too_fresh),
            left_out=tuple(
                Reason(cause=Cause.OVER_LIMIT, subject=index, text=text, units=count)
                for (index, text), count in left_out.items()
            ),
            bytes_data=sum(outcome.size for outcome in good),
            bytes_index=max(0, self.store.snapshot().size - before.size),
            seconds=time.perf_counter() - started,
            merged=merged,
        )

    def _execute(
        self,
        spark: SparkSession | None,
        job: BuildJob,
        files: Listing,
        progress: Progress | None,
    ) -> list[Outcome]:
        if spark is None:
            return run_here(job, files, progress)
        from skipstone.spark.build import run_on_spark

        return run_on_spark(spark, job, files, progress)

    def _checked(self, listing: Listing, wanted: Sequence[Index]) -> pa.Schema:
        """The schema of the indexed columns, each named as the table spells it.

        Raises ``PredicateError`` with the nearest name for a column that is not there, and
        ``UnsupportedError`` for a type that a kind cannot take, or a partition column.
        """
        import pyarrow as pa

        from skipstone.predicate.types import spark_type

        schema = table_schema(listing, self.storage.open, [index.column for index in wanted])
        partitions = PartitionColumns.of_paths(self.path, listing.paths).values
        fields = {}
        for index in wanted:
            field = find_field(schema, index.column)
            if field is None and index.column in partitions:
                raise UnsupportedError(
                    f"{index.column!r} is a partition column: its values stand in the paths",
                    hint="predicates on it skip files without an index",
                )
            if field is None:
                near = get_close_matches(index.column, [*schema.names, *partitions], 1)
                raise PredicateError(
                    f"there is no column {index.column!r} in {self.path}",
                    nearest=near[0] if near else None,
                    hint=None if near else f"its columns are {', '.join(schema.names[:20])}",
                )
            canonical = spark_type(field.type)
            index.stored_type(field.type if canonical is None else canonical)
            fields[index.column] = pa.field(index.column, canonical, metadata=field.metadata)
        return pa.schema(list(fields.values()))

    def _merge_if_needed(self) -> int:
        snapshot = self.store.snapshot()
        if not needs_merge(snapshot):
            return 0
        done = compact(self.store, self.listing)
        return done.parts_before

    # -- plans -------------------------------------------------------------------------------------

    def plan(self, where: Where = None, *, time_zone: str = "UTC") -> Plan:
        """Which files a query for ``where`` must read, and why the others need not be.

        ``time_zone`` is that of timestamps in ``where`` that have none. Raises ``PredicateError``
        for text that is no predicate, or names no column of the table.
        """
        milliseconds: dict[str, float] = {}
        clock = time.perf_counter()

        def lap(phase: str) -> None:
            nonlocal clock
            now = time.perf_counter()
            milliseconds[phase] = (now - clock) * 1e3
            clock = now

        listing = self.listing()
        lap("listing")
        matched = self.store.snapshot().match(listing)
        partitions = PartitionColumns.of_paths(self.path, listing.paths)
        lap("matching")
        expr, text = _parsed(where)
        schema = self._bindable(listing, matched)
        tree = bind(expr, schema, session_zone=time_zone, text=text)
        lap("binding")
        return plan_objects(
            tree,
            listing,
            [matched],
            partitions,
            table=self.path,
            predicate=to_sql(expr),
            milliseconds=milliseconds,
        )

    explain = plan

    def _bindable(self, listing: Listing, matched: Matched) -> pa.Schema:
        """The table's schema, with indexed columns that no sampled file has."""
        import pyarrow as pa

        schema = self.schema(listing)
        extra = {}
        for definition in matched.snapshot.definitions:
            for field in definition.types:
                if find_field(schema, field.name) is None and "." not in field.name:
                    extra[field.name] = field
        return pa.schema([*schema, *extra.values()])

    # -- Spark -------------------------------------------------------------------------------------

    def read(self, spark: SparkSession, where: str | None = None, **options: str) -> DataFrame:
        """The table as a DataFrame that reads only what its filters need.

        On a classic session any later filter skips too; under Spark Connect ``where`` is what
        skips, and it is applied to the rows as well. ``options`` are the Parquet reader's.
        """
        from skipstone.spark.session import is_connect

        if is_connect(spark):
            from skipstone.spark.connect import read_connect

            return read_connect(spark, self, where, options)
        from skipstone.spark.facts import finder
        from skipstone.spark.skip import skip as skip_frame

        frame = spark.read.options(**options).parquet(self.path)
        frame = skip_frame(frame, finder({self.path: self.location.root}))
        return frame if where is None else frame.where(where)


def _parsed(where: Where) -> tuple[Expr, str | None]:
    """The predicate as a tree, and its text where it was text; nothing asked is TRUE."""
    if where is None:
        return Const(True), None
    if isinstance(where, str):
        return parse_sql(where), where
    return from_dnf(where), None


# -- functions of the package ----------------------------------------------------------------------


def skip(df: DataFrame, index_location: str | Mapping[str, str] | None = None) -> DataFrame:
    """``df`` reading only the files that its filters need, wherever it reads an indexed table.

    Works on any DataFrame of a classic session: paths, views, catalog tables, joins, aggregates.
    ``index_location`` says where the index is when it is not beside the table: one for all tables,
    or a mapping from table path to location. Rows are those of plain Spark; relations without an
    index are read as ever.
    """
    from skipstone.spark.facts import finder
    from skipstone.spark.skip import skip as skip_frame

    return skip_frame(df, finder(index_location))


def read(spark: SparkSession, path: str, where: str | None = None, **options: str) -> DataFrame:
    """``Table(path).read(spark, where)``: classic sessions and Spark Connect alike."""
    return Table(path).read(spark, where, **options)


def explain(what: DataFrame | str, where: Where = None) -> Any:
    """What would be read and why: of a DataFrame (its scans) or of a table's path and ``where``."""
    if isinstance(what, str):
        return Table(what).explain(where)
    from skipstone.spark.skip import explain as explain_frame

    return explain_frame(what)


def last_scan(spark: SparkSession) -> Any:
    """Every file scan of this thread's last query: files and bytes kept of the total, and why."""
    from skipstone.spark.scans import last_scan as last

    return last(spark)
