"""The structs of modular encryption. Modules, keys and ciphers are in ``encryption``."""

from __future__ import annotations

from dataclasses import dataclass

from skipstone.parquet.thrift.structs import (
    BINARY,
    BOOL,
    STRING,
    Declared,
    list_of,
    optional,
    required,
    struct,
)

__all__ = [
    "AesGcmCtrV1",
    "AesGcmV1",
    "ColumnCryptoMetaData",
    "EncryptionAlgorithm",
    "EncryptionWithColumnKey",
    "EncryptionWithFooterKey",
    "FileCryptoMetaData",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AesGcmV1(Declared):
    """All modules with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AesGcmCtrV1(Declared):
    """Pages with AES-CTR, everything else with AES-GCM."""

    aad_prefix: bytes | None = optional(1, BINARY)
    aad_file_unique: bytes | None = optional(2, BINARY)
    supply_aad_prefix: bool | None = optional(3, BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionAlgorithm(Declared):
    """One of two."""

    AES_GCM_V1: AesGcmV1 | None = optional(1, struct(AesGcmV1))
    AES_GCM_CTR_V1: AesGcmCtrV1 | None = optional(2, struct(AesGcmCtrV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionWithFooterKey(Declared):
    """The column is encrypted with the key of the footer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionWithColumnKey(Declared):
    """The column has a key of its own; ``key_metadata`` tells how to get it."""

    path_in_schema: tuple[str, ...] = required(1, list_of(STRING))
    key_metadata: bytes | None = optional(2, BINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCryptoMetaData(Declared):
    """One of two."""

    ENCRYPTION_WITH_FOOTER_KEY: EncryptionWithFooterKey | None = optional(
        1, struct(EncryptionWithFooterKey)
    )
    ENCRYPTION_WITH_COLUMN_KEY: EncryptionWithColumnKey | None = optional(
        2, struct(EncryptionWithColumnKey)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCryptoMetaData(Declared):
    """What lies before an encrypted footer, in the clear."""

    encryption_algorithm: EncryptionAlgorithm = required(1, struct(EncryptionAlgorithm))
    key_metadata: bytes | None = optional(2, BINARY)
