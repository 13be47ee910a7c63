"""``Table.salvage``: good files out of those of a table that are damaged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skipstone.errors import FormatError, KeyUnavailableError, SkipstoneError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.rewrite.file_jobs import Given
    from skipstone.rewrite.table_report import FileFate, TableReport
    from skipstone.salvage.report import SalvageReport

    from .data_files import Progress
    from .table import Table

__all__ = ["salvage_table"]

_SUFFIX = ".salvaged.parquet"


def salvage_table(
    self: Table,
    spark: SparkSession | None = None,
    *,
    output: str | None = None,
    schema: str | None = None,
    skip_bad_pages: bool = False,
    footer_only: bool = False,
    decryption: Given[Decryption] | None = None,
    progress: Progress | None = None,
) -> TableReport:
    """Save the rows of the files that are damaged; the others are read, and passed over.

    No file of the table is touched. What is saved of ``x.parquet`` becomes ``x.parquet`` at the
    same place below the directory ``output``, or ``x.salvaged.parquet`` beside it: there it belongs
    to the table, and ``x.parquet`` is for you to remove. What was salvaged before is not salvaged
    again. The schema of a file without a footer is ``schema``, what is left of its footer, that of
    the files beside it, or that of the table where all of its good files agree.
    ``skip_bad_pages`` and ``footer_only`` as for ``skipstone.salvage.salvage``.

    With ``decryption``, by default the table's, encrypted files are looked at and salvaged too.
    What is saved of one is **in the clear**: so it goes to ``output``, which must be named then.
    The keys may be a function that makes them where files are done. They are bound to the places of
    the files as ``Table.check`` has it: by ``aad_prefix``, or by the list of the files.
    """
    from skipstone.questdb.txn_snapshot import is_txn_table
    from skipstone.rewrite.encrypted_file_list import read_list
    from skipstone.rewrite.file_jobs import given
    from skipstone.rewrite.table_report import TableReport

    from .run_file_jobs import each_file

    started = time.perf_counter()
    if "://" in self.path:
        raise UnsupportedError(
            f"{self.path} lies in an object store: only local files are salvaged"
        )
    if is_txn_table(self.path, self.storage):
        raise UnsupportedError(f"{self.path} names the sizes of its files in _txn")
    held = self.keys.get() if decryption is None else decryption
    keys, beginning = None, None
    notes: tuple[str, ...] = ()
    if held is not None:
        if output is None:
            raise UnsupportedError(
                "what is saved of encrypted files is in the clear, and is not put among them",
                hint="name the directory that it goes to: output=…, --output",
            )
        made = given(held, "the keys")
        try:
            known = read_list(self.path, made)
            beginning = None if known is None else known.beginning
        except (FormatError, KeyUnavailableError) as error:  # it may be damaged, too
            notes = (f"the list of the encrypted files does not open: {error.message}",)
        keys = _bound(self.path, made, beginning)
    listing = self.listing()
    fallback = None if schema is not None else _schema_of_table(self.path, listing.paths, keys)
    job = SalvageFiles(
        root=self.path,
        output=output,
        schema=schema,
        fallback=fallback,
        decryption=held,
        beginning=beginning,
        skip_bad_pages=skip_bad_pages,
        footer_only=footer_only,
    )
    done = each_file(spark, listing, job, progress)
    return TableReport(
        table=self.path,
        verb="salvage",
        files=tuple(done),
        notes=notes,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageFiles:
    """Salvage damaged files; ``fallback`` is a file that has the schema of the table."""

    root: str
    output: str | None = None
    schema: str | None = None
    fallback: str | None = None
    skip_bad_pages: bool = False
    footer_only: bool = False
    decryption: Given[Decryption] | None = field(default=None, repr=False)
    beginning: bytes | None = None

    def opened(self) -> Callable[[str, int], FileFate]:
        """The function that does it."""
        from skipstone.rewrite.file_jobs import fate_of, given

        keys = None
        if self.decryption is not None:
            keys = _bound(self.root, given(self.decryption, "the keys"), self.beginning)
        return lambda path, size: fate_of(path, lambda: self._one(path, size, keys))

    def _one(self, path: str, size: int, keys: Decryption | None) -> FileFate:
        from pathlib import Path

        from skipstone.rewrite.encrypted_file_list import TablePrefix
        from skipstone.rewrite.table_report import FileFate
        from skipstone.salvage.damage import damage_of
        from skipstone.salvage.salvage_file import salvage

        target = f"{path.removesuffix('.parquet')}{_SUFFIX}"
        if self.output is not None:
            target = f"{self.output}/{TablePrefix(self.root, b'-').relative(path)}"
        damage = damage_of(path, keys)
        if not damage:
            return FileFate(path=path, fate="already", output=path, bytes_read=size)
        if Path(target).exists():
            return FileFate(path=path, fate="already", output=target, bytes_read=size)
        Path(target).parent.mkdir(parents=True, exist_ok=True)

        def saved(schema: str | None) -> SalvageReport:
            return salvage(
                path,
                output=target,
                schema=schema,
                skip_bad_pages=self.skip_bad_pages,
                footer_only=self.footer_only,
                decryption=keys,
            )

        try:
            found = saved(self.schema)
        except SkipstoneError:
            if self.fallback is None:
                raise
            found = saved(self.fallback)
        if found.output is None:
            return FileFate(path=path, fate="failed", why=f"nothing could be saved: {damage}")
        left = len(found.row_groups) - len(found.saved)
        why = f"{damage}; saved {len(found.saved):,} of {len(found.row_groups):,} whole row groups"
        return FileFate(
            path=path,
            fate="done" if found.ok and not left else "partly",
            output=found.output,
            why=f"{why} with {found.num_rows:,} rows",
            bytes_read=size,
            bytes_written=Path(found.output).stat().st_size,
        )


def _bound(root: str, keys: Decryption, beginning: bytes | None) -> Decryption:
    """For each file in its place, files in the clear among them."""
    from skipstone.rewrite.file_jobs import bound_to

    prefix = bound_to(root, keys.aad_prefix, beginning)
    return keys.replaced(aad_prefix=prefix, allow_plaintext_files=True)


def _schema_of_table(root: str, paths: list[str], keys: Decryption | None) -> str | None:
    """A file that tells the schema of all: a summary, or any of those that agree."""
    from pathlib import Path

    from skipstone.salvage.schema_source import given

    for name in ("_common_metadata", "_metadata"):
        if Path(root, name).is_file():
            return str(Path(root, name))
    first, elements = None, None
    for path in paths:
        try:
            found = given(path, keys).elements
        except (SkipstoneError, OSError):
            continue
        if first is None:
            first, elements = path, found
        elif found != elements:
            return None
    return first
