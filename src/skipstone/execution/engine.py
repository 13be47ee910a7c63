"""The embedded engine: what a table keeps between queries, and how a plan of it becomes rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from .export_files import handed
from .file_columns import TableColumns
from .io_forecast import foresee
from .open_files import OpenFiles
from .ordering import first_rows, sorted_rows
from .plan_rows import TableReader, output_schema
from .table_sources import Footers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skipstone.paimon.top_rows import Order
    from skipstone.planning.forecast import Forecast
    from skipstone.predicate.tree import Bound
    from skipstone.pruning.partitions import PartitionColumns
    from skipstone.pruning.plan import Plan
    from skipstone.storage import Listing, Storage

    from .engine_export import Handed
    from .ordering import FileBounds

__all__ = ["Engine", "QueryReader"]

# Files whose schemas make up that of the table, spread over the listing.
_SAMPLE = 16


class Engine:
    """Opened files and the schema of the files of one table."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None = None) -> None:
        self.files = OpenFiles(storage, storage_options)
        self._columns: tuple[Listing, pa.Schema, TableColumns] | None = None

    def columns(
        self, listing: Listing, canonical: pa.Schema, partitions: PartitionColumns
    ) -> TableColumns:
        """The table's columns; ``canonical`` is the schema that predicates are bound to."""
        known = self._columns
        if known is not None and known[1].equals(canonical) and known[0].same_files(listing):
            return known[2]
        found = TableColumns.of(canonical, self._arrow(listing, canonical), partitions)
        self._columns = listing, canonical, found
        return found

    def _arrow(self, listing: Listing, canonical: pa.Schema) -> pa.Schema:
        """Arrow's types of the files where they agree, else those that predicates are bound to."""
        n = len(listing)
        spread = sorted({round(i * (n - 1) / max(_SAMPLE - 1, 1)) for i in range(min(n, _SAMPLE))})
        fields: dict[str, pa.Field] = {}
        differ: set[str] = set()
        for file in self.files.open([listing.object_id(at) for at in spread]):
            if isinstance(file, Exception):
                continue
            for field in file.schema:
                known = fields.setdefault(field.name, field.with_nullable(True))
                if known.type != field.type:
                    differ.add(field.name)
        made = []
        for each in canonical:
            found = fields.get(each.name)
            if found is None or each.name in differ:
                found = pa.field(each.name, each.type)
            made.append(found.remove_metadata())
        return pa.schema(made)

    def footers(
        self, listing: Listing, canonical: pa.Schema, partitions: PartitionColumns
    ) -> Footers:
        """What there is to know of the insides of these files."""
        return Footers(self.files, listing, lambda: self.columns(listing, canonical, partitions))


@dataclass(frozen=True, slots=True, eq=False)
class QueryReader:
    """Reads a plan: of the rows that match ``tree`` the ``columns`` (``None``: all), ordered, and
    no more than ``limit``."""

    footers: Footers
    tree: Bound
    columns: tuple[str, ...] | None = None
    orders: tuple[Order, ...] = ()
    limit: int | None = None
    #: what is known of a column over the files, before they are opened
    bounds: FileBounds | None = None

    def reader(self) -> TableReader:
        """Who reads the rows of this query, in no order."""
        return TableReader(self.footers, self.tree, self.columns)

    @property
    def schema(self) -> pa.Schema:
        """Of the result."""
        return output_schema(self.footers.table.schema, self.columns)

    def tables(self, plan: Plan) -> Iterator[pa.Table]:
        """The rows, piece by piece; what a limit leaves out is not read."""
        reader = self.reader()
        if self.orders:
            found = first_rows(reader, plan, self.orders, self.limit, self.bounds)
            yield sorted_rows(reader, found.file, found.row)
            return
        if self.limit is None:
            yield from reader.tables(plan)
            return
        left = self.limit
        if not left:
            return
        for table in reader.tables(plan):
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                return

    def table_of(self, plan: Plan) -> pa.Table:
        """All rows as one table."""
        pieces = list(self.tables(plan))
        if len(pieces) == 1:
            return pieces[0]
        if pieces:
            return pa.concat_tables(pieces)
        return self.schema.empty_table()

    def batches(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        """The same as record batches."""
        for table in self.tables(plan):
            yield from table.to_batches()

    def foresee(self, plan: Plan, *, look: bool) -> Forecast:
        """What reading will ask for; ``look`` as in ``foreseeing``."""
        at_most = bool(self.orders) or self.limit is not None
        return foresee(self.reader(), plan, look=look, at_most=at_most)

    def handed(self, plan: Plan) -> Handed:
        """The files of a plan as other engines read them."""
        return handed(self.footers, plan)

    def count(self, plan: Plan) -> int:
        """How many rows match: read only where the plan is not sure."""
        reader = TableReader(self.footers, self.tree, ())
        total = 0
        for piece in reader.pieces(plan):
            if piece.sure:
                total += len(piece.rows) if piece.rows is not None else piece.file.opened.num_rows
            else:
                total += len(reader.read_with_rows(piece)[0])
        return total
