"""Encrypts a plain file in memory with the pairs of what decrypts, for other readers to read."""

from __future__ import annotations

from dataclasses import replace

from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.file_decryptor import FileDecryptor
from skipstone.parquet.encryption.modules import ModuleType
from skipstone.parquet.format.enums import PageType
from skipstone.parquet.format.footer import MAGIC, MAGIC_ENCRYPTED, read_metadata
from skipstone.parquet.format.metadata import (
    AesGcmCtrV1,
    AesGcmV1,
    ColumnCryptoMetaData,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    PageHeader,
)
from skipstone.parquet.thrift.compact import Reader
from skipstone.parquet.thrift.structs import Empty


def seal(
    data: bytes,
    footer_key: bytes,
    column_keys: dict[str, bytes] | None = None,
    *,
    ctr: bool = False,
    plaintext_footer: bool = False,
    aad_prefix: bytes | None = None,
    store_aad_prefix: bool = True,
) -> bytes:
    """Flat columns only; with ``column_keys`` the columns without one stay in the clear."""
    kind = AesGcmCtrV1 if ctr else AesGcmV1
    parts = kind(
        aad_prefix=aad_prefix if store_aad_prefix else None,
        aad_file_unique=b"8 bytes.",
        supply_aad_prefix=None if aad_prefix is None or store_aad_prefix else True,
    )
    algorithm = EncryptionAlgorithm(
        AES_GCM_V1=parts if isinstance(parts, AesGcmV1) else None,
        AES_GCM_CTR_V1=parts if isinstance(parts, AesGcmCtrV1) else None,
    )
    keys = Decryption(footer_key=footer_key, column_keys=column_keys, aad_prefix=aad_prefix)
    file = FileDecryptor(keys, algorithm, b"kf", encrypted_footer=not plaintext_footer)
    out = bytearray(MAGIC if plaintext_footer else MAGIC_ENCRYPTED)
    metadata = read_metadata(data)
    row_groups = []
    for r, group in enumerate(metadata.row_groups):
        columns = []
        for c, chunk in enumerate(group.columns):
            meta = chunk.meta_data
            assert meta is not None
            assert meta.path_in_schema is not None
            (name,) = meta.path_in_schema
            crypto = None
            if column_keys is None:
                crypto = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
            elif name in column_keys:
                own = EncryptionWithColumnKey(
                    path_in_schema=(name,), key_metadata=f"key of {name}".encode()
                )
                crypto = ColumnCryptoMetaData(ENCRYPTION_WITH_COLUMN_KEY=own)
            column = file.column((name,), r, c, crypto)
            at = meta.dictionary_page_offset or meta.data_page_offset
            stop = at + meta.total_compressed_size
            start, pages, dictionary_at, data_at = len(out), 0, None, -1
            while at < stop:
                reader = Reader(data, at)
                header = PageHeader.read(reader)
                body = data[reader.at : reader.at + header.compressed_page_size]
                at = reader.at + header.compressed_page_size
                is_dictionary = header.type == PageType.DICTIONARY_PAGE
                if is_dictionary:
                    dictionary_at = len(out)
                elif data_at < 0:
                    data_at = len(out)
                head_type, page_type = (
                    (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE)
                    if is_dictionary
                    else (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE)
                )
                ordinal = None if is_dictionary else pages
                if column is None:
                    out += header.to_bytes() + body
                else:
                    body = column.encrypt(page_type, body, ordinal)
                    header = replace(header, compressed_page_size=len(body))
                    out += column.encrypt(head_type, header.to_bytes(), ordinal) + body
                pages += not is_dictionary
            meta = replace(
                meta,
                data_page_offset=data_at,
                dictionary_page_offset=dictionary_at,
                total_compressed_size=len(out) - start,
            )
            hidden = None
            if column is not None and (plaintext_footer or column_keys is not None):
                hidden = column.encrypt(ModuleType.COLUMN_META_DATA, meta.to_bytes())
            columns.append(
                replace(
                    chunk,
                    file_offset=start,
                    meta_data=(
                        meta
                        if hidden is None
                        else (replace(meta, statistics=None) if plaintext_footer else None)
                    ),
                    crypto_metadata=crypto,
                    encrypted_column_metadata=hidden,
                )
            )
        row_groups.append(replace(group, columns=tuple(columns), ordinal=r))
    metadata = replace(metadata, row_groups=tuple(row_groups))
    if plaintext_footer:
        footer = replace(
            metadata, encryption_algorithm=algorithm, footer_signing_key_metadata=b"kf"
        ).to_bytes()
        footer += file.sign_footer(footer)
    else:
        footer = FileCryptoMetaData(encryption_algorithm=algorithm, key_metadata=b"kf").to_bytes()
        footer += file.encrypt_footer(metadata.to_bytes())
    out += footer + len(footer).to_bytes(4, "little")
    return bytes(out + (MAGIC if plaintext_footer else MAGIC_ENCRYPTED))
