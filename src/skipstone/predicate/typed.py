"""Expressions with types: what ``expressions.py`` makes of operands, and ``kernels/`` evaluates.

Types are the canonical ones of ``types.py``; a column may also be a list, a map or a struct. Every
implicit cast of Spark is a node of its own (``typed_casts.py``), so kernels see the types that they
are written for.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone._dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .types import Value


# The type of an ``Interval``, which can only be added to a date or a timestamp.
INTERVAL_TYPE = pa.month_day_nano_interval()


@dataclass(frozen=True, slots=True)
class Interval:
    """A constant interval: months, or days and microseconds. ``dates``: it has no time of day, so
    that a date plus it is a date."""

    months: int = 0
    days: int = 0
    micros: int = 0
    dates: bool = True

    def negative(self) -> Interval:
        return Interval(-self.months, -self.days, -self.micros, self.dates)


@dataclass(frozen=True, slots=True)
class Typed:
    """A kernel over arguments. ``value`` is the name of a ``column``, the value of a ``constant``
    (of the stored domain, ``None`` for NULL), or what else the kernel needs to know."""

    type: pa.DataType
    kernel: str
    args: tuple[Typed, ...] = ()
    value: Any = None

    def __hash__(self) -> int:
        return hash((self.kernel, self.args))

    @property
    def is_constant(self) -> bool:
        return self.kernel == "constant"

    @property
    def is_null(self) -> bool:
        return self.kernel == "constant" and self.value is None

    def nodes(self) -> Iterator[Typed]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.args))

    def replaced(self, columns: Mapping[Typed, str]) -> Typed:
        """The expression with its largest parts that ``columns`` has replaced by columns."""
        name = columns.get(self.failing())
        if name is not None:
            return Typed(self.type, "column", (), name)
        args = tuple(arg.replaced(columns) for arg in self.args)
        same = all(new is old for new, old in zip(args, self.args, strict=True))
        return self if same else replace(self, args=args)

    def failing(self) -> Typed:
        """The expression with sums that fail instead of wrapping around."""
        args = tuple(arg.failing() for arg in self.args)
        wraps = self.kernel in ("+", "-", "negate") and self.value == "wraps"
        return replace(self, args=args, value=None if wraps else self.value)

    def by_spark(self) -> str | None:
        """A function within the expression that only Spark computes, or ``None``."""
        return next((node.value for node in self.nodes() if node.kernel == "spark"), None)

    def same_in_both_modes(self) -> bool:
        """Whether Spark computes the same without ANSI mode, with any casts that it adds there."""
        return all(
            node.kernel in _OF_BOTH_MODES or (node.kernel == "cast" and _never_fails(node))
            for node in self.nodes()
        )

    def columns(self) -> list[tuple[str, pa.DataType]]:
        """The columns that it reads, and their types."""
        found = {node.value: node.type for node in self.nodes() if node.kernel == "column"}
        return list(found.items())


# Kernels that do not fail, over arguments that Spark casts to text or times in any mode.
_OF_BOTH_MODES = {"column", "constant", "upper", "lower", "length", "trim", "substring", "concat"}
_OF_BOTH_MODES |= {"startswith", "endswith", "contains", "like", "rlike", "map_value", "spark"}
_OF_BOTH_MODES |= {"field", "trunc", "date_trunc", "array", "array_contains", "arrays_overlap"}
_OF_BOTH_MODES |= {"map_keys", "map_values"}


def _never_fails(cast: Typed) -> bool:
    source, t = cast.args[0].type, pa.types
    times = all(t.is_date(each) or t.is_timestamp(each) for each in (source, cast.type))
    return times or bool(t.is_string(cast.type))


def constant(value: Value | Interval | None, type: pa.DataType) -> Typed:
    return Typed(type, "constant", (), value)


def scalar(value: Value | None, type: pa.DataType) -> pa.Scalar:
    """A value of the stored domain as Arrow has it."""
    if value is None:
        return pa.scalar(None, type)
    if pa.types.is_decimal(type):
        digits = tuple(map(int, str(abs(int(value)))))
        return pa.scalar(Decimal((int(int(value) < 0), digits, -type.scale)), type)
    if pa.types.is_date(type):
        return pa.scalar(int(value), pa.int32()).cast(type)
    if isinstance(value, str):
        return pa.scalar(value.encode("utf-8", "surrogatepass"), pa.binary()).cast(type)
    return pa.scalar(value, type)
