"""Expressions in a predicate: decided on the rows, with Spark's meaning, and what they skip."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import Table, skip
from tests.accept.registry import point
from tests.accept.tables import write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench


def lineitems(root: Path) -> Path:
    """Ten files, one a year from 1990 on."""
    root.mkdir(parents=True)
    for part in range(10):
        days = (date(1990 + part, 1, 1) - date(1970, 1, 1)).days
        numbers = range(part * 10, part * 10 + 10)
        columns = {
            "id": pa.array(numbers, pa.int64()),
            "q": pa.array(numbers, pa.int32()),
            "ship": pa.array([days + 30 * n for n in range(10)], pa.int32()).cast(pa.date32()),
            "commit": pa.array([days + 40] * 10, pa.int32()).cast(pa.date32()),
            "mode": ["Rail", "ship", "AIR", None, "rail"] * 2,
            "tags": pa.array([["x"], [], None, ["y", "x"], []] * 2, pa.list_(pa.string())),
        }
        pq.write_table(pa.table(columns), root / f"{part}.parquet")
    return root


@point("expressions: columns, arithmetic, dates, text and lists are decided on the rows")
def decided(bench: Workbench) -> None:
    root = lineitems(bench.home / "lineitem")
    for where, rows in {
        "ship > commit": 80,
        "q * 2 > 99": 50,
        "year(ship) = 1998": 10,
        "mode ILIKE 'rail'": 40,
        "mode RLIKE '^[A-Z]+$'": 20,
        "upper(mode) = 'SHIP'": 20,
        "size(tags) = 0": 40,
        "array_contains(tags, 'x')": 40,
        "CASE WHEN q < 10 THEN 'few' ELSE 'many' END = 'few'": 10,
        "(mode = 'AIR') IS NOT TRUE": 80,
    }.items():
        done = bench.skipstone("count", root, where, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["rows"] == rows, (where, done.out)


@point("expressions: a row that Spark would fail on is an error that names the file")
def failing(bench: Workbench) -> None:
    root = lineitems(bench.home / "lineitem")
    done = bench.skipstone("query", root, "100 / (q - 50) > 1")
    assert done.code == 1
    assert "5.parquet: a division by zero" in done.err, done.err
    assert Table(str(root)).count("q > 50 AND 100 / (q - 50) > 10") == 9
    assert "nullif(x, 0)" in done.err
    assert bench.skipstone("count", root, "100 / nullif(q - 50, 0) > 10").out.strip() == "9"


@point("expressions: a misspelt function is an error with its place, in explain as in query")
def misspelt(bench: Workbench) -> None:
    root = lineitems(bench.home / "lineitem")
    for verb in ("query", "count", "explain"):
        done = bench.skipstone(verb, root, "q > 5 AND yaer(ship) = 1994")
        assert done.code == 1, verb
        assert "no function yaer at position 10" in done.err, done.err
        assert "did you mean 'year'?" in done.err
    done = bench.skipstone("explain", root, "soundex(mode) = 'A123' AND q = 5")
    assert done.code == 0
    assert "only Spark computes soundex" in done.out, done


@point(
    "expressions: those that keep a column's order skip files, and explain says why others do not"
)
def skipping(bench: Workbench) -> None:
    root = lineitems(bench.home / "lineitem")
    assert (
        bench.skipstone("build", root, "-c", "q:minmax", "-c", "ship:minmax", "--no-spark").code
        == 0
    )
    for where, files in {
        "year(ship) = 1994": 1,
        "q * 2 > 139": 3,
        "q + 1 = 51": 1,
        "coalesce(q, 5) = 5": 1,
        "CASE WHEN q < 20 THEN 'few' ELSE 'many' END = 'few'": 2,
        "trunc(ship, 'year') < DATE '1992-01-01'": 2,
        "month(ship) = 3": 10,
    }.items():
        done = bench.skipstone("explain", root, where, "--json", "--facts-only")
        assert done.code == 0, done.err
        assert json.loads(done.out)["files"]["kept"] == files, where
    told = bench.skipstone("explain", root, "month(ship) = 3").out
    assert "month begins again and again" in told, told


@point("expressions: an index on the elements of a list answers array_contains, and nothing else")
def elements(bench: Workbench) -> None:
    root = bench.home / "tagged"
    root.mkdir()
    for part in range(10):
        tags = [[f"t{part}", None], ["all"], [], None]
        table = pa.table({"id": range(4), "tags": pa.array(tags, pa.list_(pa.string()))})
        pq.write_table(table if part else table.select(["id"]), root / f"{part}.parquet")
    for kind in ("bloom(fpp=0.0001)", "valuelist"):
        done = bench.skipstone("build", root, "-c", f"tags:{kind}", "--no-spark")
        assert done.code == 0, done.err
        for where, files, rows in (
            ("array_contains(tags, 't3')", 1, 1),
            ("array_contains(tags, 't3') OR array_contains(TAGS, 't7')", 2, 2),
            ("array_contains(tags, 'none')", 0, 0),
            ("NOT array_contains(tags, 't3')", 10, 18),
            ("tags IS NULL", 10, 13),
        ):
            told = bench.skipstone("explain", root, where, "--json", "--facts-only")
            assert json.loads(told.out)["files"]["kept"] == files, where
            told = bench.skipstone("count", root, where, "--json")
            assert json.loads(told.out)["rows"] == rows, (where, told.out)
        assert bench.skipstone("drop", root, f"tags:{kind}", "--yes").code == 0
    failed = bench.skipstone("build", root, "-c", "tags:bitmap", "--no-spark")
    assert failed.code == 1
    assert "elements of lists are not rows" in failed.err, failed.err


@point("expressions: keys of maps and overlaps of lists skip, by an index or by the files alone")
def keys(bench: Workbench) -> None:
    root = bench.home / "events"
    root.mkdir()
    for part in range(4):
        maps = [[(f"k{part}{n // 25_000}", n % 9)] for n in range(50_000)]
        columns = {
            "m": pa.array(maps, pa.map_(pa.string(), pa.int32())),
            "tags": pa.array([[f"t{part}"], None] * 25_000, pa.list_(pa.string())),
            "body": [f"{n * 2_654_435_761 % 2**64:x}" * 4 for n in range(50_000)],
        }
        pq.write_table(pa.table(columns), root / f"{part}.parquet", row_group_size=25_000)
    rows = {
        "map_contains_key(m, 'k21')": 25_000,
        "m['k21'] = 3": 2_778,
        "arrays_overlap(tags, array('t1', 't2', 'none'))": 50_000,
    }
    for where, count in rows.items():
        told = json.loads(bench.skipstone("explain", root, where, "--json").out)
        kept = min(each["kept"] for each in told["steps"] if each["unit"] == "row groups")
        assert kept == (4 if "tags" in where else 1), (where, told)
        assert Table(str(root)).count(where) == count, where
    done = bench.skipstone(
        "build", root, "-c", "map_keys(m):bloom", "-c", "tags:bloom", "--no-spark"
    )
    assert done.code == 0, done.err
    for where, count in rows.items():
        told = bench.skipstone("explain", root, where, "--json", "--facts-only")
        kept = 2 if "tags" in where else 1
        assert json.loads(told.out)["files"]["kept"] == kept, where
        assert Table(str(root)).count(where) == count, where


@point(
    "expressions: an index on one answers every spelling of it, and names what it needs Spark for"
)
def indexed(bench: Workbench) -> None:
    root = lineitems(bench.home / "lineitem")
    wanted = ("-c", "lower(mode):valuelist", "-c", "month(ship):valuelist", "-c", "q % 10:bitmap")
    done = bench.skipstone("build", root, *wanted, "--no-spark")
    assert done.code == 0, done.err
    for where, files in {
        "LCASE(`mode`) = 'bus'": 0,
        "lower(mode) IN ('bus', 'rail')": 10,
        "month(ship) = 12": 0,
        "mode = 'Bus'": 0,
    }.items():
        told = bench.skipstone("explain", root, where, "--json", "--facts-only")
        assert json.loads(told.out)["files"]["kept"] == files, where
        assert json.loads(bench.skipstone("count", root, where, "--json").out)["rows"] == (
            {"lower(mode) IN ('bus', 'rail')": 40}.get(where, 0)
        )
    told = bench.skipstone("explain", root, "q % 10 = 3")
    assert "100 -> 10 rows" in told.out, told.out
    failed = bench.skipstone("build", root, "-c", "md5(mode):bloom", "--no-spark")
    assert failed.code == 1
    assert "needs a Spark build" in failed.err, failed.err
    assert bench.skipstone("drop", root, "lower(mode):valuelist", "--yes").code == 0


@point("expressions: a range skips files whose values lie on both sides of it, and none within")
def together(bench: Workbench) -> None:
    root = bench.home / "ranges"
    for part in range(20):
        codes = [f"K{part:04d}", f"K{part + 9000}", *([f"K500{part}"] if part < 3 else [])]
        write(root / f"{part}.parquet", {"code": codes * 20, "n": [int(c[1:]) for c in codes] * 20})
    done = bench.skipstone("build", root, "-c", "code:valuelist", "-c", "n:valuelist", "--no-spark")
    assert done.code == 0, done.err
    for where, kept in {
        "n BETWEEN 5000 AND 5009": 3,
        "n > 5000 AND n < 5002": 1,
        "code >= 'K500' AND code < 'K501'": 3,
        "code LIKE 'K5%' AND code LIKE '%2'": 1,
        "NOT (n BETWEEN 5 AND 9100)": 5,
    }.items():
        told = bench.skipstone("explain", root, where, "--json", "--facts-only")
        assert json.loads(told.out)["files"]["kept"] == kept, where
        assert Table(str(root)).count(where) == 20 * kept, where


@point("expressions: one that fails in a file of a Spark build costs no fact of another one")
def isolated(bench: Workbench) -> None:
    root = bench.home / "codes"
    root.mkdir()
    for part in range(5):
        codes = ["none" if part == 2 else f"{part}{n}" for n in range(6)]
        pq.write_table(pa.table({"code": codes, "id": range(6)}), root / f"{part}.parquet")
    spec = ["CAST(reverse(code) AS INT):valuelist", "initcap(code):valuelist"]
    report = Table(str(root)).build(bench.spark, spec)
    assert report.files_built == 5
    assert [each.units for each in report.left_out] == [1], report.left_out
    assert "CAST_INVALID_INPUT" in report.left_out[0].text
    for where, files in (
        ("CAST(reverse(code) AS INT) = 43", 2),
        ("initcap(code) = '34'", 1),
        ("initcap(code) = 'None'", 1),
    ):
        told = bench.skipstone("explain", root, where, "--json", "--facts-only")
        assert json.loads(told.out)["files"]["kept"] == files, where


@point(
    "expressions: where a setting changes the case of letters, no index on their case loses rows"
)
def cases(bench: Workbench) -> None:
    root = bench.home / "letters"
    root.mkdir()
    for part, text in enumerate(["\u0264a", "\u1c89b", "ab", "cd"]):
        pq.write_table(pa.table({"s": [text]}), root / f"{part}.parquet")
    spec = ["upper(s):valuelist", "upper(reverse(s)):valuelist"]
    Table(str(root)).build(bench.spark, spec)
    plain = bench.spark.read.parquet(str(root))
    try:
        for value in ("true", "false"):
            bench.spark.conf.set("spark.sql.icu.caseMappings.enabled", value)
            for each in ("upper(s)", "upper(reverse(s))"):
                for (text,) in plain.selectExpr(each).collect():
                    where = f"{each} = '{text}'"
                    assert skip(plain).where(where).count() == 1, (where, value)
    finally:
        bench.spark.conf.unset("spark.sql.icu.caseMappings.enabled")


@point("expressions: date_format of a day that the time zone skipped is that of the next")
def skipped(bench: Workbench) -> None:
    root = bench.home / "days"
    root.mkdir()
    for part in range(4):
        pq.write_table(pa.table({"day": [date(2011, 12, 29 - 1 + part)]}), root / f"{part}.parquet")
    assert bench.skipstone("build", root, "-c", "day:valuelist", "--no-spark").code == 0
    for day, rows in (("29", 1), ("30", 0), ("31", 2)):
        where = f"date_format(day, 'yyyy-MM-dd') = '2011-12-{day}'"
        found = Table(str(root)).query(where, time_zone="Pacific/Apia")
        assert found.num_rows == rows, where
        assert Table(str(root)).query(where).num_rows == 1, where


@point("expressions: a comparison of two columns leaves out pages by the bounds of both")
def compared(bench: Workbench) -> None:
    root = bench.home / "pages"
    root.mkdir()
    ship = range(200_000)
    commit = [n + (9 if 50_000 <= n < 50_010 else -9_000) for n in ship]
    columns = {
        "ship": pa.array(ship, pa.int32()),
        "commit": pa.array(commit, pa.int64()),
        "body": [f"{n * 2_654_435_761 % 2**64:x}" for n in ship],
    }
    table = pa.table(columns)
    options = {"use_dictionary": False, "write_page_index": True, "data_page_size": 8_192}
    pq.write_table(table, root / "0.parquet", **options)
    told = json.loads(bench.skipstone("explain", root, "ship < commit", "--json").out)
    (step,) = [each for each in told["steps"] if each["unit"] == "pages"]
    assert step["kept"] <= 3, step
    assert step["considered"] > 150, step
    assert bench.skipstone("count", root, "ship < commit").out.strip() == "10"
