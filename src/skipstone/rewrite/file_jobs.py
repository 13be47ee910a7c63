"""Jobs that encrypt, decrypt or rekey one file of a table, in this process or in a Spark task.

Jobs are pickled. ``opened`` is called once in each task and returns the function that handles one
file after the other. Keys may be given as a function without arguments: then the function is
pickled instead of the keys, and called where they are needed. The text of its errors is not shown:
it may hold a key.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.modules import MAX_INVOCATIONS
from skipstone.parquet.reading.file import ParquetFile
from skipstone.storage.atomic_replace import local_path, remove_temporary

from .encrypt_file import decrypt, encrypt
from .encrypted_as import encryption_state, master_keys_of
from .encrypted_file_list import TablePrefix, read_list
from .rekey_file import rekey
from .table_report import FileResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient


Kind = TypeVar("Kind")
Given: TypeAlias = "Kind | Callable[[], Kind]"
FileWork: TypeAlias = "Callable[[str, int], FileResult]"

#: Spark runs a failed task again, up to four times unless the session sets another number. Modules
#: that a failed attempt has encrypted count as well.
_ATTEMPTS: Final = 4
#: Invocations reserved for the list of the files.
_KEPT: Final = 1 << 16


def given(value: Given[Kind], what: str) -> Kind:
    """The value itself, or the result of the function given instead.

    Raises ``KeyUnavailableError`` if the function fails.
    """
    makes = isinstance(value, type) or not hasattr(value, "unwrap_key")
    if not callable(value) or not makes:
        return cast("Kind", value)
    try:
        return value()
    except SkipstoneError:
        raise
    except Exception as error:
        raise KeyUnavailableError(
            f"the function that returns {what} failed: {type(error).__name__}",
            hint="it is called without arguments in every process that needs it",
        ) from None


def unbound(prefix: object) -> bytes | None:
    """The beginning of a table's prefixes, if ``aad_prefix`` of its keys has it."""
    if isinstance(prefix, TablePrefix):
        return prefix.beginning
    return prefix if isinstance(prefix, bytes) else None


def bound_to(root: str, prefix: object, beginning: bytes | None) -> object:
    """``aad_prefix`` for the files of one table; a function of the user's is returned as it is."""
    if callable(prefix) and not isinstance(prefix, TablePrefix):
        return prefix
    name = unbound(prefix) or beginning
    return None if name is None else TablePrefix(root, name)


def file_budget(size: int, files: int, total: int, invocations: int, attempts: int) -> int:
    """How many modules a file may have, so that all files together keep a key within its limit.

    Tasks count only their own modules. So each file gets its share beforehand, half of it by bytes.
    """
    left = max(0, MAX_INVOCATIONS - _KEPT - invocations) // attempts
    return left // 2 // max(1, files) + (left // 2 * size // total if total else 0)


