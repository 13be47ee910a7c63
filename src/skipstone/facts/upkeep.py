"""Upkeep of a store: compact, drop an index, vacuum. Each can be interrupted anywhere, and run
again.

This order makes that safe. New parts are written before the parts that they replace are deleted.
Only the parts that the new part was made of are deleted. The data is listed after the parts, so
that a fact without a listed file really has no file. Packs are listed before the parts that may
name them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason

from .coverage import superseded, unreadable
from .encode import PART_BYTES
from .merge import merge
from .part_columns import OWN, SIDECARS, place_columns
from .parts import open_part
from .slice_upkeep import (
    DEFAULT,
    SlicedNow,
    Slicing,
    check_tail,
    damaged_slices,
    unowned,
    write_slices,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId
    from skipstone.storage import Listing, Storage

    from .index_encryption import WriteEncryption
    from .part_columns import Definition, FactField
    from .parts import Part
    from .snapshot import Snapshot
    from .store import Store


#: A refresh merges above this many parts, or above this many small ones.
MOST_PARTS, MOST_SMALL = 32, 8
SMALL = 1024 * 1024
DAY = 24 * 60 * 60.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What was removed: object path -> bytes; ``young`` are kept only because of their age;
    ``reasons`` name what could not be read or opened, and is kept for that."""

    removed: Mapping[str, int] = field(default_factory=dict)
    young: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


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


def vacuum(
    store: Store,
    older_than: float = DAY,
    *,
    dry_run: bool = False,
    places: Collection[tuple[Storage, str]] = (),
) -> Vacuumed:
    """Remove unused objects: left-over temporary files, packs that no part names, broken parts.

    ``places`` are directories with their storages, below which killed verbs left temporary files,
    too: of the table, and of what is published. Only names that Skipstone makes are removed.

    Only objects older than ``older_than`` seconds by the store's clock are removed, because a task
    writes its pack before the part that names it. While a part cannot be read, no pack is removed:
    that part may name it.
    """
    removed: dict[str, int] = {}
    young: list[str] = []
    reasons: list[Reason] = []
    for storage, directory in places:
        before = storage.now() - int(older_than * 1e9)
        left = _left_below(storage, directory, reasons)
        ripe = [i for i in left if i.mtime * (10**9 // UNITS_PER_SECOND[i.unit]) < before]
        young += [each.path for each in left if each not in ripe]
        if not dry_run:
            storage.delete(*(each.path for each in ripe))
        removed |= {each.path: each.size or 0 for each in ripe}
    if not store.exists() and not store.storage.has_children(store.location.packs):
        if not dry_run:
            store.remove_empty()
        return Vacuumed(removed=removed, young=tuple(young), reasons=tuple(reasons))
    place = store.location
    old, recent = _by_age(store, store.now() - int(older_than * 1e9))

    def remove(paths: Iterable[str]) -> None:
        gone = list(paths)
        if not dry_run:
            store.storage.delete(*gone)
        removed.update((path, old[path][0]) for path in gone)

    remove(filter(place.is_passing, old))
    broken = [path for path, version in old.items() if _is_broken(store, path, *version, reasons)]
    remove(broken)
    lone = unowned({*old, *recent} - set(broken), place)
    young += [each for each in lone if each not in old]
    remove(each for each in lone if each in old)
    named = _packs_named(store, reasons)

    def unnamed(path: str) -> bool:
        is_pack = named is not None and place.is_pack(path)
        return is_pack and path.removeprefix(f"{place.packs}/") not in (named or ())

    young += [each for each in recent if place.is_passing(each) or unnamed(each)]
    remove(filter(unnamed, old))
    if not dry_run:
        store.remove_empty()
    return Vacuumed(removed=removed, young=tuple(young), reasons=tuple(dict.fromkeys(reasons)))


def _by_age(store: Store, before: int) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """The objects of the store: size and time of those older than ``before``, in nanoseconds of its
    clock; and the others."""
    old: dict[str, tuple[int, int]] = {}
    recent: list[str] = []
    for directory in (store.location.packs, store.location.facts):  # packs first: see the module
        listing = store.storage.list_all(directory)
        scale = 10**9 // UNITS_PER_SECOND[listing.unit]
        for path, size, mtime in zip(
            listing.paths, listing.sizes.tolist(), listing.mtimes.tolist(), strict=True
        ):
            if mtime * scale < before:
                old[path] = (size, mtime * scale)
            else:
                recent.append(path)
    return old, recent


def _is_broken(store: Store, path: str, size: int, mtime: int, reasons: list[Reason]) -> bool:
    """Whether it is a damaged part, or damaged bit slices; ``reasons`` get why one of them cannot
    be read."""
    is_slices = store.location.is_slices(path)
    try:
        if is_slices:
            check_tail(store.storage, path)
        elif store.location.is_part(path):
            open_part(path, size, mtime, store.storage, store.keys)
    except FormatError:
        return True
    except (UnsupportedError, KeyUnavailableError):
        return False
    except OSError as error:
        what = f"{'bit slices' if is_slices else 'fact part'} {path.rpartition('/')[2]}"
        reasons.append(Reason.of_error(what, error))
    return False


def _left_below(storage: Storage, directory: str, reasons: list[Reason]) -> list[ObjectId]:
    """The temporary files below ``directory`` that no process is writing. A file that cannot be
    opened is added to ``reasons``."""
    listing = storage.list_all(directory)
    known = {path: at for at, path in enumerate(listing.paths)}
    folders = {
        folder
        for folder, _, name in (path.rpartition("/") for path in known)
        if name.startswith("_tmp-")
    }
    found: list[ObjectId] = []
    for folder in sorted(folders):
        for path, error in storage.left_overs(folder).items():
            if error is not None:
                reasons.append(Reason.of_error(f"temporary file {path}", error))
            elif path in known:
                found.append(listing.object_id(known[path]))
    return found


def _packs_named(store: Store, reasons: list[Reason]) -> set[str] | None:
    """The packs that the parts name; ``None``, with the reason, when that is not certain."""
    for _ in range(3):
        try:
            before = store.part_names()
            snapshot = store.snapshot()
            named = _names_in(snapshot)
            unread = [r for r in snapshot.reasons if r.cause is not Cause.ABSENT]
            if unread:
                reasons += unread
                return None
            # A compaction may have moved names meanwhile, from an unread part to a new one.
            if store.part_names() == before:
                return named
        except Exception as error:
            reasons.append(Reason.of_error(f"facts at {store.location.root}", error))
            return None
    text = "parts change while they are read: packs are kept this time"
    reasons.append(Reason(cause=Cause.UNREADABLE, subject=store.location.root, text=text))
    return None


def _names_in(snapshot: Snapshot, rows: NDArray[np.bool_] | None = None) -> set[str]:
    """The packs that fact rows name: all of them, or those of the mask ``rows``."""
    columns = [snapshot.own(place_columns(sidecar)[0]) for sidecar in SIDECARS]
    if rows is not None:
        columns = [column.filter(pa.array(rows)) for column in columns]
    return {text for column in columns for text in column.unique().drop_null().to_pylist()}


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
    named = _names_in(store.snapshot(), ~dead)
    if not named:
        return ()
    start = len(store.location.packs) + 1
    held = {path[start:] for path in store.storage.list_all(store.location.packs).paths}
    return tuple(sorted(named - held))
