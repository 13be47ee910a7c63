"""One version of a file: reads its byte ranges (``PinnedReader``) and its footer (``load_footer``).

A file is pinned to the version that it had at the first access; every later read checks it. A file
that has changed is a ``StaleError``: metadata of the old version would be wrong for the new one.

For a file that another process appends to, only the beginning is pinned (``pin_beginning``): it may
grow meanwhile, and must stay the same file. No byte behind the pinned size is ever read.

The footer is found at the file's end and opened by ``encryption/open_footer.py``. Where it names
other files that hold columns (``format/column_files.py``), each is checked with one request. A file
that is gone, or is not the one that was written, is refused when its columns are read, and these
columns prove nothing to plans; all other columns can be read.
"""

from __future__ import annotations

import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, StaleError
from skipstone.identity import ObjectId
from skipstone.parquet.encryption.open_footer import open_footer
from skipstone.parquet.format.column_files import ColumnFile, column_files
from skipstone.parquet.format.footer import TAIL_GUESS, Tail
from skipstone.storage import ByteRange, LocalStorage, Storage

from .page_tables import adjacent_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.format.footer_arrays import FooterArrays


_PARALLEL = 32


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenedFooter:
    """The footer of a file; ``tail`` says where it lies, ``unavailable`` by ordinal why leaves
    cannot be read.

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
    """The footer of the file at ``path``, in the version that ``reader`` has pinned. ``tail``: its
    last bytes.

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


def load_footers(
    storage: Storage, tails: Sequence[tuple[ObjectId, memoryview]]
) -> list[tuple[PinnedReader, OpenedFooter] | Exception]:
    """As ``load_footer`` for each of many files, in the versions whose last bytes were read; an
    exception for one that cannot be opened. Files of the same structure take little time."""
    from skipstone.parquet.format.footer_lanes import scan_many
    from skipstone.parquet.format.footer_scan import COMPILED

    ends: list[Tail | None] = []
    footers: list[bytes] = []
    for id, tail in tails:
        try:
            end = Tail.from_bytes(tail, id.size or 0)
            data = None if end.encrypted else end.footer_in(tail)
        except FormatError:
            end, data = None, None
        ends.append(end)
        footers.append(b"" if data is None else bytes(data))
    scanned = scan_many(footers, [0 if end is None else end.offset for end in ends], COMPILED)
    return [_loaded(storage, *each) for each in zip(tails, ends, scanned, strict=True)]


def _loaded(
    storage: Storage,
    read: tuple[ObjectId, memoryview],
    end: Tail | None,
    footer: FooterArrays | None,
) -> tuple[PinnedReader, OpenedFooter] | Exception:
    id, tail = read
    reader = PinnedReader(storage)
    reader.bytes_read += len(tail)
    reader.pin(id)
    try:
        if end is None or footer is None:
            return reader, load_footer(reader, id.path, None, tail)
        homes = _pin_column_files(reader, id.path, footer)
        return reader, OpenedFooter(tail=end, footer=footer, column_files=homes)
    except FormatError as error:
        return error.in_file(id.path)
    except (OSError, ValueError, LookupError) as error:
        return error


def _pin_column_files(
    reader: PinnedReader, path: str, footer: FooterArrays
) -> Mapping[str, ObjectId]:
    """The versions of the files that hold columns of ``path``, by ``file_path``, where they are the
    named ones. From now on the reader reads these versions, and refuses the other files."""
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


