"""Tables of Delta Lake with deletion vectors, and tables of Delta's own writer."""

from __future__ import annotations

import json
import random
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import skipstone
from skipstone.errors import SkipstoneError, UnsupportedError
from tests.table_formats.delta_tables import (
    PREDICATES,
    History,
    assert_same,
    delete_by_vectors,
    engine_table,
)
from tests.table_formats.make_golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path


# Together the two histories have every kind of commit.
@pytest.mark.parametrize("seed, partitions", [(1, None), (7, ["kind"])])
def test_every_version_of_a_history_with_deletion_vectors(
    tmp_path: Path, seed: int, partitions: list[str] | None
) -> None:
    """Rows that vectors delete, between all other commits, are in no result; row indexes, which
    know exact rows, still have them."""
    history = History(tmp_path / "t", seed, partitions, vectors=True)
    table = skipstone.Table(history.path)
    table.build(indexes=["id:bitmap", "id:bloom", "amount:rangebitmap", "amount:minmax"])
    for at in range(12):
        history.step()
        if at % 4 == 0:
            table.refresh()
        assert_same(history.path, None, *PREDICATES, "id >= 0")
    for version in range(0, history.table.version() + 1, 3):
        assert_same(history.path, version, *PREDICATES)


def vectors_over_many_files(folder: Path) -> str:
    """Forty files of two hundred rows; a tenth of the rows is deleted, and all of one file."""
    path = str(folder / "t")
    made = {"delta.enableDeletionVectors": "true"}
    for at in range(40):
        ids = list(range(at * 200, at * 200 + 200))
        data = pa.table({"id": ids, "text": [f"t{each % 7}" for each in ids]})
        write_deltalake(path, data, mode="append", configuration=made)
    assert delete_by_vectors(path, 0.1, random.Random(1)) > 600
    return path


@pytest.mark.parametrize("indexed", [False, True])
def test_deleted_rows_of_many_files(tmp_path: Path, indexed: bool) -> None:
    path = vectors_over_many_files(tmp_path)
    left = sorted(engine_table(path)["id"].to_pylist())
    table = skipstone.Table(path)
    if indexed:
        table.build(indexes=["id:bitmap", "id:rangebitmap", "text:valuelist", "id:minmax"])
    gone = sorted(set(range(8_000)) - set(left))
    assert table.count() == len(left) == table.query().num_rows
    assert sorted(table.query(columns=["id"])["id"].to_pylist()) == left
    assert table.count(f"id IN ({', '.join(map(str, gone[:50]))})") == 0
    assert table.query(f"id = {gone[7]}").num_rows == 0
    assert table.query(keys={"id": gone[:20] + left[:20]}).num_rows == 20
    assert table.count("text = 't3'") == sum(each % 7 == 3 for each in left)
    assert (table.min("id"), table.max("id")) == (left[0], left[-1])
    assert table.max("id", f"id <= {gone[-1]}") == max(x for x in left if x <= gone[-1])
    first = table.query(columns=["id"], order_by="id", limit=30)["id"].to_pylist()
    assert first == left[:30]
    last = table.query(columns=["id"], order_by="id desc", limit=30)["id"].to_pylist()
    assert last == left[::-1][:30]
    assert len(list(table.query("text = 't1'", limit=17)["id"])) == 17
    top = table.top("id desc", 5)
    assert top.exact is indexed
    if indexed:
        ids = [
            pq.read_table(each)["id"].take(held.to_list())
            for each, held in top.rows.items()
            if held
        ]
        assert sorted(id for each in ids for id in each.to_pylist()) == left[-5:]
    assert "deleted rows in 40 of 40 files" in str(table.describe())
    assert "deleted rows in 40 of 40 files" in str(table.explain("text = 't1'"))
    assert table.check(deep=True).ok is indexed
    for export in (table.scan().to_duckdb, table.scan().to_polars, table.scan().to_pyarrow):
        with pytest.raises(UnsupportedError, match="are deleted"):
            export()


def test_a_vector_that_deletes_all_rows_of_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, pa.table({"id": [1, 2, 3]}), configuration=made)
    delete_by_vectors(path, 1.1, random.Random(1))
    write_deltalake(path, pa.table({"id": [4]}), mode="append")
    table = skipstone.Table(path)
    assert table.query()["id"].to_pylist() == [4]
    plan = table.plan("id > 0")
    assert (plan.files_kept, plan.files_total, table.count("id > 0")) == (1, 2, 1)
    assert (table.min("id"), table.max("id")) == (4, 4)


def test_a_file_with_deleted_rows_that_was_replaced(tmp_path: Path) -> None:
    """Positions of deleted rows are those of one file: another one is an error, and never read."""
    path = str(tmp_path / "t")
    made = {"delta.enableDeletionVectors": "true"}
    write_deltalake(path, pa.table({"id": list(range(100))}), configuration=made)
    delete_by_vectors(path, 0.5, random.Random(1))
    table = skipstone.Table(path)
    scan = table.scan()
    (file,) = (tmp_path / "t").glob("*.parquet")
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": list(range(100, 200))}), other)
    other.replace(file)
    with pytest.raises(SkipstoneError):
        scan.to_arrow()
    with pytest.raises(SkipstoneError):
        table.query()


def golden_rows(name: str) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = json.loads((GOLDEN / "rows.json").read_text())[name]
    return found


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them, in the order of ``id``."""
    rows = table.to_pylist()
    for row in rows:
        row.update({key: float(v) for key, v in row.items() if isinstance(v, Decimal)})
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("name", ["vectors", "widened", "dropped", "mapped"])
def test_tables_of_the_writer_in_spark(tmp_path: Path, name: str, indexed: bool) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    path = str(tmp_path / name)
    if indexed:
        for version in (None, 1):  # by the names of that version
            skipstone.Table(path, version=version).build(indexes=["id:minmax", "id:bitmap"])
    for version, wanted in enumerate(golden_rows(name)):
        table = skipstone.Table(path, version=version)
        assert plain(table.query()) == wanted
        for text, holds in {"id = 7": {7}, "id > 60": range(61, 2**40)}.items():
            found = [row for row in wanted if row["id"] in holds]
            assert plain(table.query(text)) == found
            assert table.count(text) == len(found)
