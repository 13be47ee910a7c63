"""KMS clients for Arrow, and files that Arrow encrypts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from tests.parquet.encryption.keys import PlainKms

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


class ArrowKms(pe.KmsClient):  # type: ignore[misc]
    """``PlainKms`` as Arrow calls it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.kms = PlainKms()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return self.kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return self.kms.unwrap_key(wrapped_key, master_key_identifier)


class _Unwrapped(pe.KmsClient):  # type: ignore[misc]
    """Stores data keys as they are."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, label: str) -> bytes:
        return key

    def unwrap_key(self, key: bytes, label: str) -> bytes:
        return key


def write_encrypted(
    path: Path, table: pa.Table, column_keys: dict[str, list[str]], *, plaintext_footer: bool
) -> None:
    """A file by Arrow; the footer key has the label "f", those of columns as given."""
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys=column_keys, plaintext_footer=plaintext_footer
    )
    factory = pe.CryptoFactory(_Unwrapped)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
