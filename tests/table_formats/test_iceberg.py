"""Tables of Apache Iceberg: rows, snapshots and what is refused."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

import skipstone
from skipstone.errors import SkipstoneError, StaleError, UnsupportedError
from tests.s3 import S3, s3, s3_server
from tests.table_formats.delta_tables import names_below, rows
from tests.table_formats.iceberg_tables import (
    History,
    assert_columns,
    assert_same,
    catalog,
    configured,
    folder,
    ids,
    in_configuration,
    read,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["catalog", "s3", "s3_server"]

PREDICATES = ("id = 7", "id > 20 and day < '1970-03-01'", "day is null", "id >= 5 and id < 9")


@pytest.mark.parametrize(
    "names, seed",
    [
        (False, 0),
        pytest.param(False, 1, marks=pytest.mark.long),
        (True, 2),
        *(pytest.param(True, seed, marks=pytest.mark.long) for seed in (3, 4)),
    ],
)
def test_every_snapshot_of_a_random_history(catalog: SqlCatalog, seed: int, names: bool) -> None:
    """Appends, deletes by new files and by positions, upserts, new, renamed, swapped, dropped and
    wider columns, other partitions: each snapshot has the rows of the library's own reader, with
    indexes of columns by the names that they had when these were built."""
    history = History(catalog, seed, names=names)
    table = skipstone.Table(folder(history.table))
    table.build(indexes=["id:bloom", "id:minmax"])
    for at in range(16 if names else 12):
        history.step()
        if at % 4 == 0:
            table.refresh()
        if names and at % 3 == 0:
            free = [f"`{each.name}`" for each in table.file_columns(table.listing())]
            kinds = ["minmax", "bloom", "valuelist", "rangebitmap"]
            flat = [each for each in free if each != "`s`"] + [
                f"s.{each.name}" for each in history.types["s"]
            ]
            table.build(indexes=[f"{each}:{kinds[n % 4]}" for n, each in enumerate(flat)])
        if at % 7 == 0:
            table.compact()
        assert rows(table.query()) == read(history.table)
        if names:
            assert_columns(history.table, history.random)
        if history.types.get("day") == pa.date32():
            assert_same(history.table, None, *PREDICATES)
    snapshots = history.table.snapshots()
    for each in snapshots:
        assert_same(history.table, each.snapshot_id, "id = 7")
        if names and each in snapshots[::3]:
            assert_columns(history.table, history.random, each.snapshot_id)


def test_nothing_is_written_into_the_table(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, 2), ids(3))
    before = names_below(Path(folder(made)))
    table = skipstone.Table(folder(made))
    table.build(indexes=["id:bloom", "id:bitmap"])
    assert table.query("id = 3").num_rows == 1
    table.refresh()
    table.compact()
    table.vacuum()
    assert names_below(Path(folder(made))) == before
    assert Path(folder(made)).with_name("_t.skipstone").is_dir()
    with pytest.raises(UnsupportedError, match="is a table of Apache Iceberg"):
        table.retrofit()


def test_a_table_by_its_name_in_a_catalog(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration of ``pyiceberg`` has the catalog; commits are seen at each call."""
    made = table_of(catalog, ids(1, 2))
    table = skipstone.Table(in_configuration(catalog, monkeypatch))
    assert table.path == folder(made)
    table.build(indexes=["id:bloom"])
    made.append(ids(3))
    assert table.count() == 3
    assert table.refresh().files_built == 1
    first = made.snapshots()[0].snapshot_id
    assert skipstone.Table("iceberg:local.db.t", version=first).count() == 2
    old = f"iceberg:{made.metadata.metadata_log[-1].metadata_file}"
    assert skipstone.Table(old).count() == 2
    for wrong in ("iceberg:local.db.other", "iceberg:other.db.t", "iceberg:t", "iceberg:/no/place"):
        with pytest.raises(SkipstoneError):
            skipstone.Table(wrong).count()


def test_a_snapshot_by_id_branch_tag_and_time(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1), ids(2), ids(3))
    path = folder(made)
    first, second, third = (each.snapshot_id for each in made.snapshots())
    made.manage_snapshots().create_tag(first, "v1").create_branch(second, "audit").commit()
    assert [skipstone.Table(path, version=at).count() for at in (first, second, third)] == [1, 2, 3]
    assert skipstone.Table(path, version=str(second)).count() == 2
    assert skipstone.Table(path, version="v1").count() == 1
    assert skipstone.Table(path, version="audit").count() == 2
    at = dt.datetime.fromtimestamp(made.snapshots()[1].timestamp_ms / 1e3, dt.UTC)
    assert skipstone.Table(path, timestamp=at).count() == 2
    assert skipstone.Table(path, timestamp=at.isoformat()).count() == 2
    assert skipstone.Table(path, timestamp="2999-01-01 00:00:00").count() == 3
    text = str(skipstone.Table(path, timestamp=at).describe())
    assert f"Apache Iceberg, version {second}, of 20" in text
    for wrong in ({"timestamp": "2020-01-01"}, {"version": 9}, {"version": "other"}):
        with pytest.raises(SkipstoneError, match="no snapshot"):
            skipstone.Table(path, **wrong).count()
    with pytest.raises(UnsupportedError, match="newest"):
        skipstone.Table(path, version=first).compact()


