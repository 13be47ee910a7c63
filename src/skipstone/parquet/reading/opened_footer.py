"""Reads the footer of a file, and pins the files that its columns lie in.

The footer is found at the file's end and opened by ``encryption/open_footer.py``. Where it notes
other files that hold columns (``format/column_files.py``), each is checked with one request. A file
that is gone, or is not the one that was written, is refused when its columns are read, and these
columns prove nothing to plans; all other columns can be read.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipstone.errors import FormatError, SkipstoneError, StaleError
from skipstone.parquet.encryption.open_footer import open_footer
from skipstone.parquet.format.column_files import column_files
from skipstone.parquet.format.footer import Tail

from .page_tables import adjacent_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.format.column_files import ColumnFile
    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .pinned_reader import PinnedReader


#: bytes read from a file's end at first: most footers are shorter
TAIL_GUESS = 64 * 1024
_PARALLEL = 32


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenedFooter:
    """``tail`` says where it lies; ``unavailable`` why leaves cannot be read, by ordinal.

    ``signature_verified``: the footer is plaintext, signed, and was verified. ``column_files`` are
    the versions of the files that columns lie in, by ``file_path``.
    """

    tail: Tail
    footer: FooterArrays
    decryptor: FileDecryptor | None = None
    signature_verified: bool = False
    unavailable: Mapping[int, SkipstoneError] = field(default_factory=dict)
    column_files: Mapping[str, ObjectId] = field(default_factory=dict)


def load_footer(
    reader: PinnedReader,
    path: str,
    decryption: Decryption | None,
    tail: memoryview | None = None,
) -> OpenedFooter:
    """Of the file at ``path`` in the version that ``reader`` has pinned; ``tail``: its last bytes.

    Raises as ``open_footer``, and ``FormatError`` for a file that is not Parquet.
    """

    def key_material() -> bytes:
        from skipstone.parquet.encryption.key_material import key_material_path

        return reader.storage.read(key_material_path(path))

    try:
        size = reader.size(path)
        if tail is None:
            length = min(TAIL_GUESS, size)
            tail = reader.one(path, size - length, length)
        end = Tail.from_bytes(tail, size)
        data = end.footer_in(tail)
        if data is None:
            data = reader.one(path, end.offset, end.length)
        found = open_footer(
            data,
            encrypted=end.encrypted,
            base=end.offset,
            decryption=decryption,
            file=path,
            load_key_material=key_material,
        )
        return OpenedFooter(
            tail=end,
            footer=found.footer,
            decryptor=found.decryptor,
            signature_verified=found.signature_verified,
            unavailable=found.unavailable,
            column_files=_pin_column_files(reader, path, found.footer),
        )
    except FormatError as error:
        raise error.in_file(path) from error


def _pin_column_files(
    reader: PinnedReader, path: str, footer: FooterArrays
) -> Mapping[str, ObjectId]:
    """The versions of the files that hold columns of ``path``, by ``file_path``, where they are
    the noted ones. From now on the reader reads these versions, and refuses the other files."""
    noted = column_files(footer)
    if not noted:
        return {}
    places = {name: adjacent_path(path, name) for name in noted}

    def check(name: str) -> ObjectId | SkipstoneError:
        return _check_column_file(reader, path, places[name], noted[name])

    workers = min(_PARALLEL if reader.storage.remote else 1, len(noted))
    with ThreadPoolExecutor(workers) as pool:
        found = dict(zip(noted, pool.map(check, noted), strict=True))
    good: dict[str, ObjectId] = {}
    for name, each in found.items():
        if isinstance(each, SkipstoneError):
            reader.refuse(places[name], each)
        else:
            reader.pin(each)
            reader.bytes_read += noted[name].tail
            good[name] = each
    return good


def _check_column_file(
    reader: PinnedReader, path: str, place: str, expected: ColumnFile
) -> ObjectId | SkipstoneError:
    hint = "restore the file that was written with it, or write both again"
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


def files_of_leaves(
    footer: FooterArrays, files: Mapping[str, ObjectId]
) -> dict[int, tuple[str, int]]:
    """Path and size of the file that holds a leaf, where one of ``files`` holds all its chunks."""
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
