"""RLE: runs of one value, and runs of bit-packed values, mixed (the hybrid).

::

    hybrid     := run*
    run        := ULEB128(n << 1)      value             # n times the value, little-endian in
                                                         # ceil(width / 8) bytes
                | ULEB128(g << 1 | 1)  g * width bytes   # 8 g values of `width` bits, packed from
                                                         # a byte's least significant bit on
    prefixed   := uint32 length, hybrid of that many bytes

Levels in data page v1 and booleans in any page are prefixed; levels in data page v2 and dictionary
indices are not. The caller knows the width and the number of values. Further values in the last run
are padding, and the bytes of that padding may be missing. A width of 0 needs no bytes, so any bytes
are ignored, and all values are 0. Runs of no values are skipped. A repeated value that is wider
than the width is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.values import U8, Buffer, as_bytes, check_count, check_room, room, too_short

from .kernels import Kernels, choose, varint

if TYPE_CHECKING:
    import numpy.typing as npt


# Up to this many values, memory is allocated before the runs are known to hold them.
_TRUSTED: Final = 1 << 16
_BITS: Final = {np.dtype(np.uint8): 8, np.dtype(np.int32): 32, np.dtype(np.uint64): 64}


def decode(
    data: Buffer,
    count: int,
    bit_width: int,
    *,
    dtype: npt.DTypeLike = np.int32,
) -> tuple[npt.NDArray[Any], int]:
    """``count`` values of ``bit_width`` (0 to 64) bits, and the number of bytes used.

    ``dtype`` is uint8 (widths to 8), int32 (to 32, those of 32 bits wrapped) or uint64. FormatError
    where the runs hold fewer values.
    """
    check_count(count)
    kind, view = np.dtype(dtype), as_bytes(data)
    if not 0 <= bit_width <= _BITS[kind]:
        raise FormatError("bit width", expected=f"0 to {_BITS[kind]}", got=bit_width)
    if not bit_width:
        return np.zeros(count, kind), len(view)
    chosen = choose(count)
    held = count_held(view, count, bit_width, chosen)
    if held < count:
        raise too_short("runs", 0, f"{count} values", f"{held} in {len(view)} bytes")
    values = room(count, kind)
    end = chosen.hybrid(view, bit_width, values)
    if end < 0:
        raise too_short(
            "a run that is cut, or whose value is too wide",
            ~end,
            f"values of {bit_width} bits, {count} in all",
            f"{len(view) - ~end} bytes",
        )
    return values, end


def count_held(data: U8, count: int, bit_width: int, kernels: Kernels) -> int:
    """``count``, or fewer if the runs do not hold that many: then allocate no memory for them.

    A small ``count`` is accepted, and so is one that the bytes can hold bit-packed.
    """
    if count <= _TRUSTED or count * bit_width <= 8 * len(data):
        return count
    return kernels.held(data, bit_width, count)


def prefixed(data: Buffer) -> U8:
    """The runs after their 4-byte length."""
    view = as_bytes(data)
    check_room("length of runs", 4, len(view))
    length = int.from_bytes(view[:4].tobytes(), "little")
    check_room("runs", length, len(view) - 4, 4)
    return view[4 : 4 + length]


def decode_booleans(data: Buffer, count: int) -> npt.NDArray[np.bool_]:
    """The booleans of a data page."""
    if not count:
        return np.zeros(0, np.bool_)
    return decode(prefixed(data), count, 1, dtype=np.uint8)[0].view(np.bool_)


def constant(data: bytes | memoryview, count: int, bit_width: int) -> int | None:
    """The value of all ``count`` values, if the first run holds all of them; else ``None``.

    The levels of columns without nulls are such a run, and need not be decoded.
    """
    if not bit_width:
        return 0
    header, start = varint(data, 0)
    size = bit_width + 7 >> 3
    if start < 0 or header & 1 or header >> 1 < count or len(data) - start < size:
        return None
    value = int.from_bytes(data[start : start + size], "little")
    return None if value >> bit_width else value


def encode(values: npt.NDArray[Any], bit_width: int) -> bytes:
    """Non-negative integers of at most ``bit_width`` (0 to 64) bits.

    All runs but the last are of multiples of 8 values, at multiples of 8. ValueError where a value
    is wider.
    """
    count = len(values)
    if not count:
        return b""
    if not bit_width:
        if values.any():
            raise ValueError("a value of more than 0 bits")
        return uleb128(count << 1)  # readers that do not know widths of 0 look for a run
    wide = np.zeros(-(-count // 8) * 8, np.uint64)
    wide[:count] = values.astype(np.uint64)
    wide[count:] = wide[count - 1]  # padding that does not end a run
    if bit_width < 64 and wide.max() >> np.uint64(bit_width):
        raise ValueError(f"a value of more than {bit_width} bits")
    groups = wide.reshape(-1, 8)
    alike = (groups == groups[:, :1]).all(axis=1)
    # The same run as the group before: both packed, or both of the same one value.
    joined = alike[1:] == alike[:-1]
    joined &= ~alike[1:] | (groups[1:, 0] == groups[:-1, 0])
    starts = np.flatnonzero(np.concatenate([[True], ~joined]))
    stops = np.append(starts[1:], len(groups))
    size = bit_width + 7 >> 3
    # A run is packed with its neighbours unless it saves more than two headers cost.
    repeated = alike[starts] & ((stops - starts) * bit_width > size + 3)
    parts: list[bytes] = []
    pending = 0  # the first group that is not yet written
    for start, stop in zip(starts[repeated].tolist(), stops[repeated].tolist(), strict=True):
        parts += _packed(groups[pending:start], bit_width)
        length = min(8 * stop, count) - 8 * start
        parts += [uleb128(length << 1), int(groups[start, 0]).to_bytes(size, "little")]
        pending = stop
    return b"".join([*parts, *_packed(groups[pending:], bit_width)])


def encode_prefixed(values: npt.NDArray[Any], bit_width: int) -> bytes:
    """As ``encode``, after 4 bytes of length."""
    runs = encode(values, bit_width)
    return len(runs).to_bytes(4, "little") + runs


def encode_booleans(values: npt.NDArray[np.bool_]) -> bytes:
    """The booleans of a data page."""
    return encode_prefixed(values, 1)


def uleb128(value: int) -> bytes:
    """An unsigned LEB128: 7 bits a byte, the lowest first."""
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _packed(groups: npt.NDArray[np.uint64], bit_width: int) -> list[bytes]:
    if not len(groups):
        return []
    return [uleb128(len(groups) << 1 | 1), pack(groups.reshape(-1), bit_width)]


def pack(values: npt.NDArray[np.uint64], bit_width: int) -> bytes:
    """``values`` in ``bit_width`` bits each, from the least significant bit of a byte on."""
    parts = []
    for start in range(0, len(values), 8_192):  # whole bytes, and bits that stay in the cache
        words = values[start : start + 8_192].astype("<u8").view(np.uint8).reshape(-1, 8)
        bits = np.unpackbits(words, axis=1, count=bit_width, bitorder="little")
        parts.append(np.packbits(bits.reshape(-1), bitorder="little").tobytes())
    return b"".join(parts)
