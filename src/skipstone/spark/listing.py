"""The files behind a relation, from one text: ``FileListing``.

**Local files**: Spark's URIs come joined in one call, and the file system has the rest, so that
facts are matched with the current versions (``of_local``).

**Elsewhere**: ``mkString`` of Spark's ``FileStatus`` objects brings path, length and modification
time of every file in one call, with a random separator between them (``parse``). Each prints as

    LocatedFileStatus{path=<raw path>; isDirectory=false; length=814; replication=1; blocksize=…;
    modification_time=1795219866252; access_time=…; owner=…; …}

where a path may contain any text, also ``; length=``. It is parsed from the right: after the path
come only numbers, flags and names without ``;``, so the last ``; isDirectory=`` ends the path. A
text that does not match from end to end raises ``ListingError``, and every file is read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from skipstone.identity import canonical_path, encode_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# The text before the path, and after ``; isDirectory=``. One pattern for all of it would backtrack
# over every status character by character.
_BEFORE = re.compile(r"(?:FileStatusWithMetadata\()?\w+")
_AFTER = re.compile(
    r"(?:true|false); length=(\d+); replication=\d+; blocksize=\d+; "
    r"modification_time=(-?\d+); access_time=-?\d+; owner=[^;]*; group=[^;]*; "
    r"permission=[^;]*; isSymlink=(?:true|false)(?:; symlink=[^;]*)?"
    r"(?:; (?:hasAcl|isEncrypted|isErasureCoded)=(?:true|false))*\}([^{};]*)"
)
_ETAG = re.compile(r"eTag='?\"?([^'\",\]\s]+)", re.IGNORECASE)


class ListingError(ValueError):
    """The text of a listing does not parse for certain."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileStats:
    """The current attributes of files, as parallel arrays; ``size`` -1 where a file is gone.

    ``size`` in bytes, ``mtime`` and ``ctime`` in nanoseconds, ``inode``: int64.
    """

    size: NDArray[np.int64]
    mtime: NDArray[np.int64]
    inode: NDArray[np.int64]
    ctime: NDArray[np.int64]

    @classmethod
    def of(cls, paths: Sequence[str]) -> FileStats:
        """The attributes of these files; a file that is gone has -1 everywhere."""
        gone = (-1, -1, -1, -1)
        rows = []
        for path in paths:
            try:
                now = os.stat(path)  # noqa: PTH116, a Path per file costs more than the call
                rows.append((now.st_size, now.st_mtime_ns, now.st_ino, now.st_ctime_ns))
            except OSError:
                rows.append(gone)
        size, mtime, inode, ctime = np.array(rows, np.int64).reshape(len(rows), 4).T
        return cls(size=size, mtime=mtime, inode=inode, ctime=ctime)

    def at(self, indices: NDArray[np.int64]) -> FileStats:
        """The attributes of some of the files."""
        return FileStats(
            size=self.size[indices],
            mtime=self.mtime[indices],
            inode=self.inode[indices],
            ctime=self.ctime[indices],
        )

    def etags(self) -> list[str]:
        """The etags of local files (``identity.local_etag``)."""
        pairs = zip(self.inode.tolist(), self.ctime.tolist(), strict=True)
        return [f"{inode}-{ctime}" for inode, ctime in pairs]


@dataclass(frozen=True, eq=False, kw_only=True)
class FileListing:
    """The files of a relation in Spark's order, as parallel sequences.

    ``spelled`` are paths as Spark's ``Path`` prints them (raw, with scheme); ``sizes`` bytes,
    int64; ``mtimes`` milliseconds since the epoch, int64; ``etags`` per file where they are known
    (local files, S3A), else ``None``. ``stats`` are the attributes of local files when listed.
    """

    spelled: tuple[str, ...]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    etags: tuple[str | None, ...] | None = None
    stats: FileStats | None = None

    def __len__(self) -> int:
        return len(self.spelled)

    @cached_property
    def paths(self) -> list[str]:
        """Canonical paths (``skipstone.identity``), in order."""
        folders: dict[str, str] = {}
        out = []
        for spelled in self.spelled:
            folder, _, name = spelled.rpartition("/")
            canonical = folders.get(folder)
            if canonical is None:
                canonical = folders[folder] = canonical_path(folder + "/").rstrip("/")
            out.append(f"{canonical}/{name}")
        return out

    def uris(self, indices: NDArray[np.int64]) -> list[str]:
        """Paths as Spark's ``_metadata.file_path`` prints them."""
        return [encode_uri(self.spelled[i]) for i in indices.tolist()]

    @cached_property
    def local(self) -> bool:
        """True when every file is on the local file system."""
        return all(path.startswith("/") for path in self.paths)

    @classmethod
    def of_local(cls, uris: Sequence[str]) -> FileListing | None:
        """The listing of local files now; ``None`` when one is elsewhere or gone."""
        if not all(uri.startswith("file:///") for uri in uris):
            return None
        paths = [unquote(uri[7:]) if "%" in uri else uri[7:] for uri in uris]
        stats = FileStats.of(paths)
        if np.any(stats.size < 0):
            return None
        return cls(
            spelled=tuple(f"file:{path}" for path in paths),
            sizes=stats.size,
            mtimes=stats.mtime // 1_000_000,
            etags=tuple(stats.etags()),
            stats=stats,
        )

    @classmethod
    def parse(cls, texts: Sequence[str]) -> FileListing:
        """The listing from one text per file. Raises ``ListingError``."""
        after, before = _AFTER.fullmatch, set[str]()
        fields: list[tuple[str, str, str]] = []
        spelled: list[str] = []
        for text in texts:
            head, _, tail = text.rpartition("; isDirectory=")
            start, opened, path = head.partition("{path=")
            found = after(tail)
            if start not in before and _BEFORE.fullmatch(start):
                before.add(start)
            if found is None or not opened or start not in before:
                raise ListingError(f"unknown text of a file status: {text[:200]}")
            spelled.append(path)
            length, mtime, rest = found.groups()
            fields.append((length, mtime, rest))
        etags = None
        if any("tag=" in rest.lower() for rest in {rest for _, _, rest in fields}):
            tags = [_ETAG.search(rest) for _, _, rest in fields]
            etags = tuple(tag and tag[1] for tag in tags)
        return cls(
            spelled=tuple(spelled),
            sizes=np.array([int(length) for length, _, _ in fields], np.int64),
            mtimes=np.array([int(mtime) for _, mtime, _ in fields], np.int64),
            etags=etags,
        )

    def stat(self, indices: NDArray[np.int64]) -> FileStats:
        """The current attributes of these local files."""
        paths = self.paths
        return FileStats.of([paths[i] for i in indices.tolist()])

    def unchanged(self, indices: NDArray[np.int64], now: FileStats) -> NDArray[np.bool_]:
        """Which of these files still have the listed size and time."""
        same: NDArray[np.bool_] = (now.size == self.sizes[indices]) & (
            now.mtime // 1_000_000 == self.mtimes[indices]
        )
        return same
