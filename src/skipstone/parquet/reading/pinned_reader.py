"""Reads byte ranges of one version of a file, and of the files that its chunks name.

A file is pinned to the version that it had at the first access; every later read checks it. A file
that has changed is a ``StaleError``: metadata of the old version would be wrong for the new one.

For a file that another process appends to, only the beginning is pinned (``pin_beginning``): it may
grow meanwhile, and must stay the same file. No byte behind the pinned size is ever read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skipstone.errors import FormatError, StaleError
from skipstone.storage import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.errors import SkipstoneError
    from skipstone.identity import ObjectId
    from skipstone.storage import Storage


class PinnedReader:
    """Reads from ``storage``; ``bytes_read`` counts the bytes that were requested."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.bytes_read = 0
        self._versions: dict[str, ObjectId] = {}
        #: those that every read of the path is checked against
        self._exact: dict[str, ObjectId] = {}
        self._growing: dict[str, ObjectId] = {}
        self._refused: dict[str, SkipstoneError] = {}

    def refuse(self, path: str, error: SkipstoneError) -> None:
        """From now on reads of ``path`` raise this error."""
        self._refused[path] = error

    def pin(self, version: ObjectId) -> None:
        """From now on only this version of its path is read."""
        self._versions[version.path] = self._exact[version.path] = version

    def pin_beginning(self, version: ObjectId, size: int) -> ObjectId:
        """From now on only the first ``size`` bytes of its path are read, and the file may grow;
        returns their identity. Objects in a store never grow: a changed one is another version.

        ``StaleError`` where ``version`` is shorter than ``size``.
        """
        given: object = size
        if not isinstance(given, int) or given < 0:
            raise ValueError(f"size is the bytes of the file that count, 0 or more, not {given!r}")
        if version.size is None or version.size < size:
            raise StaleError(
                f"{version.path} is shorter than its metadata say: {version.size} of {size} bytes",
                hint="it was restored or written by something else: open it again",
            )
        beginning = replace(version, size=size)
        self._versions[version.path] = beginning
        if self.storage.remote:
            self._exact[version.path] = version
        else:
            self._growing[version.path] = beginning
        return beginning

    def size(self, path: str) -> int:
        """Bytes of the pinned version of ``path``; an unknown path is pinned now."""
        if path not in self._versions:
            if path in self._refused:
                raise self._refused[path]
            self.pin(self.storage.stat(path))
        size = self._versions[path].size
        assert size is not None  # storages always give it
        return size

    def read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """All of ``ranges``, near ones in one request.

        Raises ``StaleError`` for a file of another version, ``FormatError`` for a range that its
        file does not have, ``OSError`` for other errors.
        """
        for each in ranges:
            if each.path not in self._versions:
                self.size(each.path)
        found = self._read(ranges)
        for each in ranges:
            if each not in found:
                self._missing(each)
            self.bytes_read += each.length
        return found

    def _read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        inside = [each for each in ranges if self._has(each)]
        found = self.storage.read_ranges(inside, self._exact)
        for path in {each.path for each in inside if each.path in self._growing}:
            self._check(path)
        return found

    def _has(self, each: ByteRange) -> bool:
        known = self._versions.get(each.path)
        return known is None or known.size is None or each.offset + each.length <= known.size

    def one(self, path: str, offset: int, length: int) -> memoryview:
        """One range."""
        wanted = ByteRange(path, offset, length)
        return self.read((wanted,))[wanted]

    def fetch(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """As ``read``, but leaves out what cannot be read: for the planner, which fails open.

        A file that has changed is a ``StaleError`` here too.
        """
        found = self._read(ranges)
        if len(found) != len(ranges):
            for path in {each.path for each in ranges if each not in found}:
                self._check(path)
        self.bytes_read += sum(each.length for each in found)
        return found

    def _check(self, path: str) -> None:
        current = self.storage.stat(path)
        beginning, pinned = self._growing.get(path), self._exact.get(path)
        if (pinned is not None and not pinned.same_version(current)) or (
            beginning is not None and not _is_longer(current, beginning)
        ):
            raise StaleError(
                f"{path} has changed since it was opened",
                hint="open it again",
            )

    def _missing(self, wanted: ByteRange) -> None:
        self._check(wanted.path)
        size = self.size(wanted.path)
        if wanted.offset + wanted.length > size:
            raise FormatError(
                "the file ends within a range that its metadata name",
                file=wanted.path,
                offset=wanted.offset,
                expected=f"{wanted.length} bytes",
                got=max(size - wanted.offset, 0),
            )
        raise OSError(f"{wanted.path}: {wanted.length} bytes at {wanted.offset} cannot be read")


def _is_longer(current: ObjectId, beginning: ObjectId) -> bool:
    """Whether a local file is still the same one: the same inode, and not truncated."""
    inodes = [(each.etag or "").partition("-")[0] for each in (current, beginning)]
    assert current.size is not None
    assert beginning.size is not None
    return inodes[0] == inodes[1] and current.size >= beginning.size
