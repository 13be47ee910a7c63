"""What an encrypted file shows without its keys, and what the given keys opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.human import Report
from skipstone.predicate.types import column_name

from .decryption import key_label
from .file_decryptor import EncryptedFooter, FileDecryptor
from .open_footer import crypto_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.errors import SkipstoneError
    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .modules import Buffer

__all__ = [
    "EncryptedColumn",
    "EncryptionDescription",
    "describe_encrypted_footer",
    "describe_encryption",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedColumn(Report):
    """``key`` is "footer key" or "column key"; ``unavailable`` is why it cannot be read, if it
    cannot."""

    column: str
    key: str
    key_label: str | None
    unavailable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionDescription(Report):
    """``columns`` is ``None`` where the footer hides them.

    ``aad_prefix`` is "stored", "to be supplied" or "none"; ``signature`` of a plaintext footer is
    "verified" or "not verified"; the labels are those of ``key_label``.
    """

    algorithm: str
    footer: str
    footer_key_label: str | None
    aad_prefix: str
    stored_aad_prefix: bytes | None = None
    signature: str | None = None
    columns: tuple[EncryptedColumn, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the stored prefix as text where it is UTF-8, as hex otherwise."""
        found = Report.to_dict(self)
        if self.stored_aad_prefix is not None:
            found["stored_aad_prefix"] = _readable(self.stored_aad_prefix)
        for name in ("stored_aad_prefix", "signature", "columns"):
            if found[name] is None:
                del found[name]
        return found


def describe_encrypted_footer(
    data: Buffer, *, base: int = 0, file: str | None = None
) -> EncryptionDescription:
    """The plaintext parts of a file whose footer is encrypted and whose footer key is missing.

    ``data`` is what lies before the last 8 bytes, beginning at ``base`` of the file.
    """
    crypto = EncryptedFooter.from_bytes(data, base=base).crypto
    return describe_encryption(FileDecryptor.of_encrypted_footer(None, crypto, file=file))


def describe_encryption(
    decryptor: FileDecryptor,
    footer: FooterArrays | None = None,
    *,
    unavailable: Mapping[int, SkipstoneError] | None = None,
    signature_verified: bool = False,
) -> EncryptionDescription:
    """The encryption of one file; ``footer`` is given where it is plaintext or was decrypted.

    A column's key is that of its first encrypted chunk. ``unavailable`` is that of ``open_footer``.
    """
    algorithm = decryptor.algorithm
    if algorithm.aad_prefix is not None:
        prefix = "stored"
    else:
        prefix = "to be supplied" if algorithm.supply_aad_prefix else "none"
    signature = None
    if not decryptor.encrypted_footer:
        signature = "verified" if signature_verified else "not verified"
    return EncryptionDescription(
        algorithm=decryptor.algorithm_name,
        footer="encrypted" if decryptor.encrypted_footer else "plaintext, signed",
        footer_key_label=key_label(decryptor.key_metadata),
        aad_prefix=prefix,
        stored_aad_prefix=algorithm.aad_prefix,
        signature=signature,
        columns=None if footer is None else _columns(footer, decryptor, unavailable or {}),
    )


def _columns(
    footer: FooterArrays, decryptor: FileDecryptor, unavailable: Mapping[int, SkipstoneError]
) -> tuple[EncryptedColumn, ...]:
    encrypted = footer.chunk("encrypted") == 1
    found = []
    for leaf in np.flatnonzero(encrypted.any(axis=0)).tolist():
        crypto = crypto_of(footer, int(np.argmax(encrypted[:, leaf])), leaf)
        own = crypto and crypto.ENCRYPTION_WITH_COLUMN_KEY
        reason = unavailable.get(leaf)
        found.append(
            EncryptedColumn(
                column=column_name(footer.schema.leaves[leaf].path),
                key="column key" if own else "footer key",
                key_label=key_label(own.key_metadata if own else decryptor.key_metadata),
                unavailable=None if reason is None else reason.message,
            )
        )
    return tuple(found)


def _readable(value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
