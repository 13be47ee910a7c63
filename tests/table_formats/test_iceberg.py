"""Tables of Apache Iceberg: rows, snapshots, partitions, statistics and what is refused."""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    LongType,
)

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


def test_values_of_partitions_come_from_the_manifests(catalog: SqlCatalog) -> None:
    """Of every type, with nulls; the names of folders mean nothing."""
    instants = [dt.datetime(2026, 1, day, 12, 30, 0, 5, tzinfo=dt.UTC) for day in (1, 2, 3)]
    data = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "kind": ["x y", "a/b%2=", "ü", None],
            "at": pa.array([*instants, None], pa.timestamp("us", "UTC")),
            "local": pa.array([None, *(each.replace(tzinfo=None) for each in instants)]),
            "day": pa.array([None, *(each.date() for each in instants)]),
            "price": pa.array([Decimal("1.50"), None, Decimal("-2"), Decimal(0)]).cast(
                pa.decimal128(9, 2)
            ),
            "flag": [True, False, None, True],
        }
    )
    made = catalog.create_table("db.t", data.schema)
    with made.update_spec() as update:
        for name in data.column_names[1:]:
            update.add_field(name, IdentityTransform())
    made.append(data)
    table = skipstone.Table(folder(made))
    found = table.query(order_by="id")
    assert found.column_names == data.column_names
    assert found.to_pylist() == made.scan().to_arrow().sort_by("id").to_pylist()
    for where, expected in {
        "at >= '2026-01-02'": [2, 3],
        "kind = 'a/b%2='": [2],
        "day = DATE '2026-01-03'": [4],
        "price = -2": [3],
        "flag IS NULL": [3],
    }.items():
        plan = table.plan(where)
        assert plan.files_kept == len(expected), where
        assert table.query(where, order_by="id").column("id").to_pylist() == expected
    with pytest.raises(UnsupportedError, match="partition column"):
        table.build(indexes=["kind:bloom"])


def test_a_renamed_partition_column(catalog: SqlCatalog) -> None:
    """Its values are those of the manifests, by whatever name the files have it."""
    made = catalog.create_table("db.t", ids(1, kind=["a"]).schema)
    with made.update_spec() as update:
        update.add_field("kind", IdentityTransform())
    made.append(ids(1, 2, kind=["a", "b"]))
    with made.update_schema() as change:
        change.rename_column("kind", "sort")
    assert skipstone.Table(folder(made)).plan("sort = 'a'").files_kept == 1
    assert_same(made, None, "sort = 'a'")


def test_hidden_partitions_prune_where_there_are_no_bounds(catalog: SqlCatalog) -> None:
    days = [dt.datetime(year, 5, 17, 23, 59, 59, 999_999) for year in (1950, 1969, 1970, 2026)]
    data = ids(5, 15, 25, 35, at=pa.array(days, pa.timestamp("us")), kind=["aa", "ab", "b", "c"])
    metrics = {"write.metadata.metrics.default": "none"}
    made = catalog.create_table("db.t", data.schema, properties=metrics)
    with made.update_spec() as update:
        update.add_field("at", DayTransform(), "day")
        update.add_field("id", TruncateTransform(10), "tens")
        update.add_field("kind", TruncateTransform(1), "letter")
    made.append(data)
    table = skipstone.Table(folder(made))
    for where, kept in {
        "at > '2020-01-01'": 1,
        "at < '1951-01-01'": 1,
        "at = '1969-05-17 23:59:59.999999'": 1,
        "id BETWEEN 10 AND 19": 1,
        "id = 35": 1,
        "kind < 'b'": 4,
    }.items():
        assert table.plan(where).files_kept == kept, where
        assert_same(made)
    assert table.query("at = '1950-05-17 23:59:59.999999'").column("id").to_pylist() == [5]


def test_the_last_width_ends_with_the_type(catalog: SqlCatalog) -> None:
    most = 2**31 - 1
    data = pa.table({"n": pa.array([5, most], pa.int32())})
    metrics = {"write.metadata.metrics.default": "none"}
    made = catalog.create_table("db.t", data.schema, properties=metrics)
    with made.update_spec() as update:
        update.add_field("n", TruncateTransform(10), "tens")
    made.append(data)
    table = skipstone.Table(folder(made))
    assert table.query(f"n = {most}").column("n").to_pylist() == [most]
    assert table.plan(f"n = {most}").files_kept == 1


