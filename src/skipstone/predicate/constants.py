"""Constants in SQL text: literals with a type's name, and literals under casts."""

from __future__ import annotations

from binascii import unhexlify
from typing import TYPE_CHECKING

import pyarrow as pa

from .coercion import Unusable, cast_constant
from .tree import Cast, Literal
from .types import TIMESTAMP, TIMESTAMP_NTZ
from .zones import parse_date, parse_local

if TYPE_CHECKING:
    from .tree import Operand

__all__ = ["Unknown", "folded", "typed_literal"]


class Unknown(Exception):
    """Not one of the forms that are read here; the message says why."""


def folded(value: Operand) -> Literal:
    """A literal, or a literal under casts that no session setting changes, as one literal."""
    if isinstance(value, Literal):
        return value
    if isinstance(value, Cast) and value.type is not None and not pa.types.is_null(value.type):
        inner = folded(value.operand)
        if inner.value is None:
            return Literal(None, value.type)
        if value.type == TIMESTAMP and inner.type == pa.string():
            return Literal(inner.value, TIMESTAMP)
        if inner.type is not None and not (
            inner.type == TIMESTAMP and isinstance(inner.value, str)
        ):
            try:
                value_there = cast_constant(inner.value, inner.type, value.type, None)  # type: ignore[arg-type]
            except Unusable as unusable:
                raise Unknown(str(unusable)) from None
            return Literal(value_there, value.type)
    raise Unknown("a list with something other than literals")


def typed_literal(name: str, text: str) -> Literal:
    match name:
        case "X":
            try:
                return Literal(unhexlify(text.rjust(len(text) + len(text) % 2, "0")), pa.binary())
            except ValueError:
                raise Unknown(f"X'{text}' is no binary literal") from None
        case "DATE":
            day = parse_date(text)
            if day is not None:
                return Literal(day, pa.date32())
        case "TIMESTAMP_NTZ":
            local = parse_local(text)
            if local is not None:
                return Literal(local, TIMESTAMP_NTZ)
        case _:
            # Without an offset it depends on the session zone, which binding knows.
            return Literal(text, TIMESTAMP)
    raise Unknown(f"{name} '{text}' cannot be read with certainty")
