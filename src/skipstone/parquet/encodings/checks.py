"""What every decoder checks first, and the error that it raises."""

from __future__ import annotations

from skipstone.errors import FormatError

__all__ = ["check_count", "check_room", "too_short"]


def check_count(count: int) -> None:
    """FormatError where a number of values is negative."""
    if count < 0:
        raise FormatError("number of values", expected="0 or more", got=count)


def check_room(what: str, needed: int, available: int, offset: int = 0) -> None:
    """FormatError where ``needed`` bytes are not ``available``."""
    if needed > available:
        raise too_short(what, offset, f"{needed} bytes", f"{available} bytes")


def too_short(what: str, offset: int, expected: object, got: object) -> FormatError:
    """The error of data that end before what they should hold, at ``offset`` of the data."""
    return FormatError(what, offset=offset, expected=expected, got=got)
