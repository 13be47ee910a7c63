"""``page_headers.walk`` compiled by numba: imported only where there is much to walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel
from skipstone.parquet.format import enums, metadata
from skipstone.parquet.thrift import compact
from skipstone.parquet.values import as_bytes

from . import page_headers

if TYPE_CHECKING:
    from collections.abc import Callable


def compiled() -> Callable[..., Any]:
    """See ``page_headers.walk``."""
    for helper in page_headers.HELPERS:
        register_jitable(nogil=True)(helper)
    return compile_kernel(page_headers.walk, over=[metadata, enums, compact])


def warm_up(walk: Callable[..., Any]) -> None:
    """Compiles it for the types of its arguments, by a call without pages."""
    rows, stack = np.zeros((0, page_headers.FIELDS), np.int64), np.zeros(1, np.int64)
    walk(as_bytes(b""), 0, 0, rows, stack)
