"""Expressions with types: what ``expressions.py`` makes of operands, and ``kernels/`` evaluates.

Types are the canonical ones of ``types.py``; a column may also be a list, a map or a struct. Every
implicit cast of Spark is a node of its own (``typed_casts.py``), so kernels see the types that they
are written for.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .types import Value


# The type of an ``Interval``, which is only ever added to a date or a timestamp.
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

    def columns(self) -> list[tuple[str, pa.DataType]]:
        """The columns that it reads, and their types."""
        found = {node.value: node.type for node in self.nodes() if node.kernel == "column"}
        return list(found.items())


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
