"""Indexes on the elements of lists in Spark: the rows of plain Spark, from fewer files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import UnsupportedError
from skipstone.spark.session import set_to
from tests.spark.layout import check_each, rows_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 6


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files 0 to 3 have lists; in file 4 all are null or empty, and file 5 lacks the columns."""
    folder = tmp_path_factory.mktemp("lists") / "t"
    folder.mkdir()
    for file in range(FILES):
        tags = [[f"t{file}", "all"], None, [], [f"u{file}", None], [None]]
        columns = {
            "id": pa.array(range(file * 10, file * 10 + 5), pa.int64()),
            "tags": pa.array(tags, pa.list_(pa.string())),
            "ints": pa.array([[file, 100 + file], None, [], [None], [-file]], pa.list_(pa.int32())),
            "days": pa.array([[file], None, [], [None], []], pa.list_(pa.date32())),
            "nums": pa.array([[file / 2, float("nan")], None, [], [-0.0], []]),
            "s": pa.array([{"in": [f"in{file}"]}] * 5),
            "deep": pa.array([[[f"d{file}"]]] * 5),
            "m": pa.array(
                [[(f"k{file}", file), ("all", None)], None, [], [("all", 7)], [("o'n\\e", -file)]],
                pa.map_(pa.string(), pa.int32()),
            ),
        }
        table = pa.table(columns)
        if file == 4:
            table = table.slice(1, 2)
        if file == 5:
            table = table.select(["id"])
        pq.write_table(table, folder / f"{file}.parquet")
    wanted = [f"{each}:valuelist" for each in ("tags", "ints", "days", "nums", "s.in")]
    wanted += ["tags:bloom(fpp=0.0001)", "map_keys(m):valuelist", "map_values(m):valuelist"]
    report = Table(str(folder)).build(indexes=wanted, pm="none")
    assert (report.files_built, report.left_out) == (FILES, ())
    return folder


