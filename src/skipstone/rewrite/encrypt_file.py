"""Encrypts and decrypts existing files module by module. Nothing is decoded.

Every module is decrypted if it was encrypted, and encrypted if the new file encrypts it
(``ModuleCopier``). Compressed bodies stay as they are. These change: the ``compressed_page_size``
of a page and its checksum, if it has one (a checksum covers the stored bytes); offsets and sizes of
a chunk; the offsets in an offset index. Everything else is copied, unknown fields included. Chunks
that are in the clear before and after are copied whole.

Encrypted chunks get no index pages: the specification has no module for them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.human import Report, duration, size
from skipstone.identity import canonical_path
from skipstone.parquet.encryption.encryption import Encryption, FileEncryptor
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.encryption.modules import ModuleType
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.format.page_index import OffsetIndex
from skipstone.parquet.reading.file import ParquetFile
from skipstone.parquet.reading.page_metadata import bloom_to_copy
from skipstone.parquet.writing.chunk_modules import (
    index_ranges,
    plain_pages,
    unpadded,
)
from skipstone.parquet.writing.file_writer import (
    FileWriter,
    relocated_offset_index,
    with_stored_body,
)
from skipstone.parquet.writing.footer_editor import moved_offset_index
from skipstone.parquet.writing.table_writer import refuse_keys_in_use
from skipstone.predicate.types import column_name
from skipstone.storage import ByteRange, open_storage
from skipstone.storage.atomic_replace import local_path, remove_temporary, replace_atomically

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.parquet.encryption.column_decryptor import ColumnDecryptor
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData, RowGroup
    from skipstone.parquet.writing.file_writer import ChunkWriter
    from skipstone.storage.atomic_replace import ByteSink


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptReport(Report):
    """The result for one file: ``algorithm`` and ``footer`` are ``None`` after decryption.

    ``columns`` maps every leaf to "footer key", "column key" or "plaintext". ``modules`` counts the
    modules that were encrypted or decrypted, ``left_out`` the index pages and Bloom filters of old
    kinds, for which no module exists. ``key_material`` is the file with the wrapped keys,
    ``aad_file_unique`` the unique part of the file's AAD, in hex.
    """

    path: str
    output: str
    algorithm: str | None
    footer: str | None
    columns: Mapping[str, str]
    modules: int
    left_out: int
    bytes_read: int
    bytes_written: int
    seconds: float
    key_material: str | None = None
    aad_file_unique: str | None = None

    def __str__(self) -> str:
        how = "decrypted"
        if self.algorithm is not None:
            kinds = list(self.columns.values())
            parts = [
                f"{kinds.count(kind):,} {text}"
                for kind, text in (
                    ("footer key", "with the footer key"),
                    ("column key", "with their own"),
                    ("plaintext", "in the clear"),
                )
                if kind in kinds
            ]
            how = f"encrypted with {self.algorithm}, {self.footer} footer; columns: " + ", ".join(
                parts
            )
        lines = [
            f"{self.output}: {how}",
            f"{self.modules:,} modules, {size(self.bytes_read)} read,"
            f" {size(self.bytes_written)} written in {duration(1000 * self.seconds)}",
        ]
        if self.key_material is not None:
            lines.append(f"wrapped keys in {self.key_material}")
        if self.left_out:
            lines.append(
                f"{self.left_out:,} index pages or Bloom filters left out: they have no module"
            )
        return "\n".join(lines)


def encrypt(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    encryption: Encryption,
    decryption: Decryption | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> EncryptReport:
    """Encrypt the file at ``path``, in place or as ``output``.

    ``decryption`` opens a file that is encrypted already, to encrypt it with other keys. The
    replacement is atomic. Raises ``SkipstoneError`` for an encrypted file without ``decryption``
    and for keys of columns that the file does not have; otherwise the errors of ``ParquetFile``.
    """
    started = time.perf_counter()
    if not isinstance(encryption, Encryption):
        raise TypeError(f"encryption is a skipstone.Encryption, not {type(encryption).__name__}")
    file = _opened(path, decryption, storage_options)
    target = file.path if output is None else canonical_path(output)
    if file.chunk_pages.decryptor is not None and decryption is None:
        raise SkipstoneError(
            f"{file.path} is encrypted already",
            hint="pass its keys as well to encrypt it again",
        )
    leaves = tuple(leaf.path for leaf in file.footer.schema.leaves)
    encryptor = FileEncryptor(encryption, leaves, target)
    material, material_path = encryptor.key_material_file, key_material_path(target)
    storage = open_storage(target, storage_options)
    in_place = target == file.path and file.chunk_pages.decryptor is None
    if material is not None and not in_place:
        refuse_keys_in_use(target)

    ours = False

    def keys_first() -> None:
        # A file without its keys is lost; keys without a file do no harm. Keys that a killed run
        # left next to a plaintext file are overwritten by the process that holds the lock.
        nonlocal ours
        if material is not None:
            ours = True
            remove_temporary(local_path(material_path))
            storage.put(material_path, material, [file.path])

    try:
        done = _copy(file, encryptor, target, keys_first)
    except BaseException:
        if ours and not storage.exists(target):
            storage.delete(material_path)
        raise
    kinds = encryptor.key_kinds
    return _report(
        done,
        target,
        started,
        algorithm=encryption.algorithm,
        footer="plaintext, signed" if encryption.plaintext_footer else "encrypted",
        columns={column_name(leaf): kinds.get(leaf, "plaintext") for leaf in leaves},
        key_material=None if material is None else material_path,
        aad_file_unique=encryptor.file_unique.hex(),
    )


def decrypt(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    decryption: Decryption,
    storage_options: Mapping[str, str] | None = None,
) -> EncryptReport:
    """Decrypt the file at ``path``, in place or as ``output``; every column's key is needed.

    Raises ``KeyUnavailableError`` for a missing key, ``AuthenticationError`` for a wrong key or a
    file that was tampered with. Then no output is written.
    """
    started = time.perf_counter()
    file = _opened(path, decryption, storage_options)
    target = file.path if output is None else canonical_path(output)
    if file.chunk_pages.decryptor is None:
        raise SkipstoneError(f"{file.path} is not encrypted", hint="there is nothing to do")
    done = _copy(file, None, target)
    return _report(
        done,
        target,
        started,
        algorithm=None,
        footer=None,
        columns={leaf.name: "plaintext" for leaf in file.footer.schema.leaves},
    )


def _report(done: ModuleCopier, target: str, started: float, **more: Any) -> EncryptReport:
    return EncryptReport(
        path=done.file.path,
        output=target,
        modules=done.modules,
        left_out=done.left_out,
        bytes_read=done.file.reader.bytes_read,
        bytes_written=done.out.at,
        seconds=time.perf_counter() - started,
        **more,
    )


def _opened(
    path: str | os.PathLike[str],
    decryption: Decryption | None,
    storage_options: Mapping[str, str] | None,
) -> ParquetFile:
    file = ParquetFile(path, storage_options=storage_options, decryption=decryption)
    if decryption is not None:
        for reason in file.unavailable.values():
            raise reason
        decryptor = file.chunk_pages.decryptor
        signed = decryptor is not None and not decryptor.encrypted_footer
        if signed and decryption.check_footer_integrity and not file.signature_verified:
            # Otherwise the new file would suggest that its source had been verified.
            raise KeyUnavailableError(
                f"{file.path}: the key that signs the footer was not given",
                hint="pass it as footer_key, or skip the check with check_footer_integrity=False",
            )
    return file


def _copy(
    file: ParquetFile,
    encryptor: FileEncryptor | None,
    target: str,
    before: Callable[[], None] = lambda: None,
) -> ModuleCopier:
    """Write the new file. ``before`` runs when it is complete, before it replaces the target."""

    def still() -> None:
        file.reader.one(file.path, 0, len(MAGIC))  # StaleError if it was replaced meanwhile
        before()

    with replace_atomically(local_path(target), sources=[file.path], still=still) as out:
        done = ModuleCopier(file, encryptor, out)
        done.run()
    return done


_DATA: Final = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(slots=True)
class _CopiedChunk:
    """A chunk being copied. ``moved`` is the distance in bytes if it is copied whole."""

    old: ColumnChunk
    placed: ChunkWriter
    source: ColumnDecryptor | None
    moved: int | None = None


@dataclass(slots=True)
class ModuleCopier:
    """Copies ``file`` into ``out``; ``encryptor`` is ``None`` for a new file in the clear.

    ``modules`` counts the modules that were encrypted or decrypted, ``left_out`` the index pages
    and Bloom filters that the new file cannot hold.
    """

    file: ParquetFile
    encryptor: FileEncryptor | None
    out: ByteSink
    modules: int = 0
    left_out: int = 0

    def run(self) -> None:
        """Write the whole file."""
        writer, metadata = FileWriter(self.out, self.encryptor), self.file.metadata
        copied = [self._row_group(r, group, writer) for r, group in enumerate(metadata.row_groups)]
        writer.write_indexes()
        groups = []
        for group, chunks in copied:
            columns = tuple([writer.metadata(each.placed, each.old) for each in chunks])
            self.modules += sum(each.encrypted_column_metadata is not None for each in columns)
            groups.append(replace(group, columns=columns))
        metadata = replace(
            metadata,
            row_groups=tuple(groups),
            encryption_algorithm=None,
            footer_signing_key_metadata=None,
        )
        if self.encryptor is not None:
            metadata = self.encryptor.described(metadata)
            self.modules += 1
        writer.write_footer(metadata.to_bytes())

    def _row_group(
        self, r: int, group: RowGroup, writer: FileWriter
    ) -> tuple[RowGroup, list[_CopiedChunk]]:
        """The row group without its columns, and the columns."""
        start, leaves = self.out.at, self.file.footer.schema.leaves
        if len(group.columns) != len(leaves):
            raise FormatError(
                "columns of a row group",
                file=self.file.path,
                expected=len(leaves),
                got=len(group.columns),
            )
        chunks = []
        for leaf, old in zip(leaves, group.columns, strict=True):
            if old.file_path is not None:
                raise UnsupportedError(
                    f"{self.file.path}: column {leaf.name} is in another file",
                    hint="give the file that has the column",
                )
            source = self.file.chunk_pages.column_decryptor((r, leaf.ordinal))
            chunk = _CopiedChunk(old, writer.chunk((r, leaf.ordinal), leaf.path), source)
            self._pages(chunk)
            chunks.append(chunk)
        metas = [(_meta(each.old), each.placed.applied(each.old).meta_data) for each in chunks]
        grown = sum(b.total_uncompressed_size - a.total_uncompressed_size for a, b in metas if b)
        self._indexes(chunks)
        writer.end_row_group()
        group = replace(
            group,
            columns=(),
            total_byte_size=group.total_byte_size + grown,
            file_offset=start,
            total_compressed_size=sum(each.total_compressed_size for _, each in metas if each),
            ordinal=r if r < 1 << 15 else None,
        )
        return group, chunks

    def _pages(self, chunk: _CopiedChunk) -> None:
        placed, source = chunk.placed, chunk.source
        reader, place = self.file.reader, self.file.chunk_pages.place(placed.key)
        meta = _meta(chunk.old)
        if source is None and not placed.encrypted:
            chunk.moved = placed.copy(reader, place, chunk.old)
            return
        grown = 0
        for page, body in plain_pages(reader, place, source):
            if page.type not in _DATA and page.type != PageType.DICTIONARY_PAGE:
                self.left_out += 1
                continue
            header: bytes | memoryview = page.header_bytes
            if source is not None:
                header = with_stored_body(unpadded(bytes(header)), body)
            is_dictionary = page.type == PageType.DICTIONARY_PAGE
            grown += placed.page(header, body, is_dictionary) - page.header_length
            self.modules += 2
        placed.end(chunk.old, max(0, meta.total_uncompressed_size + grown))
        if meta.encoding_stats is not None:
            placed.fields["encoding_stats"] = tuple(
                [each for each in meta.encoding_stats if each.page_type != PageType.INDEX_PAGE]
            )

    # -- indexes and Bloom filters -----------------------------------------------------------------

    def _indexes(self, chunks: Sequence[_CopiedChunk]) -> None:
        """Give the writer the Bloom filters and indexes of a row group."""
        path, wanted = self.file.path, list[ByteRange]()
        for each in chunks:
            wanted += [where for where in index_ranges(each.old, path) if where is not None]
        known = self.file.reader.read(wanted) if wanted else {}
        for each in chunks:
            where, placed = index_ranges(each.old, path), each.placed
            encrypted = each.source is not None or placed.encrypted
            self._bloom_filter(each, encrypted=encrypted)
            if where.column_index is not None:
                self.modules += encrypted
                placed.column_index = self._plain(
                    each, ModuleType.COLUMN_INDEX, known, where.column_index
                )
            if where.offset_index is not None:
                self.modules += encrypted
                data = self._plain(each, ModuleType.OFFSET_INDEX, known, where.offset_index)
                placed.offset_index = self._relocated(each, data, where.offset_index)

    def _bloom_filter(self, chunk: _CopiedChunk, *, encrypted: bool) -> None:
        if not _meta(chunk.old).bloom_filter_offset:
            return
        found = bloom_to_copy(self.file, chunk.placed.key)
        chunk.placed.bloom = found
        self.left_out += found is None
        self.modules += 2 * (encrypted and found is not None)

    def _relocated(self, chunk: _CopiedChunk, data: bytes, where: ByteRange) -> bytes:
        if chunk.moved is not None:
            return moved_offset_index(data, chunk.moved)
        index, places = OffsetIndex.from_bytes(data, base=where.offset), chunk.placed.pages
        if len(index.page_locations) != len(places):
            raise FormatError(
                "pages in an offset index",
                file=self.file.path,
                offset=where.offset,
                expected=len(places),
                got=len(index.page_locations),
                hint="the index describes other pages: write the file again",
            )
        return relocated_offset_index(index, places)

    def _plain(
        self,
        chunk: _CopiedChunk,
        module: ModuleType,
        known: Mapping[ByteRange, memoryview],
        where: ByteRange,
    ) -> bytes:
        data = known[where]
        if chunk.source is None:
            return bytes(data)
        return unpadded(chunk.source.decrypt(module, data, base=where.offset))


def _meta(chunk: ColumnChunk) -> ColumnMetaData:
    if chunk.meta_data is None:
        raise FormatError("a column chunk without metadata")
    return chunk.meta_data
