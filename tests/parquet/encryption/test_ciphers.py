"""AES over whole modules: round trips, published vectors, and bytes that were touched."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError
from skipstone.parquet.encryption.modules import AuthenticationError, Cipher

KEYS = st.sampled_from([16, 24, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size))


@given(KEYS, st.binary(max_size=300), st.binary(max_size=40), st.booleans())
def test_round_trip(key: bytes, plain: bytes, aad: bytes, ctr: bool) -> None:
    cipher = Cipher(key)
    module = cipher.encrypt_module(plain, aad, ctr=ctr)
    assert len(module) == len(plain) + (16 if ctr else 32)
    assert cipher.decrypt_module(b"x" + module + b"y", aad, at=1, ctr=ctr) == (
        plain,
        1 + len(module),
    )
    assert cipher.bits == 8 * len(key)


def test_gcm_as_nist_publishes_it() -> None:
    # Test case 4 of the GCM specification: AES-128 with additional authenticated data.
    cipher = Cipher(bytes.fromhex("feffe9928665731c6d6a8f9467308308"))
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    aad = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    module = cipher.encrypt_module(plain, aad, nonce=nonce)
    assert module[:16] == (88).to_bytes(4, "little") + nonce
    assert module[16:] == bytes.fromhex(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
        "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
        "5bc94fbc3221a5db94fae95ae7121a47"
    )
    assert cipher.sign(plain, aad, nonce=nonce) == nonce + module[-16:]


def test_ctr_counts_from_one() -> None:
    cipher = Cipher(bytes(range(16)))
    nonce = bytes(range(12))
    module = cipher.encrypt_module(bytes(32), b"", ctr=True, nonce=nonce)
    # The key stream itself: AES of the nonce and 1, then of the nonce and 2.
    from cryptography.hazmat.primitives.ciphers import Cipher as Reference
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import ECB

    block = Reference(AES(bytes(range(16))), ECB()).encryptor()
    stream = block.update(nonce + b"\0\0\0\1" + nonce + b"\0\0\0\2")
    assert module == (44).to_bytes(4, "little") + nonce + stream


@given(KEYS, st.binary(max_size=100), st.data())
def test_a_touched_module_does_not_authenticate(
    key: bytes, plain: bytes, data: st.DataObject
) -> None:
    cipher = Cipher(key)
    module = bytearray(cipher.encrypt_module(plain, b"here"))
    at = data.draw(st.integers(4, len(module) - 1))
    module[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AuthenticationError) as caught:
        cipher.decrypt_module(bytes(module), b"here", base=7, file="f", what="the thing")
    assert str(caught.value).startswith("f: at byte 7: the thing does not authenticate")
    assert caught.value.__cause__ is None


def test_a_moved_module_and_a_wrong_key_do_not_authenticate() -> None:
    cipher = Cipher(b"k" * 16)
    module = cipher.encrypt_module(b"plain", b"here")
    with pytest.raises(AuthenticationError, match="does not authenticate"):
        cipher.decrypt_module(module, b"there")
    with pytest.raises(AuthenticationError, match="key and the AAD prefix"):
        Cipher(b"l" * 16).decrypt_module(module, b"here")


@given(st.binary(max_size=3000), st.data())
def test_signatures(footer: bytes, data: st.DataObject) -> None:
    cipher = Cipher(b"k" * 32)
    signature = cipher.sign(footer, b"aad")
    assert len(signature) == 28
    assert cipher.verify(footer, signature, b"aad")
    assert not cipher.verify(footer, signature, b"other")
    assert not cipher.verify(footer + b"\0", signature, b"aad")
    assert not cipher.verify(footer, signature[:-1], b"aad")
    at = data.draw(st.integers(0, 27))
    touched = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
    assert not cipher.verify(footer, touched, b"aad")


def test_a_signature_over_several_chunks_is_the_tag_of_the_whole() -> None:
    cipher, data = Cipher(b"k" * 16), bytes(range(256)) * (10 << 10)
    nonce = b"n" * 12
    assert (
        cipher.sign(data, b"a", nonce=nonce)[12:]
        == cipher.encrypt_module(data, b"a", nonce=nonce)[-16:]
    )


def test_nonces_are_fresh() -> None:
    cipher = Cipher(b"k" * 16)
    assert len({cipher.encrypt_module(b"", b"")[4:16] for _ in range(100)}) == 100
    with pytest.raises(ValueError, match="12 bytes"):
        cipher.seal(b"", b"", b"short")


@pytest.mark.parametrize("size", [0, 15, 17, 33])
def test_keys_of_other_sizes(size: int) -> None:
    with pytest.raises(ValueError, match=f"not {size}"):
        Cipher(bytes(size))


def test_the_key_does_not_show() -> None:
    key = b"SECRETSECRETSECR"
    cipher = Cipher(key)
    assert repr(cipher) == str(cipher) == "<AES key of 128 bits>"
    assert cipher.reveal() == key
    with pytest.raises(TypeError):
        pickle.dumps(cipher)


@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_decrypt_or_are_a_format_error(data: bytes, ctr: bool) -> None:
    cipher = Cipher(b"k" * 16)
    try:
        plain, stop = cipher.decrypt_module(data, b"", ctr=ctr)
    except FormatError:
        return
    assert ctr
    assert len(plain) == stop - 16
