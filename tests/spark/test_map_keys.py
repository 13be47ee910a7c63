"""Keys of maps on every Spark path: the rows of plain Spark, from fewer files.

The layout: files 0 to 3 hold 40 rows each, whose map ``m`` has under each of ``KEYS`` the text
``v<file>-<row % 4>``, nothing every 5th row, a null every 7th row, and the key twice every 11th
row, the second time with a text that no file's index may find; every 13th row has no map. File 4
has no such columns, file 5 only null maps, file 6 no rows.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import SkipstoneError, Table
from skipstone.predicate.types import MapKey, column_name
from skipstone.spark.session import set_to
from tests.spark.layout import check_each, read_remotely, rows, rows_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OLD = 1_600_000_000
KEYS = ["k", "it's", "a.b", "x y", "", "K", 'é`"\\', "m['k']"]
KINDS = "bitmap,rangebitmap,bloom,minmax,valuelist"
FILES = 7


def entries(file: int, row: int) -> list[tuple[str, str | None]] | None:
    if row % 13 == 12:
        return None
    found: list[tuple[str, str | None]] = []
    for at, key in enumerate(KEYS):
        if (row + at) % 5 == 4:
            continue
        found.append((key, None if (row + at) % 7 == 6 else f"v{file}-{row % 4}"))
        if (row + at) % 11 == 10:
            found.append((key, "second"))
    return found


def lay_out(home: Path) -> None:
    home.mkdir()
    text = pa.map_(pa.string(), pa.string())
    numbers = pa.map_(pa.string(), pa.float64())
    by_number = pa.map_(pa.int32(), pa.string())
    structs = pa.map_(pa.string(), pa.struct([pa.field("a", pa.int32())]))
    nested = pa.struct([pa.field("m", pa.map_(pa.string(), pa.int64()))])
    odd = [float("nan"), -0.0, 0.0, 1.5, None]
    for file in range(4):
        data = {
            "id": pa.array(range(file * 40, file * 40 + 40)),
            "m": pa.array([entries(file, row) for row in range(40)], text),
            "d": pa.array([[("x", odd[row % (file + 2)])] for row in range(40)], numbers),
            "n": pa.array([[(row % 3, f"v{file}")] for row in range(40)], by_number),
            "t": pa.array([[("s", {"a": file})] for _ in range(40)], structs),
            "s": pa.array([{"m": [("k", file)]} if row % 3 else None for row in range(40)], nested),
        }
        pq.write_table(pa.table(data), home / f"{file}.parquet", row_group_size=15)
    pq.write_table(pa.table({"id": [1, 2]}), home / "4.parquet")
    pq.write_table(pa.table({"m": pa.nulls(3, text)}), home / "5.parquet")
    pq.write_table(pa.table({"m": pa.nulls(0, text)}), home / "6.parquet")
    for file in range(FILES):
        os.utime(home / f"{file}.parquet", (OLD, OLD))


INDEXES = [
    *(f"{column_name(('m', MapKey(key)))}:{KINDS}" for key in KEYS),
    "d['x']:bitmap,rangebitmap,minmax,bloom",
    "s.m['k']:bitmap,minmax,valuelist",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("maps") / "t é"
    lay_out(home)
    report = Table(str(home)).build(indexes=INDEXES)
    assert report.files_built == FILES
    assert report.left_out == ()
    return home


def of_key(key: str) -> str:
    """The value of a key as Spark's SQL has it."""
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"m['{escaped}']"


