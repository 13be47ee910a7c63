"""Names of a store read back: they prove that the names written are one to one."""

from __future__ import annotations

import re

from skipstone.errors import FormatError
from skipstone.xskipper.format.naming import CURRENT_VERSION, clean, column_name

_CLEANED = re.compile(r"##|\$#\$")
_LENGTHS = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9})*")
# Rows of old fixtures have 13 digits; Java's long has at most 19; a sign is never written here.
_OBJ_NAME = re.compile(r"(.*)#([0-9]{1,18})", re.DOTALL)


def unclean(cleaned: str) -> str:
    """The (lower-case) column name behind ``clean``; ``FormatError`` for what no name cleans to."""
    column = _CLEANED.sub(lambda match: "#" if match.group() == "##" else ".", cleaned)
    if clean(column) != cleaned:
        raise FormatError("not a cleaned column name", expected="# doubled, . as $#$", got=cleaned)
    return column


def parse_column_name(
    name: str, version: int = CURRENT_VERSION
) -> tuple[str, tuple[str, ...]] | None:
    """``(kind, columns)`` behind the name of an index column; ``None`` where not certain.

    Versions 2 to 4 carry the lengths and are unambiguous. Versions 0 and 1 are not (``a_b_minmax``
    is one column or two): the schema's own ``cols`` is the truth there, and this says ``None``.
    """
    if version < 2 or version > CURRENT_VERSION:
        return None
    head, _, lengths = name.rpartition("_")
    if not _LENGTHS.fullmatch(lengths):
        return None
    # UTF-16 code units, because the lengths count them.
    units = head.encode("utf-16-le", "surrogatepass")
    columns: list[str] = []
    at = 0
    try:
        for length in map(int, lengths.split("-")):
            part = units[at : at + 2 * length].decode("utf-16-le", "surrogatepass")
            at += 2 * length
            if units[at : at + 2] != b"_\x00":
                return None
            at += 2
            columns.append(unclean(part))
        kind = units[at:].decode("utf-16-le", "surrogatepass")
    except (FormatError, UnicodeDecodeError):
        return None
    if not kind or column_name(kind, columns, version) != name:
        return None
    return kind, tuple(columns)


def parse_obj_name(text: str) -> tuple[str, int]:
    """Parses ``<path>#<ms>`` at the last ``#``; ``FormatError`` where there is no such end."""
    match = _OBJ_NAME.fullmatch(text)
    if match is None:
        raise FormatError("not an obj_name", expected="<path>#<milliseconds>", got=text[:200])
    return match.group(1), int(match.group(2))
