"""DELTA_BINARY_PACKED: integers as bit-packed differences.

::

    header     := ULEB128 block size        # values in a block, a multiple of 128
                  ULEB128 miniblocks        # in a block; each holds a multiple of 32 values
                  ULEB128 total count       # of values
                  zigzag  first value
    block      := zigzag  min delta
                  uint8   width             # one per miniblock, 0 to 64 bits
                  miniblock                 # block size / miniblocks values of `width` bits, packed
                                            # from the least significant bit of a byte on
    value      := value before + min delta + packed value      (mod 2^32 or 2^64)

The last miniblock with values is padded, but some writers omit the padding. Miniblocks after it
have a width, of any value, and no bytes. All sums wrap around. INT32 is decoded with 64 bits and
truncated: the low bits of a sum depend only on low bits, so the results of writers that calculate
with either width are correct.

Blocks are limited to 2^16 values (writers use 128 to 1,024). Otherwise one byte could represent any
number of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError

from .kernels import choose, varint
from .rle import pack, uleb128
from .values import as_bytes, check_count, room, too_short

if TYPE_CHECKING:
    import numpy.typing as npt

    from .kernels import Kernels
    from .values import Buffer


_MOST: Final = 1 << 16
_WRAP: Final = 1 << 64


def decode(
    data: Buffer,
    count: int,
    dtype: npt.DTypeLike = np.int64,
    *,
    out: npt.NDArray[Any] | None = None,
    kernels: Kernels | None = None,
) -> tuple[npt.NDArray[Any], int]:
    """``count`` values (int32 or int64), in ``out`` if given, and the number of bytes used.

    FormatError where the data hold another number of values, or cannot be read.
    """
    check_count(count)
    view = as_bytes(data)
    if not count and not len(view):
        return np.zeros(0, dtype), 0
    fields, at = [], 0
    for name in ("block size", "number of miniblocks", "number of values", "first value"):
        value, end = varint(view, at)
        if end < 0:
            raise too_short(f"{name} of deltas", at, "a varint", f"{len(view) - at} bytes")
        fields.append(value)
        at = end
    block, miniblocks, total, first = fields
    if not 0 < block <= _MOST or block % 128:
        raise FormatError(
            "block size of deltas", offset=0, expected=f"128 k, at most {_MOST}", got=block
        )
    if not miniblocks or block % miniblocks or block // miniblocks % 32:
        raise FormatError(
            "miniblocks of deltas",
            offset=0,
            expected=f"blocks of {block} in parts of 32 k values",
            got=miniblocks,
        )
    if total != count:
        raise FormatError("number of deltas", offset=0, expected=count, got=total)
    most = 1 + (len(view) - at) // (1 + miniblocks) * block
    if count > most:
        raise too_short("deltas", at, f"{count} values", f"at most {most} in {len(view)} bytes")
    values = room(count, dtype) if out is None else out
    if not count:
        return values, at
    low = (first >> 1 ^ -(first & 1)) % _WRAP
    values[:1] = np.array([low], np.uint64).astype(f"u{values.itemsize}").view(values.dtype)
    chosen = kernels or choose(count)
    end = chosen.delta(view, at, block // miniblocks, miniblocks, values)
    if end < 0:
        raise too_short(
            "a block of deltas", ~end, "widths to 64, and their bits", f"{len(view) - ~end} bytes"
        )
    return values, end


def encode(values: npt.NDArray[Any], block_size: int = 128, miniblocks: int = 4) -> bytes:
    """Values of int32 or int64."""
    signed, unsigned = f"i{values.itemsize}", np.dtype(f"u{values.itemsize}")
    first = int(values[0]) if len(values) else 0
    parts = [uleb128(each) for each in (block_size, miniblocks, len(values), _zigzag(first))]
    per = block_size // miniblocks
    words = np.ascontiguousarray(values).view(unsigned)
    deltas = words[1:] - words[:-1]
    blocks = -(-len(deltas) // block_size)
    least = np.empty(blocks, signed)
    packed = np.zeros((blocks * miniblocks, per), np.uint64)
    for number in range(blocks):
        here = deltas[number * block_size : (number + 1) * block_size]
        least[number] = here.view(signed).min()
        rest = here - least[number : number + 1].view(unsigned)
        packed.reshape(-1)[number * block_size :][: len(rest)] = rest
    widths = [int(each).bit_length() for each in packed.max(axis=1, initial=0)]
    for number in range(blocks):
        these = range(number * miniblocks, (number + 1) * miniblocks)
        # Miniblocks after the last value have a width and no bytes, like one of width 0.
        parts += [uleb128(_zigzag(int(least[number]))), bytes(widths[each] for each in these)]
        parts += [pack(packed[each], widths[each]) for each in these if widths[each]]
    return b"".join(parts)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1
