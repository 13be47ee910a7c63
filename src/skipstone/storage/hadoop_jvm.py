"""Hadoop's ``FileSystem`` in the JVM of a classic Spark session.

A call into the JVM costs about 0.1 ms, and bytes cross it as text: 50 ms for 1 MiB. So a listing is
one call and one text (``file_status.py``), and content goes through a local file, which the JVM and
this process share: 10 ms for 1 MiB, most of it Hadoop's.
"""

from __future__ import annotations

import errno
import secrets
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from skipstone.errors import UnsupportedError
from skipstone.identity import ObjectId

from .file_status import FileStatuses, is_directory
from .hadoop_files import error_of

if TYPE_CHECKING:
    from collections.abc import Iterator


# Object stores: a written object appears when it is closed, and a rename copies it.
_WHOLE: Final = frozenset({"cosn", "dbfs", "obs", "oss", "s3", "s3a", "wasb", "gs"})
_KNOWN: WeakKeyDictionary[Any, dict[str, JvmFiles]] = WeakKeyDictionary()


class JvmFiles:
    """``HadoopFiles`` at ``base``. Hadoop caches one ``FileSystem`` for each address and user."""

    needs_session = True

    def __init__(self, session: Any, base: str) -> None:
        gateway = session.sparkContext._gateway
        self.base, self._gateway = base, gateway
        hadoop = gateway.jvm.org.apache.hadoop
        self._path_type = hadoop.fs.Path
        self._streams = gateway.jvm.org.apache.commons.io.IOUtils
        self._text = gateway.jvm.org.apache.commons.lang3.StringUtils
        self._iterators = hadoop.util.functional.RemoteIterators
        self._output, self._input = (
            gateway.jvm.java.io.FileOutputStream,
            gateway.jvm.java.io.FileInputStream,
        )
        self._rename = hadoop.fs.Options.Rename
        self._contexts = hadoop.fs.FileContext
        with _errors(base):
            self._conf = session._jsparkSession.sessionState().newHadoopConf()
            self._fs = self._path_type(f"{base}/").getFileSystem(self._conf)
        self.appears_whole = base.partition(":")[0] in _WHOLE

    @classmethod
    def of(cls, session: Any, base: str) -> JvmFiles:
        """The files of ``base`` for the context of ``session``."""
        known = _KNOWN.setdefault(session.sparkContext, {})
        found = known.get(base)
        if found is None:
            try:
                found = known[base] = cls(session, base)
            except OSError as error:
                hint = (
                    "check the address, the session's configuration (spark.hadoop.*) and its jars"
                )
                raise UnsupportedError(
                    f"cannot open {base}: {error.strerror}", hint=hint
                ) from error
        return found

    def qualified(self, path: str) -> str:
        with _errors(path):
            return str(self._fs.makeQualified(self._path_type(path)).toString())

    def status(self, path: str) -> ObjectId:
        with _errors(path):
            text = str(self._fs.getFileStatus(self._path_type(path)).toString())
        if is_directory(text):
            raise FileNotFoundError(errno.ENOENT, "is a directory", path)
        found = FileStatuses.parse([text])
        return ObjectId(
            path=path,
            size=int(found.sizes[0]),
            mtime=int(found.mtimes[0]),
            unit="ms",
            etag=None if found.etags is None else found.etags[0],
        )

    def walk(self, root: str) -> FileStatuses:
        # Random, so that no path contains it.
        separator = f"\x1e{secrets.token_hex(16)}\x1e"
        with _errors(root):
            found = self._iterators.toList(self._fs.listFiles(self._path_type(root), True))
            text = str(self._text.join(found, separator))
        return FileStatuses.parse(text.split(separator) if text else [])

    def has_children(self, directory: str) -> bool:
        with _errors(directory):
            return bool(self._fs.listStatusIterator(self._path_type(directory)).hasNext())

    def read(self, path: str, offset: int, length: int | None) -> memoryview:
        with NamedTemporaryFile(prefix="skipstone-") as local, _errors(path):
            source = self._fs.open(self._path_type(path))
            try:
                if offset:
                    source.seek(offset)
                sink = self._output(local.name)
                try:
                    if length is None:
                        self._streams.copyLarge(source, sink)
                    else:
                        self._streams.copyLarge(source, sink, 0, length)
                finally:
                    sink.close()
            finally:
                source.close()
            return memoryview(local.read())

    def create(self, path: str, data: memoryview, *, overwrite: bool) -> None:
        with NamedTemporaryFile(prefix="skipstone-") as local, _errors(path):
            local.write(data)
            local.flush()
            source = self._input(local.name)
            try:
                sink = self._fs.create(self._path_type(path), overwrite)
                try:
                    self._streams.copyLarge(source, sink)
                    if not self.appears_whole:
                        sink.hsync()
                finally:
                    sink.close()
            finally:
                source.close()

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        old, new = self._path_type(source), self._path_type(target)
        with _errors(target):
            if overwrite:
                how = self._gateway.new_array(self._rename, 1)
                how[0] = self._rename.OVERWRITE
                self._contexts.getFileContext(self._fs.getUri(), self._conf).rename(old, new, how)
            elif not self._fs.rename(old, new):
                if self._fs.exists(new):
                    raise FileExistsError(errno.EEXIST, "exists already", target)
                raise OSError(errno.EIO, "Hadoop refused to rename a file to it", target)

    def delete(self, path: str) -> None:
        with _errors(path):
            self._fs.delete(self._path_type(path), False)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Java's exceptions in the block become an ``OSError``."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # of py4j, or what PySpark makes of it
        thrown = getattr(error, "java_exception", None)
        if thrown is None:
            thrown = getattr(error, "_origin", None)
        if thrown is None:
            raise error_of(type(error).__name__, str(error), path) from error
        raise error_of(str(thrown.getClass().getName()), thrown.getMessage(), path) from None
