"""Drop, check, compact and vacuum, as reports about one table."""

from __future__ import annotations

import logging
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.facts.check import check
from skipstone.facts.describe import describe
from skipstone.facts.publish_sidecars import export_containers, export_pms
from skipstone.facts.reports import (
    CheckReport,
    CompactReport,
    Description,
    DropReport,
    ExportReport,
    IndexInfo,
    VacuumReport,
)
from skipstone.facts.upkeep import compact, drop_index, drop_store, vacuum
from skipstone.facts.xskipper import XskipperStore, publish
from skipstone.indexes.registry import kind as registered
from skipstone.planning.prove import prove
from skipstone.pruning import Cause
from skipstone.pruning.partitions import PartitionColumns
from skipstone.rewrite.check_encrypted_files import check_seals

from .data_keys import bound

if TYPE_CHECKING:
    from datetime import timedelta

    from skipstone.parquet.encryption.decryption import Decryption

    from .table import Table

__all__ = [
    "check_table",
    "compact_table",
    "drop",
    "export_sidecars",
    "export_table",
    "vacuum_table",
]

_LOG = logging.getLogger("skipstone")


def drop(table: Table, index: str | None) -> DropReport:
    """Remove one index (``"user_id:bloom"``), or all of them; the data is not touched."""
    matched = table.match(table.listing())
    before = describe(table.path, matched)
    if not before.indexes:
        raise SkipstoneError(f"{table.path} has no index", hint="there is nothing to drop")
    if index is None:
        drop_store(table.store)
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


def _drop_one(table: Table, index: str, before: Description) -> tuple[IndexInfo, ...]:
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
        drop_store(table.store)  # what came with the indexes goes with the last of them
    return gone


def check_table(
    table: Table, *, deep: bool, sample: int, decryption: Decryption | None = None
) -> CheckReport:
    """Find facts that are stale, missing, orphaned or corrupt; with keys, files that do not belong.

    ``deep`` also decodes ``sample`` files, proves each of their facts true, and compares what
    plans read with what matches.
    """
    if deep and isinstance(table.store, XskipperStore):
        raise UnsupportedError(
            f"{table.location.root} is a store of Xskipper",
            hint="a deep check rebuilds facts of Skipstone's own: leave --deep out",
        )
    decryption = table.keys.get() if decryption is None else bound(table.path, decryption)
    listing = table.listing()
    found = check(table.store, listing, table.reading.fingerprint(None, table.store))
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
    seals, indexed = None, True
    if decryption is not None:
        seals = check_seals(
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
        seals=seals,
        indexed=indexed,
    )


def compact_table(table: Table) -> CompactReport:
    """Rewrite the facts into few parts, without those of files that are gone or changed."""
    started = time.perf_counter()
    done = compact(table.store, table.listing)
    if table.store.storage.has_children(table.location.xskipper):
        try:
            export_table(table, None)
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


def export_table(table: Table, destination: str | None) -> ExportReport:
    """Publish the facts as a store of Xskipper, at ``destination`` or beside them."""
    listing = table.listing()
    return publish(
        table.match(listing),
        PartitionColumns.of_paths(table.path, listing.paths),
        table=table.path,
        base=destination or table.location.xskipper,
        options=table.storage_options,
        keys=table.store.keys,
    )


def export_sidecars(table: Table, destination: str, kind: str) -> ExportReport:
    """Publish file indexes as Paimon's sidecars (``"paimon"``), or ``_pm`` files (``"questdb"``),
    below ``destination``."""
    if table.store.snapshot().sealed:
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


def vacuum_table(table: Table, older_than: timedelta, *, dry_run: bool) -> VacuumReport:
    """Remove what a crash left: temporary files, broken parts, packs that no part names."""
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
