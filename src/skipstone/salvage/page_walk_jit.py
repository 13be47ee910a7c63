"""``page_walk.walk`` compiled by numba: imported only where there is much to walk."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from numba import njit
from numba.extending import register_jitable

from . import page_walk

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compiled"]


@cache
def compiled() -> Callable[..., Any]:
    """``walk``; the first call in a process compiles it or loads what another one compiled."""
    register_jitable(nogil=True)(page_walk.header)
    header, compressed = page_walk.header, page_walk.COMPRESSED
    fingerprint = 0
    keep = True
    try:
        # numba tells stale code by the file of the compiled function alone.
        fingerprint = crc32(Path(page_walk.__file__).read_bytes())
    except OSError:
        keep = False

    def walk(data: Any, at: Any, end: Any, rows: Any, stack: Any) -> Any:
        _ = fingerprint
        count = 0
        while count < len(rows) and at < end:
            stop = header(data, at, end, rows[count], stack)
            if stop < 0:
                break
            at = stop + rows[count, compressed]
            count += 1
        return count, at

    made: Any = njit
    if keep:
        try:
            kept: Callable[..., Any] = made(cache=True, nogil=True)(walk)
        except RuntimeError:  # no folder for the cache can be written
            pass
        else:
            return kept
    plain: Callable[..., Any] = made(nogil=True)(walk)
    return plain
