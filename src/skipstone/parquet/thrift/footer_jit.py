"""The kernels of ``footer_kernel`` compiled by numba: imported only for footers that are large.

Machine code is cached in a folder that can be written, so that only the first process on a machine
compiles it. numba tells stale code by the file of the compiled function alone, and the functions
called lie in other files: so a fingerprint of these is bound into the function.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numba import config, njit
from numba.core import cpu
from numba.extending import register_jitable

from . import compact as thrift
from . import footer_kernel, footer_layout
from . import kernel_wire as footer_wire
from .footer_scan import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compiled"]


def _fingerprint() -> int:
    # Code without checks of bounds is not what a run with them asks for, nor the other way round.
    found = 1 if getattr(config, "BOUNDSCHECK", None) else 0
    for module in (footer_kernel, footer_layout, footer_wire, thrift):
        found = crc32(Path(str(module.__file__)).read_bytes(), found)
    return found


def _bound(fingerprint: int) -> tuple[Callable[..., Any], ...]:
    # numba hashes what a function closes over into the key of its cache.
    def skip(data: Any, at: Any, end: Any, kind: Any, stack: Any) -> Any:
        _ = fingerprint
        return footer_wire.skip(data, at, end, kind, stack)

    def schema(data: Any, at: Any, end: Any, elements: Any, types: Any, stack: Any) -> Any:
        _ = fingerprint
        return footer_kernel.schema(data, at, end, elements, types, stack)

    def row_groups(
        data: Any,
        at: Any,
        end: Any,
        sizes: Any,
        types: Any,
        groups: Any,
        wide: Any,
        narrow: Any,
        stack: Any,
    ) -> Any:
        _ = fingerprint
        return footer_kernel.row_groups(data, at, end, sizes, types, groups, wide, narrow, stack)

    return skip, schema, row_groups


# Without it every call counts references to its arrays up and down, atomically, which takes more
# time than the work. Nothing is allocated in the kernels. The option is not a public one.
_OPTIONS = getattr(cpu, "CPUTargetOptions", None)
_NO_COUNTING = {"_nrt": False} if hasattr(_OPTIONS, "_nrt") else {}
_njit: Any = njit


def _compile(function: Callable[..., Any], *, keep: bool) -> Callable[..., Any]:
    if keep:
        try:
            kept: Callable[..., Any] = _njit(cache=True, nogil=True, **_NO_COUNTING)(function)
        except RuntimeError:  # no folder for the cache can be written
            pass
        else:
            return kept
    made: Callable[..., Any] = _njit(nogil=True, **_NO_COUNTING)(function)
    return made


@cache
def compiled() -> Kernels:
    """The kernels; the first call in a process compiles them or loads what another one compiled."""
    for helper in footer_kernel.HELPERS:
        register_jitable(nogil=True, **_NO_COUNTING)(helper)
    try:
        fingerprint, keep = _fingerprint(), True
    except OSError:  # no source to tell stale code by
        fingerprint, keep = 0, False
    skip, schema, row_groups = (_compile(each, keep=keep) for each in _bound(fingerprint))

    def bytes_as_array(data: bytes) -> Any:
        return np.frombuffer(data, np.uint8)

    return Kernels(
        skip=skip, schema=schema, row_groups=row_groups, over=bytes_as_array, zeros=np.zeros
    )
