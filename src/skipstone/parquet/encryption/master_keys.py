"""Master keys by their labels: from a mapping, a callback, or a KMS; and how Arrow takes them.

A label and its key wrap a data key as ``KeyToolkit.encryptKeyLocally`` of parquet-java does:
``base64(nonce 12 | AES-GCM(key, data key, AAD = label) | tag 16)``. A KMS wraps it by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .key_material import KmsClient
    from .modules import Cipher

    KeySource: TypeAlias = (
        "Mapping[str, bytes] | Callable[[str], bytes | None] | KmsClient | LabelledKeys"
    )


class LabelledKeys:
    """Keys of 16, 24 or 32 bytes by label; itself a ``KmsClient``, for any call that takes one.

    ``source`` is a mapping from labels to keys, a function from a label to its key (``None`` or
    ``LookupError`` where it has none), or a KMS client.

    A repr names labels, never a key. Pickling includes the keys of a mapping, so protect the
    pickle. A function is pickled by its name.
    """

    __slots__ = ("_ciphers", "_source")

    def __init__(self, source: KeySource) -> None:
        from .decryption import check_key
        from .modules import Cipher

        if isinstance(source, LabelledKeys):
            source = source._source
        self._source: Any = source
        self._ciphers: dict[str, Cipher] = {}
        if hasattr(source, "unwrap_key"):
            return
        if hasattr(source, "items"):
            given = cast("Mapping[str, bytes]", source)
            self._source = None
            self._ciphers = {
                label: Cipher(check_key(key, f"the key labelled {label!r}"))
                for label, key in given.items()
            }
        elif not callable(source):
            raise TypeError(
                f"keys are a mapping by label, a function or a KMS, not {type(source).__name__}"
            )

    def __repr__(self) -> str:
        if self._source is None:
            return f"LabelledKeys({', '.join(map(repr, self._ciphers))})"
        return f"LabelledKeys(a {'KMS' if self._is_kms else 'function'})"

    def __reduce__(self) -> tuple[object, ...]:
        if self._source is not None:
            return LabelledKeys, (self._source,)
        return LabelledKeys, ({label: key.reveal() for label, key in self._ciphers.items()},)

    @property
    def _is_kms(self) -> bool:
        return hasattr(self._source, "unwrap_key")

    def require(self, label: str) -> None:
        """Raises ``KeyUnavailableError`` where nothing can be encrypted under ``label``."""
        self.wrap_key(bytes(16), label)

    def has(self, label: str) -> bool:
        """Whether something can be encrypted under ``label``."""
        try:
            self.require(label)
        except KeyUnavailableError:
            return False
        return True

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """A data key encrypted under a label. Raises ``KeyUnavailableError``."""
        from .key_material import wrap_locally

        if not self._is_kms:
            label = master_key_identifier
            return wrap_locally(bytes(key_bytes), self._cipher(label), label.encode())
        try:
            wrapped = self._source.wrap_key(key_bytes, master_key_identifier)
        except Exception as error:
            # Without its cause: the error of a KMS may contain the key that it was given.
            raise _failed("wrap", master_key_identifier, error) from None
        return wrapped if isinstance(wrapped, str) else bytes(wrapped).decode("ascii")

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """The unwrapped data key. Raises ``KeyUnavailableError``, also for a wrong key."""
        from .key_material import unwrap_locally
        from .modules import AuthenticationError

        label = master_key_identifier
        text = wrapped_key if isinstance(wrapped_key, str) else bytes(wrapped_key).decode("ascii")
        if not self._is_kms:
            cipher = self._cipher(label)
            try:
                return unwrap_locally(text, cipher, label.encode())
            except (AuthenticationError, FormatError):
                raise KeyUnavailableError(
                    f"the key labelled {label!r} is not the one that it was encrypted with",
                    hint=f"another key has the label {label!r}, or the file was tampered with",
                ) from None
        try:
            return bytes(self._source.unwrap_key(text, label))
        except Exception as error:
            # Neither message nor chain has the KMS's own error.
            raise _failed("unwrap", label, error) from None

    def _cipher(self, label: str) -> Cipher:
        from .decryption import check_key
        from .modules import Cipher

        found = self._ciphers.get(label)
        if found is not None:
            return found
        key: object = None
        if self._source is not None:
            try:
                key = self._source(label)
            except LookupError:
                key = None
            except Exception as error:
                raise KeyUnavailableError(
                    f"the key labelled {label!r}: the function failed: {type(error).__name__}",
                    hint="it returns a key, or None where it has none",
                ) from None
        if key is None:
            raise KeyUnavailableError(
                f"needs the key labelled {label!r}", hint=f"pass the key labelled {label!r}"
            )
        try:
            found = Cipher(check_key(key, f"the key labelled {label!r}"))
        except (TypeError, ValueError) as error:
            raise KeyUnavailableError(str(error)) from None
        self._ciphers[label] = found
        return found


def labelled_keys(source: KeySource | None) -> LabelledKeys | None:
    """The keys that were given, if any."""
    if source is None or isinstance(source, LabelledKeys):
        return source
    return LabelledKeys(source)


def _failed(verb: str, label: str, error: Exception) -> KeyUnavailableError:
    if isinstance(error, KeyUnavailableError):
        return error
    return KeyUnavailableError(
        f"needs the key labelled {label!r}: the KMS client did not {verb} a key with it"
        f" ({type(error).__name__})",
        hint=f"the KMS needs master key {label!r}, and permission to use it",
    )


# -- for Arrow -------------------------------------------------------------------------------------


def _factory(keys: LabelledKeys) -> Any:
    import pyarrow.parquet.encryption as pe

    class Client(pe.KmsClient):  # type: ignore[misc]
        """The client that Arrow's key tools call."""

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
            return keys.wrap_key(key_bytes, master_key_identifier)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return keys.unwrap_key(wrapped_key, master_key_identifier)

    return pe.CryptoFactory(lambda _config: Client())


def arrow_decryption(keys: LabelledKeys) -> Any:
    """``FileDecryptionProperties`` of Arrow, for any file under these keys."""
    import pyarrow.parquet.encryption as pe

    return _factory(keys).file_decryption_properties(pe.KmsConnectionConfig())


def arrow_encryption(
    keys: LabelledKeys,
    footer_key: str,
    column_keys: Mapping[str, Sequence[str]],
    *,
    plaintext_footer: bool = False,
) -> Any:
    """``FileEncryptionProperties`` of Arrow for one file, as parquet-java's key tools make them.

    ``column_keys``: label -> leaf paths; a leaf that is not named stays in the clear.
    ``KeyUnavailableError`` where a label has no key.
    """
    import pyarrow.parquet.encryption as pe

    config = pe.EncryptionConfiguration(
        footer_key=footer_key,
        column_keys={label: list(paths) for label, paths in column_keys.items()},
        encryption_algorithm="AES_GCM_V1",
        plaintext_footer=plaintext_footer,
        double_wrapping=True,
        internal_key_material=True,
        data_key_length_bits=128,
    )
    try:
        return _factory(keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
    except SkipstoneError:
        raise
    except Exception as error:
        raise KeyUnavailableError(f"no key to encrypt with: {type(error).__name__}") from None
