"""Footers of a table's files from its ``_metadata``: one request in place of one for each file.

A footer is taken from there only for a file whose size, mtime and etag in the listing are those
that it had when its footer was read for the summary (``formats/parquet/summary_file.py``). A file
that was added, replaced or appended to since is opened itself, and so is every file where the
summary is another's: it does not say of which versions it is, and nothing else can prove it. Pages
are read of the listed version only, as ever.

The summary is read when several files are to be opened, and those would take more to read than it.
"""

from __future__ import annotations

import io
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

from skipstone.errors import FormatError, SkipstoneError, StaleError, UnsupportedError
from skipstone.human import of_total, size
from skipstone.identity import ObjectId
from skipstone.parquet.format.footer import Tail
from skipstone.parquet.format.summary_file import Summary, is_own
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.opened_footer import TAIL_GUESS, OpenedFooter
from skipstone.parquet.reading.pinned_reader import PinnedReader
from skipstone.pruning import Cause, Reason
from skipstone.storage.listing import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skipstone.storage import Listing, Storage

__all__ = ["SummaryFooters", "load_summary"]

# Fewer files are opened sooner themselves.
_FEW = 2
# Bytes of a summary that take as long to read as one file to open.
_WORTH, _REMOTE_WORTH = 256 << 10, 1 << 20
# Longer ones are looked at from their end first: another's is no use.
_AT_ONCE = 8 << 20
# A table's footers are not held beyond this.
_LONGEST = 1 << 30


def load_summary(storage: Storage, id: ObjectId) -> Summary:
    """The summary that is this version of ``_metadata``.

    ``UnsupportedError`` for another's, ``FormatError`` for a damaged one, ``StaleError`` and other
    ``OSError`` where it cannot be read.
    """
    length = id.size or 0
    if length > _LONGEST:
        raise UnsupportedError(f"it is {size(length)} long, and at most 1 GiB is held")
    wanted = length if length <= _AT_ONCE else TAIL_GUESS
    found, data = storage.read_tail(id.path, wanted)
    if found.size is not None and found.size > len(data):
        if is_own(data):
            found, data = storage.read_tail(id.path, found.size)
        else:
            data = data[:0]
    if not found.same_version(id):
        raise StaleError("it is being replaced")
    if not is_own(data):
        raise UnsupportedError("it does not say of which versions of its files it is")
    return Summary.from_bytes(data)


class SummaryFooters:
    """What the ``_metadata`` of the table at ``root`` knows of its files; see the module."""

    def __init__(self, root: str, storage: Storage) -> None:
        self.root, self.storage = root, storage
        self._lock = Lock()
        self._id: ObjectId | None = None
        self._summary: Summary | None = None
        self._at: dict[str, int] = {}
        self._why: Reason | None = None
        self._counted: tuple[Listing, Summary, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A table travels to Spark's workers; what was read stays here, and so does the lock.
        return (type(self), (self.root, self.storage))

    def files(self, ids: Sequence[ObjectId]) -> list[ParquetFile | None]:
        """The files of these versions by the footers in the summary; ``None`` where it knows none.

        Nothing but the summary is read for it.
        """
        with self._lock:
            found = self._find(ids)
            missing = sum(each is None for each in found)
            if missing >= _FEW and self._renew(missing):
                found = self._find(ids)
            summary = self._summary
        if summary is None:
            return [None] * len(ids)
        return [
            None if at is None else self._file(summary, id, at)
            for id, at in zip(ids, found, strict=True)
        ]

    def opener(
        self, listing: Listing, opened: Sequence[int], otherwise: Callable[[str], BinaryIO]
    ) -> Callable[[str], BinaryIO]:
        """Opens files of ``listing`` for their schema alone: those that the summary knows as files
        of no rows, ``otherwise`` the others. So many as ``opened`` will be asked for."""
        ids = {listing.paths[at]: listing.object_id(at) for at in opened}
        with self._lock:
            found = self._find(list(ids.values()))
            if found.count(None) >= _FEW and self._renew(found.count(None)):
                found = self._find(list(ids.values()))
            known = dict(zip(ids, found, strict=True))
            summary = self._summary

        def open_(path: str) -> BinaryIO:
            at = known.get(path)
            if at is None or summary is None:
                return otherwise(path)
            return io.BytesIO(summary.head_file(at))

        return open_

    def known(self, listing: Listing) -> int:
        """Of how many files of ``listing`` it has the footers, as far as it was read."""
        with self._lock:
            if self._summary is None:
                return 0
            held = self._counted
            if held is None or held[1] is not self._summary or not held[0].same_files(listing):
                ids = [listing.object_id(at) for at in range(len(listing))]
                count = len(ids) - self._find(ids).count(None)
                held = self._counted = listing, self._summary, count
            return held[2]

    def reasons(self, listing: Listing) -> tuple[Reason, ...]:
        """Why it was not used for all files of ``listing``; none where nobody looked."""
        lacking, why = len(listing) - self.known(listing), self._why
        if why is not None:
            return (why,)
        if not lacking or self._summary is None:
            return ()
        files = of_total(lacking, len(listing), "files")
        text = f"{files} are new, or not as they were: their own footers are read"
        return (Reason(cause=Cause.STALE, subject=SUMMARY, text=text),)

    def _renew(self, missing: int) -> bool:
        """Read the summary anew, if there is another one now, and it is worth it."""
        current = self.storage.summary(self.root)
        if current is None:
            self._forget(None)
            return False
        if self._id is not None and self._id.same_version(current):
            return False
        worth = _REMOTE_WORTH if self.storage.remote else _WORTH
        if (current.size or 0) > worth * missing:
            return False
        self._forget(current)
        try:
            self._summary = load_summary(self.storage, current)
        except (SkipstoneError, OSError, ValueError) as error:
            self._why = _reason(error)
            return False
        self._at = {
            f"{self.root}/{each.path}": at for at, each in enumerate(self._summary.versions.files)
        }
        return True

    def _forget(self, id: ObjectId | None) -> None:
        self._id, self._summary, self._at, self._why = id, None, {}, None

    def _find(self, ids: Sequence[ObjectId]) -> list[int | None]:
        """The place of each file in the summary, where that has its version."""
        summary = self._summary
        if summary is None:
            return [None] * len(ids)
        files, unit = summary.versions.files, summary.versions.unit
        found: list[int | None] = []
        for id in ids:
            at = self._at.get(id.path)
            if at is not None:
                held = files[at]
                version = ObjectId(
                    path=id.path, size=held.size, mtime=held.mtime, unit=unit, etag=held.etag
                )
                if not version.same_version(id) or not summary.is_sound(at):
                    at = None
            found.append(at)
        return found

    def _file(self, summary: Summary, id: ObjectId, at: int) -> ParquetFile:
        length = summary.versions.files[at].footer_length
        reader = PinnedReader(self.storage)
        reader.pin(id)
        tail = Tail(id.size or 0, length, False)
        return ParquetFile.of_footer(id, reader, OpenedFooter(tail=tail, footer=summary.part(at)))


def _reason(error: Exception) -> Reason:
    text = error.message if isinstance(error, SkipstoneError) else str(error)
    cause = Cause.UNREADABLE
    if isinstance(error, UnsupportedError):
        cause = Cause.UNSUPPORTED
    elif isinstance(error, FormatError):
        cause = Cause.CORRUPT
    elif isinstance(error, StaleError):
        cause = Cause.STALE
    return Reason(cause=cause, subject=SUMMARY, text=f"{text}: the files' own footers are read")
