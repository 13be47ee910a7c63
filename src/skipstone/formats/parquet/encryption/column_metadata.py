"""Fills a footer: decrypts the ``encrypted_column_metadata`` of every column whose key is there.

In a plaintext footer an encrypted column keeps a ``meta_data`` without statistics beside the
encrypted one; in an encrypted footer it has only the latter. A column of which one chunk cannot be
decrypted is left as it was, with the reason: whoever touches it raises that, the others still read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.formats.parquet.crypto import ColumnCryptoMetaData

from .modules import ModuleType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.errors import SkipstoneError
    from skipstone.formats.parquet.footer_arrays import FooterArrays

    from .column_decryptor import ColumnDecryptor
    from .file_decryptor import FileDecryptor

__all__ = ["AdoptedFooter", "adopt_column_metadata", "chunk_decryptor", "crypto_of"]


class AdoptedFooter(NamedTuple):
    """The footer with what could be decrypted, and by leaf ordinal why the rest could not."""

    footer: FooterArrays
    unavailable: Mapping[int, SkipstoneError]


def crypto_of(footer: FooterArrays, row_group: int, leaf: int) -> ColumnCryptoMetaData | None:
    """The crypto metadata of a chunk, ``None`` if it is not encrypted."""
    data = footer.part("crypto_metadata", row_group, leaf)
    return None if data is None else ColumnCryptoMetaData.from_bytes(data)


def chunk_decryptor(
    footer: FooterArrays, decryptor: FileDecryptor, row_group: int, leaf: int
) -> ColumnDecryptor | None:
    """What decrypts a chunk, by the places in the footer; ``None`` if it is not encrypted.

    Raises as ``FileDecryptor.column``.
    """
    return decryptor.column(
        footer.schema.leaves[leaf].path,
        _ordinal(footer, row_group),
        leaf,
        crypto_of(footer, row_group, leaf),
    )


def _ordinal(footer: FooterArrays, row_group: int) -> int:
    ordinal = int(footer.group("ordinal")[row_group])
    return row_group if ordinal == -1 else ordinal


def adopt_column_metadata(footer: FooterArrays, decryptor: FileDecryptor) -> AdoptedFooter:
    """Decrypt all column metadata for which there are keys."""
    adopted: dict[tuple[int, int], bytes] = {}
    unavailable: dict[int, SkipstoneError] = {}
    for leaf in np.flatnonzero((footer.chunk("encrypted") == 1).any(axis=0)).tolist():
        try:
            adopted |= _decrypt_leaf(footer, decryptor, leaf)
        except (KeyUnavailableError, FormatError, UnsupportedError) as error:
            # The traceback would keep buffers and ciphers alive as long as the reason.
            unavailable[leaf] = error.with_traceback(None)
    return AdoptedFooter(footer.adopt(adopted), unavailable)


def _decrypt_leaf(
    footer: FooterArrays, decryptor: FileDecryptor, leaf: int
) -> dict[tuple[int, int], bytes]:
    found = {}
    path = footer.schema.leaves[leaf].path
    parsed: dict[bytes, ColumnCryptoMetaData] = {}
    for row_group in np.flatnonzero(footer.chunk("encrypted")[:, leaf] == 1).tolist():
        data = footer.part("crypto_metadata", row_group, leaf) or b""
        crypto = parsed.get(data)
        if crypto is None:
            crypto = parsed[data] = ColumnCryptoMetaData.from_bytes(data)
        column = decryptor.column(path, _ordinal(footer, row_group), leaf, crypto)
        module = footer.part("encrypted_column_metadata", row_group, leaf)
        if column is not None and module is not None:
            base = int(footer.places("encrypted_column_metadata")[0][row_group, leaf]) + footer.base
            plain = column.decrypt(ModuleType.COLUMN_META_DATA, module, base=base)
            found[row_group, leaf] = plain
    return found
