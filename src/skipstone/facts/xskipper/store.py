"""``XskipperStore``: a foreign store where a table's facts are looked for. It is only read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

from skipstone.errors import UnsupportedError
from skipstone.facts.store import Store
from skipstone.identity import UNITS_PER_SECOND
from skipstone.pruning import Cause, Reason
from skipstone.storage import hidden_by_spark
from skipstone.xskipper.format.part import read_footer

from .snapshot import XskipperPart, XskipperSnapshot, fields_of, reason_of, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from skipstone.facts.file_facts import FileFacts
    from skipstone.facts.index_encryption import Sealing
    from skipstone.facts.location import Location
    from skipstone.pruning.kind import Index
    from skipstone.storage import Storage

__all__ = ["XskipperStore", "part_files"]


def part_files(storage: Storage, directory: str) -> dict[str, tuple[int, int]]:
    """Size and mtime (ns) of every part of the store at ``directory``, by its path."""
    listing = storage.list_all(directory)
    start = len(directory) + 1
    scale = 10**9 // UNITS_PER_SECOND[listing.unit]
    found = {}
    for path, size, mtime in zip(
        listing.paths, listing.sizes.tolist(), listing.mtimes.tolist(), strict=True
    ):
        name = path[start:]
        if "/" not in name and name.endswith(".parquet") and not hidden_by_spark(name):
            found[path] = (size, mtime * scale)
    return found


class XskipperStore(Store):
    """The store of Xskipper in the directory ``location.root``; see the module.

    ``decryption``: pyarrow's ``FileDecryptionProperties`` with the user's keys. ``same_reader``:
    the user vouches that the table is read as it was when the store was built.
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
        self._read: dict[str, XskipperPart | Reason] = {}
        self._listed: dict[str, tuple[int, int]] | None = None
        self._snapshot: XskipperSnapshot | None = None

    def __repr__(self) -> str:
        return f"XskipperStore({self.location.root!r})"

    def exists(self) -> bool:
        """True when the directory is there."""
        return self.storage.has_children(self.location.root)

    def part_names(self) -> dict[str, tuple[int, int]]:
        """Size and mtime (ns) of every part, by name."""
        start = len(self.location.root) + 1
        return {path[start:]: at for path, at in self._files().items()}

    def _files(self) -> dict[str, tuple[int, int]]:
        return part_files(self.storage, self.location.root)

    def snapshot(self) -> XskipperSnapshot:
        """The store as it is now. Never raises: what cannot be read is in ``reasons``."""
        root = self.location.root
        try:
            files = self._files()
        except Exception as error:
            reason = reason_of(f"store of Xskipper at {root}", error)
            self.warn(reason)
            return XskipperSnapshot(self.location, self.storage, (), [reason], self.warn)
        if self._snapshot is not None and files == self._listed:
            return self._snapshot
        reasons: list[Reason] = []
        parts: list[XskipperPart] = []
        for found in self._opened(files):
            if isinstance(found, Reason):
                reasons.append(found)
                self.warn(found)
            else:
                parts.append(found)
        if not files:
            text = "no store of Xskipper: nothing is indexed here"
            reasons.append(Reason(cause=Cause.ABSENT, subject=root, text=text))
        snapshot = XskipperSnapshot(self.location, self.storage, parts, reasons, self.warn)
        snapshot.same_reader = self.same_reader
        if len(parts) == len(files):
            self._snapshot, self._listed = snapshot, files
        return snapshot

    def _opened(self, files: dict[str, tuple[int, int]]) -> list[XskipperPart | Reason]:
        # The caller's key service may not be made for threads.
        if self.decryption is not None or len(files) < 2:
            return [self._open_one(path, *at) for path, at in files.items()]
        with ThreadPoolExecutor(min(8, len(files))) as pool:
            return list(pool.map(lambda item: self._open_one(item[0], *item[1]), files.items()))

    def _open_one(self, path: str, size: int, mtime: int) -> XskipperPart | Reason:
        name = path.rpartition("/")[2]
        try:
            with source(self.storage, path) as file:
                footer = read_footer(file, file=path, decryption=self.decryption)
            footer.schema.require_usable()
            assert footer.metadata is not None
            return XskipperPart(
                name=name,
                path=path,
                size=size,
                mtime=mtime,
                metadata=footer.metadata,
                schema=footer.metadata.schema.to_arrow_schema(),
                fields=fields_of(footer),
                footer=footer,
                decryption=self.decryption,
            )
        except Exception as error:  # foreign bytes, and the caller's key service
            return reason_of(f"part {name}", error)

    # -- what is not done to somebody else's store -------------------------------------------------

    def require_own(self) -> NoReturn:
        """Raises ``UnsupportedError``: a foreign store is not written to."""
        snapshot = self.snapshot()
        locked = [r for r in snapshot.reasons if r.cause is Cause.UNDECRYPTABLE]
        encrypted = locked or any(part.footer.schema.encryption for part in snapshot.parts)
        raise UnsupportedError(
            f"{self.location.root} is a store of Xskipper{', encrypted' if encrypted else ''}: "
            "it is read, and never built or refreshed",
            hint="build an index of Skipstone's own in another place, or beside the table",
        )

    def write_part(
        self,
        facts: Iterable[FileFacts],
        definitions: Sequence[Index],
        schema: pa.Schema,
        fingerprint: str | None = None,
        inline_limit: int = 0,
        sealing: Sealing | None = None,
    ) -> tuple[str, ...]:
        """Raises ``UnsupportedError``."""
        self.require_own()

    def drop(self) -> None:
        """Raises ``UnsupportedError``."""
        self.require_own()
