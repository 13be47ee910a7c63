"""Xskipper loses rows in known situations. Each one from files to an answer: nothing is lost here.

Every situation is tried with Skipstone's own facts, and, where it is the original's store that
misleads it, over such a store as well. ``plan`` says which files a query must read; through Spark
the rows are what counts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts.location import XskipperLocation
from skipstone.xskipper.format.schema import IndexColumn
from tests.oracle import matching_rows
from tests.s3 import S3, s3, s3_server
from tests.xskipper.foreign import obj_name, write_store
from tools.scanned import scanned

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["s3", "s3_server"]

NAN = float("nan")


def lay_out(root: Path, *columns: dict[str, pa.Array]) -> list[Path]:
    """One file per dict, none touched for years."""
    root.mkdir(parents=True)
    paths = []
    for number, each in enumerate(columns):
        path = root / f"{number}.parquet"
        pq.write_table(pa.table(each), path)
        os.utime(path, (1_600_000_000, 1_600_000_000))
        paths.append(path)
    return paths


def read(table: skipstone.Table, where: str, zone: str = "UTC") -> list[int]:
    """The files that a query must read, by their numbers; none with a match is missing."""
    found = table.plan(where, time_zone=zone)
    kept = [int(path.rpartition("/")[2].partition(".")[0]) for path in found.paths]
    for path in found.listing.paths:
        rows = pq.ParquetFile(path).read()
        if matching_rows(rows, where, session_zone=zone):
            assert path in found.paths, where
    return kept


def foreign(home: Path, paths: list[Path], kind: str, column: str, type: str, values: Any) -> Path:
    """A store as the original writes it: one index, one row per file."""
    shapes = {
        "minmax": '{"type":"struct","fields":['
        + ",".join(
            f'{{"name":"{end}","type":"{type}","nullable":true,"metadata":{{}}}}'
            for end in ("min", "max")
        )
        + "]}",
        "valuelist": f'{{"type":"array","elementType":"{type}","containsNull":true}}',
    }
    name = f"{column}_{kind}_{len(column)}"
    index = IndexColumn(name=name, kind=kind, columns=(column,), type=shapes[kind])
    names = pa.array([obj_name(path) for path in paths])
    write_store(home, {"obj_name": names, name: values}, [index])
    return home


def bounds(type: pa.DataType, *pairs: tuple[Any, Any]) -> pa.Array:
    ends = [{"min": low, "max": high} for low, high in pairs]
    return pa.array(ends, pa.struct([("min", type), ("max", type)]))


# -- 1: <> and NOT = over bounds -------------------------------------------------------------------


def unequal(tmp_path: Path) -> list[Path]:
    # 0 holds 0 to 10, 1 nothing but 5, 2 holds 20 to 30.
    ids = [range(11), [5, 5], range(20, 31)]
    return lay_out(tmp_path / "t", *({"id": pa.array(each, pa.int64())} for each in ids))


@pytest.mark.parametrize("where", ["id <> 5", "NOT (id = 5)", "id NOT IN (5)"])
def test_unequal_skips_a_file_of_nothing_else_only(tmp_path: Path, where: str) -> None:
    paths = unequal(tmp_path)
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["id:minmax"])
    assert read(own, where) == [0, 2]
    values = bounds(pa.int64(), (0, 10), (5, 5), (20, 30))
    store = foreign(tmp_path / "md", paths, "minmax", "id", "long", values)
    other = skipstone.Table(str(tmp_path / "t"), index_location=str(store))
    assert read(other, where) == [0, 2]


def test_unequal_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    paths = unequal(tmp_path)
    values = bounds(pa.int64(), (0, 10), (5, 5), (20, 30))
    store = foreign(tmp_path / "md", paths, "minmax", "id", "long", values)
    skipstone.Table(str(tmp_path / "t")).build(None, ["id:minmax"])
    for location in (None, str(store)):
        query = spark.read.parquet(str(tmp_path / "t")).where("id <> 5")
        ours = skipstone.skip(query, location)
        rows = sorted(row.id for row in ours.collect())
        assert rows == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, *range(20, 31)]
        assert scanned(ours).files == 2


# -- 2: NaN ----------------------------------------------------------------------------------------


def with_nan(tmp_path: Path) -> list[Path]:
    # 0 holds 1.0 and NaN, 1 nothing but NaN, 2 holds 1.0 and 2.0.
    columns = [[1.0, NAN], [NAN, NAN], [1.0, 2.0]]
    return lay_out(tmp_path / "t", *({"d": pa.array(each, pa.float64())} for each in columns))


@pytest.mark.parametrize("where", ["d > 100", "d = double('NaN')", "d >= double('NaN')"])
def test_nan_is_found(tmp_path: Path, where: str) -> None:
    paths = with_nan(tmp_path)
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["d:minmax"])
    assert read(own, where) == [0, 1]
    # The original, from footers: NaN left out, and a file of nothing else looks empty.
    values = bounds(pa.float64(), (1.0, 1.0), (None, None), (1.0, 2.0))
    store = foreign(tmp_path / "md", paths, "minmax", "d", "double", values)
    other = skipstone.Table(str(tmp_path / "t"), index_location=str(store))
    assert read(other, where) == [0, 1, 2]


# -- 3: zeros in value lists -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["d = 0.0", "d = -0.0D", "d IN (-0.0D, 7)"])
def test_zeros_of_both_signs_are_one_value(tmp_path: Path, where: str) -> None:
    # 0 holds -0.0, 1 holds 0.0, 2 holds 1.0.
    columns = [[-0.0], [0.0], [1.0]]
    paths = lay_out(tmp_path / "t", *({"d": pa.array(each, pa.float64())} for each in columns))
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["d:valuelist"])
    assert read(own, where) == [0, 1]
    store = foreign(tmp_path / "md", paths, "valuelist", "d", "double", pa.array(columns))
    other = skipstone.Table(str(tmp_path / "t"), index_location=str(store))
    assert read(other, where) == [0, 1]


# -- 4: another schema or other options ------------------------------------------------------------


def numbers_as_text(tmp_path: Path) -> list[Path]:
    # 0 holds 10 and 11, 1 holds 30. As strings both are below '4'; as numbers 30 is above 20.
    root = tmp_path / "csv"
    root.mkdir()
    paths = []
    for number, text in enumerate(["c\n10\n11\n", "c\n30\n"]):
        path = root / f"{number}.csv"
        path.write_text(text)
        os.utime(path, (1_600_000_000, 1_600_000_000))
        paths.append(path)
    return paths


def test_indexed_as_int_and_asked_as_string(tmp_path: Path, spark: SparkSession) -> None:
    root = numbers_as_text(tmp_path)[0].parent
    header = {"header": "true"}
    own = skipstone.Table(str(root), format="csv", options=header, schema="c int")
    assert own.build(spark, ["c:minmax,valuelist"]).ok
    reader = spark.read.options(**header)
    same = skipstone.skip(reader.schema("c int").csv(str(root)).where("c > 20"))
    assert [row.c for row in same.collect()] == [30]
    assert scanned(same).files == 1
    other = skipstone.skip(reader.schema("c string").csv(str(root)).where("c < '4'"))
    assert sorted(row.c for row in other.collect()) == ["10", "11", "30"]
    # The first line of each file is a row now, and null for a number.
    bare = skipstone.skip(spark.read.schema("c int").csv(str(root)).where("c IS NULL"))
    assert [row.c for row in bare.collect()] == [None, None]


def test_a_foreign_store_of_ints_asked_as_strings(tmp_path: Path, spark: SparkSession) -> None:
    paths = numbers_as_text(tmp_path)
    root = paths[0].parent
    values = bounds(pa.int32(), (10, 11), (30, 30))
    store = foreign(tmp_path / "md", paths, "minmax", "c", "integer", values)
    reader = spark.read.option("header", "true")
    query = reader.schema("c string").csv(str(root)).where("c < '4'")
    # Without anybody's word it is silent; and with it, the type still is another.
    for location in (str(store), XskipperLocation(str(store), same_reader=True)):
        ours = skipstone.skip(query, location)
        assert sorted(row.c for row in ours.collect()) == ["10", "11", "30"]
        assert scanned(ours).files == 2
    same = reader.schema("c int").csv(str(root)).where("c > 20")
    ours = skipstone.skip(same, XskipperLocation(str(store), same_reader=True))
    assert [row.c for row in ours.collect()] == [30]
    assert scanned(ours).files == 1
    # And without a session.
    for location, files in ((str(store), 2), (XskipperLocation(str(store), same_reader=True), 1)):
        table = skipstone.Table(str(root), format="csv", index_location=location)
        assert len(table.plan("c > 20").paths) == files


def test_a_column_that_was_narrower_is_compared_exactly(tmp_path: Path) -> None:
    # 1 and 2 were indexed as int; 0, whose schema Spark takes for all, is of bigint since.
    wide, *_ = lay_out(tmp_path / "t", *({"n": pa.array([each], pa.int32())} for each in (0, 5, 9)))
    wide.unlink()
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["n:minmax,valuelist,bloom"])
    pq.write_table(pa.table({"n": pa.array([2**32 + 5], pa.int64())}), wide)
    os.utime(wide, (1_600_000_000, 1_600_000_000))
    own.refresh()
    assert read(own, "n = 5") == [1]
    assert read(own, "n = 4294967301") == [0]
    assert read(own, "n < 4294967301") == [1, 2]


# -- 5: identity -----------------------------------------------------------------------------------


def test_same_path_size_and_time_with_other_content(tmp_path: Path) -> None:
    paths = lay_out(tmp_path / "t", {"id": pa.array([1, 2])}, {"id": pa.array([3, 4])})
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["id:minmax"])
    assert read(own, "id = 7") == []
    before = paths[0].stat()
    pq.write_table(pa.table({"id": pa.array([1, 7])}), paths[0])
    os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    after = paths[0].stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert read(own, "id = 7") == [0]


def test_same_path_size_and_time_through_spark(tmp_path: Path, spark: SparkSession) -> None:
    paths = lay_out(tmp_path / "t", {"id": pa.array([1, 2])}, {"id": pa.array([3, 4])})
    skipstone.Table(str(tmp_path / "t")).build(None, ["id:minmax"])
    query = spark.read.parquet(str(tmp_path / "t")).where("id = 7")
    assert skipstone.skip(query).collect() == []
    before = paths[0].stat()
    pq.write_table(pa.table({"id": pa.array([1, 7])}), paths[0])
    os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    query = spark.read.parquet(str(tmp_path / "t")).where("id = 7")
    assert [row.id for row in skipstone.skip(query).collect()] == [7]


def build(table: skipstone.Table) -> None:
    """A store that counts seconds takes more than one: what is too fresh is left for later."""
    assert any(table.build(None, ["id:minmax"]).ok for _ in range(4))


def test_two_buckets_of_equal_paths(s3: S3, tmp_path: Path) -> None:
    # Bucket one holds 1 and 2 at t/0.parquet, bucket two holds 7 there; one place for all facts.
    two = f"{s3.bucket}-two"
    s3.client.create_bucket(Bucket=two)
    for bucket, values in ((s3.bucket, [1, 2]), (two, [7, 7])):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), sink)
        s3.client.put_object(Bucket=bucket, Key="t/0.parquet", Body=sink.getvalue().to_pybytes())
    tables = [
        skipstone.Table(
            f"s3://{bucket}/t",
            index_location=f"s3://{s3.bucket}/index",
            storage_options=s3.options,
        )
        for bucket in (s3.bucket, two)
    ]
    build(tables[0])
    assert tables[0].plan("id = 7").paths == []
    found = tables[1].plan("id = 7")
    assert len(found.paths) == 1
    assert (found.facts_fresh, found.facts_stale) == (0, 0)
    # Published for the original, each is a directory of its own.
    build(tables[1])
    reports = [table.export(str(tmp_path / "published")) for table in tables]
    assert reports[0].destination != reports[1].destination
    assert [report.files for report in reports] == [1, 1]


def test_the_time_zone_of_the_session(tmp_path: Path) -> None:
    # 0 holds the first 02:30 of 2024-10-27 in Berlin, 1 the second, 2 that of the next day.
    instants = [1_729_989_000_000_000, 1_729_992_600_000_000, 1_730_079_000_000_000]
    type_ = pa.timestamp("us", "UTC")
    lay_out(tmp_path / "t", *({"ts": pa.array([each], type_)} for each in instants))
    own = skipstone.Table(str(tmp_path / "t"))
    own.build(None, ["ts:minmax,valuelist"])
    where = "ts = timestamp '2024-10-27 02:30:00'"
    # Berlin's is the earlier of the two; in UTC it is two hours and more after both.
    assert read(own, where, zone="Europe/Berlin") == [0]
    assert read(own, where, zone="UTC") == []
    assert read(own, "ts < date'2024-10-28'", zone="Europe/Berlin") == [0, 1]
    assert read(own, "ts >= date'2024-10-28'", zone="Pacific/Kiritimati") == [2]
