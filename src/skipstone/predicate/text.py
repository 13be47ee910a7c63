"""Values of the stored domain (``literals.py``) as text: Spark SQL, and a short form for people."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from .types import Kind, kind_of, spark_type

Value: TypeAlias = "bool | int | float | str | bytes"


def display(value: Value, type: pa.DataType, limit: int = 60) -> str:
    """SQL-like text for people: exact, but long strings lose their middle."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, str | bytes) and len(value) > limit:
        half = limit // 2
        start, end = sql_text(value[:half], type), sql_text(value[-half:], type)
        return f"{start[:-1]}…{end[2 if isinstance(value, bytes) else 1 :]}"
    text = sql_text(value, type)
    return text.removesuffix("BD") if kind_of(type) is Kind.DECIMAL else text


def sql_text(value: Value, type: pa.DataType) -> str:
    """A Spark SQL literal of exactly this value of the stored domain of ``type``."""
    match kind_of(type):
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.STRING:
            return quote(str(value))
        case Kind.BINARY:
            assert isinstance(value, bytes)
            return f"X'{value.hex().upper()}'"
        case Kind.FLOATING:
            assert isinstance(value, float)
            name = "FLOAT" if spark_type(type) == pa.float32() else "DOUBLE"
            if not math.isfinite(value):
                text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
                return f"CAST('{text}' AS {name})"
            if name == "FLOAT":
                return f"CAST('{np.float32(value)!s}' AS FLOAT)"
            return f"{value!r}D"
        case Kind.DECIMAL:
            assert isinstance(value, int)
            return f"{decimal_text(value, type.scale)}BD"
        case Kind.DATE:
            return f"DATE '{_date_text(int(value))}'"
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ as kind:
            day, micros = divmod(int(value), 86_400_000_000)
            seconds, fraction = divmod(micros, 1_000_000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            if fraction:
                clock += f".{fraction:06}".rstrip("0")
            text = f"{_date_text(day)} {clock}"
            if kind is Kind.TIMESTAMP:
                return f"TIMESTAMP '{text}Z'"
            return f"TIMESTAMP_NTZ '{text}'"
        case Kind.DURATION:
            return f"INTERVAL '{decimal_text(int(value), 6)}' SECOND"
        case _:
            return str(value)


def quote(text: str) -> str:
    """A Spark SQL string literal: backslashes and quotes escaped, control characters as escapes.

    ``\\%`` and ``\\_`` keep their backslash in Spark, so a backslash is always doubled.
    """
    out = text.replace("\\", "\\\\").replace("'", "\\'")
    if not out.isprintable():
        out = "".join(c if c.isprintable() else _escape(c) for c in out)
    return f"'{out}'"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def decimal_text(unscaled: int, scale: int) -> str:
    """Digits of ``unscaled`` / 10^scale, all of them."""
    sign = "-" if unscaled < 0 else ""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _date_text(day: int) -> str:
    # Proleptic Gregorian, any year: move into the range of `date` by cycles of 400 years.
    cycles, rest = divmod(day - 10_957, 146_097)
    known = date(2000, 1, 1) + timedelta(days=rest)
    year = known.year + cycles * 400
    # Spark requires a sign before years of more than four digits.
    text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{text}-{known.month:02}-{known.day:02}"
