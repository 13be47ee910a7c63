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
from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError
from skipstone.planning.runs import IN_MEMORY

from .aggregates import count_rows, extreme, first_rows
from .build import DEFAULT_MEMORY, BuildRequest, build_table, refresh_table
from .encrypt import EncryptRequest, RekeyRequest, decrypt_table, encrypt_table, rekey_table
from .open_table import OpenTable, Where
from .planning import PlanRequest, looked_into, plan_query
from .rewrite import RetrofitFiles, retrofit_table, write_table_metadata
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
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient
    from skipstone.pruning.kind import Index
    from skipstone.pruning.plan import Plan
    from skipstone.questdb.migrate import MigrateReport
    from skipstone.questdb.pm_of_data_file import PmMode
    from skipstone.rewrite.file_jobs import Given
    from skipstone.rewrite.retrofit_file import TableRetrofitReport
    from skipstone.rewrite.summary_files import SummaryReport
    from skipstone.rewrite.table_report import TableReport

    from .aggregates import FirstRows
    from .file_format import Progress

__all__ = ["Table"]


class Table(OpenTable):
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
    Parquet are left out, and every result says so; else they are an ``UnsupportedError``.

    ``index_keys`` open an encrypted index: a mapping from labels to keys, a function from a label
    to its key, or a KMS client. With them, an index in the clear is not believed.

    ``decryption`` has the keys of encrypted data files, or is a function that makes it. All that
    reads the files in this process uses them, and builds do (``DataKeys``). Files in the clear
    among them are read where it says ``allow_plaintext_files``.
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

        ``encryption`` says which label's key encrypts what of the index; indexes added later are
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
        """Propose indexes, with a reason and a size each, from a look at ``sample`` files.

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
        as ``<data file>._pm``. What others cannot use is left out, and the report says why;
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

    def plan(
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
    ) -> Plan:
        """The files, row groups, pages and rows that a query must read, and why it skips the rest.

        >>> table.plan("user_id = 'u-8814'").paths

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
        return plan_query(self, request)

    def explain(self, where: Where = None, **how: Any) -> Plan:
        """``plan``, with the bytes and requests that reading it takes.

        >>> print(table.explain("user_id = 'u-8814'"))

        Page indexes are read for it. ``how`` as for ``plan``; without ``inside`` no data file is
        opened here either.
        """
        plan = self.plan(where, **how)
        return looked_into(plan) if how.get("inside", True) else plan

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
        the order of the files without ``order_by``. ``Table.plan(…).to_batches()`` gives the same
        rows piece by piece.
        """
        plan = self.plan(
            where, columns=columns, order_by=order_by, limit=limit, time_zone=time_zone
        )
        return plan.to_arrow()

    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match ``where``: from the indexes, where they know it exactly.

        >>> table.count("ts >= '2026-01-01'")

        Of other files the pages that may hold matches are read; Parquet tables only.
        """
        return count_rows(self, where, time_zone)

    def min(self, column: str, where: Where = None, *, time_zone: str = "UTC") -> Any:
        """The least value of ``column`` among the rows that match; ``None`` where there is none.

        >>> table.min("ts", "user_id = 'u-8814'")

        From ``minmax`` where it knows the value exactly; of other files the pages that may hold it
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

    # -- the data files ----------------------------------------------------------------------------

    def retrofit(
        self,
        spark: SparkSession | None = None,
        *,
        bloom: Mapping[str, float] | None = None,
        page_rows: int | None = None,
        sorting: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TableRetrofitReport:
        """Add page indexes, Bloom filters, checksums and statistics to the files that lack them.

        >>> table.retrofit(spark, bloom={"user_id": 0.01})

        As ``skipstone.rewrite.retrofit`` does to one file; with ``spark`` as a job. A file that has
        all of it is passed over, so a run that ended early is resumed by the next. A file that
        cannot be done is in the report, and stops no other. Afterwards the table's index, if it has
        one, is refreshed. ``progress`` is called with files done and files to do, in a job when a
        task ends.
        """
        work = RetrofitFiles(
            bloom=dict(bloom or {}),
            page_rows=page_rows,
            sorting=None if sorting is None else tuple(sorting),
            dry_run=dry_run,
        )
        return retrofit_table(self, spark, work, progress)

    def encrypt(
        self,
        spark: SparkSession | None = None,
        *,
        encryption: Given[Encryption],
        decryption: Given[Decryption] | None = None,
        index_encryption: IndexEncryption | None = None,
        plaintext_index: bool = False,
        progress: Progress | None = None,
    ) -> TableReport:
        """Encrypt the files of the table in place, module by module, without decoding them.

        >>> table.encrypt(spark, encryption=Encryption(footer_key=key))

        Each file is bound to its place: its AAD prefix is ``encryption.aad_prefix``, "/", and its
        path below the directory. Without one, the table keeps its name, or gets one. If
        ``aad_prefix`` is a function, it returns the whole prefix of each file instead. Files that
        are encrypted so already are passed over: a run that ended early is resumed by the next.
        Files encrypted otherwise fail, unless ``decryption`` opens them. Afterwards an encrypted
        list of the files lies beside the table (``rewrite/encrypted_file_list.py``); ``check``
        finds missing files by it.

        ``encryption`` and ``decryption`` may be functions without arguments that make them: they
        are called here and in every task, so that no key travels with a job. Objects that hold keys
        travel within the function of the job, between processes of the session.

        Indexes over columns that are encrypted now were built in the clear: they are dropped, and
        the report names them, unless ``plaintext_index`` keeps them. With ``index_encryption`` (of
        a table opened with ``index_keys``) the whole index is built again, encrypted. ``_metadata``
        and ``_common_metadata``, which hold the earlier footers, are removed.
        """
        request = EncryptRequest(
            encryption=encryption,
            decryption=decryption,
            index_encryption=index_encryption,
            plaintext_index=plaintext_index,
        )
        return encrypt_table(self, spark, request, progress)

    def decrypt(
        self,
        spark: SparkSession | None = None,
        *,
        decryption: Given[Decryption] | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Decrypt the files of the table in place; every key is needed, by default the table's.

        >>> skipstone.Table("lake/orders", decryption=keys).decrypt(spark)

        Each file must be in its own place, as far as that is known: by ``decryption.aad_prefix``
        (what the prefixes of the table begin with, or a function from a file to its prefix), or by
        the list of the files, which also has its version. Files in the clear are passed over. The
        list is removed after the last file, and the index is refreshed.
        """
        return decrypt_table(self, spark, decryption, progress)

    def rekey(
        self,
        spark: SparkSession | None = None,
        *,
        kms: Given[KmsClient],
        new_kms: Given[KmsClient] | None = None,
        master_keys: Mapping[str, str] | None = None,
        aad_prefix: bytes | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Wrap the data keys of the files and of the list of files with other master keys.

        >>> table.rekey(spark, kms=client, master_keys={"orders-2025": "orders-2026"})

        As ``skipstone.rewrite.rekey`` does to one file; clients may be functions that make them, as
        for ``encrypt``. Files without an old master key are passed over. ``aad_prefix`` is what the
        prefixes of the table begin with, where it is not stored.
        """
        request = RekeyRequest(
            kms=kms, new_kms=new_kms, master_keys=dict(master_keys or {}), aad_prefix=aad_prefix
        )
        return rekey_table(self, spark, request, progress)

    def salvage(
        self,
        spark: SparkSession | None = None,
        *,
        output: str | None = None,
        schema: str | None = None,
        skip_bad_pages: bool = False,
        footer_only: bool = False,
        decryption: Given[Decryption] | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Save the rows of the files that are damaged; good files are passed over.

        >>> table.salvage(output="lake/saved")

        No file of the table is touched. The rows of ``x.parquet`` go to ``x.parquet`` at the same
        place below the directory ``output``, or to ``x.salvaged.parquet`` beside it: there they
        belong to the table, and removing ``x.parquet`` is up to you. Files salvaged before are
        passed over. The schema of a file without a footer is ``schema``, what is left of its
        footer, that of the files beside it, or that of the table where all good files agree.
        ``skip_bad_pages`` and ``footer_only`` as for ``skipstone.salvage.salvage``.

        With ``decryption``, by default the table's, encrypted files are salvaged too. Their rows
        are written **in the clear**, so ``output`` is required. The keys may be a function that
        makes them in each task. They are bound to the places of the files as for ``check``.
        """
        from .salvage import SalvageFiles, salvage_table

        work = SalvageFiles(
            root=self.path,
            output=output,
            schema=schema,
            skip_bad_pages=skip_bad_pages,
            footer_only=footer_only,
            decryption=self.keys.get() if decryption is None else decryption,
        )
        return salvage_table(self, spark, work, progress)

    def write_metadata(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> SummaryReport:
        """Write ``_metadata`` and ``_common_metadata`` into the table's directory.

        >>> table.write_metadata()

        Plans then read the footers of all files from there with one request, for the file versions
        that it has. Footers of unchanged files are not read again; where no file changed, nothing
        is written. Call it after writing to the table: Spark takes the table's schema from
        ``_common_metadata``, and other readers may ignore files that ``_metadata`` does not name.
        ``progress`` is called with files done and files to do.

        ``UnsupportedError`` for files whose schemas differ, that are encrypted, or whose columns
        lie in other files; ``StaleError`` where one changes meanwhile.
        """
        return write_table_metadata(self, dry_run=dry_run, progress=progress)
