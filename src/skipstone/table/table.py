"""``Table``: the face over all of it, one table of plain files and its index.

>>> table = skipstone.Table("lake/events")
>>> table.build(spark, indexes=["user_id:bloom", "ts:minmax"])
>>> print(table.explain("user_id = 'u-8814'"))

The index lies beside the table (``lake/_events.skipstone``) unless ``index_location`` says
otherwise: a directory for an index of Skipstone's, or one of Xskipper's stores, which is only read
(``XskipperLocation`` says what more that may take). Nothing is ever written into the table's own
directory. Spark is imported by the calls that are given a session, and by no other.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts.describe import describe
from skipstone.facts.index_encryption import keys_of
from skipstone.facts.location import KeyedLocation
from skipstone.facts.xskipper import find_store
from skipstone.identity import canonical_path
from skipstone.paimon.adjacent_index import AdjacentIndexes
from skipstone.paimon.options import FileIndexOptions, is_option
from skipstone.planning.runs import IN_MEMORY
from skipstone.pruning.partitions import PartitionColumns
from skipstone.storage import open_storage, table_format

from . import upkeep
from .build import build_table, refresh_table
from .count_and_top import FirstRows, count_rows, first_rows
from .data_files import ParquetReading, Progress, reading_of
from .data_keys import DataKeys
from .min_max import extreme
from .plan_table import plan_query
from .query import engine_of, looked_into
from .rewrite_verbs import Rewriting
from .txn_table import TxnTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.advisor import Advice, Asked, Query, Savings
    from skipstone.execution import Engine
    from skipstone.facts import Matched, Store
    from skipstone.facts.reports import (
        CheckReport,
        CompactReport,
        Description,
        DropReport,
        ExportReport,
        VacuumReport,
    )
    from skipstone.facts.xskipper import XskipperLocation
    from skipstone.paimon.adjacent_index import AdjacentRows
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.master_keys import KeySource
    from skipstone.pruning.plan import Coverage, Plan
    from skipstone.questdb.migrate import MigrateReport
    from skipstone.rewrite.file_jobs import Given
    from skipstone.storage import Listing, Storage

__all__ = ["Progress", "Table", "Where"]

#: SQL text, or pyarrow's DNF tuples
Where: TypeAlias = "str | Any"


class Table(Rewriting):
    """A table of plain files below one directory, and its index; see the module.

    ``format`` may also be ``csv``, ``json`` or ``orc``, read by Spark under ``options`` and
    ``schema`` (DDL or JSON); such a table is built with a session, and its facts hold for the same
    options and schema only. Among ``options`` may be Paimon's of file indexes (``file-index.…``):
    what ``build`` builds unless it is told, and whether plans use file indexes at all.

    Paimon's file indexes beside Parquet files (``x.parquet.index``) are used too, as far as they
    can be told to be of them (``store/beside.py``), and never with ``sidecars=False``; with
    ``decryption`` only with ``sidecars=True``.

    A directory with a ``_txn`` is a table of QuestDB (or a live one of ours): its files are those
    of the newest snapshot (``table/txn_table.py``). With ``partial``, partitions that are not
    Parquet are left out, and every result says so; else they are an ``UnsupportedError``.

    ``index_keys`` open an encrypted index: a mapping from labels to keys, a function from a label
    to its key, or a KMS client. One in the clear is not believed then.

    ``decryption`` has the keys of encrypted files (``table/data_keys.py``): of all that reads
    them in this process, and of builds; it may be a function that makes it. Files in the clear
    among them are read where it says ``allow_plaintext_files``.
    """

    def __init__(
        self,
        path: str,
        *,
        index_location: str | XskipperLocation | None = None,
        storage_options: Mapping[str, str] | None = None,
        format: str = "parquet",
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
        sidecars: bool | None = None,
        partial: bool = False,
        index_keys: KeySource | None = None,
        decryption: Given[Decryption] | None = None,
    ) -> None:
        self.path = canonical_path(path)
        self.storage_options = dict(storage_options or {})
        self.storage: Storage = open_storage(self.path, self.storage_options)
        given = options or {}
        #: what Paimon's options say
        self.file_index = FileIndexOptions.parse({k: v for k, v in given.items() if is_option(k)})
        own = {key: value for key, value in given.items() if not is_option(key)}
        #: what opens its files
        self.keys = DataKeys(self.path, decryption)
        self.reading = reading_of(self.path, self.storage, format, own, schema, self.keys)
        keys = keys_of(index_keys)
        self.store: Store = find_store(self.path, index_location, self.storage_options, keys)
        self.location = self.store.location
        self._beside = (
            AdjacentIndexes(self.storage) if isinstance(self.reading, ParquetReading) else None
        )
        # Those of encrypted files are in the clear, and could be anybody's.
        wanted = sidecars if sidecars is not None else not self.keys
        self._uses_sidecars = wanted and self.file_index.read_enabled
        self.partial = partial
        self._txn_table: TxnTable | None = None
        self._engine: Engine | None = None
        #: where transparent reading looks for the index
        self.index_location: str | XskipperLocation | KeyedLocation
        self.index_location = index_location or self.location.root
        if keys is not None and isinstance(self.index_location, str):
            self.index_location = KeyedLocation(self.index_location, keys)

    def __repr__(self) -> str:
        if not self.partial:
            return f"Table({self.path!r})"
        try:
            return f"Table({self.path!r}, {self.coverage(self.listing())})"
        except (SkipstoneError, OSError):
            return f"Table({self.path!r}, partial=True)"

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
        txn = self.txn
        if txn is not None:
            return txn.listing()
        listing = self.storage.list_files(self.path)
        return listing if self._beside is None else self._beside.data_files(listing)

    @property
    def txn(self) -> TxnTable | None:
        """What a table with a ``_txn`` has besides, ``None`` for another."""
        if self._txn_table is None and isinstance(self.reading, ParquetReading):
            self._txn_table = TxnTable.at(self.path, self.storage, partial=self.partial)
        return self._txn_table

    def coverage(self, listing: Listing) -> Coverage | None:
        """Of how many of the partitions a result over ``listing`` is, for a table opened with
        ``partial``."""
        txn = self.txn
        return None if txn is None else txn.coverage(listing)

    def has_sidecars(self) -> bool:
        """Whether Paimon's file indexes lie beside its files now."""
        if self._beside is None:
            return False
        self.listing()
        return bool(self._beside)

    def sidecars_of(
        self,
        listing: Listing,
        columns: Iterable[str],
        containers: Mapping[str, bytes] | None = None,
    ) -> AdjacentRows | None:
        """What lies beside the files of a listing of this table about columns, where that is used.

        ``containers`` as for ``plan``.
        """
        if self._beside is None or not self._uses_sidecars or not (self._beside or containers):
            return None
        return self._beside.rows_of(listing, columns, containers)

    def schema(self, listing: Listing, spark: SparkSession | None = None) -> pa.Schema:
        """The table's schema as Spark reads it, partition columns last."""
        import pyarrow as pa

        schema = self.reading.schema(listing, (), spark, self.store)
        partitions = PartitionColumns.of_paths(self.path, listing.paths)
        # Where a folder and the files both have a column, Spark takes the folder's value.
        folders = {name.lower() for name in partitions.values}
        data = [field for field in schema if field.name.lower() not in folders]
        extra = [pa.field(name, values.type) for name, values in partitions.values.items()]
        return pa.schema([*data, *extra])

    def match(self, listing: Listing, spark: SparkSession | None = None) -> Matched:
        """What the facts know of the files of ``listing``."""
        fingerprint = self.reading.fingerprint(spark, self.store)
        return self.store.snapshot().match(listing, fingerprint)

    # -- build and refresh -------------------------------------------------------------------------

    build = build_table
    refresh = refresh_table

    # -- plans -------------------------------------------------------------------------------------

    def plan(
        self,
        where: Where = None,
        *,
        time_zone: str = "UTC",
        spark: SparkSession | None = None,
        memory: int = IN_MEMORY,
        schema: pa.Schema | None = None,
        ansi: bool = True,
        containers: Mapping[str, bytes] | None = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        inside: bool = True,
    ) -> Plan:
        """Which files, row groups, pages and rows a query for ``where`` must read, and why the
        others need not be.

        The plan reads ``columns`` (``None``: all) ordered by ``order_by`` (``"ts desc"``), and no
        more than ``limit`` rows. Without ``inside`` no data file is looked into.

        ``time_zone`` is that of timestamps in ``where`` that have none. Facts of which ``where``
        needs more than ``memory`` bytes are asked piece by piece: as a job of ``spark``, where it
        is given, and in this process otherwise. ``schema`` is the table's where the caller knows it
        better than its files do, ``ansi`` whether literals are cast by ANSI rules. ``containers``
        are file indexes of Paimon's by data file (its path from the table's directory, or in full),
        such as a manifest embeds; ``ValueError`` for a file that the table does not have. Raises
        ``PredicateError`` for text that is no predicate, or names no column of the table.
        """
        return plan_query(
            self,
            where,
            time_zone=time_zone,
            spark=spark,
            memory=memory,
            schema=schema,
            ansi=ansi,
            containers=containers,
            columns=columns,
            order_by=order_by,
            limit=limit,
            inside=inside,
        )

    def explain(self, where: Where = None, **how: Any) -> Plan:
        """``plan``, and a look at where the pages lie that reading it will ask for.

        So that what it says of bytes and requests is what they will be. ``how`` as for ``plan``;
        without ``inside`` no data file is looked into here either.
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
        """The rows that match ``where``, read in this process: planned pages only, decided exactly.

        With Spark's meaning (NaN is equal to itself and the largest, nulls match nothing), in the
        order of the files without ``order_by``. ``Table.plan(…).to_batches()`` gives the same piece
        by piece.
        """
        plan = self.plan(
            where, columns=columns, order_by=order_by, limit=limit, time_zone=time_zone
        )
        return plan.to_arrow()

    def count(self, where: Where = None, *, time_zone: str = "UTC") -> int:
        """How many rows match ``where``: from the indexes, where they know it exactly.

        Of the other files those pages are read that may hold matches; a Parquet table only.
        """
        return count_rows(self, where, time_zone)

    def min(self, column: str, where: Where = None, *, time_zone: str = "UTC") -> Any:
        """The least value of ``column`` among the rows that match; ``None`` where there is none.

        From ``minmax`` where that knows it exactly; of other files those pages are read that may
        hold it.
        """
        return extreme(self, column, where, time_zone, greatest=False)

    def max(self, column: str, where: Where = None, *, time_zone: str = "UTC") -> Any:
        """The greatest value, as ``min``; NaN is the greatest of floats."""
        return extreme(self, column, where, time_zone, greatest=True)

    def top(
        self,
        order_by: str | Sequence[str],
        limit: int,
        *,
        where: Where = None,
        time_zone: str = "UTC",
    ) -> FirstRows:
        """Which rows come first by ``order_by`` (``"age desc nulls last"``, or several keys).

        From the range-bitmaps of the first sort key, before any data is read. With one key the
        result is exactly ``limit`` rows (all, if there are fewer), with several all that tie by the
        first. A file without such an index, or where ``where`` is not decided, keeps all of its
        rows in question, and ``exact`` is False.
        """
        return first_rows(self, order_by, limit, where, time_zone)

    @property
    def engine(self) -> Engine:
        """What is kept between queries: opened files, and the schema of the files."""
        if self._engine is None:
            self._engine = engine_of(self)
        return self._engine

    # -- upkeep ------------------------------------------------------------------------------------

    def describe(self) -> Description:
        """Which indexes there are, the files they cover, and their bytes against the data's."""
        listing = self.listing()
        found = describe(self.path, self.match(listing))
        coverage = self.coverage(listing)
        if coverage is None:
            return found
        return replace(found, notes=(f"these are {coverage}", *found.notes))

    def advise(
        self, sample: int = 20, *, queries: Iterable[Asked | Query] | None = None
    ) -> Advice | Savings:
        """Propose indexes, with a reason and a size each, from a look at ``sample`` files.

        With ``queries`` (predicates, or pairs of a weight and a predicate) by what candidates save
        when they are tried: ``Savings``; ``PredicateError`` for one that is none.
        """
        from .advise import advise_table

        return advise_table(self, sample, queries)

    def drop(self, index: str | None = None) -> DropReport:
        """Remove one index (``"user_id:bloom"``), or all of them; the data is not touched."""
        self.store.require_own()
        return upkeep.drop(self, index)

    def check(
        self, deep: bool = False, *, sample: int = 20, decryption: Decryption | None = None
    ) -> CheckReport:
        """Find facts that are stale, missing, orphaned or corrupt.

        ``deep`` also decodes ``sample`` files, proves their facts true, and compares what plans
        read with what matches. With keys (``decryption``, by default the table's) each file must
        be encrypted and the one that belongs in its place, and none may be gone
        (``rewrite/seal_check.py``).
        """
        return upkeep.check_table(self, deep=deep, sample=sample, decryption=decryption)

    def compact(self) -> CompactReport:
        """Rewrite the facts into few parts, without those of files that are gone or changed.

        What was once exported beside the index (``export`` without a destination) is published
        anew.
        """
        self.store.require_own()
        return upkeep.compact_table(self)

    def vacuum(
        self, older_than: timedelta = timedelta(days=1), *, dry_run: bool = False
    ) -> VacuumReport:
        """Remove what a crash left: temporary files, broken parts, packs that no part names."""
        self.store.require_own()
        return upkeep.vacuum_table(self, older_than, dry_run=dry_run)

    def migrate(
        self,
        destination: str | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MigrateReport:
        """Make a ``_pm`` for every data file that lacks a good one, without reading rows.

        Beside ``data.parquet`` in each Parquet partition of a table of QuestDB, which nobody may
        have open; below ``destination`` for any other table, by default ``pm/`` beside the facts.
        ``dry_run`` only says what would be written; ``progress`` gets files done and to do.
        """
        from .migrate import migrate_table

        return migrate_table(self, destination, dry_run=dry_run, progress=progress)

    def export(self, destination: str | None = None, kind: str = "xskipper") -> ExportReport:
        """Publish the index for others to read.

        ``"xskipper"``: the facts, whole, as a store of Xskipper, version 4. It becomes
        ``<destination>/<sha256 of the table's identifier>/``, by default below ``xskipper/`` beside
        the facts. ``"paimon"``: the file indexes, as ``<data file>.index`` below ``destination``.
        ``"questdb"``: the row group metadata, as ``_pm`` where a directory has one data file, else
        as ``<data file>._pm``. What others cannot use is left out, and the report says why;
        ``UnsupportedError`` where nothing remains.
        """
        self.store.require_own()
        if kind in ("paimon", "questdb"):
            if destination is None:
                raise UnsupportedError(
                    "an export of sidecars to nowhere", hint="name the directory they go to"
                )
            return upkeep.export_sidecars(self, destination, kind)
        if kind != "xskipper":
            raise UnsupportedError(
                f"an export as {kind!r}",
                hint="kind='xskipper', kind='paimon' and kind='questdb' are what there is",
            )
        return upkeep.export_table(self, destination)

    # -- Spark -------------------------------------------------------------------------------------

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

        By Spark's own reader, or page by page (``format("skipstone")``) where that takes less: for
        a ``limit``, and for what row indexes leave of large files. ``last_scan`` says which way and
        why; rows are the same. On a classic session any later filter skips too; under Spark Connect
        ``where`` is what skips. ``options`` are the Parquet reader's.
        """
        from .spark_read import read_table

        return read_table(self, spark, where, columns, order_by, limit, options)
