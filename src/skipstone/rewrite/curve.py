"""Orders of rows for clustering: by columns in turn, along a Z-order or along a Hilbert curve.

Each of 2 to 4 columns becomes a number of ``BITS`` bits: the share of a sample of the table that is
less than the value. So every column spreads over the whole range, for any distribution of its
values: a column with 8 values uses the first 3 bits. Nulls are first, NaN is last.

    z-order   the bits of the columns in turn, the first bits first. Source: G. M. Morton, A
              computer oriented geodetic data base, 1966
    hilbert   neighbours on the curve differ by 1 in one column; it never jumps, so files have
              smaller ranges. Source: J. Skilling, Programming the Hilbert curve, 2004

A key is a number from 0 to 2^60 - 1. It only places rows: any key is correct, a good one skips
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


#: bits of the key for each column
BITS: Final = 15
#: the orders that users name
CURVES: Final = ("sort", "z-order", "hilbert")
_MOST_COLUMNS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """An order of rows; ``splitters`` are sorted values of each column, which divide its sample
    equally."""

    name: str
    splitters: tuple[pa.Array, ...]

    @classmethod
    def of(cls, name: str, sample: Sequence[pa.Array]) -> Curve:
        """The curve ``name`` over the columns of ``sample``."""
        check_curve(name, len(sample))
        return cls(name, tuple(_splitters(each) for each in sample))

    def keys(self, columns: Sequence[pa.Array]) -> NDArray[np.int64]:
        """The place of each row on the curve; columns as in ``of``, all of one length."""
        axes = [_share(each, at) for each, at in zip(columns, self.splitters, strict=True)]
        if self.name == "hilbert" and len(axes) > 1:
            axes = _hilbert(axes)
        return _interleaved(axes)


def check_curve(name: str, columns: int) -> None:
    """``SkipstoneError`` if there is no such curve over this many columns."""
    if name not in CURVES:
        raise SkipstoneError(f"no curve {name!r}", hint=f"one of {', '.join(CURVES)}")
    if columns < 1 or (name != "sort" and columns > _MOST_COLUMNS):
        raise SkipstoneError(
            f"{name} over {columns} columns",
            hint=f"a curve over more than {_MOST_COLUMNS} columns keeps none of them together;"
            " name those that most queries have",
        )


def sort_order(name: str, columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Positions that put whole columns, a table or a sample of it, in the order of ``name``."""
    check_curve(name, len(columns))
    if name == "sort" or len(columns) == 1:
        order: NDArray[np.int64] = np.lexsort([_dense(each) for each in reversed(columns)])
        return order
    return np.argsort(Curve.of(name, columns).keys(columns), kind="stable")


def _splitters(sample: pa.Array) -> pa.Array:
    """Values at equal shares of the sample; those of frequent values repeat."""
    values = _plain(sample)
    values = values.filter(values.is_valid())
    ordered = values.take(pc.array_sort_indices(values))
    count = min(len(ordered), (1 << BITS) - 1)
    return ordered.take(pa.array(np.arange(count) * len(ordered) // max(count, 1)))


def _share(values: pa.Array, splitters: pa.Array) -> NDArray[np.uint64]:
    """The share of the splitters that is less than each value, in ``BITS`` bits; 0 for null.

    The splitters and the values are sorted together, so every type that Arrow sorts has shares.
    """
    plain = _plain(values)
    if plain.type != splitters.type:
        plain = plain.cast(splitters.type)
    # Values come first: a stable sort puts them before equal splitters.
    order = np.asarray(pc.array_sort_indices(pa.concat_arrays([plain, splitters])), np.int64)
    below = np.cumsum(order >= len(plain), dtype=np.uint64)
    found = np.empty(len(order), np.uint64)
    found[order] = below
    share: NDArray[np.uint64] = found[: len(plain)] << np.uint64(BITS)
    share //= np.uint64(max(len(splitters), 1))
    np.clip(share, 1, (1 << BITS) - 1, out=share)
    share[np.asarray(plain.is_null())] = 0
    return share


def _dense(values: pa.Array) -> NDArray[np.int64]:
    """The rank of each value, equal for equal ones; 0 for null."""
    plain = _plain(values)
    ranks = np.array(pc.rank(plain, tiebreaker="dense"), np.int64)
    ranks[np.asarray(plain.is_null())] = 0
    return ranks


def _plain(values: pa.Array) -> pa.Array:
    """One array that Arrow sorts."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of Arrow before 20, where there is no chunk
        values = pa.concat_arrays(values.chunks) if values.chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _interleaved(axes: Sequence[NDArray[np.uint64]]) -> NDArray[np.int64]:
    """The bits of the axes in turn, first bits first."""
    found = np.zeros(len(axes[0]), np.uint64)
    one = np.uint64(1)
    for bit in reversed(range(BITS)):
        for axis in axes:
            found = (found << one) | ((axis >> np.uint64(bit)) & one)
    return found.astype(np.int64)


def _hilbert(axes: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
    """Skilling's ``AxestoTranspose``: axes whose interleaved bits are the Hilbert index."""
    x = [axis.copy() for axis in axes]
    one = np.uint64(1)
    for bit in reversed(range(1, BITS)):
        q = one << np.uint64(bit)
        low = q - one
        for axis in x:
            there = (axis & q) != 0
            swapped = (x[0] ^ axis) & low
            flipped = x[0] ^ low
            if axis is x[0]:
                x[0][there] = flipped[there]
            else:
                axis ^= np.where(there, np.uint64(0), swapped)
                x[0][:] = np.where(there, flipped, x[0] ^ swapped)
    for at in range(1, len(x)):
        x[at] ^= x[at - 1]
    flip = np.zeros_like(x[0])
    for bit in reversed(range(1, BITS)):
        q = one << np.uint64(bit)
        flip ^= np.where((x[-1] & q) != 0, q - one, np.uint64(0))
    return [axis ^ flip for axis in x]
