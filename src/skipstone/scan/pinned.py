"""Byte ranges of one version of a file, and of the files that its chunks name.

A file is pinned to the version that it had when it was first looked at; every later read checks it.
A file that has changed is a ``StaleError``: what was learnt of the old one would be wrong for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.bounds import ByteRange
from skipstone.errors import FormatError, StaleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.storage import Storage

__all__ = ["PinnedReader"]


class PinnedReader:
    """Reads from ``storage``; ``bytes_read`` counts what was asked for since it was made."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.bytes_read = 0
        self._versions: dict[str, ObjectId] = {}

    def pin(self, version: ObjectId) -> None:
        """From now on only this version of its path is read."""
        self._versions[version.path] = version

    def size(self, path: str) -> int:
        """The size in bytes of the pinned version of ``path``, which is looked up if need be."""
        if path not in self._versions:
            self.pin(self.storage.stat(path))
        size = self._versions[path].size
        assert size is not None  # as storages answer
        return size

    def read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """All of ``ranges``, near ones in one request.

        Raises ``StaleError`` for a file of another version, ``FormatError`` for a range that its
        file does not have, ``OSError`` for other trouble.
        """
        for each in ranges:
            if each.path not in self._versions:
                self.size(each.path)
        found = self.storage.read_ranges(ranges, self._versions)
        for each in ranges:
            if each not in found:
                self._missing(each)
            self.bytes_read += each.length
        return found

    def one(self, path: str, offset: int, length: int) -> memoryview:
        """One range."""
        wanted = ByteRange(path, offset, length)
        return self.read((wanted,))[wanted]

    def fetch(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """As ``read``, but what cannot be read is left out: for the planner, which fails open.

        A file that has changed is a ``StaleError`` here too.
        """
        found = self.storage.read_ranges(ranges, self._versions)
        if len(found) != len(ranges):
            for path in {each.path for each in ranges if each not in found}:
                self._check(path)
        self.bytes_read += sum(each.length for each in found)
        return found

    def _check(self, path: str) -> None:
        pinned = self._versions.get(path)
        current = self.storage.stat(path)
        if pinned is not None and not pinned.same_version(current):
            raise StaleError(
                f"{path} has changed since it was opened",
                hint="open it again",
            )

    def _missing(self, wanted: ByteRange) -> None:
        self._check(wanted.path)
        size = self.size(wanted.path)
        if wanted.offset + wanted.length > size:
            raise FormatError(
                "the file ends within what its metadata promise",
                file=wanted.path,
                offset=wanted.offset,
                expected=f"{wanted.length} bytes",
                got=max(size - wanted.offset, 0),
            )
        raise OSError(f"{wanted.path}: {wanted.length} bytes at {wanted.offset} cannot be read")
