"""The index of a table whose files were encrypted, decrypted or given other keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipstone.errors import SkipstoneError, command, in_words
from skipstone.predicate.types import column_path
from skipstone.pruning import Cause
from skipstone.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from skipstone.facts import Store
    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.facts.reports import BuildReport
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.pruning.kind import Index

    from .build import BuildVerbs


class IndexAfterRewrite:
    """The index of a table whose files were rewritten; ``keys`` open them."""

    def __init__(
        self,
        table: BuildVerbs,
        spark: SparkSession | None,
        keys: Decryption | None,
        *,
        plaintext_index: bool = False,
    ) -> None:
        self.table, self.spark, self.keys = table, spark, keys
        self.plaintext_index = plaintext_index
        self.dropped: list[Index] = []
        self.notes: list[str] = []

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
        """The unencrypted indexes over columns that ``encryption`` encrypts."""
        from skipstone.predicate.indexed import columns_of_name

        return [
            f"{','.join(each.columns)}:{each.kind}"
            for each in (() if self._store is None else self._store.snapshot().definitions)
            if each.key_metadata is None
            and not all(
                encryption.is_plaintext(column_path(read))
                for name in each.columns
                for read in columns_of_name(name)
            )
        ]

    def drop_clear(self, encryption: Encryption, *, whole: bool) -> tuple[str, ...]:
        """Drops these indexes, and with ``whole`` all others, which are then built again."""
        from skipstone.facts.compact import compact, drop_index

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

    def after_encryption(
        self, made: Encryption, index_encryption: IndexEncryption | None, *, changed: bool
    ) -> tuple[tuple[str, ...], BuildReport | None, list[str]]:
        """Handles an unencrypted index over files that ``made`` encrypted. Returns the dropped
        indexes, the build or refresh that followed, and notes. ``changed``: files were encrypted
        now.
        """
        notes: list[str] = []
        dropped: tuple[str, ...] = ()
        location = self.table.location
        if not self.plaintext_index:
            dropped = self.drop_clear(made, whole=index_encryption is not None)
            if self.unpublish(made):
                notes.append(f"removed: it was published in the clear: {location.xskipper}")
        report = None
        if index_encryption is not None and self.dropped:
            report = self.rebuilt(index_encryption)
        elif changed:
            report = self.refreshed()
        if self.plaintext_index and (kept := self.clear(made)):
            notes.append(f"kept in the clear, as requested: {', '.join(kept)}")
        if dropped and index_encryption is None and self.table.storage.has_children(location.packs):
            notes.append(
                "packs of the index still hold row group metadata of the earlier files in the"
                f" clear: run {command('vacuum', self.table.path, '--older-than', '0s')} while no"
                " build runs"
            )
        return dropped, report, notes

    def unpublish(self, encryption: Encryption) -> bool:
        """Remove a clear Xskipper directory next to the index; returns whether there was one."""
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

    def rebuilt(self, encryption: IndexEncryption) -> BuildReport | None:
        """Build the dropped indexes again, encrypted. If that fails, ``notes`` say why."""
        return self._tried(
            lambda: self.table.build(
                self.spark, self.dropped, decryption=self.keys, encryption=encryption
            )
        )

    def refreshed(self) -> BuildReport | None:
        """Refresh the index. If that fails, ``notes`` say why."""
        if self._store is None or not self.table.store.snapshot().definitions:
            return None
        return self._tried(
            lambda: self.table.refresh(
                self.spark, decryption=self.keys, plaintext_index=self.plaintext_index
            )
        )

    def _tried(self, do: Callable[[], BuildReport]) -> BuildReport | None:
        try:
            return do()
        except (SkipstoneError, OSError) as error:
            self.notes.append(f"the index was not refreshed: {in_words(error)}")
            return None
