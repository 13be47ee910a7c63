"""Arithmetic as Spark does it under ANSI rules.

Integers and decimals that leave their type fail, a division by zero fails, of floats too. The
remainder has the sign of the dividend. Decimals are computed in 256 bits and rounded half up, that
is away from zero: ``typed.decimal_result`` has their types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import numbers, validity

from ..literals import Keys, unscaled_values
from ..members import from_keys
from ..typed import scalar
from ..types import spark_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..typed import Typed
    from ..zones import Zone


class Failure(Exception):
    """Spark would fail, too; ``instead`` is another way to write the expression."""

    def __init__(self, message: str, instead: str = "") -> None:
        super().__init__(message)
        self.instead = instead


def _checked(call: Callable[[], pa.Array], type: pa.DataType, wider: str | None = None) -> pa.Array:
    try:
        return call()
    except pa.ArrowInvalid:
        instead = f"cast an operand to a wider type, CAST(x AS {wider})" if wider else ""
        raise Failure(f"a result that {spark_name(type)} cannot hold", instead) from None


def _wider(type: pa.DataType) -> str:
    """A wider type for sums and products, as SQL."""
    if pa.types.is_decimal(type):
        return "DOUBLE"
    return "BIGINT" if type.bit_width < 64 else "DECIMAL(20, 0)"


def _arithmetic(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    left, right = values
    if pa.types.is_decimal(node.type):
        return _decimal(node, left, right)
    checked = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
    if pa.types.is_floating(node.type):
        checked = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
    return _checked(lambda: checked[node.kernel](left, right), node.type, _wider(node.type))


def _wide(values: Any, scale: int | None = None) -> Any:
    """Decimals of 256 bits, with more digits of the scale."""
    type = values.type
    more = 0 if scale is None else scale - type.scale
    return values.cast(pa.decimal256(type.precision + more, type.scale + more))


def _decimal(node: Typed, left: Any, right: Any) -> pa.Array:
    a, b = _wide(left), _wide(right)
    if node.kernel == "*":
        found = pc.multiply(a, b)
    else:
        found = pc.add(a, b) if node.kernel == "+" else pc.subtract(a, b)
    return rounded(found, node.type)


def rounded(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Decimals at the scale of ``type``, half up; ``Failure`` where one has too many digits."""
    if values.type.scale > type.scale:
        values = pc.round(values, type.scale, round_mode="half_towards_infinity")
    return _checked(lambda: values.cast(type), type, _wider(type))


def _refuse_zero(left: Any, right: Any) -> None:
    """Raises ``Failure`` where Spark would divide by zero: NULL / 0 is NULL."""
    zero = pc.equal(right, scalar(0, right.type))
    if isinstance(zero, pa.Scalar) or isinstance(left, pa.Array):
        zero = pc.and_(pc.is_valid(left), zero)
    if pc.any(zero).as_py():
        raise Failure("a division by zero", "divide by nullif(x, 0), which gives NULL for 0")


def _divide(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    left, right = values
    _refuse_zero(left, right)
    if not pa.types.is_decimal(node.type):
        return pc.divide(left, right)
    # Arrow gives the quotient s1 + p2 - s2 + 1 digits after the point, cut: one more than needed is
    # enough, because only the next digit decides how to round.
    have = left.type.scale + right.type.precision - right.type.scale + 1
    more = max(node.type.scale + 1 - have, 0)
    return rounded(pc.divide(_wide(left, left.type.scale + more), _wide(right)), node.type)


def divisible(a: pa.DataType, b: pa.DataType, result: pa.DataType) -> bool:
    """Whether 76 digits are enough for ``_divide`` of these decimals."""
    scale = max(a.scale + b.precision - b.scale + 1, result.scale + 1)
    return bool(a.precision - a.scale + b.scale + scale <= 76)


def _known(left: Any, right: Any) -> Any:
    valid = validity(left)
    return valid & (validity(right) if isinstance(right, pa.Array) else right.is_valid)


def _plain(values: Any, null: int = 0) -> Any:
    """Numbers of an array or a scalar."""
    if isinstance(values, pa.Array):
        return numbers(values, null)
    return np.asarray(
        null if not values.is_valid else values.as_py(), values.type.to_pandas_dtype()
    )


def _remainder(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    left, right = values
    _refuse_zero(left, right)
    if pa.types.is_decimal(node.type):
        # Both have the type of the result, and at most 18 digits.
        a, b = map(_unscaled, values)
        return from_keys(Keys(np.fmod(a, b), _known(left, right)), node.type)
    with np.errstate(all="ignore"):
        found = np.fmod(_plain(left), _plain(right, 1))
        if node.kernel == "pmod":
            below = found < 0
            found = np.where(below, np.fmod(found + _plain(right, 1), _plain(right, 1)), found)
    return pa.array(found, node.type, mask=~_known(left, right))


def _div(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    left, right = values
    _refuse_zero(left, right)
    return _checked(lambda: pc.divide_checked(left, right), node.type)


def _unscaled(values: Any) -> Any:
    if isinstance(values, pa.Scalar):
        values = pa.repeat(values, 1)
    return np.where(validity(values), unscaled_values(values), 1)


def _negate(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    if not pa.types.is_integer(node.type):
        return pc.negate(values[0])
    return _checked(lambda: pc.negate_checked(values[0]), node.type, _wider(node.type))


def _abs(node: Typed, values: Sequence[Any], session: Zone | None) -> pa.Array:
    if not pa.types.is_integer(node.type):
        return pc.abs(values[0])
    return _checked(lambda: pc.abs_checked(values[0]), node.type, _wider(node.type))


KERNELS: dict[str, Callable[[Typed, Sequence[Any], Zone | None], pa.Array]] = {
    "+": _arithmetic,
    "-": _arithmetic,
    "*": _arithmetic,
    "/": _divide,
    "%": _remainder,
    "pmod": _remainder,
    "div": _div,
    "negate": _negate,
    "abs": _abs,
}
FALLIBLE = frozenset(KERNELS)
