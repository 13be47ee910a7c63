"""Tokens of Spark SQL, and the literals that they form, both read as Spark reads them.

General SQL parsers lose the exact value and type of a literal, which pruning needs:

- ``5``, ``3000000000``: the narrowest of int, bigint, decimal that holds it;
- ``5Y``, ``5S``, ``5L``: tinyint, smallint, bigint;
- ``5.50``, ``5.50BD``: decimal(3, 2); ``1e3``, ``1D``: double; ``1F``: float;
- a string's backslash escapes: 0 b n r t Z, u with 4 and U with 8 hex digits, 3 octal digits below
  200; before % and _ the backslash stays, before any other character it is dropped;
- a doubled quote inside a string of its kind stands for one; ``r'...'`` has no escapes;
- neighbouring strings are one (``sql.py``); a backquoted name may hold any character;
- digits and suffixes are ASCII. Spark wants backquotes around a name with other letters; here they
  may be left out;
- a comment after ``--`` ends at a line feed or a carriage return; ``/*+`` starts a hint, which a
  condition cannot have;
- ``DATE '…'``, ``TIMESTAMP '…'``, ``X'…'`` name their type; a literal under casts that no session
  setting changes is a literal too.
"""

from __future__ import annotations

import math
import re
from binascii import unhexlify
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError

from .operands import Unusable, cast_constant, float32_of
from .tree import Cast, Literal
from .types import TIMESTAMP, TIMESTAMP_NTZ
from .zones import parse_date, parse_local

if TYPE_CHECKING:
    from .tree import Operand


class TokenKind(Enum):
    """The kind of a token; every keyword is a NAME."""

    NAME = "name"
    QUOTED = "quoted name"
    NUMBER = "number"
    STRING = "string"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` is upper case for names and normalised for comparisons; ``value`` is the name or the
    content of the string; ``start`` and ``end`` count characters of the source."""

    kind: TokenKind
    text: str
    value: str
    start: int
    end: int


_SPACE = re.compile(
    r"[ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+|--(?:\\\n|[^\r\n])*"
)
_NUMBER = re.compile(
    r"(?:[0-9]+[LSYlsy]|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[FDfd])?)"
    r"(?!\w)"
)
# ASCII word characters and the letters of all scripts.
_NAME = re.compile(r"(?:[A-Za-z0-9_]|[^\W\d_])+")
_RAW = re.compile(r"[rR](?:'([^']*)'|\"([^\"]*)\")")
_STRING = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.|\"\")*)\"", re.DOTALL)
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_SYMBOL = re.compile(r"<=>|<>|!=|==|<=|>=|!>|!<|\|\||::|->|=>|.", re.DOTALL)
# Spark compares the digits as written with these, so what rounds to them is out of range too.
_MOST_FLOAT = Decimal("3.4028234663852886E38")
_MOST_DOUBLE = Decimal("1.7976931348623157E308")
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``, an END token last; ``PredicateError`` for a string without an end and
    for unexpected characters."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if match := _SPACE.match(text, at):
            at = match.end()
            continue
        if text.startswith("/*", at):
            if text.startswith("/*+", at):
                raise PredicateError("a condition has no hints", text=text, position=at)
            at = _comment_end(text, at)
            continue
        token = _token(text, at)
        tokens.append(token)
        at = token.end
    tokens.append(Token(TokenKind.END, "", "", len(text), len(text)))
    return tokens


def _token(text: str, at: int) -> Token:
    if match := _RAW.match(text, at):
        raw = match[1] if match[1] is not None else match[2]
        return Token(TokenKind.STRING, match[0], raw, at, match.end())
    if text[at] in "'\"":
        match = _STRING.match(text, at)
        if match is None:
            raise PredicateError("a string without an end", text=text, position=at)
        quote = text[at]
        body = (match[1] if quote == "'" else match[2]).replace(quote * 2, f"\\{quote}")
        return Token(TokenKind.STRING, match[0], unescape(body), at, match.end())
    if text[at] == "`":
        match = _QUOTED.match(text, at)
        if match is None:
            raise PredicateError("a quoted name without an end", text=text, position=at)
        return Token(TokenKind.QUOTED, match[0], match[1].replace("``", "`"), at, match.end())
    if match := _NUMBER.match(text, at):
        return Token(TokenKind.NUMBER, match[0].upper(), match[0], at, match.end())
    if match := _NAME.match(text, at):
        # Some other letters have an upper case in ASCII: "ıs" is not IS.
        word = match[0].upper() if match[0].isascii() else match[0]
        return Token(TokenKind.NAME, word, match[0], at, match.end())
    if text[at] > "\x7e" or (text[at] < " "):
        raise PredicateError(f"no token of Spark SQL has {text[at]!r}", text=text, position=at)
    match = _SYMBOL.match(text, at)
    assert match is not None
    symbol = match[0]
    return Token(TokenKind.SYMBOL, _SAME.get(symbol, symbol), symbol, at, match.end())


