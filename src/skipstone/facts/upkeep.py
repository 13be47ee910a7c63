"""Upkeep of a store: compact, drop an index, check. Each can be interrupted, and run again.

This order makes that safe. New parts are written before the parts that they replace are deleted.
Only the parts that the new part was made of are deleted. The data is listed after the parts, so
that a fact without a listed file really has no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import KeyUnavailableError, SkipstoneError
from skipstone.pruning import Cause, Reason

from .coverage import superseded, unreadable
from .encode import PART_BYTES
from .merge import merge
from .part_columns import OWN
from .slice_upkeep import DEFAULT, SlicedNow, Slicing, damaged_slices, write_slices
from .vacuum import packs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .index_encryption import WriteEncryption
    from .part_columns import Definition, FactField
    from .parts import Part
    from .snapshot import Snapshot
    from .store import Store


#: A refresh merges above this many parts, or above this many small ones.
MOST_PARTS, MOST_SMALL = 32, 8
SMALL = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did: parts and rows before and after, and rows dropped as dead; ``sliced``
    are the bit slices that there are now."""

    parts_before: int
    parts_after: int
    rows_before: int
    rows_after: int
    dead: int
    bytes_before: int
    bytes_after: int
    sliced: SlicedNow = field(default_factory=SlicedNow)


