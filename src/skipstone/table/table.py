"""``Table``: a table of plain files and its index, with one method for each verb.

>>> table = skipstone.Table("lake/events")
>>> table.build(spark, indexes=["user_id:bloom", "ts:minmax"])
>>> print(table.explain("user_id = 'u-8814'"))

The methods have the names of the verbs of the command line. Each calls a function of the module
that has its group of verbs; these functions take the ``OpenTable`` that ``Table`` is. Three verbs
stand elsewhere: ``skipstone.ingest`` also makes tables, ``skipstone.inspect.inspect`` takes any
file, and ``skipstone.report`` draws what ``explain`` returns.

Spark is imported by the calls that receive a session, and by no other.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from skipstone.errors import SkipstoneError
from skipstone.planning.fact_runs import IN_MEMORY

from .aggregates import count_rows, extreme, first_rows
from .build import DEFAULT_MEMORY, BuildRequest, build_table, refresh_table
from .file_verbs import FileVerbs
from .planning import PlanRequest, scan_query
from .upkeep import (
    advise_table,
    check_table,
    compact_table,
    describe_table,
    drop_from_table,
    export_table,
    migrate_table,
    vacuum_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.advisor import Advice, Query, Savings, WeightedPredicate
    from skipstone.execution import TableScan
    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.facts.reports import (
        BuildReport,
        CheckReport,
        CompactReport,
        Description,
        DropReport,
        ExportReport,
        VacuumReport,
    )
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.planning.explain import Explanation
    from skipstone.pruning.kind import Index
    from skipstone.pruning.plan import Plan
    from skipstone.questdb.migrate import MigrateReport
    from skipstone.questdb.pm_of_data_file import PmMode

    from .aggregates import FirstRows
    from .file_format import Progress
    from .open_table import Where
    from .planning import PlanOptions


class Table(FileVerbs):
    """A table of plain files below one directory, and its index.

    >>> events = skipstone.Table("lake/events")
    >>> logs = skipstone.Table("lake/logs", format="csv", options={"header": "true"})

    ``index_location`` is the directory of the index, by default beside the table
    (``lake/_events.skipstone``), or one of Xskipper's stores, which is only read
    (``XskipperLocation``). ``storage_options`` are those of the object store.

    ``format`` may also be ``csv``, ``json`` or ``orc``. Spark reads such files under ``options``
    and ``schema`` (DDL or JSON). The table is built with a session, and its facts hold for the same
    options and schema only. ``options`` may include Paimon's of file indexes (``file-index.…``):
    what ``build`` builds by default, and whether plans use file indexes.

    Plans also use Paimon's file indexes beside Parquet files (``x.parquet.index``) where they match
    their files (``paimon/adjacent_index.py``), but not with ``sidecars=False``; with ``decryption``
    only with ``sidecars=True``.

    A directory with a ``_txn`` is a table of QuestDB, or a live table of Skipstone: its files are
    those of the newest snapshot (``table/txn_table.py``). With ``partial``, partitions that are not
    Parquet are left out, and every result shows it; else they are an ``UnsupportedError``.

    ``index_keys`` open an encrypted index: a mapping from labels to keys, a function from a label
    to its key, or a KMS client. With them, an index in the clear is not believed.

    ``decryption`` has the keys of encrypted data files, or is a function that makes it. All that
    reads the files in this process uses them, and builds do (``DataKeys``). Files in the clear
    among them are read with its ``allow_plaintext_files``.
    """

    def __repr__(self) -> str:
        if not self.partial:
            return f"Table({self.path!r})"
        try:
            return f"Table({self.path!r}, {self.coverage(self.listing())})"
        except (SkipstoneError, OSError):
            return f"Table({self.path!r}, partial=True)"

    # -- the index ---------------------------------------------------------------------------------

    def build(
        self,
        spark: SparkSession | None = None,
        indexes: Iterable[str | Index] = (),
        *,
        options: Mapping[str, object] | None = None,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        pm: PmMode = "external",
        encryption: IndexEncryption | None = None,
        decryption: Decryption | None = None,
        plaintext_index: bool = False,
    ) -> BuildReport:
        """Build ``indexes`` for all files that lack them.

        >>> table.build(spark, ["user_id:bloom(fpp=0.001)", "ts:minmax"])

        ``options`` name file indexes as Paimon does (``{"file-index.bitmap.columns": "a,b",
        "file-index.bloom-filter.c.fpp": 0.01}``), in place of the table's; ``ValueError`` for one
        that Paimon does not have.

        The build is one Spark job; without a session it runs in this process. ``memory`` bounds the
        bytes that a task holds. A build that was killed is resumed by the next. Other indexes stay
        as they are. ``progress`` is called with files done and files to do.

        Each Parquet file without row group metadata also gets it, from its footer: a ``_pm``, which
        plans read instead of the file. Bloom filters stay in the file (``pm="external"``) or are
        copied (``"inlined"``); ``"none"`` makes no ``_pm``.

        ``encryption`` maps parts of the index to the labels of keys; indexes added later are
        encrypted the same way. ``decryption`` has the keys of encrypted data files, by default the
        table's. Columns that their file encrypts are indexed in the clear only with
        ``plaintext_index=True``.
        """
        request = BuildRequest(
            memory=memory,
            pm=pm,
            decryption=decryption,
            plaintext_index=plaintext_index,
            progress=progress,
        )
        return build_table(self, spark, indexes, request, options, encryption)

    def refresh(
        self,
        spark: SparkSession | None = None,
        *,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
        pm: PmMode = "external",
        decryption: Decryption | None = None,
        plaintext_index: bool = False,
    ) -> BuildReport:
        """Build the indexes that the table has for its new and changed files.

        >>> table.refresh(spark)

        Arguments as for ``build``. An encrypted index stays encrypted as it is; parts whose key is
        not given are left to another refresh.
        """
        request = BuildRequest(
            memory=memory,
            pm=pm,
            decryption=decryption,
            plaintext_index=plaintext_index,
            progress=progress,
        )
        return refresh_table(self, spark, request)

    def describe(self) -> Description:
        """The indexes, the files they cover, and their bytes against the data's.

        >>> print(table.describe())
        """
        return describe_table(self)

    def advise(
        self, sample: int = 20, *, queries: Iterable[WeightedPredicate | Query] | None = None
    ) -> Advice | Savings:
        """Propose indexes, with a reason and a size each, from ``sample`` files.

        >>> print(table.advise(queries=["user_id = 'u-8814'", (10, "ts > '2026-01-01'")]))

        With ``queries`` (predicates, or pairs of a weight and a predicate) candidates are tried,
        and the result is ``Savings``; ``PredicateError`` for text that is no predicate.
        """
        return advise_table(self, sample, queries)

    def check(
        self, deep: bool = False, *, sample: int = 20, decryption: Decryption | None = None
    ) -> CheckReport:
        """Find facts that are stale, missing, orphaned or corrupt.

        >>> table.check(deep=True).ok

        ``deep`` also decodes ``sample`` files, proves their facts true, and compares what plans
        read with what matches. With keys (``decryption``, by default the table's) each file must be
        encrypted and be in its own place, and none may be gone
        (``rewrite/check_encrypted_files.py``).
        """
        return check_table(self, deep=deep, sample=sample, decryption=decryption)

    def drop(self, index: str | None = None) -> DropReport:
        """Remove one index, or all of them; the data is not touched.

        >>> table.drop("user_id:bloom")
        """
        return drop_from_table(self, index)

    def compact(self) -> CompactReport:
        """Rewrite the facts into few parts, without those of files that are gone or changed.

        >>> table.compact()

        An Xskipper directory beside the index (``export`` without a destination) is published
        again.
        """
        return compact_table(self)

    def vacuum(
        self, older_than: timedelta = timedelta(days=1), *, dry_run: bool = False
    ) -> VacuumReport:
        """Remove what a crash left: temporary files, broken parts, packs that no part names.

        >>> table.vacuum(dry_run=True)
        """
        return vacuum_table(self, older_than, dry_run=dry_run)

    def export(self, destination: str | None = None, kind: str = "xskipper") -> ExportReport:
        """Publish the index for others to read.

        >>> table.export("lake/paimon-indexes", kind="paimon")

        ``"xskipper"``: the facts, whole, as a store of Xskipper, version 4. It becomes
        ``<destination>/<sha256 of the table's identifier>/``, by default below ``xskipper/`` beside
        the facts. ``"paimon"``: the file indexes, as ``<data file>.index`` below ``destination``.
        ``"questdb"``: the row group metadata, as ``_pm`` where a directory has one data file, else
        as ``<data file>._pm``. What others cannot use is left out, with the reason in the report;
        ``UnsupportedError`` where nothing remains.
        """
        return export_table(self, destination, kind)

    def migrate(
        self,
        destination: str | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MigrateReport:
        """Make a ``_pm`` for every data file that lacks a good one, without reading rows.

        >>> table.migrate(dry_run=True)

        In a table of QuestDB it lies beside ``data.parquet`` of each Parquet partition, and no
        process may have the table open. For other tables it lies below ``destination``, by default
        ``pm/`` beside the facts. ``dry_run`` only reports what it would write; ``progress`` is
        called with files done and files to do.
        """
        return migrate_table(self, destination, dry_run=dry_run, progress=progress)

    # -- queries -----------------------------------------------------------------------------------

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
    ) -> TableScan:
        """A query that is planned and can be read in this process, or handed to another engine.

        >>> table.scan("user_id = 'u-8814'").to_arrow()

        The query reads ``columns`` (``None``: all) of the rows that match ``where``, ordered by
        ``order_by`` (``"ts desc"``), at most ``limit`` of them. ``time_zone`` is that of timestamps
        in ``where`` without one. Where the facts that ``where`` needs take more than ``memory``
        bytes, they are evaluated piece by piece: as a job of ``spark``, if given, else in this
        process. ``schema`` replaces the schema of the files, ``ansi`` says whether literals are
        cast by ANSI rules. ``containers`` are Paimon's file indexes by data file (its path from the
        table's directory, or in full), such as a manifest embeds; ``ValueError`` for a file that
        the table does not have. Without ``inside`` no data file is opened.

        Raises ``PredicateError`` for text that is no predicate, or names no column of the table.
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
        )
        return scan_query(self, request)

    def plan(self, where: Where = None, **how: Unpack[PlanOptions]) -> Plan:
        """The files, row groups, pages and rows that a query must read, as data.

        >>> table.plan("user_id = 'u-8814'").paths

        ``how`` as for ``scan``.
        """
        return self.scan(where, **how).plan

    def explain(self, where: Where = None, **how: Unpack[PlanOptions]) -> Explanation:
        """The plan in words: what is read and skipped, why, and what reading it takes.

        >>> print(table.explain("user_id = 'u-8814'"))

        Page indexes are read for it. ``how`` as for ``scan``; without ``inside`` no data file is
        opened here either.
        """
        return self.scan(where, **how).explain(look=how.get("inside", True))

    def query(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        *,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """The rows that match ``where``, read in this process from the planned pages.

        >>> table.query("user_id = 'u-8814'", ["ts", "amount"], order_by="ts desc", limit=10)

        With Spark's meaning (NaN equals itself and is the largest value, nulls match nothing), in
        the order of the files without ``order_by``. ``Table.scan(…).to_batches()`` gives the same
        rows piece by piece.
        """
        scan = self.scan(
            where, columns=columns, order_by=order_by, limit=limit, time_zone=time_zone
        )
        return scan.to_arrow()

    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match ``where``: from the indexes, where they know it exactly.

        >>> table.count("ts >= '2026-01-01'")

        Of other files the pages that may hold matches are read; Parquet tables only.
        """
        return count_rows(self, where, time_zone)

    def min(self, column: str, where: Where = None, *, time_zone: str = "UTC") -> Any:
        """The least value of ``column`` among the rows that match; ``None`` where there is none.

        >>> table.min("ts", "user_id = 'u-8814'")

        From ``minmax`` where its bound is exact; of other files the pages that may hold the value
        are read.
        """
        return extreme(self, column, where, time_zone, greatest=False)

    def max(self, column: str, where: Where = None, *, time_zone: str = "UTC") -> Any:
        """The greatest value, as ``min``; NaN is the greatest of floats.

        >>> table.max("ts")
        """
        return extreme(self, column, where, time_zone, greatest=True)

    def top(
        self,
        order_by: str | Sequence[str],
        limit: int,
        *,
        where: Where = None,
        time_zone: str = "UTC",
    ) -> FirstRows:
        """The positions of the rows that come first by ``order_by``.

        >>> table.top("age desc nulls last", 10)

        From the range bitmaps of the first sort key, before any data is read. With one key the
        result is exactly ``limit`` rows (all, if there are fewer), with several all that tie by the
        first. A file without such an index, or where ``where`` is not decided, keeps all of its
        candidate rows, and ``exact`` is False.
        """
        return first_rows(self, order_by, limit, where, time_zone)

    def read(
        self,
        spark: SparkSession,
        where: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        **options: str,
    ) -> DataFrame:
        """The table as a DataFrame that reads only what its filters need.

        >>> table.read(spark, "user_id = 'u-8814'").groupBy("day").count().show()

        Spark's own reader reads it, or ``format("skipstone")`` page by page where that takes less:
        for a ``limit``, and where row indexes leave little of large files. ``last_scan`` says which
        and why; the rows are the same. On a classic session any later filter skips too; under Spark
        Connect ``where`` is what skips. ``options`` are the Parquet reader's.
        """
        from .spark_read import read_table

        request = PlanRequest(where=where, columns=columns, order_by=order_by, limit=limit)
        return read_table(self, spark, request, options)
