"""``page_headers.walk`` compiled by numba: imported only where there is much to walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.extending import register_jitable

from skipstone._numba import compile_kernel
from skipstone.parquet.format import enums, metadata
from skipstone.parquet.thrift import compact

from . import page_headers

if TYPE_CHECKING:
    from collections.abc import Callable


def compiled() -> Callable[..., Any]:
    """See ``page_headers.walk``."""
    for helper in page_headers.HELPERS:
        register_jitable(nogil=True)(helper)
    return compile_kernel(page_headers.walk, over=[metadata, enums, compact])
