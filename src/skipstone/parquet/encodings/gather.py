"""Values at indices: what a dictionary is for. Every index is checked against what is indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError

from .kernels import choose
from .values import ByteArrays, as_bytes, room

if TYPE_CHECKING:
    import numpy.typing as npt

    from .kernels import Kernels
    from .values import Values

__all__ = ["MAX_BYTES", "byte_arrays", "like", "no_index", "take"]

#: Most bytes of the strings of one page. A few bytes can repeat a long string without end, so there
#: has to be a limit; Arrow's own, for arrays with 32-bit offsets, is the same.
MAX_BYTES: Final = (1 << 31) - 1


def take(
    values: Values,
    indices: npt.NDArray[np.integer[Any]],
    *,
    out: npt.NDArray[Any] | None = None,
    kernels: Kernels | None = None,
) -> Values:
    """The values at ``indices``, of the same kind; in ``out`` if given (not for byte arrays).

    IndexError where an index is none of the values.
    """
    if isinstance(values, ByteArrays):
        return byte_arrays(values, indices, kernels)
    if out is None:
        out = like(values, len(indices))
    if not (kernels or choose(len(indices))).rows(values, np.ascontiguousarray(indices), out):
        raise no_index(len(values), indices)
    return out


def like(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """An array for ``count`` values of the same kind."""
    shape = (count, *values.shape[1:])
    return room(int(np.prod(shape)), values.dtype).reshape(shape)


def byte_arrays(
    values: ByteArrays, indices: npt.NDArray[np.integer[Any]], kernels: Kernels | None = None
) -> ByteArrays:
    """As ``take``; FormatError for more than ``MAX_BYTES`` bytes."""
    chosen, indices = kernels or choose(len(indices)), np.ascontiguousarray(indices)
    offsets, ends = np.ascontiguousarray(values.offsets), np.empty(len(indices) + 1, np.int64)
    total = chosen.lengths(offsets, indices, ends)
    if total < 0:
        raise no_index(len(values), indices)
    if total > MAX_BYTES:
        raise FormatError(
            "byte arrays of one page", expected=f"at most {MAX_BYTES} bytes", got=total
        )
    return ByteArrays(chosen.copy(as_bytes(values.data), offsets, indices, ends), ends)


def no_index(size: int, indices: npt.NDArray[np.integer[Any]]) -> IndexError:
    """The error that names the first index that is none of ``size`` values."""
    wrong = indices[(indices < 0) | (indices >= size)]
    return IndexError(f"index {int(wrong[0])} into {size} values")
