"""Some files of a table: those that match a pattern, or a list of files and folders.

The table is the folder that holds all of them, so its index and its partition folders apply:

    lake/events/*.parquet                  files of lake/events
    lake/events/day=2026-01-*/             files of lake/events, with the column day
    ["lake/a.parquet", "lake/b.parquet"]   files of lake

``*`` and ``?`` match within a name, ``**`` any number of folders, ``[ab]`` and ``{a,b}`` are
choices. A path that exists is taken literally.
"""

from __future__ import annotations

import fnmatch
import os
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError
from skipstone.human import plural, some_of
from skipstone.identity import canonical_path

from .base import Storage, carried
from .listing import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence


#: one path, or several
Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PATTERN: Final = re.compile(r"[*?\[{]")
_TOKEN: Final = re.compile(r"\*\*/?|\*|\?|\[[!^]?\]?[^\]/]*\]|[{},]|.", re.DOTALL)


def paths_of(path: Any) -> Sequence[str | os.PathLike[str]] | None:
    """``path`` as a list of paths; ``None`` if it is neither a path nor a list, as a session is."""
    if isinstance(path, str | os.PathLike):
        return [path]
    if isinstance(path, list | tuple):
        for each in path:
            if not isinstance(each, str | os.PathLike):
                raise TypeError(
                    f"a table is named by paths, not by {type(each).__name__}: {each!r}"
                )
        return path
    return None


def is_pattern(path: str) -> bool:
    """Whether ``path`` has characters of a pattern."""
    return _PATTERN.search(path) is not None


@dataclass(frozen=True, slots=True)
class SomeFiles:
    """The files below ``root`` that ``named`` select. These are canonical paths, each with the
    position of its first part that is a pattern, or ``None``."""

    root: str
    named: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, paths: Sequence[str | os.PathLike[str]], storage: Storage) -> Self | str:
        """The files of ``paths``; a ``str`` if they are one directory or file."""
        if not paths:
            raise SkipstoneError("no files were named", hint="a list has at least one path")
        found = [canonical_path(each) for each in paths]
        named = tuple((each, _first_pattern(each, storage)) for each in found)
        if len(named) == 1 and named[0][1] is None:
            return named[0][0]
        return cls(_common([_above(*each) for each in named]), named)

    def __str__(self) -> str:
        return some_of([path for path, _ in self.named], 3)

    def listing(self, storage: Storage) -> Listing:
        """The files; ``SkipstoneError`` where a name has none."""

        def of_name(named: tuple[str, int | None]) -> Listing:
            path, first = named
            if first is None:
                return storage.list_files(path)
            every = storage.list_files(_above(path, first))
            parts = path.split("/")
            before = re.escape("".join(f"{part}/" for part in parts[:first]))
            matches = re.compile(f"{before}{_regex('/'.join(parts[first:]))}(?:/.*)?", re.DOTALL)
            chosen = [matches.fullmatch(each) is not None for each in every.paths]
            if not any(chosen):
                raise SkipstoneError(
                    f"no data file matches {path}",
                    hint=f"{plural(len(every), 'data file')} below {every.root}: check the name",
                )
            return every.where(np.array(chosen, np.bool_))

        if storage.remote:
            with ThreadPoolExecutor(8) as pool:
                parts = list(pool.map(carried(of_name), self.named))
        else:
            parts = list(map(of_name, self.named))
        paths = [path for part in parts for path in part.paths]
        etags = [etag for part in parts for etag in part.etags or [None] * len(part)]
        at = sorted(
            {path: place for place, path in enumerate(paths)}.values(), key=paths.__getitem__
        )
        return Listing(
            root=self.root,
            paths=[paths[place] for place in at],
            sizes=np.concatenate([part.sizes for part in parts])[at],
            mtimes=np.concatenate([part.mtimes for part in parts])[at],
            unit=parts[0].unit,
            etags=None if all(etag is None for etag in etags) else [etags[place] for place in at],
            empty=sum(part.empty for part in parts),
        )


def _first_pattern(path: str, storage: Storage) -> int | None:
    """The position of the first part that is a pattern; a part that exists is a name."""
    parts = path.split("/")
    for at, part in enumerate(parts):
        if is_pattern(part):
            whole = "/".join(parts[: at + 1])
            if not (storage.has_children(whole) or storage.exists(whole)):
                return at
    return None


def _above(path: str, pattern: int | None) -> str:
    """The folder above a file, or above the first pattern of a path, without partition folders."""
    parts = path.split("/")
    first = len(parts) - 1 if pattern is None else pattern
    # Folders of partitions are columns of the table above them.
    while first > 1 and "=" in parts[first - 1]:
        first -= 1
    return "/".join(parts[:first]) or "/"


def _common(folders: Sequence[str]) -> str:
    shared = folders[0].split("/")
    for folder in folders[1:]:
        both = zip(shared, folder.split("/"), strict=False)
        shared = [mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], both)]
    if len(shared) < (3 if "://" in folders[0] else 1):
        raise SkipstoneError(
            f"{folders[0]} and {folders[-1]} are in different stores",
            hint="open a table for each store",
        )
    return "/".join(shared) or "/"


def _regex(pattern: str) -> str:
    made, depth = [], 0
    for token in _TOKEN.findall(pattern):
        if token.startswith("**"):
            made.append("(?:.*/)?" if token.endswith("/") else ".*")
        elif token == "*":
            made.append("[^/]*")
        elif token == "?":
            made.append("[^/]")
        elif token.startswith("[") and len(token) > 2:
            made.append(fnmatch.translate(token)[len("(?s:") : -len(r")\Z")])
        elif token == "{" and pattern.count("{") == pattern.count("}"):
            made.append("(?:")
            depth += 1
        elif token == "}" and depth:
            made.append(")")
            depth -= 1
        elif token == "," and depth:
            made.append("|")
        else:
            made.append(re.escape(token))
    return "".join(made)
