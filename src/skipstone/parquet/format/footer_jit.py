"""The kernels of ``footer_kernel``, compiled by numba: imported only for large footers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cpu
from numba.extending import register_jitable

from skipstone._numba import compile_kernel
from skipstone.parquet.thrift import compact as thrift
from skipstone.parquet.thrift import kernel_wire, structs

from . import footer_kernel, footer_layout, metadata
from .footer_scan import FooterKernels, scan

# Without this option every call counts references to its arrays, atomically, which takes more time
# than the work. It is sound, because the kernels allocate nothing. It is not public.
_OPTIONS = getattr(cpu, "CPUTargetOptions", None)
_NO_COUNTING: dict[str, Any] = {"_nrt": False} if hasattr(_OPTIONS, "_nrt") else {}


def compiled() -> FooterKernels:
    for helper in footer_kernel.HELPERS:
        register_jitable(nogil=True, **_NO_COUNTING)(helper)
    modules = [footer_kernel, footer_layout, kernel_wire, metadata, structs, thrift]
    kernels = (kernel_wire.skip, footer_kernel.schema, footer_kernel.row_groups)
    skip, schema, row_groups = (
        compile_kernel(each, over=modules, **_NO_COUNTING) for each in kernels
    )

    def bytes_as_array(data: bytes) -> Any:
        return np.frombuffer(data, np.uint8)

    return FooterKernels(
        skip=skip, schema=schema, row_groups=row_groups, over=bytes_as_array, zeros=np.zeros
    )


# ``FileMetaData`` with a version, one root, no rows and no row groups.
_SMALLEST = b"\x15\x02\x19\x1c\x48\x01r\x15\x00\x00\x16\x00\x19\x0c\x00"


def warm_up(kernels: FooterKernels) -> None:
    """Compiles each kernel for the types of its arguments, by a footer that needs all of them."""
    scan(_SMALLEST, 0, kernels)
