r"""The regular expressions of Java that RE2 and Python decide alike, translated for both.

RLIKE asks whether Java's ``Matcher.find`` finds anything. For the forms below the answer depends on
the language of the expression alone, not on the order of search, so that an automaton gives it:

- characters; ``.``, which is no line terminator (``\n \r \x85 \u2028 \u2029``); ``^`` and ``$``;
- ``\d \w \s`` and their negations (of ASCII), ``\t \n \r \f \a \e``, ``\xhh``, ``\uhhhh``, a
  backslash before what is no letter or digit;
- classes of characters, ranges and these, ``[^…]``;
- groups ``(…)`` and ``(?:…)``, ``|``, and ``* + ? {n} {n,} {n,m}``, also with ``?`` after them.

Other forms are refused: references, lookaround, ``\b`` (which depends on the version of Java),
``(?i)`` and other flags, possessive quantifiers, classes within classes, ``\p{…}``, ``\Q…\E``.

Java's ``$`` also matches before a line terminator at the end; the translation for RE2 leaves that
out, and the one for Python has it (``patterns.rlike`` uses that for such texts).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..operands import Unusable

_ENDS = "\n\r\x85\u2028\u2029"
_CLASSES = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": " \\t\\n\\x0b\\f\\r",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d{1,4}(?:,\d{0,4})?\})", re.ASCII)
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")
# Before the terminator at the end, but not between \r and \n.
_DOLLAR = rf"(?:(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r{_ENDS[2:]}]\Z)|\Z)"


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """``re2`` and ``python`` find what the expression finds. ``ends``: it has a ``$``.

    ``prefix`` is the text that every match begins with, at the start of the string (``anchored``)
    or anywhere in it; ``exact`` where the rest does not decide.
    """

    re2: str
    python: str
    ends: bool
    anchored: bool
    prefix: str
    exact: bool

    def matches(self, text: str) -> bool:
        return re.search(self.python, text) is not None


def java_regex(pattern: str) -> JavaRegex:
    """``Unusable`` for a form that is not in the list above."""
    parser = _Parser(pattern)
    parser.alternatives(0)
    if parser.at < len(pattern):
        raise Unusable("the regular expression has an unmatched )")
    re2 = "".join(parser.out).replace(_DOLLAR, r"\z")
    try:
        re.compile("".join(parser.out))
    except (re.error, OverflowError, RecursionError):
        raise Unusable("the regular expression is not one that is decided") from None
    anchored = pattern.startswith("^") and not parser.split
    literal = parser.literal if not parser.split else ""
    exact = not parser.split and parser.rest in ("", ".*")
    if not anchored and "^" in parser.seen:
        literal, exact = "", False
    return JavaRegex(re2, "".join(parser.out), "$" in parser.seen, anchored, literal, exact)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.out: list[str] = []
        self.split = False  # alternatives at the top
        self.seen: set[str] = set()
        self.literal, self.rest, self._open = "", "", True

    def alternatives(self, depth: int) -> None:
        if depth > 50:
            raise Unusable("the regular expression is nested too deeply")
        while True:
            self.sequence(depth)
            if not self.pattern.startswith("|", self.at):
                return
            self.split |= depth == 0
            self.out.append("|")
            self.at += 1

    def sequence(self, depth: int) -> None:
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            start, first = self.at, self.at == 0
            char = self.atom(depth)
            quantifier = _QUANTIFIER.match(self.pattern, self.at)
            if quantifier is not None:
                self.quantifier(quantifier[0])
            if depth:
                self._open = False
                continue
            piece = self.pattern[start : self.at]
            if first and piece == "^":
                continue
            if self._open and char is not None and quantifier is None:
                self.literal += char
            else:
                self._open = False
                self.rest += piece

    def quantifier(self, text: str) -> None:
        if self.out[-1] in ("^", _DOLLAR):
            raise Unusable("a quantifier after an anchor is not decided")
        low, _, high = text.strip("{}").partition(",")
        if text[0] == "{" and max(int(low), int(high or 0)) > 1000:
            raise Unusable("a regular expression repeats something more than 1,000 times")
        self.at += len(text)
        self.out.append(text)
        if self.pattern.startswith("?", self.at):
            self.at += 1
            self.out.append("?")
        elif self.pattern.startswith("+", self.at):
            raise Unusable("a possessive quantifier is not decided")
        if _QUANTIFIER.match(self.pattern, self.at):
            raise Unusable("a quantifier after a quantifier is not decided")

    def atom(self, depth: int) -> str | None:
        """Reads one; the character, if it is one."""
        char = self.pattern[self.at]
        self.at += 1
        match char:
            case "(":
                if self.pattern.startswith("?", self.at):
                    if not self.pattern.startswith("?:", self.at):
                        raise Unusable("flags, names and lookaround of groups are not decided")
                    self.at += 2
                self.out.append("(?:")
                self._open = False
                self.alternatives(depth + 1)
                if not self.pattern.startswith(")", self.at):
                    raise Unusable("the regular expression has an unmatched (")
                self.at += 1
                self.out.append(")")
                return None
            case "[":
                self.out.append(self.characters())
                return None
            case ".":
                self.out.append(f"[^{_ENDS}]")
                return None
            case "^":
                self.seen.add("^")
                self.out.append("^")
                return None
            case "$":
                self.seen.add("$")
                self.out.append(_DOLLAR)
                return None
            case "\\":
                found = self.escaped()
                if len(found) > 1:
                    negated = found[0] == "^"
                    self.out.append(f"[^{found[1:]}]" if negated else f"[{found}]")
                    return None
                char = found
            case "*" | "+" | "?" | "{":
                raise Unusable(f"a regular expression with {char!r} before anything to repeat")
            case _:
                pass
        self.out.append(_escape(char))
        return char

    def escaped(self) -> str:
        """After a backslash: a character, or a class without its brackets, ``^`` if negated."""
        char = self.pattern[self.at : self.at + 1]
        self.at += 1
        if char.lower() in _CLASSES and char:
            return ("^" if char.isupper() else "") + _CLASSES[char.lower()]
        if char in _CONTROLS and char:
            return _CONTROLS[char]
        if match := _HEX.match(self.pattern, self.at - 1):
            code = int(match[1] or match[2], 16)
            if not 0xD800 <= code < 0xE000:
                self.at = match.end()
                return chr(code)
        if not char or char.isalnum() or not char.isascii():
            raise Unusable(f"\\{char} of a regular expression is not decided")
        return char

    def characters(self) -> str:
        """A class, after its bracket."""
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        parts: list[str] = []
        while not (parts and self.pattern.startswith("]", self.at)):
            low = self.member()
            if len(low) > 1:
                parts.append(low)
                continue
            follows = self.pattern[self.at + 1 : self.at + 2]
            if self.pattern.startswith("-", self.at) and follows not in ("]", ""):
                self.at += 1
                high = self.member()
                if len(high) > 1 or high < low:
                    raise Unusable("a range of a regular expression without an order")
                parts.append(f"{_escape(low)}-{_escape(high)}")
            else:
                parts.append(_escape(low))
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def member(self) -> str:
        char = self.pattern[self.at : self.at + 1]
        if not char or char in "[]&^":
            raise Unusable("a class within a class, or an operator in one, is not decided")
        self.at += 1
        if char != "\\":
            return char
        found = self.escaped()
        if len(found) > 1 and found[0] == "^":
            raise Unusable("a negated class within a class is not decided")
        return found


def _escape(char: str) -> str:
    """A character for both, inside a class and outside."""
    if char.isalnum() or char == "_" or not char.isascii() or char in "\n\r\t\f\x07\x1b\x0b \x00":
        return char
    return "\\" + char if char.isprintable() else char
