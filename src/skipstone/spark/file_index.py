"""``SkippingFileIndex``: replaces the location of a file relation, and lists fewer files.

Spark's ``FileIndex`` is a Java interface, so a Python object can implement it through py4j: Spark
calls ``listFiles`` with its own filters while it plans, and its native reader scans the result.

It is sound even if the pruner gets paths wrong:

- without partitions, the files to read are picked by position from Spark's own sequence;
- with partitions, Spark lists again with a filter on paths. If the filter names files to keep, all
  of them must be in the result. If it names files to skip, a path with another spelling is read;
- the listing is matched once and used only while Spark's own list is the same object;
- local files to be skipped are checked again: one that was replaced after Spark cached its listing
  is read. After any exception all files are read, with the reason.

The proxy equals what its original equals, so that data cached by ``df.cache()`` is still found.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.pruning import Cause, Reason
from skipstone.pruning.partitions import folder_columns

from .catalyst import conjunction, mentions_metadata
from .joins.pruning import JoinPruning, JoinScan
from .relation import HARMLESS, FileListing, FileStats, Pruner, Pruning, ReadSettings, RelationInfo
from .scan_log import Clock
from .scans import Scan
from .session import ZONE, without_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .scan_log import RunningQuery, ScanLog
    from .session import JavaObject, Jvm


_DIRECTORY = "org.apache.spark.sql.execution.datasources.PartitionDirectory"
_CASE = "spark.sql.caseSensitive"
# The files in the text of partition directories. A path may contain this text, so it is used only
# where a wrong match is harmless.
_LISTED = re.compile(r"\{path=(.*?); isDirectory=(?:true|false); length=(\d+); ", re.DOTALL)


@dataclass(eq=False, kw_only=True)
class _Snapshot:
    """One list of Spark's, parsed and matched with the facts.

    ``index`` lists it again, with further filters; ``files`` is the sequence itself if there are no
    partitions; ``known`` holds Spark's own list, to detect a new one. Where ``columns`` are given,
    only files below folders with these partition columns are read.
    """

    index: JavaObject
    listing: FileListing
    matched: object
    files: JavaObject | None = None
    values: JavaObject | None = None
    known: JavaObject = None
    columns: frozenset[str] = frozenset()

    @cached_property
    def positions(self) -> dict[str, int]:
        return {path: i for i, path in enumerate(self.listing.spelled)}

    @cached_property
    def data(self) -> NDArray[np.int64]:
        """Positions of the files that Spark reads: without empty and hidden ones, and those outside
        partition folders."""
        if self.files is not None:
            return np.arange(len(self.listing), dtype=np.int64)
        names = [path.rpartition("/")[2] for path in self.listing.spelled]
        data = [not name.startswith(".") and (name[:1] != "_" or "=" in name) for name in names]
        inside = [self.columns <= own for own in folder_columns("/", self.listing.paths)]
        filled = self.listing.sizes > 0
        return np.flatnonzero(filled & np.array(data, np.bool_) & np.array(inside, np.bool_))


class SkippingFileIndex:
    """See the module. ``unusable``: columns that no index may decide, with the reason; ``switch``:
    the setting without which all files are read."""

    def __init__(
        self,
        jvm: Jvm,
        original: JavaObject,
        *,
        pruner: Pruner,
        info: RelationInfo,
        unusable: Mapping[tuple[str, ...], str],
        log: ScanLog,
        switch: str | None = None,
    ) -> None:
        self.jvm, self.original, self.switch = jvm, original, switch
        self.pruner, self.info, self.unusable, self.log = pruner, info, unusable, log
        self.catalog = jvm.class_name(original) == "CatalogFileIndex"
        self.partitioned = int(original.partitionSchema().size()) > 0
        self.columns = frozenset(str(name).lower() for name in original.partitionSchema().names())
        self.number = log.register(self)
        self._roots = original.rootPaths()
        self._hash = int(original.hashCode())
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None
        #: the threads that put it into a plan now
        self.swapping: set[int] = set()

    # -- FileIndex ---------------------------------------------------------------------------------

    def rootPaths(self) -> JavaObject:
        """The roots of the original."""
        self._query()
        return self._roots

    def listFiles(self, partition_filters: JavaObject, data_filters: JavaObject) -> JavaObject:
        """The partition directories left to read."""
        self.pruner.before_listing()
        clock = Clock()
        scan: Scan | None
        settings: ReadSettings | None = None
        query = self._query()
        try:
            texts = self.jvm.join(data_filters)
            joins = JoinPruning.of(self, texts, query)
            settings = self._settings()
            filters = partition_filters, data_filters
            result, scan = self._list(*filters, texts, settings, joins, clock)
        except Exception as error:
            result = self.original.listFiles(partition_filters, data_filters)
            scan = None
            failure = error
        try:
            if scan is None:
                scan = self._failed(result, partition_filters, failure, clock)
            self.log.record(self, scan, query, None if settings is None else settings.confs)
        except Exception:  # an error here must not stop a query
            return result
        return result

    def _query(self) -> RunningQuery | None:
        """The query that is being planned, in the log of scans."""
        try:
            return self.log.touch()
        except Exception:  # an error here must not stop a query
            return None

    def refresh(self) -> None:
        """List and match again at the next query."""
        self.original.refresh()
        with self._lock:
            self._snapshot = None

    def sizeInBytes(self) -> int:
        """The size of the original, so that joins are planned as without an index."""
        return int(self.original.sizeInBytes())

    def serves(self, pruner: Pruner) -> bool:
        """True if it would list the same files with ``pruner``, which was found later."""
        known = self._snapshot
        return pruner.same_as(self.pruner, None if known is None else known.matched)

    def isTimeTravel(self) -> bool:
        """Newer versions of Spark have this method."""
        ask = getattr(self.original, "isTimeTravel", None)
        try:
            return bool(ask()) if ask is not None else False
        except Exception:
            return False

    def hashCode(self) -> int:
        """The hash of the original, as ``equals`` demands."""
        return self._hash

    def equals(self, other: Any) -> bool:
        """Compares as the original does: a plan with the proxy equals the plan without it.

        On a thread that is ``swapping`` one for the other, each equals only itself: Catalyst drops
        a change that leaves a node equal.
        """
        known = self.log.find(other)
        swapping = self.swapping if known is None else self.swapping | known.swapping
        if known is self or (swapping and self.log.thread() in swapping):
            return known is self
        return bool(self.original.equals(other if known is None else known.original))

    def toString(self) -> str:
        """For Spark's own explain and logs; ``ScanLog.find`` finds this object by the number."""
        return f"Skipstone#{self.number}({', '.join(self.info.roots)}; see skipstone.explain(df))"

    def __getattr__(self, name: str) -> Any:
        # All other methods of the interface, and those that later versions may have.
        if name.startswith("_") or name == "original":
            raise AttributeError(name)
        return getattr(self.original, name)

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    # -- listing and matching ----------------------------------------------------------------------

    def _current(self, partition_filters: JavaObject, clock: Clock) -> tuple[_Snapshot, bool]:
        """Spark's current list, matched with the facts, and whether it is new. The earlier one is
        used while Spark's own list has not changed."""
        if self.catalog:
            return self._of_catalog(partition_filters, clock)
        with self._lock:
            known = self._snapshot
            leaf_files = self.original.leafFiles()
            if known is not None and known.known.containsKey(leaf_files):
                clock.lap("listing")
                return known, False
            if self.partitioned:
                values, files = None, self.original.allFiles()
            else:
                nil = self.jvm.nil()
                directories = self.original.listFiles(nil, nil)
                if int(directories.size()) != 1:
                    raise ValueError(f"{directories.size()} directories without partition columns")
                directory = directories.head()
                files, values = directory.files().toIndexedSeq(), directory.values()
            listing = self._listing(self.original, files)
            clock.lap("listing")
            self._snapshot = _Snapshot(
                index=self.original,
                listing=listing,
                matched=self.pruner.match(listing),
                files=None if self.partitioned else files,
                values=values,
                known=self.jvm.identity_set(leaf_files),
                columns=self.columns,
            )
            clock.lap("matching")
            return self._snapshot, True

    def _listing(self, index: JavaObject, files: JavaObject) -> FileListing:
        """The listing of ``files``, the files of ``index``, in their order."""
        uris = self.jvm.strings(index.inputFiles())
        # inputFiles() lacks empty and hidden files: then the two are not parallel.
        if uris and len(uris) == int(files.size()):
            listing = FileListing.of_local(uris)
            some = np.unique(np.linspace(0, len(uris) - 1, 16).astype(np.int64))
            printed = self.jvm.join(self.jvm.pick(files.toIndexedSeq(), some))
            known = [] if listing is None else [listing.spelled[i] for i in some.tolist()]
            if listing is not None and list(FileListing.parse(printed).spelled) == known:
                return listing
        return FileListing.parse(self.jvm.join(files))

    def _of_catalog(self, partition_filters: JavaObject, clock: Clock) -> tuple[_Snapshot, bool]:
        """The catalog's partitions that pass the filters, listed by Spark for this query."""
        index = self.original.filterPartitions(partition_filters)
        listing = self._listing(index, index.allFiles())
        clock.lap("listing")
        with self._lock:
            known = self._snapshot
            same = known is not None and (
                known.listing.spelled == listing.spelled
                and np.array_equal(known.listing.sizes, listing.sizes)
                and np.array_equal(known.listing.mtimes, listing.mtimes)
                and known.listing.etags == listing.etags
            )
            matched = known.matched if known is not None and same else self.pruner.match(listing)
            self._snapshot = _Snapshot(index=index, listing=listing, matched=matched)
            clock.lap("matching")
            return self._snapshot, True

    # -- deciding ----------------------------------------------------------------------------------

    def _list(
        self,
        partition_filters: JavaObject,
        data_filters: JavaObject,
        texts: list[str],
        settings: ReadSettings,
        joins: JoinPruning | None,
        clock: Clock,
    ) -> tuple[JavaObject, Scan]:
        if joins is None and not texts:
            text = "no predicate on columns of the files"
            return self._unfiltered(partition_filters, data_filters, text, clock)
        if (
            self.switch is not None
            and settings.confs.get(self.switch, "").strip().lower() != "true"
        ):
            text = f"{self.switch} is not true"
            return self._unfiltered(partition_filters, data_filters, text, clock)
        predicate = conjunction(
            self.jvm, data_filters, time_zone=settings.time_zone, unusable=self.unusable
        )
        by_metadata = mentions_metadata(predicate)
        clock.lap("predicate")
        current, new = self._current(partition_filters, clock)
        if self.catalog:
            partition_filters = self.jvm.nil()  # its index has only the remaining partitions
        result = None
        if current.files is not None and not by_metadata:  # no columns to filter partitions by
            scope = current.data  # every file, which Spark lists again only where all are read
        else:
            result = current.index.listFiles(partition_filters, data_filters)
            scope = self._scope(current, partition_filters, result, by_metadata=by_metadata)
        clock.lap("listing")
        pruning = self.pruner.prune(current.matched, predicate, settings)
        keep = np.asarray(pruning.keep)
        if keep.dtype != np.bool_ or keep.shape != (len(current.listing),):
            raise ValueError(f"{keep.dtype} array {keep.shape} for {len(current.listing)} files")
        clock.lap("pruning")
        if joins is not None:
            within = np.isin(np.arange(len(keep)), scope)
            sizes = current.listing.sizes
            scan = JoinScan(matched=current.matched, settings=settings, sizes=sizes, within=within)
            keep = joins.prune(scan, keep)
            clock.lap("joins")
        keep, revived = self._revalidated(current, keep, scope, new=new)
        clock.lap("checking")
        if result is None and np.all(keep):
            result = current.index.listFiles(partition_filters, data_filters)
        elif result is None or not np.all(keep[scope]):
            result = self._remaining(current, keep, scope, partition_filters, data_filters)
        clock.lap("returning")
        shown = _text(texts) if texts else None
        done = self._scan(current, shown, pruning, keep, scope, revived, clock)
        return result, done if joins is None else replace(done, joins=tuple(joins.uses))

    def _settings(self) -> ReadSettings:
        """The settings as Spark has them on the planning thread."""
        made = self.jvm.settings()
        zone = made.get(ZONE)
        if zone is None:  # that of the JVM
            conf = self.jvm.module("org.apache.spark.sql.internal.SQLConf").get()
            zone = str(conf.sessionLocalTimeZone())
        is_case_sensitive = made.get(_CASE, "").strip().lower() == "true"
        confs = HARMLESS | made
        return ReadSettings(time_zone=zone, case_sensitive=is_case_sensitive, confs=confs)

    def _scope(
        self,
        current: _Snapshot,
        partition_filters: JavaObject,
        result: JavaObject,
        *,
        by_metadata: bool,
    ) -> NDArray[np.int64]:
        """Positions of the files that remain after Spark's pruning by partitions and metadata."""
        if current.files is not None:
            every = len(current.listing)
            if int(result.size()) == 1 and int(result.head().files().size()) == every:
                return np.arange(every, dtype=np.int64)
        elif partition_filters.isEmpty() and not by_metadata:
            return current.data
        paths = [path for path, _ in _LISTED.findall(str(result.mkString("")))]
        found = [current.positions[path] for path in paths if path in current.positions]
        return np.array(found, np.int64)

    def _revalidated(
        self, current: _Snapshot, keep: NDArray[np.bool_], scope: NDArray[np.int64], *, new: bool
    ) -> tuple[NDArray[np.bool_], int]:
        """``keep``, extended by files that changed since they were listed, and their number."""
        skipped = scope[~keep[scope]]
        if len(skipped) == 0:
            return keep, 0
        listing = current.listing
        if new and listing.stats is not None:
            now: FileStats | None = listing.stats.at(skipped)
        else:
            now = listing.stat(skipped) if listing.local else None
        same = np.asarray(self.pruner.still_valid(current.matched, skipped, now), np.bool_)
        if now is not None:
            same = same & listing.unchanged(skipped, now)
        if np.all(same):
            return keep, 0
        keep = keep.copy()
        keep[skipped[~same]] = True
        return keep, int((~same).sum())

    def _remaining(
        self,
        current: _Snapshot,
        keep: NDArray[np.bool_],
        scope: NDArray[np.int64],
        partition_filters: JavaObject,
        data_filters: JavaObject,
    ) -> JavaObject:
        listing = current.listing
        kept, skipped = np.flatnonzero(keep), scope[~keep[scope]]
        if current.files is not None and len(scope) == len(keep):
            files = self.jvm.pick(current.files, kept)
            return self.jvm.seq(self.jvm.type(_DIRECTORY)(current.values, files))
        if len(kept) == 0:
            return self.jvm.nil()
        if len(kept) <= len(skipped) // 4:
            wanted = self.jvm.in_paths(listing.uris(kept))
            result = current.index.listFiles(
                partition_filters, self.jvm.scala.append(data_filters, wanted)
            )
            listed = {path for path, _ in _LISTED.findall(str(result.mkString("")))}
            if all(listing.spelled[i] in listed for i in scope[keep[scope]].tolist()):
                return result
        negation = self.jvm.type("org.apache.spark.sql.catalyst.expressions.Not")
        unwanted = negation(self.jvm.in_paths(listing.uris(skipped)))
        return current.index.listFiles(
            partition_filters, self.jvm.scala.append(data_filters, unwanted)
        )

    # -- reporting ---------------------------------------------------------------------------------

    def _scan(
        self,
        current: _Snapshot,
        predicate: str | None,
        pruning: Pruning,
        keep: NDArray[np.bool_],
        scope: NDArray[np.int64],
        revived: int,
        clock: Clock,
    ) -> Scan:
        sizes, data = current.listing.sizes, current.data
        kept = scope[keep[scope]]
        reasons: tuple[Reason, ...] = ()
        if revived:
            text = "changed since Spark listed them: read in full"
            reasons = (Reason(cause=Cause.STALE, subject="files", text=text, units=revived),)
        return Scan(
            table=self.name,
            roots=self.info.roots,
            format=self.info.format,
            predicate=predicate,
            files_listed=len(data),
            bytes_listed=int(sizes[data].sum()),
            files_total=len(scope),
            bytes_total=int(sizes[scope].sum()),
            files_kept=len(kept),
            bytes_kept=int(sizes[kept].sum()),
            report=pruning.report,
            reasons=reasons,
            milliseconds=clock.spent,
        )

    @property
    def name(self) -> str:
        """The name of the table in the catalog, or its paths."""
        return self.info.table or ", ".join(self.info.roots)

    def _unfiltered(
        self, partition_filters: JavaObject, data_filters: JavaObject, text: str, clock: Clock
    ) -> tuple[JavaObject, Scan]:
        result = self.original.listFiles(partition_filters, data_filters)
        clock.lap("listing")
        reason = Reason(cause=Cause.NOT_APPLICABLE, subject="index", text=text)
        return result, self._whole(result, partition_filters, reason, clock)

    def _failed(
        self, result: JavaObject, partition_filters: JavaObject, error: Exception, clock: Clock
    ) -> Scan:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        reason = Reason(cause=Cause.UNREADABLE, subject="index", text=f"not used: {text}")
        return self._whole(result, partition_filters, reason, clock)

    def _whole(
        self, result: JavaObject, partition_filters: JavaObject, reason: Reason, clock: Clock
    ) -> Scan:
        """A scan of all files that remain after Spark's own pruning."""
        if self.catalog or not partition_filters.isEmpty():
            lengths = [int(length) for _, length in _LISTED.findall(str(result.mkString("")))]
            files, total = len(lengths), sum(lengths)
        elif self.partitioned:
            files, total = int(self.original.allFiles().size()), self.sizeInBytes()
        else:
            files, total = int(result.head().files().size()), self.sizeInBytes()
        return Scan(
            table=self.name,
            roots=self.info.roots,
            format=self.info.format,
            predicate=None,
            files_listed=files,
            bytes_listed=total,
            files_total=files,
            bytes_total=total,
            files_kept=files,
            bytes_kept=total,
            reasons=(*self.pruner.notes, reason),
            milliseconds=clock.spent,
        )


def _text(filters: list[str]) -> str:
    """Filters as Spark prints them, without the numbers of its attributes."""
    text = without_ids(" AND ".join(filters))
    return text if len(text) <= 500 else f"{text[:500]}…"
