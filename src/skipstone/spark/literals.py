"""Exact values of Catalyst literals in the stored domain (``predicate/literals.py``).

Spark keeps strings as UTF-8 bytes, dates as days, timestamps as microseconds, decimals as
``Decimal``; their ``toString`` is exact for all but binary and for strings that are not UTF-8
(bytes that are not UTF-8 print as U+FFFD, as does U+FFFD itself).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.predicate.zones import civil_day

if TYPE_CHECKING:
    from skipstone.predicate.types import Value

    from .session import JavaObject, Jvm


_DATE = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)")
#: the replacement of bytes that are not UTF-8
REPLACED = "\ufffd"


class UnreadableLiteral(ValueError):
    """A literal's value is not known exactly, so a predicate with it prunes nothing."""


def value_of(text: str, type: pa.DataType) -> Value:
    """The value that Spark printed as ``text``; dates also as days, timestamps as microseconds."""
    t = pa.types
    if t.is_string(type):
        return text
    if t.is_boolean(type):
        return {"true": True, "false": False}[text]
    if t.is_float32(type):
        return float(np.float32(text))
    if t.is_float64(type):
        return float(text)
    if t.is_decimal(type):
        return unscaled(text, type.scale)
    if t.is_date(type) and (match := _DATE.fullmatch(text)):
        days = civil_day(*(int(part) for part in match.groups()))
        if days is None:
            raise UnreadableLiteral(f"no such date: {text}")
        return days
    return int(text)


def fetch_listed(jvm: Jvm, node: JavaObject, count: int) -> list[int | None]:
    """The TIMESTAMPs of an IN list of ``count`` literals, in constant calls."""
    array = jvm.type("org.apache.spark.sql.catalyst.expressions.CreateArray")(node.list(), False)
    parts = str(array.eval(None).toString()).strip("[]").split(",")
    if len(parts) != count:
        raise UnreadableLiteral(f"{len(parts)} values where {count} were listed")
    return [None if part.strip() == "null" else int(part) for part in parts]


def unscaled(text: str, scale: int) -> int:
    """``1.50`` at scale 3 -> 1500, whatever the number of digits."""
    sign, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int):
        raise UnreadableLiteral(f"not a decimal: {text}")
    value: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift < 0:
        value, rest = divmod(value, 10**-shift)
        if rest:
            raise UnreadableLiteral(f"{text} has more than {scale} digits after the point")
    else:
        value *= 10**shift
    return -value if sign else value


def fetch_values(literal: JavaObject, type: pa.DataType) -> Value:
    """The value of one ``Literal`` of the JVM, not null: bytes, microseconds or a string."""
    value = literal.value()
    if pa.types.is_binary(type):
        return bytes(value)
    if pa.types.is_timestamp(type):
        return int(value)
    try:
        return bytes(value.getBytes()).decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableLiteral("a string that is not UTF-8") from None


def fetch_set(jvm: Jvm, inset: JavaObject, type: pa.DataType) -> list[Value | None]:
    """The values of an ``InSet`` of the JVM, NULL as ``None``."""
    if pa.types.is_binary(type):
        return _binary_set(str(inset.sql()))
    values = inset.hset()
    texts = jvm.join(values)
    out: list[Value | None] = []
    if values.contains(None):
        # NULL prints as "null", and so does the string.
        texts.remove("null")
        out.append(None)
    if pa.types.is_string(type) and any(REPLACED in text for text in texts):
        raise UnreadableLiteral("an IN list with strings that may not be UTF-8")
    out.extend(value_of(text, type) for text in texts)
    return out


def _binary_set(sql: str) -> list[Value | None]:
    """The values of ``(b IN (X'00FF', NULL))``: hexadecimal, so they start at the last ``IN (``."""
    _, _, listed = sql.rpartition(" IN (")
    out: list[Value | None] = []
    for item in listed.removesuffix("))").split(", "):
        if item in ("NULL", "CAST(NULL AS BINARY)"):
            out.append(None)
        elif match := re.fullmatch(r"X'((?:[0-9A-Fa-f]{2})*)'", item):
            out.append(bytes.fromhex(match[1]))
        else:
            raise UnreadableLiteral(f"a binary value printed as {item[:40]}")
    return out
