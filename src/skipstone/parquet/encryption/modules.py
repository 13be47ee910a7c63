"""Modules: the separately encrypted parts of a file, their layout, and what authenticates them.

    AES-GCM   length u32 LE | nonce 12 | ciphertext | tag 16      length = 28 + ciphertext
    AES-CTR   length u32 LE | nonce 12 | ciphertext               length = 12 + ciphertext
    signature                 nonce 12 | tag 16                   of a plaintext footer

A ciphertext is as long as its plaintext. AES_GCM_V1 encrypts every module with GCM;
AES_GCM_CTR_V1 encrypts pages (not their headers) with CTR, whose IV is the nonce and the counter
00 00 00 01.

    AAD = aad_prefix | aad_file_unique | type u8 | row group i16 LE | column i16 LE | page i16 LE

    module                    type  row group, column  page
    Footer                      0         -             -
    ColumnMetaData              1        yes            -
    Data Page                   2        yes           yes
    Dictionary Page             3        yes            -
    Data PageHeader             4        yes           yes
    Dictionary PageHeader       5        yes            -
    ColumnIndex                 6        yes            -
    OffsetIndex                 7        yes            -
    BloomFilter Header          8        yes            -
    BloomFilter Bitset          9        yes            -

The AAD binds a module to its place: a module moved within a file or from another file does not
authenticate. A page's ordinal counts the data pages of its chunk; the dictionary is not one of
them. Ordinals are 16 bits, so an encrypted file has at most 32,768 row groups, columns, and data
pages per chunk. CTR authenticates nothing: only its CRC or its encoding may show that a page is
damaged. Plaintexts may be padded: parquet-java rounds page indexes and Bloom filter headers up to
100 bytes, so a Thrift struct need not fill its module. Source: Encryption.md of parquet-format,
sections 4.4 and 5.1.

Keys are of 128, 192 or 256 bits. Nonces are 12 random bytes per module (the RBG-based construction
of NIST SP 800-38D, 8.2.2). If a module does not authenticate, the cause is unknown: a wrong key, a
wrong AAD prefix, a module from another place and a damaged module cannot be distinguished, so all
are an ``AuthenticationError``. Random nonces of 96 bits may repeat. The same publication (8.3)
therefore allows a key at most 2^32 invocations, over all files: writers use a ``CountedCipher``,
which refuses to go beyond.
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from skipstone.errors import FormatError, UnsupportedError

Buffer: TypeAlias = bytes | bytearray | memoryview

LENGTH_SIZE = 4
NONCE_LENGTH = 12
TAG_LENGTH = 16
GCM_OVERHEAD = LENGTH_SIZE + NONCE_LENGTH + TAG_LENGTH
CTR_OVERHEAD = LENGTH_SIZE + NONCE_LENGTH
SIGNATURE_LENGTH = NONCE_LENGTH + TAG_LENGTH
MAX_ORDINAL = 0x7FFF
# Sizes of pages, indexes and filters are i32, and OpenSSL takes no more in one call.
_LONGEST = 0x7FFF_FFFF
KEY_LENGTHS = (16, 24, 32)
#: with one key and random nonces
MAX_INVOCATIONS = 1 << 32
_FIRST_COUNTER = b"\0\0\0\1"
_CHUNK = 1 << 20


class ModuleType(IntEnum):
    """The types of modules, numbered as in the AAD."""

    FOOTER = 0
    COLUMN_META_DATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9

    @property
    def is_page(self) -> bool:
        """Whether AES_GCM_CTR_V1 encrypts it with CTR."""
        return self in (ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE)

    @property
    def has_page_ordinal(self) -> bool:
        """Whether its AAD ends with the ordinal of the data page."""
        return self in (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER)


class ModuleParts(NamedTuple):
    """Views into a module; ``encrypted`` is the ciphertext, with the tag where there is one."""

    nonce: memoryview
    encrypted: memoryview
    stop: int


def module_aad(
    file_aad: bytes,
    module: ModuleType,
    row_group: int | None = None,
    column: int | None = None,
    page: int | None = None,
    *,
    file: str | None = None,
) -> bytes:
    """The AAD of a module; ``file_aad`` is the prefix and the file's unique part.

    Raises ``FormatError`` for an ordinal outside 0 to 32,767: no writer may encrypt such a module.
    ``ValueError`` where an ordinal that the module needs is missing, or one too many is given.
    """
    needed = [] if module == ModuleType.FOOTER else [("row group", row_group), ("column", column)]
    if module.has_page_ordinal:
        needed.append(("page", page))
    given = sum(ordinal is not None for ordinal in (row_group, column, page))
    if given != len(needed) or any(ordinal is None for _, ordinal in needed):
        raise ValueError(f"the AAD of {module.name} takes {[name for name, _ in needed]}")
    suffix = bytes([module])
    for name, ordinal in needed:
        if ordinal is None or not 0 <= ordinal <= MAX_ORDINAL:
            raise FormatError(
                f"the ordinal of a {name} of an encrypted file",
                file=file,
                expected=f"0 to {MAX_ORDINAL}",
                got=ordinal,
            )
        suffix += ordinal.to_bytes(2, "little")
    return file_aad + suffix


def module_length(
    data: Buffer, at: int = 0, *, ctr: bool = False, base: int = 0, file: str | None = None
) -> int:
    """How many bytes the module at ``data[at:]`` takes, its length field included.

    Only the length field has to be in ``data``, so a reader may fetch the rest after it.
    ``base`` is what offsets in errors count from, ``file`` the file that they name.
    """
    view = memoryview(data)
    if not 0 <= at <= len(view) - LENGTH_SIZE:
        raise FormatError(
            "ends before the length of an encrypted module",
            file=file,
            offset=base + at,
            expected=LENGTH_SIZE,
            got=max(0, len(view) - at),
        )
    length = int.from_bytes(view[at : at + LENGTH_SIZE], "little")
    least = (CTR_OVERHEAD if ctr else GCM_OVERHEAD) - LENGTH_SIZE
    if not least <= length <= _LONGEST - LENGTH_SIZE:
        raise FormatError(
            "the length of an encrypted module",
            file=file,
            offset=base + at,
            expected=f"{least} to {_LONGEST - LENGTH_SIZE}",
            got=length,
        )
    return LENGTH_SIZE + length


def split_module(
    data: Buffer, at: int = 0, *, ctr: bool = False, base: int = 0, file: str | None = None
) -> ModuleParts:
    """The parts of the module at ``data[at:]``, and where it ends."""
    view = memoryview(data)
    length = module_length(view, at, ctr=ctr, base=base, file=file)
    if length > len(view) - at:
        raise FormatError(
            "an encrypted module ends too early",
            file=file,
            offset=base + at,
            expected=f"{length} bytes",
            got=len(view) - at,
        )
    text = at + LENGTH_SIZE + NONCE_LENGTH
    stop = at + length
    return ModuleParts(view[at + LENGTH_SIZE : text], view[text:stop], stop)


# -- AES -------------------------------------------------------------------------------------------


class AuthenticationError(FormatError):
    """Bytes that do not authenticate: wrong key or AAD prefix, or damaged or moved."""

    default_hint = "check the key and the AAD prefix; if both are right, the file is damaged"


class Cipher:
    """AES with one key. A repr shows its size and never the key; it does not pickle."""

    __slots__ = ("_aes", "_gcm")

    def __init__(self, key: Buffer) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        key = bytes(key)
        if len(key) not in KEY_LENGTHS:
            raise ValueError(f"an AES key has 16, 24 or 32 bytes, not {len(key)}")
        self._aes, self._gcm = AES(key), AESGCM(key)

    @property
    def bits(self) -> int:
        """128, 192 or 256."""
        return self._aes.key_size

    def __repr__(self) -> str:
        return f"<AES key of {self.bits} bits>"

    def reveal(self) -> bytes:
        """The key itself."""
        return bytes(self._aes.key)

    # -- modules -----------------------------------------------------------------------------------

    def decrypt_module(
        self,
        data: Buffer,
        aad: bytes,
        *,
        at: int = 0,
        ctr: bool = False,
        base: int = 0,
        file: str | None = None,
        what: str = "an encrypted module",
    ) -> tuple[bytes, int]:
        """Plaintext of the module at ``data[at:]``, and where it ends.

        ``what`` names the module in errors. Raises ``AuthenticationError``, or ``FormatError`` for
        an impossible length. CTR takes no AAD and never fails on a wrong key.
        """
        nonce, encrypted, stop = split_module(data, at, ctr=ctr, base=base, file=file)
        if ctr:
            return self._ctr(nonce, encrypted), stop
        return self.open(nonce, encrypted, aad, offset=base + at, file=file, what=what), stop

    def encrypt_module(
        self, plain: Buffer, aad: bytes, *, ctr: bool = False, nonce: bytes | None = None
    ) -> bytes:
        """A whole module. ``nonce`` is random; pass one only to repeat known bytes in a test."""
        nonce = _nonce(nonce)
        text = self._ctr(nonce, plain) if ctr else self._gcm.encrypt(nonce, plain, aad)
        length = NONCE_LENGTH + len(text)
        return length.to_bytes(LENGTH_SIZE, "little") + nonce + text

    # -- the pieces --------------------------------------------------------------------------------

    def open(
        self,
        nonce: Buffer,
        encrypted: Buffer,
        aad: bytes,
        *,
        offset: int | None = None,
        file: str | None = None,
        what: str = "an encrypted module",
    ) -> bytes:
        """Plaintext of ciphertext and tag."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._gcm.decrypt(nonce, encrypted, aad)
        except InvalidTag:
            # No chained cause: a traceback adds nothing, and might show local variables.
            raise AuthenticationError(
                f"{what} does not authenticate", file=file, offset=offset
            ) from None

    def seal(self, plain: Buffer, aad: bytes, nonce: bytes | None = None) -> bytes:
        """Nonce, ciphertext and tag, without a length."""
        nonce = _nonce(nonce)
        return nonce + self._gcm.encrypt(nonce, plain, aad)

    def _ctr(self, nonce: Buffer, data: Buffer) -> bytes:
        # CTR is its own inverse. Its ciphers have state, so each module gets a new one.
        from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
        from cryptography.hazmat.primitives.ciphers.modes import CTR

        context = _Cipher(self._aes, CTR(bytes(nonce) + _FIRST_COUNTER)).encryptor()
        return context.update(data) + context.finalize()

    # -- signatures --------------------------------------------------------------------------------

    def sign(self, data: Buffer, aad: bytes, *, nonce: bytes | None = None) -> bytes:
        """Nonce and tag of ``data``; the ciphertext is thrown away, chunk by chunk."""
        from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        nonce = _nonce(nonce)
        context = _Cipher(self._aes, GCM(nonce)).encryptor()
        context.authenticate_additional_data(aad)
        view = memoryview(data)
        for start in range(0, len(view), _CHUNK):
            context.update(view[start : start + _CHUNK])
        context.finalize()
        return nonce + context.tag

    def verify(self, data: Buffer, signature: Buffer, aad: bytes) -> bool:
        """Whether ``signature`` (28 bytes) is that of ``data``."""
        from cryptography.hazmat.primitives.constant_time import bytes_eq

        signature = bytes(signature)
        if len(signature) != SIGNATURE_LENGTH:
            return False
        return bytes_eq(self.sign(data, aad, nonce=signature[:NONCE_LENGTH]), signature)


