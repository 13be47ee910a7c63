"""A snapshot of a table with a ``_txn``, as Spark reads it on a classic session.

Spark's own ``InMemoryFileIndex`` receives a listing as if cached: one ``FileStatus`` per
partition, with the snapshot's length. So Spark reads exactly the row groups of the snapshot
(``questdb/txn_snapshot.py``), and no other file in the table's directory. Every query first checks
that Spark would still read the files right, and fails with the reason otherwise. A change between
this check and the reading of a file is not detected.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.pruning import Cause, Reason
from skipstone.questdb.txn_snapshot import ready_for_spark

from .facts import FactsPruner, MatchedListing
from .relation import FileListing, Pruning
from .scan_log import scan_log
from .session import literal_path
from .skip import frame_of, skip, with_location
from .versions import copy_relation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.predicate.tree import Expr
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.plan import Coverage
    from skipstone.questdb.txn_snapshot import TxnListing
    from skipstone.storage import Storage

    from .relation import FileStats, FindPruner, Pruner, ReadSettings, RelationInfo
    from .session import JavaObject, Jvm


_SOURCES = "org.apache.spark.sql.execution.datasources"
_BLOCK = 128 << 20
# The most files whose columns are read, the newest partition's among them.
_SAMPLE = 16


class TxnPruner(FactsPruner):
    """Facts and partition times of one snapshot; see the module."""

    def __init__(
        self,
        known: Pruner | None,
        info: RelationInfo,
        listing: TxnListing,
        *,
        storage: Storage,
        partitions: Callable[[TxnListing], PartitionColumns],
        coverage: Coverage | None,
    ) -> None:
        facts = known if isinstance(known, FactsPruner) else None
        stores, reasons = ((), ()) if facts is None else (facts.stores, facts.reasons)
        super().__init__(stores, info, reasons=reasons)
        self.listing, self.storage, self.coverage = listing, storage, coverage
        self._times = partitions

    @property
    def notes(self) -> tuple[Reason, ...]:
        """The coverage, where only some partitions are read."""
        if self.coverage is None:
            return ()
        text = f"these are {self.coverage}"
        return (Reason(cause=Cause.NOT_APPLICABLE, subject="partitions", text=text),)

    def before_listing(self) -> None:
        """``StaleError`` where Spark would read other rows than those of the snapshot."""
        ready_for_spark(self.listing.files, self.storage)

    def match(self, listing: FileListing) -> MatchedListing:
        """The snapshot's identities joined with the facts, in Spark's order of the files."""
        started = time.perf_counter()
        place = {path: at for at, path in enumerate(self.listing.paths)}
        files = self.listing.where([place[path] for path in listing.paths])
        matches = tuple(store.snapshot().match(files, self.fingerprint) for store in self.stores)
        return MatchedListing(
            files, matches, self._times(files), (time.perf_counter() - started) * 1e3
        )

    def prune(self, matched: object, predicate: Expr, settings: ReadSettings) -> Pruning:
        """As for other tables; the report has the coverage."""
        found = super().prune(matched, predicate, settings)
        return Pruning(keep=found.keep, report=replace(found.report, coverage=self.coverage))

    def still_valid(
        self, matched: object, indices: NDArray[np.int64], now: FileStats | None
    ) -> NDArray[np.bool_]:
        """All are: a fact is about the first bytes of a file, which appends keep."""
        return np.ones(len(indices), np.bool_)


def read_txn_table(
    spark: SparkSession, listing: TxnListing, options: Mapping[str, str], find: FindPruner
) -> DataFrame:
    """The snapshot as a DataFrame of a classic session, whose filters skip files by the pruner of
    ``find``.

    ``UnsupportedError`` for a snapshot without files, as its columns are unknown.
    """
    jvm = scan_log(spark).jvm
    statuses = _statuses(jvm, listing)
    base = _any_frame(spark, jvm, listing, statuses, options)
    leaf = base._jdf.queryExecution().analyzed().collectLeaves().head()
    relation = with_location(leaf.relation(), _index(spark, jvm, listing, statuses))
    return skip(frame_of(spark, copy_relation(leaf, relation)), find)


def _statuses(jvm: Jvm, listing: TxnListing) -> JavaObject:
    """The files for Spark, as an array of ``FileStatus``."""
    path, status = (jvm.type(f"org.apache.hadoop.fs.{name}") for name in ("Path", "FileStatus"))
    found = jvm.gateway.new_array(status, len(listing))
    for at, file in enumerate(listing.files):
        mtime = listing.object_id(at).mtime_ns // 1_000_000
        found[at] = status(file.size, False, 1, _BLOCK, mtime, path(_spelled(file.path)))
    return found


def _index(spark: SparkSession, jvm: Jvm, listing: TxnListing, statuses: JavaObject) -> JavaObject:
    """An ``InMemoryFileIndex`` of these files alone."""
    session = spark._jsparkSession
    root = jvm.type("org.apache.hadoop.fs.Path")(_spelled(listing.root))
    # Each client of the shared cache has its own entries: no other index sees this listing.
    cache = jvm.module(f"{_SOURCES}.FileStatusCache").getOrCreate(session)
    cache.putLeafFiles(root, statuses)
    none = jvm.module("scala.None")
    # Otherwise only files right below the root count, as directories are named without "=".
    below = _scala_map(jvm, {"recursiveFileLookup": "true"})
    index = jvm.type(f"{_SOURCES}.InMemoryFileIndex")(
        session, jvm.seq(root), below, none, cache, none, none
    )
    listed = FileListing.parse(jvm.join(index.allFiles()))
    taken = dict(zip(listed.paths, listed.sizes.tolist(), strict=True))
    if taken != {file.path: file.size for file in listing.files}:
        raise UnsupportedError(
            "Spark does not take a listing from its cache",
            hint="leave spark.sql.hive.manageFilesourcePartitions on, and "
            "spark.sql.hive.filesourcePartitionFileCacheSize well above 0",
        )
    return index


def _any_frame(
    spark: SparkSession,
    jvm: Jvm,
    listing: TxnListing,
    statuses: JavaObject,
    options: Mapping[str, str],
) -> DataFrame:
    """A relation over one file of the snapshot, with the columns of up to 16 files."""
    from pyspark.sql.types import StructField, StructType

    last = len(listing) - 1
    sample = sorted({round(at * last / (_SAMPLE - 1)) for at in range(_SAMPLE)})
    files = jvm.scala.wrap(statuses)
    format = jvm.type(f"{_SOURCES}.parquet.ParquetFileFormat")()
    given = {key.lower(): value for key, value in options.items()}
    merge = given.get("mergeschema", "true").lower() == "true"
    # Columns of a table are added and dropped, and change types. Spark reads one type as the other
    # but merges no types that differ, so a column has the newest file's type.
    fields: dict[str, StructField] = {}
    for at in reversed(sample if merge else [last]):
        one = jvm.pick(files, np.array([at], np.int64))
        found = format.inferSchema(spark._jsparkSession, _scala_map(jvm, options), one)
        if found.isDefined():
            for each in StructType.fromJson(json.loads(str(found.get().json()))):
                fields.setdefault(each.name.lower(), each)
    if not fields:
        raise UnsupportedError(f"{listing.root} has no columns", hint="there is nothing to read")
    schema = StructType(list(fields.values()))
    reader = spark.read.options(**dict(options)).schema(schema)
    frame: DataFrame = reader.parquet(literal_path(listing.paths[last]))
    return frame


def _scala_map(jvm: Jvm, items: Mapping[str, str]) -> JavaObject:
    found = jvm.module("scala.collection.immutable.Map").empty()
    for key, value in items.items():
        found = found.updated(key, value)
    return found


def _spelled(path: str) -> str:
    return path if "://" in path else f"file://{path}"
