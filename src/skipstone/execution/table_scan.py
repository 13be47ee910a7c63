"""``TableScan``: a plan and its query, and what can be done with them."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._arrays import no_rows
from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    StaleError,
    UnsupportedError,
)
from skipstone.predicate.tree import Bound, columns_read
from skipstone.predicate.types import column_name
from skipstone.pruning import Cause, Reason
from skipstone.storage.base import is_current, metered

from .table_types import output_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.dataset as ds

    from skipstone._arrays import ArrowBatch, ArrowTable
    from skipstone.planning.explain import Analysis, Explanation
    from skipstone.pruning.plan import Plan, SortKey

    from .ordering import FileBounds
    from .plan_rows import TableReader
    from .table_files import Footers


@dataclass(frozen=True, slots=True, eq=False)
class TableQuery:
    """A query over the files of a table: the ``columns`` (``None``: all) of the rows that match
    ``tree``, in the order of ``orders``, at most ``limit`` rows."""

    footers: Footers
    tree: Bound
    columns: tuple[str, ...] | None = None
    orders: tuple[SortKey, ...] = ()
    limit: int | None = None
    #: bounds of a column over the files, known before files are opened
    bounds: FileBounds | None = None

    def reader(self) -> TableReader:
        """A reader of the matching rows in file order, without the limit."""
        from .plan_rows import TableReader

        return TableReader(self.footers, self.tree, self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return output_schema(self.footers.table.schema, self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class TableScan:
    """A plan and its query. It reads the rows of the plan without Spark.

    >>> scan = table.scan("user_id = 'u-8814'", columns=["ts"], limit=10)
    >>> scan.plan  # what is read, as data
    >>> scan.explain()  # the same in words, with a forecast of bytes and requests
    >>> scan.to_arrow()  # the rows
    >>> scan.to_duckdb()  # the files and rows to read, for another engine

    Reading raises ``UnsupportedError`` where only Spark can read the table or evaluate a part of
    the predicate, and ``StaleError`` for a file that changes during the read.
    """

    plan: Plan
    #: ``None`` for a table that only Spark reads
    query: TableQuery | None = None

    @property
    def _query(self) -> TableQuery:
        if self.query is None:
            raise UnsupportedError(
                f"{self.plan.table} is not a table of Parquet files",
                hint="read it with Spark: Table.read(spark, where)",
            )
        return self.query

    def __repr__(self) -> str:
        return f"TableScan({self.plan!r})"

    # -- what it takes -----------------------------------------------------------------------------

    def explain(self, *, look: bool = True, new_reader: bool = False) -> Explanation:
        """The plan in words, with a forecast of the bytes and requests of reading it.

        With ``look`` the forecast reads the page indexes, and the page headers of local files that
        have none. A chunk with unknown pages counts completely. With ``new_reader`` it is that of
        another scan, which has read no page index yet and may read small chunks whole. The reasons
        name columns and files whose keys are not available.
        """
        import pyarrow as pa

        from skipstone.planning.explain import Explanation

        from .forecast import io_forecast
        from .ordering import FILES

        query = self.query
        if query is None:
            return Explanation(self.plan)
        with metered() as meter:
            if query.orders and query.limit is not None and query.bounds is not None:
                # The search orders many files by their facts, and these distinguish NaN.
                name = query.orders[0].column
                floats = pa.types.is_floating(query.footers.table.schema.field(name).type)
                if floats or int(np.count_nonzero(self.plan.keep)) > FILES:
                    query.bounds(column_name((name,)))
            forecast = io_forecast(
                query.reader(),
                self.plan,
                look=look,
                walk=look,
                orders=[order.column for order in query.orders],
                limit=query.limit,
                new_reader=new_reader,
            )
        plan = self.plan.with_byte_ranges(forecast.byte_ranges)
        # The read itself needs what was looked at.
        read, requests = plan.planning
        plan = replace(plan, planning=(read + meter.bytes_read, requests + meter.requests))
        if look:
            known = {(each.subject, each.text) for each in plan.reasons}
            more = [each for each in unreadable(query) if (each.subject, each.text) not in known]
            plan = replace(plan, reasons=(*plan.reasons, *more))
        return Explanation(plan, forecast)

    def analyze(self) -> Analysis:
        """Reads all rows, drops them, and reports the bytes, requests and time of the run.

        It counts only the reads of this run, even when other threads read at the same time.
        """
        from skipstone.planning.explain import Amount, Analysis

        explanation = self.explain()
        rows, started = 0, time.perf_counter()
        with metered() as meter:
            for batch in self.to_batches():
                rows += batch.num_rows
        return Analysis(
            explanation=explanation,
            rows=rows,
            files_read=len(meter.paths),
            read=Amount(bytes=meter.bytes_of_objects, requests=meter.requests),
            milliseconds=(time.perf_counter() - started) * 1e3,
        )

    # -- reading -----------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._query.schema

    def to_arrow(self) -> ArrowTable:
        """The rows that match, exactly, as a table."""
        if not self.plan.keep.any():
            empty: ArrowTable = no_rows(self.schema)
            return empty
        from skipstone.parquet.reading.row_ranges import joined

        pieces = list(self._tables())
        found: ArrowTable = joined(pieces) if pieces else no_rows(self.schema)
        return found

    def to_batches(self) -> Iterator[ArrowBatch]:
        """The rows that match, exactly, batch by batch. Memory does not grow with the result,
        except for an order without a limit."""
        for table in self._tables():
            yield from table.to_batches()

    def by_file(self) -> Iterator[tuple[str, ArrowTable]]:
        """The rows that match with the path of their file, in pieces of which some have no row; for
        a query without an order."""
        query, left = self._query, self._query.limit
        with self._of_these_files():
            for path, table in query.reader().by_file(self.plan):
                yield path, table if left is None else table.slice(0, left)
                left = None if left is None else max(left - table.num_rows, 0)
                if left == 0:
                    return

    def _tables(self) -> Iterator[pa.Table]:
        """The rows, piece by piece; rows beyond the limit are not read."""
        query = self._query
        reader = query.reader()
        with self._of_these_files():
            if query.orders:
                from .ordering import first_rows, sorted_rows

                found = first_rows(reader, self.plan, query.orders, query.limit, query.bounds)
                yield sorted_rows(reader, found.file, found.row)
            else:
                yield from limited(reader.tables(self.plan), query.limit)

    @contextmanager
    def _of_these_files(self) -> Iterator[None]:
        """An error of a file that has changed since it was listed is a ``StaleError``: a file that
        is being written may look damaged."""
        try:
            yield
        except StaleError:
            raise
        except (SkipstoneError, OSError) as error:
            named = error.file if isinstance(error, FormatError) else None
            storage, listing = self._query.footers.files.storage, self.plan.listing
            for at in np.flatnonzero(self.plan.keep).tolist():
                id = listing.object_id(at)
                if named in (None, id.path) and not is_current(storage, id):
                    raise StaleError(
                        f"{id.path} changed while it was read: {error}", hint="query again"
                    ) from error
            raise

    def count(self) -> int:
        """The number of matching rows; pages are read only where the plan is not exact."""
        total, rest = self.plan.known_count()
        if rest:
            from .plan_rows import TableReader, plan_of

            query = self._query
            reader = TableReader(query.footers, query.tree, ())
            with self._of_these_files():
                total += reader.counted(plan_of(self.plan, rest))
        limit = None if self.query is None else self.query.limit
        return total if limit is None else min(total, limit)

    # -- export to other engines -------------------------------------------------------------------

    def to_duckdb(self, connection: Any = None) -> Any:
        """The files and rows to read as a ``DuckDBPyRelation``, unfiltered; see ``engine_export``.

        ``connection`` is DuckDB's; by default one is opened in memory. The relation's
        ``sql_query()`` is its text.
        """
        from .engine_export import duckdb_relation, export_plan

        return duckdb_relation(export_plan(self._query.footers, self.plan), connection)

    def to_polars(self) -> Any:
        """The files and rows to read as a ``polars.LazyFrame``, unfiltered; see
        ``engine_export``."""
        from .engine_export import export_plan, polars_frame

        return polars_frame(export_plan(self._query.footers, self.plan))

    def to_pyarrow(self) -> ds.Dataset:
        """The row groups to read as a ``pyarrow.dataset.Dataset``, unfiltered."""
        from .engine_export import export_plan, pyarrow_dataset

        return pyarrow_dataset(export_plan(self._query.footers, self.plan))


def limited(tables: Iterator[pa.Table], limit: int | None) -> Iterator[pa.Table]:
    """The first ``limit`` rows; tables after them are not read."""
    left = limit
    for table in tables if limit != 0 else ():
        yield table if left is None else table.slice(0, left)
        if left is not None:
            left -= table.num_rows
            if left <= 0:
                return


def unreadable(query: TableQuery) -> tuple[Reason, ...]:
    """A reason per opened file, or predicate column in it, whose key is not available."""
    footers, named = query.footers, frozenset(columns_read(query.tree))
    found: Counter[tuple[str, str]] = Counter()
    for at, failure in footers.failed.items():
        from skipstone.parquet.encryption.modules import AuthenticationError

        if isinstance(failure, KeyUnavailableError | AuthenticationError):
            found["files", _without_path(failure, footers.listing.paths[at])] += 1
    for view in footers.opened.values():
        locked = view.locked
        if locked:
            for column, leaf in sorted(view.leaves(named).items()):
                error = locked.get(leaf)
                if error is not None:
                    found[column, _without_path(error, view.opened.path)] += 1
    return tuple(
        Reason(cause=Cause.UNDECRYPTABLE, subject=subject, text=text, units=files)
        for (subject, text), files in found.items()
    )


def _without_path(error: Exception, path: str) -> str:
    """The error without the path of its file, so that equal errors of many files are one."""
    text = error.about if isinstance(error, FormatError) else str(error.args[0])
    return f"row groups and pages prove nothing: {text.replace(f'{path}: ', '')}"
