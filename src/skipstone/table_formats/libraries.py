"""Imports the libraries of the formats, translates their errors and their options of object stores,
and holds what the sources of tables in a directory share.

All libraries are extras. None is imported before a table of its format is opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from skipstone.errors import SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from .snapshot import TableSnapshot


@contextmanager
def failing(
    what: str,
    hint: str | None = None,
    errors: tuple[type[Exception], ...] = (Exception,),
    words: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Errors of a library as ``SkipstoneError``; ``what`` says what it does not do."""
    try:
        yield
    except SkipstoneError:
        raise
    except errors as error:  # most libraries have no class of their own for their errors
        raise SkipstoneError(f"{what}: {words(error)}", hint=hint) from error


class DirectorySource(ABC):
    """A ``SnapshotSource`` of the table in the directory ``root``, at a version or a time if one is
    given. After it is pickled, it is opened again."""

    format: ClassVar[str]
    #: what the library does not read if it fails; a hint; and the classes of its errors
    part: ClassVar[str]
    hint: ClassVar[str | None] = None
    errors: tuple[type[Exception], ...] = (Exception,)

    def __init__(
        self,
        root: str,
        options: Mapping[str, str],
        version: int | str | None = None,
        timestamp: str | datetime | None = None,
    ) -> None:
        self.root, self.given = root, (root, options, version, timestamp)
        self.pinned = version is not None or timestamp is not None
        self._lock = Lock()
        self._last: tuple[Any, TableSnapshot] | None = None
        self._begin()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.given

    def snapshot(self) -> TableSnapshot:
        """See ``SnapshotSource``."""
        with self._lock:
            if self._last is None or not self.pinned:
                what = f"{self.root}: {self.format} does not read {self.part}"
                with failing(what, self.hint, self.errors):
                    seen, read = self._newest()
                    if self._last is None or self._last[0] != seen:
                        self._last = seen, read()
        return self._last[1]

    @abstractmethod
    def _begin(self) -> None:
        """Opens the table that was ``given``."""

    @abstractmethod
    def _newest(self) -> tuple[Any, Callable[[], TableSnapshot]]:
        """A value that changes with each commit, and a function that reads the current snapshot, or
        the one that was named."""


def library(module: str, root: str, format: str, hint: str) -> Any:
    """A module of the library that reads the table of ``format`` at ``root``.

    ``UnsupportedError`` with ``hint`` where it, or something that it needs, is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        why = "" if error.name == name else f" ({error})"
        raise UnsupportedError(
            f"{root} is a table of {format}, and {name} is not installed{why}", hint=hint
        ) from error


def store_options(
    root: str, options: Mapping[str, str], names: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the object store of ``root``, and those of the environment; none for a local
    directory.

    They have the names of object stores (``aws_region``). With ``names``, they have the library's
    own names; the keys of ``names`` are without ``aws_``.
    """
    if "://" not in root:
        return {}
    from skipstone.storage.objects import named_options

    named = named_options(root, options)
    if names is None:
        return named
    plain = {name.removeprefix("aws_"): value for name, value in named.items()}
    return {**options, **{names[name]: v for name, v in plain.items() if name in names}}
