"""The libraries of the formats: their import, and the options of an object store as they call them.

All of them are extras, and none is imported before a table of its format is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skipstone.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    They have the names of object stores (``aws_region``), or, with ``names``, those that a library
    has for the names without ``aws_``.
    """
    if "://" not in root:
        return {}
    from skipstone.storage.objects import named_options

    named = named_options(root, options)
    if names is None:
        return named
    plain = {name.removeprefix("aws_"): value for name, value in named.items()}
    return {**options, **{names[name]: v for name, v in plain.items() if name in names}}
