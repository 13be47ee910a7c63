"""``kernels.Kernels`` compiled by numba: imported only where there is enough to decode.

Machine code is cached in a folder that can be written, so that only the first process on a machine
compiles it; each kernel is compiled when it is first called.

Strings are copied eight bytes at a time (``jit_runs.py``), and at least 16. So up to 16 bytes too
many are read and written: ``_ROOM`` is left for them, and the next string overwrites them. The loop
is written out where it is needed, because numba counts references to each array that is passed to a
function, which takes longer than copying most strings.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._arrays import read_only
from skipstone._numba import compile_kernel
from skipstone.parquet.values import I64, U8, as_bytes, room

from . import jit_runs as runs
from .jit_runs import load, number, store
from .kernels import NUMPY, Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


# The most bytes that are read or written beyond a string.
_ROOM: Final = 16


def _plain(data: Any, offsets: Any, out: Any) -> Any:
    at: Any = 0
    to: Any = 0
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        if len(data) - at < 4:
            return ~at
        if len(data) - at < 8:
            length = np.int64(number(data, 8 * at, 32))
        else:
            length = np.int64(load(data, at) & np.uint64(0xFFFFFFFF))
        start = at + 4
        if length > len(data) - start:
            return ~at
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))
        at = start + length
        to += length
        offsets[i + 1] = to
    return at


def _lengths(offsets: Any, indices: Any, ends: Any) -> Any:
    total: Any = 0
    ends[0] = 0
    for i in range(len(indices)):
        index = np.int64(indices[i])
        if index < 0 or index >= len(offsets) - 1:
            return ~i
        total += offsets[index + 1] - offsets[index]
        ends[i + 1] = total
    return total


def _copy(data: Any, offsets: Any, indices: Any, ends: Any, out: Any) -> None:
    for i in range(len(indices)):
        to, length, start = ends[i], ends[i + 1] - ends[i], offsets[np.int64(indices[i])]
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))


def _expand(prefixes: Any, data: Any, offsets: Any, ends: Any, out: Any) -> None:
    last: Any = 0
    for i in range(len(prefixes)):
        to, prefix = ends[i], prefixes[i]
        # The previous string ends at or before `to`: bytes copied beyond it are overwritten.
        for k in range(0, prefix, 8):
            store(out, to + k, load(out, last + k))
        last = to
        to, length, start = to + prefix, offsets[i + 1] - offsets[i], offsets[i]
        if length + _ROOM > len(data) - start:
            for k in range(length):
                out[to + k] = data[start + k]
        else:
            store(out, to, load(data, start))
            store(out, to + 8, load(data, start + 8))
            for k in range(16, length, 8):
                store(out, to + k, load(data, start + k))


def _shared(data: Any, offsets: Any, shared: Any) -> None:
    for i in range(1, len(shared)):
        last, start = offsets[i - 1], offsets[i]
        most = min(start - last, offsets[i + 1] - start)
        same = 0
        while same < most and data[last + same] == data[start + same]:
            same += 1
        shared[i] = same


def _items(values: Any, indices: Any, out: Any) -> bool:
    for i in range(len(indices)):
        # As unsigned numbers, negative indices are beyond every end.
        index = np.uint64(np.int64(indices[i]))
        if index >= np.uint64(len(values)):
            return False
        out[i] = values[index]
    return True


def _rows(data: Any, width: Any, indices: Any, out: Any) -> bool:
    whole = width >> 3 << 3
    for i in range(len(indices)):
        index = np.int64(indices[i])
        if index < 0 or (index + 1) * width > len(data):
            return False
        start, to = index * width, i * width
        for k in range(0, whole, 8):
            store(out, to + k, load(data, start + k))
        for k in range(whole, width):
            out[to + k] = data[start + k]
    return True


def _join2(data: Any, out: Any) -> None:
    n = len(out)
    for i in range(n):
        out[i] = np.uint16(data[i]) | np.uint16(data[n + i]) << np.uint16(8)


def _join4(data: Any, out: Any) -> None:
    n = len(out)
    for i in range(n):
        out[i] = (
            np.uint32(data[i])
            | np.uint32(data[n + i]) << np.uint32(8)
            | np.uint32(data[2 * n + i]) << np.uint32(16)
            | np.uint32(data[3 * n + i]) << np.uint32(24)
        )


def _join8(data: Any, out: Any) -> None:
    n = len(out)
    for i in range(n):
        out[i] = (
            np.uint64(data[i])
            | np.uint64(data[n + i]) << np.uint64(8)
            | np.uint64(data[2 * n + i]) << np.uint64(16)
            | np.uint64(data[3 * n + i]) << np.uint64(24)
            | np.uint64(data[4 * n + i]) << np.uint64(32)
            | np.uint64(data[5 * n + i]) << np.uint64(40)
            | np.uint64(data[6 * n + i]) << np.uint64(48)
            | np.uint64(data[7 * n + i]) << np.uint64(56)
        )


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return compile_kernel(function, over=[runs])


def plain(data: U8, count: int) -> tuple[I64, U8, int]:
    offsets, out = room(count + 1, np.int64), room(len(data) + _ROOM, np.uint8)
    end = int(_compile(_plain)(data, offsets, out))
    return offsets, out[: 0 if end < 0 else int(offsets[-1])], end


def hybrid(data: U8, width: int, out: npt.NDArray[Any]) -> int:
    return int(_compile(runs.hybrid)(data, width, out))


def held(data: U8, width: int, count: int) -> int:
    return int(_compile(runs.held)(data, width, count))


def delta(data: U8, at: int, per_miniblock: int, miniblocks: int, out: npt.NDArray[Any]) -> int:
    some = np.empty(256, np.uint64)
    return int(_compile(runs.delta)(data, at, per_miniblock, miniblocks, out, some))


def lengths(offsets: I64, indices: npt.NDArray[Any], ends: I64) -> int:
    return int(_compile(_lengths)(read_only(offsets), read_only(indices), ends))


def copy(data: U8, offsets: I64, indices: npt.NDArray[Any], ends: I64) -> U8:
    total = int(ends[-1])
    out = room(total + _ROOM, np.uint8)
    _compile(_copy)(data, read_only(offsets), read_only(indices), read_only(ends), out)
    return out[:total]


def expand(prefixes: I64, data: U8, offsets: I64, ends: I64) -> U8:
    total = int(ends[-1])
    out = room(total + _ROOM, np.uint8)
    _compile(_expand)(read_only(prefixes), data, read_only(offsets), read_only(ends), out)
    return out[:total]


def shared(data: U8, offsets: I64) -> I64:
    made = np.zeros(len(offsets) - 1, np.int64)
    _compile(_shared)(data, read_only(offsets), made)
    return made


def rows(values: npt.NDArray[Any], indices: npt.NDArray[Any], out: npt.NDArray[Any]) -> bool:
    if not values.flags.c_contiguous or not values.nbytes:
        return NUMPY.rows(values, indices, out)
    if values.ndim == 1 and values.itemsize in (4, 8):
        word = f"u{values.itemsize}"
        items = read_only(values.view(word))
        return bool(_compile(_items)(items, read_only(indices), out.view(word)))
    if values.ndim == 2 and values.dtype == np.uint8:
        width, flat = values.shape[1], out.reshape(-1)
        return bool(_compile(_rows)(as_bytes(values), width, read_only(indices), flat))
    return NUMPY.rows(values, indices, out)


def join(data: U8, width: int, out: U8) -> None:
    if width == 2:
        _compile(_join2)(data, out.view(np.uint16))
    elif width == 4:
        _compile(_join4)(data, out.view(np.uint32))
    elif width == 8:
        _compile(_join8)(data, out.view(np.uint64))
    else:
        NUMPY.join(data, width, out)


def compiled() -> Kernels:
    return Kernels(
        plain=plain,
        hybrid=hybrid,
        held=held,
        delta=delta,
        lengths=lengths,
        copy=copy,
        expand=expand,
        shared=shared,
        rows=rows,
        join=join,
    )


def warm_up(kernels: Kernels) -> None:
    """Compiles the kernels for the usual types of arguments, by calls with few values."""
    data, numbers = as_bytes(bytes(16)), np.zeros(2, np.int64)
    kernels.plain(data, 1)
    kernels.held(data, 1, 1)
    kernels.shared(data, numbers)
    kernels.expand(numbers[:1], data, numbers, numbers)
    for type in (np.uint8, np.int32, np.uint64):
        kernels.hybrid(data, 1, np.zeros(1, type))
    for width in (2, 4, 8):
        kernels.join(data[:width], width, np.zeros(width, np.uint8))
    for index in (np.int32, np.int64):
        indices = np.zeros(1, index)
        kernels.delta(data, 0, 32, 4, np.zeros(1, index))
        kernels.lengths(numbers, indices, numbers.copy())
        kernels.copy(data, numbers, indices, numbers)
        kernels.rows(data.reshape(2, 8), indices, np.zeros((1, 8), np.uint8))
        for values in (np.zeros(1, np.uint32), np.zeros(1, np.uint64)):
            kernels.rows(values, indices, values.copy())
