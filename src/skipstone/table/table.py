"""``Table``, a table of plain files and its index, with one method for each verb; and the functions
of the package that take a session, a DataFrame or a path.

>>> table = skipstone.Table("lake/events")
>>> table.build(spark, indexes=["user_id:bloom", "ts:minmax"])
>>> print(table.explain("user_id = 'u-8814'"))

The methods have the names of the verbs of the command line. Each module of the package has a group
of them, in a class over ``OpenTable``; ``Table`` inherits from these classes. Three verbs are
elsewhere: ``skipstone.ingest`` also makes tables, ``skipstone.inspect.inspect_path`` takes any
file, and ``skipstone.report`` draws what ``explain`` returns.

Only the calls that receive a session import Spark.
"""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from skipstone.errors import SkipstoneError
from skipstone.paimon.options import is_option
from skipstone.planning.fact_runs import IN_MEMORY
from skipstone.pruning.plan import Plan

from .aggregates import AggregateVerbs
from .build import DEFAULT_MEMORY, without_index
from .cluster import ClusterVerbs
from .encrypt import EncryptVerbs
from .file_format import SparkFormat
from .planning import PlanOptions, PlanRequest, Result, of_one_listing, planned, without_unreadable
from .upkeep import UpkeepVerbs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone._arrays import ArrowTable
    from skipstone.execution import TableScan
    from skipstone.facts.location import XskipperLocation
    from skipstone.facts.reports import BuildReport
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.master_keys import KeySource
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.planning.explain import Explanation
    from skipstone.questdb.pm_of_data_file import PmMode
    from skipstone.rewrite.file_jobs import Given
    from skipstone.spark.facts import Locations
    from skipstone.spark.scans import QueryScans
    from skipstone.spark.watch import Watch
    from skipstone.storage.some_files import Paths

    from .key_sets import KeySets
    from .open_table import Where


