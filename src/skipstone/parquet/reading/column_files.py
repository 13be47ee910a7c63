"""The files that the columns of one file lie in, found and told from others before they are read.

All that the footer notes (``formats/parquet/column_files.py``) are looked at when the file is
opened, one request each. One that is gone, or is not the file that was written, is refused when
something of it is to be read, and its columns say nothing to plans; the others can be read.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, StaleError
from skipstone.parquet.format.column_files import column_files

from .chunk_place import beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.identity import ObjectId
    from skipstone.parquet.format.column_files import ColumnFile
    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .pinned_reader import PinnedReader

__all__ = ["homes_of", "pin_column_files"]

_PARALLEL = 32


def pin_column_files(
    reader: PinnedReader, path: str, footer: FooterArrays
) -> Mapping[str, ObjectId]:
    """The versions of the files that ``path`` has columns in, by ``file_path``, as far as they are
    what they should be. From now on the reader reads these, and refuses the others."""
    noted = column_files(footer)
    places = {name: beside(path, name) for name in noted}
    if not noted:
        return {}

    def look(name: str) -> ObjectId | SkipstoneError:
        return _looked(reader, path, places[name], noted[name])

    workers = min(_PARALLEL if reader.storage.remote else 1, len(noted))
    with ThreadPoolExecutor(workers) as pool:
        found = dict(zip(noted, pool.map(look, noted), strict=True))
    good: dict[str, ObjectId] = {}
    for name, each in found.items():
        if isinstance(each, SkipstoneError):
            reader.refuse(places[name], each)
        else:
            reader.pin(each)
            reader.bytes_read += noted[name].tail
            good[name] = each
    return good


def _looked(
    reader: PinnedReader, path: str, place: str, expected: ColumnFile
) -> ObjectId | SkipstoneError:
    hint = "put the file back that was written with it, or write both anew"
    try:
        found, tail = reader.storage.read_tail(place, expected.tail)
    except FileNotFoundError:
        return StaleError(f"{path} has columns in {place}, which is not there", hint=hint)
    except OSError as error:
        return StaleError(f"{path} has columns in {place}, which cannot be read: {error}")
    if found.size != expected.size or zlib.crc32(tail) != expected.crc32:
        return StaleError(
            f"{path} has columns in {place}, which is not the file that was written with it",
            hint=hint,
        )
    return found


def homes_of(footer: FooterArrays, files: Mapping[str, ObjectId]) -> dict[int, tuple[str, int]]:
    """Path and size of the file that each leaf lies in, where all of its chunks lie in one of
    ``files``."""
    if not files:
        return {}
    found: dict[int, tuple[str, int]] = {}
    for leaf in range(footer.num_leaves):
        names = {footer.value_bytes("file_path", r, leaf) for r in range(footer.num_row_groups)}
        name = next(iter(names)) if len(names) == 1 else None
        home = None if name is None else files.get(name.decode("utf-8", "surrogateescape"))
        if home is not None and home.size is not None:
            found[leaf] = home.path, home.size
    return found
