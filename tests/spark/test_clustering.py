"""``cluster`` writes the same rows in another order, in files that queries can skip."""

from __future__ import annotations

import datetime
import importlib
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skipstone
from skipstone import Decryption, Table
from skipstone.cli import cli
from skipstone.errors import PredicateError, SkipstoneError, StaleError, UnsupportedError
from skipstone.spark import clustering
from skipstone.spark.session import set_to
from tests.s3 import s3, s3_server
from tools.json_schemas import schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3 import S3

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 400


def written(root: Path, tables: list[pa.Table]) -> Table:
    root.mkdir(parents=True)
    for at, table in enumerate(tables):
        pq.write_table(table, root / f"part-{at}.parquet")
    return Table(str(root))


def orders(at: int) -> pa.Table:
    """Values at random: no file can be skipped by any of them."""
    rng = np.random.default_rng(at)
    return pa.table(
        {
            "id": rng.permutation(ROWS) * FILES + at,
            "user": [f"u-{each:04d}" for each in rng.integers(0, 900, ROWS)],
            "amount": rng.random(ROWS) * 1000,
            "ts": pa.array(rng.integers(0, 10**15, ROWS), pa.timestamp("us", "UTC")),
            "pad": [rng.bytes(8).hex() for _ in range(ROWS)],
        }
    )


def differing(at: int) -> pa.Table:
    """Files that differ: a column that some lack, integers of two widths, and every kind of type,
    with nulls, NaN, both zeros and repeated rows."""
    rng = np.random.default_rng(100 + at)
    n = 50
    mask = rng.random(n) < 0.2
    columns: dict[str, Any] = {
        "n": pa.array(rng.integers(-5, 5, n), pa.int32() if at % 2 else pa.int64(), mask=mask),
        "x": pa.array(rng.choice([np.nan, 0.0, -0.0, 1.5, -np.inf], n), mask=mask),
        "d": pa.array([Decimal(int(each)) / 100 for each in rng.integers(-999, 999, n)]).cast(
            pa.decimal128(9, 2)
        ),
        "day": pa.array([datetime.date(1, 1, 1 + int(each)) for each in rng.integers(0, 27, n)]),
        "local": pa.array(rng.integers(-(10**16), 10**15, n), pa.timestamp("us")),
        "bytes": pa.array([rng.bytes(int(each)) for each in rng.integers(0, 3, n)], pa.binary()),
        "m": pa.array(
            [[("k", int(each))] if each % 3 else None for each in rng.integers(0, 9, n)],
            pa.map_(pa.string(), pa.int32()),
        ),
        "tags": pa.array(
            [["a", None][: each % 3] for each in rng.integers(0, 9, n)], pa.list_(pa.string())
        ),
        "s": pa.StructArray.from_arrays(
            [pa.array(rng.integers(0, 9, n), mask=mask), pa.array(["é"] * n)], ["a b", "t"]
        ),
    }
    if at % 3:
        columns["late"] = pa.array([f"l{each}" for each in rng.integers(0, 4, n)])
    table = pa.table(columns)
    return pa.concat_tables([table, table.slice(0, 5)])


def indexed(path: str) -> Table:
    """The table with the ranges of its files."""
    table = Table(path)
    table.build(indexes=["id:minmax", "amount:minmax"])
    return table


def rows_of(path: str) -> list[str]:
    """All rows as sorted texts."""
    rows = Table(path).query()
    return sorted(map(repr, rows.select(sorted(rows.column_names)).to_pylist()))


@pytest.mark.parametrize(
    "by, curve, way",
    [
        (["n"], None, "sort"),
        ("n, x", "z-order", "z-order"),
        ("x, `late`, s.`a b`, day", None, "hilbert"),
        ("d,bytes,local", "hilbert", "hilbert"),
    ],
)
def test_rows_stay_the_same(
    spark: SparkSession, tmp_path: Path, by: Any, curve: str | None, way: str
) -> None:
    table = written(tmp_path / "t é", [differing(at) for at in range(FILES)])
    output = str(tmp_path / "out %20")
    report = table.cluster(spark, by=by, to=output, curve=curve, file_size=6_000)
    assert rows_of(output) == rows_of(table.path)
    assert report.curve == way
    assert report.rows == Table(output).count() == FILES * 55
    assert report.columns == 10
    assert report.files_before == FILES
    assert report.files_after == len(list((tmp_path / "out %20").glob("*.parquet"))) > 1
    assert table.count() == report.rows  # the table itself is unchanged


