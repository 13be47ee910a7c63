"""Tells whether a file is already encrypted as requested. Only its footer is opened.

Keys are tried, not compared: the footer, or its signature, authenticates with the footer key and
the AAD prefix, the metadata of columns with the column keys. Compared are the algorithm, the kind
of footer, the key labels, and the kind of key of each column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.parquet.encryption.key_material import (
    KeyReference,
    key_material_path,
    read_key_material_file,
    read_key_metadata,
)
from skipstone.parquet.encryption.open_footer import crypto_of
from skipstone.parquet.reading.file import ParquetFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.file_decryptor import FileDecryptor
    from skipstone.parquet.encryption.key_material import KeyMaterial


State: TypeAlias = Literal["plain", "same", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionState:
    """How the encryption of a file compares with the one requested.

    ``other`` is a file that is encrypted differently, or does not open with these keys; ``why``
    has the reason. ``aad_file_unique`` is the unique part of the AAD of a file in state ``same``.
    """

    state: State
    why: str = ""
    size: int = 0
    aad_file_unique: bytes = b""


def encryption_state(path: str, encryption: Encryption) -> EncryptionState:
    """The state of a file. Wrong keys and bad files are a state; ``OSError`` and others raise."""
    try:
        file = ParquetFile(path, decryption=encryption.decryption())
        decryptor = file.chunk_pages.decryptor
        if decryptor is None:
            return EncryptionState(state="plain", size=file.size)
        why = _difference(file, decryptor, encryption)
    except (FormatError, KeyUnavailableError) as error:
        return EncryptionState(state="other", why=error.message)
    unique = decryptor.algorithm.aad_file_unique or b""
    return EncryptionState(
        state="other" if why else "same", why=why, size=file.size, aad_file_unique=unique
    )


def _difference(file: ParquetFile, decryptor: FileDecryptor, encryption: Encryption) -> str:
    for reason in file.unavailable.values():
        return reason.message
    if decryptor.algorithm_name != encryption.algorithm:
        return f"it is encrypted with {decryptor.algorithm_name}"
    if decryptor.encrypted_footer == encryption.plaintext_footer:
        return f"its footer is {'encrypted' if decryptor.encrypted_footer else 'in the clear'}"
    if not decryptor.encrypted_footer and not file.signature_verified:
        return "the signature of its footer was not verified"
    prefix, stored = encryption.prefix_for(file.path), decryptor.algorithm.aad_prefix
    if stored != (prefix if encryption.store_aad_prefix else None):
        return f"its AAD prefix is {'stored in it' if stored else 'not stored in it'}"
    return _keys_differ(file, decryptor, encryption)


def _keys_differ(file: ParquetFile, decryptor: FileDecryptor, encryption: Encryption) -> str:
    materials = _Materials(file)
    if encryption.footer_key_id is None:
        if decryptor.key_metadata != encryption.metadata_of_footer():
            return "its footer key has another label"
    elif why := materials.differ(decryptor.key_metadata, encryption.footer_key_id, encryption):
        return f"its footer key {why}"
    footer = file.footer
    encrypted = footer.chunk("encrypted") == 1
    for leaf in footer.schema.leaves if footer.num_row_groups else ():
        plaintext = encryption.is_plaintext(leaf.path)
        if np.any(encrypted[:, leaf.ordinal] == plaintext):
            return f"column {leaf.name!r} is {'encrypted' if plaintext else 'in the clear'}"
        if plaintext:
            continue
        crypto = crypto_of(footer, 0, leaf.ordinal)
        own = None if crypto is None else crypto.ENCRYPTION_WITH_COLUMN_KEY
        given = encryption.key_of_column(leaf.path)
        if (own is None) != (given is None):
            return f"column {leaf.name!r} has {'no' if own is None else 'a'} key of its own"
        if own is None or given is None:
            continue
        if not isinstance(given[1], str):
            if own.key_metadata != encryption.metadata_of_column(given[0]):
                return f"the key of column {leaf.name!r} has another label"
        elif why := materials.differ(own.key_metadata, given[1], encryption):
            return f"the key of column {leaf.name!r} {why}"
    return ""


class _Materials:
    """Reads the key material of a file, inside the file or from its key material file."""

    def __init__(self, file: ParquetFile) -> None:
        self.file = file
        self._entries: Mapping[str, KeyMaterial] | None = None

    def of(self, metadata: bytes | None) -> tuple[KeyMaterial | None, bool]:
        """The material, and whether it is stored in the file itself."""
        found = read_key_metadata(metadata) if metadata else None
        if not isinstance(found, KeyReference):
            return found, True
        if self._entries is None:
            data = self.file.reader.storage.read(key_material_path(self.file.path))
            self._entries = read_key_material_file(data)
        return self._entries.get(found.key_reference), False

    def differ(self, metadata: bytes | None, master_key_id: str, encryption: Encryption) -> str:
        """How the wrapping of a key differs from the one requested; empty if it does not."""
        material, internal = self.of(metadata)
        if material is None:
            return "is not wrapped by a KMS"
        if material.master_key_id != master_key_id:
            return f"is wrapped with master key {material.master_key_id!r}"
        if material.double_wrapping != encryption.double_wrapping:
            return f"is wrapped {'twice' if material.double_wrapping else 'once'}"
        if internal != encryption.internal_key_material:
            return f"is stored {'in' if internal else 'next to'} the file"
        return ""


def master_keys_of(file: ParquetFile) -> set[str]:
    """The master keys that wrap the data keys of an opened file; empty if there are none."""
    decryptor, materials = file.chunk_pages.decryptor, _Materials(file)
    if decryptor is None:
        return set()
    metadata = {decryptor.key_metadata}
    for row_group in range(file.footer.num_row_groups):
        for leaf in file.footer.schema.leaves:
            crypto = file.footer.column_chunk(row_group, leaf.ordinal).crypto_metadata
            own = crypto and crypto.ENCRYPTION_WITH_COLUMN_KEY
            metadata.add(own.key_metadata if own else None)
    found = [materials.of(each)[0] for each in metadata if each]
    return {each.master_key_id for each in found if each is not None}
