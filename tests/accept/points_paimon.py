"""Row indexes in Paimon's format: containers, kinds, answers, Top-N, build, use, export."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import skipstone
from skipstone import PaimonFileIndex, Table
from skipstone.paimon.format import container
from tests.accept.registry import Missing, point
from tests.accept.tables import backdate, write
from tests.folders import GOLDEN
from tests.oracle import matching_rows
from tests.paimon.format.golden import read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accept.workbench import Workbench

PARTS, ROWS = 3, 1_000
KINDS = ["city:bitmap", "age:rangebitmap", "cents:bsi", "key:paimonbloom(items=2000,fpp=0.001)"]
QUESTIONS = [
    "city = 'Oslo'",
    "city <> 'Oslo'",
    "city IN ('Oslo', 'Vardø')",
    "city NOT IN ('Oslo', 'Vardø')",
    "city LIKE 'Ber%'",
    "city IS NULL",
    "city IS NOT NULL",
    "age = 41",
    "age <> 41",
    "age < 3",
    "age <= 3",
    "age > 87",
    "age >= 87",
    "age BETWEEN 10 AND 12",
    "cents BETWEEN -3 AND 3",
    "city = 'Oslo' AND age > 80",
    "city = 'Vardø' OR cents = 12",
    "NOT (city = 'Oslo' OR age < 80)",
]


def rows(part: int) -> pa.Table:
    """city: one of four and null; age 0 … 89 and null; cents from -500; key all different; f with
    NaN and both zeros."""
    n = np.arange(ROWS) + ROWS * part
    city = np.array(["Oslo", "Bergen", "Vardø", ""], object)[n % 4]
    return pa.table(
        {
            "city": pa.array(city.tolist(), mask=n % 9 == 0),
            "age": pa.array((n * 31 % 90).astype(np.int32), mask=n % 11 == 0),
            "cents": pa.array(n % 1_000 - 500),
            "key": pa.array([f"k{at}" for at in n]),
            "f": pa.array(np.array([np.nan, 0.0, -0.0, 1.5])[n % 4]),
        }
    )


def people(home: Path) -> Path:
    """Three files of 1,000 rows."""
    for part in range(PARTS):
        table = rows(part)
        write(home / f"part {part} é.parquet", {name: table[name] for name in table.column_names})
    return home


def indexed(bench: Workbench, kinds: list[str] | None = None) -> Table:
    table = Table(str(people(bench.home / "people")))
    table.build(indexes=kinds or KINDS)
    return table


def expected(where: str) -> list[list[int]]:
    return [matching_rows(rows(part), where) for part in range(PARTS)]


def cases() -> list[dict[str, Any]]:
    if not GOLDEN.is_dir():
        raise Missing("no golden files: ../shared/golden is absent")
    return read_cases(GOLDEN)[0]


@point("paimon: containers of Paimon's own classes are read, and written back byte for byte")
def containers(bench: Workbench) -> None:
    for case in cases():
        raw = bytes.fromhex(case["index_hex"])
        head, blobs = container.from_bytes(raw)
        columns: dict[str, dict[str, bytes | None]] = {}
        for (name, kind), blob in blobs.items():
            columns.setdefault(name, {})[kind] = blob
        assert container.to_bytes(columns, order=columns) == raw, case["name"]
        assert head.to_bytes() == raw[: head.length], case["name"]


@point("paimon: unknown kinds in a container say nothing, and the others go on")
def unknown(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    file = next((bench.home / "out").glob("*0*.index"))
    _, blobs = container.from_bytes(file.read_bytes())
    columns: dict[str, dict[str, bytes | None]] = {"city": {"hologram": b"?"}, "new": {"x": None}}
    for (name, kind), blob in blobs.items():
        columns.setdefault(name, {})[kind] = blob
    index = PaimonFileIndex(container.to_bytes(columns), types=rows(0).schema)
    assert index.count("city = 'Oslo'") == len(expected("city = 'Oslo'")[0])


@point("paimon: building twice gives the same bytes, in an order of its own")
def deterministic(bench: Workbench) -> None:
    out = []
    for turn in ("a", "b"):
        table = Table(str(people(bench.home / turn / "people")))
        table.build(indexes=KINDS if turn == "a" else KINDS[::-1])
        table.export(str(bench.home / turn / "out"), kind="paimon")
        files = sorted((bench.home / turn / "out").glob("*.index"))
        out.append([file.read_bytes() for file in files])
    assert out[0] == out[1]


@point("paimon: all four kinds are built and read, and each answers exactly the rows that match")
def kinds(bench: Workbench) -> None:
    table = indexed(bench)
    for where in QUESTIONS:
        plan, wanted = table.plan(where), expected(where)
        assert plan.count() == sum(map(len, wanted)), where
        for at, detail in plan.details.items():
            assert detail.rows is not None, where
            assert detail.rows.positions().tolist() == wanted[at], where
    assert not table.plan("key = 'nobody'").keep.any()


@point("paimon: NaN, zeros of either sign and nulls are found where Java misses rows")
def awkward(bench: Workbench) -> None:
    for kind in ("bitmap", "rangebitmap"):
        home = people(bench.home / kind / "people")
        table = Table(str(home))
        table.build(indexes=[f"f:{kind}"])
        for where in ("f = 0.0", "f = -0.0", "f >= 0.0", "f < 0.0", "f = double('NaN')", "f > 1.5"):
            assert table.plan(where).count() == sum(map(len, expected(where))), f"{kind}: {where}"


@point("paimon: Top-N comes from the index, ascending and descending, nulls first and last")
def top(bench: Workbench) -> None:
    table = indexed(bench)
    ages = [age for part in range(PARTS) for age in rows(part)["age"].to_pylist()]
    present = sorted(age for age in ages if age is not None)
    nulls = [None] * ages.count(None)
    for order, wanted in {
        "age": [*nulls, *present],
        "age NULLS LAST": [*present, *nulls],
        "age DESC": [*present[::-1], *nulls],
        "age DESC NULLS FIRST": [*nulls, *present[::-1]],
    }.items():
        for limit in (1, 10, 2_000, 5_000):
            found = table.top(order, limit)
            got = [
                age
                for path, at in found.rows.items()
                for age in skipstone.ParquetFile(path).read_rows(["age"], at)["age"].to_pylist()
            ]
            key = str(sorted(got, key=lambda age: (age is None, age)))
            assert key == str(sorted(wanted[:limit], key=lambda age: (age is None, age))), order
            assert found.exact, order
    ties = table.top(["age NULLS LAST", "key"], 5)
    assert len(ties) == present.count(0), ties
    assert not ties.exact


@point("paimon: one value of a large index takes a fraction of it, in a file or inside a pack")
def ranged(bench: Workbench) -> None:
    numbers = np.random.default_rng(5).permutation(200_000)
    path = write(bench.home / "big" / "b.parquet", {"n": numbers}).parent
    table = Table(str(path))
    table.build(indexes=["n:bitmap", "n:rangebitmap"])
    plan = table.plan("n = 77777")
    assert plan.count() == 1
    read = sum(step.bytes_read for step in plan.steps)
    packs = sum(f.stat().st_size for f in (bench.home / "_big.skipstone/packs").iterdir())
    assert 0 < read < packs / 10, f"{read:,} of {packs:,} bytes"
    table.export(str(bench.home / "out"), kind="paimon")
    index = PaimonFileIndex(str(bench.home / "out" / "b.parquet.index"), types={"n": "BIGINT"})
    assert index.count("n = 77777") == 1
    assert index.bytes_read < index.size / 10, index.bytes_read


@point("paimon: one Spark job builds them beside the other kinds, one container per data file")
def spark_build(bench: Workbench) -> None:
    table = Table(str(people(bench.home / "people")))
    table.build(bench.spark, indexes=[*KINDS, "age:minmax"])
    report = table.export(str(bench.home / "out"), kind="paimon")
    assert (report.files, report.files_total) == (PARTS, PARTS), report
    for where in QUESTIONS[:6]:
        assert table.plan(where).count() == sum(map(len, expected(where))), where


@point("paimon: the command line takes Paimon's own option names, and refuses wrong ones")
def options(bench: Workbench) -> None:
    home = people(bench.home / "people")
    good = bench.skipstone(
        "build", home, "--no-spark",
        "--option", "file-index.bitmap.columns=city, age",
        "--option", "file-index.bitmap.age.index-block-size=32kb",
        "--option", "file-index.bloom-filter.columns=key",
        "--option", "file-index.bloom-filter.key.items=2000",
        "--option", "file-index.in-manifest-threshold=1 mb",
    )  # fmt: skip
    assert good.code == 0, good.err
    assert not (bench.home / "_people.skipstone" / "packs").exists(), "the threshold says inline"
    assert Table(str(home)).plan("city = 'Oslo'").count() == sum(map(len, expected("city='Oslo'")))
    for wrong in (
        "file-index.bitmap.colums=city",
        "file-index.bitmap.columns=city,,age",
        "file-index.bitmap.city.version=2",
        "file-index.bitmaps.columns=city",
    ):
        refused = bench.skipstone("build", home, "--no-spark", "--option", wrong)
        assert refused.code == 2, f"{wrong}: {refused.err}"
        assert "file-index" in refused.err, refused.err
    off = bench.skipstone(
        "explain", home, "city = 'Nowhere'", "--option", "file-index.read.enabled=false"
    )
    assert f"read {PARTS} of {PARTS} files" in off.out, off.out


@point("paimon: on the Spark paths a file in which no row matches is not read")
def spark_use(bench: Workbench) -> None:
    table = indexed(bench)
    df = skipstone.skip(bench.spark.read.parquet(table.path))
    # key is in one file only; age has each value in every file, but not with this city and cents.
    where = "key = 'k1500'"
    assert df.where(where).count() == 1
    scan = skipstone.last_scan(bench.spark)
    assert f"1 of {PARTS} files" in str(scan), scan
    assert table.plan(where).files_kept == 1


@point("paimon: export writes standard sidecars, and a table with sidecars is used as it is")
def sidecars(bench: Workbench) -> None:
    table = indexed(bench)
    done = bench.skipstone("export", table.path, bench.home / "out", "--paimon")
    assert done.code == 0, done.err
    legacy = people(bench.home / "legacy")
    for file in (bench.home / "out").iterdir():
        shutil.copy(file, legacy)
    other = Table(str(legacy))
    for where in QUESTIONS:
        assert other.plan(where).count() == sum(map(len, expected(where))), where
    both = "city = 'Oslo' AND age > 80"
    count = sum(map(len, expected(both)))
    assert other.read(bench.spark, where=both).count() == count
    assert other.read(bench.spark).count() == PARTS * ROWS
    assert other.top("age DESC", 5).exact
    shown = bench.skipstone("explain", legacy, "age > 1000")
    assert f"next to {PARTS} of {PARTS} files" in shown.out, shown.out
    assert f"read 0 of {PARTS} files" in shown.out, shown.out
    off = Table(str(legacy), sidecars=False).plan(both)
    assert off.count() is None, off


@point("paimon: skip(df) uses the sidecars of the files that Spark lists")
def transparent(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    legacy = people(bench.home / "legacy")
    for file in (bench.home / "out").iterdir():
        shutil.copy(file, legacy)
    for plain in (
        bench.spark.read.option("pathGlobFilter", "*.parquet").parquet(str(legacy)),
        bench.spark.read.parquet(f"{legacy}/*.parquet"),
    ):
        frame = skipstone.skip(plain)
        assert frame.where("key = 'k1500'").count() == 1
        assert f"1 of {PARTS} files" in str(skipstone.last_scan(bench.spark))
        for where in QUESTIONS[:4]:
            assert frame.where(where).count() == sum(map(len, expected(where))), where


@point("paimon: a sidecar of another version of its file is noticed by what is in it")
def replaced(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    legacy = people(bench.home / "legacy")
    for file in (bench.home / "out").iterdir():
        shutil.copy(file, legacy)
    # One file is another now: as many rows, other numbers, older than the sidecar that is there.
    moved = rows(1).set_column(2, "cents", pa.array(np.arange(ROWS)))
    name = "part 1 é.parquet"
    write(legacy / name, {each: moved[each] for each in moved.column_names})
    other = Table(str(legacy))
    for where in ("cents = 700", "cents > 498", "cents < -400", "cents = 12 OR age < 0"):
        parts = [rows(0), moved, rows(2)]
        assert other.count(where) == sum(len(matching_rows(part, where)) for part in parts), where
    plan = other.plan("cents = 700")
    assert plan.files_kept == 1, plan
    assert any("of another file" in str(reason) for reason in plan.reasons), plan


@point("paimon: a stale or damaged sidecar says nothing, and every row is still found")
def damaged(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    legacy = people(bench.home / "legacy")
    for at, file in enumerate(sorted((bench.home / "out").iterdir())):
        shutil.copy(file, legacy)
        target = legacy / file.name
        if at == 0:
            backdate(target, age=100)
        elif at == 1:
            target.write_bytes(target.read_bytes()[:-50])
        else:
            target.write_bytes(os.urandom(200))
    other = Table(str(legacy))
    for where in QUESTIONS:
        assert other.count(where) == sum(map(len, expected(where))), where


@point("paimon: a container handed over as bytes answers, with types named as Paimon does")
def as_bytes(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    raw = next((bench.home / "out").glob("*1*.index")).read_bytes()
    index = PaimonFileIndex(raw, types={"city": "STRING", "age": "INT", "cents": "BIGINT"})
    for where in QUESTIONS:
        found = index.select(where)
        assert found.exact, where
        assert found.rows.positions().tolist() == expected(where)[1], where


@point("paimon: inspect shows columns, kinds, sizes, values, and with --where the rows")
def inspect(bench: Workbench) -> None:
    table = indexed(bench)
    table.export(str(bench.home / "out"), kind="paimon")
    file = next((bench.home / "out").glob("*0*.index"))
    data = bench.home / "people" / file.name.removesuffix(".index")
    shown = bench.skipstone(
        "inspect", file, "--data", data, "--where", "city = 'Oslo' AND age > 80", "--json"
    )
    assert shown.code == 0, shown.err
    document = json.loads(shown.out)
    kinds = {each["column"]: each["kind"] for each in document["found"][0]["columns"]}
    assert kinds == {
        "city": "bitmap", "age": "range-bitmap", "cents": "bsi", "key": "bloom-filter",
    }  # fmt: skip
    wanted = expected("city = 'Oslo' AND age > 80")[0]
    got = [row for a, b in document["where"]["ranges"] for row in range(a, b + 1)]
    assert got == wanted
    assert document["where"]["exact"]
    text = bench.skipstone("inspect", file)
    assert "range-bitmap" in text.out, text.out
    file.write_bytes(file.read_bytes()[:-40])
    assert bench.skipstone("inspect", file).code == 1


@point("paimon: a count that the indexes decide reads no data, and any other is right too")
def counts(bench: Workbench) -> None:
    table = indexed(bench)
    for where in QUESTIONS:
        assert table.count(where) == sum(map(len, expected(where))), where
    half = "city = 'Oslo' AND key LIKE '%7'"
    assert table.plan(half).count() is None
    assert table.count(half) == sum(map(len, expected(half)))


@point("paimon: a key of a map is a column: built, asked in SQL, exact where a map lacks it")
def map_keys(bench: Workbench) -> None:
    attributes = [
        {"k": f"v{n % 7}", "other": "x"} if n % 3 else ({} if n % 2 else None) for n in range(ROWS)
    ]
    folder = bench.home / "maps"
    write(
        folder / "a é.parquet",
        {"id": np.arange(ROWS), "m": pa.array(attributes, pa.map_(pa.string(), pa.string()))},
    )
    table = Table(str(folder))
    table.build(indexes=["m['k']:bitmap"])
    for where, wanted in (
        ("m['k'] = 'v3'", [n for n in range(ROWS) if n % 3 and n % 7 == 3]),
        ("m['k'] IS NULL", [n for n in range(ROWS) if not n % 3]),
        ("m['none'] = 'v3'", []),
    ):
        assert table.query(where, columns=["id"])["id"].to_pylist() == wanted, where
    plan = table.plan("m['k'] = 'v3'")
    assert plan.details[0].rows is not None
    assert plan.count() == len([n for n in range(ROWS) if n % 3 and n % 7 == 3])
