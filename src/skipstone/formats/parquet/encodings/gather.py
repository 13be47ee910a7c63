"""Values at indices: what a dictionary is for. Every index is checked against what is indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError

from .kernels import choose
from .values import ByteArrays, as_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from .kernels import Kernels
    from .values import Values

__all__ = ["MAX_BYTES", "byte_arrays", "take"]

#: Most bytes of the strings of one page. A few bytes can repeat a long string without end, so there
#: has to be a limit; Arrow's own, for arrays with 32-bit offsets, is the same.
MAX_BYTES: Final = (1 << 31) - 1


def take(
    values: Values, indices: npt.NDArray[np.integer[Any]], kernels: Kernels | None = None
) -> Values:
    """The values at ``indices``, of the same kind. IndexError where one is none of them."""
    if isinstance(values, ByteArrays):
        return byte_arrays(values, indices, kernels)
    chosen = kernels or choose(len(indices))
    made = chosen.rows(values, np.ascontiguousarray(indices))
    if made is None:
        raise _no_index(len(values), indices)
    return made


def byte_arrays(
    values: ByteArrays, indices: npt.NDArray[np.integer[Any]], kernels: Kernels | None = None
) -> ByteArrays:
    """As ``take``; FormatError for more than ``MAX_BYTES`` bytes."""
    chosen, indices = kernels or choose(len(indices)), np.ascontiguousarray(indices)
    offsets, ends = np.ascontiguousarray(values.offsets), np.empty(len(indices) + 1, np.int64)
    total = chosen.lengths(offsets, indices, ends)
    if total < 0:
        raise _no_index(len(values), indices)
    if total > MAX_BYTES:
        raise FormatError(
            "byte arrays of one page", expected=f"at most {MAX_BYTES} bytes", got=total
        )
    return ByteArrays(chosen.copy(as_bytes(values.data), offsets, indices, ends), ends)


def _no_index(size: int, indices: npt.NDArray[np.integer[Any]]) -> IndexError:
    wrong = indices[(indices < 0) | (indices >= size)]
    return IndexError(f"index {int(wrong[0])} into {size} values")
