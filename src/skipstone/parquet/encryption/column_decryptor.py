"""Decrypts the modules of one column chunk: pages and their headers, indexes, Bloom filters.

The specification, Arrow and parquet-rs encrypt the whole body of a v2 data page. parquet-java
encrypts only the values, and leaves the levels before them as unauthenticated plaintext:

    whole     module(repetition levels | definition levels | values)
    Java      repetition levels | definition levels | module(values)

Both are read. The lengths distinguish them; if they fit both forms, the GCM tag decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.format.enums import PageType

from .modules import (
    CTR_OVERHEAD,
    GCM_OVERHEAD,
    AuthenticationError,
    Buffer,
    Cipher,
    ModuleType,
    module_aad,
    module_length,
)

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import PageHeader


@dataclass(frozen=True, slots=True, repr=False)
class ColumnDecryptor:
    """Decrypts the modules of one column chunk. Safe to share between threads.

    ``data`` is a whole module, its length field included; ``base`` is what offsets in errors count
    from. ``page_ordinal`` counts the data pages of the chunk from 0, without the dictionary, and is
    given for data pages and their headers only.
    """

    cipher: Cipher
    file_aad: bytes
    ctr: bool
    name: str
    label: str | None
    row_group_ordinal: int
    column_ordinal: int
    file: str | None

    def __repr__(self) -> str:
        return f"<ColumnDecryptor of {self.name!r}, row group {self.row_group_ordinal}>"

    def decrypt(
        self, module: ModuleType, data: Buffer, page_ordinal: int | None = None, *, base: int = 0
    ) -> bytes:
        """The plaintext of a module that fills ``data`` exactly."""
        plain, stop = self.decrypt_at(module, data, 0, page_ordinal, base=base)
        if stop != len(data):
            raise FormatError(
                f"bytes after the {module.name} of column {self.name!r}",
                file=self.file,
                offset=base + stop,
                expected=stop,
                got=len(data),
            )
        return plain

    def decrypt_at(
        self,
        module: ModuleType,
        data: Buffer,
        at: int,
        page_ordinal: int | None = None,
        *,
        base: int = 0,
    ) -> tuple[bytes, int]:
        """The plaintext of the module at ``data[at:]``, and where in ``data`` it ends."""
        return self.cipher.decrypt_module(
            data,
            self._aad(module, page_ordinal),
            at=at,
            ctr=self.is_ctr(module),
            base=base,
            file=self.file,
            what=self._name(module, page_ordinal),
        )

    def decrypt_page(
        self, header: PageHeader, body: Buffer, page_ordinal: int | None = None, *, base: int = 0
    ) -> bytes:
        """The body of a page as it was before encryption, levels of v2 pages included.

        ``body`` is the ``compressed_page_size`` bytes after the header. The result is
        shorter; of the header only ``uncompressed_page_size`` still applies to it.
        """
        if header.type == PageType.DICTIONARY_PAGE:
            return self.decrypt(ModuleType.DICTIONARY_PAGE, body, base=base)
        v2 = header.data_page_header_v2
        if header.type != PageType.DATA_PAGE_V2 or v2 is None:
            return self.decrypt(ModuleType.DATA_PAGE, body, page_ordinal, base=base)
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
        if levels <= 0 or self._fills(body, 0):
            try:
                return self.decrypt(ModuleType.DATA_PAGE, body, page_ordinal, base=base)
            except AuthenticationError:
                if levels <= 0 or not self._fills(body, levels):
                    raise
        if levels == len(body):
            # Plaintext levels and no values, so there was nothing to encrypt.
            return bytes(body)
        view = memoryview(body)
        values = self.decrypt(ModuleType.DATA_PAGE, view[levels:], page_ordinal, base=base + levels)
        return bytes(view[:levels]) + values

    def _fills(self, body: Buffer, at: int) -> bool:
        try:
            return at + module_length(body, at, ctr=self.ctr) == len(body)
        except FormatError:
            return False

    def decrypt_page_header(
        self, data: Buffer, at: int, page_ordinal: int, *, may_be_dictionary: bool, base: int = 0
    ) -> tuple[bytes, int, bool]:
        """The bytes of the PageHeader at ``data[at:]``, where its module ends, and whether it is
        the header of a dictionary page.

        ``page_ordinal`` is that of the next data page. Set ``may_be_dictionary`` at the start of a
        chunk: writers do not always say whether there is a dictionary, and its AAD differs.
        """
        if may_be_dictionary:
            try:
                plain, stop = self.decrypt_at(
                    ModuleType.DICTIONARY_PAGE_HEADER, data, at, base=base
                )
            except AuthenticationError:
                pass
            else:
                return plain, stop, True
        what = self._name(ModuleType.DATA_PAGE_HEADER, page_ordinal)
        if may_be_dictionary:
            what = f"{ModuleType.DICTIONARY_PAGE_HEADER.name} or {what}"
        plain, stop = self.cipher.decrypt_module(
            data,
            self._aad(ModuleType.DATA_PAGE_HEADER, page_ordinal),
            at=at,
            base=base,
            file=self.file,
            what=what,
        )
        return plain, stop, False

    def encrypt(self, module: ModuleType, plain: Buffer, page_ordinal: int | None = None) -> bytes:
        """The inverse of ``decrypt``: a whole module, with a new nonce."""
        return self.cipher.encrypt_module(
            plain, self._aad(module, page_ordinal), ctr=self.is_ctr(module)
        )

    def is_ctr(self, module: ModuleType) -> bool:
        """Whether a module is encrypted with CTR."""
        return self.ctr and module.is_page

    def encrypted_length(self, plain_length: int, module: ModuleType) -> int:
        """Bytes of the module for a plaintext of ``plain_length`` bytes."""
        return plain_length + (CTR_OVERHEAD if self.is_ctr(module) else GCM_OVERHEAD)

    def _aad(self, module: ModuleType, page_ordinal: int | None) -> bytes:
        return module_aad(
            self.file_aad,
            module,
            self.row_group_ordinal,
            self.column_ordinal,
            page_ordinal,
            file=self.file,
        )

    def _name(self, module: ModuleType, page_ordinal: int | None) -> str:
        page = "" if page_ordinal is None else f" {page_ordinal}"
        label = "" if self.label is None else f" (key label {self.label!r})"
        return f"{module.name}{page} of column {self.name!r}{label}"