def test_the_newest_metadata_file(catalog: SqlCatalog) -> None:
    """That with the highest number; where two have it, a catalog must say which one counts."""
    made = table_of(catalog, *(ids(at) for at in range(11)))
    path = folder(made)
    assert skipstone.Table(path).count() == 11
    newest = Path(made.metadata_location.removeprefix("file://"))
    lost = newest.with_name(f"{newest.name[:5]}-lost.metadata.json")
    shutil.copy(newest, lost)
    with pytest.raises(UnsupportedError, match="which metadata file") as error:
        skipstone.Table(path).count()
    assert "iceberg:catalog.namespace.table" in str(error.value.hint)
    assert skipstone.Table(f"iceberg:{newest}").count() == 11
    lost.unlink()
    # The names of Hadoop's catalog, which sort otherwise.
    for at, file in enumerate(sorted(newest.parent.glob("*.metadata.json"))):
        file.rename(newest.with_name(f"v{at}.metadata.json"))
    assert skipstone.Table(path).count() == 11


def test_a_metadata_file_that_is_being_written(catalog: SqlCatalog) -> None:
    """It is no commit yet. One that has been cut short for a while is an error."""
    made = table_of(catalog, ids(1), ids(2))
    table = skipstone.Table(folder(made))
    newest = Path(made.metadata_location.removeprefix("file://"))
    written = newest.with_name("00003-0.metadata.json")
    written.write_bytes(newest.read_bytes()[:-9])
    assert table.count() == skipstone.Table(folder(made)).count() == 2
    os.utime(written, (0, 0))
    with pytest.raises(SkipstoneError, match="does not open the table"):
        table.count()
    written.unlink()
    made.append(ids(3))
    assert table.count() == 3


def test_a_metadata_file_that_the_library_does_not_know(catalog: SqlCatalog) -> None:
    """It is the newest as soon as it is whole: the commit before it is not read in its place."""
    made = table_of(catalog, ids(1))
    newest = Path(made.metadata_location.removeprefix("file://"))
    for at, type in enumerate(("variant", "geometry(OGC:CRS84)", "other")):
        stored = {**json.loads(newest.read_text()), "format-version": 3, "next-row-id": 0}
        field = {"id": 9, "name": "v", "required": False, "type": type}
        stored["schemas"][0]["fields"].append(field)
        newest.with_name(f"0000{at + 3}-0.metadata.json").write_text(json.dumps(stored))
        with pytest.raises(SkipstoneError, match="does not open the table") as error:
            skipstone.Table(folder(made)).count()
        assert type in str(error.value)
        assert "\n" not in str(error.value)


def test_a_table_without_rows(catalog: SqlCatalog) -> None:
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    table = skipstone.Table(folder(made))
    assert (table.count(), table.query().column_names, table.min("id")) == (0, ["id", "text"], None)
    made.append(ids(1, text=["a"]))
    assert table.count() == 1
    made.delete()
    assert (table.count(), table.query("id = 1").num_rows) == (0, 0)


def test_files_that_are_gone(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1))
    old = [task.file.file_path.removeprefix("file://") for task in made.scan().plan_files()]
    made.overwrite(ids(2))
    path, first = folder(made), made.snapshots()[0].snapshot_id
    before, now = skipstone.Table(path, version=first), skipstone.Table(path)
    assert (before.count(), now.count()) == (1, 1)
    Path(old[0]).unlink()
    with pytest.raises(SkipstoneError, match=r"1 of 1 files of Apache Iceberg, .* are gone"):
        before.query()
    assert now.query().column("id").to_pylist() == [2]
    new = [task.file.file_path.removeprefix("file://") for task in made.scan().plan_files()]
    Path(new[0]).unlink()
    with pytest.raises(StaleError):
        skipstone.Table(path).plan("id = 2")
    with pytest.raises(SkipstoneError):
        now.query("id = 2")


