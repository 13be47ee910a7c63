"""Column mapping of Delta Lake: names in the files that are others than the table's."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import skipstone
from skipstone.errors import UnsupportedError
from tests.table_formats.delta_tables import assert_same, delete_by_vectors, engine_table, rows
from tests.table_formats.make_golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

_TYPES = {"long": pa.int64(), "string": pa.string()}
_NAMES = ("a", "b", "c d", "e.f", "Id2")


class Mapped:
    """Commits to a table with column mapping, laid out as the protocol says: ``deltalake`` reads
    such tables, and does not write them."""

    def __init__(self, path: Path, seed: int, mode: str) -> None:
        self.path, self.random, self.mode = path, random.Random(seed), mode
        self.version, self.ids, self.rows = 0, 0, 0
        (path / "_delta_log").mkdir(parents=True)
        inside = {"type": "struct", "fields": [self.field("x", "long"), self.field("y", "string")]}
        columns = {"id": "long", "a": "string", "b": "long", "s": inside, "part": "string"}
        self.fields = [self.field(*each) for each in columns.items()]
        features = ["columnMapping", "deletionVectors"]
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features, "writerFeatures": features}
        self.commit({"protocol": protocol}, self.metadata())

    def field(self, name: str, type: Any) -> dict[str, Any]:
        self.ids += 1
        mapped = {
            "id": self.ids,
            "physicalName": f"col-{uuid.UUID(int=self.random.getrandbits(128))}",
        }
        metadata = {f"delta.columnMapping.{key}": value for key, value in mapped.items()}
        return {"name": name, "type": type, "nullable": True, "metadata": metadata}

    def commit(self, *actions: dict[str, Any]) -> None:
        text = "".join(f"{json.dumps(each)}\n" for each in actions)
        self.version = len(list((self.path / "_delta_log").iterdir()))
        (self.path / "_delta_log" / f"{self.version:020}.json").write_text(text)

    def metadata(self) -> dict[str, Any]:
        wanted = {"mode": self.mode, "maxColumnId": str(self.ids)}
        settings = {f"delta.columnMapping.{key}": value for key, value in wanted.items()}
        part = next(each["name"] for each in self.fields if each["metadata"] == self.part)
        return {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": self.fields}),
                "partitionColumns": [part],
                "configuration": {**settings, "delta.enableDeletionVectors": "true"},
                "createdTime": 1,
            }
        }

    @property
    def part(self) -> dict[str, Any]:
        """What the partition column keeps when it is renamed."""
        self._part = getattr(self, "_part", self.fields[-1]["metadata"])
        found: dict[str, Any] = self._part
        return found

    def append(self, foreign: bool = False) -> None:
        """A file; a ``foreign`` one has names of its own, and the ids."""
        count = self.random.randint(1, 9)
        ids = list(range(self.rows, self.rows + count))
        self.rows += count
        value = self.random.choice(["p", "q/r"])
        fields = [each for each in self.fields if each["metadata"] != self.part]
        made = [self._column(each, ids, foreign) for each in fields]
        table = pa.Table.from_arrays(
            [each for _, each in made], schema=pa.schema([f for f, _ in made])
        )
        name = f"{uuid.UUID(int=self.random.getrandbits(128))}.parquet"
        pq.write_table(table, self.path / name)
        key = self.part["delta.columnMapping.physicalName"]
        own = fields[0]["metadata"]["delta.columnMapping.physicalName"]
        stats = {
            "numRecords": count,
            "minValues": {own: ids[0]},
            "maxValues": {own: ids[-1]},
            "nullCount": {own: 0},
        }
        add = {
            "path": name,
            "partitionValues": {key: value},
            "size": (self.path / name).stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        self.commit({"add": add})

    def _column(
        self, field: dict[str, Any], ids: list[int], foreign: bool
    ) -> tuple[pa.Field, pa.Array]:
        mapped = field["metadata"]
        id = mapped["delta.columnMapping.id"]
        name = f"f{id}" if foreign else mapped["delta.columnMapping.physicalName"]
        if isinstance(field["type"], dict):
            inner = [self._column(each, ids, foreign) for each in field["type"]["fields"]]
            gone = pa.array([self.random.random() < 0.2 for _ in ids])
            values = pa.StructArray.from_arrays(
                [each for _, each in inner], fields=[each for each, _ in inner], mask=gone
            )
        else:
            drawn = [
                None if self.random.random() < 0.2 else self.random.randint(0, 20) for _ in ids
            ]
            some = ids if field["name"] == "id" else drawn
            texts = [None if each is None else f"t{each}" for each in some]
            values = pa.array(texts if field["type"] == "string" else some, _TYPES[field["type"]])
        return pa.field(name, values.type, metadata={"PARQUET:field_id": str(id)}), values

    def step(self) -> None:
        steps = [self.append] * 3 + [
            self.rename,
            self.rename_inside,
            self.drop,
            self.add,
            self.delete,
        ]
        self.random.choice(steps)()

    def _free(self) -> str:
        used = {each["name"] for each in self.fields}
        return self.random.choice([each for each in _NAMES if each not in used])

    def rename(self) -> None:
        """A column, also the one of the partitions, or two that take each other's name."""
        one, two = self.random.sample(self.fields[1:], 2)
        if self.random.random() < 0.5:
            one["name"], two["name"] = two["name"], one["name"]
        else:
            one["name"] = self._free()
        self.commit(self.metadata())

    def rename_inside(self) -> None:
        one, two = self.random.sample(
            next(each["type"]["fields"] for each in self.fields if isinstance(each["type"], dict)),
            2,
        )
        one["name"], two["name"] = two["name"], one["name"]
        self.commit(self.metadata())

    def drop(self) -> None:
        flat = [
            each
            for each in self.fields[1:]
            if isinstance(each["type"], str) and each["metadata"] != self.part
        ]
        if len(flat) > 1:
            self.fields.remove(self.random.choice(flat))
            self.commit(self.metadata())

    def add(self) -> None:
        if len(self.fields) < 7:
            self.fields.append(self.field(self._free(), self.random.choice(["long", "string"])))
            self.commit(self.metadata())

    def delete(self) -> None:
        if self.rows:
            delete_by_vectors(str(self.path), 0.1, self.random)


