"""Whose sidecar it is: told from times, names, rows, nulls, bounds; units told from the footer."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import PaimonFileIndex, Table
from skipstone.paimon.format import container
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import column_of
from skipstone.paimon.format.keys import PaimonType
from skipstone.paimon.format.range_bitmap import write_range_bitmap
from tests.oracle import matching_rows
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from pathlib import Path

OLD = 1_700_000_000
PAIMON = "data-414509f5-e40c-4245-b992-bbf486778ac9-0.parquet"
SPARK = "part-00000-414509f5-e40c-4245-b992-bbf486778ac9-c000.snappy.parquet"
WRITERS: dict[str, Any] = {
    "bitmap": lambda keys: write_bitmap(coded(keys)),
    "range-bitmap": lambda keys: write_range_bitmap(coded(keys)),
    "bsi": lambda keys: write_bsi(coded(keys)),
    "bloom-filter": lambda column: write_bloom_filter(
        column.keys.type, [column.keys], items=1_000, fpp=0.001
    ),
}


def blob(kind: str, type: str, values: pa.Array) -> bytes:
    found: bytes = WRITERS[kind](column_of(PaimonType.parse(type), values))
    return found


def pair(
    home: Path,
    data: pa.Table,
    indexes: dict[str, dict[str, bytes]],
    *,
    name: str = "x.parquet",
    ahead: int = 0,
) -> Table:
    """One file of ``data`` and its sidecar, which is ``ahead`` seconds older."""
    home.mkdir(exist_ok=True)
    pq.write_table(data, home / name)
    (home / f"{name}.index").write_bytes(container.to_bytes(indexes))
    os.utime(home / name, (OLD, OLD))
    os.utime(home / f"{name}.index", (OLD - ahead, OLD - ahead))
    return Table(str(home))


NUMBERS = pa.array([5, None, 7, 9, 9], pa.int64())


@pytest.mark.parametrize(
    "name, ahead, used",
    [
        ("x.parquet", 0, True),
        ("x.parquet", -60, True),
        ("x.parquet", 1, False),
        (PAIMON, 1, True),
        (PAIMON, 600, True),
        (PAIMON, 601, False),
        (PAIMON.replace("-0.", "-12.zstd."), 5, True),
        (SPARK, 1, False),
    ],
)
def test_paimon_writes_a_sidecar_before_it_closes_the_file(
    tmp_path: Path, name: str, ahead: int, used: bool
) -> None:
    indexes = {"n": {"bitmap": blob("bitmap", "BIGINT", NUMBERS)}}
    table = pair(tmp_path / "t", pa.table({"n": NUMBERS}), indexes, name=name, ahead=ahead)
    plan = table.plan("n = 8")
    assert plan.keep.tolist() == [not used]
    assert used != any("older than the data file" in str(reason) for reason in plan.reasons)


@pytest.mark.parametrize("kind", ["bitmap", "range-bitmap", "bsi"])
@pytest.mark.parametrize(
    "now",
    [
        pytest.param([5, 7, 9, 9], id="fewer rows"),
        pytest.param([5, None, 7, 9, None], id="another number of nulls"),
        pytest.param([4, None, 7, 9, 9], id="another least value"),
        pytest.param([5, None, 7, 9, 10], id="another greatest value"),
        pytest.param([6, None, 7, 9, 9], id="the least value is gone"),
        pytest.param([None] * 5, id="nothing but nulls"),
    ],
)
def test_a_replaced_file_is_noticed_by_what_is_in_it(
    tmp_path: Path, kind: str, now: list[int | None]
) -> None:
    """The sidecar is newer than the file that took the place of its own."""
    data = pa.table({"n": pa.array(now, pa.int64()), "s": ["a"] * len(now)})
    indexes = {
        "n": {kind: blob(kind, "BIGINT", NUMBERS)},
        "s": {"bloom-filter": blob("bloom-filter", "STRING", pa.array(["b"]))},
    }
    table = pair(tmp_path / "t", data, indexes, ahead=-60)
    for where in ("n = 8", "n = 5", "n IS NULL", "n > 100", "n >= 6", "n = 5 AND s = 'a'"):
        plan, expected = table.plan(where), len(matching_rows(data, where))
        assert plan.keep.all() or not expected, where
        assert any("of another file" in str(reason) for reason in plan.reasons), where
        assert table.count(where) == expected, where


@pytest.mark.parametrize("kind", ["bitmap", "range-bitmap", "bloom-filter"])
@pytest.mark.parametrize(
    "type, one, other, where",
    [
        ("STRING", ["a", "b", "d"], ["a", "c", "e"], "v = 'd'"),
        ("STRING", ["b", "ab", None], [None, "b", "a"], "v = 'a'"),
        ("DOUBLE", [-0.0, 2.5, float("nan")], [0.0, float("nan"), 3.5], "v = 3.5"),
        ("FLOAT", [1.0, 2.0, 4.0], [1.0, float("inf"), 3.0], "v = '-2.0' or v = 'Infinity'"),
    ],
)
def test_swapped_sidecars_are_noticed_by_the_bounds_of_text_and_floats(
    tmp_path: Path, kind: str, type: str, one: list[Any], other: list[Any], where: str
) -> None:
    """As many rows and nulls in both files: only the least and the greatest value differ."""
    arrow = {"STRING": pa.string(), "DOUBLE": pa.float64(), "FLOAT": pa.float32()}[type]
    if kind == "bitmap" and type == "FLOAT":
        kind = "range-bitmap"
    arrays = [pa.array(each, arrow) for each in (one, other)]
    data = [pa.table({"v": each}) for each in arrays]
    blobs = [blob(kind, type, each) for each in arrays]
    for at, name in enumerate(("x.parquet", "y.parquet")):
        table = pair(tmp_path / "own", data[at], {"v": {kind: blobs[at]}}, name=name)
        swapped = pair(tmp_path / "t", data[at], {"v": {kind: blobs[1 - at]}}, name=name)
    expected = [len(matching_rows(each, where)) for each in data]
    assert sum(expected) == 1
    assert table.plan(where).keep.tolist() == [count > 0 for count in expected]
    assert not any("of another file" in str(reason) for reason in table.plan(where).reasons)
    assert swapped.count(where) == 1
    silenced = [str(reason) for reason in swapped.plan(where).reasons]
    assert any("of another file" in reason for reason in silenced)


def test_one_column_that_does_not_fit_silences_the_others(tmp_path: Path) -> None:
    """A Bloom filter with the least and the greatest value fits; its neighbour does not."""
    data = pa.table({"n": pa.array([1, 2, 3]), "s": ["a", "b", "c"]})
    indexes = {
        "n": {"bitmap": blob("bitmap", "BIGINT", pa.array([1, 2, 4]))},
        "s": {"bloom-filter": blob("bloom-filter", "STRING", pa.array(["a", "c"]))},
    }
    table = pair(tmp_path / "t", data, indexes)
    assert not table.plan("s = 'b'").keep.any()  # what nobody can see
    assert table.plan("s = 'b' AND n > 0").keep.all()
    assert table.plan("s = 'b'").keep.all()


def test_a_bitmap_index_that_contradicts_itself_is_not_used(tmp_path: Path) -> None:
    """It has no checksum. With a flipped bit two values have one row, a row has none, or keys do
    not ascend."""
    numbers = pa.array([*range(20), None, 20])
    good = blob("bitmap", "BIGINT", numbers)
    data = pa.table({"n": numbers})
    silent = 0
    for bit in range(0, 8 * len(good), 13):  # the bits of a byte take turns
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        table = pair(tmp_path / "t", data, {"n": {"bitmap": bytes(bad)}})
        silent += bool(table.plan("n = 7").keep.all())
        assert table.count("n = 7 OR n IS NULL") == 2, bit
        assert table.count("n > 3 AND n <= 11") == 8, bit
    assert silent


def test_a_bloom_filter_gives_itself_away_by_bounds_that_it_lacks(tmp_path: Path) -> None:
    indexes = {"n": {"bloom-filter": blob("bloom-filter", "BIGINT", pa.array([1, 2, 3]))}}
    table = pair(tmp_path / "t", pa.table({"n": [1, 2, 4]}), indexes)
    assert table.plan("n = 4").keep.all()
    assert any("of another file" in str(reason) for reason in table.plan("n = 4").reasons)


def test_a_file_of_that_name_that_is_parquet_is_data(tmp_path: Path) -> None:
    """Spark reads x.parquet.index, if it can."""
    home = tmp_path / "t"
    home.mkdir()
    for part, name in enumerate(("x.parquet", "x.parquet.index", "x.parquet-1.index", "y.parquet")):
        pq.write_table(pa.table({"n": [part]}), home / name)
    (home / "y.parquet.index").write_bytes(
        container.to_bytes({"n": {"bitmap": blob("bitmap", "BIGINT", pa.array([3]))}})
    )
    table = Table(str(home))
    for _ in range(2):
        assert [path.rpartition("/")[2] for path in table.listing().paths] == [
            "x.parquet",
            "x.parquet-1.index",
            "x.parquet.index",
            "y.parquet",
        ]
        assert table.plan("n = 77").keep.tolist() == [True, True, True, False]
    assert table.count("n < 3") == 3


def test_the_value_of_a_folder_is_not_the_column_in_the_file(tmp_path: Path) -> None:
    """Spark takes n = 1 from the folder; file and sidecar say 5 to 9."""
    indexes = {
        "n": {"range-bitmap": blob("range-bitmap", "BIGINT", NUMBERS)},
        "k": {"range-bitmap": blob("range-bitmap", "BIGINT", NUMBERS)},
    }
    data = pa.table({"n": NUMBERS, "k": NUMBERS})
    pair(tmp_path / "n=1", data, indexes)
    table = Table(str(tmp_path))
    assert table.plan("n = 1").keep.all()
    assert not table.plan("n = 5").keep.any()
    assert table.count("n = 1 AND k = 9") == 2
    assert table.count("n = 1") == 5
    assert table.top("k DESC", 1).exact
    assert not table.top("n DESC", 1).exact


def test_without_sidecars_nothing_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for part in range(3):
        pq.write_table(pa.table({"n": [part]}), tmp_path / "t" / f"{part}.parquet")
    used = []
    for sidecars in (None, False):
        table = Table(str(tmp_path / "t"), sidecars=sidecars)
        table.plan("n = 1")
        used.append(table.storage.requests)
    assert used[0] == used[1]


# -- units -----------------------------------------------------------------------------------------

INSTANTS = {
    "ms": [1_700_000_000_123, None, 1_700_000_000_500, -7, 0],
    "s": [1_700_000_000, None, -7, 0, 86_400],
}
MOMENTS = [
    "ts = timestamp_ntz'1970-01-01 00:00:00'",
    "ts <> timestamp_ntz'1970-01-01 00:00:00'",
    "ts < timestamp_ntz'1970-01-01 00:00:00.0001'",
    "ts = timestamp_ntz'1970-01-01 00:00:00.0001'",
    "ts > timestamp_ntz'2023-11-14 22:13:20.2'",
    "ts <= timestamp_ntz'2023-11-14 22:13:20.123'",
    "ts = timestamp_ntz'2023-11-14 22:13:20.123'",
    "ts IS NULL",
]


@pytest.mark.parametrize("kind", ["bitmap", "range-bitmap", "bsi"])
@pytest.mark.parametrize("unit", ["ms", "s"])
@pytest.mark.parametrize("type", ["TIMESTAMP(3)", "TIMESTAMP(6)"])
def test_the_footer_tells_the_unit_of_a_column_of_milliseconds(
    tmp_path: Path, kind: str, unit: str, type: str
) -> None:
    """Paimon's keys are milliseconds, Skipstone's microseconds; both are read right."""
    per = 1_000 if unit == "ms" else 1_000_000
    micros = pa.array([v and v * per for v in INSTANTS[unit]], pa.timestamp("us"))
    data = pa.table({"ts": micros.cast(pa.timestamp(unit))})
    oracle = pa.table({"ts": micros})
    table = pair(tmp_path / "t", data, {"ts": {kind: blob(kind, type, micros)}})
    index = PaimonFileIndex(str(tmp_path / "t" / "x.parquet.index"))
    for where in MOMENTS:
        expected = len(matching_rows(oracle, where))
        assert table.plan(where).count() == table.count(where) == expected, where
        assert index.count(where) == expected, where


@pytest.mark.parametrize("values", [[0, 0], [None, None], [0, None]])
@pytest.mark.parametrize("type", ["TIMESTAMP(3)", "TIMESTAMP(6)"])
def test_where_both_units_fit_they_are_the_same(
    tmp_path: Path, values: list[int | None], type: str
) -> None:
    micros = pa.array(values, pa.timestamp("us"))
    data = pa.table({"ts": micros.cast(pa.timestamp("ms"))})
    table = pair(tmp_path / "t", data, {"ts": {"bitmap": blob("bitmap", type, micros)}})
    for where in MOMENTS:
        assert table.plan(where).count() == len(matching_rows(pa.table({"ts": micros}), where))


def test_without_statistics_the_unit_stays_open(tmp_path: Path) -> None:
    micros = pa.array([1_000, 2_000], pa.timestamp("us"))
    indexes = {"ts": {"bitmap": blob("bitmap", "TIMESTAMP(3)", micros)}}
    table = pair(tmp_path / "t", pa.table({"ts": micros}), indexes)
    pq.write_table(
        pa.table({"ts": micros.cast(pa.timestamp("ms"))}),
        tmp_path / "t" / "x.parquet",
        write_statistics=False,
    )
    os.utime(tmp_path / "t" / "x.parquet", (OLD, OLD))
    plan = table.plan(MOMENTS[0])
    assert plan.keep.all()
    assert any("type is not known" in str(r) for step in plan.steps for r in step.reasons)


def test_a_bloom_filter_of_milliseconds_is_told_by_the_values_that_it_lacks(tmp_path: Path) -> None:
    values = np.array([1_700_000_000_123, 1_700_000_000_500])
    micros = pa.array(values * 1_000, pa.timestamp("us"))
    data = pa.table({"ts": micros.cast(pa.timestamp("ms"))})
    for type in ("TIMESTAMP(3)", "TIMESTAMP(6)"):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        indexes = {"ts": {"bloom-filter": blob("bloom-filter", type, micros)}}
        table = pair(tmp_path / "t", data, indexes)
        assert table.plan("ts = timestamp_ntz'2023-11-14 22:13:20.123'").keep.all()
        assert not table.plan("ts = timestamp_ntz'2023-11-14 22:13:20.124'").keep.any()


# -- handed over -----------------------------------------------------------------------------------


def test_containers_that_are_handed_over(tmp_path: Path) -> None:
    """As a manifest embeds them; they come before what lies beside a file."""
    home = tmp_path / "t"
    data = pa.table({"n": NUMBERS})
    good = container.to_bytes({"n": {"bitmap": blob("bitmap", "BIGINT", NUMBERS)}})
    table = pair(home, data, {}, name="x y.parquet", ahead=60)
    pq.write_table(data, home / "z.parquet")
    for name in ("x y.parquet", str(home / "x y.parquet"), f"file:{home}/x y.parquet"):
        plan = table.plan("n = 8", containers={name: good})
        assert plan.keep.tolist() == [False, True]
    assert table.plan("n = 9", containers={"x y.parquet": good, "z.parquet": good}).count() == 4
    for bad in (b"", b"?" * 50, container.to_bytes({"n": {"bitmap": b"?"}})):
        assert table.plan("n = 8", containers={"x y.parquet": bad}).keep.all()
    with pytest.raises(ValueError, match=r"no such\.parquet is not a data file"):
        table.plan("n = 8", containers={"no such.parquet": good})
    off = Table(str(home), options={"file-index.read.enabled": "false"})
    assert off.plan("n = 8", containers={"x y.parquet": good}).keep.all()


# -- counts that take reading ----------------------------------------------------------------------


def test_counts_with_columns_of_folders_and_columns_that_files_lack(tmp_path: Path) -> None:
    """p is in the folders (also inside of one file, with other values), n is not in every file, and
    s.b is in some structs only."""
    files = {
        "p=1/a.parquet": pa.table({"k": [1, 2, 3], "n": [10, None, 30]}),
        "p=2/b.parquet": pa.table({"k": pa.array([4, 5], pa.int32())}),
        "p=__HIVE_DEFAULT_PARTITION__/c.parquet": pa.table(
            {"k": [6, 7], "n": [None, 20], "p": [1, 2]}
        ),
    }
    parts = []
    for (name, data), p in zip(files.items(), (1, 2, None), strict=True):
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, path)
        parts.append(
            pa.table(
                {
                    "k": data["k"].cast(pa.int64()),
                    "n": data["n"] if "n" in data.column_names else pa.nulls(len(data), pa.int64()),
                    "p": pa.array([p] * len(data), pa.int32()),
                }
            )
        )
    oracle = pa.concat_tables(parts)
    table = Table(str(tmp_path / "t"))
    for where in (
        "n > 5",
        "n IS NULL",
        "n IS NULL AND k > 1",
        "p = 1 AND k > 1",
        "p = 1 OR k = 5",
        "p IS NULL AND n = 20",
        "p <> 1 OR n = 10",
        "NOT (p = 1 AND n > 5)",
        "p IN (1, 2) AND n IS NULL",
        "p > 0",
        "p IS NULL",
        "n <=> NULL OR k = 7",
        "n = 10 AND p = 2",
    ):
        assert table.count(where) == len(matching_rows(oracle, where)), where
    assert table.count() == 7
    assert table.count([("p", "=", 1), ("n", ">", 5)]) == 2


# -- what remains to be checked --------------------------------------------------------------------


def test_nothing_remains_to_be_checked_where_rows_are_decided(tmp_path: Path) -> None:
    data = pa.table({"n": NUMBERS, "s": list("abcde")})
    table = pair(tmp_path / "t", data, {"n": {"bitmap": blob("bitmap", "BIGINT", NUMBERS)}})
    decided = table.plan("n = 9")
    assert decided.residual is None
    assert not decided.exact  # of the file two rows match, and the plan names them
    assert "still to be checked" not in str(decided)
    assert table.plan("n = 9 AND s LIKE '%d'").residual == "n = 9 AND s LIKE '%d'"
    pq.write_table(data, tmp_path / "t" / "y.parquet")
    assert table.plan("n = 9").residual == "n = 9"
    assert table.plan("n = 9").to_dict()["residual"] == "n = 9"
