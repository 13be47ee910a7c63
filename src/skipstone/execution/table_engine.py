"""What is kept of the files of one table between queries: open files, and their schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone._arrays import distinct_at
from skipstone.errors import SkipstoneError
from skipstone.pruning.costs import EarlierPlans
from skipstone.pruning.table_schema import (
    FileSchema,
    KnownSchemas,
    TableSchema,
    merge_schemas,
    untyped_columns,
)

from .file_columns import FileColumns, TableColumns
from .open_files import OpenFiles
from .table_files import Footers, IntArray, with_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.storage import ByteRange, Listing, Storage
    from skipstone.table_formats import TableSnapshot


class Engine:
    """Opened files and the schema of the files of one table."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None = None) -> None:
        self.files = OpenFiles(storage, storage_options)
        #: which levels of plans skipped nothing
        self.earlier = EarlierPlans()
        self._schema: tuple[Listing, TableSchema] | None = None
        self._last: tuple[Listing, FileSchema, TableColumns, dict[int, FileColumns]] | None = None

    def schema(self, listing: Listing, facts: KnownSchemas | None = None) -> TableSchema:
        """The schema of all files of ``listing``: from ``facts`` where they have it, else from the
        footers, which are opened together and stay open.

        Files that cannot be opened are skipped here: reading them reports the error. If none can,
        the first one's error is raised. ``UnsupportedError`` where types do not merge. An empty
        listing has an empty schema.
        """
        if self._schema is not None and self._schema[0].same_files(listing):
            known = self._schema[1]
            if facts is not None and known.from_footers:  # a build has stored them since
                stored = int(np.count_nonzero(facts.number >= 0))
                known = replace(known, from_facts=stored, from_footers=known.files_total - stored)
                self._schema = listing, known
            return known
        n = len(listing)
        found: dict[FileSchema, str] = {}
        if facts is not None:
            number = facts.number
            used, first = distinct_at(number[number >= 0])
            where = np.flatnonzero(number >= 0)[first]
            for each, at in zip(used.tolist(), where.tolist(), strict=True):
                found.setdefault(facts.schemas[each], listing.paths[at])
            left = np.flatnonzero(number < 0).tolist()
        else:
            left = list(range(n))
        failures: list[Exception] = []
        shared: set[object] = set()
        for at, file in zip(
            left, self.files.open([listing.object_id(i) for i in left]), strict=True
        ):
            try:
                if isinstance(file, Exception):
                    raise file
                if file.selection.shared in shared:
                    continue
                found.setdefault(file.file_schema, listing.paths[at])
                shared.add(file.selection.shared)
            except (SkipstoneError, OSError, ValueError, LookupError) as error:
                failures.append(with_path(error, listing.paths[at]))
        if failures and not found:
            raise failures[0]
        in_order = sorted(found.items(), key=lambda each: each[1])
        merged = merge_schemas([(path, schema) for schema, path in in_order])
        made = TableSchema(
            merged=merged,
            distinct=len(found),
            files_total=n,
            from_facts=n - len(left),
            from_footers=len(left) - len(failures),
            untyped=untyped_columns(found, merged) if len(found) > 1 else (),
        )
        if not failures:
            self._schema = listing, made
        return made

    def footers(
        self,
        listing: Listing,
        schema: FileSchema,
        partitions: PartitionColumns,
        ends: Callable[[], IntArray] | None = None,
        chunks: Callable[[Sequence[int]], Sequence[ByteRange]] | None = None,
        snapshot: TableSnapshot | None = None,
    ) -> Footers:
        """The footers of these files; none is opened yet. ``schema`` is that of all files; its
        canonical types are those that predicates are bound to. ``ends`` and ``chunks`` as for
        ``Footers``, ``snapshot`` as for ``TableColumns``."""
        last = self._last
        # A listing is the same object where nothing has changed since the last one.
        if last is None or last[0] is not listing or last[1] is not schema or partitions.values:
            table = TableColumns.of(schema, partitions, snapshot)
            last = self._last = listing, schema, table, {}
        return Footers(self.files, listing, *last[2:], ends, chunks)