# What is asked, and the files that Spark may read for it.
ASKED = [
    ("array_contains(tags, 't2')", 1),
    ("array_contains(tags, 'u1') AND id > 0", 1),
    ("array_contains(tags, 'none')", 0),
    ("array_contains(tags, 't0') OR array_contains(tags, 't3')", 2),
    ("array_contains(tags, 'all') AND array_contains(tags, 't1')", 1),
    ("array_contains(tags, 'all') AND NOT array_contains(tags, 't1')", 4),
    ("array_contains(tags, 't2') = true", 1),
    ("(array_contains(tags, 't2')) IS TRUE", 1),
    ("array_contains(tags, concat('t', '2'))", 1),
    ("array_contains(ints, 102)", 1),
    ("array_contains(ints, 102L)", 1),
    ("array_contains(ints, 5000000000L)", 0),
    ("array_contains(ints, CAST(3 AS SMALLINT))", 1),
    ("array_contains(days, DATE '1970-01-03')", 1),
    ("array_contains(nums, 0.5D)", 1),
    ("array_contains(nums, DOUBLE('NaN'))", 4),
    ("array_contains(nums, 0.0D)", 4),
    ("array_contains(s.in, 'in3')", 1),
    ("exists(tags, t -> t = 't2')", 1),
    ("exists(tags, t -> 't2' = t) AND exists(tags, id -> id = 'all')", 1),
    ("exists(ints, i -> i = 102)", 1),
    ("arrays_overlap(tags, array('t2', 'u3', 'none'))", 2),
    ("arrays_overlap(array('none', CAST(NULL AS STRING)), tags)", 0),
    ("arrays_overlap(tags, array('t2', NULL)) = true", 1),
    ("arrays_overlap(ints, array(102, 5000000000L))", 1),
    ("arrays_overlap(days, array(DATE '1970-01-03', DATE '1970-01-04'))", 2),
    ("arrays_overlap(nums, array(0.5D, 1.0D))", FILES),
    ("arrays_overlap(nums, array(0.0D))", FILES),
    ("map_contains_key(m, 'k2')", 1),
    ("map_contains_key(m, concat('k', '2')) AND map_contains_key(m, 'all')", 1),
    ("array_contains(map_keys(m), 'k3')", 1),
    ("array_contains(map_values(m), 3)", 1),
    ("array_contains(map_values(m), 3L)", 1),
    ("exists(map_keys(m), k -> k = 'k1')", 1),
    ("arrays_overlap(map_keys(m), array('k0', 'k2', 'none'))", 2),
    ("arrays_overlap(map_keys(m), array('o\\'n\\\\e', 'x'))", 4),
    ("m['k2'] = 2", 1),
    ("m['k2'] = 3", 1),
    ("element_at(m, 'k2') IS NOT NULL", 1),
    # What elements do not decide.
    ("NOT arrays_overlap(tags, array('t2'))", FILES),
    ("arrays_overlap(tags, array('t2', NULL)) IS NULL", FILES),
    ("NOT map_contains_key(m, 'k2')", FILES),
    ("map_contains_key(m, 'k2') IS NULL", FILES),
    ("m['k2'] IS NULL", FILES),
    ("arrays_overlap(map_keys(m), tags)", FILES),
    ("NOT exists(tags, t -> t = 't2')", FILES),
    ("NOT array_contains(tags, 't2')", FILES),
    ("array_contains(tags, 't2') IS NULL", FILES),
    ("array_contains(tags, 't2') = false", FILES),
    ("tags IS NULL", FILES),
    ("size(tags) = 2", FILES),
    ("array_contains(ints, id)", FILES),
]
# Spark alone decides these.
OF_SPARK = [
    ("exists(tags, t -> t IN ('t2'))", 1),
    ("exists(tags, t -> t <> 't2')", FILES),
    ("arrays_overlap(ints, array(2.5D))", FILES),
    ("arrays_overlap(deep, array(array('d1')))", FILES),
    ("exists(tags, t -> t > 't2')", FILES),
    ("exists(tags, t -> t <=> 't2')", FILES),
    ("exists(tags, t -> t = CAST(id AS STRING))", FILES),
    ("exists(tags, t -> t IS NULL)", FILES),
    ("exists(deep, d -> exists(d, t -> t = 'd1'))", FILES),
    ("array_contains(tags, CAST(NULL AS STRING))", FILES),
    ("array_contains(ints, 2.5D)", FILES),
    ("tags = array('t2', 'all')", FILES),
    ("tags[0] = 't2'", FILES),
    ("array_contains(deep[0], 'd1')", FILES),
]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_rows_are_those_of_plain_spark(home: Path, spark: SparkSession, ansi: str) -> None:
    with set_to(spark, {"spark.sql.ansi.enabled": ansi}):
        plain = spark.read.option("mergeSchema", "true").parquet(str(home))
        asked = [*ASKED, *OF_SPARK]
        if ansi == "true":  # an element of an empty list is an error
            guarded = r"size(\1) > 0 AND \g<0>"
            asked = [(re.sub(r".*(tags|deep)\[0\]", guarded, e), most) for e, most in asked]
        check_each(plain, skipstone.skip(plain), asked)


def test_the_engine_decides_the_same_rows(home: Path, spark: SparkSession) -> None:
    plain = spark.read.option("mergeSchema", "true").parquet(str(home))
    table = Table(str(home))
    every = rows_of_each(plain, [where for where, _ in ASKED], ["id"])
    for (where, most), expected in zip(ASKED, every, strict=True):
        ids = table.query(where, columns=["id"]).column("id").to_pylist()
        assert ids == sorted(ids)
        assert sorted(f"Row(id={each})" for each in ids) == expected, where
        assert table.plan(where, inside=False).files_kept <= most, where


def test_a_collation_has_no_elements(tmp_path: Path, spark: SparkSession) -> None:
    root = str(tmp_path / "t")
    frame = spark.sql("SELECT array('A' COLLATE UTF8_LCASE) AS tags, 1 AS id")
    frame.write.parquet(root)
    with pytest.raises(UnsupportedError, match="collation"):
        Table(root).build(indexes=["tags:bloom"], pm="none")
