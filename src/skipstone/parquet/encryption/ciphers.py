"""AES-GCM and AES-CTR over whole modules, with one key of 128, 192 or 256 bits.

Nonces are 12 random bytes per module (the RBG-based construction of NIST SP 800-38D, 8.2.2). If a
module does not authenticate, the cause is unknown: a wrong key, a wrong AAD prefix, a module from
another place and a damaged module cannot be told apart, so all are an ``AuthenticationError``.

Random nonces of 96 bits may repeat. The same publication (8.3) therefore allows a key at most 2^32
invocations, over all files: writers use a ``CountedCipher``, which refuses to go beyond.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from cryptography.hazmat.primitives.constant_time import bytes_eq

from skipstone.errors import FormatError, UnsupportedError

from .modules import LENGTH_SIZE, NONCE_LENGTH, SIGNATURE_LENGTH, Buffer, split_module

KEY_LENGTHS = (16, 24, 32)
#: with one key and random nonces
MAX_INVOCATIONS = 1 << 32
_FIRST_COUNTER = b"\0\0\0\1"
_CHUNK = 1 << 20


class AuthenticationError(FormatError):
    """Bytes that do not authenticate: wrong key or AAD prefix, or damaged or moved."""

    default_hint = "check the key and the AAD prefix; if both are right, the file is damaged"


class Cipher:
    """AES with one key. A repr shows its size and never the key; it does not pickle."""

    __slots__ = ("_aes", "_gcm")

    def __init__(self, key: Buffer) -> None:
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
        a length that cannot be. CTR takes no AAD and never fails on a wrong key.
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
        try:
            return self._gcm.decrypt(nonce, encrypted, aad)
        except InvalidTag:
            # Without its cause: a traceback adds nothing, and might show locals.
            raise AuthenticationError(
                f"{what} does not authenticate", file=file, offset=offset
            ) from None

    def seal(self, plain: Buffer, aad: bytes, nonce: bytes | None = None) -> bytes:
        """Nonce, ciphertext and tag, without a length."""
        nonce = _nonce(nonce)
        return nonce + self._gcm.encrypt(nonce, plain, aad)

    def _ctr(self, nonce: Buffer, data: Buffer) -> bytes:
        # CTR is its own inverse. Its ciphers have state, so each module gets a new one.
        context = _Cipher(self._aes, CTR(bytes(nonce) + _FIRST_COUNTER)).encryptor()
        return context.update(data) + context.finalize()

    # -- signatures --------------------------------------------------------------------------------

    def sign(self, data: Buffer, aad: bytes, *, nonce: bytes | None = None) -> bytes:
        """Nonce and tag of ``data``; the ciphertext is thrown away, chunk by chunk."""
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
        if nonce is None:  # with one, a signature is being verified
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
