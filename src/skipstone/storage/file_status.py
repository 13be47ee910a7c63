"""Hadoop's ``FileStatus`` as text: path, length and modification time of many files at once.

A call into the JVM for each field of each file would take seconds for a thousand files. The
``toString`` of all of them, joined in the JVM, comes in one call. Each prints as

    LocatedFileStatus{path=<raw path>; isDirectory=false; length=814; replication=1; blocksize=…;
    modification_time=1795219866252; access_time=…; owner=…; …}

where a path may contain any text, even ``; length=``. So it is parsed from the right: only numbers,
flags and names without ``;`` follow the path, so the last ``; isDirectory=`` ends the path. A text
that does not match from end to end raises ``ListingError``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from skipstone.identity import TimeUnit


# The text before the path, and after ``; isDirectory=``. One pattern for all of it would backtrack
# over every status character by character.
# S3A prints a located status within another one.
_BEFORE = re.compile(r"(?:FileStatusWithMetadata\()?(?:\w+\{)?\w+")
_AFTER = re.compile(
    r"(?:true|false); length=(\d+); replication=\d+; blocksize=\d+; "
    r"modification_time=(-?\d+); access_time=-?\d+; owner=[^;]*; group=[^;]*; "
    r"permission=[^;]*; isSymlink=(?:true|false)(?:; symlink=[^;]*)?"
    r"(?:; (?:hasAcl|isEncrypted|isErasureCoded)=(?:true|false))*\}([^{};]*(?:\}[^{};]*)?)"
)
# A directory has neither a length nor a replication.
_DIRECTORY = re.compile(r"true; modification_time=-?\d+; [^{}]*\}[^{};]*")
# The etag as the store returns it: that of S3 has double quotes.
_ETAG = re.compile(r"eTag='([^']+)'", re.IGNORECASE)


class ListingError(ValueError):
    """The text of a listing does not parse for certain."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileStatuses:
    """Parallel sequences: ``paths`` as Hadoop prints them, ``sizes`` in bytes, ``mtimes`` in
    ``unit``; ``etags`` per file, ``None`` where no file has one."""

    paths: Sequence[str]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    etags: tuple[str | None, ...] | None = None
    unit: TimeUnit = "ms"

    @classmethod
    def parse(cls, texts: Sequence[str]) -> FileStatuses:
        """One text per file. Raises ``ListingError``."""
        after, before = _AFTER.fullmatch, set[str]()
        fields: list[tuple[str, str, str]] = []
        paths: list[str] = []
        for text in texts:
            head, _, tail = text.rpartition("; isDirectory=")
            start, opened, path = head.partition("{path=")
            found = after(tail)
            if start not in before and _BEFORE.fullmatch(start):
                before.add(start)
            if found is None or not opened or start not in before:
                raise ListingError(f"unknown text of a file status: {text[:200]}")
            paths.append(path)
            length, mtime, rest = found.groups()
            fields.append((length, mtime, rest))
        etags = None
        if any("tag=" in rest.lower() for rest in {rest for _, _, rest in fields}):
            tags = [_ETAG.search(rest) for _, _, rest in fields]
            etags = tuple(tag and tag[1] for tag in tags)
        return cls(
            paths=paths,
            sizes=np.array([int(length) for length, _, _ in fields], np.int64),
            mtimes=np.array([int(mtime) for _, mtime, _ in fields], np.int64),
            etags=etags,
        )


def is_directory(text: str) -> bool:
    """Whether the status that prints as ``text`` is that of a directory."""
    return _DIRECTORY.fullmatch(text.rpartition("; isDirectory=")[2]) is not None
