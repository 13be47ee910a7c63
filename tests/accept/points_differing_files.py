"""Tables whose files differ, and files that are damaged or private."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone import Table
from skipstone.errors import FormatError
from tests.accept.registry import point
from tests.accept.tables import backdate, write

if TYPE_CHECKING:
    from tests.accept.workbench import Workbench


@point("differing files: the schema is that of all files, in any order, with an index or without")
def widest(bench: Workbench) -> None:
    narrow = {"v": pa.array([1, 2], pa.int32()), "x": pa.array([0.5, 1.0], pa.float32())}
    wide = {"v": [3_000_000_000], "x": [1e300], "late": ["here"]}
    for number, order in enumerate(([narrow, wide], [wide, narrow])):
        root = bench.home / f"t{number}"
        for at, columns in enumerate(order):
            write(root / f"{at}.parquet", columns)
        for step in ("without", "with"):
            done = bench.skipstone("count", root, "v > 2999999999", "--json")
            assert json.loads(done.out)["rows"] == 1, (step, done.out)
            rows = Table(str(root)).query("late = 'here'").to_pylist()
            assert [(row["v"], row["x"]) for row in rows] == [(3_000_000_000, 1e300)]
            assert Table(str(root)).count("late IS NULL") == 2
            if step == "without":
                done = bench.skipstone("build", root, "-c", "v:minmax", "--no-spark")
                assert done.code == 0, done.err
        assert "1 footer" not in bench.skipstone("explain", root, "v = 1").out


@point("differing files: types that do not merge are named with both files")
def conflict(bench: Workbench) -> None:
    root = bench.home / "t"
    write(root / "one.parquet", {"v": [1]})
    write(root / "two.parquet", {"v": ["x"]})
    done = bench.skipstone("query", root, "v = 1")
    assert done.code != 0
    assert all(text in done.err for text in ("one.parquet", "two.parquet", "int64", "string"))


@point("differing files: a field that a struct lacks is null, and no other field")
def nested(bench: Workbench) -> None:
    root = bench.home / "t"
    write(root / "0.parquet", {"b": [{"s": "x"}], "d": [{"s": "y", "zip": "D"}]})
    write(root / "1.parquet", {"b": [{"s": "x", "zip": "B"}], "d": [{"s": "y", "zip": "D"}]})
    found = Table(str(root)).query(columns=["b.zip", "d.zip"]).to_pylist()
    assert found == [
        {"b": {"zip": None}, "d": {"zip": "D"}},
        {"b": {"zip": "B"}, "d": {"zip": "D"}},
    ]


@point("differing files: Spark reads a column that has no type where it is only null")
def untyped(bench: Workbench) -> None:
    root = bench.home / "t"
    write(root / "0.parquet", {"id": [1], "v": ["x"], "s": [{"a": True}]})
    write(root / "1.parquet", {"id": [2], "v": pa.nulls(1), "s": [{"a": None}]})
    table = Table(str(root))
    for where in (None, "id > 0", "v = 'x' OR v IS NULL"):
        found = sorted(table.read(bench.spark, where).collect())
        assert [tuple(row) for row in found] == [(1, "x", (True,)), (2, None, (None,))]
    assert table.read(bench.spark, "v = 'x'").count() == 1


@point("folders: values have the types that Spark gives them")
def folders(bench: Workbench) -> None:
    root = bench.home / "t"
    for value in ("1", "2.5", "1e3"):
        write(root / f"p={value}/0.parquet", {"a": [1]})
    assert sorted(Table(str(root)).query().column("p").to_pylist()) == ["1", "1e3", "2.5"]


@point("folders: every way to read takes the files that Spark takes, or all below if told to")
def nested_folders(bench: Workbench) -> None:
    root, path = bench.home / "t", str(bench.home / "t")
    for at, folder in enumerate((".", "x", "x/y")):
        write(root / folder / "0.parquet", {"id": [at], "p": [at]})
    backed = {"recursiveFileLookup": "true"}
    for files, table, options, flags in (
        (1, Table(path), {}, []),
        (3, Table(path, recursive_file_lookup=True), backed, ["--recursive-file-lookup"]),
    ):
        assert bench.skipstone("build", root, "-c", "id:minmax", "--no-spark", *flags).code == 0
        assert bench.spark.read.options(**options).parquet(path).count() == files
        assert table.count() == table.query().num_rows == files
        assert table.read(bench.spark).count() == table.read(bench.spark, limit=9).count() == files
        source = bench.spark.read.format("skipstone").options(**options)
        assert source.load(path).count() == files
        done = bench.skipstone("count", root, "id >= 0", "--json", *flags)
        assert json.loads(done.out)["rows"] == files
    assert "2 of 3 files below it" in bench.skipstone("explain", root, "id = 0").out
    (root / "x").rename(root / "p=7")
    found = Table(path).query(order_by="id").to_pylist()
    assert found == [{"id": 1, "p": 7}, {"id": 2, "p": 7}]
    write(root / "z" / "0.parquet", {"id": [3], "p": [3]})
    done = bench.skipstone("count", root)
    assert done.code != 0
    assert all(text in done.err for text in ("p=7", "z/", "--recursive-file-lookup"))


@point("checksums: a flipped bit in a page is an error, and never a value")
def flipped(bench: Workbench) -> None:
    path = bench.home / "a.parquet"
    content = pa.table({"v": pa.array(range(1_000))})
    pq.write_table(
        content, path, write_page_checksum=True, compression="NONE", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    data[2_000] ^= 1
    path.write_bytes(data)
    backdate(path)
    with pytest.raises(FormatError, match=r"(?i)checksum"):
        skipstone.ParquetFile(str(path)).query()
    kept = skipstone.ParquetFile(str(path), verify_checksums=False).query()
    assert kept.num_rows == 1_000


@point("private files: what is made from a file that only its owner reads is private too")
def private(bench: Workbench) -> None:
    root = bench.home / "t"
    path = write(root / "0.parquet", {"v": [1, 2, 3]})
    path.chmod(0o600)
    assert bench.skipstone("build", root, "-c", "v:minmax", "--no-spark").code == 0
    made = [each for each in (bench.home / "_t.skipstone").rglob("*") if each.is_file()]
    assert made
    assert all(each.stat().st_mode & 0o077 == 0 for each in made)
