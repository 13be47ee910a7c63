"""Deleted rows of tables of Apache Iceberg: by position, and by the values of columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    LongType,
)

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from tests.fuzz.mutate import mutated
from tests.table_formats.iceberg_tables import (
    add_deletes,
    add_vectors,
    assert_same,
    catalog,
    folder,
    ids,
    table_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

__all__ = ["catalog"]


def test_deleted_rows(catalog: SqlCatalog) -> None:
    """Position deletes of several files are in no result, no count and no extreme."""
    made = table_of(catalog, ids(*range(100)), ids(*range(100, 200)))
    files = [task.file.file_path for task in made.scan().plan_files()]
    for name, gone in (("one", [0, 99, 50]), ("two", [50, 1])):
        content = pa.table({"file_path": sorted(files * len(gone)), "pos": sorted(gone) * 2})
        add_deletes(made, name, content, Record())
    table = skipstone.Table(folder(made))
    for indexes in ([], ["id:bloom", "id:bitmap", "id:minmax"]):
        if indexes:
            table.build(indexes=indexes)
        assert table.count() == 192
        assert (table.min("id"), table.max("id")) == (2, 198)
        assert table.count("id IN (0, 1, 2, 50, 150, 151)") == 2
        assert table.query(order_by="id desc", limit=2).column("id").to_pylist() == [198, 197]
        assert_same(made, None, "id = 50", "id > 190")
    assert "8 deleted rows in 2 of 2 files" in str(table.describe())


def test_damaged_manifests_and_delete_files_are_told_in_words(catalog: SqlCatalog) -> None:
    """The decoders of ``pyiceberg`` raise whatever the bytes lead to."""
    made = table_of(catalog, ids(*range(100)))
    (file,) = [task.file.file_path for task in made.scan().plan_files()]
    add_deletes(made, "one", pa.table({"file_path": [file] * 2, "pos": [3, 5]}), Record())
    path = folder(made)
    assert skipstone.Table(path).count() == 98
    told = 0
    for each in [*Path(path).rglob("*.avro"), *Path(path).rglob("*-deletes.parquet")]:
        stored = each.read_bytes()
        for seed in range(25):
            each.write_bytes(mutated(stored, seed))
            try:
                skipstone.Table(path).query("id = 3")
            except SkipstoneError:
                told += 1
        each.write_bytes(stored)
    assert told > 20
    # A delete file of other bytes deletes other rows.
    other = pa.table({"file_path": [file], "pos": [7]})
    pq.write_table(other, next(Path(path).rglob("*-deletes.parquet")))
    with pytest.raises(SkipstoneError, match="and its manifest says"):
        skipstone.Table(path).count()


def test_deletion_vectors_of_one_file(catalog: SqlCatalog) -> None:
    """A vector has the older deletes of its data file, and those of other files stay."""
    made = table_of(catalog, *(ids(*range(at, at + 10)) for at in (0, 10, 20)))
    files = sorted(task.file.file_path for task in made.scan().plan_files())
    first = {pq.read_table(each.removeprefix("file://"))["id"][0].as_py(): each for each in files}
    content = pa.table({"file_path": sorted([first[0], first[20]]), "pos": [1, 1]})
    add_deletes(made, "older", content, Record())
    add_vectors(made, "vectors", {first[0]: [2, 3], first[10]: [*range(10)]})
    left = [0, 1, *range(4, 10), 20, *range(22, 30)]
    table = skipstone.Table(folder(made))
    assert sorted(table.query().column("id").to_pylist()) == left
    assert "13 deleted rows in 3 of 3 files" in str(table.describe())
    assert table.plan("id = 15").files_kept == 0


def test_equality_deletes_are_looked_up_in_files_of_the_plan(catalog: SqlCatalog) -> None:
    """Files that a plan leaves out, or without a key inside their bounds, are not read."""
    made = table_of(catalog, *(ids(*range(at, at + 10)) for at in (0, 10, 20)))
    files = sorted(task.file.file_path.removeprefix("file://") for task in made.scan().plan_files())
    broken = {pq.read_table(each)["id"][0].as_py(): Path(each) for each in files}
    number = made.schema().find_field("id").field_id
    for name, keys in (("one", [3, 12]), ("two", [13, 99])):
        content = ids(*keys)
        add_deletes(made, name, content, Record(), DataFileContent.EQUALITY_DELETES, [number])
    held = {at: path.read_bytes() for at, path in broken.items()}
    for at in (0, 20):
        broken[at].write_bytes(bytes(len(held[at])))
    table = skipstone.Table(folder(made))
    assert table.query("id >= 10 AND id < 15").column("id").to_pylist() == [10, 11, 14]
    told = "deleted rows may be in 3 of 3 files, and are found when a file is read"
    assert told in str(table.describe())
    with pytest.raises(SkipstoneError):
        table.count()
    broken[0].write_bytes(held[0])
    table = skipstone.Table(folder(made))
    assert table.count() == 27
    assert "3 deleted rows in 2 of 3 files" in str(table.describe())


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equality_deletes(catalog: SqlCatalog, seed: int, parted: bool) -> None:
    """Keys of one and of several columns, with nulls, against a model: a delete applies to the rows
    that were there before it, in its partition. ``pyiceberg`` does not read them."""
    draw = random.Random(seed)
    schema = pa.schema([("kind", pa.string()), ("n", pa.int32()), ("text", pa.string())])
    made = catalog.create_table("db.t", schema)
    if parted:
        with made.update_spec() as update:
            update.add_field("kind", IdentityTransform())
    columns = {name: made.schema().find_field(name).field_id for name in schema.names}
    table = skipstone.Table(folder(made))
    model: list[dict[str, Any]] = []
    states: dict[int, list[str]] = {}
    wide = False

    def text(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(map(repr, rows))

    for at in range(14):
        types = pa.schema([*list(schema)[:1], ("n", pa.int64() if wide else pa.int32()), schema[2]])
        if at == 7:
            with made.update_schema() as change:
                change.update_column("n", LongType())
            wide = True
        elif at % 3 == 0:
            fresh = [
                {
                    "kind": draw.choice(["a", "b", None]),
                    "n": draw.choice([None, *range(6)]),
                    "text": draw.choice([None, "x", "y"]),
                }
                for _ in range(20)
            ]
            made.append(pa.Table.from_pylist(fresh, types))
            model += fresh
        elif model:
            names = draw.choice([["n"], ["text", "n"], ["kind", "n", "text"], ["kind"]])
            keys = [{name: row[name] for name in names} for row in draw.sample(model, 2)]
            kind = draw.choice(model)["kind"]
            own = pa.schema(
                types.field(name).with_metadata({"PARQUET:field_id": str(columns[name])})
                for name in names
            )
            add_deletes(
                made,
                str(at),
                pa.Table.from_pylist(keys, own),
                Record(kind) if parted else Record(),
                DataFileContent.EQUALITY_DELETES,
                [columns[name] for name in names],
            )
            model = [
                row
                for row in model
                if (parted and row["kind"] != kind)
                or {name: row[name] for name in names} not in keys
            ]
        if at == 5:
            table.build(indexes=["n:bloom", "text:minmax"])
        states[made.snapshots()[-1].snapshot_id] = text(model)
        assert text(table.query().to_pylist()) == text(model)
        assert table.count() == len(model)
        assert table.count("n = 3") == sum(row["n"] == 3 for row in model)
        numbers = [row["n"] for row in model if row["n"] is not None]
        assert (table.min("n"), table.max("n")) == (
            min(numbers, default=None),
            max(numbers, default=None),
        )
    for version, expected in states.items():
        old = skipstone.Table(folder(made), version=version)
        assert text(old.query().to_pylist()) == expected


def test_equality_deletes_that_are_refused(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, 2, x=[0.5, 1.5], a=[1, 2]))
    number = made.schema().find_field("x").field_id
    content = pa.table({"x": [0.5]})
    add_deletes(made, "e", content, Record(), DataFileContent.EQUALITY_DELETES, [number])
    with pytest.raises(UnsupportedError, match="by 'x', of type double"):
        skipstone.Table(folder(made)).query()
    first = made.snapshots()[0].snapshot_id
    assert skipstone.Table(folder(made), version=first).count() == 2
    with made.update_schema() as change:
        change.delete_column("x")
    with pytest.raises(UnsupportedError, match="columns that the table does not have"):
        skipstone.Table(folder(made)).query()


def test_equality_deletes_in_another_format_are_refused_by_its_name(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, 2))
    number = made.schema().find_field("id").field_id
    kind, format = DataFileContent.EQUALITY_DELETES, FileFormat.AVRO
    add_deletes(made, "e", ids(1), Record(), kind, [number], format)
    with pytest.raises(UnsupportedError, match="by keys in AVRO, not in Parquet"):
        skipstone.Table(folder(made)).query()
