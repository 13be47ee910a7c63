"""Compaction of a store, and the removal of an index: both rewrite parts.

Both can be interrupted anywhere, and run again. A new part is written before the parts that it
replaces are deleted, and only those are deleted. The data is listed after the parts, so that a fact
without a listed file really has no file.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._arrays import runs_up_to
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.pruning import Cause

from .coverage import superseded
from .encode import PART_BYTES
from .merge import merge
from .slice_upkeep import DEFAULT, SlicedNow, Slicing, write_slices

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
#: A refresh leaves the oldest part as it is if it has this many times the bytes of all newer ones:
#: what it writes is in proportion to the new files.
MUCH_LARGER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did: parts, rows and bytes before and after; ``sliced`` are the bit slices
    that there are now."""

    parts_before: int
    parts_after: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int
    sliced: SlicedNow = field(default_factory=SlicedNow)


def needs_merge(snapshot: Snapshot) -> bool:
    """True when a refresh should compact: over 32 parts that could merge, or many small ones."""
    mergeable = [part for part in snapshot.parts if part.uncompressed < PART_BYTES // 2]
    small = sum(part.size < SMALL for part in mergeable)
    return len(mergeable) > MOST_PARTS or small > MOST_SMALL


def compact(
    store: Store,
    list_data: Callable[[], Listing],
    slicing: Slicing = DEFAULT,
    *,
    much_larger: float = math.inf,
) -> Compaction:
    """Rewrite the facts into few parts, without those of files that are gone or have changed, and
    without values of an index that has newer ones; then make bit slices of Bloom filters.

    ``list_data`` lists the table's files. It is called here, after the parts were read: a listing
    from before could miss files whose facts another process has just published. An
    encrypted index needs every key: ``KeyUnavailableError``. ``SkipstoneError`` where a part cannot
    be read now. The oldest part stays if it has ``much_larger`` times the bytes of all newer ones.
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
    left = _left(identities.parts, keep, dropped, much_larger)
    rows_after, bytes_after = sum(part.rows for part in left), sum(part.size for part in left)
    parts_after = len(left)
    for bin_ in _bins([part for part in identities.parts if part not in left], keep):
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
        bytes_before=snapshot.size,
        bytes_after=bytes_after + sliced.bytes,
        sliced=sliced,
    )


def _left(
    parts: Sequence[Part],
    keep: Mapping[str, NDArray[np.bool_]],
    dropped: Collection[tuple[str, str, str]],
    much_larger: float,
) -> list[Part]:
    """The oldest parts that need no merge: each is much larger than all newer ones together, and
    most of its facts are in use. A part between merged ones is merged, too: their merge holds older
    facts, and would be newer than the part."""
    left: list[Part] = []
    newer = sum(part.uncompressed for part in parts)
    for part in parts:
        newer -= part.uncompressed
        used = np.count_nonzero(keep[part.name]) > part.rows / 2
        if not newer or part.uncompressed < much_larger * newer or not used:
            break
        if not part.by_key.keys().isdisjoint(dropped):
            break
        left.append(part)
    return left


def _bins(parts: Sequence[Part], keep: Mapping[str, NDArray[np.bool_]]) -> list[list[Part]]:
    """The parts, oldest first, in runs that become one part each; a run of one may stay."""
    large: list[Part] = []
    rest: list[Part] = []
    for part in parts:
        stays = part.uncompressed > PART_BYTES // 2 and keep[part.name].all()
        (large if stays else rest).append(part)
    runs = runs_up_to([part.uncompressed for part in rest], PART_BYTES)
    return [*([part] for part in reversed(large)), *(rest[start:stop] for start, stop in runs)]


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
        # Repeated values may exceed 2 GiB when they are decoded: merge fewer parts at a time.
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
    """``SkipstoneError`` if the parts could not be listed, or one of them not read: it would stay
    as it is. A part that another process has removed meanwhile is no error."""
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
