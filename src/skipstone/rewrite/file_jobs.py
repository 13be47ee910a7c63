"""Jobs that encrypt, decrypt or rekey one file of a table, and the reports of such verbs.

A job runs in this process or in a Spark task. It is pickled. ``opened`` is called once in each task
and returns the function that handles one file after the other. Keys may be given as a function
without arguments: then the function is pickled instead of the keys, and called where they are
needed. The text of its errors is not shown: it may hold a key.
"""

from __future__ import annotations

import time
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from skipstone._dataclasses import dataclass
from skipstone.errors import (
    FormatError,
    KeyUnavailableError,
    SkipstoneError,
    UnsupportedError,
    in_words,
)
from skipstone.human import FilesReport, Report, duration, size
from skipstone.parquet.encryption.decryption import Decryption
from skipstone.parquet.encryption.modules import MAX_INVOCATIONS
from skipstone.parquet.reading.file import ParquetFile
from skipstone.storage.atomic_replace import local_path, remove_temporary

from .encrypt_file import decrypt, encrypt
from .encrypted_file_list import TablePrefix, bound_to, read_list
from .encryption_checks import encryption_state, master_keys_of
from .rekey_file import rekey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient

    from .encrypt_file import EncryptReport


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


def _done(path: str, report: EncryptReport) -> FileResult:
    return FileResult(
        path=path,
        outcome="done",
        output=report.output,
        modules=report.modules,
        bytes_read=report.bytes_read,
        bytes_written=report.bytes_written,
        aad_file_unique=report.aad_file_unique or "",
    )


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
        found = FileResult(path=path, outcome="failed", why=in_words(error, path))
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
            return _done(path, done)

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
            return _done(path, done)

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
            keys = Decryption(
                kms=client,
                aad_prefix=prefix,  # type: ignore[arg-type]
                allow_plaintext_files=True,
            )
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


Verb: TypeAlias = Literal["encrypt", "decrypt", "rekey", "salvage"]
#: ``done``: rewritten now; ``partly``: saved in part; ``already``: nothing to do; ``failed``: why.
Outcome: TypeAlias = Literal["done", "partly", "already", "failed"]

_DONE: Final = {
    "encrypt": ("encrypted", "were already encrypted with these keys"),
    "decrypt": ("decrypted", "were already in the clear"),
    "rekey": ("wrapped the keys of", "had keys that were already wrapped with these master keys"),
    "salvage": ("salvaged", "are not damaged, or were salvaged before"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult(Report):
    """The result for one file: ``output`` is the path of the new file, ``why`` the error.

    ``modules`` counts the modules that were encrypted or decrypted; ``aad_file_unique`` is the
    unique part of the file's AAD, in hex.
    """

    path: str
    outcome: Outcome
    output: str | None = None
    why: str = ""
    modules: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    aad_file_unique: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport(FilesReport[FileResult]):
    """What ``verb`` did to the files of a table.

    ``dropped`` are plaintext indexes of encrypted columns, which were deleted; ``refreshed`` is the
    report on the facts of the other indexes; ``aad_prefix`` is the beginning of the files' AAD
    prefixes. ``notes`` are further remarks.
    """

    table: str
    verb: Verb
    files: tuple[FileResult, ...]
    aad_prefix: bytes | None = None
    dropped: tuple[str, ...] = ()
    refreshed: Any = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    computed = ("modules", "ok")
    outcomes = get_args(Outcome)

    @property
    def modules(self) -> int:
        """All modules encrypted or decrypted: they count as ``prior_invocations`` of the keys."""
        return sum(each.modules for each in self.files)

    def __str__(self) -> str:
        done, already = _DONE[self.verb]
        lines = [
            f"{done} {self.counted('done')} of {self.table}",
            f"{self.counted('already')} {already}",
            *self.reasons("partly", "only in part"),
            *self.reasons("failed", "failed"),
        ]
        if self.verb == "encrypt" and not self.ok:
            lines.append(f"mixed: {self.counted('done', 'already')} are encrypted as requested")
        if self.aad_prefix is not None:
            shown = self.aad_prefix.decode("utf-8", "backslashreplace")
            lines.append(f"AAD prefixes: {shown}/ and the path of the file")
        read = sum(each.bytes_read for each in self.files)
        lines.append(
            f"{size(read)} read, {size(sum(each.bytes_written for each in self.files))} written"
            f" in {duration(1000 * self.seconds)}"
        )
        if self.dropped:
            lines.append(f"dropped plaintext indexes: {', '.join(self.dropped)}")
        lines += self.notes
        if self.refreshed is not None:
            lines.append(str(self.refreshed))
        return "\n".join(lines)
