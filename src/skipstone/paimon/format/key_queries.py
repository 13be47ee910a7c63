"""What can be asked of the rows of one column: some keys, a range of keys, nulls or the rest.

A question about a value becomes one about keys with ``safe``, which makes the answer complete where
keys are finer or coarser than values:

- 0.0 and -0.0 are one value with two keys: each stands for both;
- where keys lose digits (``PaimonType.exact``), an open end of a range becomes closed. The rows are
  then all that may match; none is sure to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .keys import Key
    from .types import PaimonType

__all__ = ["Ask", "In", "Null", "Range", "prefix", "safe"]

# The ordinals of -0.0 and 0.0, see ``keys``.
_ZEROS = (-1, 0)


@dataclass(frozen=True, slots=True)
class In:
    """Rows whose key is one of these."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Rows whose key lies from ``lo`` to ``hi``; ``None`` is no limit; nulls are never in it.

    ``Range()`` is every row that is not null.
    """

    lo: Key | None = None
    hi: Key | None = None
    lo_open: bool = False
    hi_open: bool = False


@dataclass(frozen=True, slots=True)
class Null:
    """Rows that hold no value."""


Ask: TypeAlias = "In | Range | Null"


def prefix(start: bytes) -> Range:
    """All strings that begin so."""
    stripped = start.rstrip(b"\xff")
    if not stripped:
        return Range(lo=start)
    return Range(lo=start, hi=stripped[:-1] + bytes([stripped[-1] + 1]), hi_open=True)


def safe(ask: Ask, type: PaimonType) -> Ask:
    """The same question where keys and values differ; see the module."""
    if isinstance(ask, In):
        keys = set(ask.keys)
        if type.is_float and not keys.isdisjoint(_ZEROS):
            keys.update(_ZEROS)
        return In(tuple(sorted(keys)))
    if isinstance(ask, Range):
        if not type.exact:
            ask = replace(ask, lo_open=False, hi_open=False)
        if type.is_float:
            if ask.lo in _ZEROS:
                ask = replace(ask, lo=_ZEROS[ask.lo_open])
            if ask.hi in _ZEROS:
                ask = replace(ask, hi=_ZEROS[not ask.hi_open])
    return ask