def needs_merge(snapshot: Snapshot) -> bool:
    """True when a refresh should compact: over 32 parts that could merge, or many small ones."""
    mergeable = [part for part in snapshot.parts if part.uncompressed < PART_BYTES // 2]
    small = sum(part.size < SMALL for part in mergeable)
    return len(mergeable) > MOST_PARTS or small > MOST_SMALL


def compact(
    store: Store, list_data: Callable[[], Listing], slicing: Slicing = DEFAULT
) -> Compaction:
    """Rewrite the facts into few parts, without those of files that are gone or have changed, and
    without values of an index that has newer ones; then make bit slices of Bloom filters.

    ``list_data`` lists the table's files. It is called here, after the parts were read: a listing
    from before could miss files whose facts another process has just published. An
    encrypted index needs every key: ``KeyUnavailableError``. ``SkipstoneError`` where a part cannot
    be read now.
    """
    snapshot = store.snapshot()
    encryption = _encryption(store, snapshot)
    identities = snapshot.identities
    matched = snapshot.match(list_data())
    _require_read(store, snapshot)
    keep = {
        part.name: ~matched.dead_rows[identities.starts[part.name] :][: part.rows]
        for part in identities.parts
    }
    dropped = superseded(matched)
    rows_after, bytes_after, parts_after = 0, 0, 0
    for bin_ in _bins(identities.parts, keep):
        rows, size, parts = _rewrite(store, snapshot, bin_, keep, dropped, encryption)
        rows_after += rows
        bytes_after += size
        parts_after += parts
    sliced = write_slices(store, slicing)
    return Compaction(
        parts_before=len(snapshot.parts),
        parts_after=parts_after + len(snapshot.parts) - len(identities.parts),
        rows_before=len(identities),
        rows_after=rows_after,
        dead=int(matched.dead_rows.sum()),
        bytes_before=snapshot.size,
        bytes_after=bytes_after + sliced.bytes,
        sliced=sliced,
    )


def _bins(parts: Sequence[Part], keep: Mapping[str, NDArray[np.bool_]]) -> list[list[Part]]:
    """The parts, oldest first, in runs that become one part each; a run of one may stay."""
    bins: list[list[Part]] = []
    held = PART_BYTES + 1
    for part in parts:
        large = part.uncompressed > PART_BYTES // 2
        if large and keep[part.name].all():
            bins.insert(0, [part])
            continue
        if held + part.uncompressed > PART_BYTES:
            bins.append([])
            held = 0
        bins[-1].append(part)
        held += part.uncompressed
    return bins


def _rewrite(
    store: Store,
    snapshot: Snapshot,
    parts: Sequence[Part],
    keep: Mapping[str, NDArray[np.bool_]],
    dropped: Collection[tuple[str, str, str]],
    encryption: WriteEncryption | None,
) -> tuple[int, int, int]:
    """Merge ``parts`` into one; returns the rows, bytes and parts that remain."""
    alone = len(parts) == 1 and parts[0].by_key.keys().isdisjoint(dropped)
    if alone and keep[parts[0].name].all():
        return parts[0].rows, parts[0].size, 1
    try:
        merged = merge(parts, snapshot.fields, keep, dropped, store.storage, encryption)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        # Repeated values may grow beyond 2 GiB when they are decoded: fewer parts at a time.
        if len(parts) == 1:
            raise
        middle = len(parts) // 2
        halves = (parts[:middle], parts[middle:])
        both = [_rewrite(store, snapshot, half, keep, dropped, encryption) for half in halves]
        rows, size, count = (sum(numbers) for numbers in zip(*both, strict=True))
        return rows, size, count
    if merged.name is not None and merged.data is not None:
        sources = [part.path for part in merged.replaced]
        store.storage.put(store.location.part(merged.name), merged.data, sources)
    gone = [part.path for part in merged.replaced]
    gone += [
        store.location.slices(part.name)
        for part in merged.replaced
        if part.name in snapshot.listed_slices
    ]
    store.storage.delete(*gone)
    left = [part for part in parts if part not in merged.replaced]
    size = len(merged.data or b"") + sum(part.size for part in left)
    return (
        merged.rows + sum(part.rows for part in left),
        size,
        len(left) + (merged.name is not None),
    )


def _require_read(store: Store, snapshot: Snapshot) -> None:
    """``SkipstoneError`` where the store did not list the parts, or give one, which would be left
    as it is; not for a part that another process has removed meanwhile."""
    for reason in snapshot.reasons:
        path = store.location.part(reason.subject.removeprefix("fact part "))
        unlisted = reason.subject.startswith("facts at ")
        if reason.cause is Cause.UNREADABLE and (unlisted or store.storage.exists(path)):
            raise SkipstoneError(f"{reason}", hint="nothing was changed: try again later")


def _encryption(store: Store, snapshot: Snapshot) -> WriteEncryption | None:
    """How the parts of this snapshot are rewritten, each column under its present label."""
    if snapshot.encryption is None:
        return None
    found = store.encryption_to_write()
    assert found is not None
    for label in sorted({each.key_metadata for each in snapshot.fields} - {None}, key=str):
        found.keys.require(str(label))
    return found


def drop_index(store: Store, kind: str, column: str) -> tuple[Definition, ...]:
    """Remove every index of ``kind`` over ``column`` from all parts; returns their definitions.

    Null counts of the column are removed with its last index, and so are facts that then have no
    content. A part that another process publishes meanwhile is not changed.
    """
    from skipstone.indexes.registry import kind as known

    found = known(kind)
    name = kind.lower() if found is None else found.name
    snapshot = store.snapshot()
    encryption = _encryption(store, snapshot)
    gone: list[FactField] = []
    left: set[str] = set()
    for each in snapshot.fields:
        if each.definition is not None:
            if each.definition.kind.lower() == name and each.definition.columns == (column,):
                gone.append(each)
            else:
                left.update(each.definition.columns)
    dropped = {each.key for each in gone}
    if dropped and column not in left:
        dropped |= {each.key for each in snapshot.fields if each.nulls == column}
    touched = [part for part in snapshot.identities.parts if not dropped.isdisjoint(part.by_key)]
    _require_read(store, snapshot)
    keep = {part.name: np.ones(part.rows, np.bool_) for part in touched}
    for bin_ in _bins(touched, keep):
        _rewrite(store, snapshot, bin_, keep, dropped, encryption)
    return tuple(each.definition for each in gone if each.definition is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The state of a store against a listing.

    ``files`` are those listed; ``current`` of them have facts of this version, ``stale`` facts of
    another, ``missing`` none; a build could not read those of ``unreadable`` (with the reason).
    ``orphaned`` are paths with facts and without a file. ``damaged`` are parts that cannot be read
    or are of a newer version, or encrypted packs that do not authenticate; ``lost_packs`` are named
    by a part and gone.
    """

    files: int
    current: int
    stale: tuple[str, ...]
    missing: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    orphaned: tuple[str, ...]
    parts: int
    damaged: tuple[Reason, ...]
    lost_packs: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when every file has current facts and nothing is stale or damaged."""
        drift = self.stale or self.missing or self.unreadable or self.orphaned
        return not (drift or self.damaged or self.lost_packs)


def check(store: Store, listing: Listing, fingerprint: str | None = None) -> Check:
    """Read every part completely, and compare with ``listing``.

    Raises what the store raises when it cannot be listed at all.
    """
    store.part_names()
    snapshot = store.snapshot()
    damaged = [
        reason
        for reason in snapshot.reasons
        if reason.cause is not Cause.ABSENT
        and (reason.cause is not Cause.UNDECRYPTABLE or reason.subject.startswith("fact part"))
    ]
    for part in snapshot.parts:
        held = [*(name for name in OWN if name in part.schema.names)]
        held += [field.arrow.name for field in part.fields]
        try:
            part.read(
                store.storage,
                [name for name in held if not isinstance(part.locked(name), KeyUnavailableError)],
            )
        except Exception as error:
            damaged.append(Reason.of_error(f"fact part {part.name}", error))
    damaged += damaged_slices(snapshot)
    matched = snapshot.match(listing, fingerprint)
    lost = unreadable(matched)
    orphans = np.flatnonzero(matched.dead_rows & (matched.path_of_row < 0))
    paths = snapshot.identities.paths.take(pa.array(orphans)).drop_null()
    return Check(
        files=len(listing),
        current=int(matched.has_fact.sum()) - len(lost),
        stale=_chosen(listing.paths, matched.stale),
        missing=_chosen(listing.paths, matched.missing),
        unreadable=tuple((listing.paths[at], text) for at, text in lost.items()),
        orphaned=tuple(sorted(pc.unique(paths).to_pylist())),
        parts=len(snapshot.parts),
        damaged=tuple(
            dict.fromkeys((*damaged, *_late(snapshot.reasons, damaged), *_damaged_packs(store)))
        ),
        lost_packs=_lost_packs(store, matched.dead_rows),
    )


def remove_damaged(store: Store, found: Check) -> list[str]:
    """Remove the parts, packs and bit slices that ``found`` names as corrupt; their names. Then a
    build makes them again."""
    gone = []
    for reason in found.damaged:
        if reason.cause is not Cause.CORRUPT:
            continue  # of a newer version, or not given by the store now
        what, _, name = reason.subject.rpartition(" ")
        if what == "fact part":
            gone.append(store.location.part(name))
            gone.append(store.location.slices(name))
        elif what == "bit slices of":
            gone.append(store.location.slices(name))
        elif what == "pack":
            gone.append(f"{store.location.packs}/{name}")
    store.storage.delete(*gone)
    return [reason.subject for reason in found.damaged if reason.cause is Cause.CORRUPT]


def _damaged_packs(store: Store) -> list[Reason]:
    """What is wrong with encrypted packs: every frame whose key is available is authenticated."""
    found = []
    packs = store.location.packs
    for path in store.storage.list_all(packs).paths if store.keys is not None else ():
        text = None if "/_" in path[len(packs) :] else store.pack_damage(path)
        if text is not None:
            name = f"pack {path.rpartition('/')[2]}"
            found.append(Reason(cause=Cause.CORRUPT, subject=name, text=text))
    return found


def _late(reasons: Sequence[Reason], known: Sequence[Reason]) -> list[Reason]:
    passed = (Cause.ABSENT, Cause.UNDECRYPTABLE)
    return [r for r in reasons if r.cause not in passed and r not in known]


def _chosen(paths: Sequence[str], mask: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(paths[at] for at in np.flatnonzero(mask).tolist())


def _lost_packs(store: Store, dead: NDArray[np.bool_]) -> tuple[str, ...]:
    named = packs_in(store.snapshot(), ~dead)
    if not named:
        return ()
    start = len(store.location.packs) + 1
    held = {path[start:] for path in store.storage.list_all(store.location.packs).paths}
    return tuple(sorted(named - held))
