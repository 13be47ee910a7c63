"""The AAD prefix of each file of a table: what binds a file to its table and to its place there.

    prefix = beginning | "/" | path of the file below the table's directory

``beginning`` names the table, and nothing but the table: a name that the user gives, or one made
for it (``new_beginning``). It holds no path, so that a table may be moved or copied whole. The path
below the directory is as it is listed, in UTF-8, with "/" between its parts. A file in the place of
another, of this table or of one with another beginning, has another prefix than is expected there,
and does not open. The empty path is that of the table's list of files (``sealed_list``).

Readers that know nothing of this read such files where the prefix is stored in them: they take the
one that is stored. Where it is not, it is for the reader to give.
"""

from __future__ import annotations

import os

from skipstone.errors import SkipstoneError
from skipstone.identity import canonical_path

__all__ = ["TablePrefix", "new_beginning"]


class TablePrefix:
    """The prefix of a file, from its path: what ``aad_prefix`` of keys may be. It pickles."""

    __slots__ = ("beginning", "root")

    def __init__(self, root: str, beginning: bytes | str) -> None:
        self.root = canonical_path(root)
        self.beginning = beginning.encode() if isinstance(beginning, str) else bytes(beginning)
        if not self.beginning:
            raise ValueError("what the prefixes of a table begin with is not empty")

    def __repr__(self) -> str:
        return f"TablePrefix({self.root!r}, {self.beginning!r})"

    def __call__(self, path: str) -> bytes:
        return self.of(self.relative(path))

    def of(self, relative: str) -> bytes:
        """The prefix of what lies at a path below the directory."""
        return self.beginning + b"/" + relative.encode("utf-8", "surrogateescape")

    def relative(self, path: str) -> str:
        """The path below the directory; ``SkipstoneError`` for a file that is elsewhere."""
        found = canonical_path(path)
        if not found.startswith(f"{self.root}/"):
            raise SkipstoneError(
                f"{path} is not below {self.root}, and has no AAD prefix there",
                hint="name the table that it belongs to",
            )
        return found[len(self.root) + 1 :]


def new_beginning(root: str) -> bytes:
    """A name for a table that no other has: that of its directory, and 8 random bytes."""
    name = canonical_path(root).rpartition("/")[2].encode("utf-8", "surrogateescape")
    return name + b"-" + os.urandom(8).hex().encode()
