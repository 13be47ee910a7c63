"""``Store``: the facts of one table. Adding needs no lock, reading sees the union of all parts.

Every operation leaves the store usable wherever it is interrupted: a part appears completely or not
at all, a rewritten part is written before the parts that it replaces are deleted, and a fact may be
stored twice.
"""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError, UnsupportedError
from skipstone.pruning import Cause, Reason
from skipstone.storage import ByteRange, open_storage, remove_left_overs

from .location import Location
from .part_columns import INLINE_LIMIT
from .parts import MERGED, PREFIX, Part, open_part
from .read_ahead import END, HeldObject, ReadAhead, ends_of
from .snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.pruning.kind import Index
    from skipstone.storage import Storage

    from .encode import FileFacts
    from .encrypted_packs import EncryptedPacks
    from .index_encryption import IndexEncryption, WriteEncryption


log = logging.getLogger("skipstone")

# A part that a compaction replaces while a snapshot is taken is seen in the next listing.
_TRIES = 3
# Footers that are read from an object store at once.
_PARALLEL = 32
_KEYS = "open the table with index_keys, or pass --index-key LABEL=SOURCE"


@lru_cache(maxsize=64)
def _warn_of_merges(root: str) -> None:
    """Warns once per index and process: tables that are built side by side have several stores."""
    text = "some parts were merged by another writer after they were listed"
    log.warning("facts at %s: %s (they say nothing; data is read in full)", root, text)


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
        self.storage, self.keys = storage, keys
        self._encrypted: EncryptedPacks | None = None
        if keys is not None:
            from .encrypted_packs import EncryptedPacks

            self._encrypted = EncryptedPacks(storage, keys, self.warn)
        #: bytes of an object store that a plan will need
        self.ahead = ReadAhead(storage) if storage.remote else None
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
        storage: Storage | None = None,
    ) -> Store:
        """The store of the table at ``table``, in its default place or at ``index_location``.

        ``storage`` is that of the table: over the connections of one client, requests to its own
        bucket need no new ones.
        """
        location = Location.of_table(table, index_location)
        if storage is None or not storage.holds(location.root):
            storage = open_storage(location.root, options)
        return cls(location, storage, keys)

    def __repr__(self) -> str:
        return f"Store({self.location.root!r})"

    def exists(self) -> bool:
        """True when something was ever stored here."""
        return self.storage.has_children(self.location.facts)

    def require_own(self) -> None:
        """Raises ``UnsupportedError`` for a foreign store, which is only read."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index columns that the last snapshot holds."""
        last = self._last
        return 0 if last is None else last[1].nbytes

    def warn(self, reason: Reason) -> None:
        """Log once why some facts prove nothing."""
        if MERGED in reason.text:
            _warn_of_merges(self.location.root)
        elif reason not in self._warned:
            self._warned.add(reason)
            log.warning("%s (it says nothing; data is read in full)", reason)

    # -- reading ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The facts as they are now. Never raises: what cannot be read is in ``reasons``."""
        opened: dict[str, Part | Reason] = {}
        for _ in range(_TRIES):
            try:
                names, slices = self._objects()
            except Exception as error:
                reasons = [Reason.of_error(f"facts at {self.location.root}", error)]
                self.warn(reasons[0])
                return Snapshot(self.location, self.storage, (), reasons, self.warn)
            key = frozenset((*names, *(f"slices of {name}" for name in slices)))
            if self._last is not None and self._last[0] == key:
                return self._last[1]
            self._read_ends(names, slices)
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
        snapshot = Snapshot(
            self.location,
            self.storage,
            parts,
            reasons,
            self.warn,
            self._encrypted,
            {name: id.size or 0 for name, id in slices.items()},
            self.ahead,
        )
        # Parts that could not be read this time are read again the next time.
        transient = any(reason.cause is Cause.UNREADABLE for reason in reasons)
        whole = len(opened) == len(names) and not transient
        self._last = (key, snapshot) if whole else None
        return snapshot

    def part_names(self) -> dict[str, tuple[int, int]]:
        """Size and mtime (ns) of every part that is listed now, by name."""
        return {name: (id.size or 0, id.mtime_ns) for name, id in self._objects()[0].items()}

    def _objects(self) -> tuple[dict[str, ObjectId], dict[str, ObjectId]]:
        """The parts that are listed now, and their bit slices, by the names of the parts."""
        listing = self.storage.list_all(self.location.facts)
        start = len(self.location.facts) + 1
        found, slices = {}, {}
        for at, path in enumerate(listing.paths):
            name = path[start:]
            if name.startswith(PREFIX) and "/" not in name:
                found[name] = listing.object_id(at)
            elif self.location.is_slices(path):
                slices[self.location.part_of_slices(path)] = listing.object_id(at)
        return found, {name: id for name, id in slices.items() if name in found}

    def _read_ends(self, parts: Mapping[str, ObjectId], slices: Mapping[str, ObjectId]) -> None:
        """Reads the ends of new parts and of the bit slices, in one wave of an object store."""
        if self.ahead is None:
            return
        new = [id for name, id in parts.items() if not isinstance(self._parts.get(name), Part)]
        wanted = ends_of(new)
        for id in slices.values():
            length = min(id.size or 0, END)
            wanted.append(ByteRange(id.path, (id.size or 0) - length, length))
        versions = {id.path: id for id in (*new, *slices.values())}
        self.ahead.fetch(wanted, versions)

    def _open(self, names: Mapping[str, ObjectId]) -> dict[str, Part | Reason]:
        """The parts of these names, or why one proves nothing; without those deleted meanwhile."""
        known = self._parts

        def open_one(name: str) -> Part | Reason | None:
            found = known.get(name)
            transient = isinstance(found, Reason) and found.cause is Cause.UNREADABLE
            if found is not None and not transient:
                return found
            try:
                id = names[name]
                held = None if self.ahead is None else HeldObject(self.ahead, id)
                return open_part(id.path, id.size or 0, id.mtime_ns, self.storage, self.keys, held)
            except FileNotFoundError:
                return None
            except Exception as error:  # whatever is wrong with a part, the query continues
                return Reason.of_error(f"fact part {name}", error)

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
        encryption: WriteEncryption | None = None,
        job: str | None = None,
    ) -> tuple[str, ...]:
        """Publish facts, sidecars first, and return the names of the new parts.

        ``schema`` gives the type of each indexed column, ``fingerprint`` that of the reader's
        options where facts depend on them. Facts with an ``error`` are left out. Without facts the
        definitions alone are published: a refresh builds them. Sidecars of up to ``inline_limit``
        bytes lie in the facts themselves; with ``encryption`` nothing is written in the clear.
        ``job`` names the build. Usually one part; more beyond 256 MiB.

        Raises ``UnsupportedError`` where a kind cannot index its column's type.
        """
        from .encode import PartTarget, facts_to_parts

        built = time.time_ns() // 10**6  # only orders definitions
        target = PartTarget(
            self.location, self.storage, fingerprint or None, inline_limit, encryption, job
        )
        names: list[str] = []
        part = None
        try:
            for name, data, files in facts_to_parts(facts, definitions, schema, built, target):
                part = self.location.part(name)
                self.storage.put(part, data, files)
                target.packs.clear()
                names.append(name)
                part = None
        except BaseException:
            # E.g. on a full disk, where packs that no part names would keep it full.
            with suppress(OSError):
                self.storage.delete(*filter(None, [part]), *target.packs)
            raise
        return tuple(names)

    def withdraw(self, job: str, before: Collection[str], kept: Collection[str]) -> bool:
        """Delete the parts that ``job`` wrote, except those in ``before`` and ``kept``. Returns
        whether any part is not in ``before``. The next ``vacuum`` removes their packs."""
        new = {name: id for name, id in self._objects()[0].items() if name not in before}
        lost = self._open({name: id for name, id in new.items() if name not in kept})
        for part in lost.values():
            if isinstance(part, Part) and part.job == job:
                self.storage.delete(part.path)
        return bool(new)

    def encryption_to_write(
        self, requested: IndexEncryption | None = None
    ) -> WriteEncryption | None:
        """How to encrypt new parts, with this store's keys; ``None`` for a store in the
        clear.

        ``requested`` says how a new store is encrypted, and adds labels of new indexes. Raises
        ``UnsupportedError`` where the store is in the clear and keys were given, where keys were
        given for a new one without saying how, or where an index has another label already;
        ``KeyUnavailableError`` where the store is encrypted and its footer key is not available.
        """
        from .index_encryption import WriteEncryption

        snapshot, keys = self.snapshot(), self.keys
        found = snapshot.encryption
        if found is None:
            locked = [r for r in snapshot.reasons if r.cause is Cause.UNDECRYPTABLE]
            if locked:
                raise KeyUnavailableError(f"the index is encrypted: {locked[0].text}", hint=_KEYS)
            if requested is None and keys is None:
                return None
            if self.part_names():
                raise UnsupportedError(
                    "the index is in the clear: encrypting new parts would leave the old ones so",
                    hint="drop it and build it encrypted, or continue without keys and encryption",
                )
            if requested is None:
                raise UnsupportedError(
                    "keys for the index were given without an encryption",
                    hint="build with encryption=IndexEncryption(footer_key=LABEL)",
                )
        if keys is None:
            raise KeyUnavailableError("an encrypted index needs keys", hint=_KEYS)
        if found is None:
            assert requested is not None
            found = requested
        elif requested is not None:
            found = found.extended(requested, snapshot.definitions)
        keys.require(found.footer_key)
        return WriteEncryption(found, keys)

    def pack_damage(self, path: str) -> str | None:
        """What is wrong with the encrypted pack at ``path``; ``None`` for nothing."""
        return None if self._encrypted is None else self._encrypted.damage(path)

    def drop(self) -> None:
        """Remove all facts and packs. What is published for Xskipper stays, and so does every file
        whose name Skipstone does not make."""
        for directory in (self.location.facts, self.location.packs):
            listed = self.storage.list_all(directory).paths
            self.storage.delete(*filter(self.location.is_own, listed))
        self.remove_empty()

    def remove_empty(self) -> None:
        """Remove empty directories, which an interrupted drop leaves."""
        for directory in (self.location.facts, self.location.packs, self.location.root):
            self.storage.remove_empty(directory)

    def remove_left_overs(self) -> None:
        """Remove the temporary files of killed builds."""
        for directory in (self.location.facts, self.location.packs):
            remove_left_overs(self.storage, directory)

    def now(self) -> int:
        """Nanoseconds since the epoch by the clock that sets mtimes in the store."""
        probe = f"{self.location.facts}/_probe-{uuid.uuid4().hex}"
        self.storage.put(probe, b"?")
        try:
            return self.storage.stat(probe).mtime_ns
        finally:
            self.storage.delete(probe)
