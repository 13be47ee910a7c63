"""Bounds of values as positions between the smallest and the largest bound of a column.

A position is an integer from 0 to ``PLACES``; -1 means that there is no bound. Numbers and instants
have a ``linear`` scale. All other types, and numbers too far apart for float64, have the scale
``order``: the i-th of n distinct bounds lies at i / (n - 1). Positions are for display; no decision
depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from skipstone.parquet.arrow.metadata_tables import readable
from skipstone.parquet.format.enums import ConvertedType, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import Leaf


IntArray: TypeAlias = "NDArray[np.int64]"

PLACES: Final = 100_000
_LONGEST: Final = 80
_NUMBERS = {Type.INT32: "<i4", Type.INT64: "<i8", Type.FLOAT: "<f4", Type.DOUBLE: "<f8"}


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """Positions of n pairs of bounds: ``low`` and ``high`` are int64 ``(n,)``, on ``scale``."""

    low: IntArray
    high: IntArray
    scale: str

    @property
    def order(self) -> str | None:
        """The order of the pairs: ``ascending``, ``descending`` or ``unsorted``; ``None`` for fewer
        than two."""
        known = (self.low >= 0) & (self.high >= 0)
        low, high = self.low[known], self.high[known]
        if len(low) < 2:
            return None
        if np.all(high[:-1] <= low[1:]):
            return "ascending"
        return "descending" if np.all(low[:-1] >= high[1:]) else "unsorted"


def bands(low: Sequence[bytes | None], high: Sequence[bytes | None], leaf: Leaf) -> Bands:
    """The positions of n pairs of bounds of a leaf column; bounds are PLAIN bytes or ``None``."""
    both = [*low, *high]
    keys = _numbers(both, leaf)
    scale = "linear"
    if keys is None or not np.isfinite(_extent(keys)):
        scale, keys = "order", _ranks(both, leaf)
    extent = _extent(keys)
    placed = np.full(len(both), -1, np.int64)
    known = ~np.isnan(keys)
    if known.any():
        share = (keys[known] - np.nanmin(keys)) / extent if extent else np.full(known.sum(), 0.5)
        placed[known] = np.rint(share * PLACES).astype(np.int64)
    return Bands(placed[: len(low)], placed[len(low) :], scale)


def texts(values: pa.Array, leaf: Leaf) -> list[str | None]:
    """The bounds as text; long ones are cut."""
    return [
        each if each is None or len(each) <= _LONGEST else each[: _LONGEST - 1] + "…"
        for each in readable(values, leaf).to_pylist()
    ]


def _extent(keys: NDArray[np.float64]) -> float:
    known = keys[~np.isnan(keys)]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(known.max() - known.min()) if len(known) else 0.0


def _numbers(values: Sequence[bytes | None], leaf: Leaf) -> NDArray[np.float64] | None:
    """The values as float64, NaN for none; ``None`` if the leaf holds no numbers."""
    dtype = _NUMBERS.get(leaf.type)
    if dtype is None:
        return None
    if _is_unsigned(leaf):
        dtype = dtype.replace("i", "u")
    width = np.dtype(dtype).itemsize
    fits = np.array([each is not None and len(each) == width for each in values], np.bool_)
    content = b"".join(each for each, fit in zip(values, fits, strict=True) if fit and each)
    keys = np.full(len(values), np.nan)
    keys[fits] = np.frombuffer(content, dtype).astype(np.float64)
    return keys


def _is_unsigned(leaf: Leaf) -> bool:
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    if logical is not None and logical.INTEGER is not None:
        return not logical.INTEGER.isSigned
    return converted in (
        ConvertedType.UINT_8,
        ConvertedType.UINT_16,
        ConvertedType.UINT_32,
        ConvertedType.UINT_64,
    )


def _ranks(values: Sequence[bytes | None], leaf: Leaf) -> NDArray[np.float64]:
    key = _key_of(leaf)
    known = [None if each is None else key(each) for each in values]
    ordered = sorted({each for each in known if each is not None})
    rank = {each: at for at, each in enumerate(ordered)}
    return np.array([np.nan if each is None else float(rank[each]) for each in known])


def _key_of(leaf: Leaf) -> Callable[[bytes], Any]:
    """A function from the bytes of a value to its sort key."""
    logical = leaf.element.logicalType
    if leaf.type in _NUMBERS or (logical is not None and logical.FLOAT16 is not None):
        dtype = _NUMBERS.get(leaf.type, "<f2")
        return lambda value: _number(value, dtype)
    if leaf.type is Type.INT96:
        return lambda value: (value[8:][::-1], value[:8][::-1])
    if leaf.element.scale is not None or (logical is not None and logical.DECIMAL is not None):
        return lambda value: int.from_bytes(value, "big", signed=True)
    return lambda value: value


def _number(value: bytes, dtype: str) -> float:
    whole = len(value) == np.dtype(dtype).itemsize
    found = float(np.frombuffer(value, dtype)[0]) if whole else -np.inf
    return found if found == found else np.inf