@pytest.mark.parametrize("mode, seed", [("name", 0), ("name", 1), ("id", 3)])
def test_every_version_of_a_random_history(tmp_path: Path, mode: str, seed: int) -> None:
    """Columns, fields of a struct and the partition column are renamed, swapped, dropped and added
    again: each version has the rows of the library's own engine, with indexes of columns by the
    names that they had when these were built."""
    history = Mapped(tmp_path / "t", seed, mode)
    history.append()
    path, table = str(history.path), skipstone.Table(history.path)
    for at in range(16):
        history.step()
        if at % 5 == 0:
            names = [each.name for each in table.file_columns(table.listing())]
            flat = [f"`{each}`" for each in names if each != struct_of(history)]
            table.build(indexes=[f"{each}:{kind}" for each in flat for kind in ("minmax", "bloom")])
        if at % 7 == 0:
            table.refresh()
        assert rows(table.query()) == rows(engine_table(path))
    for version in range(1, history.version + 1):
        assert_same(path, version, "id = 7", "id >= 3 AND id < 9")
        if version % 4:
            continue
        every = engine_table(path, version)
        for name in every.column_names:
            if pa.types.is_struct(every.schema.field(name).type):
                continue
            for value in every.column(name).unique().to_pylist()[:2]:
                shown = f"'{value}'" if isinstance(value, str) else value
                where = f"`{name}` {'IS NULL' if value is None else f'= {shown}'}"
                wanted = [row for row in every.to_pylist() if row[name] == value]
                found = skipstone.Table(path, version=version).query(where)
                assert rows(found) == rows(every.from_pylist(wanted, every.schema)), where


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_that_was_made_with_mapping(tmp_path: Path, mode: str) -> None:
    """By the library's own writer: files have physical names from the first one on."""
    path, made = str(tmp_path / "t"), {"delta.columnMapping.mode": mode}
    for at in range(4):
        data = pa.table({"id": [2 * at, 2 * at + 1], "k": ["a", f"k {at}"], "x.y": [at, None]})
        write_deltalake(path, data, mode="append", partition_by=["k"], configuration=made)
    assert "id" not in pq.read_schema(DeltaTable(path).file_uris()[0]).names
    table = skipstone.Table(path)
    table.build(indexes=["id:bitmap", "`x.y`:valuelist"])
    assert_same(path, None, "id = 3", "k = 'a'", "k = 'k 2' AND id > 1")
    for where, files in {"id = 3": 1, "`x.y` = 2": 1, "`x.y` IS NULL": 4, "k = 'a'": 4}.items():
        assert table.plan(where, inside=False).files_kept == files, where


def struct_of(history: Mapped) -> str:
    found = next(each["name"] for each in history.fields if isinstance(each["type"], dict))
    return str(found)


def test_an_index_from_before_a_rename(tmp_path: Path) -> None:
    """Statistics, indexes and partitions by physical names: each prunes by the names of now."""
    shutil.copytree(GOLDEN / "mapped", tmp_path / "mapped")
    path = str(tmp_path / "mapped")
    skipstone.Table(path, version=1).build(indexes=["name:bloom", "s.a:minmax", "s.b:bitmap"])
    table = skipstone.Table(path)
    assert {(each.name.split("(")[0], each.files) for each in table.describe().indexes} >= {
        ("s.aa:minmax", 2),
        ("s.b:bitmap", 2),
    }
    before = skipstone.Table(path, version=2)  # ``name`` is ``title`` here
    assert before.plan("title = 'n4'", inside=False).files_kept == 1
    assert before.count("title = 'n4'") == 1
    assert table.plan("s.aa = 4", inside=False).files_kept == 2  # from 0 to 18, and from 1 to 19
    assert table.plan("s.b = 'b4'", inside=False).files_kept == 1
    assert table.plan("s.b = 'b4' AND folder = 'p1'", inside=False).files_kept == 0
    assert table.count("title = 'n4'") == table.count("name = 'n4'") == 0
    assert table.refresh().files_built == 3
    assert table.plan("s.b = 'b44'", inside=False).files_kept == 1
    report = table.build(indexes=["title:bloom"])
    assert (report.files_total, table.count("title = 't44'")) == (5, 1)
    assert table.check(deep=True).ok
    with pytest.raises(UnsupportedError, match="have other names for columns"):
        table.advise()


@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_with_names_of_their_own(tmp_path: Path, mode: str) -> None:
    """As a table has them that was converted. By the mode of ids the ids in a footer decide, which
    ``deltalake`` does not ask; by the other mode such a file has none of the columns."""
    history = Mapped(tmp_path / "t", 1, mode)
    history.append()
    first = history.rows
    history.append(foreign=True)
    table = skipstone.Table(history.path)
    table.build(indexes=["id:minmax"])
    known = history.rows if mode == "id" else first
    for at in range(history.rows):
        assert table.count(f"id = {at}") == (at < known)
        assert table.plan(f"id = {at}", inside=False).files_kept == (at < known)
    found = skipstone.Table(history.path, version=1)
    assert rows(found.query()) == rows(engine_table(str(history.path), 1))
