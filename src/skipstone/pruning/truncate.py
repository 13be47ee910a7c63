"""Bounds of long strings and byte arrays, cut to a length: sound, not attained.

A lower bound is cut to its first ``limit`` bytes: a prefix sorts before all that it begins. An
upper bound is cut and then counted up, so that it sorts after all that begin with the cut part:
the last byte below ff (binary), or the last code point below U+10FFFF (string; the surrogates,
which UTF-8 has no form of, are stepped over), is increased by one and what follows it dropped.
UTF-8 sorts by bytes as by code points, so the bound stays true, and it stays valid UTF-8; it may
be three bytes longer than ``limit`` where the increased code point takes more bytes. Where nothing
can be increased there is no upper bound: ``None``, which readers take for "unbounded".
"""

from __future__ import annotations

__all__ = ["cut_lower", "cut_upper"]

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def cut_lower(value: bytes, limit: int, *, utf8: bool) -> bytes:
    """A lower bound of all that ``value`` bounds from below, at most ``limit`` bytes long."""
    return value if len(value) <= limit else _prefix(value, limit, utf8=utf8)


def cut_upper(value: bytes, limit: int, *, utf8: bool) -> bytes | None:
    """An upper bound of all that ``value`` bounds from above; ``None`` where there is no short one.

    ``value`` must be valid where ``utf8`` (``UnicodeDecodeError``).
    """
    if len(value) <= limit:
        return value
    prefix = _prefix(value, limit, utf8=utf8)
    if utf8:
        text = prefix.decode("utf-8")
        for at in range(len(text) - 1, -1, -1):
            following = ord(text[at]) + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            if following <= _LAST:
                return (text[:at] + chr(following)).encode("utf-8")
        return None
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] < 0xFF:
            return prefix[:at] + bytes((prefix[at] + 1,))
    return None


def _prefix(value: bytes, limit: int, *, utf8: bool) -> bytes:
    """The first ``limit`` bytes, less what would split a code point."""
    end = limit
    while utf8 and end > 0 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]
