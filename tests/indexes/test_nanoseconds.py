"""Timestamps of nanoseconds, as pandas writes them: indexed as whole microseconds."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.errors import UnsupportedError
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning.column_types import restate

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 4, 50
KINDS = ["minmax", "valuelist", "bloom", "bitmap", "rangebitmap"]
START = np.datetime64("2026-01-01T00:00:00", "ns").astype(np.int64)
#: the nanoseconds within a microsecond: what is cut off
REST = np.array([0, 1, 499, 500, 999])


def ticks(part: int) -> Any:
    """Ascending times, half a microsecond apart on average, with a day between two files."""
    rest = REST[np.arange(ROWS) % len(REST)]
    return START + part * 86_400 * 10**9 + np.arange(ROWS) // 2 * 1000 + rest


@pytest.fixture(params=["naive", "zoned"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    zone = "UTC" if request.param == "zoned" else None
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(FILES):
        times = pa.array(ticks(part)).cast(pa.timestamp("ns", zone))
        rows = pa.table({"t": times, "n": range(ROWS)})
        pq.write_table(rows, root / f"p{part}.parquet", coerce_timestamps=None)
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_keeps_the_files_that_rows_match_in(lake: Path, kind: str) -> None:
    table = skipstone.Table(str(lake))
    report = table.build(indexes=[f"t:{kind}"])
    assert report.ok
    assert not report.left_out, report.left_out
    plain = skipstone.Table(str(shutil.copytree(lake, lake.parent / "plain")))
    whole = [np.unique(ticks(part) // 1000) for part in range(FILES)]
    literal = (
        "timestamp" if pq.read_schema(lake / "p0.parquet").field("t").type.tz else ("timestamp_ntz")
    )
    for micros in (*whole[0][[0, 7, -1]], *whole[2][[3, -1]], whole[3][5], whole[3][-1] + 1):
        text = str(np.datetime64(int(micros), "us")).replace("T", " ")
        for op in ("=", "<", "<=", ">", ">="):
            where = f"t {op} {literal}'{text}'"
            matching = [
                int(_matches(ticks(part) // 1000, op, int(micros))) for part in range(FILES)
            ]
            assert table.count(where) == plain.count(where) == sum(matching)
            assert table.query(where).num_rows == sum(matching)
            kept = set(table.plan(where, inside=False).paths)
            needed = {str(lake / f"p{part}.parquet") for part in range(FILES) if matching[part]}
            assert needed <= kept
            if op == "=" or kind in ("minmax", "rangebitmap"):
                assert kept == needed, where
    assert table.check(deep=True).ok


def _matches(values: Any, op: str, micros: int) -> Any:
    compare = {"=": np.equal, "<": np.less, "<=": np.less_equal}
    compare |= {">": np.greater, ">=": np.greater_equal}
    return np.count_nonzero(compare[op](values, micros))


def test_spark_reads_them_as_integers_and_then_the_index_says_nothing() -> None:
    for stored in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        assert restate(Leaf("t", pa.int64(), Op.EQ, (int(START),)), stored) is None
        assert restate(Leaf("t", pa.int64(), Op.LT, (int(START),)), stored) is None


def test_xskipper_does_not_get_them(lake: Path) -> None:
    table = skipstone.Table(str(lake))
    table.build(indexes=["t:minmax"])
    with pytest.raises(UnsupportedError, match=r"nanoseconds, which|cannot hold"):
        table.export(kind="xskipper")
    table.build(indexes=["n:minmax"])
    assert len(table.export(kind="xskipper").indexes) == 1


def test_durations_are_indexed_as_the_integers_that_they_are(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(2):
        rows = pa.table({"d": pa.array(range(part * 10, part * 10 + 10), pa.duration("ns"))})
        pq.write_table(rows, root / f"p{part}.parquet")
    table = skipstone.Table(str(root))
    report = table.build(indexes=["d:minmax"])
    assert not report.left_out
    assert table.count("d = 13") == 1
    assert table.plan("d = 13", inside=False).files_kept == 1


@pytest.mark.parametrize("indexes", [[], ["t:minmax", "n:bloom"], ["t:rangebitmap", "n:bitmap"]])
@pytest.mark.parametrize("units", [["ns", "us"], ["us", "ns", "ms"]])
def test_files_of_different_units_are_one_table_of_microseconds(
    tmp_path: Path, units: list[str], indexes: list[str]
) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    for part, unit in enumerate(units):
        times = pa.array(ticks(part)).cast(pa.timestamp("ns")).cast(pa.timestamp(unit), safe=False)
        numbers = range(part * ROWS, part * ROWS + ROWS)
        rows = pa.table({"t": times, "n": numbers, "s": [{"t": each} for each in times]})
        pq.write_table(rows, root / f"p{part}.parquet", row_group_size=20)
    whole = {"ns": 1000, "us": 1000, "ms": 1_000_000}
    micros = [ticks(part) // whole[unit] * whole[unit] // 1000 for part, unit in enumerate(units)]
    expected = np.concatenate(micros)
    table = skipstone.Table(root)
    if indexes:
        assert table.build(indexes=indexes).ok
    found = table.query(order_by="n")
    assert found.schema.field("t").type == pa.timestamp("us")
    assert found.column("t").cast(pa.int64()).to_pylist() == expected.tolist()
    inner = pa.compute.struct_field(found.column("s"), "t")
    assert inner.cast(pa.int64()).to_pylist() == expected.tolist()
    for at in (0, 3, ROWS, 2 * ROWS - 1):
        text = str(np.datetime64(int(expected[at]), "us")).replace("T", " ")
        same = np.flatnonzero(expected == expected[at]).tolist()
        rows = table.query(f"t = timestamp_ntz'{text}'", order_by="n")
        assert rows.column("n").to_pylist() == same
        assert table.query(f"n = {at}", ["t"]).column("t").cast(pa.int64()).to_pylist() == [
            expected[at]
        ]
    first = table.query(order_by="t desc, n desc", limit=3, columns=["n"])
    assert (
        first.column("n").to_pylist()
        == np.lexsort((-np.arange(len(expected)), -expected))[:3].tolist()
    )
    assert table.min("t") == expected.min().astype("M8[us]").item()
    assert table.scan().to_duckdb().fetchall()[1][0] == micros[0][1].astype("M8[us]").item()
    with pytest.raises(UnsupportedError, match="has nanoseconds, which pyarrow"):
        table.scan().to_pyarrow()
