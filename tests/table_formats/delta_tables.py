"""Tables of Delta Lake, written by ``deltalake``, and their rows as its own reader gives them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import skipstone

if TYPE_CHECKING:
    from pathlib import Path

#: columns that a history may add to a table, in this order
ADDED = (
    pa.field("x", pa.int64()),
    pa.field("y", pa.string()),
    pa.field("z", pa.float64()),
)


def rows(table: Any) -> list[str]:
    """The rows of an Arrow table without their order; NaN equals itself as text."""
    names = sorted(table.column_names)
    return sorted(repr([row[name] for name in names]) for row in table.to_pylist())


def read(path: str, version: int | None = None, where: str | None = None) -> list[str]:
    """The rows of a version by the library's own engine."""
    found = QueryBuilder().register("t", DeltaTable(path, version=version))
    text = "SELECT * FROM t" + (f" WHERE {where}" if where else "")
    return rows(pa.table(found.execute(text).read_all()))


def assert_same(path: str, version: int | None = None, *predicates: str) -> None:
    """Rows, counts and extremes of a version are those of the library's own engine."""
    table = skipstone.Table(path, version=version)
    every = table.query()
    assert rows(every) == read(path, version)
    assert table.count() == every.num_rows
    assert every.schema.names == [f.name for f in DeltaTable(path, version=version).schema().fields]
    ids = [each for each in every.column("id").to_pylist() if each is not None]
    assert table.min("id") == min(ids, default=None)
    assert table.max("id") == max(ids, default=None)
    assert (
        table.query(columns=["id"], order_by="id desc", limit=3).column("id").to_pylist()
        == (sorted(ids, reverse=True)[:3])
    )
    for where in predicates:
        found = read(path, version, where)
        assert rows(table.query(where)) == found, where
        assert table.count(where) == len(found), where


class History:
    """Random commits to the table at ``path``, each by ``deltalake``."""

    def __init__(self, path: Path, seed: int, partitions: list[str] | None = None, **made: Any):
        self.path, self.random = str(path), random.Random(seed)
        self.columns = 0
        self.next = 0
        write_deltalake(self.path, self.batch(), partition_by=partitions, **made)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def batch(self) -> pa.Table:
        """Some new rows, with the columns that the table has now."""
        count = self.random.randint(1, 12)
        draw = self.random.random
        ids = list(range(self.next, self.next + count))
        self.next += count
        kinds = ["a", "b/c", "ü %", None]
        columns: dict[str, pa.Array] = {
            "id": pa.array(ids, pa.int64()),
            "kind": pa.array([self.random.choice(kinds) for _ in ids], pa.string()),
            "amount": pa.array(
                [None if draw() < 0.2 else round(draw() * 100, 1) for _ in ids], pa.float64()
            ),
        }
        for field in ADDED[: self.columns]:
            values = [None if draw() < 0.3 else self.random.randint(0, 9) for _ in ids]
            texts = [None if value is None else f"t{value}" for value in values]
            columns[field.name] = pa.array(
                texts if field.type == pa.string() else values, field.type
            )
        return pa.table(columns)

    def step(self) -> str:
        """One commit; its name."""
        steps = [self.append] * 4 + [self.delete, self.update, self.merge, self.add_column]
        steps += [self.compact, self.z_order, self.overwrite, self.checkpoint]
        step = self.random.choice(steps)
        step()
        return step.__name__

    def append(self) -> None:
        write_deltalake(self.path, self.batch(), mode="append")

    def overwrite(self) -> None:
        write_deltalake(self.path, self.batch(), mode="overwrite")

    def delete(self) -> None:
        self.table.delete(f"id % {self.random.randint(3, 9)} = 1")

    def update(self) -> None:
        self.table.update(updates={"amount": "amount + 1"}, predicate="id % 4 = 0")

    def merge(self) -> None:
        rows = self.batch()
        known = self.random.sample(range(self.next), min(3, self.next))
        ids = pa.array([*known, *rows.column("id").to_pylist()[len(known) :]], pa.int64())
        source = rows.set_column(0, "id", ids[: len(rows)])
        merged = self.table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()

    def add_column(self) -> None:
        if self.columns < len(ADDED):
            self.columns += 1
            write_deltalake(self.path, self.batch(), mode="append", schema_mode="merge")

    def compact(self) -> None:
        self.table.optimize.compact()

    def z_order(self) -> None:
        self.table.optimize.z_order(["id"])

    def checkpoint(self) -> None:
        self.table.create_checkpoint()
