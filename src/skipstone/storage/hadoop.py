"""Hadoop's filesystems: HDFS, and every other scheme that the session of this process reads.

There are three ways to reach them. Each is a ``HadoopFiles``, which ``HadoopStorage`` uses:

- the JVM of a classic Spark session in this process, with its configuration and credentials
  (``hadoop_jvm.py``);
- libhdfs, where Arrow finds it: Spark's workers have no way to the session's JVM
  (``hadoop_arrow.py``);
- WebHDFS, for HDFS alone: it needs neither Java nor Spark (``webhdfs.py``).

A file is written under a temporary name, synced and renamed. A rename that finds the name taken
replaces the file by one step of the name node, so that readers see the old content or the new one.
An object store behind Hadoop has no such rename. There, the object is written under its own name,
and appears when it is closed.

An identity is the path, the length and the modification time in milliseconds, and the etag where
Hadoop shows one. HDFS sets the time when the file is closed.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.identity import UNITS_PER_SECOND, ObjectId

from .atomic_replace import PREFIX, TEMPORARY
from .base import count_read, parent, stale
from .hadoop_files import HINT, WEBHDFS, HadoopFiles
from .listing import SUMMARY, Listing
from .remote import RemoteReads, data_files
from .session import active_session, has_connect_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# How many reads run at a time: each takes a thread here, and another in the JVM or in a server.
_AT_ONCE: Final = 8
_READABLE: Final = "check the address, and that this user may read it"
# Nanoseconds after which a temporary file belongs to no running writer.
_LEFT_OVER: Final = 86_400 * 10**9


class HadoopStorage(RemoteReads):
    """The filesystem at ``base`` (``hdfs://host:8020``), through ``files``."""

    at_once = _AT_ONCE

    def __init__(self, base: str, files: HadoopFiles) -> None:
        super().__init__(base, gap=256 << 10, limit=16 << 20)
        self.files = files
        self.requests = 0

    # -- listing ----------------------------------------------------------------------------------

    def list_all(self, prefix: str) -> Listing:
        try:
            return self._walk(prefix)
        except FileNotFoundError:
            return Listing.of(prefix, [], unit="ms")

    def list_files(self, root: str, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        try:
            every = self._walk(root)
        except FileNotFoundError:
            raise SkipstoneError(
                f"no such file or directory: {root}", hint="check the spelling of the path"
            ) from None
        start, summary = len(root) + 1, f"{root}/{SUMMARY}"
        self._summaries[root] = None
        if summary in every.paths:
            self._summaries[root] = every.object_id(every.paths.index(summary))
        if every.paths == [root]:
            listing = every.where(every.sizes > 0)
            listing = replace(listing, empty=1 - len(listing), top=frozenset())
        else:
            chosen = data_files(
                (path[start:], size)
                for path, size in zip(every.paths, every.sizes.tolist(), strict=True)
            )
            listing = every.where(chosen.positions)
            listing = replace(listing, empty=chosen.empty, top=chosen.top)
        return self._latest(root, listing)

    def _walk(self, root: str) -> Listing:
        """``FileNotFoundError`` where there is nothing."""
        self.requests += 1
        try:
            found = self.files.walk(root)
            start = self.files.qualified(root)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise SkipstoneError(
                f"cannot list {root}: {_text(error)}",
                hint=HINT if getattr(error, "errno", None) == errno.EHOSTUNREACH else _READABLE,
            ) from error
        paths = []
        for path in found.paths:
            rest = path.removeprefix(start)
            if len(rest) == len(path) or rest[:1] not in ("", "/"):
                raise SkipstoneError(
                    f"cannot list {root}: Hadoop lists {path}, which is not below {start}",
                    hint="name the directory without links and mounts",
                )
            paths.append(f"{root}{rest}")
        order = np.array(sorted(range(len(paths)), key=paths.__getitem__), np.int64)
        etags = found.etags
        return Listing(
            root=root,
            paths=[paths[at] for at in order.tolist()],
            sizes=found.sizes[order],
            mtimes=found.mtimes[order],
            unit=found.unit,
            etags=None if etags is None else [etags[at] for at in order.tolist()],
        )

    def has_children(self, prefix: str) -> bool:
        self.requests += 1
        try:
            return self.files.has_children(prefix)
        except OSError:
            return False

    # -- reading ----------------------------------------------------------------------------------

    def stat(self, path: str) -> ObjectId:
        self.requests += 1
        return replace(self.files.status(path), path=path)

    def read(self, path: str) -> bytes:
        self.requests += 1
        found = self.files.read(path, 0, None)
        count_read(path, 0, len(found))
        return bytes(found)

    def read_range(
        self, path: str, offset: int, length: int, version: ObjectId | None = None
    ) -> memoryview:
        if not length:
            return memoryview(b"")
        self.requests += 1
        found = self.files.read(path, offset, length)
        count_read(path, offset, len(found))
        # An open file stays the same version. So the version is compared after the read: it differs
        # if the file was replaced before it or meanwhile.
        if version is not None and not version.same_version(self.stat(path)):
            raise stale(path)
        return found

    # -- writing ----------------------------------------------------------------------------------

    def put(self, path: str, data: bytes | memoryview, sources: Iterable[str] = ()) -> None:
        self.requests += 1
        view = memoryview(data).cast("B")
        if self.files.appears_whole:
            self.files.create(path, view, overwrite=True)
            return
        name = path.rpartition("/")[2]
        temporary = f"{parent(path)}/{PREFIX}{name}-{secrets.token_hex(16)}"
        try:
            self.files.create(temporary, view, overwrite=False)
            try:
                self.files.rename(temporary, path, overwrite=False)
            except FileExistsError:
                self.files.rename(temporary, path, overwrite=True)
        except BaseException:
            with suppress(OSError):
                self.files.delete(temporary)
            raise

    def delete(self, *paths: str) -> None:
        for path in paths:
            self.requests += 1
            with suppress(FileNotFoundError):
                self.files.delete(path)

    def remove_empty(self, prefix: str) -> None:
        self.requests += 1
        with suppress(OSError):
            if not self.files.has_children(prefix):
                self.files.delete(prefix)

    def left_overs(self, directory: str) -> dict[str, OSError | None]:
        found = self.list_all(directory)
        old = (self.now() - _LEFT_OVER) * UNITS_PER_SECOND[found.unit] // 10**9
        return {
            path: None
            for path, mtime in zip(found.paths, found.mtimes.tolist(), strict=True)
            if TEMPORARY.fullmatch(path.rpartition("/")[2]) and mtime < old
        }


def _text(error: Exception) -> str:
    found = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (found.splitlines() or [type(error).__name__])[0][:300]


# -- the way to a filesystem -----------------------------------------------------------------------


def base_of(path: str) -> str:
    """``hdfs://host:8020/a/b`` -> ``hdfs://host:8020``."""
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def hadoop_storage(path: str, options: Mapping[str, str]) -> HadoopStorage:
    """The storage of ``path`` (canonical).

    ``UnsupportedError`` if this process cannot reach it.
    """
    base = base_of(path)
    return HadoopStorage(base, _way(base, options))


def _way(base: str, options: Mapping[str, str]) -> HadoopFiles:
    scheme, _, authority = base.partition("://")
    if WEBHDFS not in options and (session := active_session()) is not None:
        from .hadoop_jvm import JvmFiles

        return JvmFiles.of(session, base)
    if WEBHDFS not in options and has_libhdfs():
        from .hadoop_arrow import ArrowFiles

        return ArrowFiles.at(base, options)
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        from .webhdfs import WebFiles

        return WebFiles.at(base, options)
    where = f"{scheme}://{authority}" if authority else f"{scheme}:"
    if has_connect_session():
        raise UnsupportedError(
            f"{where} is read through Hadoop, and a session of Spark Connect has no JVM here",
            hint="use a classic session, or install libhdfs and set HADOOP_HOME",
        )
    raise UnsupportedError(
        f"{where} is read through Hadoop, and this process has no Spark session",
        hint="start one first (SparkSession.builder.getOrCreate()); without a session, paths are"
        " local, s3://, gs://, abfs:// or hdfs://. Spark's workers, where format('skipstone') plans"
        " and reads, have none: use Table.read or skip(df)",
    )


def has_libhdfs() -> bool:
    """Whether Arrow would find libhdfs: in ``ARROW_LIBHDFS_DIR``, or below ``HADOOP_HOME``."""
    names = [("ARROW_LIBHDFS_DIR", ""), ("HADOOP_HOME", "lib/native")]
    for variable, below in names:
        folder = os.environ.get(variable)
        if folder and Path(folder, below, "libhdfs.so").exists():
            return True
    return False