class PinnedReader:
    """Reads pinned versions of files from ``storage``; ``bytes_read`` counts requested bytes."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.bytes_read = 0
        self._versions: dict[str, ObjectId] = {}
        #: the versions that reads of a path are checked against
        self._exact: dict[str, ObjectId] = {}
        self._growing: dict[str, ObjectId] = {}
        self._refused: dict[str, SkipstoneError] = {}

    def refuse(self, path: str, error: SkipstoneError) -> None:
        """From now on reads of ``path`` raise this error."""
        self._refused[path] = error

    def pin(self, version: ObjectId) -> None:
        """From now on only this version of its path is read."""
        self._versions[version.path] = self._exact[version.path] = version

    def pin_beginning(self, version: ObjectId, size: int) -> ObjectId:
        """From now on only the first ``size`` bytes of its path are read, and the file may grow;
        returns their identity. Objects in a store never grow: a changed one is another version.

        ``StaleError`` where ``version`` is shorter than ``size``.
        """
        given: object = size
        if not isinstance(given, int) or given < 0:
            raise ValueError(f"size is the bytes of the file that count, 0 or more, not {given!r}")
        if version.size is None or version.size < size:
            raise StaleError(
                f"{version.path} is shorter than in its metadata: {version.size} of {size} bytes",
                hint="it was restored or written by something else: open it again",
            )
        beginning = replace(version, size=size)
        self._versions[version.path] = beginning
        if self.storage.remote:
            self._exact[version.path] = version
        else:
            self._growing[version.path] = beginning
        return beginning

    def size(self, path: str) -> int:
        """Bytes of the pinned version of ``path``; an unknown path is pinned now."""
        if path not in self._versions:
            if path in self._refused:
                raise self._refused[path]
            self.pin(self.storage.stat(path))
        size = self._versions[path].size
        assert size is not None  # storages always give it
        return size

    def read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """All of ``ranges``, near ones in one request.

        Raises ``StaleError`` for a file of another version, ``FormatError`` for a range that its
        file does not have, ``OSError`` for other errors.
        """
        for each in ranges:
            if each.path not in self._versions:
                self.size(each.path)
        found = self._read(ranges)
        for each in ranges:
            if each not in found:
                self._missing(each)
            self.bytes_read += each.length
        return found

    def read_into(self, path: str, offsets: Sequence[int], into: Sequence[memoryview]) -> bool:
        """Fills each view from its offset on; False where that is not possible, and ``read`` has
        the error. Columns in other files and files that grow are left to ``read``."""
        version = self.exact(path)
        if version is None or version.size is None:
            return False
        if any(at + len(view) > version.size for at, view in zip(offsets, into, strict=True)):
            return False
        if not self.storage.read_into(path, offsets, into, version):
            return False
        self.bytes_read += sum(map(len, into))
        return True

    def exact(self, path: str) -> ObjectId | None:
        """The version of ``path`` that ``read_into`` reads."""
        return None if path in self._growing else self._exact.get(path)

    def _read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        inside = [each for each in ranges if self._has(each)]
        found = self.storage.read_ranges(inside, self._exact)
        for path in {each.path for each in inside if each.path in self._growing}:
            self._check(path)
        return found

    def _has(self, each: ByteRange) -> bool:
        known = self._versions.get(each.path)
        return known is None or known.size is None or each.offset + each.length <= known.size

    def one(self, path: str, offset: int, length: int) -> memoryview:
        """One range."""
        wanted = ByteRange(path, offset, length)
        return self.read((wanted,))[wanted]

    def fetch(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        """As ``read``, but leaves out what cannot be read: for the planner, which fails open.

        A file that has changed is a ``StaleError`` here too.
        """
        found = self._read(ranges)
        if len(found) != len(ranges):
            for path in {each.path for each in ranges if each not in found}:
                self._check(path)
        self.bytes_read += sum(each.length for each in found)
        return found

    def _check(self, path: str) -> None:
        try:
            current = self.storage.stat(path)
        except FileNotFoundError as error:
            raise StaleError(
                f"{path} is gone since it was opened",
                hint="a reader without an open file cannot continue: open the present file",
            ) from error
        beginning, pinned = self._growing.get(path), self._exact.get(path)
        if (pinned is not None and not pinned.same_version(current)) or (
            beginning is not None and not _is_longer(current, beginning)
        ):
            raise StaleError(
                f"{path} has changed since it was opened",
                hint="open it again",
            )

    def _missing(self, wanted: ByteRange) -> None:
        self._check(wanted.path)
        size = self.size(wanted.path)
        if wanted.offset + wanted.length > size:
            raise FormatError(
                "the file ends within a range that its metadata name",
                file=wanted.path,
                offset=wanted.offset,
                expected=f"{wanted.length} bytes",
                got=max(size - wanted.offset, 0),
            )
        raise OSError(f"{wanted.path}: {wanted.length} bytes at {wanted.offset} cannot be read")


class OpenFileReader(PinnedReader):
    """Reads an open file, which errors call ``path``. Its bytes do not change."""

    def __init__(self, source: BinaryIO, path: str) -> None:
        super().__init__(LocalStorage())
        self._source = source
        #: the file, as the version that it stays
        self.id = ObjectId(path=path, size=source.seek(0, io.SEEK_END), mtime=0)
        self.pin(self.id)

    def _read(self, ranges: Sequence[ByteRange]) -> Mapping[ByteRange, memoryview]:
        found = {}
        for each in filter(self._has, ranges):
            self._source.seek(each.offset)
            data = self._source.read(each.length)
            if len(data) == each.length:
                found[each] = memoryview(data)
        return found

    def read_into(self, path: str, offsets: Sequence[int], into: Sequence[memoryview]) -> bool:
        for offset, view in zip(offsets, into, strict=True):
            self._source.seek(offset)
            if self._source.readinto(view) != len(view):  # type: ignore[attr-defined]  # of binary files
                return False
        return True

    def exact(self, path: str) -> ObjectId | None:
        return None

    def _check(self, path: str) -> None:
        pass


def read_files(
    files: Sequence[tuple[PinnedReader, str]],
    first: NDArray[np.int64],
    ranges: NDArray[np.int64],
    into: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """``PinnedReader.read_into`` for the paths of many files: which of them were read. The
    arguments are those of ``LocalStorage.read_files``."""
    storage = files[0][0].storage if files else None
    versions = [each for reader, path in files if (each := reader.exact(path)) is not None]
    if len(versions) == len(files) and isinstance(storage, LocalStorage):
        done = storage.read_files(versions, first, ranges, into)
        if done is not None:
            ends = np.concatenate([[0], np.cumsum(ranges[:, 1])])[first]
            sizes = np.diff(ends) * done
            for (reader, _), size in zip(files, sizes.tolist(), strict=True):
                reader.bytes_read += size
            return done
    done, view = np.zeros(len(files), np.bool_), memoryview(into.data)
    for n, (reader, path) in enumerate(files):
        mine = ranges[first[n] : first[n + 1]].tolist()
        views = [view[place : place + length] for _, length, place in mine]
        with suppress(SkipstoneError, OSError):  # the reader of single files reports it
            done[n] = reader.read_into(path, [offset for offset, _, _ in mine], views)
    return done


def _is_longer(current: ObjectId, beginning: ObjectId) -> bool:
    """Whether a local file is still the same one: the same inode, and not truncated."""
    inodes = [(each.etag or "").partition("-")[0] for each in (current, beginning)]
    assert current.size is not None
    assert beginning.size is not None
    return inodes[0] == inodes[1] and current.size >= beginning.size