def test_lists_whose_elements_are_all_null(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow writes an empty dictionary for them, from which Spark takes a value in batches."""
    types = (pa.int32(), pa.float32(), pa.timestamp("us"), pa.list_(pa.int64()))
    lists = {f"l{at}": pa.array([[None], []], pa.list_(type)) for at, type in enumerate(types)}
    table = written(tmp_path / "t", [pa.table({"n": [2, 1], **lists})])
    table.cluster(spark, by="n", to=str(tmp_path / "out"))
    assert rows_of(str(tmp_path / "out")) == rows_of(table.path)


def test_a_session_of_spark_connect_does_it_too(
    spark_connect: SparkSession, tmp_path: Path
) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(3)])
    for curve in ("sort", "hilbert"):
        output = str(tmp_path / curve)
        table.cluster(spark_connect, by="user,id", to=output, curve=curve, file_size=20_000)
        assert rows_of(output) == rows_of(table.path)


@settings(
    max_examples=settings().max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_rows_of_any_tables_stay_the_same(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home = tmp_path_factory.mktemp("any")
    words = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    numbers = st.none() | st.integers(-(2**31), 2**31 - 1)
    count = data.draw(st.integers(1, 4))
    tables = []
    for _ in range(count):
        rows = data.draw(st.lists(st.tuples(words, numbers, numbers), max_size=30))
        text, a, b = zip(*rows, strict=True) if rows else ((), (), ())
        made = {"t": pa.array(text, pa.string()), "a": pa.array(a, pa.int32())}
        if data.draw(st.booleans()):
            made["b"] = pa.array(b, pa.int32())
        tables.append(pa.table(made))
    table = written(home / "t", tables)
    columns = sorted({name for each in tables for name in each.schema.names})
    by = data.draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    curve = data.draw(st.sampled_from([None, "sort", "z-order", "hilbert"]))
    table.cluster(spark, by=by, to=str(home / "out"), curve=curve, file_size=700)
    assert rows_of(str(home / "out")) == rows_of(table.path)


def test_a_needle_reads_one_file_of_a_sorted_table(spark: SparkSession, tmp_path: Path) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(FILES)])
    output = str(tmp_path / "by_id")
    size = table.listing().total_bytes // 12
    table.cluster(spark, by="id", to=output, file_size=size)
    assert indexed(table.path).plan("id = 77").files_kept == FILES
    made = indexed(output)
    plan = made.plan("id = 77")
    assert (plan.files_kept, plan.files_total) == (1, 13)
    assert made.query("id = 77").num_rows == 1


def test_either_column_of_a_curve_skips_files(spark: SparkSession, tmp_path: Path) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(FILES)])
    size = table.listing().total_bytes // 15
    kept = {}
    for curve in ("sort", "z-order", "hilbert"):
        output = str(tmp_path / curve)
        report = table.cluster(spark, by="id, amount", to=output, curve=curve, file_size=size)
        plans = [indexed(output).plan(where) for where in ("id = 77", "amount BETWEEN 500 AND 501")]
        kept[curve] = [each.files_kept for each in plans]
        assert report.files_after == 16
        # The files of a curve are even: none has twice the rows of another.
        if curve != "sort":
            counts = [
                pq.read_metadata(each).num_rows for each in (tmp_path / curve).glob("*.parquet")
            ]
            assert max(counts) < 2 * min(counts)
    assert kept["sort"][0] <= 2
    assert kept["sort"][1] >= 15
    for curve in ("z-order", "hilbert"):
        assert max(kept[curve]) <= 8, kept


def test_the_files_have_page_indexes_statistics_and_the_filters_that_were_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(2)])
    output = tmp_path / "out"
    table.cluster(
        spark, by="user", to=str(output), bloom={"pad": 0.001}, file_size=10**9, compression="zstd"
    )
    (path,) = output.glob("*.parquet")
    file = skipstone.ParquetFile(str(path))
    assert file.column_index(0, "user") is not None
    ts = pq.read_metadata(path).row_group(0).column(3)
    assert (ts.physical_type, ts.compression, ts.statistics.has_min_max) == ("INT64", "ZSTD", True)
    found = file.bloom_filter(0, "pad")
    assert found is not None
    # Sized for the distinct values: a filter for all rows of a row group of 128 MiB has 1 MiB.
    assert len(found.to_bytes()) < 10_000
    assert file.bloom_filter(0, "user") is None


def test_folders_of_partitions_stay(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        for region in ("eu", "us %2F"):
            folder = tmp_path / "t" / f"day={day}" / f"region={region.replace('%', '%25')}"
            folder.mkdir(parents=True)
            pq.write_table(orders(len(day + region)), folder / "a.parquet")
    table = Table(str(tmp_path / "t"))
    for curve in ("sort", "hilbert"):
        output = str(tmp_path / curve)
        size = table.listing().total_bytes // 8
        table.cluster(spark, by="id,amount", to=output, curve=curve, file_size=size)
        assert rows_of(output) == rows_of(table.path)
        folders = {str(each.parent.relative_to(output)) for each in Path(output).rglob("*.parquet")}
        assert folders == {
            str(each.relative_to(table.path)) for each in Path(table.path).glob("day=*/region=*")
        }
        plan = indexed(output).plan("region = 'eu' AND id = 500")
        assert plan.files_kept < plan.files_total / 2 / 1.5
    with pytest.raises(SkipstoneError, match="Region: it is a column of folders"):
        table.cluster(spark, by="id,Region", to=str(tmp_path / "by_folder"))


def test_folders_without_rows_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes no file for them, and so the columns would be lost."""
    table = written(tmp_path / "t" / "day=1", [orders(0).slice(0, 0)])
    assert Table(table.path).cluster(spark, by="id", to=str(tmp_path / "files")).rows == 0
    assert Table(str(tmp_path / "files")).query().column_names == orders(0).column_names
    with pytest.raises(SkipstoneError, match="have no rows"):
        Table(str(tmp_path / "t")).cluster(spark, by="id", to=str(tmp_path / "folders"))
    assert not (tmp_path / "folders").exists()


def test_a_column_of_folders_keeps_its_type(spark: SparkSession, tmp_path: Path) -> None:
    """A folder without rows makes 01 a text. It would be lost, and 01 would be the number 1."""
    written(tmp_path / "t" / "code=01", [orders(0)])
    written(tmp_path / "t" / "code=x", [orders(1).slice(0, 0)])
    table = Table(str(tmp_path / "t"))
    assert table.count("code = '01'") == ROWS
    for curve, by in (("sort", "id"), ("hilbert", "id,amount")):
        with pytest.raises(SkipstoneError, match=r"make code int32, which is string") as raised:
            table.cluster(spark, by=by, to=str(tmp_path / "out"), curve=curve)
        assert "was not kept. Folders whose files have no rows" in str(raised.value.hint)
    assert [each.name for each in tmp_path.iterdir()] == ["t"]
    (tmp_path / "t" / "code=x" / "part-0.parquet").unlink()
    assert table.cluster(spark, by="id", to=str(tmp_path / "out")).rows == ROWS
    assert Table(str(tmp_path / "out")).count("code = 1") == ROWS


def test_other_rows_are_an_error_and_leave_no_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer loses, doubles, changes or mixes up values: the check says which."""
    n = 40
    rows = {
        "id": pa.array(range(n)),
        "a": pa.array([7, None] * (n // 2), pa.int64()),
        "b": pa.array([None, 7] * (n // 2), pa.int64()),
        "x": pa.array([-0.0, np.nan] * (n // 2)),
        "l": pa.array([[1, None], []] * (n // 2), pa.list_(pa.int64())),
        "ll": pa.array([[[1], [2]]] * n, pa.list_(pa.list_(pa.int64()))),
        "s": pa.array([{"p": each, "q": None} for each in range(n)]).cast(
            pa.struct([("p", pa.int64()), ("q", pa.int64())])
        ),
        "m": pa.array([[("k", None), ("j", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    }
    table = written(tmp_path / "t", [pa.table(rows)])
    write = clustering.write_clustered
    changes = {
        "s": "named_struct('p', s.q, 'q', s.p)",
        "x": "x + 0.0D",
        "l": "array_compact(l)",
        "ll": "array(array(1L, 2L))",
        "m": "map('k', 1L, 'j', null)",
        "a": "coalesce(a, 0L)",
        "id": f"{n - 1}L - id",
    }

    def altered(name: str, text: str) -> Any:
        return lambda frame: frame.selectExpr(
            *(f"{text} AS {name}" if each == name else each for each in frame.columns)
        )

    wrong = {
        "the same values of each column, in other": altered("id", changes.pop("id")),
        **{f"column {name}: ": altered(name, text) for name, text in changes.items()},
        f"{n} rows before and {n - 1} after": lambda frame: frame.limit(n - 1),
        f"{n} rows before and {n + 1} after": lambda frame: frame.union(frame.limit(1)),
        "same values of each column": lambda frame: frame.selectExpr(
            "id", "if(id < 2, b, a) AS a", "if(id < 2, a, b) AS b", *frame.columns[3:]
        ),
    }
    words, change = next(iter(wrong.items()))
    monkeypatch.setattr(
        clustering,
        "write_clustered",
        lambda spark, frame, *rest: write(spark, change(frame), *rest),
    )
    with pytest.raises(SkipstoneError, match=words) as raised:
        table.cluster(spark, by="id", to=str(tmp_path / "out"))
    assert "out was not kept" in str(raised.value.hint)
    assert [each.name for each in tmp_path.iterdir()] == ["t"]
    frame = spark.read.parquet(table.path)
    before = clustering.row_checksums(frame)
    for words, change in wrong.items():
        after = clustering.row_checksums(change(frame))
        with pytest.raises(SkipstoneError, match=words):
            clustering.require_equal(before, after, table.path, "out", left=False)


def test_a_table_appears_when_it_was_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a process that is killed or interrupted leaves nothing that looks like a table."""
    table = written(tmp_path / "t", [orders(0)])
    output = tmp_path / "new" / "out"
    seen: list[str] = []

    def interrupted(*_: Any, **__: Any) -> None:
        seen.extend(each.name for each in output.parent.iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(clustering, "require_equal", interrupted)
        with pytest.raises(KeyboardInterrupt):
            table.cluster(spark, by="id", to=str(output))
    assert [each.startswith("_tmp-out-") for each in seen] == [True]
    assert not list(output.parent.iterdir())

    def overtaken(*_: Any, **__: Any) -> None:
        (output / "other").mkdir(parents=True)

    with monkeypatch.context() as patch:
        patch.setattr(clustering, "require_equal", overtaken)
        with pytest.raises(SkipstoneError, match="exists by now"):
            table.cluster(spark, by="id", to=str(output))
    assert [each.name for each in output.parent.iterdir()] == ["out"]
    assert [each.name for each in output.iterdir()] == ["other"]


@pytest.mark.parametrize(
    "then", [("moved", "before"), ("gone", "before"), ("gone", "write"), ("new", "write")]
)
def test_a_table_that_changes_is_one_state_or_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: tuple[str, str]
) -> None:
    """A writer moves rows to a new file after Spark has listed the files: both counts would agree
    on a table without these rows. New files alone change nothing."""
    table = written(tmp_path / "t", [orders(0), orders(1)])
    whole = rows_of(table.path)
    change, when = then
    name = "row_checksums" if when == "before" else "write_clustered"
    real = getattr(clustering, name)

    def changed(*given: Any) -> Any:
        if change != "gone":
            pq.write_table(orders(1).slice(0, 9), tmp_path / "t" / "part-2.parquet")
        if change == "moved":
            pq.write_table(orders(1).slice(9), tmp_path / "t" / "part-1.parquet")
        elif change == "gone":
            (tmp_path / "t" / "part-1.parquet").unlink(missing_ok=True)
        return real(*given)

    monkeypatch.setattr(clustering, name, changed)
    output = str(tmp_path / "out")
    if change == "new":
        assert table.cluster(spark, by="id", to=output).rows == len(whole)
        assert rows_of(output) == whole
        return
    with pytest.raises(StaleError, match="1 of 2 files changed while they were read, such as") as e:
        table.cluster(spark, by="id", to=output)
    assert "nothing was written" in str(e.value.hint)
    assert [each.name for each in tmp_path.iterdir()] == ["t"]


def test_a_session_that_passes_over_damaged_files_does_not_here(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Else their rows would be missing before and after, and the checksums equal."""
    table = written(tmp_path / "t", [orders(at) for at in range(3)])
    path = tmp_path / "t" / "part-1.parquet"
    stored = path.read_bytes()
    path.write_bytes(stored[:4] + bytes(len(stored) // 2) + stored[4 + len(stored) // 2 :])
    with (
        set_to(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}),
        pytest.raises(SkipstoneError, match="Spark failed"),
    ):
        table.cluster(spark, by="id", to=str(tmp_path / "out"))


def test_folders_that_are_all_null_stay(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t" / "day=__HIVE_DEFAULT_PARTITION__"
    folder.mkdir(parents=True)
    pq.write_table(orders(0), folder / "a.parquet")
    table, output = Table(str(tmp_path / "t")), str(tmp_path / "out")
    table.cluster(spark, by="id,amount", to=output)
    assert rows_of(output) == rows_of(table.path)


def test_settings_of_the_session_come_back(spark: SparkSession, tmp_path: Path) -> None:
    table = written(tmp_path / "t", [orders(0)])
    names = ["spark.sql.parquet.outputTimestampType", "spark.sql.files.maxRecordsPerFile"]
    with set_to(spark, {names[0]: "INT96"}):
        before = [spark.conf.get(name, None) for name in names]
        table.cluster(spark, by="id", to=str(tmp_path / "out"))
        assert [spark.conf.get(name, None) for name in names] == before


@pytest.mark.parametrize(
    "by, more, error, words",
    [
        ("idd", {}, PredicateError, "no column 'idd'"),
        ("id, id", {}, SkipstoneError, "occurs twice"),
        ("id,user,amount,ts,pad", {}, SkipstoneError, "over 5 columns"),
        ("id,user", {"curve": "peano"}, SkipstoneError, "no curve 'peano'"),
        ("tags", {}, SkipstoneError, "cannot cluster by tags"),
        ("id", {"bloom": {"idd": 0.01}}, SkipstoneError, "no column 'idd' for a Bloom filter"),
        ("id", {"bloom": {"id": 1.5}}, SkipstoneError, "1.5 is not a probability"),
        ("id", {"to": "t/inside"}, SkipstoneError, "lie in each other"),
        ("id", {"to": "."}, SkipstoneError, "lie in each other"),
        ("id", {"to": "there"}, SkipstoneError, "exists"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, by: str, more: dict[str, Any], error: Any, words: str
) -> None:
    first = orders(0)
    table = written(tmp_path / "t", [first.append_column("tags", pa.array([["a"]] * ROWS))])
    (tmp_path / "there").mkdir()
    arguments = {"to": "out", **more}
    arguments["to"] = str(tmp_path / arguments["to"])
    with pytest.raises(error, match=words):
        table.cluster(spark, by=by, **arguments)
    assert {each.name for each in tmp_path.iterdir()} == {"t", "there"}
    assert len(list((tmp_path / "t").iterdir())) == 1


def test_encrypted_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "t", [orders(0)])
    table = Table(str(tmp_path / "t"), decryption=Decryption(footer_key=b"0123456789abcdef"))
    with pytest.raises(UnsupportedError, match="in the clear"):
        table.cluster(spark, by="id", to=str(tmp_path / "out"))


def test_the_command_line_shows_the_way_to_the_same_indexes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(3)])
    table.build(indexes=["user:bloom", "id:minmax"])
    output = str(tmp_path / "out")
    with pytest.raises(SystemExit) as ended:
        cli(["cluster", table.path, "--by", "user,id", "--to", output, "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["curve"], found["by"]) == (1200, "hilbert", ["user", "id"])
    assert sorted(found["indexes"]) == ["id:minmax", "user:bloomfilter"]
    jsonschema: Any = importlib.import_module("jsonschema")
    jsonschema.validate(found, schemas()["cluster"])
    Table(output).build(indexes=found["indexes"])
    with pytest.raises(SystemExit) as ended:
        cli(["cluster", table.path, "--by", "user", "--to", output])
    assert ended.value.code == 1
    assert "exists" in capsys.readouterr().err


def test_maps_of_any_keys_and_names_of_any_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Names with dots, backquotes and those of the columns that are added meanwhile; maps within
    structs and lists, whose keys are bytes and lists; and a directory that looks like a pattern."""
    n = 300
    rng = np.random.default_rng(8)
    ids = rng.permutation(n)
    pairs = [[(int(each).to_bytes(2, "big"), int(each))] for each in ids]
    bytes_map = pa.array(pairs, pa.map_(pa.binary(), pa.int32()))
    lists = pa.array(
        [[([int(each)], "v")] for each in ids], pa.map_(pa.list_(pa.int32()), pa.string())
    )
    table = pa.table(
        {
            "a.b": ids,
            "a": pa.StructArray.from_arrays([pa.array(ids[::-1]), bytes_map], ["b", "m"]),
            "c`d": [f"t{each}" for each in ids],
            "__skipstone_file": ids * 2,
            "__SKIPSTONE_DIRECTORY": ids,
            "m": bytes_map,
            "of lists": lists,
            "list": pa.array(
                [[pair] for pair in pairs], pa.list_(pa.map_(pa.binary(), pa.int32()))
            ),
        }
    )
    (tmp_path / "outa").mkdir()
    source = written(tmp_path / "t", [table.slice(0, 200), table.slice(200)])
    for by, output in ((["`a.b`", "`c``d`"], "out[a]"), (["a.b", "`__skipstone_file`"], "out{b}")):
        source.cluster(spark, by=by, to=str(tmp_path / output), file_size=3_000)
        assert rows_of(str(tmp_path / output)) == rows_of(source.path)
    frame = spark.read.parquet(source.path)
    assert clustering.row_checksums(frame) == clustering.row_checksums(frame)


def test_failures_of_spark_are_told_in_words(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path / "t", [orders(at) for at in range(2)])
    with pytest.raises(SkipstoneError, match=r"Spark failed: .*nope") as raised:
        table.cluster(spark, by="id", to=str(tmp_path / "a"), compression="nope")
    assert "nothing was written" in str(raised.value.hint)
    monkeypatch.setattr("skipstone.table.cluster._MOST_FILES", 1_000)
    with pytest.raises(SkipstoneError, match="the most are 1,000"):
        table.cluster(spark, by="id", to=str(tmp_path / "b"), file_size=1)
    path = tmp_path / "t" / "part-1.parquet"
    stored = path.read_bytes()
    path.write_bytes(stored[:4] + bytes(len(stored) // 2) + stored[4 + len(stored) // 2 :])
    with pytest.raises(SkipstoneError, match="Spark failed") as unread:
        table.cluster(spark, by="id", to=str(tmp_path / "c"))
    assert "nothing was written" in str(unread.value.hint)
    spark.sql("SELECT INTERVAL 2 MONTHS AS span, 1 AS a, 2 AS b").write.parquet(str(tmp_path / "i"))
    with pytest.raises(UnsupportedError, match="column span is interval") as told:
        Table(str(tmp_path / "i")).cluster(spark, by="a,b", to=str(tmp_path / "d"))
    assert "--curve sort" in str(told.value.hint)
    report = Table(str(tmp_path / "i")).cluster(
        spark, by="a,b", to=str(tmp_path / "d"), curve="sort"
    )
    assert report.rows == 1


def test_a_session_without_the_filesystem_of_a_table_is_told_what_it_lacks(
    spark: SparkSession, tmp_path: Path, s3: S3
) -> None:
    pq.write_table(orders(0), tmp_path / "0.parquet")
    s3.fill("t/0.parquet", data=(tmp_path / "0.parquet").read_bytes())
    table = Table(f"{s3.base}/t", storage_options=s3.options)
    with pytest.raises(UnsupportedError, match="S3AFileSystem not found") as told:
        table.cluster(spark, by="id", to=str(tmp_path / "a"))
    assert "--packages org.apache.hadoop:hadoop-aws:" in str(told.value.hint)
    assert not (tmp_path / "a").exists()