def _comment_end(text: str, at: int) -> int:
    """The place after the bracketed comment at ``at``; comments nest."""
    depth, position = 0, at
    while True:
        opened, closed = text.find("/*", position), text.find("*/", position)
        if closed < 0:
            raise PredicateError("a comment without an end", text=text, position=at)
        if 0 <= opened < closed:
            depth, position = depth + 1, opened + 2
        else:
            depth, position = depth - 1, closed + 2
            if depth == 0:
                return position


def unescape(body: str) -> str:
    """The value of the text between quotes; see the module."""
    if "\\" not in body:
        return body

    def one(match: re.Match[str]) -> str:
        short, long, octal, char = match.groups()
        if char is not None:
            return match[0] if char in "%_" else _LETTERS.get(char, char)
        code = int(short or long, 16) if short or long else int(octal, 8)
        if code < 0x110000:
            return chr(code)
        # Spark makes two halves of any number, and Java keeps 16 bits of each.
        high, low = divmod(code - 0x10000, 0x400)
        return chr(high + 0xD800 & 0xFFFF) + chr(low + 0xDC00)

    text = _ESCAPE.sub(one, body)
    if _SURROGATE.search(text) is None:
        return text
    # Two escaped halves of a pair are one character; a lone half has no UTF-8, Java writes "?".
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub("?", whole)


def number(text: str, *, negative: bool) -> Literal | None:
    """The literal of a number token (upper case); ``None`` where Spark refuses it."""
    if len(text) > 1_000:
        return None
    sign = -1 if negative else 1
    body, suffix = text, ""
    for candidate in ("BD", "L", "S", "Y", "F", "D"):
        if text.endswith(candidate):
            body, suffix = text[: -len(candidate)], candidate
            break
    # Java's exponents and scales have 32 bits.
    if abs(int(body.partition("E")[2] or "0")) >= 2**31:
        return None
    _, digits, exponent = Decimal(body).as_tuple()
    if not isinstance(exponent, int) or exponent <= -(2**31):
        return None
    whole = body.isdigit()
    if suffix in ("L", "S", "Y"):
        bits, type = {"L": (64, pa.int64()), "S": (16, pa.int16()), "Y": (8, pa.int8())}[suffix]
        return _integer(sign * int(body), bits, type)
    if suffix == "D" or (not suffix and "E" in body):
        return Literal(sign * float(body), pa.float64()) if _fits(body, _MOST_DOUBLE) else None
    if suffix == "F":
        if not _fits(body, _MOST_FLOAT):
            return None
        # Smaller than any float; exact fractions are expensive.
        tiny = float(body) < 1e-60
        return Literal(sign * (0.0 if tiny else float32_of(Fraction(body))), pa.float32())
    if whole and not suffix:
        value = sign * int(body)
        for bits, type in ((32, pa.int32()), (64, pa.int64())):
            if found := _integer(value, bits, type):
                return found
    if abs(exponent) > 60:
        return None
    scale = max(-exponent, 0)
    unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale)
    return Literal(sign * unscaled, pa.decimal128(precision, scale)) if precision <= 38 else None


def _fits(body: str, most: Decimal) -> bool:
    """Whether the digits as written are at most ``most``."""
    return math.isfinite(float(body)) and Decimal(body).compare(most) <= 0


def _integer(value: int, bits: int, type: pa.DataType) -> Literal | None:
    half = 1 << (bits - 1)
    return Literal(value, type) if -half <= value < half else None


class UnknownFormError(Exception):
    """The text has none of the forms that this parser reads; the message says why."""


def fold_casts(value: Operand) -> Literal:
    """A literal, or a literal under casts that no session setting changes, as one literal."""
    if isinstance(value, Literal):
        return value
    if isinstance(value, Cast) and value.type is not None and not pa.types.is_null(value.type):
        inner = fold_casts(value.operand)
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
                raise UnknownFormError(str(unusable)) from None
            return Literal(value_there, value.type)
    raise UnknownFormError("a list with something other than literals")


def typed_literal(name: str, text: str) -> Literal:
    match name:
        case "X":
            try:
                return Literal(unhexlify(text.rjust(len(text) + len(text) % 2, "0")), pa.binary())
            except ValueError:
                raise UnknownFormError(f"X'{text}' is not a binary literal") from None
        case "DATE":
            day = parse_date(text)
            if day is not None:
                return Literal(day, pa.date32())
        case "TIMESTAMP_NTZ":
            local = parse_local(text)
            if local is not None:
                return Literal(local, TIMESTAMP_NTZ)
        case _:
            # Without an offset the value depends on the session zone, which binding knows.
            return Literal(text, TIMESTAMP)
    looks = {"DATE": "DATE '2026-01-31'"}.get(name, f"{name} '2026-01-31 12:00:00'")
    raise UnknownFormError(f"{name} literal '{text}' cannot be read: it is written as {looks}")
