"""The literal prefix of a LIKE pattern: what an ordered index can use of it."""

from __future__ import annotations

from .coercion import Unusable

__all__ = ["literal_prefix"]


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool, bool]:
    """(literal prefix, prefix decides alone, no wildcard at all) of a LIKE pattern."""
    prefix: list[str] = []
    at = 0
    open_ended = False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == escape:
            if at == len(pattern) or (pattern[at] not in "_%" and pattern[at] != escape):
                raise Unusable("the pattern has an escape character before nothing special")
            if not open_ended:
                prefix.append(pattern[at])
            at += 1
        elif char in "_%":
            if not open_ended:
                open_ended, rest = True, pattern[at - 1 :]
        elif not open_ended:
            prefix.append(char)
    text = "".join(prefix)
    if not open_ended:
        return text, False, True
    return text, set(rest) == {"%"} and escape != "%", False
