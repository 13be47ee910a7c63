"""Check of a store: what is stale, missing, orphaned or damaged; and the removal of the damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import KeyUnavailableError
from skipstone.pruning import Cause, Reason

from .coverage import unreadable
from .part_columns import OWN
from .slice_upkeep import damaged_slices
from .vacuum import packs_of_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.storage import Listing

    from .store import Store


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
    named = packs_of_rows(store.snapshot(), ~dead)
    if not named:
        return ()
    start = len(store.location.packs) + 1
    held = {path[start:] for path in store.storage.list_all(store.location.packs).paths}
    return tuple(sorted(named - held))
