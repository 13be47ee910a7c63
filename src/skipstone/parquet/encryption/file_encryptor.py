"""Encrypts one file: its data keys, its AAD, its crypto metadata, and the end of the file.

    encrypted footer   PARE  modules  FileCryptoMetaData | module Footer       length  PARE
    plaintext footer   PAR1  modules  FileMetaData | nonce 12 | tag 16         length  PAR1

The metadata of a column is a separate module where a reader of the footer may lack its key: where
the column has its own key, and always in a plaintext footer. A plaintext footer also has redacted
metadata: places and sizes, and nothing about values.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import KeyUnavailableError
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED
from skipstone.parquet.format.metadata import (
    AesGcmCtrV1,
    AesGcmV1,
    ColumnCryptoMetaData,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
)
from skipstone.parquet.thrift.structs import Empty
from skipstone.predicate.types import column_name

from .ciphers import CountedCipher
from .column_decryptor import ColumnDecryptor
from .decryption import key_label
from .key_material import KeyMaterial, KeyReference, wrap_dek, write_key_material_file
from .modules import ModuleType, module_aad

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import ColumnChunk, ColumnMetaData, FileMetaData

    from .encryption import Encryption, Path


_UNIQUE_LENGTH: Final = 8


class FileEncryptor:
    """Encrypts the file at ``file``. ``leaves`` are the paths of its columns.

    ``key_material_file`` is the content of the file at ``key_material_path``, ``None`` where none
    is needed. Raises ``SkipstoneError`` for keys of columns that do not exist,
    ``KeyUnavailableError`` where the KMS wraps no key.
    """

    def __init__(self, encryption: Encryption, leaves: tuple[Path, ...], file: str) -> None:
        encryption.check_columns(leaves)
        self.encryption, self.file = encryption, file
        prefix, unique = encryption.prefix_for(file), os.urandom(_UNIQUE_LENGTH)
        self.file_unique = unique
        self.file_aad = (prefix or b"") + unique
        self.ctr = encryption.algorithm == "AES_GCM_CTR_V1"
        stored = prefix if encryption.store_aad_prefix else None
        supply = prefix is not None and stored is None
        given: dict[str, Any] = {
            "aad_prefix": stored,
            "aad_file_unique": unique,
            "supply_aad_prefix": supply,
        }
        self.algorithm = (
            EncryptionAlgorithm(AES_GCM_CTR_V1=AesGcmCtrV1(**given))
            if self.ctr
            else EncryptionAlgorithm(AES_GCM_V1=AesGcmV1(**given))
        )
        self._entries: dict[str, KeyMaterial] = {}
        footer = encryption.key_of_footer()
        if footer is not None:
            self._footer, self.footer_key_metadata = footer, encryption.metadata_of_footer()
        else:
            self._footer, self.footer_key_metadata = self._wrapped(
                encryption.footer_key_id or "", "footerKey", is_footer_key=True
            )
        self._ciphers: dict[Path, CountedCipher] = {}
        self._crypto: dict[Path, ColumnCryptoMetaData] = {}
        for path in leaves:
            self._choose(path)

    def _choose(self, path: Path) -> None:
        encryption = self.encryption
        if encryption.is_plaintext(path):
            return
        own = encryption.key_of_column(path)
        if own is None:
            self._ciphers[path] = self._footer
            self._crypto[path] = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
            return
        given, key = own
        if isinstance(key, str):
            reference = f"columnKey{len(self._entries) - 1}"
            cipher, metadata = self._wrapped(key, reference, is_footer_key=False)
        else:
            cipher, metadata = key, encryption.metadata_of_column(given) or b""
        self._ciphers[path] = cipher
        self._crypto[path] = ColumnCryptoMetaData(
            ENCRYPTION_WITH_COLUMN_KEY=EncryptionWithColumnKey(
                path_in_schema=path, key_metadata=metadata or None
            )
        )

    def _wrapped(
        self, master_key_id: str, reference: str, *, is_footer_key: bool
    ) -> tuple[CountedCipher, bytes]:
        """A new data key, and its key metadata."""
        encryption, key = self.encryption, os.urandom(self.encryption.data_key_bits // 8)
        assert encryption.kms is not None  # ids need a KMS
        try:
            material = wrap_dek(
                key,
                master_key_id,
                encryption.kms,
                double_wrapping=encryption.double_wrapping,
                is_footer_key=is_footer_key,
                kms_instance_id=encryption.kms_instance_id,
                kms_instance_url=encryption.kms_instance_url,
            )
        except Exception as error:
            # Without its cause: the error of a KMS may contain the key that it was given.
            raise KeyUnavailableError(
                f"the KMS client did not wrap a key with master key {master_key_id!r}: "
                f"{type(error).__name__}",
                hint=f"the KMS needs master key {master_key_id!r}, and leave to use it",
            ) from None
        self._entries[reference] = material
        if encryption.internal_key_material:
            return CountedCipher(key), material.to_json()
        return CountedCipher(key), KeyReference(key_reference=reference).to_json()

    def __repr__(self) -> str:
        return f"<FileEncryptor of {self.file!r}, {self.encryption.algorithm}>"

    @property
    def magic(self) -> bytes:
        """The first and last bytes of the file."""
        return MAGIC if self.encryption.plaintext_footer else MAGIC_ENCRYPTED

    @property
    def key_material_file(self) -> bytes | None:
        """The file of wrapped keys, where they are not in the data file."""
        if self.encryption.internal_key_material or not self._entries:
            return None
        return write_key_material_file(self._entries)

    @property
    def key_kinds(self) -> dict[Path, str]:
        """ "footer key" or "column key" of the encrypted leaves."""
        return {
            path: "column key" if each.ENCRYPTION_WITH_COLUMN_KEY else "footer key"
            for path, each in self._crypto.items()
        }

    def column(self, path: Path, row_group: int, column: int) -> ColumnDecryptor | None:
        """Encrypts the modules of a chunk; ``None`` for a chunk that stays plaintext."""
        cipher = self._ciphers.get(path)
        if cipher is None:
            return None
        own = self._crypto[path].ENCRYPTION_WITH_COLUMN_KEY
        return ColumnDecryptor(
            cipher,
            self.file_aad,
            self.ctr,
            column_name(path),
            key_label(own.key_metadata if own else self.footer_key_metadata),
            row_group,
            column,
            self.file,
        )

    def separates_metadata(self, path: Path) -> bool:
        """Whether the metadata of a column's chunks are separate modules, encrypted once, and not
        part of the footer."""
        crypto = self._crypto.get(path)
        own = crypto is not None and crypto.ENCRYPTION_WITH_COLUMN_KEY is not None
        return own or (crypto is not None and self.encryption.plaintext_footer)

    def encrypt_chunk_metadata(
        self, chunk: ColumnChunk, path: Path, row_group: int, column: int
    ) -> ColumnChunk:
        """The chunk as the footer holds it, with encrypted metadata where they must be."""
        encryptor, meta = self.column(path, row_group, column), chunk.meta_data
        if encryptor is None or meta is None:
            return replace(chunk, crypto_metadata=None, encrypted_column_metadata=None)
        crypto, plaintext = self._crypto[path], self.encryption.plaintext_footer
        if not self.separates_metadata(path):
            return replace(chunk, crypto_metadata=crypto, encrypted_column_metadata=None)
        module = encryptor.encrypt(ModuleType.COLUMN_META_DATA, meta.to_bytes())
        return replace(
            chunk,
            meta_data=_redacted(meta) if plaintext else None,
            crypto_metadata=crypto,
            encrypted_column_metadata=module,
        )

    def described(self, metadata: FileMetaData) -> FileMetaData:
        """The metadata with the fields about encryption, which only a plaintext footer has."""
        plaintext = self.encryption.plaintext_footer
        return replace(
            metadata,
            encryption_algorithm=self.algorithm if plaintext else None,
            footer_signing_key_metadata=self.footer_key_metadata if plaintext else None,
        )

    def footer(self, metadata: FileMetaData) -> bytes:
        """All bytes between the modules and the length of the footer.

        ``metadata`` holds chunks that ``encrypt_chunk_metadata`` returned.
        """
        return self.encrypt_footer(self.described(metadata).to_bytes())

    def encrypt_footer(self, data: bytes) -> bytes:
        """The same from the bytes of metadata that ``described`` returned."""
        aad = module_aad(self.file_aad, ModuleType.FOOTER)
        if self.encryption.plaintext_footer:
            return data + self._footer.sign(data, aad)
        crypto = FileCryptoMetaData(
            encryption_algorithm=self.algorithm, key_metadata=self.footer_key_metadata
        )
        return crypto.to_bytes() + self._footer.encrypt_module(data, aad)


def _redacted(meta: ColumnMetaData) -> ColumnMetaData:
    """Places and sizes only, by which readers without the key skip the chunk."""
    return replace(
        meta,
        key_value_metadata=None,
        statistics=None,
        encoding_stats=None,
        bloom_filter_offset=None,
        bloom_filter_length=None,
        size_statistics=None,
        geospatial_statistics=None,
        unknown=(),
    )
