"""Key material: how key tools of parquet-java and Arrow store a data key that a KMS has wrapped.

    DEK   data key: encrypts the modules of a footer or a column; random, one per file and column
    KEK   key encryption key: wraps DEKs locally; random, one per writer and master key
    MEK   master key: lives in the KMS, which wraps and unwraps by its identifier

    single wrapping   wrappedDEK = KMS(MEK, DEK)
    double wrapping   wrappedKEK = KMS(MEK, KEK)
                      wrappedDEK = base64(nonce 12 | AES-GCM(KEK, DEK, AAD = KEK id) | tag 16)

The key_metadata of a footer or a column is JSON, of ``keyMaterialType`` PKMT1:

    internalStorage true    the material itself
    internalStorage false   {"keyReference": "footerKey" | "columnKey0" …}: the material is in the
                            file _KEY_MATERIAL_FOR_<name of the data file>.json in the directory of
                            the data file, an object of reference -> material as JSON text

    material  isFooterKey, masterKeyID, wrappedDEK, doubleWrapping; with it keyEncryptionKeyID
              (base64) and wrappedKEK; of a footer key also kmsInstanceID and kmsInstanceURL

A wrapped key is text in the KMS's own format. Source: KeyMaterial, KeyMetadata and KeyToolkit of
parquet-java, checked against files that parquet-java and Arrow wrote.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError

from .modules import KEY_LENGTHS, NONCE_LENGTH, TAG_LENGTH, AuthenticationError, Cipher

if TYPE_CHECKING:
    from collections.abc import MutableMapping


MATERIAL_TYPE = "PKMT1"
# Real material is below 1 kB; a file of it has one entry per encrypted column.
_MAX_METADATA = 1 << 20
_KEK_ID_LENGTH = 16


class KmsClient(Protocol):
    """A user's key management service. ``pyarrow.parquet.encryption.KmsClient`` has this shape."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str | bytes:
        """``key_bytes`` encrypted with a master key, as text. Only writing needs it."""

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """The key in ``wrapped_key``. Any exception means that it is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReference:
    """Names an entry of the key material file."""

    key_reference: str

    def to_json(self) -> bytes:
        """The bytes of ``key_metadata``."""
        return _dump(
            {
                "keyMaterialType": MATERIAL_TYPE,
                "internalStorage": False,
                "keyReference": self.key_reference,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """A wrapped data key; see the module."""

    master_key_id: str
    wrapped_dek: str = field(repr=False)
    is_footer_key: bool = False
    key_encryption_key_id: str | None = None
    wrapped_kek: str | None = field(default=None, repr=False)
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None

    @property
    def double_wrapping(self) -> bool:
        """Whether a KEK wraps the data key."""
        return self.wrapped_kek is not None

    def to_json(self, *, internal_storage: bool | None = True) -> bytes:
        """The bytes of ``key_metadata``, or with ``internal_storage=None`` of an entry in a key
        material file, which lacks that field."""
        value: dict[str, Any] = {"keyMaterialType": MATERIAL_TYPE}
        if internal_storage is not None:
            value["internalStorage"] = internal_storage
        value["isFooterKey"] = self.is_footer_key
        if self.is_footer_key:
            value["kmsInstanceID"] = self.kms_instance_id or "DEFAULT"
            value["kmsInstanceURL"] = self.kms_instance_url or "DEFAULT"
        value |= {
            "masterKeyID": self.master_key_id,
            "wrappedDEK": self.wrapped_dek,
            "doubleWrapping": self.double_wrapping,
        }
        if self.double_wrapping:
            value["keyEncryptionKeyID"] = self.key_encryption_key_id
            value["wrappedKEK"] = self.wrapped_kek
        return _dump(value)


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(data: bytes | str, what: str) -> Any:
    if len(data) > _MAX_METADATA:
        raise FormatError(f"{what} is too long", expected=f"at most {_MAX_METADATA}", got=len(data))
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError(f"{what} is not JSON") from None


def read_key_metadata(data: bytes) -> KeyMaterial | KeyReference | None:
    """Key metadata as key tools write it, or ``None`` for other metadata.

    Raises ``FormatError`` for damaged metadata of type PKMT1.
    """
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        value = _load(data, "key metadata")
    except FormatError:
        return None
    if not isinstance(value, dict) or value.get("keyMaterialType") != MATERIAL_TYPE:
        return None
    if value.get("internalStorage") is False:
        return KeyReference(key_reference=_text(value, "keyReference"))
    return _material(value)


def _material(value: dict[str, Any]) -> KeyMaterial:
    double = value.get("doubleWrapping")
    if not isinstance(double, bool):
        raise FormatError("key material: doubleWrapping is neither true nor false")
    footer = value.get("isFooterKey") is True
    return KeyMaterial(
        master_key_id=_text(value, "masterKeyID"),
        wrapped_dek=_text(value, "wrappedDEK"),
        is_footer_key=footer,
        key_encryption_key_id=_text(value, "keyEncryptionKeyID") if double else None,
        wrapped_kek=_text(value, "wrappedKEK") if double else None,
        kms_instance_id=_text(value, "kmsInstanceID") if footer else None,
        kms_instance_url=_text(value, "kmsInstanceURL") if footer else None,
    )


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise FormatError(f"key material: {name} is missing or not text")
    return found


# -- the key material file -------------------------------------------------------------------------


def key_material_path(path: str) -> str:
    """The path of the external key material of the data file at ``path``."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}_KEY_MATERIAL_FOR_{name}.json"