# What is asked, and how many of the files Spark may read for it: nothing may skip files 4 and 5
# (and 6, which is empty) where nulls match.
ASKED = [
    ("{} = 'v2-1'", 1),
    ("{} IN ('v0-1', 'v3-3', 'none')", 2),
    ("{} = 'second'", 0),
    ("{} > 'v2-9' AND {} <> 'v3-1'", 1),
    ("{} IS NULL", 7),
    ("NOT ({} <=> 'v1-1')", 7),
    ("{} LIKE 'v1%'", 1),
]
OTHERS = [
    ("m.k = 'v2-1'", 1),
    ("M.k = 'v2-1'", 1),
    ("element_at(m, 'k') = 'v2-1'", 1),
    ("try_element_at(m, 'k') = 'second'", 0),
    ("m['k'] = 'v2-1' OR m['other'] = 'v1-1'", 7),
    ("m['other'] IS NOT NULL", 7),
    ("m['k'] = m['K'] AND m['k'] = 'v1-3'", 1),
    ("upper(m['k']) = 'V2-1'", 7),
    ("n[1] = 'v2'", 7),
    ("element_at(n, 1) = 'v2'", 7),
    ("n[7] IS NULL", 7),
    ("t['s'].a = 2", 7),
    ("d['x'] = 0.0", 4),
    ("d['x'] = double('NaN')", 4),
    ("d['x'] > 1.5D", 4),
    ("d['x'] < 0.0D", 0),
    ("s.m['k'] = 2", 1),
    ("s.m.k >= 2", 2),
    ("s.m['k'] <=> NULL", 7),
    ("cardinality(m) = 0", 7),
]
QUESTIONS = [
    *((where.replace("{}", of_key(key)), most) for key in KEYS for where, most in ASKED),
    *OTHERS,
]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_classic_session(home: Path, spark: SparkSession, ansi: str) -> None:
    with set_to(spark, {"spark.sql.ansi.enabled": ansi}):
        plain = spark.read.option("mergeSchema", "true").parquet(str(home))
        asked = QUESTIONS if ansi == "true" else QUESTIONS[::3] + OTHERS
        check_each(plain, skipstone.skip(plain), asked)


def test_text_that_is_planned_here(home: Path, spark: SparkSession) -> None:
    """Of the files that a plan for the text skips, plain Spark finds no row that matches."""
    table = Table(str(home))
    plain = spark.read.option("mergeSchema", "true").parquet(str(home))
    texts = [where for where, _ in QUESTIONS]
    every = rows_of_each(plain, texts, ["_metadata.file_name"])
    for where, matching in zip(texts, every, strict=True):
        plan = table.plan(where)
        kept = {f"Row(file_name={path.rpartition('/')[2]!r})" for path in plan.paths}
        assert set(matching) <= kept, where
    assert table.plan("m.k = 'v2-1'").files_kept == 1
    assert table.plan("m.other = 'v2-1'").files_kept == 6  # all but the empty one


def test_a_remote_session(home: Path, spark_connect: SparkSession) -> None:
    table = Table(str(home))
    plain = spark_connect.read.option("mergeSchema", "true").parquet(str(home))
    asked = [(where.replace("{}", of_key(KEYS[6])), most) for where, most in ASKED]
    asked += OTHERS[::3]
    every = rows_of_each(plain, [where for where, _ in asked])
    for (where, most), expected in zip(asked, every, strict=True):
        frame = table.read(spark_connect, where, mergeSchema="true")
        found, files = read_remotely(frame)
        assert found == expected, where
        # Text is planned here, which knows no functions.
        assert files <= (FILES if "element_at" in where else most), where


@pytest.mark.parametrize("place", ["m.key", "m.value"])
def test_collations_of_keys_and_values_say_nothing(
    tmp_path: Path, spark: SparkSession, spark_connect: SparkSession, place: str
) -> None:
    """Two files that say of themselves that keys, or values, compare without case."""
    (tmp_path / "c").mkdir()
    schema = {"keyType": "string", "type": "map", "valueType": "string", "valueContainsNull": True}
    field = {"name": "m", "nullable": True, "type": schema}
    field["metadata"] = {"__COLLATIONS": {place: "spark.UTF8_LCASE"}}
    document = json.dumps({"type": "struct", "fields": [field]})
    for file, value in enumerate(("a", "b")):
        data = pa.table({"m": pa.array([[("k", value)]], pa.map_(pa.string(), pa.string()))})
        data = data.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": document})
        pq.write_table(data, tmp_path / "c" / f"{file}.parquet")
        os.utime(tmp_path / "c" / f"{file}.parquet", (OLD, OLD))
    table = Table(str(tmp_path / "c"))
    with pytest.raises(SkipstoneError, match="collation"):
        table.build(indexes=["m['k']:bitmap"])
    # Facts of a time when the files did not say so.
    found = table.plan("m['k'] = 'A'")
    assert found.keep.all()
    assert "collation" in str(found)
    where = "m['K'] = 'a'" if place == "m.key" else "m['k'] = 'A'"
    for session in (spark, spark_connect):
        plain = session.read.parquet(str(tmp_path / "c"))
        assert rows(table.read(session, where)) == rows(plain.where(where))
