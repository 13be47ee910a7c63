"""Verbs over the index: describe, advise, check, drop, compact, vacuum, export, migrate."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.predicate.naming import SAME, Namings
from skipstone.pruning import Cause
from skipstone.pruning.partitions import PartitionColumns
from skipstone.questdb import is_txn_table
from skipstone.table_formats import ICEBERG, SnapshotListing
from skipstone.table_formats.snapshot import names_of

from .build import without_index
from .file_format import Progress, bound
from .open_table import OpenTable
from .planning import outside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skipstone.advisor import Advice, Query, Savings, WeightedPredicate
    from skipstone.advisor.layout_report import LayoutAdvice
    from skipstone.advisor.usage import UsageReport
    from skipstone.facts.reports import (
        CheckReport,
        CompactReport,
        Description,
        DropReport,
        ExportReport,
        IndexInfo,
        VacuumReport,
    )
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.planning.prove import Proof
    from skipstone.questdb.migrate import MigrateReport
    from skipstone.storage import Listing


_LOG = logging.getLogger("skipstone")


class UpkeepVerbs(OpenTable):
    """The verbs over the index, and ``migrate``; see ``Table``."""

    def describe(self) -> Description:
        """The indexes, the files they cover, and their bytes against the data's.

        >>> print(table.describe())
        """
        from skipstone.facts.coverage import describe, unrelated

        listing = self.listing()
        matched = self.match(listing)
        found = describe(self.path, matched, names_of(listing))
        coverage = self.coverage(listing)
        notes = [] if self.catalog is None else list(self.catalog.notes)
        notes += [] if coverage is None else [f"these are {coverage}"]
        notes += (
            listing.snapshot.notes if isinstance(listing, SnapshotListing) else unrelated(matched)
        )
        notes += [str(reason) for reason in outside(listing)]
        return replace(found, notes=(*notes, *found.notes))

    def require_newest(self, verb: str) -> None:
        """``UnsupportedError`` for a verb over the whole index, where some files or a version were
        named."""
        self.require_whole(verb)
        if (self.version, self.timestamp) != (None, None):
            raise UnsupportedError(
                f"{self.path} is opened at a version, and {verb} works on the index of the newest",
                hint="leave out version and timestamp",
            )

    @overload
    def advise(
        self,
        sample: int | None = None,
        *,
        queries: Iterable[WeightedPredicate | Query] | None = None,
        layout: Literal[False] = False,
    ) -> Advice | Savings: ...
    @overload
    def advise(
        self,
        sample: int | None = None,
        *,
        queries: Iterable[WeightedPredicate | Query] | None = None,
        layout: Literal[True],
        file_size: int | None = None,
    ) -> LayoutAdvice: ...
    def advise(
        self,
        sample: int | None = None,
        *,
        queries: Iterable[WeightedPredicate | Query] | None = None,
        layout: bool = False,
        file_size: int | None = None,
    ) -> Advice | Savings | LayoutAdvice:
        """Propose indexes, with a reason and a size each, from ``sample`` files (20).

        >>> print(table.advise(queries=["user_id = 'u-8814'", (10, "ts > '2026-01-01'")]))

        With ``queries`` (predicates, or pairs of a weight and a predicate) candidates are tried,
        and the result is ``Savings``; ``PredicateError`` for text that is not a predicate.

        With ``layout`` it proposes an order of the rows for ``cluster``, for the queries or for the
        columns' shapes, from rows of ``sample`` files (256). ``file_size`` is that of the new files
        (about as now); the best orders are tried at other sizes, too.
        """
        from skipstone.advisor import AdviceRequest, advise, advise_queries, queries_of

        listing = self.listing()
        request = AdviceRequest(
            listing=_named_alike(self, listing),
            storage=self.storage,
            sample=20 if sample is None else sample,
            name=self.path,
            schema=self.file_columns(listing) if self.is_parquet and len(listing) else None,
            decryption=self.keys.get(),
            storage_options=self.storage_options or None,
        )
        if layout:
            from skipstone.advisor.layout import FILES, advise_layout

            self.require_parquet()
            asked = None if queries is None else queries_of(queries)
            request = replace(request, sample=sample or FILES)
            return advise_layout(request, asked, file_size)
        if queries is None:
            return advise(request)
        if not self.is_parquet:
            raise UnsupportedError(
                f"{self.path} is not a table of Parquet files: trying indexes needs Spark",
                hint="leave out the queries: rules then decide from a sample",
            )
        schema = self.schema(listing) if len(listing) else None
        return advise_queries(replace(request, schema=schema), queries_of(queries))

    def usage(self, log: Iterable[str], names: Iterable[str] = ()) -> UsageReport:
        """Which indexes the scans of a log used, how often, and what they saved against their size.

        >>> print(table.usage(open("scans.log")))

        ``log`` are lines, with those of the logger ``skipstone`` among them, or those of the file
        ``spark.skipstone.log.file``. A scan is of this table by its path, or by one of ``names``.
        """
        from skipstone.advisor.usage import usage

        named = [] if self.catalog is None else [self.catalog.name]
        return usage(self.describe(), log, [*named, *names])

    def check(
        self, deep: bool = False, *, sample: int = 20, decryption: Decryption | None = None
    ) -> CheckReport:
        """Find facts that are stale, missing, orphaned or corrupt.

        >>> table.check(deep=True).ok

        ``deep`` also decodes ``sample`` files, proves their facts true, and compares what plans
        read with what matches. With keys (``decryption``, by default the table's) each file must be
        encrypted and in its own place, and none may be missing (``rewrite/encryption_checks.py``).
        """
        from skipstone.facts.check import check
        from skipstone.facts.coverage import outgrown
        from skipstone.facts.reports import CheckReport
        from skipstone.facts.xskipper_store import XskipperStore
        from skipstone.rewrite.encryption_checks import check_encrypted_files

        if deep and isinstance(self.store, XskipperStore):
            raise UnsupportedError(
                f"{self.location.root} is a store of Xskipper",
                hint="a deep check rebuilds Skipstone's own facts: leave out --deep",
            )
        self.require_whole("check")
        decryption = self.keys.get() if decryption is None else bound(self.path, decryption)
        listing = self.listing()
        self.require_index()
        found = check(self.store, listing, self.file_format.fingerprint(None, self.store))
        corrupt = [*map(str, found.damaged), *(f"pack {name} is gone" for name in found.lost_packs)]
        proof = _proved(self, listing, sample, decryption) if deep else None
        corrupt += proof.unreadable if proof else ()
        encryption, indexed = None, True
        if decryption is not None:
            encryption = check_encrypted_files(
                listing,
                decryption,
                orphaned=found.orphaned,
                storage_options=self.storage_options or None,
            )
            indexed = bool(self.store.snapshot().definitions)
        return CheckReport(
            table=self.path,
            location=self.location.root,
            files_total=found.files,
            fresh=found.current,
            stale=found.stale,
            missing=len(found.missing) if indexed else 0,
            unreadable=found.unreadable,
            orphaned=len(found.orphaned),
            corrupt=tuple(corrupt),
            untrue=proof.untrue if proof else (),
            deep=deep,
            sampled=proof.sampled if proof else 0,
            compared=proof.compared if proof else 0,
            filters=proof.filters if proof else 0,
            encryption=encryption,
            indexed=indexed,
            notes=tuple(outgrown(self.path, self.store.snapshot(), len(listing))),
        )

    def drop(self, index: str | None = None) -> DropReport:
        """Remove one index, or all of them; the data is not touched.

        >>> table.drop("user_id:bloom")
        """
        from skipstone.facts.coverage import describe
        from skipstone.facts.reports import DropReport

        self.store.require_own()
        self.require_whole("drop")
        listing = self.listing()
        names, matched = names_of(listing), self.match(listing)
        before = describe(self.path, matched, names)
        if not before.indexes:
            raise SkipstoneError(f"{self.path} has no index", hint="there is nothing to drop")
        self.store.remove_left_overs()
        if index is None:
            self.store.drop()
            gone = before.indexes
        else:
            gone = _drop_one(self, index, before, names)
        after = self.store.snapshot()
        if names is not None:  # facts of one name may be those of several columns
            left = {each.name for each in describe(self.path, self.match(listing), names).indexes}
            gone = tuple(each for each in before.indexes if each.name not in left)
        files = max((info.files for info in gone), default=0)
        return DropReport(
            table=self.path,
            location=self.location.root,
            dropped=tuple(info.name for info in gone),
            remaining=tuple(info.name for info in before.indexes if info not in gone),
            files=files,
            bytes_removed=max(0, before.bytes_index - after.size),
        )

    def compact(self) -> CompactReport:
        """Rewrite the facts into few parts, without those of files that are gone or changed.

        >>> table.compact()

        Where a column has Bloom filters of 1,024 files or more, they are also stored by bit
        position: a lookup then reads a few rows of bits instead of all filters.

        An Xskipper directory next to the index (``export`` without a destination) is published
        again.
        """
        from skipstone.facts.compact import compact
        from skipstone.facts.reports import CompactReport

        self.store.require_own()
        self.require_newest("compact")
        self.require_index()
        started = time.perf_counter()
        self.store.remove_left_overs()
        snapshot = self.store.snapshot()
        if not snapshot.parts and all(each.cause is Cause.ABSENT for each in snapshot.reasons):
            self.listing()  # its error, where there is no table either
            raise without_index(self.path)
        done = compact(self.store, self.listing)
        if self.store.storage.has_children(self.location.xskipper):
            try:
                _export_facts(self, None)
            except UnsupportedError as error:
                _LOG.warning("%s is left as it is: %s", self.location.xskipper, error)
        return CompactReport(
            table=self.path,
            location=self.location.root,
            parts_before=done.parts_before,
            parts_after=done.parts_after,
            facts_before=done.rows_before,
            facts_after=done.rows_after,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            sliced=done.sliced.files,
            filters=done.sliced.filters,
            sliced_bytes=done.sliced.bytes,
            seconds=time.perf_counter() - started,
        )

    def vacuum(
        self, older_than: timedelta = timedelta(days=1), *, dry_run: bool = False
    ) -> VacuumReport:
        """Remove the remains of a crash: temporary files, broken parts, packs that no part names.

        >>> table.vacuum(dry_run=True)

        Temporary files are looked for in the index and in the directories of the data. Only files
        whose names Skipstone makes are removed, and none that a process is writing.

        ``SkipstoneError`` where there is neither a table nor an index.
        """
        from skipstone.facts.reports import VacuumReport
        from skipstone.facts.vacuum import vacuum

        self.store.require_own()
        self.require_newest("vacuum")
        self.require_index()
        if not (
            self.storage.has_children(self.path)
            or self.store.storage.has_children(self.location.root)
        ):
            self.storage.list_files(self.path)  # raises where there is no such directory
        seconds = older_than.total_seconds()
        plain = self.snapshots() is None
        places = [(self.storage, self.path)] if plain else []
        published = (self.location.xskipper, self.location.pms)
        places += [(self.store.storage, directory) for directory in published]
        done = vacuum(self.store, seconds, dry_run=dry_run, places=places)
        return VacuumReport(
            table=self.path,
            location=self.location.root,
            removed=tuple(done.removed),
            bytes_removed=sum(done.removed.values()),
            kept_young=len(done.young),
            older_than_seconds=seconds,
            dry_run=dry_run,
            notes=tuple(map(str, done.reasons)),
        )

    def export(self, destination: str | None = None, kind: str = "xskipper") -> ExportReport:
        """Publish the index for other readers.

        >>> table.export("lake/paimon-indexes", kind="paimon")

        ``"xskipper"``: all facts as a store of Xskipper, version 4. It becomes
        ``<destination>/<sha256 of the table's identifier>/``, by default below ``xskipper/`` next
        to the facts. ``"paimon"``: the file indexes, as ``<data file>.index`` below
        ``destination``. ``"questdb"``: the row group metadata, as ``_pm`` where a directory has one
        data file, else as ``<data file>._pm``. Parts that others cannot use are left out, with the
        reason in the report; ``UnsupportedError`` where nothing remains.

        ``"puffin"``, experimental, for a table of Apache Iceberg at its newest snapshot or
        ``version``: Bloom filters over the columns with a ``bloom`` index, as the statistics file
        ``<destination>/<id of the snapshot>.puffin``. It decodes these columns again.
        """
        from skipstone.facts.export import export_containers, export_pms

        self.store.require_own()
        self.require_whole("export")
        if kind == "xskipper":
            return _export_facts(self, destination)
        if kind not in ("paimon", "questdb", "puffin"):
            raise UnsupportedError(
                f"an export as {kind!r}",
                hint="the kinds are 'xskipper', 'paimon', 'questdb' and 'puffin'",
            )
        if destination is None:
            raise UnsupportedError(
                f"an export as {kind!r} needs a destination", hint="name the directory it goes to"
            )
        if self.store.snapshot().encryption is not None:
            raise UnsupportedError(
                f"the index of {self.path} is encrypted, and the export would be in the clear",
                hint="an export for Xskipper stays encrypted: kind='xskipper'",
            )
        if kind == "puffin":
            return _export_filters(self, destination)
        export = export_pms if kind == "questdb" else export_containers
        return export(
            self.match(self.listing()),
            table=self.path,
            destination=destination,
            options=self.storage_options,
        )

    def migrate(
        self,
        destination: str | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MigrateReport:
        """Make a ``_pm`` for every data file that lacks a valid one, without reading rows.

        >>> table.migrate(dry_run=True)

        In a table of QuestDB it lies next to ``data.parquet`` of each Parquet partition, and no
        process may have the table open. For other tables it lies below ``destination``, by default
        ``pm/`` next to the facts. ``dry_run`` only reports what it would write; ``progress`` is
        called with files done and files to do.
        """
        from skipstone.questdb.migrate import migrate

        self.require_whole("migrate")
        if destination is None and not is_txn_table(self.path, self.storage):
            destination = self.location.pms
        return migrate(
            self.path,
            self.storage,
            listing=self.listing,
            destination=destination,
            dry_run=dry_run,
            storage_options=self.storage_options,
            progress=progress,
        )


def _named_alike(table: OpenTable, listing: Listing) -> Listing:
    """The files whose columns have the names in the table, by which a sample is read."""
    if (names := names_of(listing)) is None:
        return listing
    own = np.array([not each for each in names.distinct])[names.number]
    if not own.any():
        raise UnsupportedError(
            f"all files of {table.path} have other names for columns than the table",
            hint="name the columns: `skipstone build TABLE -c COLUMN:KIND`",
        )
    return listing.where(own)


def _proved(
    table: OpenTable, listing: Listing, sample: int, decryption: Decryption | None
) -> Proof:
    """Compares the facts of a sample of the files with their data."""
    from skipstone.planning.prove import prove

    return prove(
        table.match(listing),
        PartitionColumns.of(listing),
        table.storage,
        table=table.path,
        sample=sample,
        decryption=decryption,
    )


def _drop_one(
    table: OpenTable, index: str, before: Description, namings: Namings | None
) -> tuple[IndexInfo, ...]:
    from skipstone.facts.compact import drop_index
    from skipstone.facts.coverage import named_indexes

    if not isinstance(index, str):
        raise TypeError(f"one index at a time, by its name, as 'id:minmax': {index!r}")
    gone = named_indexes(before, index)
    for info in gone:
        every = (SAME,) if namings is None else namings.distinct
        for stored in dict.fromkeys(each.to_file(info.column) for each in every):
            if stored is not None:
                drop_index(table.store, info.kind, stored)
    left = table.store.snapshot()
    if not left.definitions and not any(r.cause is not Cause.ABSENT for r in left.reasons):
        table.store.drop()  # the last index is gone, and its packs are removed with it
    return gone


def _export_filters(table: OpenTable, destination: str) -> ExportReport:
    from skipstone.indexes.bloom import Bloom

    from .renamed_columns import known_indexes

    snapshots = table.snapshots()
    if snapshots is None or snapshots.source.format != ICEBERG:
        raise UnsupportedError(
            f"{table.path} is not a table of {ICEBERG}, which Puffin files belong to",
            hint="the other kinds are 'xskipper', 'paimon' and 'questdb'",
        )
    from skipstone.table_formats.iceberg import IcebergSource

    assert isinstance(snapshots.source, IcebergSource)
    indexes = known_indexes(table, table.store.snapshot().definitions, None)
    columns = {each.column: each.fpp for each in indexes if isinstance(each, Bloom)}
    return snapshots.source.filters().write(columns, destination, table.storage_options)


def _export_facts(table: OpenTable, destination: str | None) -> ExportReport:
    from skipstone.facts.export import publish

    listing = table.listing()
    if names_of(listing) is not None:
        raise UnsupportedError(
            f"columns of {table.path} have other names in some files, and a store of Xskipper has"
            " one name for a column"
        )
    return publish(
        table.match(listing),
        PartitionColumns.of(listing),
        table=table.path,
        base=destination or table.location.xskipper,
        options=table.storage_options,
        keys=table.store.keys,
    )