class Table(EncryptVerbs, ClusterVerbs, UpkeepVerbs, AggregateVerbs):
    """A table of plain files below one directory, and its index.

    >>> events = skipstone.Table("lake/events")
    >>> logs = skipstone.Table("lake/logs", format="csv", options={"header": "true"})
    >>> sales = skipstone.Table(spark, "db.sales")
    >>> january = skipstone.Table("lake/events/day=2026-01-*/")

    A path is text or a ``pathlib.Path``; ``~`` is a home. A directory, one file, a pattern (``*``,
    ``?``, ``[ab]``, ``{a,b}``, ``**`` for folders) or a list of files: a pattern or a list names
    some files of the table that is the folder above them, and the index is that of this table.

    A session and a name open a table of the session's catalog: its location, format, options and
    schema, and its partitions, which may lie anywhere, are those of the catalog at each call.
    ``TBLPROPERTIES`` may have ``skipstone.index.location``, ``skipstone.indexes`` (what ``build``
    builds by default: ``"id:bloom; ts:minmax"``), and Paimon's options of file indexes. Views are
    an ``UnsupportedError``.

    ``index_location`` is the directory of the index, by default next to the table
    (``lake/_events.skipstone``), or one of Xskipper's stores, which is only read
    (``XskipperLocation``). ``storage_options`` are those of the object store.

    ``format`` may also be ``csv``, ``json`` or ``orc``. Spark reads such files under ``options``
    and ``schema`` (DDL or JSON). The table is built with a session, and its facts hold for the same
    options and schema only. ``options`` may include Paimon's of file indexes (``file-index.…``):
    what ``build`` builds by default, and whether plans use file indexes.

    Plans also use Paimon's file indexes next to Parquet files (``x.parquet.index``) where they
    match their files (``paimon/adjacent_index.py``), but not with ``sidecars=False``; with
    ``decryption`` only with ``sidecars=True``.

    A directory with a ``_txn`` is a table of QuestDB, or a live table of Skipstone: its files are
    those of the newest snapshot (``table/txn_table.py``). With ``partial``, partitions that are
    not Parquet are left out, and every result shows it; else they are an ``UnsupportedError``.

    A directory with a ``_delta_log`` is a table of Delta Lake: its files are those of the newest
    version, or of ``version``, or of the newest one at ``timestamp`` (``table_formats/``). Nothing
    is written into it.

    The files of other tables are those that Spark reads (``pruning/partitions.py``): those below
    partition folders (``day=1/``), or those right below ``path`` where there are none. With
    ``recursive_file_lookup`` (in ``options`` as Spark spells it) they are all files below, and no
    folder gives a column.

    ``index_keys`` open an encrypted index: a mapping from labels to keys, a function from a label
    to its key, or a KMS client. With them, an index in the clear is not trusted.

    ``verify_checksums=False`` reads pages whose checksum is wrong, where queries in this process
    raise ``FormatError`` otherwise. Indexes and files are never made from such pages.

    ``memory`` limits the bytes that a query in this process decodes together (``ParquetFile``).
    ``MemoryLimitError`` where a piece of a file needs more.

    ``decryption`` has the keys of encrypted data files, or is a function that makes it. Reads in
    this process and builds use them (``DataKeys``). Files in the clear among them are read with its
    ``allow_plaintext_files``.
    """

    def __repr__(self) -> str:
        if self.catalog is not None:
            return f"Table(spark, {self.catalog.name!r})"
        if not self.partial:
            return f"Table({self.path!r})"
        try:
            return f"Table({self.path!r}, {self.coverage(self.listing())})"
        except (SkipstoneError, OSError):
            return f"Table({self.path!r}, partial=True)"

    def _repr_html_(self) -> str:
        """Its files and its index, for notebooks."""
        from html import escape

        try:
            found = self.describe()._repr_html_()
        except (SkipstoneError, OSError) as error:
            found = f"<p>{escape(str(error))}</p>"
        return f"<b>{escape(repr(self))}</b>{found}"

    def scan(
        self,
        where: Where = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        time_zone: str = "UTC",
        spark: SparkSession | None = None,
        memory: int = IN_MEMORY,
        schema: pa.Schema | None = None,
        ansi: bool = True,
        containers: Mapping[str, bytes] | None = None,
        inside: bool = True,
        keys: KeySets | None = None,
    ) -> TableScan:
        """A query that is planned and can be read in this process, or exported to another engine.

        >>> table.scan("user_id = 'u-8814'").to_arrow()

        The query reads ``columns`` (``None``: all) of the rows that match ``where``, ordered by
        ``order_by`` (``"ts desc"``), at most ``limit`` of them. ``time_zone`` is that of timestamps
        in ``where`` without one. Where the facts that ``where`` needs take more than ``memory``
        bytes, they are evaluated piece by piece: as a job of ``spark``, if given, else in this
        process. ``schema`` replaces the schema of the files, ``ansi`` says whether literals are
        cast by ANSI rules. ``containers`` are Paimon's file indexes by data file (its path from the
        table's directory, or in full), such as a manifest embeds; ``ValueError`` for a file that
        the table does not have. With ``inside=False`` no data file is opened. ``keys`` as for
        ``query``. ``PredicateError`` for text that is not a predicate, or an unknown column.
        """
        request = PlanRequest(
            where=where,
            columns=columns,
            order_by=order_by,
            limit=limit,
            time_zone=time_zone,
            spark=spark,
            memory=memory,
            schema=schema,
            ansi=ansi,
            containers=containers,
            inside=inside,
            keys=keys,
        )
        return planned(self, request)

    def plan(self, where: Where = None, **how: Unpack[PlanOptions]) -> Plan:
        """The files, row groups, pages and rows that a query must read, as data.

        >>> table.plan("user_id = 'u-8814'").paths

        ``how`` as for ``scan``.
        """
        return self.scan(where, **how).plan

    def explain(self, where: Where = None, **how: Unpack[PlanOptions]) -> Explanation:
        """The plan of ``query`` in words: what is read and skipped, why, and the cost of reading.

        >>> print(table.explain("user_id = 'u-8814'"))

        Page indexes are read, except with ``inside=False``. ``how`` as for ``scan``.
        """
        own = planned(self, PlanRequest(where=where, own=True, **how))
        return own.explain(look=how.get("inside", True), new_reader=True)

    def query(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        *,
        keys: KeySets | None = None,
        time_zone: str = "UTC",
    ) -> ArrowTable:
        """The rows that match ``where``, read in this process from the planned pages.

        >>> table.query("user_id = 'u-8814'", ["ts", "amount"], order_by="ts desc", limit=10)

        With Spark's meaning (NaN equals itself and is the largest value, nulls match nothing), in
        the order of the files without ``order_by``. ``Table.scan(…).to_batches()`` gives the same
        rows piece by piece.

        >>> table.query(keys={"user_id": users["id"]})

        ``keys`` are arrays of values by column, of pyarrow or NumPy, lists, or series of polars or
        pandas: the result has the rows whose ``user_id`` is among them, as with ``user_id IN (…)``.
        With several columns, each value must be among its own. A table or a DataFrame in memory
        gives the values of all of its columns. They may be millions.

        The rows are those of one listing. Where a file changes before it is read, the query is
        planned again, a few times; ``StaleError`` where files keep changing.
        """
        request = PlanRequest(
            where=where,
            columns=columns,
            order_by=order_by,
            limit=limit,
            keys=keys,
            time_zone=time_zone,
            shown=False,
        )
        return of_one_listing(self, request, lambda scan: scan.to_arrow())

    def retried(
        self,
        read: Callable[[TableScan], Result],
        where: Where = None,
        **how: Unpack[PlanOptions],
    ) -> Result:
        """The result of ``read`` for a scan; where a file changes before it was read, for a new
        scan.

        >>> table.retried(lambda scan: sum(map(len, scan.to_batches())), "amount > 100")

        ``read`` is called up to six times; then this raises ``StaleError``. ``how`` as for
        ``scan``.
        """
        return of_one_listing(self, PlanRequest(where=where, **how), read)

    def query_readable(
        self,
        read: Callable[[TableScan], Result],
        where: Where = None,
        **how: Unpack[PlanOptions],
    ) -> Result:
        """As ``retried``, but leaves out files that cannot be read; these may hold matches.

        >>> table.query_readable(lambda scan: scan.to_arrow(), "amount > 100")
        >>> table.skipped

        ``skipped`` has these files, each with its error; the table leaves them out from then on.
        """
        return without_unreadable(self, PlanRequest(where=where, **how), read)

    def read(
        self,
        spark: SparkSession,
        where: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        keys: KeySets | None = None,
        connector: bool = False,
        **options: str,
    ) -> DataFrame:
        """The table as a DataFrame that reads only what its filters need.

        >>> table.read(spark, "user_id = 'u-8814'").groupBy("day").count().show()

        Spark's own reader reads it, or ``format("skipstone")`` page by page where that takes less,
        and for a ``limit``. Few rows of many files are read by this call, and the DataFrame holds
        them. ``last_scan`` and ``explain`` say which and why; the rows are the same. Under Spark's
        reader later filters skip too, but not under Spark Connect. ``options`` are the reader's.

        >>> table.read(spark, keys=users.select(col("id").alias("user_id")))

        ``keys`` are those of ``query``, or a DataFrame whose columns have names of the table's: the
        rows are those of a left semi join. Its rows are collected by this call, up to ten million,
        and only files that may hold one of them are listed.

        With ``connector``, the session's connector of Delta Lake or Apache Iceberg reads the
        current version under its ``options``. It prunes by ranges of columns that only files of the
        plan have. ``UnsupportedError`` without such a connector.
        """
        from .spark_read import read_table

        request = PlanRequest(
            where=where, columns=columns, order_by=order_by, limit=limit, keys=keys
        )
        return read_table(self, spark, request, options, connector=connector)


