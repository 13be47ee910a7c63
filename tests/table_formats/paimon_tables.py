"""Tables of Apache Paimon, written by ``pypaimon``, and their rows as its own reader gives them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

import skipstone
from tests.table_formats.delta_tables import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pypaimon.table.file_store_table import FileStoreTable

#: with them rows are deleted by deletion vectors
VECTORS = {
    "row-tracking.enabled": "true",
    "data-evolution.enabled": "true",
    "deletion-vectors.enabled": "true",
}
PREDICATES = ("id = 7", "kind = 'b/c'", "kind IS NULL", "amount > 50", "id > 20 AND amount IS NULL")


class Made:
    """A table at ``path``, in a catalog of the folder ``home``."""

    def __init__(
        self,
        home: Path,
        schema: pa.Schema,
        *,
        partitions: Sequence[str] = (),
        keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog = CatalogFactory.create({"warehouse": str(home)})
        self.catalog.create_database("db", True)
        own = {"file.format": "parquet", "metadata.stats-mode": "full", **(options or {})}
        made = Schema.from_pyarrow_schema(
            schema, partition_keys=list(partitions), primary_keys=list(keys), options=own
        )
        self.catalog.create_table("db.t", made, False)
        self.path = str(home / "db.db" / "t")

    @property
    def table(self) -> FileStoreTable:
        return self.catalog.get_table("db.t")

    def commit(self, data: pa.Table, *, overwrite: bool = False) -> None:
        builder = self.table.new_batch_write_builder()
        if overwrite:
            builder = builder.overwrite()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(data)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def append(self, **columns: Any) -> None:
        """A commit of these columns, in the types of the table."""
        self.commit(pa.table(columns, schema=self.schema))

    @property
    def schema(self) -> pa.Schema:
        from pypaimon.schema.data_types import PyarrowFieldParser

        return PyarrowFieldParser.from_paimon_schema(self.table.fields)

    def delete(self, ids: Sequence[int]) -> None:
        """A commit of a deletion vector."""
        builder = self.table.new_batch_write_builder()
        asked = self.table.new_read_builder().new_predicate_builder().is_in("id", list(ids))
        messages = builder.new_update().delete_by_predicate(asked)
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()

    def alter(self, *changes: SchemaChange) -> None:
        self.catalog.alter_table("db.t", list(changes), False)

    def read(self, snapshot: int | None = None) -> pa.Table:
        """The rows of a snapshot by the library's own reader."""
        table = self.table
        if snapshot is not None:
            table = table.copy({"scan.snapshot-id": str(snapshot)})
        builder = table.new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def assert_same(self, snapshot: int | None = None) -> None:
        """Rows, counts and extremes are those of the library's own reader."""
        table, wanted = skipstone.Table(self.path, version=snapshot), self.read(snapshot)
        found = table.query()
        assert rows(found) == rows(wanted)
        assert found.column_names == wanted.column_names
        assert table.count() == wanted.num_rows
        ids = wanted["id"].to_pylist()
        assert (table.min("id"), table.max("id")) == (
            min(ids, default=None),
            max(ids, default=None),
        )
        holds = {
            "id = 7": pc.equal(wanted["id"], 7),
            "kind = 'b/c'": pc.equal(wanted["kind"], "b/c"),
            "kind IS NULL": pc.is_null(wanted["kind"]),
            "amount > 50": pc.greater(wanted["amount"], 50.0),
            "id > 20 AND amount IS NULL": pc.and_(
                pc.greater(wanted["id"], 20), pc.is_null(wanted["amount"])
            ),
        }
        for where, mask in holds.items():
            assert rows(table.query(where)) == rows(wanted.filter(mask)), where
            assert table.count(where) == pc.sum(mask).as_py() if wanted.num_rows else True


class History(Made):
    """Random commits: with ``vectors`` rows are deleted, else the table is overwritten, too. (The
    library does not commit to a table with vectors that was overwritten.)"""

    def __init__(self, home: Path, seed: int, partitions: Sequence[str], *, vectors: bool) -> None:
        self.random, self.next, self.columns = random.Random(seed), 0, 0
        self.vectors = vectors
        schema = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("amount", pa.float64())])
        super().__init__(home, schema, partitions=partitions, options=VECTORS if vectors else {})
        self.grow()

    def step(self) -> None:
        other = [self.delete_some] * 2 if self.vectors else [self.replace]
        self.random.choice([self.grow, self.grow, self.add_column, self.tag, *other])()

    def batch(self) -> pa.Table:
        count, draw = self.random.randint(1, 12), self.random.random
        ids = list(range(self.next, self.next + count))
        self.next += count
        columns: dict[str, list[Any]] = {
            "id": ids,
            "kind": [self.random.choice(["a", "b/c", "ü %", None]) for _ in ids],
            "amount": [None if draw() < 0.2 else round(draw() * 100, 1) for _ in ids],
        }
        for at in range(self.columns):
            columns[f"c{at}"] = [None if draw() < 0.3 else self.random.randint(0, 9) for _ in ids]
        return pa.table(columns, schema=self.schema)

    def grow(self) -> None:
        self.commit(self.batch())

    def replace(self) -> None:
        self.commit(self.batch(), overwrite=True)

    def delete_some(self) -> None:
        left = self.read()["id"].to_pylist()
        if left:
            self.delete(self.random.sample(left, max(1, len(left) // 5)))

    def add_column(self) -> None:
        if self.columns < 3:
            self.alter(SchemaChange.add_column(f"c{self.columns}", AtomicType("INT")))
            self.columns += 1

    def tag(self) -> None:
        self.table.create_tag(f"tag-{self.random.randrange(10**9)}")
