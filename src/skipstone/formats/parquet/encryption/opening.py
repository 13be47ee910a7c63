"""From the bytes of a footer, encrypted or not, to its arrays: one call for readers.

``cryptography`` is loaded only for files that are encrypted, or where keys were given.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from skipstone.errors import FormatError
from skipstone.formats.parquet.footer import SIGNATURE_LENGTH
from skipstone.formats.parquet.footer_arrays import FooterArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.errors import SkipstoneError

    from .file_decryptor import FileDecryptor
    from .keys import Decryption

__all__ = ["OpenedFooter", "open_footer"]


class OpenedFooter(NamedTuple):
    """``decryptor`` is ``None`` if the file is not encrypted.

    ``unavailable`` says by leaf ordinal why a column cannot be decrypted: raise it when the column
    is touched. ``signature_verified`` is of plaintext footers.
    """

    footer: FooterArrays
    decryptor: FileDecryptor | None = None
    unavailable: Mapping[int, SkipstoneError] = MappingProxyType({})
    signature_verified: bool = False


def open_footer(
    data: bytes | memoryview,
    *,
    encrypted: bool,
    base: int = 0,
    decryption: Decryption | None = None,
    file: str | None = None,
    load_key_material: Callable[[], bytes] | None = None,
) -> OpenedFooter:
    """Open what lies before the last 8 bytes of a file.

    ``encrypted`` is whether its magic is PARE (``Tail.encrypted``); ``base`` is where ``data``
    begins in the file; ``load_key_material`` as for ``FileDecryptor``. Raises
    ``KeyUnavailableError`` where the footer is encrypted and its key or AAD prefix was not given;
    ``FormatError`` where it is damaged, altered, not the file that was meant, or not encrypted
    although keys were given.
    """
    if encrypted:
        from .file_decryptor import EncryptedFooter
        from .file_decryptor import FileDecryptor as _FileDecryptor

        found = EncryptedFooter.from_bytes(data, base=base)
        decryptor = _FileDecryptor.of_encrypted_footer(
            decryption, found.crypto, file=file, load_key_material=load_key_material
        )
        plain = decryptor.decrypt_footer(found.module, base=found.offset)
        return _fill(FooterArrays.scan(plain, found.offset), decryptor, False)
    footer = FooterArrays.scan(data, base)
    algorithm = footer.encryption_algorithm
    if algorithm is None and decryption is None:
        return OpenedFooter(footer)
    from .file_decryptor import FileDecryptor as _FileDecryptor

    signer = _FileDecryptor.of_plaintext_footer(
        decryption,
        algorithm,
        footer.footer_signing_key_metadata,
        file=file,
        load_key_material=load_key_material,
    )
    if signer is None:
        return OpenedFooter(footer)
    if footer.end + SIGNATURE_LENGTH != len(data):
        raise FormatError(
            "the signature of the footer is not 28 bytes",
            file=file,
            offset=base + footer.end,
            expected=SIGNATURE_LENGTH,
            got=len(data) - footer.end,
        )
    return _fill(footer, signer, signer.verify_if_possible(data, base=base))


def _fill(footer: FooterArrays, decryptor: FileDecryptor, verified: bool) -> OpenedFooter:
    from .column_metadata import adopt_column_metadata

    adopted = adopt_column_metadata(footer, decryptor)
    return OpenedFooter(adopted.footer, decryptor, adopted.unavailable, verified)