def test_partitions_that_changed(catalog: SqlCatalog) -> None:
    """Files of several specs: the column is read from the files, and all of them prune."""
    part = ids(1, 2, kind=["a", "b"])
    made = table_of(catalog, part)
    with made.update_spec() as update:
        update.add_field("kind", IdentityTransform())
    made.append(ids(3, 4, kind=["a", "c"]))
    table = skipstone.Table(folder(made))
    assert (table.plan("kind = 'c'").files_kept, table.plan("kind = 'a'").files_kept) == (1, 2)
    table.build(indexes=["kind:bloom"])
    assert_same(made, None, "kind = 'a'", "kind > 'b'")
    # A file without the column, as those that were made by Hive: its value may be in no file.
    bare = f"{folder(made)}/data/bare.parquet"
    pq.write_table(ids(5, kind=["a"]), bare)
    made.add_files([f"file://{bare}"])
    assert_same(made)


def test_statistics_prune_and_explain_says_so(catalog: SqlCatalog) -> None:
    parts = [ids(*range(at, 100, 10), day=pa.array([at] * 10, pa.int64())) for at in range(10)]
    made = table_of(catalog, *parts)
    table = skipstone.Table(folder(made))
    assert table.plan("day = 3").files_kept == 1
    assert table.plan("id = 53", inside=False).files_kept == 10
    table.build(indexes=["id:bloom"])
    plan = table.plan("id = 53 AND day >= 3")
    steps = {(step.index, step.column): (step.considered, step.kept) for step in plan.steps}
    assert steps["Apache Iceberg", "day"] == (10, 7)
    assert steps["bloomfilter", "id"][1] == 1
    text = str(table.explain("id = 53 AND day >= 3"))
    assert "day  Apache Iceberg" in text
    assert "bloomfilter" in text


def test_cut_old_and_missing_statistics_lose_no_row(catalog: SqlCatalog) -> None:
    """Bounds leave NaN out, texts and binaries are cut, numbers are older than their type."""
    values = [
        (1, 1.5, "z" * 100, b"\xff" * 100, Decimal("1.25"), 0.5),
        (2, float("nan"), "z" * 15 + "\U0010ffff" * 9, b"\x00" * 100, Decimal("-9.99"), -0.0),
    ]
    parts = []
    for n, number, text, binary, price, zero in values:
        parts.append(
            pa.table(
                {
                    "id": pa.array([n], pa.int32()),
                    "number": pa.array([number], pa.float32()),
                    "text": [text],
                    "binary": [binary],
                    "price": pa.array([price], pa.decimal128(3, 2)),
                    "inner": pa.array([{"n": zero, "t": text}]),
                }
            )
        )
    made = table_of(catalog, *parts)
    with made.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("number", DoubleType())
        update.update_column("price", DecimalType(12, 2))
    big = parts[0].set_column(0, "id", pa.array([2**40], pa.int64()))
    made.append(big.set_column(1, "number", pa.array([1e300])))
    table = skipstone.Table(folder(made))
    for indexes in ([], ["id:minmax", "number:minmax", "price:minmax", "text:bloom"]):
        if indexes:
            table.build(indexes=indexes)
        for where, count in {
            "id = 1": 1,
            f"id >= {2**40}": 1,
            "number > 1e200": 2,
            "number = 'NaN'": 1,
            "number < 2": 1,
            f"text = '{'z' * 100}'": 2,
            f"text > '{'z' * 15}\U0010ffff'": 1,
            f"binary = X'{'FF' * 100}'": 2,
            f"binary <= X'{'00' * 100}'": 1,
            "price = -9.99": 1,
            "price > 1.2": 2,
            "inner.n = 0.0": 1,
            "inner.t IS NULL": 0,
        }.items():
            assert table.count(where) == count, where
    assert table.plan("id > 100").files_kept == 1


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
