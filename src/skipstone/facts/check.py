"""Checks a store for stale, missing, orphaned and damaged facts, and removes damaged objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError
from skipstone.pruning import Cause, Reason

from .coverage import unreadable
from .part_columns import OWN, SIDECARS, place_columns
from .parts import columns_of_pieces
from .slice_upkeep import damaged_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .snapshot import Snapshot
    from .store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The state of a store against a listing.

    ``files`` are those listed; ``current`` of them have facts of this version, ``stale`` facts of
    another, ``missing`` none; a build could not read those of ``unreadable`` (with the reason).
    ``orphaned`` are paths with facts and without a file. ``damaged`` are parts that cannot be read
    or are of a newer version, packs that are cut short, and encrypted packs that do not
    authenticate; ``lost_packs`` are named by a part and gone.
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
        held += columns_of_pieces(part.schema)
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
    lost_packs, short = _packs(store, snapshot, ~matched.dead_rows)
    return Check(
        files=len(listing),
        current=int(matched.has_fact.sum()) - len(lost),
        stale=_chosen(listing.paths, matched.stale),
        missing=_chosen(listing.paths, matched.missing),
        unreadable=tuple((listing.paths[at], text) for at, text in lost.items()),
        orphaned=tuple(sorted(pc.unique(paths).to_pylist())),
        parts=len(snapshot.parts),
        damaged=tuple(
            dict.fromkeys(
                (*damaged, *_late(snapshot.reasons, damaged), *short, *_damaged_packs(store))
            )
        ),
        lost_packs=lost_packs,
    )


def remove_damaged(store: Store, found: Check) -> list[str]:
    """Remove the parts, packs and bit slices that ``found`` names as corrupt, and the parts that
    name a lost pack; returns their names. The next build makes their facts again."""
    gone, removed, packs = [], [], set(found.lost_packs)
    for reason in found.damaged:
        if reason.cause is not Cause.CORRUPT:
            continue  # of a newer version, or not readable now
        removed.append(reason.subject)
        what, _, name = reason.subject.rpartition(" ")
        if what == "fact part":
            gone.append(store.location.part(name))
            gone.append(store.location.slices(name))
        elif what == "bit slices of":
            gone.append(store.location.slices(name))
        elif what == "pack":
            gone.append(f"{store.location.packs}/{name}")
            packs.add(name)
    for name in _parts_naming(store.snapshot(), packs) if packs else ():
        if f"fact part {name}" not in removed:
            removed.append(f"fact part {name}")
            gone += [store.location.part(name), store.location.slices(name)]
    store.storage.delete(*gone)
    return removed


def _parts_naming(snapshot: Snapshot, packs: set[str]) -> list[str]:
    """The parts with a row that names one of these packs."""
    wanted = pa.array(sorted(packs), pa.large_string())
    names = [snapshot.own(place_columns(sidecar)[0]) for sidecar in SIDECARS]
    naming = np.logical_or.reduce([np.asarray(pc.is_in(each, wanted)) for each in names])
    starts = snapshot.identities.starts
    return [
        part.name
        for part in snapshot.parts
        if part.name in starts and naming[starts[part.name] :][: part.rows].any()
    ]


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


def _packs(
    store: Store, snapshot: Snapshot, rows: NDArray[np.bool_]
) -> tuple[tuple[str, ...], list[Reason]]:
    """The packs that the masked fact rows name and that are gone; and those that are shorter than
    the rows say."""
    found = []
    for sidecar in SIDECARS:
        pack, offset, length, _ = (snapshot.own(name) for name in place_columns(sidecar))
        ends = pc.add(offset.cast(pa.float64()), length.cast(pa.float64()))
        found.append(pa.table({"pack": pack, "end": ends}).filter(pa.array(rows)))
    named = pa.concat_tables(found).group_by("pack").aggregate([("end", "max")])
    named = named.filter(named.column("pack").is_valid()).sort_by("pack")
    if not len(named):
        return (), []
    start = len(store.location.packs) + 1
    listed = store.storage.list_all(store.location.packs)
    sizes = dict(zip((path[start:] for path in listed.paths), listed.sizes.tolist(), strict=True))
    lost, short = [], []
    for name, end in zip(*(each.to_pylist() for each in named.columns), strict=True):
        if name not in sizes:
            lost.append(name)
        elif sizes[name] < (end or 0):
            text = f"it has {sizes[name]:,} bytes, and facts name {int(end):,} of it"
            short.append(Reason(cause=Cause.CORRUPT, subject=f"pack {name}", text=text))
    return tuple(lost), short
