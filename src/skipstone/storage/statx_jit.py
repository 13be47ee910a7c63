"""statx(2) in a loop, compiled by numba.

``names`` has a zero byte after every name, and ``found`` 256 bytes for each, so the calls touch
nothing outside the arrays.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import numpy as np
from numba import types

from skipstone._numba import compile_kernel

if TYPE_CHECKING:
    from collections.abc import Callable


# int statx(int dirfd, const char *pathname, int flags, unsigned mask, struct statx *statxbuf)
_NAME = "skipstone_statx"
_statx: Any = types.ExternalFunction(
    _NAME, types.int32(types.int32, types.intp, types.int32, types.uint32, types.intp)
)
_BASIC = 0x7FF
_LENGTH = 256


def _look(directory: Any, names: Any, starts: Any, found: Any) -> Any:
    text, out = names.ctypes.data, found.ctypes.data
    for i in range(len(starts)):
        if _statx(directory, text + starts[i], 0, _BASIC, out + i * _LENGTH) != 0:
            return i + 1
    return 0


def compiled() -> Callable[..., Any]:
    """``look(directory, names, starts, found)``: 0, or the ordinal (from 1) of the failed call."""
    # A name of our own, so that code loaded from the cache finds it, too. A C library without statx
    # raises AttributeError.
    call = ctypes.cast(ctypes.CDLL(None).statx, ctypes.c_void_p)
    llvm.add_symbol(_NAME, call.value)
    return compile_kernel(_look)


def warm_up(look: Callable[..., Any]) -> None:
    """Compiles it for the types of its arguments, by a call without files."""
    look(0, np.frombuffer(b"\0", np.uint8), np.zeros(0, np.int64), np.zeros(0, np.uint8))
