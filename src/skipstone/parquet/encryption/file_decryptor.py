"""Decrypts one file: its keys, algorithm and AAD combined.

    PARE   FileCryptoMetaData | module Footer            the algorithm lies before the footer
    PAR1   FileMetaData | nonce 12 | tag 16              the algorithm lies in the footer

The signature of a plaintext footer is the nonce and the tag of encrypting the bytes of FileMetaData
with the footer key and the footer's AAD; the ciphertext is not stored.

Keys are requested only when they are needed: a file with a plaintext footer opens without any key,
and its plaintext columns read. A column whose key is missing is a ``KeyUnavailableError`` when it
is read. With the wrong key, ``AuthenticationError`` (a ``FormatError``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.format.metadata import (
    AesGcmCtrV1,
    AesGcmV1,
    ColumnCryptoMetaData,
    EncryptionAlgorithm,
    FileCryptoMetaData,
)
from skipstone.parquet.thrift.compact import Reader
from skipstone.predicate.types import column_name

from .column_decryptor import ColumnDecryptor
from .decryption import Decryption, FileKeys, key_label
from .modules import (
    SIGNATURE_LENGTH,
    AuthenticationError,
    Buffer,
    Cipher,
    ModuleType,
    module_aad,
    module_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class EncryptedFooter:
    """The footer of a PARE file: its crypto metadata, and the module after it.

    ``offset`` is where the module begins, counted as ``base`` was.
    """

    crypto: FileCryptoMetaData
    module: memoryview
    offset: int

    @classmethod
    def from_bytes(cls, data: Buffer, *, base: int = 0) -> EncryptedFooter:
        """From all bytes before the 8 bytes of the tail; every byte must be used."""
        view = memoryview(data)
        reader = Reader(view, base=base)
        crypto = FileCryptoMetaData.read(reader)
        module = view[reader.at :]
        length = module_length(module, base=base + reader.at)
        if length != len(module):
            raise FormatError(
                "the encrypted footer does not fill its place",
                offset=base + reader.at,
                expected=len(module),
                got=length,
            )
        return cls(crypto, module, base + reader.at)


class FileDecryptor:
    """Decrypts one file.

    ``key_metadata`` is that of the key that encrypts or signs the footer. ``load_key_material``
    returns the bytes of the key material file (``key_material_path``). It is called only if key
    metadata refers to that file.
    """

    __slots__ = ("_aad", "_keys", "algorithm", "ctr", "encrypted_footer", "file", "key_metadata")

    def __init__(
        self,
        decryption: Decryption | None,
        algorithm: EncryptionAlgorithm,
        key_metadata: bytes | None,
        *,
        encrypted_footer: bool,
        file: str | None = None,
        load_key_material: Callable[[], bytes] | None = None,
    ) -> None:
        gcm, ctr = algorithm.AES_GCM_V1, algorithm.AES_GCM_CTR_V1
        if gcm is None and ctr is None:
            raise UnsupportedError(
                "the file is encrypted with an unknown algorithm",
                hint="AES_GCM_V1 and AES_GCM_CTR_V1 are supported",
            )
        if gcm is not None and ctr is not None:
            raise FormatError("the file names two encryption algorithms", file=file)
        self.algorithm: AesGcmV1 | AesGcmCtrV1 = gcm or ctr  # type: ignore[assignment]
        self.ctr = ctr is not None
        self.key_metadata, self.encrypted_footer, self.file = key_metadata, encrypted_footer, file
        self._keys = FileKeys(decryption or Decryption(), file, load_key_material)
        self._aad: bytes | None = None

    @classmethod
    def of_plaintext_footer(
        cls,
        decryption: Decryption | None,
        algorithm: EncryptionAlgorithm | None,
        key_metadata: bytes | None,
        *,
        file: str | None = None,
        load_key_material: Callable[[], bytes] | None = None,
    ) -> FileDecryptor | None:
        """The decryptor of a PAR1 file, by two fields of its FileMetaData; ``None`` if it is not
        encrypted. ``FormatError`` where it is not encrypted, and the given keys do not allow that.
        """
        if algorithm is not None:
            return cls(
                decryption,
                algorithm,
                key_metadata,
                encrypted_footer=False,
                file=file,
                load_key_material=load_key_material,
            )
        if decryption is not None and decryption.has_keys and not decryption.allow_plaintext_files:
            raise FormatError(
                "keys were given, but the file is not encrypted",
                file=file,
                hint="it is in the clear already; to read such files with the keys all the same,"
                " allow_plaintext_files=True (--allow-plaintext-files)",
            )
        return None

    def __repr__(self) -> str:
        return f"<FileDecryptor of {self.file!r}, {self.algorithm_name}>"

    @property
    def algorithm_name(self) -> str:
        """The name in the specification."""
        return "AES_GCM_CTR_V1" if self.ctr else "AES_GCM_V1"

    @property
    def file_aad(self) -> bytes:
        """AAD prefix and unique part of the file.

        ``KeyUnavailableError`` where the prefix must be given and is not; ``FormatError`` where the
        one given is not that of the file: this is not the intended file.
        """
        if self._aad is None:
            self._aad = self._prefix() + (self.algorithm.aad_file_unique or b"")
        return self._aad

    def _prefix(self) -> bytes:
        stored = self.algorithm.aad_prefix
        given = self._keys.decryption.prefix_for(self.file)
        if stored is None and self.algorithm.supply_aad_prefix:
            if given is None:
                where = f"{self.file}: " if self.file else ""
                raise KeyUnavailableError(
                    f"{where}the AAD prefix is not stored in the file, and was not given",
                    hint="pass the prefix that the writer used as aad_prefix",
                )
            return given
        if given is not None and given != (stored or b""):
            raise FormatError(
                "the AAD prefix given is not that of the file"
                if stored
                else "an AAD prefix was given, but the file was encrypted without one",
                file=self.file,
                hint="this is not the intended file, or another aad_prefix is needed",
            )
        return stored or b""

    # -- the footer --------------------------------------------------------------------------------

    def footer_cipher(self) -> Cipher:
        """The footer key; raises ``KeyUnavailableError``."""
        return self._keys.key((), self.key_metadata)

    @classmethod
    def open_encrypted(
        cls,
        data: Buffer,
        decryption: Decryption | None,
        *,
        base: int = 0,
        file: str | None = None,
        load_key_material: Callable[[], bytes] | None = None,
    ) -> tuple[FileDecryptor, bytes, int]:
        """The decryptor of a PARE file, the bytes of FileMetaData, and where their module begins.

        ``data`` is the footer at ``base``.
        """
        found = EncryptedFooter.from_bytes(data, base=base)
        made = cls(
            decryption,
            found.crypto.encryption_algorithm,
            found.crypto.key_metadata,
            encrypted_footer=True,
            file=file,
            load_key_material=load_key_material,
        )
        return made, made.decrypt_footer(found.module, base=found.offset), found.offset

    def decrypt_footer(self, module: Buffer, *, base: int = 0) -> bytes:
        """The bytes of FileMetaData from the module after FileCryptoMetaData."""
        cipher = self.footer_cipher()
        aad = module_aad(self.file_aad, ModuleType.FOOTER)
        plain, _ = cipher.decrypt_module(
            module, aad, base=base, file=self.file, what=self._footer_name()
        )
        return plain

    def encrypt_footer(self, metadata: Buffer) -> bytes:
        """The inverse of ``decrypt_footer``."""
        return self.footer_cipher().encrypt_module(
            metadata, module_aad(self.file_aad, ModuleType.FOOTER)
        )

    def check_signature_length(self, footer: Buffer, end: int, *, base: int = 0) -> None:
        """``FormatError`` unless exactly 28 bytes follow FileMetaData, which ends at ``end``."""
        length = len(memoryview(footer)) - end
        if length != SIGNATURE_LENGTH:
            raise FormatError(
                "the signature of the footer is not 28 bytes",
                file=self.file,
                offset=base + end,
                expected=SIGNATURE_LENGTH,
                got=length,
            )

    def verify_signature(self, footer: Buffer, end: int, *, base: int = 0) -> None:
        """Checks a plaintext footer: FileMetaData up to ``end``, and the 28 bytes after it.

        Raises ``AuthenticationError`` if it was altered, ``KeyUnavailableError`` without the key.
        """
        self.check_signature_length(footer, end, base=base)
        view = memoryview(footer)
        aad = module_aad(self.file_aad, ModuleType.FOOTER)
        if not self.footer_cipher().verify(view[:end], view[end:], aad):
            raise AuthenticationError(
                f"the signature of {self._footer_name()} is wrong",
                file=self.file,
                offset=base + end,
            )

    def verify_if_possible(self, footer: Buffer, end: int, *, base: int = 0) -> bool:
        """Verifies the signature, unless the user disabled that or there is no key; returns whether
        it did."""
        self.check_signature_length(footer, end, base=base)
        if not self._keys.decryption.check_footer_integrity:
            return False
        try:
            self.verify_signature(footer, end, base=base)
        except KeyUnavailableError:
            return False
        return True

    def sign_footer(self, metadata: Buffer) -> bytes:
        """The 28 bytes that follow the bytes of FileMetaData in a plaintext footer."""
        return self.footer_cipher().sign(metadata, module_aad(self.file_aad, ModuleType.FOOTER))

    def _footer_name(self) -> str:
        label = key_label(self.key_metadata)
        return "the footer" if label is None else f"the footer (key label {label!r})"

    # -- columns -----------------------------------------------------------------------------------

    def column(
        self,
        path: tuple[str, ...],
        row_group_ordinal: int,
        column_ordinal: int,
        crypto_metadata: ColumnCryptoMetaData | None,
    ) -> ColumnDecryptor | None:
        """The decryptor of one column chunk; ``None`` if it is not encrypted.

        ``row_group_ordinal`` is ``RowGroup.ordinal``, or its index where that is absent. Raises
        ``KeyUnavailableError`` naming the column and its key's label.
        """
        if crypto_metadata is None:
            return None
        name = column_name(path)
        own = crypto_metadata.ENCRYPTION_WITH_COLUMN_KEY
        with_footer = crypto_metadata.ENCRYPTION_WITH_FOOTER_KEY
        if (own is None) == (with_footer is None):
            raise FormatError(f"column {name!r} must have exactly one kind of key", file=self.file)
        if own is None:
            label = key_label(self.key_metadata)
            try:
                cipher = self.footer_cipher()
            except KeyUnavailableError as error:
                raise KeyUnavailableError(
                    f"column {name!r} is encrypted with the footer key: {error.message}",
                    hint=error.hint,
                ) from None
        else:
            if own.path_in_schema != path:
                raise FormatError(
                    "the crypto metadata of a column is that of another",
                    file=self.file,
                    expected=name,
                    got=column_name(own.path_in_schema),
                )
            label = key_label(own.key_metadata)
            cipher = self._keys.key(path, own.key_metadata)
        return ColumnDecryptor(
            cipher,
            self.file_aad,
            self.ctr,
            name,
            label,
            row_group_ordinal,
            column_ordinal,
            self.file,
        )
