"""The AAD of a module worked out from its tag, for files whose footer is lost.

The unique part of a file's AAD lies in its footer only. Without it no module authenticates, but to
who has the key a tag tells the AAD, for it is linear in it (NIST SP 800-38D, 6.4 and 7.1):

    tag = E(nonce | 1)  xor  sum of  block[i] * H^(n-i+1)   over n blocks: AAD, ciphertext, lengths
    H   = E(0)                                              * in GF(2^128)

The blocks of the AAD are the only ones that are not known: 128 equations, one for each bit of the
tag, in the bits of the AAD that are to be found. Of 64 bits a solution exists by chance once in
2^64 tries, so that the one found proves the key and the place of the module, as a tag does; the
more bits are sought, the less it proves, and the next module must confirm it.

Nothing is broken by that: who has the key may write any tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from .modules import NONCE_LENGTH, TAG_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ciphers import Cipher
    from .modules import Buffer

__all__ = ["recovered_aad"]

_BLOCK: Final = 16
_FIRST: Final = b"\0\0\0\1"
_REDUCTION: Final = 0xE1 << 120
#: bits that may be sought of the 128 that a tag tells
_MOST_BITS: Final = 120
# Headers are small; of anything longer nothing is asked.
_LONGEST: Final = 1 << 16


def recovered_aad(
    cipher: Cipher, nonce: Buffer, sealed: Buffer, known: Sequence[int | None]
) -> bytes | None:
    """The AAD with which ``sealed`` (ciphertext and tag) authenticates.

    ``known`` has a byte or ``None`` for every byte of it. ``None`` where no AAD does that: another
    key, another length, another place, or damaged.
    """
    sought = [at for at, byte in enumerate(known) if byte is None]
    if len(nonce) != NONCE_LENGTH or not TAG_LENGTH <= len(sealed) <= _LONGEST:
        return None
    if 8 * len(sought) > _MOST_BITS:
        return None
    text = bytes(sealed[:-TAG_LENGTH])
    block = _Cipher(AES(cipher.reveal()), ECB()).encryptor()
    h = int.from_bytes(block.update(bytes(_BLOCK)), "big")
    mask = int.from_bytes(block.update(bytes(nonce) + _FIRST), "big")
    aad = bytes(byte or 0 for byte in known)
    lengths = (8 * len(aad)).to_bytes(8, "big") + (8 * len(text)).to_bytes(8, "big")
    blocks = _blocks(aad) + _blocks(text) + [int.from_bytes(lengths, "big")]
    total = 0
    for each in blocks:
        total = _times(total ^ each, h)
    target = int.from_bytes(sealed[-TAG_LENGTH:], "big") ^ mask ^ total
    # What each bit sought adds to the tag: x^k times a power of H; the next bit is one times x.
    columns: list[int] = []
    powers: dict[int, int] = {}
    for at in sought:
        power = len(blocks) - at // _BLOCK
        if power not in powers:
            powers[power] = _power(h, power)
        value = powers[power]
        for _ in range(8 * (at % _BLOCK)):
            value = _double(value)
        for _ in range(8):
            columns.append(value)
            value = _double(value)
    bits = _solved(columns, target)
    if bits is None:
        return None
    made = bytearray(aad)
    for number, at in enumerate(sought):
        made[at] = sum((bits >> (8 * number + k) & 1) << (7 - k) for k in range(8))
    return bytes(made)


def _blocks(data: bytes) -> list[int]:
    """Padded with zeros."""
    return [
        int.from_bytes(data[at : at + _BLOCK].ljust(_BLOCK, b"\0"), "big")
        for at in range(0, len(data), _BLOCK)
    ]


def _double(value: int) -> int:
    """Times x: the first bit of a block is that of x^0."""
    return (value >> 1) ^ (_REDUCTION if value & 1 else 0)


def _times(a: int, b: int) -> int:
    product = 0
    while a:
        if a >> 127:
            product ^= b
        a = a << 1 & (1 << 128) - 1
        b = _double(b)
    return product


def _power(h: int, exponent: int) -> int:
    made = 1 << 127  # x^0
    while exponent:
        if exponent & 1:
            made = _times(made, h)
        h = _times(h, h)
        exponent >>= 1
    return made


def _solved(columns: Sequence[int], target: int) -> int | None:
    """Which columns have ``target`` as their sum, as bits; ``None`` if none or more than one."""
    pivots: dict[int, tuple[int, int]] = {}
    for number, value in enumerate(columns):
        used = 1 << number
        while value:
            top = value.bit_length()
            if top not in pivots:
                pivots[top] = value, used
                break
            value ^= pivots[top][0]
            used ^= pivots[top][1]
        if not value:
            return None
    found = 0
    while target:
        pivot = pivots.get(target.bit_length())
        if pivot is None:
            return None
        target ^= pivot[0]
        found ^= pivot[1]
    return found
