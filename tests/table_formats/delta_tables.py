"""Tables of Delta Lake, written by ``deltalake``, and their rows as its own reader gives them."""

from __future__ import annotations

import json
import random
import string
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

import skipstone

#: columns that a history may add to a table, in this order
ADDED = (
    pa.field("x", pa.int64()),
    pa.field("y", pa.string()),
    pa.field("z", pa.float64()),
)

PREDICATES = ("id = 7", "kind = 'b/c'", "kind IS NULL", "amount > 50", "id > 20 AND amount IS NULL")


def rows(table: Any) -> list[str]:
    """The rows of an Arrow table without their order; NaN equals itself as text."""
    names = sorted(table.column_names)
    return sorted(repr([row[name] for name in names]) for row in table.to_pylist())


def read(path: str, version: int | None = None, where: str | None = None) -> list[str]:
    """The rows of a version by the library's own engine."""
    return rows(engine_table(path, version, where))


def engine_table(path: str, version: int | None = None, where: str | None = None) -> pa.Table:
    """The same as a table. (``to_pyarrow_table`` refuses deletion vectors.)"""
    found = QueryBuilder().register("t", DeltaTable(path, version=version))
    text = "SELECT * FROM t" + (f" WHERE {where}" if where else "")
    return pa.table(found.execute(text).read_all())


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
    """Random commits to the table at ``path``, each by ``deltalake``; with ``vectors`` rows are
    deleted by deletion vectors, too."""

    def __init__(
        self,
        path: Path,
        seed: int,
        partitions: list[str] | None = None,
        *,
        vectors: bool = False,
    ) -> None:
        self.path, self.random, self.vectors = str(path), random.Random(seed), vectors
        self.columns = 0
        self.next = 0
        made = {"delta.enableDeletionVectors": "true"} if vectors else None
        write_deltalake(self.path, self.batch(), partition_by=partitions, configuration=made)

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
        steps += [self.delete_by_vectors] * 5 if self.vectors else []
        step = self.random.choice(steps)
        step()
        return step.__name__

    def append(self) -> None:
        write_deltalake(self.path, self.batch(), mode="append")

    def overwrite(self) -> None:
        write_deltalake(self.path, self.batch(), mode="overwrite")

    def delete(self) -> None:
        self.table.delete(f"id % {self.random.randint(3, 9)} = 1")

    def delete_by_vectors(self) -> None:
        delete_by_vectors(self.path, self.random.choice([0.02, 0.3, 0.9]), self.random)

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


# Characters of Z85, the encoding of a deletion vector inside the log.
_Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
_PORTABLE = 1_681_511_377


def delete_by_vectors(path: str, share: float, random: random.Random) -> int:
    """A commit that deletes a share of the rows by deletion vectors inside the log, laid out as the
    protocol says: ``deltalake`` reads such vectors, and writes none. The number of rows."""
    version = DeltaTable(path).version()
    adds: dict[str, dict[str, Any]] = {}
    for at in range(version + 1):
        for line in _commit(path, at).read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
    live = pa.table(DeltaTable(path).get_add_actions()).column("path").to_pylist()
    actions: list[dict[str, Any]] = []
    total = 0
    for add in (adds[name] for name in live):
        rows = json.loads(add["stats"])["numRecords"]
        held = add.get("deletionVector")
        gone = BitMap64() if held is None else BitMap64.deserialize(_decoded(held)[4:])
        more = BitMap64(at for at in range(rows) if random.random() < share) - gone
        if not more:
            continue
        data = struct.pack("<i", _PORTABLE) + (gone | more).serialize()
        vector = {
            "storageType": "i",
            "pathOrInlineDv": _encoded(data),
            "sizeInBytes": len(data),
            "cardinality": len(gone | more),
        }
        old = {key: add[key] for key in ("path", "partitionValues", "size")}
        if held is not None:
            old["deletionVector"] = held
        times = {"dataChange": True, "deletionTimestamp": 1, "extendedFileMetadata": True}
        actions += [{"remove": {**old, **times}}, {"add": {**add, "deletionVector": vector}}]
        total += len(more)
    _commit(path, version + 1).write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    return total


def _commit(path: str, version: int) -> Path:
    return Path(path) / "_delta_log" / f"{version:020}.json"


def _encoded(data: bytes) -> str:
    data += bytes(-len(data) % 4)
    words = (int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4))
    return "".join(_Z85[word // 85**place % 85] for word in words for place in range(4, -1, -1))


def _decoded(vector: dict[str, Any]) -> bytes:
    text = vector["pathOrInlineDv"]
    found = b""
    for at in range(0, len(text), 5):
        word = 0
        for character in text[at : at + 5]:
            word = word * 85 + _Z85.index(character)
        found += word.to_bytes(4, "big")
    return found[: vector["sizeInBytes"]]


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
