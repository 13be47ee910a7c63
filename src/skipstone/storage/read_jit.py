"""Reads ranges of many local files: a loop of open(2), statx(2), preadv(2) and close(2), compiled
by numba. It opens and compares files as ``LocalStorage.read_into`` does.

``text`` has a zero byte after every path; ``lengths`` count it. ``vectors`` are addresses and
lengths, as struct iovec has them.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.extending import register_jitable

from skipstone._numba import compile_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

_word, _int = types.intp, types.int32
# Names of our own, so that machine code from the cache finds them too.
_OF: Final = {each: f"skipstone_read_{each}" for each in ("open", "statx", "preadv", "close")}
_open: Any = types.ExternalFunction(_OF["open"], _int(_word, _int, _int))
_statx: Any = types.ExternalFunction(_OF["statx"], _int(_int, _word, _int, types.uint32, _word))
_preadv: Any = types.ExternalFunction(_OF["preadv"], _word(_int, _word, _int, types.int64))
_close: Any = types.ExternalFunction(_OF["close"], _int(_int))
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_EMPTY_PATH: Final = 0x1000
# Type, mtime, ctime, inode and size.
_WANTED: Final = 0x3C1
_REGULAR: Final = 0o10
_SECOND: Final = 1_000_000_000
# The most ranges that one call reads; Linux takes 1,024.
_MOST: Final = 512


@register_jitable
def _time(seconds: Any, nanoseconds: Any, expected: Any) -> Any:
    return seconds == expected // _SECOND and nanoseconds & 0xFFFFFFFF == expected % _SECOND


@register_jitable
def _is(descriptor: Any, nothing: Any, found: Any, state: Any) -> Any:
    """Whether a file is regular and has this size, mtime, inode and change time."""
    if _statx(descriptor, nothing, _EMPTY_PATH, _WANTED, found.ctypes.data) != 0:
        return False
    return (
        found[0] & _WANTED == _WANTED
        and (found[3] >> 44) & 0xF == _REGULAR
        and found[5] == state[0]
        and _time(found[14], found[15], state[1])
        and found[4] == state[2]
        and _time(found[12], found[13], state[3])
    )


def _read(
    text: Any, lengths: Any, states: Any, first: Any, offsets: Any, vectors: Any, done: Any
) -> None:
    name, views = text.ctypes.data, vectors.ctypes.data
    nothing = name + len(text) - 1
    found = np.zeros(32, np.int64)
    for i in range(len(lengths)):
        descriptor = _open(name, _FLAGS, 0)
        name += lengths[i]
        if descriptor < 0:
            continue
        good, k = _is(descriptor, nothing, found, states[i]), first[i]
        while good and k < first[i + 1]:
            count, length = 1, vectors[k, 1]
            while (
                k + count < first[i + 1]
                and count < _MOST
                and offsets[k + count] == offsets[k] + length
            ):
                length += vectors[k + count, 1]
                count += 1
            good = _preadv(descriptor, views + 16 * k, count, offsets[k]) == length
            k += count
        if good and _is(descriptor, nothing, found, states[i]):
            done[i] = 1
        _close(descriptor)


def compiled() -> Callable[..., Any]:
    """``read(text, lengths, states, first, offsets, vectors, done)``, which sets the flags of files
    that were read."""
    library = ctypes.CDLL(None)
    for name, alias in _OF.items():
        # A C library without one of them raises AttributeError.
        llvm.add_symbol(alias, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    return compile_kernel(_read)


def warm_up(read: Callable[..., Any]) -> None:
    """Compiles it for the types of its arguments, by a call without files."""
    none, text = np.zeros(0, np.int64), np.frombuffer(b"\0", np.uint8)
    read(
        text, none, np.zeros((0, 4), np.int64), np.zeros(1, np.int64), none,
        np.zeros((0, 2), np.int64), np.zeros(0, np.uint8),
    )  # fmt: skip
