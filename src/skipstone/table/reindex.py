"""The index of a table after its files were encrypted, decrypted or rekeyed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.errors import SkipstoneError
from skipstone.storage import open_storage

from .build import BuildRequest, build_table, refresh_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from skipstone.facts import Store
    from skipstone.facts.index_encryption import IndexEncryption
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.encryption import Encryption
    from skipstone.pruning.kind import Index

    from .open_table import OpenTable

__all__ = ["IndexAfterRewrite"]


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
        from skipstone.facts.xskipper import XskipperStore

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
        from skipstone.facts.upkeep import compact, drop_index, drop_store
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
            drop_store(store)
            return tuple(found)
        for each in found:
            column, _, kind = each.rpartition(":")
            drop_index(store, kind, column)
        # Facts of the earlier files are removed here. Packs are not: a running build may name them.
        compact(store, self.table.listing)
        return tuple(found)

    def unpublish(self, encryption: Encryption) -> bool:
        """Remove their Xskipper directory in the clear beside the index; whether there was one."""
        from skipstone.facts.xskipper.clearing import remove_clear
        from skipstone.predicate.types import column_path

        if self._store is None:
            return False
        store = self._store
        gone = remove_clear(
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
