"""From the bytes of a footer, encrypted or not, to its arrays: one call for readers.

``cryptography`` is loaded only for files that are encrypted, or where keys were given.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from skipstone.errors import FormatError
from skipstone.parquet.format.footer import SIGNATURE_LENGTH
from skipstone.parquet.format.footer_arrays import FooterArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.errors import SkipstoneError

    from .decryption import Decryption
    from .file_decryptor import FileDecryptor

__all__ = ["OpenedFooter", "doubts_of", "open_footer"]


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
    although keys were given. Where the key that signs a plaintext footer was not given, columns
    whose keys were must be encrypted.
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
    verified = signer.verify_if_possible(data, base=base)
    opened = _fill(footer, signer, verified)
    if verified:
        return opened
    doubts = doubts_of(opened.footer, decryption, file)
    return opened._replace(unavailable={**opened.unavailable, **doubts})


def doubts_of(
    footer: FooterArrays, decryption: Decryption | None, file: str | None
) -> dict[int, SkipstoneError]:
    """What is not to be read by a plaintext footer whose signature was not verified.

    Anybody can have made it. So it must not tell of columns in the clear whose keys were given:
    they are returned with their reasons, by leaf ordinal. ``FormatError`` where keys were given
    and no column is encrypted: that is a file in the clear.
    """
    if decryption is None or not decryption.has_keys or decryption.allow_plaintext_files:
        return {}
    encrypted = footer.chunk("encrypted") == 1
    if encrypted.size and not encrypted.any():
        raise FormatError(
            "keys were given, but no column is encrypted, and the key that signs the footer is not"
            " among them",
            file=file,
            hint="pass it as footer_key; if that is as it should be, pass"
            " allow_plaintext_files=True with the keys",
        )
    return {
        leaf.ordinal: FormatError(
            f"the key of column {leaf.name!r} was given, but the column is not encrypted, and the"
            " key that signs the footer was not given",
            file=file,
            hint="pass it as footer_key, or do without the key of the column",
        )
        for leaf in footer.schema.leaves
        if decryption.key_of_column(leaf.path) is not None and not encrypted[:, leaf.ordinal].all()
    }


def _fill(footer: FooterArrays, decryptor: FileDecryptor, verified: bool) -> OpenedFooter:
    from .column_metadata import adopt_column_metadata

    adopted = adopt_column_metadata(footer, decryptor)
    return OpenedFooter(adopted.footer, decryptor, adopted.unavailable, verified)
