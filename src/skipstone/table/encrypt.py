"""``Table.encrypt``, ``decrypt`` and ``rekey``, in this process or as a Spark job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError
from skipstone.human import some_of
from skipstone.storage.listing import SUMMARY

from .file_format import HINT, Progress
from .index_after_rewrite import IndexAfterRewrite
from .planning import outside
from .rewrite import FileJob, RewriteVerbs, each_file, require_local

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.facts.reports import BuildReport
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient
    from skipstone.rewrite.encrypted_file_list import EncryptedFileList
    from skipstone.rewrite.file_jobs import FileResult, Given, TableReport

    from .open_table import OpenTable


class EncryptVerbs(RewriteVerbs):
    """The verbs that encrypt data files; see ``Table``."""

    def encrypt(
        self,
        spark: SparkSession | None = None,
        *,
        encryption: Given[Encryption],
        decryption: Given[Decryption] | None = None,
        index_encryption: IndexEncryption | None = None,
        plaintext_index: bool = False,
        progress: Progress | None = None,
    ) -> TableReport:
        """Encrypt the files of the table in place, module by module, without decoding them.

        >>> table.encrypt(spark, encryption=Encryption(footer_key=key))

        Each file is bound to its place: its AAD prefix is ``encryption.aad_prefix``, "/", and its
        path below the directory. Without one, the table keeps its name, or gets one. If
        ``aad_prefix`` is a function, it returns the whole prefix of each file instead. Files with
        this encryption are skipped: a run that ended early is resumed by the next. Files with
        another encryption fail, unless ``decryption`` opens them. Afterwards an encrypted list of
        the files lies next to the table (``rewrite/encrypted_file_list.py``); ``check`` uses it to
        find missing files.

        ``encryption`` and ``decryption`` may be functions without arguments that make them: they
        are called here and in every task, so that a job contains no key. Objects that hold keys are
        pickled with the function of the job, between processes of the session.

        Indexes over columns that are encrypted now were built in the clear: they are dropped, and
        the report names them, unless ``plaintext_index`` keeps them. With ``index_encryption`` (of
        a table opened with ``index_keys``) the whole index is built again, encrypted. ``_metadata``
        and ``_common_metadata``, which hold the earlier footers, are removed.
        """
        from skipstone.rewrite.file_jobs import EncryptFiles, given

        run = _FilesRun(self, "encrypt", "encrypted")
        made = given(encryption, "the encryption")
        old = None if decryption is None else given(decryption, "the old keys")
        listed = _FileList.begun(self, made, old, run.listing.paths)
        beginning = None if listed is None else listed.beginning
        work = EncryptFiles(
            root=self.path,
            beginning=beginning,
            encryption=encryption,
            decryption=decryption,
            files=len(run.listing),
            total=run.listing.total_bytes,
            attempts=4 if spark is not None else 1,
        )
        done = run.each(spark, work, progress)
        _require_columns(made, done, old)
        run.notes += [] if listed is None else listed.finish(done)
        keys = made.decryption() if listed is None else listed.decryption
        session = None if callable(encryption) else spark
        index = IndexAfterRewrite(self, session, keys, plaintext_index=plaintext_index)
        left = _in_the_clear(self, remove=any(each.outcome != "failed" for each in done))
        dropped, refreshed, notes = index.after_encryption(
            made, index_encryption, changed=run.has("done")
        )
        run.notes += [*notes, *left]
        return run.report(index, refreshed, dropped=dropped, aad_prefix=beginning)

    def decrypt(
        self,
        spark: SparkSession | None = None,
        *,
        decryption: Given[Decryption] | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Decrypt the files of the table in place; every key is needed, by default the table's.

        >>> skipstone.Table("lake/orders", decryption=keys).decrypt(spark)

        Each file must be in its own place, as far as that is known: by ``decryption.aad_prefix``
        (the beginning of the table's prefixes, or a function from a file to its prefix), or by
        the list of the files, which also has its version. Files in the clear are skipped. The
        list is removed after the last file, and the index is refreshed.
        """
        from skipstone.rewrite.encrypted_file_list import TablePrefix, read_list, remove_list
        from skipstone.rewrite.file_jobs import DecryptFiles, given

        run = _FilesRun(self, "decrypt", "decrypted")
        held = self.keys.get() if decryption is None else decryption
        if held is None:
            raise KeyUnavailableError(f"{self.path}: no keys were given", hint=HINT)
        keys = given(held, "the keys")
        known = read_list(self.path, keys)
        beginning = None if known is None else known.beginning
        work = DecryptFiles(root=self.path, beginning=beginning, decryption=held)
        run.each(spark, work, progress)
        if known is None and keys.aad_prefix is None:
            run.notes.append(
                "no list of the files, and no AAD prefix: the places of the files were not checked"
            )
        if known is not None and not run.has("failed"):
            place = TablePrefix(self.path, b"-")
            missing = sorted(set(known.files).difference(map(place.relative, self.listing().paths)))
            if missing:
                run.notes.append(f"on the list of files, but missing: {some_of(missing)}")
            remove_list(self.path)
        # The files are in the clear now, though the table was opened with keys.
        clear = keys.replaced(allow_plaintext_files=True) if self.keys else None
        index = IndexAfterRewrite(self, spark, clear)
        refreshed = index.refreshed() if run.has("done") else None
        return run.report(index, refreshed, aad_prefix=beginning)

    def rekey(
        self,
        spark: SparkSession | None = None,
        *,
        kms: Given[KmsClient],
        new_kms: Given[KmsClient] | None = None,
        master_keys: Mapping[str, str] | None = None,
        aad_prefix: bytes | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Wrap the data keys of the files and of the list of files with other master keys.

        >>> table.rekey(spark, kms=client, master_keys={"orders-2025": "orders-2026"})

        As ``skipstone.rewrite.rekey`` does to one file; clients may be functions that make them, as
        for ``encrypt``. Files without an old master key are skipped. ``aad_prefix`` is the
        beginning of the table's prefixes, where it is not stored.
        """
        from skipstone.parquet.encryption.decryption import Decryption
        from skipstone.rewrite.encrypted_file_list import TablePrefix, bound_to, list_path
        from skipstone.rewrite.file_jobs import RekeyFiles, given
        from skipstone.rewrite.rekey_file import rekey

        run = _FilesRun(self, "rekey", "rekeyed")
        master_keys = dict(master_keys or {})
        old = given(kms, "the KMS client")
        new = old if new_kms is None else given(new_kms, "the new KMS client")
        known = _list_by_kms(self, (old, new), aad_prefix)
        beginning = aad_prefix if known is None else known.beginning
        work = RekeyFiles(
            root=self.path,
            beginning=beginning,
            kms=kms,
            new_kms=new_kms,
            master_keys=master_keys,
        )
        done = run.each(spark, work, progress)
        if known is not None and not run.has("failed"):
            # The list comes last: while a file is left, the old keys open both.
            place, prefix = list_path(self.path), TablePrefix(self.path, known.beginning).of("")
            if not work.is_done(place, old, None if new_kms is None else new, prefix):
                rekey(place, kms=old, new_kms=new, master_keys=master_keys, aad_prefix=prefix)
        bound = bound_to(self.path, None, beginning)
        keys = Decryption(kms=new, aad_prefix=bound)  # type: ignore[arg-type]
        index = IndexAfterRewrite(self, None if callable(kms) else spark, keys)
        replaced = any(each.outcome == "done" and each.output == each.path for each in done)
        refreshed = index.refreshed() if replaced else None
        return run.report(index, refreshed, aad_prefix=beginning)


class _FilesRun:
    """A run of ``verb`` over all files of a table: its listing, outcomes and notes."""

    def __init__(
        self, table: OpenTable, verb: Literal["encrypt", "decrypt", "rekey"], done: str
    ) -> None:
        self.started = time.perf_counter()
        require_local(table, done)
        table.require_whole(verb)
        self.table, self.verb, self.listing = table, verb, table.listing()
        self.files: list[FileResult] = []
        self.notes = [str(each) for each in outside(self.listing)]

    def each(
        self, spark: SparkSession | None, work: FileJob[FileResult], progress: Progress | None
    ) -> list[FileResult]:
        """The outcomes of ``work``."""
        self.files = each_file(spark, self.listing, work, progress)
        return self.files

    def has(self, outcome: str) -> bool:
        """Whether a file has this outcome."""
        return any(each.outcome == outcome for each in self.files)

    def report(
        self, index: IndexAfterRewrite, refreshed: BuildReport | None, **more: Any
    ) -> TableReport:
        """The report, with what became of the index, and ``more`` of its fields."""
        from skipstone.rewrite.file_jobs import TableReport

        return TableReport(
            table=self.table.path,
            verb=self.verb,
            files=tuple(self.files),
            refreshed=refreshed,
            notes=(*self.notes, *index.notes),
            seconds=time.perf_counter() - self.started,
            **more,
        )


def _require_columns(made: Encryption, done: Sequence[FileResult], old: Decryption | None) -> None:
    """Raises the error for a misspelt column: no file was encrypted, so no index is dropped."""
    from skipstone.parquet.reading.file import ParquetFile

    if done and all(each.why.startswith("there is no column ") for each in done):
        file = ParquetFile(done[0].path, decryption=old)
        made.check_columns([leaf.path for leaf in file.footer.schema.leaves])


def _list_by_kms(
    table: OpenTable, clients: Sequence[KmsClient], aad_prefix: bytes | None
) -> EncryptedFileList | None:
    """The list of the files, opened by the first of these clients that can."""
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite.encrypted_file_list import read_list

    for client in clients:
        try:
            return read_list(table.path, Decryption(kms=client, aad_prefix=aad_prefix))
        except KeyUnavailableError:
            if client is clients[-1]:
                raise
    return None


def _in_the_clear(table: OpenTable, *, remove: bool) -> list[str]:
    """Notes on what lies next to the files. With ``remove`` the summaries of the earlier footers
    are removed: they hold statistics of encrypted columns, and no longer match any file."""
    from skipstone.rewrite.summary_files import COMMON

    names = (SUMMARY, COMMON) if remove else ()
    found = [name for name in names if table.storage.exists(f"{table.path}/{name}")]
    table.storage.delete(*(f"{table.path}/{name}" for name in found))
    notes = [f"removed: they held footers in the clear: {', '.join(found)}"] if found else []
    if table.has_sidecars():
        notes.append("file indexes (.index) next to the files are in the clear: remove them")
    return notes


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
        """The beginning of the table's prefixes."""
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
            unbound,
        )

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
            f"{what}: {some_of(sorted(names))}"
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
    from skipstone.rewrite.encrypted_file_list import read_list, unbound

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
