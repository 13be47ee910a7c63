"""The keys of parquet-testing's encrypted files, and KMS clients like those that wrote files."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.key_material import unwrap_locally, wrap_locally
from skipstone.parquet.encryption.modules import Cipher

if TYPE_CHECKING:
    from pathlib import Path

FOOTER_KEY = b"0123456789012345"
COLUMN_KEYS = {"double_field": b"1234567890123450", "float_field": b"1234567890123451"}
LABELS = {b"kf": FOOTER_KEY, b"kc1": b"1234567890123450", b"kc2": b"1234567890123451"}

FOOTER_KEY_256 = b"01234567890123456789012345678901"
COLUMN_KEYS_256 = {
    name: b"1234567890123456789012345678901" + digit
    for name, digit in (
        ("double_field", b"2"),
        ("float_field", b"3"),
        ("boolean_field", b"4"),
        ("int32_field", b"5"),
        ("ba_field", b"6"),
        ("flba_field", b"7"),
        ("int64_field.list.element", b"8"),
        ("int96_field", b"9"),
    )
}


def decryption_of(path: Path) -> Decryption:
    """What the README of parquet-testing says about a file."""
    large = path.parent.name == "aes256"
    return Decryption(
        footer_key=FOOTER_KEY_256 if large else FOOTER_KEY,
        column_keys=COLUMN_KEYS_256 if large else COLUMN_KEYS,
        aad_prefix=b"tester" if "aad" in path.name else None,
    )


class InMemoryKms:
    """As the KMS of the same name in parquet-java: AES-GCM, the AAD is the identifier's text."""

    def __init__(self, master_keys: dict[str, bytes]) -> None:
        self.master_keys = {name: Cipher(key) for name, key in master_keys.items()}
        self.calls = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        key = self.master_keys[master_key_identifier]
        return wrap_locally(key_bytes, key, master_key_identifier.encode())

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.calls += 1
        key = self.master_keys[master_key_identifier]
        return unwrap_locally(wrapped_key, key, master_key_identifier.encode())


class PlainKms:
    """Hides nothing: its wrapped key is the name and the key in base64."""

    def __init__(self) -> None:
        self.calls = 0

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(f"{master_key_identifier:16}".encode() + key_bytes)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self.calls += 1
        data = base64.b64decode(wrapped_key)
        if data[:16].decode().strip() != master_key_identifier:
            raise PermissionError("another master key")
        return data[16:]