def outcome_of(path: str, do: Callable[[], FileResult]) -> FileResult:
    """The result for one file. Every error becomes a result: one file must not stop the others."""
    started = time.perf_counter()
    try:
        found = do()
    except (SkipstoneError, OSError) as error:
        why = error.message if isinstance(error, SkipstoneError) else str(error)
        found = FileResult(path=path, outcome="failed", why=why.removeprefix(f"{path}: "))
    except Exception as error:  # e.g. of a user's function: its text may hold a key
        found = FileResult(path=path, outcome="failed", why=type(error).__name__)
    return replace(found, seconds=time.perf_counter() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptFiles:
    """Encrypts files. Files that are encrypted differently need ``decryption`` to open them."""

    root: str
    beginning: bytes | None
    encryption: Given[Encryption] = field(repr=False)
    decryption: Given[Decryption] | None = field(default=None, repr=False)
    files: int = 1
    total: int = 0
    attempts: int = _ATTEMPTS

    def opened(self) -> FileWork:
        """The function for one file; the module explains it."""
        made = given(self.encryption, "the encryption")
        made = made.replaced(aad_prefix=bound_to(self.root, made.aad_prefix, self.beginning))
        old = None if self.decryption is None else given(self.decryption, "the old keys")
        if old is not None:
            old = old.replaced(
                aad_prefix=bound_to(self.root, old.aad_prefix, None), allow_plaintext_files=True
            )

        def one(path: str, size: int) -> FileResult:
            state = encryption_state(path, made)
            if state.state == "same":
                remove_temporary(local_path(path))  # e.g. of a decryption: it is in the clear
                unique = state.aad_file_unique.hex()
                return FileResult(path=path, outcome="already", output=path, aad_file_unique=unique)
            if state.state == "other" and old is None:
                return FileResult(path=path, outcome="failed", why=state.why)
            if not made.internal_key_material and "=" in Path(path).name:
                raise UnsupportedError(
                    "its name has a '=': Spark would read its key material file as data",
                    hint="keep the wrapped keys in the file, or rename it",
                )
            spent = made.invocations
            budget = file_budget(size, self.files, self.total, spent, self.attempts)
            mine = made.replaced(prior_invocations=MAX_INVOCATIONS - budget)
            done = encrypt(path, encryption=mine, decryption=old)
            return FileResult(
                path=path,
                outcome="done",
                output=done.output,
                modules=done.modules,
                bytes_read=done.bytes_read,
                bytes_written=done.bytes_written,
                aad_file_unique=done.aad_file_unique or "",
            )

        return lambda path, size: outcome_of(path, lambda: one(path, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptFiles:
    """Decrypts files. Each must be the file of its path, in the version on the list of the files.

    The list is read in the task; it is not pickled with the keys.
    """

    root: str
    beginning: bytes | None
    decryption: Given[Decryption] = field(repr=False)

    def opened(self) -> FileWork:
        """The function for one file; the module explains it."""
        keys = given(self.decryption, "the keys")
        keys = keys.replaced(
            aad_prefix=bound_to(self.root, keys.aad_prefix, self.beginning),
            allow_plaintext_files=True,
        )

        place = TablePrefix(self.root, self.beginning or b"-")
        known = None if self.beginning is None else read_list(self.root, keys)
        listed = {} if known is None else known.files

        def one(path: str) -> FileResult:
            decryptor = ParquetFile(path, decryption=keys).chunk_pages.decryptor
            if decryptor is None:
                return FileResult(path=path, outcome="already", output=path)
            wanted = listed.get(place.relative(path))
            if wanted and wanted != decryptor.algorithm.aad_file_unique:
                raise FormatError(
                    "it is another version than the one on the list of encrypted files",
                    file=path,
                    hint="to accept this version, run `skipstone encrypt` on the table first",
                )
            done = decrypt(path, decryption=keys)
            return FileResult(
                path=path,
                outcome="done",
                output=done.output,
                modules=done.modules,
                bytes_read=done.bytes_read,
                bytes_written=done.bytes_written,
            )

        return lambda path, size: outcome_of(path, lambda: one(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyFiles:
    """Wraps the keys of files again. A file is done already if only ``new_kms`` opens it, or if no
    old master key wraps its keys any more."""

    root: str
    beginning: bytes | None
    kms: Given[KmsClient] = field(repr=False)
    new_kms: Given[KmsClient] | None = field(default=None, repr=False)
    master_keys: Mapping[str, str] = field(default_factory=dict)

    def opened(self) -> FileWork:
        """The function for one file; the module explains it."""
        kms = given(self.kms, "the KMS client")
        new = None if self.new_kms is None else given(self.new_kms, "the new KMS client")
        prefix = bound_to(self.root, None, self.beginning)

        def one(path: str) -> FileResult:
            if self.is_done(path, kms, new, prefix):
                return FileResult(path=path, outcome="already", output=path)
            done = rekey(
                path,
                kms=kms,
                new_kms=new,
                master_keys=self.master_keys,
                aad_prefix=prefix,  # type: ignore[arg-type]
            )
            written = Path(done.written).stat().st_size
            return FileResult(path=path, outcome="done", output=done.written, bytes_written=written)

        return lambda path, size: outcome_of(path, lambda: one(path))

    def is_done(self, path: str, kms: KmsClient, new: KmsClient | None, prefix: object) -> bool:
        """Whether the keys of a file need no old master key."""

        def opens(client: KmsClient) -> ParquetFile:
            keys = Decryption(kms=client, aad_prefix=prefix)  # type: ignore[arg-type]
            return ParquetFile(path, decryption=keys)

        try:
            file = opens(kms)
        except KeyUnavailableError:
            if new is None:
                raise
            return bool(master_keys_of(opens(new)))
        if file.chunk_pages.decryptor is None:
            raise UnsupportedError(f"{path} is not encrypted", hint="there is no key in it")
        if not self.master_keys:
            return False
        return not master_keys_of(file) & (set(self.master_keys) - set(self.master_keys.values()))
