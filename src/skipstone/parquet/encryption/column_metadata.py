"""Fills a footer: decrypts the ``encrypted_column_metadata`` of every column whose key is there.

In a plaintext footer an encrypted column keeps a ``meta_data`` without statistics beside the
encrypted one; in an encrypted footer it has only the latter. A column of which one chunk cannot be
decrypted is left as it was, with the reason: whoever touches it raises that, the others still read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.format.crypto import ColumnCryptoMetaData
from skipstone.parquet.thrift.compact import Reader

from .modules import ModuleType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.errors import SkipstoneError
    from skipstone.parquet.format.footer_arrays import FooterArrays

    from .column_decryptor import ColumnDecryptor
    from .file_decryptor import FileDecryptor

__all__ = ["AdoptedFooter", "adopt_column_metadata", "chunk_decryptor", "crypto_of"]


class AdoptedFooter(NamedTuple):
    """The footer with what could be decrypted, and by leaf ordinal why the rest could not."""

    footer: FooterArrays
    unavailable: Mapping[int, SkipstoneError]


def crypto_of(footer: FooterArrays, row_group: int, leaf: int) -> ColumnCryptoMetaData | None:
    """The crypto metadata of a chunk, ``None`` if it is not encrypted."""
    return footer.column_chunk(row_group, leaf).crypto_metadata


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
    encrypted = footer.chunk("encrypted") == 1
    crypto_at = footer.parts("crypto_metadata")
    module_at, module_length = footer.places("encrypted_column_metadata")
    view = memoryview(footer.data)
    for leaf in np.flatnonzero(encrypted.any(axis=0)).tolist():
        path, found = footer.schema.leaves[leaf].path, {}
        raw, column = b"", None
        try:
            for row_group in np.flatnonzero(encrypted[:, leaf]).tolist():
                at, ordinal = int(crypto_at[row_group, leaf]), _ordinal(footer, row_group)
                # One column's key is the same in all row groups, as far as any writer goes.
                if not raw or footer.data[at : at + len(raw)] != raw:
                    reader = Reader(view, at, base=footer.base)
                    crypto = ColumnCryptoMetaData.read(reader)
                    raw = footer.data[at : reader.at]
                    column = decryptor.column(path, ordinal, leaf, crypto)
                at = int(module_at[row_group, leaf])
                if column is not None and at >= 0:
                    module = view[at : at + int(module_length[row_group, leaf])]
                    found[row_group, leaf] = replace(column, row_group_ordinal=ordinal).decrypt(
                        ModuleType.COLUMN_META_DATA, module, base=footer.base + at
                    )
        except (KeyUnavailableError, FormatError, UnsupportedError) as error:
            # The traceback would keep buffers and ciphers alive as long as the reason.
            unavailable[leaf] = error.with_traceback(None)
        else:
            adopted |= found
    return AdoptedFooter(footer.adopt(adopted), unavailable)
