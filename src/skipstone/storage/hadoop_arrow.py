"""One of Hadoop's filesystems through libhdfs, which Arrow loads: with Java in this process,
without a session.

Arrow knows modification times in seconds. It replaces a file by removing it first, so two writers
of one name do not meet in one step; names of facts are random.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

import numpy as np
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, HadoopFileSystem

from skipstone.errors import UnsupportedError, first_line
from skipstone.identity import ObjectId

from .base import parent
from .file_status import FileStatuses

if TYPE_CHECKING:
    from collections.abc import Mapping


class ArrowFiles:
    """``HadoopFiles`` at ``base`` over Arrow's filesystem."""

    needs_session = False
    appears_whole = False

    def __init__(self, base: str, files: FileSystem) -> None:
        self.base, self._files = base, files

    @classmethod
    def at(cls, base: str, options: Mapping[str, str]) -> Self:
        """The filesystem of ``base``, as user ``options["user"]`` where that is given."""
        scheme, _, authority = base.partition("://")
        # The whole address, because libhdfs reads the scheme, a nameservice, or a port from it.
        host = base if authority else "default"
        try:
            return cls(base, HadoopFileSystem(host, 0, user=options.get("user")))
        except OSError as error:
            raise UnsupportedError(
                f"cannot open {scheme}://{authority} through libhdfs: {first_line(error)}",
                hint="set CLASSPATH to the output of `hadoop classpath --glob`",
            ) from error

    def _inside(self, path: str) -> str:
        return path[len(self.base) :] or "/"

    def _outside(self, path: str) -> str:
        """The canonical path for ``path`` as Arrow lists it, which may lack the address and the
        first slash."""
        return f"{self.base}/{path.removeprefix(self.base).lstrip('/')}"

    def qualified(self, path: str) -> str:
        return path

    def status(self, path: str) -> ObjectId:
        [found] = self._files.get_file_info([self._inside(path)])
        if found.type != FileType.File:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return ObjectId(path=path, size=found.size, mtime=_seconds(found), unit="s")

    def walk(self, root: str) -> FileStatuses:
        [top] = self._files.get_file_info([self._inside(root)])
        if top.type == FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", root)
        found = [top]
        if top.type == FileType.Directory:
            selector = FileSelector(self._inside(root), recursive=True)
            found = [
                each for each in self._files.get_file_info(selector) if each.type == FileType.File
            ]
        return FileStatuses(
            paths=[self._outside(each.path) for each in found],
            sizes=np.array([each.size for each in found], np.int64),
            mtimes=np.array([_seconds(each) for each in found], np.int64),
            unit="s",
        )

    def has_children(self, directory: str) -> bool:
        selector = FileSelector(self._inside(directory), allow_not_found=True)
        return bool(self._files.get_file_info(selector))

    def read(self, path: str, offset: int, length: int | None) -> memoryview:
        with self._files.open_input_file(self._inside(path)) as file:
            data = file.read() if length is None else file.read_at(length, offset)
        return memoryview(data)

    def create(self, path: str, data: memoryview, *, overwrite: bool) -> None:
        self._files.create_dir(self._inside(parent(path)), recursive=True)
        with self._files.open_output_stream(self._inside(path)) as file:
            file.write(data)

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        [found] = self._files.get_file_info([self._inside(target)])
        if found.type != FileType.NotFound and not overwrite:
            raise FileExistsError(errno.EEXIST, "exists already", target)
        self._files.move(self._inside(source), self._inside(target))

    def delete(self, path: str) -> None:
        [found] = self._files.get_file_info([self._inside(path)])
        if found.type == FileType.Directory:
            if not self.has_children(path):
                self._files.delete_dir(self._inside(path))
        elif found.type != FileType.NotFound:
            self._files.delete_file(self._inside(path))


def _seconds(info: FileInfo) -> int:
    return int(info.mtime_ns or 0) // 10**9
