"""Errors that say which file: what is raised deep below knows bytes, and not whose they are."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["names_its_file"]

P = ParamSpec("P")
R = TypeVar("R")


class _OfAFile(Protocol):
    path: str


def names_its_file(method: Callable[P, R]) -> Callable[P, R]:
    """A method of something with a ``path``: each ``FormatError`` that leaves it names the file.

    That is ``path`` unless the error names another one already. Of a generator, also those that
    are raised while it is read.
    """
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def generated(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                yield from method(*args, **kwargs)
            except FormatError as error:
                if error.file is not None:
                    raise
                raise _named(error, args) from error

        return cast("Callable[P, R]", generated)

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except FormatError as error:
            if error.file is not None:
                raise
            raise _named(error, args) from error

    return called


def _named(error: FormatError, args: tuple[Any, ...]) -> FormatError:
    of: _OfAFile = args[0]
    return error.in_file(of.path)
