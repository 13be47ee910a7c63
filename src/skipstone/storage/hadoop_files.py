"""The interface of a filesystem for ``HadoopStorage``, and Hadoop's exceptions as errors of
Python."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from skipstone.identity import ObjectId

    from .file_status import FileStatuses


#: option: addresses of WebHDFS, with commas between them
WEBHDFS: Final = "webhdfs"
#: where the name node's HTTP server listens by default
PORT: Final = 9870
HINT: Final = (
    f"name the HTTP address of the name node: the storage option {WEBHDFS}=http://HOST:{PORT}, or"
    " HADOOP_CONF_DIR with an hdfs-site.xml; or install libhdfs and set HADOOP_HOME. Workers of"
    f" Spark, where format('skipstone') plans and reads, need one of these too (storage.{WEBHDFS}"
    " is its option); Table.read and skip(df) on a classic session need none"
)


class HadoopFiles(Protocol):
    """One filesystem for a storage. Paths are raw, with scheme and authority.

    A missing file raises ``FileNotFoundError``, other failures an ``OSError``.
    """

    #: whether only this process can use it, and no worker of Spark
    needs_session: bool
    #: whether a file appears with its whole content, when it is closed
    appears_whole: bool

    def qualified(self, path: str) -> str:
        """``path`` as listings spell it: with the authority that Hadoop uses."""

    def status(self, path: str) -> ObjectId:
        """The identity of a file; ``FileNotFoundError`` for a directory."""

    def walk(self, root: str) -> FileStatuses:
        """Every file below ``root``, or ``root`` itself."""

    def has_children(self, directory: str) -> bool:
        """Whether the directory has entries."""

    def read(self, path: str, offset: int, length: int | None) -> memoryview:
        """``length`` bytes from ``offset``, fewer at the end; ``None`` for all bytes from there."""

    def create(self, path: str, data: memoryview, *, overwrite: bool) -> None:
        """Write a file with this content, sync it, and make its directories."""

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename in one step; ``FileExistsError`` if ``target`` exists, unless ``overwrite``."""

    def delete(self, path: str) -> None:
        """Remove a file or an empty directory, if it exists."""


_ERRORS: Final = {
    "FileNotFoundException": errno.ENOENT,
    "NoSuchFileException": errno.ENOENT,
    "PathNotFoundException": errno.ENOENT,
    "AccessControlException": errno.EACCES,
    "AccessDeniedException": errno.EACCES,
    "AuthorizationException": errno.EACCES,
    "SecurityException": errno.EACCES,
    "FileAlreadyExistsException": errno.EEXIST,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsNotDirectoryException": errno.ENOTDIR,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
}


def error_of(exception: str, message: str | None, path: str) -> OSError:
    """Hadoop's exception of this class and message as the error that a local file would give."""
    simple = exception.rpartition(".")[2].rpartition("$")[2]
    first = ((message or "").strip().splitlines() or [simple])[0][:300]
    number = _ERRORS.get(simple)
    # Python chooses the class by the number.
    return OSError(number or errno.EIO, first if number else f"{simple}: {first}", path)
