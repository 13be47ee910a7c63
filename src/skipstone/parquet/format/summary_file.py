"""A ``_metadata`` summary file, with the versions of the files that it describes.

    PAR1
    Versions       JSON, see below; the heads are in it
    FileMetaData   the row groups of all files, file by file, each chunk with its ``file_path``
    length u32, PAR1

A summary is one footer for the row groups of many files. It has no data of its own: each chunk's
``file_path`` names the file that its offsets count in, relative to the summary's directory. A chunk
without a path lies in the summary's own file. Other readers ignore the bytes before the footer.

``Versions`` have the keys ``version`` (1), ``unit`` (of times), ``row_groups_crc32`` (of the bytes
of the list ``row_groups``), ``heads`` (base64); and with a list of one value per file ``path``,
``size``, ``mtime``, ``etag``, ``footer_length``, ``row_groups`` and ``head``. The key
``skipstone.summary`` of the footer is JSON with the ``version``, and ``offset``, ``length`` and
``crc32`` of ``Versions``. So any damage is detected. If another writer rewrites the file, its key
or its checksums are missing or wrong.

A *head* is a footer without row groups: schema, key-values, writer, column orders. Files with equal
heads share one. Head and row groups together contain everything in the file's own footer, including
fields of later formats.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.identity import TimeUnit

from .footer import MAGIC, find_footer
from .footer_arrays import FooterArrays
from .footer_layout import BYTES, FILE_ROW_GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping


#: where ``Versions`` lie, in the footer's key-values
KEY: Final = "skipstone.summary"
_VERSION: Final = 1
_INT64 = 1 << 63
_UNITS = get_args(TimeUnit)
# The values of a part that can be read, besides its row groups.
_SHARED = ("version", "created_by", "key_value_metadata", "column_orders", "schema_elements")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion:
    """One version of a file; ``path`` is relative to the summary's folder.

    ``row_groups`` counts its row groups, which follow those of the previous files; ``head`` is the
    ordinal of its head. ``footer_length`` is in bytes, ``mtime`` in the unit of ``Versions``.
    """

    path: str
    size: int
    mtime: int
    etag: str | None
    footer_length: int
    row_groups: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions of all files of a summary; see the module."""

    unit: TimeUnit
    files: tuple[FileVersion, ...]
    heads: tuple[bytes, ...]
    row_groups_crc32: int

    def to_bytes(self) -> bytes:
        """The JSON text, with a list per column."""
        files = self.files
        return json.dumps(
            {
                "version": _VERSION,
                "unit": self.unit,
                "row_groups_crc32": self.row_groups_crc32,
                "path": [each.path for each in files],
                "size": [each.size for each in files],
                "mtime": [each.mtime for each in files],
                "etag": [each.etag for each in files],
                "footer_length": [each.footer_length for each in files],
                "row_groups": [each.row_groups for each in files],
                "head": [each.head for each in files],
                "heads": [base64.b64encode(each).decode() for each in self.heads],
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Versions:
        """``FormatError`` for malformed bytes, ``UnsupportedError`` for a later version."""
        held = _json(bytes(data), "the versions of a summary")
        if held.get("version") != _VERSION:
            raise UnsupportedError(f"a summary of version {held.get('version')!r}")
        unit: Any = held.get("unit")
        if unit not in _UNITS:
            raise FormatError("the unit of times in a summary", got=unit)
        heads = _column(held, "heads", str)
        paths = _column(held, "path", str)
        etags = held.get("etag")
        if not isinstance(etags, list) or not all(e is None or isinstance(e, str) for e in etags):
            raise FormatError("the etags of a summary")
        numbers = [
            _column(held, name, int) for name in ("size", "mtime", "footer_length", "row_groups")
        ]
        numbers.append(_column(held, "head", int))
        if any(len(each) != len(paths) for each in (etags, *numbers)):
            raise FormatError("columns of a summary are not of one length", expected=len(paths))
        sizes, mtimes, lengths, groups, of_head = numbers
        for name, values, stop in (
            ("size", sizes, _INT64),
            ("footer_length", lengths, _INT64),
            ("row_groups", groups, 1 << 31),
            ("head", of_head, len(heads)),
        ):
            if any(not 0 <= value < stop for value in values):
                raise FormatError(f"{name} of a file in a summary", expected=f"below {stop}")
        if any(not -_INT64 <= value < _INT64 for value in mtimes):
            raise FormatError("mtime of a file in a summary")
        crc: Any = held.get("row_groups_crc32")
        if not _is_int(crc):
            raise FormatError("row_groups_crc32 of a summary", got=type(crc).__name__)
        try:
            decoded = tuple([base64.b64decode(each, validate=True) for each in heads])
        except ValueError as error:
            raise FormatError(f"a head in a summary: {error}") from error
        return cls(
            unit=unit,
            files=tuple(
                [
                    FileVersion(
                        path=path, size=size, mtime=mtime, etag=etag,
                        footer_length=length, row_groups=count, head=head,
                    )
                    for path, size, mtime, etag, length, count, head in zip(
                        paths, sizes, mtimes, etags, lengths, groups, of_head, strict=True
                    )
                ]
            ),
            heads=decoded,
            row_groups_crc32=crc,
        )  # fmt: skip


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        held = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} are not JSON") from error
    if not isinstance(held, dict):
        raise FormatError(f"{what} are not an object", got=type(held).__name__)
    return held


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _column(held: Mapping[str, Any], name: str, kind: type[_T]) -> list[_T]:
    values = held.get(name)
    if not isinstance(values, list) or not all(
        isinstance(each, kind) and not isinstance(each, bool) for each in values
    ):
        raise FormatError(f"{name} in a summary", expected=f"a list of {kind.__name__}")
    return values


def place_of(versions: bytes) -> str:
    """The value of ``KEY``, for ``versions`` that follow the magic."""
    place = {"offset": len(MAGIC), "length": len(versions), "crc32": zlib.crc32(versions)}
    return json.dumps({"version": _VERSION, **place})


def row_groups_crc32(footer: FooterArrays) -> int:
    """The checksum of the bytes of ``row_groups``."""
    _, start, stop = footer.scanned.fields[FILE_ROW_GROUPS]
    return zlib.crc32(footer.data[start:stop])


def is_own(tail: bytes | memoryview) -> bool:
    """Whether the last bytes of a file contain ``KEY``; otherwise the rest need not be read."""
    return KEY.encode() in bytes(tail)


@dataclass(frozen=True, eq=False)
class Summary:
    """A summary that was read: its ``versions``, and a part for the footer of each file."""

    footer: FooterArrays
    versions: Versions

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Summary:
        """From the whole file. ``FormatError`` where it is damaged, ``UnsupportedError`` for a file
        of another writer or of a later version."""
        view = memoryview(data)
        tail, metadata = find_footer(view)
        if tail.encrypted:
            raise UnsupportedError("the summary is encrypted")
        footer = FooterArrays.scan(metadata, tail.offset)
        notes = [each.value for each in footer.key_value_metadata or () if each.key == KEY]
        if not notes:
            raise UnsupportedError("the summary does not name the versions of its files")
        place = _json((notes[-1] or "").encode("utf-8", "replace"), "the place of versions")
        offset, length, crc = (place.get(name) for name in ("offset", "length", "crc32"))
        if not (_is_int(offset) and _is_int(length)):
            raise FormatError("the place of versions", got=f"{offset!r}, {length!r}")
        assert isinstance(offset, int)
        assert isinstance(length, int)
        if offset < 0 or length < 0 or offset + length > tail.offset:
            raise FormatError("versions beyond the file", expected=tail.offset, got=offset + length)
        held = view[offset : offset + length]
        if zlib.crc32(held) != crc:
            raise FormatError("the checksum of the versions is wrong", offset=offset)
        versions = Versions.from_bytes(held)
        if row_groups_crc32(footer) != versions.row_groups_crc32:
            start = footer.scanned.fields[FILE_ROW_GROUPS][1]
            raise FormatError("the checksum of the row groups is wrong", offset=tail.offset + start)
        found = cls(footer, versions)
        if found.first_group[-1] != footer.num_row_groups:
            raise FormatError(
                "row groups of a summary",
                expected=found.first_group[-1],
                got=footer.num_row_groups,
            )
        return found

    @cached_property
    def first_group(self) -> list[int]:
        """The number of row groups before each file, and of all at the end."""
        return list(accumulate((each.row_groups for each in self.versions.files), initial=0))

    @cached_property
    def _heads(self) -> list[FooterArrays | FormatError]:
        """Each head, or the error in it."""
        return [self._head(each) for each in self.versions.heads]

    def _head(self, data: bytes) -> FooterArrays | FormatError:
        try:
            head = FooterArrays.scan(data)
            _ = head.schema
            same = head.num_leaves == self.footer.num_leaves
            if not same or not np.array_equal(head.scanned.types, self.footer.scanned.types):
                return FormatError("a head of other columns than the summary's")
            if head.num_row_groups or head.encryption_algorithm is not None:
                return FormatError("a head with row groups, or of an encrypted file")
        except FormatError as error:
            return error
        return head

    @cached_property
    def _bytes(self) -> tuple[bytes, list[int]]:
        """The bytes that the places of parts refer to, and where the heads begin in them."""
        heads = self.versions.heads
        starts = list(accumulate((len(each) for each in heads), initial=len(self.footer.data)))
        return b"".join([self.footer.data, *heads]), starts

    @cached_property
    def _narrow(self) -> Any:
        """The narrow array without ``file_path``: all chunks of a part lie in one file."""
        narrow = self.footer.scanned.narrow.copy()
        narrow[BYTES["file_path"] : BYTES["file_path"] + 2] = 0
        return narrow

    def is_sound(self, at: int) -> bool:
        """Whether the head of file ``at`` is valid."""
        return not isinstance(self._heads[self.versions.files[at].head], FormatError)

    def part(self, at: int) -> FooterArrays:
        """The footer of file ``at``, over the bytes of the summary, which are not copied.

        Its ``metadata`` cannot be read. ``FormatError`` where the head is invalid.
        """
        number = self.versions.files[at].head
        head = self._heads[number]
        if isinstance(head, FormatError):
            raise head
        data, starts = self._bytes
        first, stop = self.first_group[at : at + 2]
        cells = slice(first * self.footer.num_leaves, stop * self.footer.num_leaves)
        shift, scanned = starts[number], self.footer.scanned
        made = FooterArrays(
            data=data,
            base=self.footer.base,
            scanned=replace(
                scanned,
                end=0,
                fields={
                    id: (kind, start + shift, end + shift)
                    for id, (kind, start, end) in head.scanned.fields.items()
                },
                groups=scanned.groups[first:stop],
                wide=scanned.wide[:, cells],
                narrow=self._narrow[:, cells],
            ),
            selected=tuple(range(first, stop)),
        )
        # Values that all files share are decoded once.
        for name in (*_SHARED, "schema"):
            made.__dict__[name] = getattr(head, name)
        return made


def is_summary(footer: FooterArrays) -> bool:
    """Whether any chunk lies in another file."""
    return bool((footer.places("file_path")[0] >= 0).any())
