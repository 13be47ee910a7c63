"""``_metadata`` summary files: one footer over the row groups of many files.

A summary has no data of its own. Each chunk's ``file_path`` names the file that its offsets count
in, relative to the summary's directory; a chunk without one lies in the summary's own file. The
format once let the chunks of one row group lie in different files; nobody writes that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.parquet.tables.metadata_tables import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .footer_arrays import FooterArrays

__all__ = ["escapes", "is_summary", "path_beside", "row_groups_by_file", "split"]


def is_summary(footer: FooterArrays) -> bool:
    """Whether any chunk lies in another file."""
    return bool((footer.places("file_path")[0] >= 0).any())


def row_groups_by_file(footer: FooterArrays) -> dict[str | None, NDArray[np.int64]]:
    """Row groups of each ``file_path``, in the order in which the paths first occur.

    ``None`` is the footer's own file. ``UnsupportedError`` for a row group in several files.
    """
    count, leaves = footer.num_row_groups, footer.num_leaves
    if not leaves or not is_summary(footer):
        return {None: np.arange(count)} if count else {}
    start, length = footer.places("file_path")
    encoded = gathered(footer.buffer, start, length).dictionary_encode("encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).reshape(count, leaves)
    mixed = np.flatnonzero((codes != codes[:, :1]).any(axis=1))
    if len(mixed):
        raise UnsupportedError(f"row group {int(mixed[0])} lies in several files")
    names = [
        None if each is None else each.decode("utf-8", "surrogateescape")
        for each in encoded.dictionary.to_pylist()
    ]
    first = codes[:, 0]
    return {names[code]: np.flatnonzero(first == code) for code in dict.fromkeys(first.tolist())}


def split(footer: FooterArrays) -> dict[str | None, FooterArrays]:
    """The part of the footer of each file, by ``file_path``."""
    parts = row_groups_by_file(footer)
    return {path: footer.select(rows.tolist()) for path, rows in parts.items()}


def escapes(path: str) -> str | None:
    """Why a ``file_path`` may lead out of the summary's directory, ``None`` if it cannot.

    Advice: readers that do not trust the summary ask first.
    """
    if not path or "\0" in path:
        return "no path"
    if path.startswith(("/", "\\")):
        return "absolute"
    head = path.split("/", 1)[0]
    if ":" in head:
        return "a scheme or a drive"
    if ".." in path.replace("\\", "/").split("/"):
        return "goes up"
    return None


def path_beside(summary: str, path: str) -> str:
    """Where ``file_path`` leads from the summary at ``summary``: a path or a URL alike."""
    if path.startswith("/") or "://" in path:
        return path
    folder, slash, _ = summary.rpartition("/")
    return f"{folder}{slash}{path}"
