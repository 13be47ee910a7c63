"""Verbs over the index: describe, advise, check, drop, compact, vacuum, export, migrate."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts.coverage import describe
from skipstone.facts.reports import (
    CheckReport,
    CompactReport,
    Description,
    DropReport,
    ExportReport,
    IndexInfo,
    VacuumReport,
)
from skipstone.facts.sidecar_export import export_containers, export_pms
from skipstone.facts.upkeep import check, compact, drop_index, vacuum
from skipstone.facts.xskipper_export import publish
from skipstone.facts.xskipper_store import XskipperStore
from skipstone.indexes.registry import kind as registered
from skipstone.planning.prove import prove
from skipstone.pruning import Cause
from skipstone.pruning.partitions import PartitionColumns
from skipstone.questdb.txn_snapshot import is_txn_table
from skipstone.rewrite.check_encrypted_files import check_encrypted_files

from .file_format import ParquetFormat, bound

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from skipstone.advisor import Advice, Query, Savings, WeightedPredicate
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.questdb.migrate import MigrateReport

    from .file_format import Progress
    from .open_table import OpenTable


_LOG = logging.getLogger("skipstone")


def describe_table(table: OpenTable) -> Description:
    """See ``Table.describe``."""
    listing = table.listing()
    found = describe(table.path, table.match(listing))
    coverage = table.coverage(listing)
    if coverage is None:
        return found
    return replace(found, notes=(f"these are {coverage}", *found.notes))


def drop_from_table(table: OpenTable, index: str | None) -> DropReport:
    """See ``Table.drop``."""
    table.store.require_own()
    matched = table.match(table.listing())
    before = describe(table.path, matched)
    if not before.indexes:
        raise SkipstoneError(f"{table.path} has no index", hint="there is nothing to drop")
    if index is None:
        table.store.drop()
        gone = before.indexes
    else:
        gone = _drop_one(table, index, before)
    after = table.store.snapshot()
    files = max((info.files for info in gone), default=0)
    return DropReport(
        table=table.path,
        location=table.location.root,
        dropped=tuple(info.name for info in gone),
        remaining=tuple(info.name for info in before.indexes if info not in gone),
        files=files,
        bytes_removed=max(0, before.bytes_index - after.size),
    )


def _drop_one(table: OpenTable, index: str, before: Description) -> tuple[IndexInfo, ...]:
    column, _, kind = index.rpartition(":")
    known = registered(kind.partition("(")[0])
    name = kind.partition("(")[0] if known is None else known.name
    gone = tuple(info for info in before.indexes if (info.column, info.kind) == (column, name))
    if not gone:
        names = [info.name for info in before.indexes]
        near = get_close_matches(index, names, 1)
        raise SkipstoneError(
            f"{table.path} has no index {index!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}",
        )
    drop_index(table.store, name, column)
    left = table.store.snapshot()
    if not left.definitions and not any(r.cause is not Cause.ABSENT for r in left.reasons):
        table.store.drop()  # the last index is gone, and its packs go with it
    return gone


def check_table(
    table: OpenTable, *, deep: bool, sample: int, decryption: Decryption | None = None
) -> CheckReport:
    """See ``Table.check``."""
    if deep and isinstance(table.store, XskipperStore):
        raise UnsupportedError(
            f"{table.location.root} is a store of Xskipper",
            hint="a deep check rebuilds facts of Skipstone's own: leave --deep out",
        )
    decryption = table.keys.get() if decryption is None else bound(table.path, decryption)
    listing = table.listing()
    found = check(table.store, listing, table.file_format.fingerprint(None, table.store))
    corrupt = [*map(str, found.damaged), *(f"pack {name} is gone" for name in found.lost_packs)]
    proof = None
    if deep:
        matched = table.match(listing)
        partitions = PartitionColumns.of_paths(table.path, listing.paths)
        proof = prove(
            matched,
            partitions,
            table.storage,
            table=table.path,
            sample=sample,
            decryption=decryption,
        )
        corrupt += proof.unreadable
    encryption, indexed = None, True
    if decryption is not None:
        encryption = check_encrypted_files(
            table.path,
            listing,
            decryption,
            orphaned=found.orphaned,
            storage_options=table.storage_options or None,
        )
        indexed = bool(table.store.snapshot().definitions)
    return CheckReport(
        table=table.path,
        location=table.location.root,
        files_total=found.files,
        fresh=found.current,
        stale=found.stale,
        missing=len(found.missing) if indexed else 0,
        orphaned=len(found.orphaned),
        corrupt=tuple(corrupt),
        untrue=proof.untrue if proof else (),
        deep=deep,
        sampled=proof.sampled if proof else 0,
        compared=proof.compared if proof else 0,
        encryption=encryption,
        indexed=indexed,
    )


def compact_table(table: OpenTable) -> CompactReport:
    """See ``Table.compact``."""
    table.store.require_own()
    started = time.perf_counter()
    done = compact(table.store, table.listing)
    if table.store.storage.has_children(table.location.xskipper):
        try:
            _export_facts(table, None)
        except UnsupportedError as error:
            _LOG.warning("%s is left as it is: %s", table.location.xskipper, error)
    return CompactReport(
        table=table.path,
        location=table.location.root,
        parts_before=done.parts_before,
        parts_after=done.parts_after,
        facts_before=done.rows_before,
        facts_after=done.rows_after,
        bytes_before=done.bytes_before,
        bytes_after=done.bytes_after,
        seconds=time.perf_counter() - started,
    )


def export_table(table: OpenTable, destination: str | None, kind: str) -> ExportReport:
    """See ``Table.export``."""
    table.store.require_own()
    if kind == "xskipper":
        return _export_facts(table, destination)
    if kind not in ("paimon", "questdb"):
        raise UnsupportedError(
            f"an export as {kind!r}",
            hint="the kinds are 'xskipper', 'paimon' and 'questdb'",
        )
    if destination is None:
        raise UnsupportedError(
            "an export of sidecars needs a destination", hint="name the directory they go to"
        )
    if table.store.snapshot().encryption is not None:
        raise UnsupportedError(
            f"the index of {table.path} is encrypted, and its sidecars would go out in the clear",
            hint="an export for Xskipper stays encrypted: kind='xskipper'",
        )
    export = export_pms if kind == "questdb" else export_containers
    return export(
        table.match(table.listing()),
        table=table.path,
        destination=destination,
        options=table.storage_options,
    )


def _export_facts(table: OpenTable, destination: str | None) -> ExportReport:
    listing = table.listing()
    return publish(
        table.match(listing),
        PartitionColumns.of_paths(table.path, listing.paths),
        table=table.path,
        base=destination or table.location.xskipper,
        options=table.storage_options,
        keys=table.store.keys,
    )


def vacuum_table(table: OpenTable, older_than: timedelta, *, dry_run: bool) -> VacuumReport:
    """See ``Table.vacuum``."""
    table.store.require_own()
    seconds = older_than.total_seconds()
    done = vacuum(table.store, seconds, dry_run=dry_run)
    return VacuumReport(
        table=table.path,
        location=table.location.root,
        removed=tuple(done.removed),
        bytes_removed=sum(done.removed.values()),
        older_than_seconds=seconds,
        dry_run=dry_run,
    )


def migrate_table(
    table: OpenTable,
    destination: str | None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MigrateReport:
    """See ``Table.migrate``."""
    from skipstone.questdb.migrate import migrate

    if destination is None and not is_txn_table(table.path, table.storage):
        destination = f"{table.location.root}/pm"
    return migrate(
        table.path,
        table.storage,
        listing=table.listing,
        destination=destination,
        dry_run=dry_run,
        storage_options=table.storage_options,
        progress=progress,
    )


def advise_table(
    table: OpenTable, sample: int, queries: Iterable[WeightedPredicate | Query] | None
) -> Advice | Savings:
    """See ``Table.advise``."""
    from skipstone.advisor import AdviceRequest, advise, advise_queries, queries_of

    listing = table.listing()
    keys = table.keys.get()
    schema = None
    if isinstance(table.file_format, ParquetFormat) and table.txn is None and len(listing):
        schema = table.file_format.schema(listing, (), None, table.store)
    request = AdviceRequest(
        listing=listing,
        storage=table.storage,
        sample=sample,
        name=table.path,
        schema=schema,
        decryption=keys,
        storage_options=table.storage_options or None,
    )
    if queries is None:
        return advise(request)
    if not isinstance(table.file_format, ParquetFormat):
        raise UnsupportedError(
            f"{table.path} is not a table of Parquet files: indexes cannot be tried without Spark",
            hint="leave the queries out, and rules decide from a sample",
        )
    schema = table.schema(listing) if len(listing) else None
    return advise_queries(replace(request, schema=schema), queries_of(queries))
