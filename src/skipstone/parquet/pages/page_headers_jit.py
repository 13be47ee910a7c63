"""``page_headers.walk`` compiled by numba: imported only where there is much to walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.extending import register_jitable

from skipstone._numba import compile_kernel, fingerprint
from skipstone.parquet.format import enums, metadata
from skipstone.parquet.thrift import compact

from . import page_headers

if TYPE_CHECKING:
    from collections.abc import Callable


def compiled() -> Callable[..., Any]:
    """``walk``."""
    register_jitable(nogil=True)(page_headers.header)
    header, compressed = page_headers.header, page_headers.COMPRESSED
    version = fingerprint(page_headers, metadata, enums, compact)

    def walk(data: Any, at: Any, end: Any, rows: Any, stack: Any) -> Any:
        _ = version
        count = 0
        while count < len(rows) and at < end:
            stop = header(data, at, end, rows[count], stack)
            if stop < 0:
                break
            at = stop + rows[count, compressed]
            count += 1
        return count, at

    return compile_kernel(walk, cache=version is not None)
