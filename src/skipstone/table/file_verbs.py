"""The verbs of ``Table`` that write its data files: in place, or saved beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .encrypt import EncryptRequest, RekeyRequest, decrypt_table, encrypt_table, rekey_table
from .open_table import OpenTable
from .rewrite import (
    RetrofitFiles,
    SalvageFiles,
    retrofit_table,
    salvage_table,
    write_table_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.parquet.encryption.key_material import KmsClient
    from skipstone.rewrite.file_jobs import Given
    from skipstone.rewrite.retrofit_file import TableRetrofitReport
    from skipstone.rewrite.summary_files import SummaryReport
    from skipstone.rewrite.table_report import TableReport

    from .file_format import Progress


class FileVerbs(OpenTable):
    """The verbs that write data files; see ``Table``."""

    def retrofit(
        self,
        spark: SparkSession | None = None,
        *,
        bloom: Mapping[str, float] | None = None,
        page_rows: int | None = None,
        sorting: Sequence[str] | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TableRetrofitReport:
        """Add page indexes, Bloom filters, checksums and statistics to the files that lack them.

        >>> table.retrofit(spark, bloom={"user_id": 0.01})

        As ``skipstone.rewrite.retrofit`` does to one file; with ``spark`` as a job. A file that has
        all of it is passed over, so a run that ended early is resumed by the next. A file that
        cannot be done is in the report, and stops no other. Afterwards the table's index, if it has
        one, is refreshed. ``progress`` is called with files done and files to do, in a job when a
        task ends.
        """
        work = RetrofitFiles(
            bloom=dict(bloom or {}),
            page_rows=page_rows,
            sorting=None if sorting is None else tuple(sorting),
            dry_run=dry_run,
        )
        return retrofit_table(self, spark, work, progress)

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
        ``aad_prefix`` is a function, it returns the whole prefix of each file instead. Files that
        are encrypted so already are passed over: a run that ended early is resumed by the next.
        Files encrypted otherwise fail, unless ``decryption`` opens them. Afterwards an encrypted
        list of the files lies beside the table (``rewrite/encrypted_file_list.py``); ``check``
        finds missing files by it.

        ``encryption`` and ``decryption`` may be functions without arguments that make them: they
        are called here and in every task, so that no key travels with a job. Objects that hold keys
        travel within the function of the job, between processes of the session.

        Indexes over columns that are encrypted now were built in the clear: they are dropped, and
        the report names them, unless ``plaintext_index`` keeps them. With ``index_encryption`` (of
        a table opened with ``index_keys``) the whole index is built again, encrypted. ``_metadata``
        and ``_common_metadata``, which hold the earlier footers, are removed.
        """
        request = EncryptRequest(
            encryption=encryption,
            decryption=decryption,
            index_encryption=index_encryption,
            plaintext_index=plaintext_index,
        )
        return encrypt_table(self, spark, request, progress)

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
        (what the prefixes of the table begin with, or a function from a file to its prefix), or by
        the list of the files, which also has its version. Files in the clear are passed over. The
        list is removed after the last file, and the index is refreshed.
        """
        return decrypt_table(self, spark, decryption, progress)

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
        for ``encrypt``. Files without an old master key are passed over. ``aad_prefix`` is what the
        prefixes of the table begin with, where it is not stored.
        """
        request = RekeyRequest(
            kms=kms, new_kms=new_kms, master_keys=dict(master_keys or {}), aad_prefix=aad_prefix
        )
        return rekey_table(self, spark, request, progress)

    def salvage(
        self,
        spark: SparkSession | None = None,
        *,
        output: str | None = None,
        schema: str | None = None,
        skip_bad_pages: bool = False,
        footer_only: bool = False,
        decryption: Given[Decryption] | None = None,
        progress: Progress | None = None,
    ) -> TableReport:
        """Save the rows of the files that are damaged; good files are passed over.

        >>> table.salvage(output="lake/saved")

        No file of the table is touched. The rows of ``x.parquet`` go to ``x.parquet`` at the same
        place below the directory ``output``, or to ``x.salvaged.parquet`` beside it: there they
        belong to the table, and removing ``x.parquet`` is up to you. Files salvaged before are
        passed over. The schema of a file without a footer is ``schema``, what is left of its
        footer, that of the files beside it, or that of the table where all good files agree.
        ``skip_bad_pages`` and ``footer_only`` as for ``skipstone.salvage.salvage``.

        With ``decryption``, by default the table's, encrypted files are salvaged too. Their rows
        are written **in the clear**, so ``output`` is required. The keys may be a function that
        makes them in each task. They are bound to the places of the files as for ``check``.
        """
        work = SalvageFiles(
            root=self.path,
            output=output,
            schema=schema,
            skip_bad_pages=skip_bad_pages,
            footer_only=footer_only,
            decryption=self.keys.get() if decryption is None else decryption,
        )
        return salvage_table(self, spark, work, progress)

    def write_metadata(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> SummaryReport:
        """Write ``_metadata`` and ``_common_metadata`` into the table's directory.

        >>> table.write_metadata()

        Plans then read the footers of all files from there with one request, for the file versions
        that it has. Footers of unchanged files are not read again; where no file changed, nothing
        is written. Call it after writing to the table: Spark takes the table's schema from
        ``_common_metadata``, and other readers may ignore files that ``_metadata`` does not name.
        ``progress`` is called with files done and files to do.

        ``UnsupportedError`` for files whose schemas differ, that are encrypted, or whose columns
        lie in other files; ``StaleError`` where one changes meanwhile.
        """
        return write_table_metadata(self, dry_run=dry_run, progress=progress)
