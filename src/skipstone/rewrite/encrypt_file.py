"""Encrypts and decrypts existing files module by module, without decoding a page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.human import Report, duration, size
from skipstone.identity import canonical_path
from skipstone.parquet.encryption.encryption import FileEncryptor
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.format.footer import MAGIC
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.types import column_name
from skipstone.storage import open_storage
from skipstone.storage.atomic_replace import local_path, replace_atomically

from .module_copier import ModuleCopier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption


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
    if material is not None and not in_place and storage.exists(material_path):
        raise UnsupportedError(
            f"{material_path} exists already, and the keys in it may be needed",
            hint="give another output, or keep the wrapped keys in the file",
        )

    ours = False

    def keys_first() -> None:
        # A file without its keys is lost; keys without a file do no harm. Keys that a killed run
        # left next to a plaintext file are overwritten by the process that holds the lock.
        nonlocal ours
        if material is not None:
            ours = True
            storage.put(material_path, material)

    try:
        done = _copy(file, encryptor, target, keys_first)
    except BaseException:
        if ours and not storage.exists(target):
            storage.delete(material_path)
        raise
    kinds = encryptor.key_kinds
    return EncryptReport(
        path=file.path,
        output=target,
        algorithm=encryption.algorithm,
        footer="plaintext, signed" if encryption.plaintext_footer else "encrypted",
        columns={column_name(leaf): kinds.get(leaf, "plaintext") for leaf in leaves},
        modules=done.modules,
        left_out=done.left_out,
        bytes_read=file.reader.bytes_read,
        bytes_written=done.out.at,
        seconds=time.perf_counter() - started,
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
    return EncryptReport(
        path=file.path,
        output=target,
        algorithm=None,
        footer=None,
        columns={leaf.name: "plaintext" for leaf in file.footer.schema.leaves},
        modules=done.modules,
        left_out=done.left_out,
        bytes_read=file.reader.bytes_read,
        bytes_written=done.out.at,
        seconds=time.perf_counter() - started,
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
            # Else the new file would look as if its source had been verified.
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

    with replace_atomically(local_path(target), still=still) as out:
        done = ModuleCopier(file, encryptor, out)
        done.run()
    return done
