"""The keys of a table's encrypted files: who opens one of them asks here.

``aad_prefix`` in bytes is what the prefixes of the table begin with, as ``Table.encrypt`` makes
them (``rewrite/table_prefix.py``): each file must be the one that belongs in its place then. A
function is asked for the whole prefix of a file; without either a file's own is believed.

A ``_metadata`` and file indexes that lie beside the files in the clear are not believed where keys
are given: they could be anybody's. Facts in the clear are, where somebody asked for such an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.encryption.decryption import Decryption

__all__ = ["HINT", "DataKeys", "bound"]

#: what to do about a file whose keys were not given
HINT = (
    "give the table the keys of its files: Table(…, decryption=skipstone.Decryption(…)), on the"
    " command line --footer-key, --column-key, --kms or --keys"
)


class DataKeys:
    """``decryption`` is what opens the files below ``root``, or a function that makes it when it
    is needed first; ``None`` for files in the clear."""

    __slots__ = ("_found", "_given", "_root")

    def __init__(
        self, root: str, decryption: Decryption | Callable[[], Decryption] | None = None
    ) -> None:
        if decryption is not None and not callable(decryption):
            _checked(decryption)
        self._root, self._given = root, decryption
        self._found: Decryption | None = None

    def __bool__(self) -> bool:
        return self._given is not None

    def __repr__(self) -> str:
        return f"DataKeys({self._root!r}, {'some' if self else 'none'})"

    def get(self) -> Decryption | None:
        """The keys, bound to the places of the files; ``KeyUnavailableError`` where the function
        fails that makes them."""
        if self._found is None and self._given is not None:
            self._found = bound(self._root, self._given)
        return self._found

    def none_given(self, path: str) -> KeyUnavailableError:
        """What to say of a file that is encrypted."""
        return KeyUnavailableError(f"{path} is encrypted, and no key was given", hint=HINT)


def bound(root: str, decryption: Decryption | Callable[[], Decryption]) -> Decryption:
    """Keys for the files of the table at ``root``; see the module."""
    from skipstone.rewrite.file_jobs import bound_to, given

    made = _checked(given(decryption, "the keys of the data"))
    return made.replaced(aad_prefix=bound_to(root, made.aad_prefix, None))


def _checked(decryption: Decryption) -> Decryption:
    if not hasattr(decryption, "has_keys"):
        raise TypeError(f"decryption is a skipstone.Decryption, not {type(decryption).__name__}")
    return decryption
