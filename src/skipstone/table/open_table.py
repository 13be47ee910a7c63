"""``OpenTable``: the files and the index of a table, and how both are opened.

Every verb of ``Table`` uses this value. It lists the files, finds their schema, matches them with
the facts of the index, and caches values that queries share. It changes nothing.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from skipstone.errors import KeyUnavailableError, NoIndexError, SkipstoneError, UnsupportedError
from skipstone.facts.find import find_store
from skipstone.facts.location import KeyedLocation, XskipperLocation
from skipstone.paimon.adjacent_index import AdjacentIndexes, AdjacentRows
from skipstone.paimon.options import FileIndexOptions, is_option
from skipstone.pruning import Cause
from skipstone.pruning.partitions import RECURSIVE, PartitionColumns, files_of_table, lookup_of
from skipstone.pruning.table_schema import FileSchema, TableSchema, spelled_as
from skipstone.questdb import TXN, is_txn_table
from skipstone.storage import Listing, Storage, full_path, open_storage, table_format
from skipstone.storage import storage_options as options_for
from skipstone.storage.base import carried
from skipstone.storage.some_files import Paths, SomeFiles, is_pattern, paths_of
from skipstone.table_formats import SnapshotListing, SnapshotTable, open_named, open_table

from .file_format import (
    DataKeys,
    FileFormat,
    FileOptions,
    ParquetFormat,
    SparkFormat,
    indexed_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.execution import Engine
    from skipstone.facts import Location, MatchedFacts
    from skipstone.facts.snapshot import Snapshot
    from skipstone.identity import ObjectId
    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.encryption.master_keys import KeySource, LabelledKeys
    from skipstone.predicate.dnf import Filter
    from skipstone.pruning.plan import Coverage
    from skipstone.rewrite.file_jobs import Given
    from skipstone.spark.catalog.table import CatalogTable

    from .txn_table import TxnTable


#: SQL text, or pyarrow's filters: tuples, or lists of tuples
Where: TypeAlias = "str | Sequence[Filter] | Sequence[Sequence[Filter]] | None"


class OpenTable:
    """A table's files and its index; see the module, and ``Table`` for the arguments."""

    #: the table in the catalog, where it was named
    catalog: CatalogTable | None = None
    # ``top`` of the last listing of an object store.
    _top: frozenset[str] | None = None
    # The last list of all files below the path, and those of the table.
    _last: tuple[Listing, Listing] | None = None
    _txn: TxnTable | None = None

    def __init__(
        self,
        path: Paths | SparkSession,
        name: str | None = None,
        *,
        index_location: str | os.PathLike[str] | XskipperLocation | None = None,
        storage_options: Mapping[str, str] | None = None,
        format: str = "parquet",
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
        sidecars: bool | None = None,
        partial: bool = False,
        recursive_file_lookup: bool = False,
        version: int | str | None = None,
        timestamp: str | datetime | None = None,
        index_keys: KeySource | None = None,
        decryption: Given[Decryption] | None = None,
        verify_checksums: bool = True,
        memory: int | None = None,
    ) -> None:
        reading = FileOptions(format, options or {}, schema or None, recursive_file_lookup)
        given_paths = paths_of(path)
        if given_paths is None:
            from skipstone.spark.catalog.table import CatalogTable

            self.catalog = catalog = CatalogTable.of(path, name)
            if partial or reading != FileOptions():
                raise UnsupportedError(
                    f"{catalog.name}: the catalog has the format, options and schema of a table",
                    hint="leave them out, or open the table by its path",
                )
            given_paths, reading = [catalog.location], FileOptions.of_catalog(catalog)
            index_location = index_location or catalog.index_location
        elif name is not None:
            raise TypeError(f"Table(spark, {name!r}): the session comes first, not {path!r}")
        self.partial, self.verify_checksums, self.memory = partial, verify_checksums, memory
        self.version, self.timestamp = version, timestamp  # of a table of a table format
        #: files that the table leaves out, and why; see ``query_readable``
        self.skipped: dict[str, str] = {}
        self._open_place(given_paths, storage_options)
        self._open_files(reading, decryption)
        self._open_index(index_location, index_keys)
        self._adjacent = AdjacentIndexes(self.storage) if self.is_parquet else None
        # File indexes next to encrypted files are in the clear, and anybody may have written them.
        wanted = sidecars if sidecars is not None else not self.keys
        self._uses_sidecars = wanted and self.file_index.read_enabled

    def _open_place(
        self,
        given_paths: Sequence[str | os.PathLike[str]],
        storage_options: Mapping[str, str] | None,
    ) -> None:
        """Where the table lies, and the storage there."""
        first = given_paths[0] if given_paths else "/"
        named = open_named(first, storage_options or {}, self.version, self.timestamp)
        self.named = None if named is None else os.fspath(first)  # in a catalog
        if named is not None:
            given_paths, storage_options = [first := named.root], named.storage_options
        storage = open_storage(full_path(first, storage_options), storage_options)
        chosen: SomeFiles | str = os.fspath(first)
        if len(given_paths) != 1 or (self.catalog is None and is_pattern(os.fspath(first))):
            chosen = SomeFiles.of(given_paths, storage)
        #: the files of the table that are read, where they were named by a pattern or a list
        self.some: SomeFiles | None = None if isinstance(chosen, str) else chosen
        self.path = full_path(chosen if isinstance(chosen, str) else chosen.root, storage_options)
        #: as given, or from the configuration of a Spark session, which tasks lack
        self.storage_options = options_for(self.path, storage_options)
        self.storage: Storage = open_storage(self.path, self.storage_options)
        self._snapshots = None if named is None else SnapshotTable(self.path, self.storage, named)

    def _open_files(self, reading: FileOptions, decryption: Given[Decryption] | None) -> None:
        """How the files are read."""
        format, given = reading.format, reading.options
        if self.some is not None and format != "parquet":
            raise UnsupportedError(
                f"{self.some}: a pattern or a list names Parquet files, not {format}",
                hint="name the directory of the table",
            )
        #: Paimon's options of file indexes
        self.file_index = FileIndexOptions.parse({k: v for k, v in given.items() if is_option(k)})
        own = {k: each for k, each in given.items() if not is_option(k)}
        asked = lookup_of(own)
        #: all files below, and no partition columns, as by Spark's option of this name
        self.recursive_file_lookup = reading.recursive if asked is None else asked
        #: the keys of the data files
        self.keys = DataKeys(self.path, decryption)
        self.file_format: FileFormat
        if format == "parquet":
            some = None if self.some is None else self.listing
            self.file_format = ParquetFormat(self.path, self.storage, self.keys, some)
        elif self.keys:
            raise UnsupportedError(f"{self.path}: keys are for Parquet files, not for {format}")
        else:
            options = {**own, **self.lookup}
            self.file_format = SparkFormat(self.path, format, options, reading.schema)

    def _open_index(
        self,
        index_location: str | os.PathLike[str] | XskipperLocation | None,
        index_keys: KeySource | None,
    ) -> None:
        """Where the index lies, and its keys."""
        if isinstance(index_location, str | os.PathLike):
            index_location = full_path(index_location, self.storage_options)
        keys: LabelledKeys | None = None
        if index_keys is not None:
            from skipstone.parquet.encryption.master_keys import labelled_keys

            keys = labelled_keys(index_keys)
        self.store = find_store(self.path, index_location, self.storage_options, keys, self.storage)
        #: whether the user named the place of the index
        self.names_index = index_location is not None
        #: where transparent reading looks for the index
        self.index_location: str | XskipperLocation | KeyedLocation
        self.index_location = index_location or self.location.root
        if keys is not None and isinstance(self.index_location, str):
            self.index_location = KeyedLocation(self.index_location, keys)

    @property
    def location(self) -> Location:
        """Where the index lies."""
        return self.store.location

    @property
    def is_parquet(self) -> bool:
        """Whether the files are Parquet files, which are read without Spark too."""
        return isinstance(self.file_format, ParquetFormat)

    def require_parquet(self, hint: str | None = None) -> ParquetFormat:
        """The file format, or ``UnsupportedError`` where it is not Parquet."""
        if not isinstance(self.file_format, ParquetFormat):
            raise UnsupportedError(f"{self.path} is not a table of Parquet files", hint=hint)
        return self.file_format

    def listing(self, known: Callable[[], Sequence[str]] | None = None) -> Listing:
        """The data files now, those that were named, or those of the snapshot of a table format.
        ``known`` as for ``Storage.list_files``."""
        if self.catalog is not None:
            return self._of_catalog(self.catalog)
        if self._snapshots is not None:
            return self._snapshots.listing()
        listing: Listing | None = None
        if self.storage.remote and self.some is None:
            # One listing says what several requests would ask.
            try:
                listing = self.storage.list_files(self.path, known)
            except SkipstoneError:
                if self.snapshots() is None:
                    raise
            else:
                self._top = listing.top
        if (snapshots := self.snapshots(None if listing is None else listing.top)) is not None:
            return snapshots.listing(listing)
        if self.txn is not None:
            self.require_whole("a snapshot")
            return self.txn.listing()
        if self.some is not None:
            listing = self.some.listing(self.storage)
        elif listing is None:
            listing = self.storage.list_files(self.path)
        if self._adjacent is not None:
            listing = self._adjacent.data_files(listing)
        if self.some is not None and self._last is not None:
            listing = self._last[0] if self._last[0].same_files(listing) else listing
        if self._last is None or self._last[0] is not listing:
            every = self.recursive_file_lookup or (
                self.some is not None and not any("=" in name for name in listing.folders.names)
            )
            own = replace(listing, recursive=True) if every else files_of_table(listing)
            if self.skipped:
                own = own.where([at for at, p in enumerate(own.paths) if p not in self.skipped])
            self._last = (listing, own)
        return self._last[1]

    def skip_files(self, errors: Mapping[str, str]) -> None:
        """Leave out these files from now on."""
        self.skipped |= errors
        self._last = None

    def require_whole(self, verb: str) -> None:
        """``UnsupportedError`` for a verb over the whole index where some files were named."""
        if self.some is not None:
            raise UnsupportedError(
                f"{self.some} names some files, and {verb} works on the index of all files",
                hint=f"name the directory: {self.path}",
            )

    def _of_catalog(self, catalog: CatalogTable) -> Listing:
        """The files of the partitions that the catalog has now."""
        listing = catalog.listing(self.storage)
        if self._adjacent is not None:
            listing = self._adjacent.data_files(listing)
        if self._last is None or not self._last[1].same_files(listing):
            self._last = (listing, listing)
        return self._last[1]

    def snapshots(self, top: frozenset[str] | None = None) -> SnapshotTable | None:
        """The snapshots of a table of a table format, ``None`` for other tables; ``top`` as for
        ``table_format``."""
        if self._snapshots is None:
            of_catalog = self.catalog is not None
            format = None if of_catalog else table_format(self.path, self.storage, top)
            if format is not None:
                self.require_whole("a snapshot")
            place = self.path, self.storage, self.storage_options
            self._snapshots = open_table(format, *place, self.version, self.timestamp)
        return self._snapshots

    def kept_at(self, snapshots: SnapshotTable) -> Self:
        """A copy of this table that stays at the snapshot of ``snapshots``."""
        other = copy(self)
        other.version, other.timestamp = snapshots.source.snapshot().reopened, None
        other._snapshots = snapshots
        return other

    def require_plain(self, what: str) -> None:
        """Raises ``UnsupportedError`` for a table of a table format; ``what`` says why."""
        if (snapshots := self.snapshots()) is not None:
            name = snapshots.source.format
            text = f"{self.path} is a table of {name}: {what}"
            raise UnsupportedError(text, hint=f"only writers of {name} change it")

    @property
    def lookup(self) -> dict[str, str]:
        """The option of Spark's reader for ``recursive_file_lookup``."""
        return {RECURSIVE: "true"} if self.recursive_file_lookup else {}

    def with_lookup_of(self, options: Mapping[str, str]) -> Self:
        """This table, or a copy with the ``recursiveFileLookup`` of a reader's ``options``."""
        asked = lookup_of(options)
        if asked in (None, self.recursive_file_lookup) or not self.is_parquet:
            return self
        other = copy(self)
        other.recursive_file_lookup = asked is True
        other._last = None
        return other

    @property
    def txn(self) -> TxnTable | None:
        """The snapshots of a table with a ``_txn``; ``None`` for other tables."""
        if self._txn is None and self.is_parquet and self.catalog is None:
            top = self._top
            if is_txn_table(self.path, self.storage) if top is None else TXN in top:
                from .txn_table import TxnTable

                self._txn = TxnTable(self.path, self.storage, partial=self.partial)
            elif self.partial:
                raise UnsupportedError(
                    f"{self.path} has no _txn, so there are no partitions to leave out",
                    hint="partial=True (--partial) is for tables of QuestDB",
                )
        return self._txn

    def coverage(self, listing: Listing) -> Coverage | None:
        """How many of the partitions ``listing`` holds, for a table opened with ``partial``."""
        return None if self.txn is None else self.txn.coverage(listing)

    def has_sidecars(self) -> bool:
        """Whether Paimon's file indexes lie next to the files now."""
        listing = self.listing() if self.is_parquet else None
        if isinstance(listing, SnapshotListing):
            return listing.has_indexes
        return bool(self._adjacent)

    def sidecars_of(
        self,
        listing: Listing,
        columns: Iterable[str],
        containers: Mapping[str, bytes] | None = None,
    ) -> AdjacentRows | None:
        """The evidence of file indexes next to the files of ``listing``, where they are used;
        ``containers`` as for ``Table.plan``."""
        if self._adjacent is None or not self._uses_sidecars:
            return None
        if isinstance(listing, SnapshotListing):
            return listing.indexes(self._adjacent, columns, containers or {})
        if not self._adjacent and not containers:
            return None
        return self._adjacent.rows_of(listing, columns, containers)

    @contextmanager
    def opened_with(self, decryption: Decryption | None) -> Iterator[None]:
        """Opens files with these keys in place of the table's; opened files are not kept."""
        files = self.file_format
        if not isinstance(files, ParquetFormat) or decryption == self.keys.get():
            yield
            return
        self.__dict__.pop("engine", None)
        files.decryption = decryption
        try:
            yield
        finally:
            files.decryption = None
            self.__dict__.pop("engine", None)

    def file_schema(
        self, listing: Listing, matched: MatchedFacts | None = None, *, or_indexed: bool = False
    ) -> TableSchema:
        """The schema of all Parquet files of ``listing``, and how it was found.

        ``matched`` are the facts of these files, where the caller has them.

        Where no file can be opened for lack of a key: with ``or_indexed`` the indexed columns,
        because an index in the clear needs no key; else, or without an index,
        ``KeyUnavailableError``.
        """
        if isinstance(listing, SnapshotListing):
            return listing.snapshot.table_schema
        try:
            matched = matched or self.match(listing, or_none=True)
            found = self.engine.schema(listing, matched.schemas)
            return found if self.catalog is None else self._spelled(found, matched, self.catalog)
        except KeyUnavailableError as error:
            indexed = indexed_columns(self.store)
            if or_indexed and len(indexed):
                merged = FileSchema.canonical(indexed)
                return TableSchema(merged=merged, distinct=0, files_total=len(listing))
            if self.keys or self.require_parquet().decryption is not None:
                raise
            raise self.keys.none_given(listing.paths[0]) from error

    def _spelled(
        self, found: TableSchema, matched: MatchedFacts, catalog: CatalogTable
    ) -> TableSchema:
        """The columns in the case of the facts, else of the catalog; that of files may differ."""
        from skipstone.facts.coverage import indexed_names

        names = [*indexed_names(matched.snapshot.definitions), *catalog.columns]
        arrow, spark = (
            spelled_as(each, names) for each in (found.merged.arrow, found.merged.spark)
        )
        return replace(found, merged=FileSchema(arrow=arrow, spark=spark))

    def file_columns(self, listing: Listing, spark: SparkSession | None = None) -> pa.Schema:
        """The columns in the files, in canonical types."""
        if isinstance(self.file_format, SparkFormat):
            return self.file_format.schema(spark, self.store)
        if isinstance(listing, SnapshotListing):
            return listing.snapshot.of_files
        return self.file_schema(listing).merged.spark

    def schema(self, listing: Listing, spark: SparkSession | None = None) -> pa.Schema:
        """The table's schema as Spark reads it, partition columns last if folders have them."""
        if isinstance(listing, SnapshotListing):
            return listing.snapshot.table_schema.merged.spark
        return self.with_folders(self.file_columns(listing, spark), listing)

    def with_folders(self, schema: pa.Schema, listing: Listing) -> pa.Schema:
        """``schema`` of the files with the columns of the folders."""
        return PartitionColumns.of(listing).added_to(schema)

    def match(
        self,
        listing: Listing,
        spark: SparkSession | None = None,
        snapshot: Snapshot | None = None,
        *,
        or_none: bool = False,
    ) -> MatchedFacts:
        """The facts of the files of ``listing``, by those in the store now or in ``snapshot``.

        ``or_none``: there may be no index at the place that the user named.
        """
        fingerprint = self.file_format.fingerprint(spark, self.store)
        snapshot = snapshot or self.store.snapshot()
        return (snapshot if or_none else self.required(snapshot)).match(listing, fingerprint)

    def require_index(self) -> None:
        """``NoIndexError`` where there is no index at the place that the user named."""
        if self.names_index:
            self.required(self.store.snapshot())

    def required(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot``; ``NoIndexError`` where it has no facts, and the user named their place."""
        absent = not snapshot.parts and all(r.cause is Cause.ABSENT for r in snapshot.reasons)
        if self.names_index and absent and not self.store.exists():
            own = isinstance(self.index_location, str)
            hint = None if own else "correct the location of the store, or its keys"
            raise NoIndexError(self.location.root, self.path, hint=hint)
        return snapshot

    def listing_and_facts(self, columns: Collection[str]) -> tuple[Listing, Snapshot | None]:
        """The data files now, and the facts, where these are in an object store: both are read side
        by side, and what a plan over ``columns`` needs of the facts with them."""
        if not self.store.storage.remote:
            return self.listing(), None

        def read(_: None) -> Snapshot:
            found = self.store.snapshot()
            found.read_ahead(columns)
            return found

        def known() -> Sequence[str]:
            return sorted(each for each in reading.result().identities.paths.to_pylist() if each)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(carried(read), None)
            return self.listing(known), reading.result()

    @cached_property
    def engine(self) -> Engine:
        """The values that queries share: opened files, and the schema of the files.

        ``UnsupportedError`` for a table that only Spark reads.
        """
        from skipstone.execution import Engine

        files = self.require_parquet("read it with Spark: Table.read(spark, where)")
        engine = Engine(self.storage, self.storage_options)
        engine.files.verify_checksums = self.verify_checksums
        engine.files.memory = self.memory
        if self.txn is not None:
            engine.files.opening = self.txn.opening
        elif not self.keys:
            engine.files.summary = files.summary
        opening = engine.files.opening

        def with_keys(id: ObjectId) -> Mapping[str, Any]:
            keys = self.keys.get() if files.decryption is None else files.decryption
            return opening(id) if keys is None else {**opening(id), "decryption": keys}

        engine.files.opening = with_keys
        return engine