class CountedCipher(Cipher):
    """A cipher that counts the modules it has encrypted, ``invocations``, and stops at the limit.

    Do not share it between threads: two might see the same count.
    """

    __slots__ = ("invocations",)

    def __init__(self, key: Buffer, invocations: int = 0) -> None:
        super().__init__(key)
        if invocations < 0:
            raise ValueError(f"{invocations} invocations of a key")
        self.invocations = invocations

    def encrypt_module(
        self, plain: Buffer, aad: bytes, *, ctr: bool = False, nonce: bytes | None = None
    ) -> bytes:
        self._count()
        return super().encrypt_module(plain, aad, ctr=ctr, nonce=nonce)

    def seal(self, plain: Buffer, aad: bytes, nonce: bytes | None = None) -> bytes:
        self._count()
        return super().seal(plain, aad, nonce)

    def sign(self, data: Buffer, aad: bytes, *, nonce: bytes | None = None) -> bytes:
        if nonce is None:  # a given nonce means that a signature is verified
            self._count()
        return super().sign(data, aad, nonce=nonce)

    def _count(self) -> None:
        if self.invocations >= MAX_INVOCATIONS:
            raise UnsupportedError(
                f"a key has encrypted {self.invocations:,} modules, and may encrypt no more",
                hint="continue with another key: beyond 2^32 a random nonce may repeat",
            )
        self.invocations += 1


def _nonce(nonce: bytes | None) -> bytes:
    if nonce is None:
        return os.urandom(NONCE_LENGTH)
    if len(nonce) != NONCE_LENGTH:
        raise ValueError(f"a nonce has {NONCE_LENGTH} bytes, not {len(nonce)}")
    return nonce
