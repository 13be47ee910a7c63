"""``Store``: the facts of one table. Adding needs no lock, reading sees the union of what is there.

Every operation leaves the store usable wherever it is cut off: a part appears whole or not at all,
what is rewritten is written before what it replaces is deleted, and a fact that is there twice is
just there.
"""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason
from skipstone.storage import open_storage

from .check import check
from .encode import facts_to_parts
from .location import Location
from .packs import INLINE_LIMIT
from .parts import PREFIX, open_part
from .snapshot import Snapshot, cause_of
from .upkeep import DAY, compact, drop_index, vacuum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing, Storage

    from .check import Check
    from .file_facts import FileFacts
    from .index_encryption import Sealing
    from .part_columns import Definition
    from .parts import Part
    from .upkeep import Compaction, Vacuumed

__all__ = ["Store"]

log = logging.getLogger("skipstone")

# A part that a compaction replaces while a snapshot is taken is seen in the next listing.
_TRIES = 3
# Footers that are read from an object store at once.
_PARALLEL = 16


class Store:
    """The facts at ``location``, read and written through ``storage``; ``keys`` are those of an
    encrypted index.

    Keeps the footers that it has read, since parts never change, and the last snapshot while the
    parts are the same.
    """

    def __init__(
        self, location: Location | str, storage: Storage, keys: LabelledKeys | None = None
    ) -> None:
        self.location = Location(location) if isinstance(location, str) else location
        self.keys = keys
        self.storage: Storage = storage
        if keys is not None:
            from .encrypted_storage import SealedStorage

            self.storage = SealedStorage(storage, self.location, keys, self.warn)
        self._parts: dict[str, Part | Reason] = {}
        self._last: tuple[frozenset[str], Snapshot] | None = None
        self._warned: set[Reason] = set()

    @classmethod
    def of_table(
        cls,
        table: str,
        index_location: str | None = None,
        options: Mapping[str, str] | None = None,
        keys: LabelledKeys | None = None,
    ) -> Store:
        """The store of the table at ``table``, beside it or at ``index_location``."""
        location = Location.of_table(table, index_location)
        return cls(location, open_storage(location.root, options), keys)

    def __repr__(self) -> str:
        return f"Store({self.location.root!r})"

    def exists(self) -> bool:
        """True when something was ever stored here."""
        return self.storage.has_children(self.location.facts)

    def require_own(self) -> None:
        """Raises ``UnsupportedError`` where this is somebody else's store, which is only read."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index columns that the last snapshot holds."""
        last = self._last
        return 0 if last is None else last[1].nbytes

    def warn(self, reason: Reason) -> None:
        """Log a reason for which facts say nothing, once."""
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("%s (it says nothing; data is read in full)", reason)

    # -- reading ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The facts as they are now. Never raises: what cannot be read is in ``reasons``."""
        opened: dict[str, Part | Reason] = {}
        for _ in range(_TRIES):
            try:
                names = self.part_names()
            except Exception as error:
                reasons = [cause_of(f"facts at {self.location.root}", error)]
                self.warn(reasons[0])
                return Snapshot(self.location, self.storage, (), reasons, self.warn)
            if self._last is not None and self._last[0] == names.keys():
                return self._last[1]
            opened = self._open(names)
            if len(opened) == len(names):
                break
        reasons = [each for each in opened.values() if isinstance(each, Reason)]
        for reason in reasons:
            self.warn(reason)
        if not names:
            text = "no facts: nothing is indexed here"
            reasons = [Reason(cause=Cause.ABSENT, subject=self.location.root, text=text)]
        parts = [each for each in opened.values() if not isinstance(each, Reason)]
        snapshot = Snapshot(self.location, self.storage, parts, reasons, self.warn)
        # What the store did not give this time is asked for again the next time.
        passing = any(reason.cause is Cause.UNREADABLE for reason in reasons)
        whole = len(opened) == len(names) and not passing
        self._last = (frozenset(names), snapshot) if whole else None
        return snapshot

    def part_names(self) -> dict[str, tuple[int, int]]:
        """Size and mtime (ns) of every part that is listed now, by name."""
        listing = self.storage.list_all(self.location.facts)
        start = len(self.location.facts) + 1
        found = {}
        for at, path in enumerate(listing.paths):
            name = path[start:]
            if name.startswith(PREFIX) and "/" not in name:
                each = listing.object_id(at)
                scale = 10**9 // UNITS_PER_SECOND[each.unit]
                found[name] = (each.size or 0, each.mtime * scale)
        return found

    def _open(self, names: Mapping[str, tuple[int, int]]) -> dict[str, Part | Reason]:
        """The parts of these names, or why one says nothing; without those gone meanwhile."""
        known = self._parts

        def open_one(name: str) -> Part | Reason | None:
            found = known.get(name)
            passing = isinstance(found, Reason) and found.cause is Cause.UNREADABLE
            if found is not None and not passing:
                return found
            try:
                return open_part(self.location.part(name), *names[name], self.storage, self.keys)
            except FileNotFoundError:
                return None
            except Exception as error:  # whatever is wrong with a part, the query goes on
                return cause_of(f"fact part {name}", error)

        if self.storage.remote and len(names) > 1:
            with ThreadPoolExecutor(min(_PARALLEL, len(names))) as pool:
                results = list(pool.map(open_one, names))
        else:
            results = list(map(open_one, names))
        opened = {name: each for name, each in zip(names, results, strict=True) if each is not None}
        self._parts = opened
        return opened

    # -- writing ----------------------------------------------------------------------------------

    def write_part(
        self,
        facts: Iterable[FileFacts],
        definitions: Sequence[Index],
        schema: pa.Schema,
        fingerprint: str | None = None,
        inline_limit: int = INLINE_LIMIT,
        sealing: Sealing | None = None,
    ) -> tuple[str, ...]:
        """Publish facts, sidecars first, and return the names of the new parts.

        ``schema`` gives the type of each indexed column, ``fingerprint`` that of the reader's
        options where facts hang on them. Facts with an ``error`` are left out. Without facts the
        definitions alone are published: what a refresh will build. Sidecars of up to
        ``inline_limit`` bytes lie in the facts themselves; with ``sealing`` nothing is written in
        the clear. Usually one part; more beyond 256 MiB.

        Raises ``UnsupportedError`` where a kind cannot index its column's type.
        """
        built = time.time_ns() // 10**6  # orders definitions, nothing else hangs on it
        names = []
        for name, data in facts_to_parts(
            facts,
            definitions,
            schema,
            fingerprint or None,
            built,
            self.location,
            self.storage,
            inline_limit,
            sealing,
        ):
            self.storage.put(self.location.part(name), data)
            names.append(name)
        return tuple(names)

    # -- upkeep -----------------------------------------------------------------------------------

    def compact(self, list_data: Callable[[], Listing]) -> Compaction:
        """Rewrite the facts into few parts, without dead ones; see ``upkeep.compact``."""
        return compact(self, list_data)

    def drop_index(self, kind: str, column: str) -> tuple[Definition, ...]:
        """Remove one index from all facts; see ``upkeep.drop_index``."""
        return drop_index(self, kind, column)

    def vacuum(self, older_than: float = DAY, *, dry_run: bool = False) -> Vacuumed:
        """Remove what nobody names any more; see ``upkeep.vacuum``."""
        return vacuum(self, older_than, dry_run=dry_run)

    def check(self, listing: Listing, fingerprint: str | None = None) -> Check:
        """What is stale, missing, orphaned or damaged; see ``check.py``."""
        return check(self, listing, fingerprint or None)

    def drop(self) -> None:
        """Remove all facts and packs. What is published for Xskipper stays."""
        for directory in (self.location.facts, self.location.packs):
            for path in self.storage.list_all(directory).paths:
                self.storage.delete(path)
            self.storage.remove_empty(directory)
        self.storage.remove_empty(self.location.root)

    def now(self) -> int:
        """Nanoseconds since the epoch by the clock that sets mtimes in the store."""
        probe = f"{self.location.facts}/_probe-{uuid.uuid4().hex}"
        self.storage.put(probe, b"?")
        try:
            found = self.storage.stat(probe)
        finally:
            self.storage.delete(probe)
        return found.mtime * (10**9 // UNITS_PER_SECOND[found.unit])
