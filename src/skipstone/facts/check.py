"""``check``: what has drifted apart between facts and files, and which parts are damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import KeyUnavailableError
from skipstone.pruning import Cause, Reason

from .part_columns import OWN, SIDECARS, place_columns
from .snapshot import cause_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .parts import Part
    from .store import Store

__all__ = ["Check", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The state of a store against a listing.

    ``files`` are those listed; ``current`` of them have facts of this version, ``stale`` facts of
    another, ``missing`` none. ``orphaned`` are paths with facts and without a file. ``damaged`` are
    parts that cannot be read or are of a newer version, and sealed packs that do not authenticate;
    ``lost_packs`` are packs that are named and gone.
    """

    files: int
    current: int
    stale: tuple[str, ...]
    missing: tuple[str, ...]
    orphaned: tuple[str, ...]
    parts: int
    damaged: tuple[Reason, ...]
    lost_packs: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when every file has current facts and nothing is stale or damaged."""
        return not (self.stale or self.missing or self.orphaned or self.damaged or self.lost_packs)


def check(store: Store, listing: Listing, fingerprint: str | None = None) -> Check:
    """Read every part whole, and compare with ``listing``.

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
            part.read(store.storage, [name for name in held if not _keyless(part, name)])
        except Exception as error:
            damaged.append(cause_of(f"fact part {part.name}", error))
    matched = snapshot.match(listing, fingerprint)
    orphans = np.flatnonzero(matched.dead_rows & (matched.path_of_row < 0))
    paths = snapshot.identities.paths.take(pa.array(orphans)).drop_null()
    return Check(
        files=len(listing),
        current=int(matched.has_fact.sum()),
        stale=_chosen(listing.paths, matched.stale),
        missing=_chosen(listing.paths, matched.missing),
        orphaned=tuple(sorted(pc.unique(paths).to_pylist())),
        parts=len(snapshot.parts),
        damaged=tuple(dict.fromkeys((*damaged, *_late(snapshot.reasons, damaged), *_packs(store)))),
        lost_packs=_lost_packs(store, matched.dead_rows),
    )


def _keyless(part: Part, name: str) -> bool:
    """Whether a column is encrypted and its key not at hand: nothing is known to be wrong then."""
    locked = getattr(part, "locked", None)
    return locked is not None and isinstance(locked(name), KeyUnavailableError)


def _packs(store: Store) -> list[Reason]:
    """What is wrong with sealed packs: every frame whose key is at hand is authenticated."""
    damage = getattr(store.storage, "damage", None)
    if damage is None:
        return []
    found = []
    for path in store.storage.list_all(store.location.packs).paths:
        text = None if "/_" in path[len(store.location.packs) :] else damage(path)
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
    snapshot = store.snapshot()
    alive = pa.array(~dead)
    named: set[str] = set()
    for sidecar in SIDECARS:
        column = snapshot.own(place_columns(sidecar)[0]).filter(alive)
        named.update(text for text in column.unique().to_pylist() if text is not None)
    if not named:
        return ()
    start = len(store.location.packs) + 1
    held = {path[start:] for path in store.storage.list_all(store.location.packs).paths}
    return tuple(sorted(named - held))