def skip(df: DataFrame, index_location: Locations = None) -> DataFrame:
    """``df`` reading only the files that its filters need, wherever it reads an indexed table.

    >>> skipstone.skip(spark.read.parquet("lake/events")).where("user_id = 'u-8814'").show()

    Works on any DataFrame of a classic session: paths, views, catalog tables, joins, aggregates.
    ``index_location`` is the place of the index if it is not next to the table: one for all tables,
    or a mapping from table path to location. A location may be one of Xskipper's stores
    (``XskipperLocation``). The rows are those of plain Spark; relations without an index are read
    as before. ``NoIndexError`` where there is no index at a location that is named.
    """
    from skipstone.spark.facts import finder, store_cache
    from skipstone.spark.session import is_connect, require_frame
    from skipstone.spark.skip import skip as skip_frame

    require_frame(df)
    cache = None if is_connect(df) else store_cache(df.sparkSession)
    return skip_frame(df, finder(index_location, cache, required=True))


def read(
    spark: SparkSession,
    path: Paths,
    where: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    order_by: str | Sequence[str] | None = None,
    limit: int | None = None,
    keys: KeySets | None = None,
    connector: bool = False,
    index_location: str | PathLike[str] | XskipperLocation | None = None,
    storage_options: Mapping[str, str] | None = None,
    format: str = "parquet",
    schema: str | None = None,
    sidecars: bool | None = None,
    partial: bool = False,
    recursive_file_lookup: bool = False,
    version: int | str | None = None,
    timestamp: str | datetime | None = None,
    index_keys: KeySource | None = None,
    decryption: Given[Decryption] | None = None,
    verify_checksums: bool = True,
    **options: str,
) -> DataFrame:
    """``Table(path, …).read(spark, where, …)``, on classic sessions and Spark Connect.

    >>> skipstone.read(spark, "lake/events", "user_id = 'u-8814'", columns=["ts", "amount"])

    ``columns`` to ``connector`` are those of ``Table.read``, the other arguments those of
    ``Table``. ``options`` are the reader's, and Paimon's of file indexes
    (``**{"file-index.read.enabled": "false"}``).
    """
    from .spark_read import read_table

    # Spark reads other formats under the options of the table.
    of_table = {key: v for key, v in options.items() if format != "parquet" or is_option(key)}
    of_reader = {key: v for key, v in options.items() if key not in of_table}
    table = Table(
        path,
        index_location=index_location,
        storage_options=storage_options,
        format=format,
        options=of_table,
        schema=schema,
        sidecars=sidecars,
        partial=partial,
        recursive_file_lookup=recursive_file_lookup,
        version=version,
        timestamp=timestamp,
        index_keys=index_keys,
        decryption=decryption,
        verify_checksums=verify_checksums,
    )
    request = PlanRequest(where=where, columns=columns, order_by=order_by, limit=limit, keys=keys)
    return read_table(table, spark, request, of_reader, connector=connector)


