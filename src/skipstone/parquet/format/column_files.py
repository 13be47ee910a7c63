"""A file whose columns lie in other files: ``ColumnChunk.file_path``.

    events.parquet                PAR1  FileMetaData: every chunk names one of the files below
    _events.parquet.<token>.0     a Parquet file of some of the columns, whole in itself
    _events.parquet.<token>.1     …

Offsets of a chunk (pages, dictionary, index pages, page index, Bloom filter) count in the file that
it names, which lies in the same directory. The specification does not say how a reader recognises
that file. The key ``skipstone.columns`` of the footer does. Its value is JSON: ``{"version": 1,
"files": {NAME: {"size": …, "tail": …, "crc32": …}}}``, with the CRC-32 of the last ``tail`` bytes
(at most 64 KiB). They contain a footer whose key ``skipstone.column_file`` is the token. The names
contain the token too, so files of another version never replace these. Names begin with an
underscore, which hides them from Spark and other readers that list the directory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .footer_arrays import FooterArrays


#: the key in the footer that describes the other files
KEY: Final = "skipstone.columns"
#: the key in each of them, whose value is the token
TOKEN_KEY: Final = "skipstone.column_file"
#: the most bytes at the end of a file that the CRC-32 covers
MOST_TAIL: Final = 64 * 1024
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """One of the other files: ``size`` in bytes, ``crc32`` of the last ``tail`` bytes."""

    size: int
    tail: int
    crc32: int


def note_of(files: Mapping[str, ColumnFile]) -> str:
    """The value of ``KEY``."""
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


def _elsewhere(footer: FooterArrays) -> NDArray[np.bool_]:
    return np.asarray((footer.places("file_path")[0] >= 0).any(axis=1))


def column_files(footer: FooterArrays) -> dict[str, ColumnFile]:
    """The files that contain columns, by ``file_path``; empty where the footer does not name any.

    ``FormatError`` where the key is malformed, ``UnsupportedError`` for a later version.
    """
    if not footer.by_row_group(_elsewhere).any():
        return {}
    notes = [each.value for each in footer.key_value_metadata or () if each.key == KEY]
    if not notes:
        return {}
    try:
        held: Any = json.loads(notes[-1] or "")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{KEY} is not JSON") from error
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
