"""A leaf in the table's type as the equal leaf in the type that the column had when it was indexed.

A table's column may have been widened since. What was indexed then is compared only where the cast
from the stored type to the table's is exact; the one place where all kinds ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.predicate.tree import Const, Leaf

__all__ = ["Local", "localise"]

Local: TypeAlias = "Leaf | Const"


def localise(leaf: Leaf, stored: pa.DataType) -> Local | None:
    """The leaf over values of type ``stored`` that is TRUE for the same rows, or ``None``."""
    return leaf if leaf.type == stored else None