def test_what_is_refused(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1, s=[{"x": 1}], at=pa.array([0], pa.timestamp("us"))))
    path = Path(made.metadata_location.removeprefix("file://"))
    stored = json.loads(path.read_text())
    assert skipstone.Table(folder(made)).count() == 1

    def edited(change: Callable[[Any], None]) -> skipstone.Table:
        """The table with other metadata, of version 3."""
        other = {**copy.deepcopy(stored), "format-version": 3, "next-row-id": 0}
        change(other["schemas"][0]["fields"])
        path.write_text(json.dumps(other))
        return skipstone.Table(folder(made))

    def nanoseconds(fields: Any) -> None:
        fields[2]["type"] = "timestamp_ns"

    def inside(fields: Any) -> None:
        fields[1]["type"]["fields"].append(
            {"id": 9, "name": "y", "type": "long", "required": False, "initial-default": 5}
        )

    def default(fields: Any) -> None:
        cut = {"type": "decimal(9, 2)", "initial-default": "1.005"}
        fields.append({"id": 9, "name": "y", "required": False, **cut})

    with pytest.raises(UnsupportedError, match="nanoseconds"):
        edited(nanoseconds).count()
    with pytest.raises(UnsupportedError, match="default inside a struct"):
        edited(inside).count()
    table = edited(default)
    assert table.count("id = 1") == 1
    for where in (None, "y IS NULL"):
        with pytest.raises(UnsupportedError, match="default"):
            table.query(where)
    path.write_text(json.dumps(stored))
    moved = Path(folder(made)).with_name("moved")
    shutil.copytree(folder(made), moved)
    with pytest.raises(UnsupportedError, match="lie elsewhere"):
        skipstone.Table(moved).count()


def test_a_build_keeps_to_its_snapshot(catalog: SqlCatalog) -> None:
    made = table_of(catalog, ids(1), ids(2))
    table = skipstone.Table(folder(made))
    seen: list[int] = []

    def commit(done: int, total: int) -> None:
        seen.append(total)
        if done == 1:
            made.overwrite(ids(1, 2))
            made.append(ids(3))

    report = table.build(indexes=["id:minmax"], progress=commit)
    assert (report.files_total, set(seen)) == (2, {2})
    assert table.refresh().files_built == 2
    assert table.compact().facts_after == 2
    assert_same(made, None, "id = 2")


def test_in_an_object_store(s3: S3, tmp_path: Path) -> None:
    """Metadata through the library, the files and the index through our own storage."""
    catalog = SqlCatalog(
        "local",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"{s3.base}/lake",
        **{f"s3.{k.replace('_', '-')}": each for k, each in s3.options.items()},
    )
    catalog.create_namespace("db")
    made = table_of(catalog, *(ids(*range(at, at + 10), n=[at] * 10) for at in (0, 10, 20)))
    table = skipstone.Table(made.location(), storage_options=s3.options)
    assert table.count() == 30
    table.build(indexes=["id:bloom"])
    assert table.query("id = 13").to_pylist() == [{"id": 13, "n": 10}]
    assert table.plan("n = 20").files_kept == 1
    first = made.snapshots()[0].snapshot_id
    old = skipstone.Table(made.location(), version=first, storage_options=s3.options)
    assert old.count() == 10
    made.append(ids(99, n=[99]))
    assert table.count() == 31
    catalog.close()


def test_in_an_object_store_whose_keys_the_catalog_has(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog of AWS Glue; the table has no options of its own, and those that are given win."""
    server = {"endpoint": s3.options["endpoint"], "region": s3.options["region"]}
    keys = {k: s3.options[k] for k in ("access_key_id", "secret_access_key")}
    where = {f"s3__{k}": each for k, each in (server | keys).items()}
    where |= {f"glue__{k}": each for k, each in (server | keys).items()}
    name = configured(monkeypatch, "cloud", type="glue", warehouse=f"{s3.base}/wh", **where)
    catalog = load_catalog("cloud")
    catalog.create_namespace("db")
    table_of(catalog, *(ids(*range(at, at + 10), n=[at] * 10) for at in (0, 10, 20)))
    for variable in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    table = skipstone.Table(name)
    table.build(indexes=["id:bloom"])
    assert table.query("id = 13").to_pylist() == [{"id": 13, "n": 10}]
    assert table.plan("n = 20").files_kept == 1
    with pytest.raises(SkipstoneError, match="cannot list"):
        skipstone.Table(name, storage_options={"endpoint": "http://127.0.0.1:9"}).count()


def test_a_refresh_leaves_out_columns_that_commits_took(catalog: SqlCatalog) -> None:
    """A column that was dropped, or by whose values all files are partitioned since."""
    made = table_of(catalog, ids(1, a=[1], b=["x"]))
    table = skipstone.Table(folder(made))
    table.build(indexes=["id:bloom", "a:bloom", "b:bloom"])
    with made.update_schema() as update:
        update.delete_column("a")
    with made.update_spec() as change:
        change.add_identity("b")
    made.overwrite(ids(1, 2, b=["x", "y"]))
    assert table.refresh().files_built == 2
    assert table.plan("id = 3").files_kept == 0
    assert table.plan("id = 2 AND b = 'x'").files_kept == 0
    with pytest.raises(UnsupportedError, match="partition column"):
        table.build(indexes=["b:bloom"])
