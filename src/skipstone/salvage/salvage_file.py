"""``salvage``: writes a good file from one whose footer is lost, torn or damaged.

Pages are found by walking their headers, divided into chunks and row groups by their row counts,
and every one is decoded before it counts as good. The pages of each complete row group are copied
unchanged; the footer is new, without statistics. Uncertain pages are left out and reported: every
saved row is a row that was written. The damaged file is never changed.

``damage_of`` says whether a file is damaged: the footer opens, and every page decodes and has its
stated checksum. Statistics, indexes and filters are not checked: salvage cannot repair them.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.identity import canonical_path
from skipstone.parquet.encryption.modules import GCM_OVERHEAD, LENGTH_SIZE
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.pages.column_values import decode_data_page, decode_dictionary_page
from skipstone.parquet.pages.page_headers import walk_few
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.writing.chunk_modules import plain_pages
from skipstone.storage.atomic_replace import local_path, replace_atomically
from skipstone.storage.local import open_regular

from .copy_row_groups import RowGroupCopier, RowGroupCopy
from .found_row_groups import FoundRowGroups, find_row_groups, whole_footer
from .page_check import PageCheck
from .page_map import FileMap, map_file
from .report import GroupReport, SalvageReport
from .schema_source import SchemaSource, adjacent_schema, given_schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.metadata import FileMetaData
    from skipstone.parquet.values import Values

    from .encrypted_row_groups import FileImage


def salvage(
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    schema: str | Path | pa.Schema | None = None,
    skip_bad_pages: bool = False,
    row_group_rows: int | None = None,
    footer_only: bool = False,
    decryption: Decryption | None = None,
) -> SalvageReport:
    """Write the rows of the Parquet file ``path`` that can be saved to ``output``.

    ``output`` is by default ``<name>.salvaged.parquet`` in the same directory, and must not exist.
    ``schema``: a Parquet file, an Arrow schema (or a file of one), or a text; without it, the rest
    of the footer, or adjacent files. ``skip_bad_pages``: a damaged page becomes nulls where the
    column may be null; otherwise its row group is left out. ``row_group_rows``: rows of every row
    group but the last, where only that separates chunks. ``footer_only``: only the footer is
    lost, so that a row group ends with the last page. ``decryption`` opens an encrypted file, whose
    rows are then saved in the clear.

    ``FormatError`` if it is not a Parquet file or there is no schema, ``UnsupportedError`` if it is
    encrypted and there are no keys, ``AuthenticationError`` if they are not its keys.
    """
    started = time.perf_counter()
    path = str(path)
    source = local_path(path)
    target = _new_file(source, output)
    data = _mapped(source, path)
    try:
        footer, found_map, origin = _schema(data, source, schema, decryption)
        leaves, image, found = Schema.of(origin.elements).leaves, None, None
        if not leaves:
            raise UnsupportedError(f"{origin.what} has no columns")
        if decryption is not None:
            image, found = _decrypted(data, source, leaves, decryption, target, footer_only)

        def walked(
            part: memoryview, footer: FileMetaData | None, found_map: FileMap | None
        ) -> FoundRowGroups:
            check = PageCheck(part)
            return find_row_groups(
                part, leaves, check, footer, found_map, row_group_rows, footer_only
            )

        def examined(found: FoundRowGroups) -> _Examined:
            work = RowGroupCopier(data, leaves, origin, skip_bad_pages, image)
            return _Examined(found, work, [work.examine(each) for each in found.groups])

        best = examined(walked(data, footer, found_map) if found is None else found)
        if footer is not None and len(best.saved) < len(best.row_groups):
            # A footer that decodes may still give a wrong place of a chunk, so the walk over the
            # pages before it is tried, too.
            before = data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")]
            again = examined(walked(before, None, map_file(before)))
            best = max(best, again, key=lambda each: each.num_rows)
        if best.saved:
            with replace_atomically(target, sources=[path]) as out:
                best.work.write(out, best.saved)
    except FormatError as error:
        raise error.in_file(path) from error
    return best.report(path, len(data), origin.what, str(target) if best.saved else None, started)


def _new_file(source: Path, output: str | os.PathLike[str] | None) -> Path:
    """The path of the file to write."""
    target = source.with_name(f"{source.stem}.salvaged.parquet")
    if output is not None:
        target = local_path(os.fspath(output))
    if target.exists():
        raise SkipstoneError(f"{target} exists already", hint="name another --output")
    return target


def _mapped(source: Path, path: str) -> memoryview:
    """The bytes of the file."""
    with open(source, "rb", opener=open_regular) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 2 * len(MAGIC):
            raise FormatError("too short for a Parquet file", file=path, got=size)
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class _Examined(NamedTuple):
    """The row groups that were found, decoded."""

    found: FoundRowGroups
    work: RowGroupCopier
    row_groups: list[tuple[GroupReport, RowGroupCopy]]

    @property
    def saved(self) -> list[RowGroupCopy]:
        return [made for group, made in self.row_groups if group.saved]

    @property
    def num_rows(self) -> int:
        return sum(made.num_rows for made in self.saved)

    def report(
        self, path: str, size: int, schema_from: str, output: str | None, started: float
    ) -> SalvageReport:
        found = self.found
        return SalvageReport(
            path=path,
            output=output,
            size=size,
            schema_from=schema_from,
            footer=found.footer,
            row_groups=tuple([group for group, _ in self.row_groups]),
            pages_found=found.pages_found,
            pages_with_checksum=self.work.with_checksum,
            ambiguous_pages=found.ambiguous_pages,
            incomplete_pages=found.incomplete_pages,
            left_out=tuple(found.left_out),
            lost=found.lost,
            notes=tuple(found.notes),
            seconds=time.perf_counter() - started,
        )


def _schema(
    data: memoryview,
    source: Path,
    schema: str | Path | pa.Schema | None,
    decryption: Decryption | None,
) -> tuple[FileMetaData | None, FileMap | None, SchemaSource]:
    """The footer if it can be read, else the pages of a file in the clear, and the schema."""
    footer, origin = _stated_schema(data, source, schema, decryption)
    found_map = map_file(data) if footer is None and decryption is None else None
    if origin is None:
        origin = _schema_found(found_map, source, decryption)
    return footer, found_map, origin


def _stated_schema(
    data: memoryview,
    source: Path,
    schema: str | Path | pa.Schema | None,
    decryption: Decryption | None,
) -> tuple[FileMetaData | None, SchemaSource | None]:
    """The footer if it can be read, and the schema if it is known without a walk."""
    if decryption is not None:
        if schema is not None:
            return None, given_schema(schema, decryption)
        try:
            return None, given_schema(source, decryption)
        except (FormatError, UnsupportedError, OSError):
            return None, None
    footer = None if MAGIC_ENCRYPTED in (data[:4], data[-4:]) else whole_footer(data)
    encrypted = footer is not None and footer.encryption_algorithm is not None
    if encrypted or (footer is None and _looks_encrypted(data)):
        raise UnsupportedError(f"{source} is encrypted", hint=_GIVE_KEYS)
    if data[:4] != MAGIC and footer is None and data[-4:] != MAGIC:
        raise FormatError("no Parquet file", offset=0, expected="PAR1", got=bytes(data[:4]))
    if schema is not None:
        return footer, given_schema(schema)
    if footer is not None:
        return footer, SchemaSource.of_footer("its footer", footer)
    return None, None


def _looks_encrypted(data: memoryview) -> bool:
    """Whether the magic says that a file is encrypted, or modules lie where pages would be."""
    if MAGIC_ENCRYPTED in (data[:4], data[-4:]):
        return True
    at = len(MAGIC)
    if walk_few(data, at, len(data), 1)[0]:
        return False
    # A header is a small module, and the page follows.
    for most in (_LARGEST_HEADER, len(data)):
        length = int.from_bytes(data[at : at + 4], "little")
        if not GCM_OVERHEAD - LENGTH_SIZE <= length <= min(most, len(data) - at - 4):
            return False
        at += 4 + length
    return True


_GIVE_KEYS: Final = "give its keys: --footer-key, --column-key or --keys"
_LARGEST_HEADER: Final = 1 << 14


def _decrypted(
    data: memoryview,
    source: Path,
    leaves: Sequence[ColumnDescriptor],
    decryption: Decryption,
    target: Path,
    footer_only: bool,
) -> tuple[FileImage | None, FoundRowGroups | None]:
    """The row groups of an encrypted file; ``None`` for a plaintext one, where that is allowed."""
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.encryption.modules import AuthenticationError

    from .encrypted_page_walk import find_algorithm
    from .encrypted_row_groups import decrypt_row_groups

    algorithm = find_algorithm(data)
    if algorithm is None:
        if not _looks_encrypted(data):
            if decryption.allow_plaintext_files:
                return None, None
            raise FormatError("keys were given, but the file is not encrypted")
        raise UnsupportedError(
            f"{source} is encrypted, and the unique part of its AAD is lost with its footer",
            hint="no page can be decrypted without it: restore the file from a copy",
        )
    file = FileDecryptor(decryption, algorithm, None, encrypted_footer=True, file=str(source))
    made = decrypt_row_groups(
        data, leaves, decryption, file, target.parent, footer_only=footer_only
    )
    if made is None:
        raise AuthenticationError(
            "no page of the file authenticates with the keys that were given",
            hint="check the keys and the AAD prefix; keys that a KMS wrapped are in the footer",
        )
    return made


def _schema_found(
    found: FileMap | None, source: Path, decryption: Decryption | None
) -> SchemaSource:
    if found is not None and found.footers:
        _, stop, footer = found.footers[-1]
        return SchemaSource.of_footer(f"a footer that ends at byte {stop:,}", footer)
    if found is not None and found.torn is not None:
        return SchemaSource(what="the rest of its footer", elements=found.torn.schema)
    other = adjacent_schema(source, decryption)
    if other is None:
        raise FormatError(
            "no footer, and no adjacent file has the schema",
            hint="name one that has the same columns: --schema FILE",
        )
    return other


def damage_of(path: str, decryption: Decryption | None = None) -> str:
    """The first damage of a file, empty where there is none; ``decryption`` opens encrypted ones.

    Raises ``KeyUnavailableError`` for an encrypted footer or column without its key, and
    ``UnsupportedError`` for encrypted columns where there are no keys. A page that does not
    authenticate is damaged.
    """
    try:
        file = ParquetFile(path, decryption=decryption)
        if file.chunk_pages.decryptor is not None and decryption is None:
            raise UnsupportedError(f"{path} is encrypted: its pages cannot be distinguished")
        for error in file.unavailable.values():
            raise error
        for row_group in range(file.num_row_groups):
            for leaf in file.footer.schema.leaves:
                _decode(file, row_group, leaf)
    except FormatError as error:
        return error.message.removeprefix(f"{canonical_path(path)}: ")
    return ""


def _decode(file: ParquetFile, row_group: int, leaf: ColumnDescriptor) -> None:
    key = row_group, leaf.ordinal
    place, decryptor = file.chunk_pages.place(key), file.chunk_pages.column_decryptor(key)
    dictionary: Values | None = None
    values = rows = 0
    where = f"column {leaf.name}, row group {row_group}"
    for page, body in plain_pages(file.reader, place, decryptor):
        try:
            if page.type == PageType.DICTIONARY_PAGE:
                dictionary = decode_dictionary_page(page, leaf, place.codec, body)
            elif page.is_data:
                column = decode_data_page(page, leaf, place.codec, dictionary, body)
                values, rows = values + page.num_values, rows + column.num_rows
        except UnsupportedError:
            return  # a codec or an encoding that is not supported
        except FormatError as error:
            raise FormatError(
                f"{where}: {error.about}", file=place.path, offset=page.offset
            ) from error
    if values != place.num_values or rows != place.rows:
        raise FormatError(
            f"{where} ends too early",
            file=place.path,
            expected=f"{place.num_values:,} values in {place.rows:,} rows",
            got=f"{values:,} values in {rows:,} rows",
        )
