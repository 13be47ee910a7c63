"""The kernels of ``footer_kernel``, compiled by numba: imported only for large footers.

The kernels lie in several files, so each compiled function closes over a fingerprint of these files
(see ``_numba.fingerprint``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import config
from numba.core import cpu
from numba.extending import register_jitable

from skipstone._numba import compile_kernel, fingerprint
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift import kernel_wire as footer_wire
from skipstone.parquet.thrift import structs

from . import footer_kernel, footer_layout, metadata
from .footer_scan import FooterKernels

if TYPE_CHECKING:
    from collections.abc import Callable


def _bound(version: tuple[int, bool]) -> tuple[Callable[..., Any], ...]:
    # numba hashes what a function closes over into the key of its cache.
    def skip(data: Any, at: Any, end: Any, kind: Any, stack: Any) -> Any:
        _ = version
        return footer_wire.skip(data, at, end, kind, stack)

    def schema(data: Any, at: Any, end: Any, elements: Any, types: Any, stack: Any) -> Any:
        _ = version
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
        _ = version
        return footer_kernel.row_groups(data, at, end, sizes, types, groups, wide, narrow, stack)

    return skip, schema, row_groups


# Without it every call counts references to its arrays up and down, atomically, which takes more
# time than the work. Nothing is allocated in the kernels. The option is not a public one.
_OPTIONS = getattr(cpu, "CPUTargetOptions", None)
_NO_COUNTING: dict[str, Any] = {"_nrt": False} if hasattr(_OPTIONS, "_nrt") else {}


def compiled() -> FooterKernels:
    for helper in footer_kernel.HELPERS:
        register_jitable(nogil=True, **_NO_COUNTING)(helper)
    found = fingerprint(
        footer_kernel,
        footer_layout,
        footer_wire,
        metadata,
        structs,
        thrift,
    )
    # A run with bounds checks must not load code without them, nor the other way round.
    version = found or 0, bool(getattr(config, "BOUNDSCHECK", None))
    compile = partial(compile_kernel, cache=found is not None, **_NO_COUNTING)
    skip, schema, row_groups = map(compile, _bound(version))

    def bytes_as_array(data: bytes) -> Any:
        return np.frombuffer(data, np.uint8)

    return FooterKernels(
        skip=skip, schema=schema, row_groups=row_groups, over=bytes_as_array, zeros=np.zeros
    )
