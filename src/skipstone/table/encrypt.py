"""``Table.encrypt``, ``decrypt`` and ``rekey``: the files of a table, here or as a Spark job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError

from .data_keys import HINT
from .reindex_after_rewrite import IndexAfter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient
    from skipstone.rewrite.encrypted_file_list import SealedList
    from skipstone.rewrite.file_jobs import Given
    from skipstone.rewrite.table_report import FileFate, TableReport

    from .data_files import Progress
    from .table import Table

__all__ = ["decrypt_table", "encrypt_table", "rekey_table"]

_SHOWN: Final = 5


def encrypt_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    encryption: Given[Encryption],
    decryption: Given[Decryption] | None = None,
    index_encryption: IndexEncryption | None = None,
    plaintext_index: bool = False,
    progress: Progress | None = None,
) -> TableReport:
    """Encrypt the files of the table in their places, module by module, without decoding them.

    Each file is bound to its place: its AAD prefix is ``encryption.aad_prefix``, "/", and its path
    below the directory. Without one, the table keeps the name that it has, or gets one. A function
    as ``aad_prefix`` is asked for the whole prefix of every file instead. Files that are encrypted
    so already are passed over: a run that ended early is resumed by the next. Those that are
    encrypted otherwise fail, unless ``decryption`` opens them. A list of the files, encrypted too,
    lies beside the table afterwards (``rewrite/sealed_list.py``), and ``check`` tells by it whether
    one is missing.

    ``encryption`` and ``decryption`` may be functions without arguments that make them: they are
    called here and in every task, so that no key travels with a job. Objects that hold keys travel
    within the function of the job, between processes of the session.

    Indexes over columns that are encrypted now were built in the clear: they are dropped, and the
    report names them, unless ``plaintext_index`` keeps them. With ``index_encryption`` (of a table
    opened with ``index_keys``) the whole index is built anew, encrypted, instead. ``_metadata`` and
    ``_common_metadata``, which hold the footers as they were, are removed.
    """
    from skipstone.rewrite.file_jobs import EncryptFiles, given
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    _require_local(self, "encrypted")
    listing = self.listing()
    made = given(encryption, "the encryption")
    old = None if decryption is None else given(decryption, "the old keys")
    listed = _Listed.begun(self, made, old, listing.paths)
    done = _each(
        self,
        spark,
        EncryptFiles(
            root=self.path,
            beginning=None if listed is None else listed.beginning,
            encryption=encryption,
            decryption=decryption,
            files=len(listing),
            total=int(listing.sizes.sum()),
            attempts=4 if spark is not None else 1,
        ),
        progress,
    )
    notes = [] if listed is None else listed.finish(done)
    keys = made.decryption() if listed is None else listed.decryption
    index = IndexAfter(
        self, None if callable(encryption) else spark, keys, plaintext_index=plaintext_index
    )
    dropped: tuple[str, ...] = ()
    if not plaintext_index:
        dropped = index.drop_clear(made, whole=index_encryption is not None)
        if index.unpublish(made):
            notes.append(f"removed, as it was published in the clear: {self.location.xskipper}")
    if self.has_sidecars():
        notes.append(
            "file indexes (.index) beside the files tell of them in the clear: remove them"
        )
    if any(each.fate != "failed" for each in done) and (removed := _remove_summaries(self)):
        notes.append(f"removed, as they held footers in the clear: {', '.join(removed)}")
    refreshed, said = None, ""
    if index_encryption is not None and index.dropped:
        refreshed, said = index.sealed(index_encryption)
    elif any(each.fate == "done" for each in done):
        refreshed, said = index.refreshed()
    if plaintext_index and (kept := index.clear(made)):
        notes.append(f"kept in the clear, as was asked: {', '.join(kept)}")
    if dropped and index_encryption is None and self.storage.has_children(self.location.packs):
        notes.append(
            "packs of the index still hold row group metadata of the files as they were, in the"
            f" clear: `skipstone vacuum {self.path} --older-than 0s`, when nobody builds"
        )
    return TableReport(
        table=self.path,
        verb="encrypt",
        files=tuple(done),
        aad_prefix=None if listed is None else listed.beginning,
        dropped=dropped,
        refreshed=refreshed,
        notes=(*notes, *([said] if said else [])),
        seconds=time.perf_counter() - started,
    )


def decrypt_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    decryption: Given[Decryption] | None = None,
    progress: Progress | None = None,
) -> TableReport:
    """Decrypt the files of the table in their places; every key is needed, by default the table's.

    Each file must be the one that belongs in its place, as far as that is known: by
    ``decryption.aad_prefix`` (what the prefixes of the table begin with, or a function from a file
    to its prefix), or by the list of the files, which also tells its version. Files in the clear
    are passed over. The list is removed when the last file is in the clear, and facts are refreshed
    in the same run.
    """
    from skipstone.rewrite.encrypted_file_list import read_list, remove_list
    from skipstone.rewrite.file_jobs import DecryptFiles, given
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    _require_local(self, "decrypted")
    held = self.keys.get() if decryption is None else decryption
    if held is None:
        raise KeyUnavailableError(f"{self.path}: no keys were given", hint=HINT)
    keys = given(held, "the keys")
    known = read_list(self.path, keys)
    beginning = None if known is None else known.beginning
    done = _each(
        self,
        spark,
        DecryptFiles(root=self.path, beginning=beginning, decryption=held),
        progress,
    )
    notes = []
    if known is None and keys.aad_prefix is None:
        notes.append("no list of the files, and no AAD prefix: nothing told whose place each is in")
    if known is not None and all(each.fate != "failed" for each in done):
        missing = sorted(set(known.files) - set(_relative(self, self.listing().paths)))
        if missing:
            notes.append(f"on the list of files, and not there: {', '.join(missing[:_SHOWN])}")
        remove_list(self.path)
    refreshed, said = None, ""
    if any(each.fate == "done" for each in done):
        # The files are in the clear now, whatever the table was opened with.
        clear = keys.replaced(allow_plaintext_files=True) if self.keys else None
        refreshed, said = IndexAfter(self, spark, clear).refreshed()
    return TableReport(
        table=self.path,
        verb="decrypt",
        files=tuple(done),
        aad_prefix=beginning,
        refreshed=refreshed,
        notes=(*notes, *([said] if said else [])),
        seconds=time.perf_counter() - started,
    )


def rekey_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    kms: Given[KmsClient],
    new_kms: Given[KmsClient] | None = None,
    master_keys: Mapping[str, str] | None = None,
    aad_prefix: bytes | None = None,
    progress: Progress | None = None,
) -> TableReport:
    """Wrap the data keys of the files of the table anew, and those of the list of its files.

    As ``skipstone.rewrite.rekey`` does to one file; clients may be functions that make them, as for
    ``encrypt``. Files that need no old master key any more are passed over. ``aad_prefix`` is what
    the prefixes of the table begin with, where it is not stored.
    """
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite.encrypted_file_list import TablePrefix, list_path, read_list
    from skipstone.rewrite.file_jobs import RekeyFiles, bound_to, given
    from skipstone.rewrite.rekey_file import rekey
    from skipstone.rewrite.table_report import TableReport

    started = time.perf_counter()
    _require_local(self, "rekeyed")
    old = given(kms, "the KMS client")
    new = old if new_kms is None else given(new_kms, "the new KMS client")
    known = None
    beginning = aad_prefix
    for client in (old, new):
        try:
            known = read_list(self.path, Decryption(kms=client, aad_prefix=aad_prefix))
            break
        except KeyUnavailableError:
            if client is new:
                raise
    if known is not None:
        beginning = known.beginning
    work = RekeyFiles(
        root=self.path,
        beginning=beginning,
        kms=kms,
        new_kms=new_kms,
        master_keys=dict(master_keys or {}),
    )
    done = _each(self, spark, work, progress)
    if known is not None and all(each.fate != "failed" for each in done):
        # Last: as long as a file is left, the list opens with what opens that file.
        place, prefix = list_path(self.path), TablePrefix(self.path, known.beginning).of("")
        if not work.is_done(place, old, None if new_kms is None else new, prefix):
            rekey(place, kms=old, new_kms=new, master_keys=master_keys, aad_prefix=prefix)
    refreshed, said = None, ""
    if any(each.fate == "done" and each.output == each.path for each in done):
        bound = bound_to(self.path, None, beginning)
        keys = Decryption(kms=new, aad_prefix=bound)  # type: ignore[arg-type]
        refreshed, said = IndexAfter(self, None if callable(kms) else spark, keys).refreshed()
    return TableReport(
        table=self.path,
        verb="rekey",
        files=tuple(done),
        aad_prefix=beginning,
        refreshed=refreshed,
        notes=(said,) if said else (),
        seconds=time.perf_counter() - started,
    )


def _remove_summaries(table: Table) -> list[str]:
    """The summaries of the footers as they were: they tell the statistics of what is encrypted now,
    and nobody can use them any more."""
    from skipstone.rewrite.summary_files import COMMON
    from skipstone.storage.listing import SUMMARY

    found = [name for name in (SUMMARY, COMMON) if table.storage.exists(f"{table.path}/{name}")]
    for name in found:
        table.storage.delete(f"{table.path}/{name}")
    return found


def _require_local(table: Table, what: str) -> None:
    from skipstone.questdb.txn_snapshot import is_txn_table

    if "://" in table.path:
        raise UnsupportedError(f"{table.path} lies in an object store: only local files are {what}")
    if is_txn_table(table.path, table.storage):
        raise UnsupportedError(
            f"{table.path} names the sizes of its files in _txn: they cannot be replaced"
        )


def _each(
    table: Table, spark: SparkSession | None, job: Any, progress: Progress | None
) -> list[FileFate]:
    from .run_file_jobs import each_file

    return each_file(spark, table.listing(), job, progress)


def _relative(table: Table, paths: Iterable[str]) -> list[str]:
    from skipstone.rewrite.encrypted_file_list import TablePrefix

    place = TablePrefix(table.path, b"-")
    return [place.relative(path) for path in paths]


class _Listed:
    """The list of the files of a table while they are encrypted."""

    def __init__(
        self, table: Table, encryption: Encryption, held: SealedList, relative: Mapping[str, str]
    ) -> None:
        self.table, self.encryption, self.held = table, encryption, held
        self.relative = relative

    @property
    def beginning(self) -> bytes:
        """What the prefixes of the table begin with."""
        return self.held.beginning

    @property
    def decryption(self) -> Decryption:
        """What opens the files of the table, each in its place."""
        from skipstone.rewrite.encrypted_file_list import TablePrefix

        place = TablePrefix(self.table.path, self.beginning)
        return self.encryption.decryption().replaced(aad_prefix=place)

    @classmethod
    def begun(
        cls, table: Table, made: Encryption, old: Decryption | None, paths: Sequence[str]
    ) -> _Listed | None:
        """The name of the table, found or made, written down before the first file is encrypted;
        ``None`` where the user has a function for prefixes, of which nothing is known."""
        from skipstone.rewrite.encrypted_file_list import SealedList, TablePrefix, new_beginning
        from skipstone.rewrite.file_jobs import unbound

        asked = unbound(made.aad_prefix)
        if asked is None and made.aad_prefix is not None:
            return None
        known = _known_list(table, made, old)
        beginning = asked or (known.beginning if known is not None else None)
        if beginning is None and not made.store_aad_prefix:
            raise SkipstoneError(
                "an AAD prefix that is not stored must be given",
                hint="name the table: aad_prefix=b'orders'",
            )
        if known is None or known.beginning != beginning:
            known = SealedList(beginning=beginning or new_beginning(table.path))
        place = TablePrefix(table.path, known.beginning)
        listed = cls(table, made, known, {path: place.relative(path) for path in paths})
        # What is encrypted anew has another unique part, and a run may be killed any time.
        sure = {} if old is not None else known.files
        names = {*known.files, *listed.relative.values()}
        listed.write({name: sure.get(name, b"") for name in names})
        return listed

    def write(self, files: Mapping[str, bytes]) -> None:
        """The list, anew."""
        from skipstone.rewrite.encrypted_file_list import SealedList, write_list

        write_list(
            self.table.path, SealedList(beginning=self.beginning, files=files), self.encryption
        )

    def finish(self, done: Sequence[FileFate]) -> list[str]:
        """Write what the files have now; what is to be said of it."""
        held, now = self.held.files, dict(self.held.files)
        others: list[str] = []
        for each in done:
            name = self.relative.get(each.path)
            if name is None or each.fate == "failed":
                continue
            now[name] = bytes.fromhex(each.aad_file_unique)
            if each.fate == "already" and held.get(name) not in (None, b"", now[name]):
                others.append(name)
        gone = set(held) - set(self.relative.values())
        if not any(each.fate == "failed" for each in done):
            now = {name: unique for name, unique in now.items() if name not in gone}
        else:
            gone = set()
        self.write({**dict.fromkeys(self.relative.values(), b""), **now})
        return [
            f"{what}: {', '.join(sorted(names)[:_SHOWN])}"
            for what, names in (
                ("other versions than were on the list of files", others),
                ("not there any more, and taken off the list of files", gone),
            )
            if names
        ]


def _known_list(table: Table, made: Encryption, old: Decryption | None) -> SealedList | None:
    """The list there is, with the new keys or the old ones."""
    from skipstone.rewrite.encrypted_file_list import read_list
    from skipstone.rewrite.file_jobs import unbound

    keys = [made.decryption(), *([] if old is None else [old])]
    why = ""
    for each in keys:
        stated = unbound(each.aad_prefix) if each.aad_prefix is not None else None
        # First as it says itself: a table may be given another name.
        for prefix in (None, *([] if stated is None else [stated])):
            try:
                return read_list(table.path, each.replaced(aad_prefix=prefix))
            except (KeyUnavailableError, FormatError) as error:
                why = error.message
    raise SkipstoneError(
        f"the list of the encrypted files of {table.path} does not open: {why}",
        hint="give the keys that it was written with, too",
    )