def read_key_material_file(data: bytes) -> dict[str, KeyMaterial]:
    """The key material by key reference."""
    value = _load(data, "the key material file")
    if not isinstance(value, dict):
        raise FormatError("the key material file is not a JSON object")
    found = {}
    for reference, text in value.items():
        if not isinstance(text, str):
            raise FormatError(f"key material of {reference!r} is not text")
        entry = _load(text, f"key material of {reference!r}")
        if not isinstance(entry, dict) or entry.get("keyMaterialType") != MATERIAL_TYPE:
            raise FormatError(f"key material of {reference!r} is not {MATERIAL_TYPE}")
        found[reference] = _material(entry)
    return found


def write_key_material_file(entries: dict[str, KeyMaterial]) -> bytes:
    """The inverse of ``read_key_material_file``."""
    return _dump(
        {name: entry.to_json(internal_storage=None).decode() for name, entry in entries.items()}
    )


# -- wrapping --------------------------------------------------------------------------------------


def wrap_locally(key: bytes, kek: Cipher, aad: bytes) -> str:
    """``key`` under ``kek``: base64 of nonce, ciphertext and tag."""
    return base64.b64encode(kek.seal(key, aad)).decode()


def unwrap_locally(wrapped: str, kek: Cipher, aad: bytes) -> bytes:
    """The inverse of ``wrap_locally``. Raises ``AuthenticationError`` or ``FormatError``."""
    data = _unbase64(wrapped, "a wrapped key")
    if len(data) - NONCE_LENGTH - TAG_LENGTH not in KEY_LENGTHS:
        raise FormatError("the length of a wrapped key", expected="44, 52 or 60", got=len(data))
    return kek.open(data[:NONCE_LENGTH], data[NONCE_LENGTH:], aad, what="a wrapped key")


def _unbase64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{what} is not base64") from None


class KmsRefusalError(KeyUnavailableError):
    """A KMS did not return a key. The message does not say of which file and column."""


def unwrap_dek(
    material: KeyMaterial, kms: KmsClient, keks: MutableMapping[tuple[str, str], Cipher]
) -> Cipher:
    """The data key of ``material``; ``keks`` caches unwrapped KEKs by master key and wrapped KEK.

    Raises ``KeyUnavailableError`` where the KMS refuses or does not return a key.
    """
    label = material.master_key_id
    if material.wrapped_kek is None:
        return _unwrap(kms, material.wrapped_dek, label)
    # The cache key has the wrapped KEK: an identifier alone could belong to another file's KEK.
    name = (label, material.wrapped_kek)
    kek = keks.get(name)
    if kek is None:
        kek = keks[name] = _unwrap(kms, material.wrapped_kek, label)
    aad = _unbase64(material.key_encryption_key_id or "", "keyEncryptionKeyID")
    try:
        return Cipher(unwrap_locally(material.wrapped_dek, kek, aad))
    except AuthenticationError:
        keks.pop(name, None)
        raise AuthenticationError(
            f"the data key wrapped under master key {label!r} does not authenticate"
        ) from None


def _unwrap(kms: KmsClient, wrapped: str, master_key_id: str) -> Cipher:
    try:
        key: object = kms.unwrap_key(wrapped, master_key_id)
    except KeyUnavailableError:
        raise  # the message of our own key sources names the missing key
    except Exception as error:
        # The KMS's own error is chained, but does not appear in the message.
        raise KmsRefusalError(
            f"the KMS client did not unwrap a key of master key {master_key_id!r}: "
            f"{type(error).__name__}",
            hint=f"the KMS needs master key {master_key_id!r}, and permission to use it",
        ) from error
    if not isinstance(key, bytes | bytearray | memoryview) or len(key) not in KEY_LENGTHS:
        raise KmsRefusalError(
            f"the KMS client returned no AES key for master key {master_key_id!r}",
            hint="unwrap_key returns 16, 24 or 32 bytes",
        )
    return Cipher(key)


def wrap_dek(
    key: bytes,
    master_key_id: str,
    kms: KmsClient,
    *,
    double_wrapping: bool = True,
    is_footer_key: bool = False,
    kms_instance_id: str | None = None,
    kms_instance_url: str | None = None,
) -> KeyMaterial:
    """Material for a data key, with a fresh KEK where it is wrapped twice.

    Raises ``KeyUnavailableError`` where the KMS wraps no key.
    """
    kek_id = wrapped_kek = None
    if double_wrapping:
        kek, identifier = os.urandom(16), os.urandom(_KEK_ID_LENGTH)
        kek_id = base64.b64encode(identifier).decode()
        wrapped_kek = _wrap(kms, kek, master_key_id)
        wrapped_dek = wrap_locally(key, Cipher(kek), identifier)
    else:
        wrapped_dek = _wrap(kms, key, master_key_id)
    return KeyMaterial(
        master_key_id=master_key_id,
        wrapped_dek=wrapped_dek,
        is_footer_key=is_footer_key,
        key_encryption_key_id=kek_id,
        wrapped_kek=wrapped_kek,
        kms_instance_id=kms_instance_id if is_footer_key else None,
        kms_instance_url=kms_instance_url if is_footer_key else None,
    )


def _wrap(kms: KmsClient, key: bytes, master_key_id: str) -> str:
    try:
        wrapped = kms.wrap_key(key, master_key_id)
        return wrapped if isinstance(wrapped, str) else bytes(wrapped).decode("ascii")
    except KeyUnavailableError:
        raise  # the message of our own key sources names the missing key
    except Exception as error:
        # No chained cause: the error of a KMS may contain the key that it was given.
        raise KmsRefusalError(
            f"the KMS client did not wrap a key with master key {master_key_id!r}: "
            f"{type(error).__name__}",
            hint=f"the KMS needs master key {master_key_id!r}, and permission to use it",
        ) from None
