"""``TxnTable``: a table with a ``_txn``, which is QuestDB's or a live table of Skipstone.

Every listing of it is a snapshot (``questdb/txn_snapshot.py``); ``plan``, ``count`` and ``read``
each take one and keep to it. A file may grow while it is read: its first bytes, up to the size in
the snapshot, do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.planning.table_facts import SnapshotFacts
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.plan import Coverage
from skipstone.questdb.partition_evidence import OpenPartitions, PartitionPms, PartitionTimes
from skipstone.questdb.txn_snapshot import PartitionFile, TxnListing, TxnSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.identity import ObjectId
    from skipstone.pruning.plan import Plan
    from skipstone.spark.relation import RelationInfo
    from skipstone.storage import Listing, Storage


# The most file versions that are remembered.
_REMEMBERED = 100_000


class TxnTable:
    """The table at ``root``; with ``partial`` only its Parquet partitions."""

    def __init__(self, root: str, storage: Storage, *, partial: bool = False) -> None:
        self.root, self.storage, self.partial = root, storage, partial
        self.opened = OpenPartitions(storage)
        # The files of the snapshots that were listed, by path and size.
        self._files: dict[tuple[str, int | None], PartitionFile] = {}

    def listing(self) -> TxnListing:
        """The newest snapshot."""
        found = TxnSnapshot.open(self.root, self.storage, partial=self.partial).listing()
        if len(self._files) > _REMEMBERED:
            self._files = {}
        self._files.update({(file.path, file.size): file for file in found.files})
        return found

    def coverage(self, listing: Listing) -> Coverage | None:
        """How much of the table a listing covers; ``None`` without ``partial``."""
        if not self.partial or not isinstance(listing, TxnListing):
            return None
        snapshot = listing.snapshot
        return Coverage(
            read=len(snapshot.files),
            total=snapshot.partitions_total,
            left_out=snapshot.left_out,
        )

    def partitions(self, listing: Listing) -> PartitionColumns:
        """The partitions' times as evidence. Directory names have no columns."""
        assert isinstance(listing, TxnListing)
        return _Times({}, opened=self.opened, listing=listing)

    def opening(self, id: ObjectId) -> dict[str, Any]:
        """How ``ParquetFile`` opens a file of a snapshot that was listed: with its size."""
        file = self._files.get((id.path, id.size))
        return {} if file is None else {"size": file.size}

    def facts(self, listing: Listing, schema: pa.Schema) -> SnapshotFacts:
        """The snapshot's information about its files; ``schema`` is the table's."""
        assert isinstance(listing, TxnListing)
        return SnapshotFacts(
            coverage=self.coverage(listing),
            row_counts=listing.row_counts,
            sources=(PartitionPms(listing, self.opened, schema),),
        )

    def frame(
        self,
        spark: SparkSession,
        where: str | None,
        options: Mapping[str, str],
        prune: Callable[[Any], None] | None,
        plan: Callable[..., Plan],
        index_location: Any,
    ) -> DataFrame:
        """The rows of one snapshot, also while a writer commits. ``prune`` gives keys to the pruner
        of the facts."""
        from skipstone.questdb.txn_snapshot import ready_for_spark
        from skipstone.spark.facts import finder, store_cache
        from skipstone.spark.read_path import read_connect
        from skipstone.spark.session import is_connect
        from skipstone.spark.txn_scan import TxnPruner, read_txn_table

        listing = self.listing()
        if not len(listing):
            raise UnsupportedError(
                f"{self.root} has no Parquet partitions", hint="there is nothing to read"
            )
        coverage = self.coverage(listing)
        if is_connect(spark):
            for file in listing.files:
                if file.length != file.size:
                    raise UnsupportedError(
                        f"{file.path} is longer than its snapshot: Spark Connect would read it all",
                        hint="an append is running: read again, or from a classic session",
                    )
            wanted = {"mergeSchema": "true", **options}
            paths, keyed = listing.paths, prune is not None
            return read_connect(spark, self.root, plan, where, wanted, paths=paths, keyed=keyed)

        find_facts = finder({self.root: index_location}, store_cache(spark))

        def find(relation: RelationInfo) -> TxnPruner:
            facts = find_facts(relation)
            if prune is not None:
                prune(facts)
            return TxnPruner(
                facts,
                relation,
                listing,
                storage=self.storage,
                partitions=self.partitions,
                coverage=coverage,
            )

        ready_for_spark(listing.files, self.storage)
        frame = read_txn_table(spark, listing, options, find)
        return frame if where is None else frame.where(where)


@dataclass(frozen=True, slots=True, eq=False)
class _Times(PartitionColumns):
    """The partitions' times in place of columns of directories, which such tables do not have."""

    opened: OpenPartitions
    listing: TxnListing

    def evidence(self, columns: frozenset[str]) -> list[Any]:
        """Evidence for the designated timestamp, if it is among ``columns``."""
        snapshot, files = self.listing.snapshot, self.listing.files
        if not files or snapshot.partitioning is None or snapshot.partitioning.unit == "none":
            return []
        # The newest file shows whether the others are worth opening.
        column = self.opened.designated(files[-1])
        if column is None or column not in columns:
            return []
        names = [self.opened.designated(file) for file in files]
        times = [file.timestamp for file in files]
        return [PartitionTimes.of(column, times, snapshot.partitioning, names)]
