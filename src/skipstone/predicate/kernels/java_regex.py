r"""The regular expressions of Java that RE2 and Python decide alike, translated for both.

RLIKE asks whether Java's ``Matcher.find`` finds anything. For the forms below the answer depends on
the language of the expression alone, not on the order of search, so that an automaton gives it:

- characters; ``.``, which is no line terminator (``\n \r \x85 \u2028 \u2029``); ``^`` and ``$``;
- ``\d \w \s`` and their negations (of ASCII), ``\t \n \r \f \a \e``, ``\xhh``, ``\uhhhh``, a
  backslash before what is no letter or digit;
- classes of characters, ranges and these, ``[^…]``;
- groups ``(…)`` and ``(?:…)``, ``|``, and ``* + ? {n} {n,} {n,m}``, also with ``?`` after them;
- ``(?i)`` at the beginning: Java then ignores the case of ASCII letters alone.

Other forms are refused: references, lookaround, ``\b`` (which depends on the version of Java),
other flags, possessive quantifiers, classes within classes, ``\p{…}``, ``\Q…\E``.

Java's ``$`` also matches before a line terminator at the end; the translation for RE2 leaves that
out, and the one for Python has it. Where nothing follows a ``$`` within the expression (``tail``),
a match ends there: RE2 finds it in the text, or in the text without that terminator.
"""

from __future__ import annotations

import re

from skipstone._dataclasses import dataclass

from ..operands import Unusable

#: stands for any text between two literal texts of a match
GAP = ""
# The most alternatives that are examined; with more, nothing is known.
_MOST = 16
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
    """A regular expression of Java, translated. ``ends``: it has a ``$``.

    ``prefix`` is the text that every match begins with, at the start of the string (``anchored``)
    or anywhere in it; ``exact``: the prefix alone decides. Every match contains the texts of one of
    ``alternatives``, in that order; with ``any_case``, once both are in lower case.
    """

    re2: str
    python: str
    ends: bool
    tail: bool
    anchored: bool
    prefix: str
    exact: bool
    alternatives: tuple[tuple[str, ...], ...]
    any_case: bool

    def matches(self, text: str) -> bool:
        return re.search(self.python, text) is not None


def java_regex(pattern: str) -> JavaRegex:
    """Translates a pattern; ``Unusable`` for a form that the module docstring does not list."""
    any_case = pattern.startswith("(?i)")
    pattern = pattern[4:] if any_case else pattern
    parser = _RegexParser(pattern, any_case)
    alternatives = parser.alternatives(0)
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
    if any_case:
        literal, exact = "", False
    return JavaRegex(
        re2,
        "".join(parser.out),
        "$" in parser.seen,
        parser.tail,
        anchored,
        literal,
        exact,
        tuple(_texts(each) for each in alternatives),
        any_case,
    )


def _texts(pieces: list[str]) -> tuple[str, ...]:
    """The texts between gaps. U+FFFD is a gap, too: it also stands for bytes that are not UTF-8."""
    found = [GAP]
    for piece in pieces:
        if piece in (GAP, "\ufffd"):
            found.append("")
        else:
            found[-1] += piece
    return tuple(text for text in found if text)


class _RegexParser:
    def __init__(self, pattern: str, any_case: bool) -> None:
        self.pattern, self.any_case, self.at = pattern, any_case, 0
        self.out: list[str] = []
        self.split = False  # whether the outermost level has alternatives
        self.seen: set[str] = set()
        self.literal, self.rest, self._open = "", "", True
        self.tail, self.dollars = True, 0

    def alternatives(self, depth: int) -> list[list[str]]:
        """Reads alternatives: for each, the characters of every match, ``GAP`` for others."""
        if depth > 50:
            raise Unusable("the regular expression is nested too deeply")
        found: list[list[str]] = []
        while True:
            found += self.sequence(depth)
            if not self.pattern.startswith("|", self.at):
                return found if len(found) <= _MOST else [[GAP]]
            self.split |= depth == 0
            self.out.append("|")
            self.at += 1

    def sequence(self, depth: int) -> list[list[str]]:
        found: list[list[str]] = [[]]
        dollars = self.dollars
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            start, first = self.at, self.at == 0
            self.tail &= self.dollars == dollars
            atom = self.atom(depth)
            char = atom if isinstance(atom, str) else None
            pieces = [[atom]] if isinstance(atom, str) else atom
            quantifier = _QUANTIFIER.match(self.pattern, self.at)
            if quantifier is not None:
                least = self.quantifier(quantifier[0])
                self.tail &= self.dollars == dollars
                pieces = [[*each, GAP] for each in pieces] if least else [[GAP]]
            if len(found) * len(pieces) > _MOST:
                pieces = [[GAP]]
            if char is not None and self.any_case:
                # In lower case, a character beyond ASCII may depend on its neighbours.
                pieces = [[GAP if each > "\x7f" else each.lower() for each in pieces[0]]]
            found = [[*begun, *each] for begun in found for each in pieces]
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
        return found

    def quantifier(self, text: str) -> int:
        """Reads a quantifier: how often the atom occurs at least."""
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
        return {"*": 0, "?": 0, "+": 1}.get(text) or (int(low) if low.isdecimal() else 0)

    def atom(self, depth: int) -> str | list[list[str]]:
        """Reads an atom: its character, or the characters of its alternatives."""
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
                inside = self.alternatives(depth + 1)
                if not self.pattern.startswith(")", self.at):
                    raise Unusable("the regular expression has an unmatched (")
                self.at += 1
                self.out.append(")")
                return inside
            case "[":
                self.out.append(self.characters())
                return [[GAP]]
            case ".":
                self.out.append(f"[^{_ENDS}]")
                return [[GAP]]
            case "^":
                self.seen.add("^")
                self.out.append("^")
                return [[GAP]]
            case "$":
                self.seen.add("$")
                self.dollars += 1
                self.out.append(_DOLLAR)
                return [[GAP]]
            case "\\":
                found = self.escaped()
                if len(found) > 1:
                    negated = found[0] == "^"
                    self.out.append(f"[^{found[1:]}]" if negated else f"[{found}]")
                    return [[GAP]]
                char = found
            case "*" | "+" | "?" | "{":
                raise Unusable(f"a regular expression with {char!r} before anything to repeat")
            case _:
                pass
        both = self.any_case and char.isascii() and char.isalpha()
        self.out.append(f"[{char.lower()}{char.upper()}]" if both else _escape(char))
        return char

    def escaped(self) -> str:
        """Reads what follows a backslash: a character, or a class without brackets, ``^`` if
        negated."""
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
        """Reads a class after its opening bracket."""
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
                parts += [f"{_escape(a)}-{_escape(b)}" for a, b in self.spans(low, high)]
            else:
                parts += [_escape(a) for a, _ in self.spans(low, low)]
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def spans(self, low: str, high: str) -> list[tuple[str, str]]:
        """A range; if case is ignored, also its ASCII letters in the other case."""
        found = [(low, high)]
        for first, last in (("a", "z"), ("A", "Z")) if self.any_case else ():
            inside = max(low, first), min(high, last)
            if inside[0] <= inside[1]:
                found.append((inside[0].swapcase(), inside[1].swapcase()))
        return found

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
    """The character, escaped for RE2 and Python, inside a class and outside."""
    if char.isalnum() or char == "_" or not char.isascii() or char in "\n\r\t\f\x07\x1b\x0b \x00":
        return char
    return "\\" + char if char.isprintable() else char