@overload
def explain(what: DataFrame) -> QueryScans: ...
@overload
def explain(what: Paths | ParquetFile | Plan, where: Where = None) -> Explanation: ...
def explain(
    what: DataFrame | Paths | ParquetFile | Plan, where: Where = None
) -> Explanation | QueryScans:
    """What a query would read, and why it skips the rest; nothing is run.

    >>> print(skipstone.explain("lake/events", "user_id = 'u-8814'"))

    For a DataFrame: its file scans. For the path of a table, or a ``ParquetFile``: the plan for
    ``where``. A ``Plan`` is shown as it is.
    """
    if isinstance(what, str | PathLike | list | tuple):
        return Table(what).explain(where)
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.planning.explain import Explanation

    if isinstance(what, ParquetFile):
        return Explanation(what.plan(where))
    if isinstance(what, Plan):
        return Explanation(what)
    from skipstone.spark.session import require_frame
    from skipstone.spark.skip import explain as explain_frame

    require_frame(what)
    return explain_frame(cast("DataFrame", what))


def last_scan(spark: SparkSession) -> QueryScans:
    """Every file scan of this thread's last query: files and bytes kept of the total, and why.

    >>> print(skipstone.last_scan(spark))

    Where that query did not read through an index, it has no scans, and ``untouched`` says why.
    Queries of streams do not count. Raises ``UnsupportedError`` under Spark Connect.
    """
    from skipstone.spark.last_query import last_scan as last
    from skipstone.spark.session import require_session

    require_session(spark)
    return last(spark)


def watch(
    spark: SparkSession,
    table: Table | Paths,
    *,
    interval: float = 10.0,
    name: str | None = None,
    memory: int = DEFAULT_MEMORY,
    pm: PmMode = "external",
    decryption: Decryption | None = None,
    plaintext_index: bool = False,
) -> Watch:
    """Keep the index of ``table`` fresh: a streaming query refreshes it every ``interval`` seconds.

    >>> with skipstone.watch(spark, "lake/events", interval=60) as watching:
    ...     watching.awaitTermination(3_600)

    New and replaced files get the indexes that the table has, in folders at any depth; in a table
    of a table format those of the newest commit. A refresh that finds none costs a listing.
    ``table`` is a path or a ``Table``, ``name`` the query's; the other arguments are those of
    ``Table.refresh``. Build an index first.

    ``stop()``, ``awaitTermination()`` and ``lastProgress`` are the query's. A refresh that fails
    gives a warning and ``last_error``, and is tried again. A watch that is started again continues
    from the index. Watches and builds may run at once. ``SkipstoneError`` without an index.
    """
    from skipstone.spark.session import is_connect, require_session
    from skipstone.spark.watch import start_watch

    require_session(spark)
    watched = table if isinstance(table, Table) else Table(table)
    watched.require_newest("watch")
    watched.store.require_own()
    if not watched.store.snapshot().definitions:
        raise without_index(watched.path)
    options: dict[str, Any] = {
        "memory": memory,
        "pm": pm,
        "decryption": decryption,
        "plaintext_index": plaintext_index,
    }
    refresh: Any = partial(watched.refresh, **options)
    if is_connect(spark):
        refresh = partial(_refresh_at_server, _arguments(watched), options)
    return start_watch(spark, watched.path, refresh, interval=interval, name=name)


def _refresh_at_server(
    arguments: dict[str, Any], options: dict[str, Any], spark: SparkSession
) -> BuildReport:
    """A server of Spark Connect has no ``Table`` yet."""
    return Table(**arguments).refresh(spark, **options)


def _arguments(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {
        "path": table.named or table.path,
        "index_location": table.index_location,
        "storage_options": table.storage_options,
        "partial": table.partial,
        "recursive_file_lookup": table.recursive_file_lookup,
    }
    if isinstance(table.file_format, SparkFormat):
        source = table.file_format.source
        found |= {"format": source.format, "options": source.options, "schema": source.schema}
    return found
