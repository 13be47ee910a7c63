"""Keys: what a user passes to read encrypted files, and where a file's keys come from.

For the footer and for each column the first available key is used: the key given directly; the
result of the retriever for the key metadata; the KMS client, where the metadata is key material.

The command line reads keys from a JSON file, because arguments are visible to others and stay in a
history:

    {
      "footer_key": "text:0123456789012345",
      "column_keys": {"user.email": "6b65793132333435…", "amount": "base64:a2V5…"},
      "aad_prefix": "text:orders"
    }

All three are optional. A key is hex, or ``base64:`` and base64, or ``text:`` and UTF-8; 16, 24 or
32 bytes. Messages name the entry, never its value.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError, KeyUnavailableError
from skipstone.human import size
from skipstone.predicate.types import column_name, column_path

from .key_material import (
    KeyMaterial,
    KeyReference,
    KmsClient,
    KmsRefusalError,
    key_material_path,
    read_key_material_file,
    read_key_metadata,
    unwrap_dek,
)
from .modules import KEY_LENGTHS, Cipher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_LABEL_LENGTH = 64
#: bytes of a JSON file with keys
_LONGEST = 16_000_000


class Decryption:
    """The keys that open encrypted files. A key is 16, 24 or 32 bytes; all parameters are optional.

    ``footer_key`` opens or verifies the footer, and the columns that are encrypted with it.
    ``column_keys`` are by dotted column path; the key of a group opens all columns in it that have
    none of their own. ``key_retriever`` takes the key metadata of a footer or column (bytes) and
    returns its key; ``None`` or ``LookupError`` where it has none. ``kms`` unwraps key material as
    parquet-java and Arrow write it; unwrapped keys are cached while this object lives.
    ``aad_prefix`` is that of the file, or a function from the file's path to it.

    ``check_footer_integrity``: verify the signature of plaintext footers where the key is
    available. ``allow_plaintext_files``: also read files that are not encrypted at all. Without it
    they are refused: a plaintext file could otherwise replace an encrypted one unnoticed.

    A repr names columns and sizes, never a key. Pickling includes the keys, so protect the pickle.
    """

    __slots__ = (
        "_column_keys",
        "_footer_key",
        "_keks",
        "aad_prefix",
        "allow_plaintext_files",
        "check_footer_integrity",
        "key_retriever",
        "kms",
    )

    def __init__(
        self,
        *,
        footer_key: bytes | None = None,
        column_keys: Mapping[str, bytes] | None = None,
        key_retriever: Callable[[bytes], bytes | None] | None = None,
        kms: KmsClient | None = None,
        aad_prefix: bytes | Callable[[str], bytes | None] | None = None,
        check_footer_integrity: bool = True,
        allow_plaintext_files: bool = False,
    ) -> None:
        self._footer_key = (
            None if footer_key is None else Cipher(check_key(footer_key, "the footer key"))
        )
        self._column_keys = {
            column_path(name): Cipher(check_key(key, f"the key of column {name!r}"))
            for name, key in (column_keys or {}).items()
        }
        check_aad_prefix(aad_prefix)
        self.key_retriever, self.kms = key_retriever, kms
        self.aad_prefix = aad_prefix
        self.check_footer_integrity = check_footer_integrity
        self.allow_plaintext_files = allow_plaintext_files
        self._keks: dict[tuple[str, str], Cipher] = {}

    def __repr__(self) -> str:
        parts = [f"footer_key={self._footer_key!r}"] if self._footer_key else []
        if self._column_keys:
            parts.append(f"column_keys of {', '.join(map(column_name, self._column_keys))}")
        parts += [name for name in ("key_retriever", "kms", "aad_prefix") if getattr(self, name)]
        return f"Decryption({', '.join(parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _from_arguments, (
            {
                "footer_key": self._footer_key and self._footer_key.reveal(),
                "column_keys": {
                    column_name(path): key.reveal() for path, key in self._column_keys.items()
                },
                "key_retriever": self.key_retriever,
                "kms": self.kms,
                "aad_prefix": self.aad_prefix,
                "check_footer_integrity": self.check_footer_integrity,
                "allow_plaintext_files": self.allow_plaintext_files,
            },
        )

    def replaced(self, **arguments: object) -> Decryption:
        """A copy with some arguments replaced."""
        given = self.__reduce__()[1]
        assert isinstance(given, tuple)
        return _from_arguments({**given[0], **arguments})

    @property
    def has_keys(self) -> bool:
        """Whether there are keys, or a source of keys."""
        return bool(self._footer_key or self._column_keys or self.key_retriever or self.kms)

    def prefix_for(self, file: str | None) -> bytes | None:
        """The AAD prefix that the user gives for a file."""
        if callable(self.aad_prefix):
            return self.aad_prefix(file or "")
        return self.aad_prefix

    def key_of_footer(self) -> Cipher | None:
        """The footer key, where it is given directly."""
        return self._footer_key

    def key_of_column(self, path: tuple[str, ...]) -> Cipher | None:
        """The key of a leaf or of the nearest group around it, where one is given directly."""
        for length in range(len(path), 0, -1):
            key = self._column_keys.get(path[:length])
            if key is not None:
                return key
        return None

    def unwrap(self, material: KeyMaterial, kms: KmsClient) -> Cipher:
        """The data key in key material."""
        return unwrap_dek(material, kms, self._keks)


def _from_arguments(arguments: dict[str, object]) -> Decryption:
    return Decryption(**arguments)  # type: ignore[arg-type]


def check_key(key: object, name: str) -> bytes:
    """The bytes of an AES key; ``TypeError`` or ``ValueError`` that calls it ``name``."""
    if not isinstance(key, bytes | bytearray | memoryview):
        raise TypeError(f"{name} is bytes, not {type(key).__name__}")
    if len(key) not in KEY_LENGTHS:
        raise ValueError(f"{name} has {len(key)} bytes: an AES key has 16, 24 or 32")
    return bytes(key)


def check_aad_prefix(prefix: object) -> None:
    """``TypeError`` unless it is bytes, a function or ``None``."""
    if prefix is not None and not isinstance(prefix, bytes) and not callable(prefix):
        raise TypeError(f"aad_prefix is bytes or a function, not {type(prefix).__name__}")


def key_label(key_metadata: bytes | None) -> str | None:
    """The name of a key in messages, without metadata that may be secret.

    Key material has the name of its master key. Other metadata is its own name if it is short,
    printable text that does not look like JSON; otherwise its length is. ``None`` without metadata.
    """
    if not key_metadata:
        return None
    try:
        found = read_key_metadata(key_metadata)
    except FormatError:
        return "damaged key material"
    if isinstance(found, KeyMaterial):
        return found.master_key_id
    if isinstance(found, KeyReference):
        return found.key_reference
    try:
        text = key_metadata.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and 0 < len(text) <= _LABEL_LENGTH and not text.startswith(("{", "[")):
        return text
    return f"{len(key_metadata)} bytes of key metadata"


class FileKeys:
    """The keys of one file. Each is looked up once; a missing key stays missing."""

    __slots__ = ("_entries", "_found", "decryption", "file", "load_key_material")

    def __init__(
        self,
        decryption: Decryption,
        file: str | None,
        load_key_material: Callable[[], bytes] | None,
    ) -> None:
        self.decryption, self.file = decryption, file
        self.load_key_material = load_key_material
        self._entries: dict[str, KeyMaterial] | None = None
        self._found: dict[tuple[tuple[str, ...], bytes | None], Cipher | KeyUnavailableError] = {}

    def key(self, path: tuple[str, ...], key_metadata: bytes | None) -> Cipher:
        """The key of a column with one of its own, or of the footer, whose ``path`` is ().

        Raises ``KeyUnavailableError``; ``FormatError`` for damaged key material.
        """
        name = (path, key_metadata)
        found = self._found.get(name)
        if found is None:
            try:
                found = self._find(path, key_metadata)
            except KeyUnavailableError as error:
                found = error
            self._found[name] = found
        if isinstance(found, KeyUnavailableError):
            raise found.with_traceback(None)
        return found

    def _find(self, path: tuple[str, ...], key_metadata: bytes | None) -> Cipher:
        decryption = self.decryption
        given = decryption.key_of_column(path) if path else decryption.key_of_footer()
        if given is not None:
            return given
        if decryption.key_retriever is not None and key_metadata:
            key = self._retrieve(decryption.key_retriever, path, key_metadata)
            if key is not None:
                return key
        material = read_key_metadata(key_metadata) if key_metadata else None
        if material is None or decryption.kms is None:
            raise self._missing(path, key_metadata)
        if isinstance(material, KeyReference):
            material = self._external(material.key_reference)
        try:
            return decryption.unwrap(material, decryption.kms)
        except KmsRefusalError as error:
            # One client has the keys of many files and columns.
            raise KeyUnavailableError(
                f"{self._whose(path, key_metadata)}: {error.message}", hint=error.hint
            ) from error.__cause__

    def _retrieve(
        self, retriever: Callable[[bytes], bytes | None], path: tuple[str, ...], metadata: bytes
    ) -> Cipher | None:
        try:
            key = retriever(metadata)
        except LookupError:
            return None
        except Exception as error:
            raise KeyUnavailableError(
                f"{self._whose(path, metadata)}: the key retriever failed: {type(error).__name__}",
                hint="the key retriever returns a key, or None where it has none",
            ) from error
        if key is None:
            return None
        try:
            name = f"what the key retriever returns for {self._whose(path, metadata)}"
            return Cipher(check_key(key, name))
        except (TypeError, ValueError) as error:
            raise KeyUnavailableError(
                str(error), hint="the key retriever returns 16, 24 or 32 bytes"
            ) from None

    def _external(self, reference: str) -> KeyMaterial:
        if self._entries is None:
            name = key_material_path(self.file or "").rpartition("/")[2]
            if self.load_key_material is None:
                raise KeyUnavailableError(f"the key material lies outside the file, in {name}")
            try:
                data = self.load_key_material()
            except (OSError, LookupError) as error:
                raise KeyUnavailableError(
                    f"the key material file {name} cannot be read: {type(error).__name__}",
                    hint="keep it in the directory of its data file",
                ) from error
            self._entries = read_key_material_file(data)
        if reference not in self._entries:
            raise KeyUnavailableError(
                f"the key material file has no entry {reference!r}",
                hint="it may belong to another file, or its rotation was interrupted",
            )
        return self._entries[reference]

    def _missing(self, path: tuple[str, ...], key_metadata: bytes | None) -> KeyUnavailableError:
        label = key_label(key_metadata)
        where = "footer_key" if not path else f"column_keys[{column_name(path)!r}]"
        option = "--footer-key" if not path else f"--column-key {column_name(path)}=SOURCE"
        hint = f"pass it as {where}, on the command line {option}"
        if label is not None:
            hint += f", or a key_retriever that knows {label!r}"
        return KeyUnavailableError(f"{self._whose(path, key_metadata)} was not given", hint=hint)

    def _whose(self, path: tuple[str, ...], key_metadata: bytes | None) -> str:
        label = key_label(key_metadata)
        named = f" (label {label!r})" if label is not None else ""
        of = f"column {column_name(path)!r}" if path else "the footer"
        file = f"{self.file}: " if self.file else ""
        return f"{file}the key of {of}{named}"


_ENTRIES = {"footer_key", "column_keys", "aad_prefix"}


def decryption_from_file(file: str) -> Decryption:
    """The keys in a JSON file, which may be a device without an end."""
    with Path(file).open("rb") as opened:
        text = opened.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise _wrong(f"it has more than {size(_LONGEST)}", file)
    return decryption_from_json(text, file=file)


def decryption_from_json(text: str | bytes, *, file: str | None = None) -> Decryption:
    """The keys in a JSON document (see the module); ``FormatError`` for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        # The parser's error would quote the document.
        raise _wrong("not a JSON document", file) from None
    if not isinstance(found, dict) or not set(found) <= _ENTRIES:
        raise _wrong(f"an object of {', '.join(sorted(_ENTRIES))} is expected", file)
    columns = found.get("column_keys", {})
    if not isinstance(columns, dict):
        raise _wrong("column_keys is an object of column paths", file)
    try:
        return Decryption(
            footer_key=_bytes(found, "footer_key", file),
            column_keys={
                name: _required(columns, name, f"the key of column {name!r}", file)
                for name in columns
            },
            aad_prefix=_bytes(found, "aad_prefix", file),
            allow_plaintext_files=True,
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise _wrong(str(error), file) from None


def _bytes(found: dict[str, Any], name: str, file: str | None) -> bytes | None:
    return None if found.get(name) is None else _required(found, name, name, file)


def _required(found: dict[str, Any], name: str, shown: str, file: str | None) -> bytes:
    value = found[name]
    if not isinstance(value, str):
        raise _wrong(f"{shown} is not a string", file)
    return key_from_text(value, shown, file)


def key_from_text(value: str, shown: str, file: str | None = None) -> bytes:
    """Bytes in hex, or after ``base64:`` or ``text:``; ``shown`` is what messages call them."""
    kind, colon, rest = value.partition(":")
    try:
        if colon and kind == "text":
            return rest.encode()
        if colon and kind == "base64":
            return base64.b64decode(rest, validate=True)
        return bytes.fromhex(value)
    except (ValueError, binascii.Error):
        raise _wrong(f"{shown} is neither hex, nor base64:…, nor text:…", file) from None


def _wrong(text: str, file: str | None) -> FormatError:
    return FormatError(
        f"key file: {text}",
        file=file,
        hint='{"footer_key": "hex, base64:… or text:…", "column_keys": {"column": "…"}}',
    )
