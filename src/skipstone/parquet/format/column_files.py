"""A file whose columns lie in several others: ``ColumnChunk.file_path``.

    events.parquet                PAR1  FileMetaData: every chunk names one of the files below
    _events.parquet.<token>.0     a Parquet file of some of the columns, whole in itself
    _events.parquet.<token>.1     …

Offsets of a chunk (pages, dictionary, index pages, page index, Bloom filter) count in the file that
it names, which lies in the same directory. The specification leaves open how a reader knows that it
is still that file; the key ``skipstone.columns`` of the footer says it: size and CRC-32 of the last
bytes of each, which hold a footer with a token of its own. The token is in the names too: files of
another version never stand in the place of these. Names begin with an underscore, which hides them
from Spark and others who list the directory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .footer_arrays import FooterArrays

__all__ = ["KEY", "MOST_TAIL", "TOKEN_KEY", "ColumnFile", "column_files", "note_of"]

#: what the other files are
KEY: Final = "skipstone.columns"
#: in each of them, which writing it is of
TOKEN_KEY: Final = "skipstone.column_file"
#: bytes at the end of a file that are looked at, at most
MOST_TAIL: Final = 64 * 1024
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """One of the other files: ``size`` in bytes, and ``crc32`` of the last ``tail`` of them."""

    size: int
    tail: int
    crc32: int


def note_of(files: Mapping[str, ColumnFile]) -> str:
    """The value of the key."""
    return json.dumps(
        {
            "version": _VERSION,
            "files": {
                name: {"size": each.size, "tail": each.tail, "crc32": each.crc32}
                for name, each in files.items()
            },
        },
        separators=(",", ":"),
    )


def column_files(footer: FooterArrays) -> dict[str, ColumnFile]:
    """What a footer says of the files that its columns lie in, by ``file_path``; nothing where it
    does not. ``FormatError`` for what is no such note, ``UnsupportedError`` for a later version."""
    if not (footer.places("file_path")[0] >= 0).any():
        return {}
    notes = [each.value for each in footer.key_value_metadata or () if each.key == KEY]
    if not notes:
        return {}
    try:
        held: Any = json.loads(notes[-1] or "")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{KEY} is no JSON") from error
    if not isinstance(held, dict) or not isinstance(held.get("files"), dict):
        raise FormatError(f"{KEY} names no files")
    if held.get("version") != _VERSION:
        raise UnsupportedError(f"{KEY} of version {held.get('version')!r}")
    if len(held["files"]) > footer.num_leaves:
        raise FormatError(
            f"{KEY} names more files than there are columns",
            expected=footer.num_leaves,
            got=len(held["files"]),
        )
    return {name: _file(name, each) for name, each in held["files"].items()}


def _file(name: str, held: Any) -> ColumnFile:
    values: list[Any] = (
        [held.get(each) for each in ("size", "tail", "crc32")] if isinstance(held, dict) else []
    )
    if len(values) != 3 or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise FormatError(f"{KEY} of {name!r}", expected="size, tail and crc32")
    size, tail, crc32 = values
    if not (0 < tail <= min(size, MOST_TAIL) and size < 1 << 62 and 0 <= crc32 < 1 << 32):
        raise FormatError(f"{KEY} of {name!r} is out of range", got=values)
    return ColumnFile(size=size, tail=tail, crc32=crc32)
