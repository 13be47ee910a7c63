"""``XskipperStore``: a foreign store in the place of a table's facts. It is only read.

``find_store`` returns the store of a table: Skipstone's own, or a foreign one where the user names
its place. Nothing else is searched: the default place has only our own facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.pruning import Cause, Reason
from skipstone.storage import open_storage
from skipstone.xskipper.store import find_directory, open_parts, part_files

from .location import KeyedLocation, Location, XskipperLocation
from .store import Store
from .xskipper_snapshot import XskipperPart, XskipperSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.master_keys import LabelledKeys
    from skipstone.storage import Storage


class XskipperStore(Store):
    """The store of Xskipper in the directory ``location.root``; see the module.

    ``decryption``: pyarrow's ``FileDecryptionProperties`` with the user's keys. ``same_reader``:
    the user states that the table is read as it was when the store was built.
    """

    def __init__(
        self,
        location: Location | str,
        storage: Storage,
        *,
        decryption: object | None = None,
        same_reader: bool = False,
    ) -> None:
        super().__init__(location, storage)
        self.decryption, self.same_reader = decryption, same_reader
        self._listed: dict[str, tuple[int, int]] | None = None
        self._snapshot: XskipperSnapshot | None = None

    def __repr__(self) -> str:
        return f"XskipperStore({self.location.root!r})"

    def exists(self) -> bool:
        """True when the directory exists."""
        return self.storage.has_children(self.location.root)

    def part_names(self) -> dict[str, tuple[int, int]]:
        """Size and mtime (ns) of every part, by name."""
        start = len(self.location.root) + 1
        files = part_files(self.storage, self.location.root)
        return {path[start:]: at for path, at in files.items()}

    def snapshot(self) -> XskipperSnapshot:
        """The store as it is now. Never raises: what cannot be read is in ``reasons``."""
        root = self.location.root
        try:
            files = part_files(self.storage, root)
        except Exception as error:
            reason = Reason.of_error(f"store of Xskipper at {root}", error)
            self.warn(reason)
            return XskipperSnapshot(self.location, self.storage, (), [reason], self.warn)
        if self._snapshot is not None and files == self._listed:
            return self._snapshot
        reasons: list[Reason] = []
        parts: list[XskipperPart] = []
        for found in open_parts(self.storage, files, self.decryption):
            if not isinstance(found, Reason):
                try:
                    parts.append(XskipperPart.of(found))
                    continue
                except Exception as error:  # foreign bytes
                    found = Reason.of_error(f"part {found.name}", error)
            reasons.append(found)
            self.warn(found)
        if not files:
            text = "no store of Xskipper: nothing is indexed here"
            reasons.append(Reason(cause=Cause.ABSENT, subject=root, text=text))
        snapshot = XskipperSnapshot(self.location, self.storage, parts, reasons, self.warn)
        snapshot.same_reader = self.same_reader
        if len(parts) == len(files):
            self._snapshot, self._listed = snapshot, files
        return snapshot

    # -- a foreign store is not written to --------------------------------------------------------

    def require_own(self) -> NoReturn:
        """Raises ``UnsupportedError``: a foreign store is not written to."""
        snapshot = self.snapshot()
        locked = [r for r in snapshot.reasons if r.cause is Cause.UNDECRYPTABLE]
        encrypted = locked or any(part.stored.footer.schema.encryption for part in snapshot.parts)
        raise UnsupportedError(
            f"{self.location.root} is a store of Xskipper{', encrypted' if encrypted else ''}: "
            "it is read, and never built or refreshed",
            hint="build an index of Skipstone's own in another place, or adjacent to the table",
        )

    def write_part(self, *facts: object, **more: object) -> NoReturn:
        """Raises ``UnsupportedError``."""
        self.require_own()

    def drop(self) -> None:
        """Raises ``UnsupportedError``."""
        self.require_own()


def find_store(
    table: str,
    index_location: str | XskipperLocation | KeyedLocation | None = None,
    options: Mapping[str, str] | None = None,
    keys: LabelledKeys | None = None,
) -> Store:
    """The store of ``table``: in its default place, or at ``index_location``.

    ``keys`` open an encrypted one, ours or foreign. ``UnsupportedError`` as ``Location.of_table``
    has it. An empty place is one for our own facts.
    """
    if isinstance(index_location, KeyedLocation):
        keys, index_location = index_location.keys, index_location.path
    if index_location is None:
        return Store.of_table(table, None, options, keys)
    named = index_location
    if isinstance(named, str):
        named = XskipperLocation(named)
    base = canonical_path(named.path)
    storage = open_storage(base, options)
    try:
        directory = find_directory(storage, base, canonical_path(table))
    except SkipstoneError:  # it cannot be listed: the next reader reports it
        directory = None
    if directory is None and isinstance(index_location, str):
        return Store.of_table(table, index_location, options, keys)
    decryption = named.decryption
    if decryption is None and keys is not None:
        from skipstone.parquet.encryption.master_keys import arrow_decryption

        decryption = arrow_decryption(keys)
    return XskipperStore(
        Location(directory or base),
        storage,
        decryption=decryption,
        same_reader=named.same_reader,
    )
