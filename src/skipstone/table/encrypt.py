"""``Table.encrypt``, ``decrypt`` and ``rekey``, in this process or as a Spark job."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.storage import open_storage

from .build import BuildRequest, build_table, refresh_table
from .file_format import HINT
from .rewrite import each_file, require_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from skipstone.facts import Store
    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient
    from skipstone.pruning.kind import Index
    from skipstone.rewrite.encrypted_file_list import EncryptedFileList
    from skipstone.rewrite.file_jobs import Given
    from skipstone.rewrite.table_report import FileResult, TableReport

    from .file_format import Progress
    from .open_table import OpenTable


_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptRequest:
    """See ``Table.encrypt``."""

    encryption: Given[Encryption] = field(repr=False)
    decryption: Given[Decryption] | None = field(default=None, repr=False)
    index_encryption: IndexEncryption | None = None
    plaintext_index: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyRequest:
    """See ``Table.rekey``."""

    kms: Given[KmsClient] = field(repr=False)
    new_kms: Given[KmsClient] | None = field(default=None, repr=False)
    master_keys: Mapping[str, str] = field(default_factory=dict)
    aad_prefix: bytes | None = None


def encrypt_table(
    table: OpenTable,
    spark: SparkSession | None,
    request: EncryptRequest,
    progress: Progress | None,
) -> TableReport:
    """See ``Table.encrypt``."""
    from skipstone.rewrite.file_jobs import EncryptFiles, given
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    require_local(table, "encrypted")
    listing = table.listing()
    made = given(request.encryption, "the encryption")
    old = None if request.decryption is None else given(request.decryption, "the old keys")
    plaintext_index, index_encryption = request.plaintext_index, request.index_encryption
    listed = _FileList.begun(table, made, old, listing.paths)
    done = each_file(
        spark,
        table.listing(),
        EncryptFiles(
            root=table.path,
            beginning=None if listed is None else listed.beginning,
            encryption=request.encryption,
            decryption=request.decryption,
            files=len(listing),
            total=int(listing.sizes.sum()),
            attempts=4 if spark is not None else 1,
        ),
        progress,
    )
    notes = [] if listed is None else listed.finish(done)
    keys = made.decryption() if listed is None else listed.decryption
    index = IndexAfterRewrite(
        table,
        None if callable(request.encryption) else spark,
        keys,
        plaintext_index=plaintext_index,
    )
    dropped: tuple[str, ...] = ()
    if not plaintext_index:
        dropped = index.drop_clear(made, whole=index_encryption is not None)
        if index.unpublish(made):
            notes.append(f"removed, as it was published in the clear: {table.location.xskipper}")
    if table.has_sidecars():
        notes.append("file indexes (.index) beside the files are in the clear: remove them")
    if any(each.outcome != "failed" for each in done) and (removed := _remove_summaries(table)):
        notes.append(f"removed, as they held footers in the clear: {', '.join(removed)}")
    refreshed, note = None, ""
    if index_encryption is not None and index.dropped:
        refreshed, note = index.rebuilt(index_encryption)
    elif any(each.outcome == "done" for each in done):
        refreshed, note = index.refreshed()
    if plaintext_index and (kept := index.clear(made)):
        notes.append(f"kept in the clear, as requested: {', '.join(kept)}")
    if dropped and index_encryption is None and table.storage.has_children(table.location.packs):
        notes.append(
            "packs of the index still hold row group metadata of the earlier files in the clear:"
            f" run `skipstone vacuum {table.path} --older-than 0s` while no build runs"
        )
    return TableReport(
        table=table.path,
        verb="encrypt",
        files=tuple(done),
        aad_prefix=None if listed is None else listed.beginning,
        dropped=dropped,
        refreshed=refreshed,
        notes=(*notes, *([note] if note else [])),
        seconds=time.perf_counter() - started,
    )


def decrypt_table(
    table: OpenTable,
    spark: SparkSession | None,
    decryption: Given[Decryption] | None,
    progress: Progress | None,
) -> TableReport:
    """See ``Table.decrypt``."""
    from skipstone.rewrite.encrypted_file_list import read_list, remove_list
    from skipstone.rewrite.file_jobs import DecryptFiles, given
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    require_local(table, "decrypted")
    held = table.keys.get() if decryption is None else decryption
    if held is None:
        raise KeyUnavailableError(f"{table.path}: no keys were given", hint=HINT)
    keys = given(held, "the keys")
    known = read_list(table.path, keys)
    beginning = None if known is None else known.beginning
    done = each_file(
        spark,
        table.listing(),
        DecryptFiles(root=table.path, beginning=beginning, decryption=held),
        progress,
    )
    notes = []
    if known is None and keys.aad_prefix is None:
        notes.append(
            "no list of the files, and no AAD prefix: the places of the files were not checked"
        )
    if known is not None and all(each.outcome != "failed" for each in done):
        missing = sorted(set(known.files) - set(_relative(table, table.listing().paths)))
        if missing:
            notes.append(f"on the list of files, but missing: {', '.join(missing[:_SHOWN])}")
        remove_list(table.path)
    refreshed, note = None, ""
    if any(each.outcome == "done" for each in done):
        # The files are in the clear now, though the table was opened with keys.
        clear = keys.replaced(allow_plaintext_files=True) if table.keys else None
        refreshed, note = IndexAfterRewrite(table, spark, clear).refreshed()
    return TableReport(
        table=table.path,
        verb="decrypt",
        files=tuple(done),
        aad_prefix=beginning,
        refreshed=refreshed,
        notes=(*notes, *([note] if note else [])),
        seconds=time.perf_counter() - started,
    )


def rekey_table(
    table: OpenTable,
    spark: SparkSession | None,
    request: RekeyRequest,
    progress: Progress | None,
) -> TableReport:
    """See ``Table.rekey``."""
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite.encrypted_file_list import TablePrefix, list_path, read_list
    from skipstone.rewrite.file_jobs import RekeyFiles, bound_to, given
    from skipstone.rewrite.rekey_file import rekey
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    require_local(table, "rekeyed")
    kms, new_kms, master_keys = request.kms, request.new_kms, request.master_keys
    old = given(kms, "the KMS client")
    new = old if new_kms is None else given(new_kms, "the new KMS client")
    known = None
    beginning = request.aad_prefix
    for client in (old, new):
        try:
            known = read_list(table.path, Decryption(kms=client, aad_prefix=beginning))
            break
        except KeyUnavailableError:
            if client is new:
                raise
    if known is not None:
        beginning = known.beginning
    work = RekeyFiles(
        root=table.path,
        beginning=beginning,
        kms=kms,
        new_kms=new_kms,
        master_keys=master_keys,
    )
    done = each_file(spark, table.listing(), work, progress)
    if known is not None and all(each.outcome != "failed" for each in done):
        # The list comes last: while a file is left, the old keys open both.
        place, prefix = list_path(table.path), TablePrefix(table.path, known.beginning).of("")
        if not work.is_done(place, old, None if new_kms is None else new, prefix):
            rekey(place, kms=old, new_kms=new, master_keys=master_keys, aad_prefix=prefix)
    refreshed, note = None, ""
    if any(each.outcome == "done" and each.output == each.path for each in done):
        bound = bound_to(table.path, None, beginning)
        keys = Decryption(kms=new, aad_prefix=bound)  # type: ignore[arg-type]
        refreshed, note = IndexAfterRewrite(
            table, None if callable(kms) else spark, keys
        ).refreshed()
    return TableReport(
        table=table.path,
        verb="rekey",
        files=tuple(done),
        aad_prefix=beginning,
        refreshed=refreshed,
        notes=(note,) if note else (),
        seconds=time.perf_counter() - started,
    )


def _remove_summaries(table: OpenTable) -> list[str]:
    """Remove the summaries of the earlier footers: they hold statistics of encrypted columns in the
    clear, and match no file any more."""
    from skipstone.rewrite.summary_files import COMMON
    from skipstone.storage.listing import SUMMARY

    found = [name for name in (SUMMARY, COMMON) if table.storage.exists(f"{table.path}/{name}")]
    for name in found:
        table.storage.delete(f"{table.path}/{name}")
    return found


def _relative(table: OpenTable, paths: Iterable[str]) -> list[str]:
    from skipstone.rewrite.encrypted_file_list import TablePrefix

    place = TablePrefix(table.path, b"-")
    return [place.relative(path) for path in paths]


class _FileList:
    """The list of the files of a table while they are encrypted."""

    def __init__(
        self,
        table: OpenTable,
        encryption: Encryption,
        held: EncryptedFileList,
        relative: Mapping[str, str],
    ) -> None:
        self.table, self.encryption, self.held = table, encryption, held
        self.relative = relative

    @property
    def beginning(self) -> bytes:
        """What the prefixes of the table begin with."""
        return self.held.beginning

    @property
    def decryption(self) -> Decryption:
        """The keys of the files, each bound to its place."""
        from skipstone.rewrite.encrypted_file_list import TablePrefix

        place = TablePrefix(self.table.path, self.beginning)
        return self.encryption.decryption().replaced(aad_prefix=place)

    @classmethod
    def begun(
        cls, table: OpenTable, made: Encryption, old: Decryption | None, paths: Sequence[str]
    ) -> _FileList | None:
        """The list with the table's name, found or made, stored before the first file is encrypted;
        ``None`` where a function of the user returns the prefixes."""
        from skipstone.rewrite.encrypted_file_list import (
            EncryptedFileList,
            TablePrefix,
            new_beginning,
        )
        from skipstone.rewrite.file_jobs import unbound

        stated_prefix = unbound(made.aad_prefix)
        if stated_prefix is None and made.aad_prefix is not None:
            return None
        known = _known_list(table, made, old)
        beginning = stated_prefix or (known.beginning if known is not None else None)
        if beginning is None and not made.store_aad_prefix:
            raise SkipstoneError(
                "an AAD prefix that is not stored must be given",
                hint="name the table: aad_prefix=b'orders'",
            )
        if known is None or known.beginning != beginning:
            known = EncryptedFileList(beginning=beginning or new_beginning(table.path))
        place = TablePrefix(table.path, known.beginning)
        listed = cls(table, made, known, {path: place.relative(path) for path in paths})
        # A file that is encrypted again gets another unique part, and a run may be killed any time.
        sure = {} if old is not None else known.files
        names = {*known.files, *listed.relative.values()}
        listed.write({name: sure.get(name, b"") for name in names})
        return listed

    def write(self, files: Mapping[str, bytes]) -> None:
        """Store the list with these files."""
        from skipstone.rewrite.encrypted_file_list import EncryptedFileList, write_list

        write_list(
            self.table.path,
            EncryptedFileList(beginning=self.beginning, files=files),
            self.encryption,
        )

    def finish(self, done: Sequence[FileResult]) -> list[str]:
        """Store the unique parts of the files; notes for the report."""
        held, now = self.held.files, dict(self.held.files)
        others: list[str] = []
        for each in done:
            name = self.relative.get(each.path)
            if name is None or each.outcome == "failed":
                continue
            now[name] = bytes.fromhex(each.aad_file_unique)
            if each.outcome == "already" and held.get(name) not in (None, b"", now[name]):
                others.append(name)
        gone = set(held) - set(self.relative.values())
        if not any(each.outcome == "failed" for each in done):
            now = {name: unique for name, unique in now.items() if name not in gone}
        else:
            gone = set()
        self.write({**dict.fromkeys(self.relative.values(), b""), **now})
        return [
            f"{what}: {', '.join(sorted(names)[:_SHOWN])}"
            for what, names in (
                ("other versions than the list of files has", others),
                ("missing, and removed from the list of files", gone),
            )
            if names
        ]


def _known_list(
    table: OpenTable, made: Encryption, old: Decryption | None
) -> EncryptedFileList | None:
    """The existing list, opened with the new keys or the old ones."""
    from skipstone.rewrite.encrypted_file_list import read_list
    from skipstone.rewrite.file_jobs import unbound

    keys = [made.decryption(), *([] if old is None else [old])]
    why = ""
    for each in keys:
        stated = unbound(each.aad_prefix) if each.aad_prefix is not None else None
        # Its own prefix first: the table may get another name.
        for prefix in (None, *([] if stated is None else [stated])):
            try:
                return read_list(table.path, each.replaced(aad_prefix=prefix))
            except (KeyUnavailableError, FormatError) as error:
                why = error.message
    raise SkipstoneError(
        f"the list of the encrypted files of {table.path} does not open: {why}",
        hint="give the keys that it was written with, too",
    )


class IndexAfterRewrite:
    """The index of a table whose files were rewritten; ``keys`` open them."""

    def __init__(
        self,
        table: OpenTable,
        spark: SparkSession | None,
        keys: Decryption | None,
        *,
        plaintext_index: bool = False,
    ) -> None:
        self.table, self.spark, self.keys = table, spark, keys
        self.plaintext_index = plaintext_index
        self.dropped: list[Index] = []

    @property
    def _store(self) -> Store | None:
        """The index without its keys: with keys, the parts in the clear are ignored."""
        from skipstone.facts import Store
        from skipstone.facts.xskipper_store import XskipperStore

        table = self.table
        if isinstance(table.store, XskipperStore):
            return None  # written by others
        return Store(table.location.root, open_storage(table.location.root, table.storage_options))

    def clear(self, encryption: Encryption) -> list[str]:
        """The indexes in the clear over columns that ``encryption`` encrypts."""
        from skipstone.predicate.types import column_path

        return [
            f"{','.join(each.columns)}:{each.kind}"
            for each in (() if self._store is None else self._store.snapshot().definitions)
            if each.key_metadata is None
            and not all(encryption.is_plaintext(column_path(name)) for name in each.columns)
        ]

    def drop_clear(self, encryption: Encryption, *, whole: bool) -> tuple[str, ...]:
        """Drop them, and with ``whole`` all others, which are then built again."""
        from skipstone.facts.upkeep import compact, drop_index
        from skipstone.pruning import Cause

        found, store = self.clear(encryption), self._store
        if not found or store is None:
            return ()
        snapshot = store.snapshot()
        there = snapshot.definitions
        # Parts that do not open without keys are encrypted, not damaged.
        all_clear = all(reason.cause is Cause.ABSENT for reason in snapshot.reasons)
        self.dropped = [each.index for each in there if each.index is not None]
        if all_clear and (whole or len(found) == len(there)):
            store.drop()
            return tuple(found)
        for each in found:
            column, _, kind = each.rpartition(":")
            drop_index(store, kind, column)
        # Facts of the earlier files are removed here. Packs are not: a running build may name them.
        compact(store, self.table.listing)
        return tuple(found)

    def unpublish(self, encryption: Encryption) -> bool:
        """Remove their Xskipper directory in the clear beside the index; whether there was one."""
        from skipstone.predicate.types import column_path
        from skipstone.xskipper.store import remove_plaintext

        if self._store is None:
            return False
        store = self._store
        gone = remove_plaintext(
            store.storage,
            store.location.xskipper,
            lambda name: not encryption.is_plaintext(column_path(name)),
        )
        return bool(gone)

    def rebuilt(self, encryption: IndexEncryption) -> tuple[Any, str]:
        """Build the dropped indexes again, encrypted: the report, or the reason why not."""
        return self._tried(
            lambda: build_table(
                self.table,
                self.spark,
                self.dropped,
                BuildRequest(decryption=self.keys),
                encryption=encryption,
            )
        )

    def refreshed(self) -> tuple[Any, str]:
        """Refresh the index: the report, or the reason why not."""
        if self._store is None or not self.table.store.snapshot().definitions:
            return None, ""
        return self._tried(
            lambda: refresh_table(
                self.table,
                self.spark,
                BuildRequest(decryption=self.keys, plaintext_index=self.plaintext_index),
            )
        )

    def _tried(self, do: Callable[[], Any]) -> tuple[Any, str]:
        try:
            return do(), ""
        except (SkipstoneError, OSError) as error:
            why = error.message if isinstance(error, SkipstoneError) else str(error)
            return None, f"the index was not refreshed: {why}"
