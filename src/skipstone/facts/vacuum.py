"""Vacuum: removes what no part of a store needs.

It can be interrupted anywhere, and run again. Packs are listed before the parts that may name them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.pruning import Cause, Reason
from skipstone.storage.atomic_replace import TEMPORARY

from .part_columns import SIDECARS, place_columns
from .parts import open_part
from .slice_upkeep import check_tail, unowned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from skipstone.identity import ObjectId
    from skipstone.storage import Storage

    from .snapshot import Snapshot
    from .store import Store


DAY = 24 * 60 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What was removed: object path -> bytes; ``young`` are kept only because of their age;
    ``reasons`` name objects that are kept because they could not be read or opened."""

    removed: Mapping[str, int] = field(default_factory=dict)
    young: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


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
        expired: dict[str, int] = {}
        for each in _left_below(storage, directory, reasons):
            if each.mtime_ns < before:
                expired[each.path] = each.size or 0
            else:
                young.append(each.path)
        if not dry_run:
            storage.delete(*expired)
        removed |= expired
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

    temporary = list(filter(place.is_temporary, old))
    remove(_not_being_written(store.storage, temporary, reasons))
    broken = [path for path, version in old.items() if _is_broken(store, path, *version, reasons)]
    remove(broken)
    unowned_slices = unowned({*old, *recent} - set(broken), place)
    young += [each for each in unowned_slices if each not in old]
    remove(each for each in unowned_slices if each in old)
    named = _packs_named(store, reasons)

    def unnamed(path: str) -> bool:
        is_pack = named is not None and place.is_pack(path)
        return is_pack and path.removeprefix(f"{place.packs}/") not in (named or ())

    young += [each for each in recent if place.is_temporary(each) or unnamed(each)]
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
        for each in map(listing.object_id, range(len(listing))):
            if each.mtime_ns < before:
                old[each.path] = (each.size or 0, each.mtime_ns)
            else:
                recent.append(each.path)
    return old, recent


def _is_broken(store: Store, path: str, size: int, mtime: int, reasons: list[Reason]) -> bool:
    """Whether it is a damaged part, or damaged bit slices. ``reasons`` receive why one cannot be
    read."""
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


def _not_being_written(
    storage: Storage, temporary: Collection[str], reasons: list[Reason]
) -> list[str]:
    """The temporary files of the store without those that a process is writing."""
    left: dict[str, OSError | None] = {}
    for directory in sorted({path.rpartition("/")[0] for path in temporary}):
        left |= storage.left_overs(directory)
    for path, error in left.items():
        if error is not None:
            reasons.append(Reason.of_error(f"temporary file {path}", error))
    free = {path for path, error in left.items() if error is None}
    return [
        path
        for path in temporary
        if path in free or not TEMPORARY.fullmatch(path.rpartition("/")[2])
    ]


def _packs_named(store: Store, reasons: list[Reason]) -> set[str] | None:
    """The packs that the parts name; ``None``, with the reason, when that is not certain."""
    for _ in range(3):
        try:
            before = store.part_names()
            snapshot = store.snapshot()
            named = packs_of_rows(snapshot)
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


def packs_of_rows(snapshot: Snapshot) -> set[str]:
    """The packs that fact rows name."""
    columns = [snapshot.own(place_columns(sidecar)[0]) for sidecar in SIDECARS]
    return {text for column in columns for text in column.unique().drop_null().to_pylist()}
