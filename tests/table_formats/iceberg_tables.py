"""Tables of Apache Iceberg, written by ``pyiceberg``, and their rows as its own reader gives them.

``pyiceberg`` deletes by writing files again; ``History.delete_positions`` writes delete files.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import zlib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType
from pyiceberg.utils.config import Config
from pyroaring import BitMap64

import skipstone
from skipstone.errors import PredicateError
from tests.table_formats.delta_tables import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table

#: names for columns, among them such as differ in case, and such as files spell otherwise
NAMES = ["kind", "Kind", "amount", "price", "x", "X", "a.b", "ü x"]
KINDS = ("a", "b/c", "ü %", None)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog in SQLite with the namespace ``db``."""
    found = SqlCatalog(
        "local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake"
    )
    found.create_namespace("db")
    yield found
    found.close()


def in_configuration(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of ``db.t`` for people whose configuration has the catalog."""
    return configured(monkeypatch, "local", type="sql", uri=catalog.properties["uri"])


def configured(monkeypatch: pytest.MonkeyPatch, name: str, **properties: str) -> str:
    """The name of ``db.t`` in a catalog that the configuration of ``pyiceberg`` has now."""
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key.upper()}", value)
    # The configuration is read when it is imported; a user's process starts with it.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return f"iceberg:{name}.db.t"


def folder(table: Table) -> str:
    """The directory of a table, as people write it."""
    return table.location().removeprefix("file://")


def read(table: Table, version: int | None = None, where: str | None = None) -> list[str]:
    """The rows of a snapshot by the library's own reader."""
    return rows(table.scan(where or "true", snapshot_id=version).to_arrow())


def assert_same(table: Table, version: int | None = None, *predicates: str) -> None:
    """Rows, counts and extremes of a snapshot are those of the library's own reader."""
    ours = skipstone.Table(folder(table), version=version)
    every = ours.query()
    assert rows(every) == read(table, version)
    assert ours.count() == every.num_rows
    assert every.schema.names == [
        each.name for each in table.scan(snapshot_id=version).projection().fields
    ]
    ids = [each for each in every.column("id").to_pylist() if each is not None]
    assert ours.min("id") == min(ids, default=None)
    assert ours.max("id") == max(ids, default=None)
    for where in predicates:
        found = read(table, version, where)
        assert rows(ours.query(where)) == found, where
        assert ours.count(where) == len(found), where


def assert_columns(table: Table, draw: random.Random, version: int | None = None) -> None:
    """Each column, and each field of a struct, finds a value of it and its nulls: among the rows
    that the library's own reader has."""
    ours = skipstone.Table(folder(table), version=version)
    every = table.scan(snapshot_id=version).to_arrow().to_pylist()
    paths: list[tuple[str, ...]] = [
        (name,) for name, each in (every[0] if every else {}).items() if name != "s"
    ]
    inside = (row["s"] for row in every if row.get("s") is not None)
    paths += [("s", name) for name in next(inside, ())]
    for path in paths:

        def of(row: dict[str, Any], path: tuple[str, ...] = path) -> Any:
            top = row[path[0]]
            return top if len(path) == 1 or top is None else top[path[1]]

        some = draw.choice(every)
        value = of(some)
        shown = f"'{value}'" if isinstance(value, str | dt.date) else value
        test = "IS NULL" if value is None else f"= {shown}"
        where = f"{'.'.join(f'`{part}`' for part in path)} {test}"
        twins = [each for each in paths if each[0].lower() == path[0].lower()]
        if len(path) == 1 and len(twins) > 1:  # predicates take names without their case
            with pytest.raises(PredicateError, match="more than case"):
                ours.count(where)
            continue
        wanted = sorted(repr(sorted(row.items())) for row in every if of(row) == value)
        found = ours.query(where).to_pylist()
        assert sorted(repr(sorted(row.items())) for row in found) == wanted, where
        assert ours.count(where) == len(wanted), where


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV2:
        made = self.new_manifest_output()
        return _DeletesWriter(spec, self.schema(), made, self._snapshot_id, self._compression)


def add_deletes(
    table: Table,
    name: str,
    content: pa.Table,
    partition: Any,
    kind: DataFileContent = DataFileContent.POSITION_DELETES,
    ids: list[int] | None = None,
    format: FileFormat = FileFormat.PARQUET,
) -> None:
    """Commits one delete file, which its manifest calls one of ``format``."""
    path = f"{folder(table)}/data/{name}-deletes.parquet"
    pq.write_table(content, path)
    made = DataFile.from_args(
        content=kind,
        file_path=f"file://{path}",
        file_format=format,
        partition=partition,
        record_count=len(content),
        file_size_in_bytes=Path(path).stat().st_size,
        equality_ids=ids,
    )
    made.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        adding = _AddDeletes(Operation.OVERWRITE, transaction, table.io)
        adding.append_data_file(made)
        adding.commit()


class _VectorsWriter(_DeletesWriter):
    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        entries = self._with_partition(3)
        return AvroOutputFile(self._output_file, entries, "manifest_entry", entries, self._meta)


class _AddVectors(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV2:
        made = self.new_manifest_output()
        return _VectorsWriter(spec, self.schema(), made, self._snapshot_id, self._compression)


def add_vectors(table: Table, name: str, rows: dict[str, list[int]]) -> None:
    """Commits one file of deletion vectors of data files."""
    path, content = f"{folder(table)}/data/{name}.puffin", b"PFA1"
    blobs: list[dict[str, Any]] = []
    for file, gone in rows.items():
        vector = bytes.fromhex("d1d33964") + BitMap64(gone).serialize()
        framed = struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [2_147_483_645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(framed),
                "properties": {"referenced-data-file": file, "cardinality": str(len(gone))},
            }
        )
        content += framed
    footer = json.dumps({"blobs": blobs}).encode()
    content += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    Path(path).write_bytes(content)
    with table.transaction() as transaction:
        adding = _AddVectors(Operation.OVERWRITE, transaction, table.io)
        for blob in blobs:
            made = DataFile.from_args(
                _table_format_version=3,
                content=DataFileContent.POSITION_DELETES,
                file_path=f"file://{path}",
                file_format=FileFormat.PUFFIN,
                partition=Record(),
                record_count=int(blob["properties"]["cardinality"]),
                file_size_in_bytes=len(content),
                referenced_data_file=blob["properties"]["referenced-data-file"],
                content_offset=blob["offset"],
                content_size_in_bytes=blob["length"],
            )
            made.spec_id = table.spec().spec_id
            adding.append_data_file(made)
        adding.commit()


class History:
    """Random commits to a table ``db.t`` of ``catalog``; with ``names`` columns and fields of a
    struct are renamed, swapped, dropped and added again, too."""

    def __init__(self, catalog: SqlCatalog, seed: int, *, names: bool, version: int = 2) -> None:
        self.random, self.names = random.Random(seed), names
        self.next = self.deletes = 0
        self.types: dict[str, pa.DataType] = {
            "id": pa.int32(),
            "kind": pa.string(),
            "amount": pa.float32(),
            "price": pa.decimal128(6, 2),
            "day": pa.date32(),
        }
        if names:
            self.types["s"] = pa.struct({"x": pa.int64(), "y": pa.string()})
        schema = pa.schema(list(self.types.items()))
        made = {"format-version": str(version)}
        self.table = catalog.create_table("db.t", schema, properties=made)
        self.append()

    def batch(self) -> pa.Table:
        """Some new rows, with the columns that the table has now."""
        ids = list(range(self.next, self.next + self.random.randint(1, 12)))
        self.next = ids[-1] + 1
        columns = {name: self._values(name, type, ids) for name, type in self.types.items()}
        return pa.table(columns)

    def _values(self, name: str, type: pa.DataType, ids: list[int]) -> pa.Array:
        if pa.types.is_struct(type):
            fields = [self._values(each.name, each.type, ids) for each in type]
            gone = pa.array([self.random.random() < 0.2 for _ in ids])
            return pa.StructArray.from_arrays(fields, fields=list(type), mask=gone)
        values: list[Any] = [self.random.randint(0, 99) for _ in ids]
        if pa.types.is_string(type):
            values = [KINDS[each % len(KINDS)] for each in values]
        if name != "id":
            values = [None if self.random.random() < 0.2 else each for each in values]
        values = ids if name == "id" else values
        if pa.types.is_decimal(type):
            values = [None if each is None else Decimal(each) for each in values]
        stored = pa.int32() if pa.types.is_date(type) else type
        return pa.array(values, stored).cast(type)

    def step(self) -> str:
        """One commit; its name."""
        steps = [self.append] * 4 + [self.delete, self.upsert, self.overwrite, self.promote]
        steps += [self.add, self.partition, self.branch]
        if self.names:  # the library does not upsert structs
            steps = [each for each in steps if each != self.upsert]
            steps += [self.rename, self.rename_inside, self.swap, self.drop] * 2 + [self.rewrite]
        steps += [] if self.table.format_version < 2 else [self.delete_positions] * 3
        step = self.random.choice(steps)
        step()
        return step.__name__

    def append(self) -> None:
        self.table.append(self.batch())

    def overwrite(self) -> None:
        self.table.overwrite(self.batch())

    def delete(self) -> None:
        low = self.random.randint(0, self.next)
        self.table.delete(f"id >= {low} and id < {low + 4}")

    def upsert(self) -> None:
        new = self.batch()
        old = self.table.scan().to_arrow().column("id").to_pylist()
        known = self.random.sample(old, min(3, len(old), len(new)))
        ids = [*known, *new.column("id").to_pylist()[len(known) :]]
        self.table.upsert(new.set_column(0, "id", pa.array(ids, self.types["id"])), ["id"])

    def rewrite(self) -> None:
        """All rows into new files, as a compaction."""
        self.table.overwrite(self.table.scan().to_arrow())

    def promote(self) -> None:
        wider = {
            "id": (LongType(), pa.int64()),
            "amount": (DoubleType(), pa.float64()),
            "price": (DecimalType(12, 2), pa.decimal128(12, 2)),
        }
        name = self.random.choice(sorted(wider))
        if name in self.types and self.types[name] != wider[name][1]:
            with self.table.update_schema() as update:
                update.update_column(name, wider[name][0])
            self.types[name] = wider[name][1]

    def add(self) -> None:
        """A column, which may have the name of a dropped one."""
        names = NAMES if self.names else ["x", "y"]
        free = [each for each in names if each not in self.types]
        if free:
            name = self.random.choice(free)
            kind = self.random.choice([(LongType(), pa.int64()), (StringType(), pa.string())])
            with self.table.update_schema() as update:
                update.add_column(name, kind[0])
            self.types[name] = kind[1]

    def _free(self) -> list[str]:
        """Columns by which the table is not partitioned."""
        used = {each.source_id for spec in self.table.specs().values() for each in spec.fields}
        fields = self.table.schema().fields
        return [each.name for each in fields if each.field_id not in used and each.name != "id"]

    def rename(self) -> None:
        name = self.random.choice([each for each in self.types if each not in ("id", "s")] or ["s"])
        free = [each for each in NAMES if each not in self.types]
        if name != "s":
            self._rename(name, self.random.choice(free))

    def _rename(self, name: str, new: str) -> None:
        with self.table.update_schema() as update:
            update.rename_column(name, new)
        self.types = {new if k == name else k: each for k, each in self.types.items()}

    def swap(self) -> None:
        """Two columns take each other's name, also of another type."""
        names = [each for each in self.types if each not in ("id", "s")]
        if len(names) > 1:
            one, two = self.random.sample(names, 2)
            for name, new in ((one, "aside"), (two, one), ("aside", two)):
                self._rename(name, new)

    def rename_inside(self) -> None:
        """A field of the struct, or a new one under the name of a former one."""
        if "s" not in self.types:
            return
        fields = list(self.types["s"])
        one = self.random.choice(fields)
        new = self.random.choice([each for each in "xyz" if each not in {f.name for f in fields}])
        with self.table.update_schema() as update:
            if len(fields) < 3 and self.random.random() < 0.5:
                update.add_column(("s", new), LongType())
                fields.append(pa.field(new, pa.int64()))
            else:
                update.rename_column(f"s.{one.name}", new)
                fields[fields.index(one)] = one.with_name(new)
        self.types["s"] = pa.struct(fields)

    def drop(self) -> None:
        if names := [each for each in self._free() if each != "s"]:
            name = self.random.choice(names)
            with self.table.update_schema() as update:
                update.delete_column(name)
            del self.types[name]

    def partition(self) -> None:
        """By another column, or one column less."""
        with self.table.update_spec() as update:
            fields = self.table.spec().fields
            if fields:
                update.remove_field(fields[0].name)
                return
            day = self.random.choice(["identity", "year", "month", "day"])
            id = self.random.choice(["bucket[4]", "truncate[10]"])
            choices = [("kind", "identity"), ("day", day), ("id", id), ("amount", "identity")]
            column, transform = self.random.choice(choices)
            if column in self.types:
                update.add_field(column, transform, f"p{len(self.table.specs())}")

    def branch(self) -> None:
        """A tag of the newest snapshot."""
        newest = self.table.snapshots()[-1].snapshot_id
        name = f"tag {len(self.table.refs())}"
        self.table.manage_snapshots().create_tag(newest, name).commit()

    def delete_positions(self) -> None:
        """Some rows of files of one partition, by a file of position deletes."""
        spec = self.table.spec().spec_id
        files = [t.file for t in self.table.scan().plan_files() if t.file.spec_id == spec]
        if not files:
            return
        one = self.random.choice(files).partition
        found = []
        for file in files:
            if file.partition == one and self.random.random() < 0.7:
                count = self.random.randint(1, file.record_count)
                chosen = self.random.sample(range(file.record_count), count)
                found += [(file.file_path, at) for at in sorted(chosen)]
        paths, at = zip(*sorted(found), strict=True) if found else ((), ())
        content = pa.table(
            {"file_path": pa.array(paths, pa.string()), "pos": pa.array(at, pa.int64())}
        )
        self.deletes += 1  # a delete file never changes, so each needs a name of its own
        add_deletes(self.table, f"{self.deletes}", content, one)


def table_of(catalog: Catalog, *parts: pa.Table, **properties: str) -> Table:
    """A table with one file of each part."""
    made = catalog.create_table("db.t", parts[0].schema, properties=properties)
    for part in parts:
        made.append(part)
    return made


def ids(*values: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), **more})
