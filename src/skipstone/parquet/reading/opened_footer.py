"""The footer of a file: found at its end, decrypted where it is sealed, and scanned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipstone.errors import FormatError
from skipstone.parquet.encryption.column_metadata import adopt_column_metadata
from skipstone.parquet.encryption.file_decryptor import EncryptedFooter, FileDecryptor
from skipstone.parquet.encryption.key_material import key_material_path
from skipstone.parquet.encryption.open_footer import doubts_of
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays

from .chunk_pages import in_file
from .column_files import pin_column_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.errors import SkipstoneError
    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption

    from .pinned_reader import PinnedReader

__all__ = ["TAIL_GUESS", "OpenedFooter", "open_footer"]

#: Bytes that are read of a file's end: most footers are shorter.
TAIL_GUESS = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenedFooter:
    """``tail`` says where it lies; ``unavailable`` why leaves cannot be read, by ordinal: their
    keys are not at hand. ``signature_verified``: it is signed, in the clear, and its key was.
    ``column_files`` are the versions of the files that columns lie in, by ``file_path``."""

    tail: Tail
    footer: FooterArrays
    decryptor: FileDecryptor | None = None
    signature_verified: bool = False
    unavailable: Mapping[int, SkipstoneError] = field(default_factory=dict)
    column_files: Mapping[str, ObjectId] = field(default_factory=dict)


def open_footer(
    reader: PinnedReader,
    path: str,
    decryption: Decryption | None,
    tail: memoryview | None = None,
) -> OpenedFooter:
    """Of the file at ``path`` in the version that ``reader`` has pinned; ``tail``: its last bytes.

    ``FormatError`` for a file that is no Parquet, ``KeyUnavailableError`` for an encrypted footer
    without its key.
    """
    try:
        if tail is None:
            length = min(TAIL_GUESS, reader.size(path))
            tail = reader.one(path, reader.size(path) - length, length)
        return _opened(reader, path, decryption, tail)
    except FormatError as error:
        raise in_file(error, path) from error


def _opened(
    reader: PinnedReader, path: str, decryption: Decryption | None, tail: memoryview
) -> OpenedFooter:
    def key_material() -> bytes:
        return reader.storage.read(key_material_path(path))

    end = Tail.from_bytes(tail[-TAIL_LENGTH:], reader.size(path))
    if end.length + TAIL_LENGTH <= len(tail):
        data = tail[len(tail) - TAIL_LENGTH - end.length : -TAIL_LENGTH]
    else:
        data = reader.one(path, end.offset, end.length)
    verified = False
    decryptor: FileDecryptor | None
    if end.encrypted:
        sealed = EncryptedFooter.from_bytes(data, base=end.offset)
        decryptor = FileDecryptor.of_encrypted_footer(
            decryption, sealed.crypto, file=path, load_key_material=key_material
        )
        plain = decryptor.decrypt_footer(sealed.module, base=sealed.offset)
        footer = FooterArrays.scan(plain, end.offset)
    else:
        footer = FooterArrays.scan(data, end.offset)
        decryptor = FileDecryptor.of_plaintext_footer(
            decryption,
            footer.encryption_algorithm,
            footer.footer_signing_key_metadata,
            file=path,
            load_key_material=key_material,
        )
        if decryptor is not None:
            verified = decryptor.verify_if_possible(data, base=end.offset)
    unavailable: Mapping[int, SkipstoneError] = {}
    if decryptor is not None:
        footer, unavailable = adopt_column_metadata(footer, decryptor)
        if not end.encrypted and not verified:
            unavailable = {**unavailable, **doubts_of(footer, decryption, path)}
    return OpenedFooter(
        tail=end,
        footer=footer,
        decryptor=decryptor,
        signature_verified=verified,
        unavailable=unavailable,
        column_files=pin_column_files(reader, path, footer),
    )
