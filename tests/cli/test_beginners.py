"""What one does wrong on the first day: what is said, what it costs, and what is left behind."""

from __future__ import annotations

import datetime
import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.cli.output import fault_of
from skipstone.table import Table
from tests.cli.test_speech import command
from tests.damaged_page import write_damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run

NOTHING: Any = None


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two files of ten rows each."""
    root = tmp_path / "lake"
    root.mkdir()
    for part in range(2):
        rows = pa.table({"user_id": [f"u{n}" for n in range(10)], "n": [*range(10)]})
        pq.write_table(rows, root / f"part-{part}.parquet")
    return root


def said(run: Run, *arguments: object) -> tuple[str, str]:
    """The error and the hint of a call that fails with 1."""
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    return error.removeprefix("error: "), hint.removeprefix("hint: ")


# -- Spark is started for what needs it ------------------------------------------------------------


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that fails whoever starts it."""

    def refuse(**_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("skipstone.spark.session.default_session", refuse)


@pytest.mark.usefixtures("no_session")
def test_a_misspelt_column_is_refused_before_spark_starts(run: Run, lake: Path) -> None:
    assert said(run, "build", lake, "-c", "user_idd:bloom") == (
        f"there is no column 'user_idd' in {lake}",
        "did you mean 'user_id'?",
    )


@pytest.mark.usefixtures("no_session")
def test_a_wrong_path_is_refused_before_spark_starts(run: Run, lake: Path) -> None:
    error, hint = said(run, "build", f"{lake}x", "-c", "n:minmax")
    assert error == f"no such file or directory: {lake}x"
    assert "spelling" in hint


@pytest.mark.usefixtures("no_session")
def test_a_refresh_that_has_nothing_to_do_starts_no_spark(run: Run, lake: Path) -> None:
    Table(str(lake)).build(None, ["n:minmax"])
    done = run("refresh", lake, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["files_already"] == 2


@pytest.mark.usefixtures("no_session")
def test_a_small_build_runs_in_this_process_and_says_why(run: Run, lake: Path) -> None:
    done = run("build", lake, "-c", "n:minmax")
    assert done.exit_code == 0, done.stderr
    line = next(each for each in done.stdout.splitlines() if each.startswith("ran "))
    assert line.startswith("ran in this process, ")
    assert "2 files, " in line
    assert "Spark would take longer" in line
    again = run("build", lake, "-c", "n:minmax")
    assert (again.exit_code, "ran " in again.stdout) == (0, False)


def test_a_session_is_chosen_when_the_size_of_the_work_is_known(lake: Path) -> None:
    work = []

    def choose(files: int, nbytes: int) -> None:
        work.append((files, nbytes))

    done = []
    table = Table(str(lake))
    size = sum(each.stat().st_size for each in lake.glob("*.parquet"))
    report = table.build(
        indexes=["n:minmax"], session=choose, progress=lambda *now: done.append(now)
    )
    assert work == [(2, size)]
    assert report.engine.startswith("in this process, ")
    assert sorted(done) == [(0, 2), (1, 2), (2, 2)]
    table.build(indexes=["n:minmax"], session=choose)
    assert len(work) == 1


@pytest.mark.spark
@pytest.mark.long
def test_java_says_nothing_of_its_own(lake: Path) -> None:
    done = command("build", str(lake), "-c", "n:minmax", "--master", "local[1]")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("indexed 2 of 2 files")


@pytest.mark.spark
@pytest.mark.parametrize(
    "environment, said, hint",
    [
        ({"PYSPARK_SUBMIT_ARGS": "--driver-memory 1k x"}, "Too small maximum heap", "such as 2g"),
        ({"JAVA_HOME": "/nope"}, "/nope/bin/java: No such file", "install Java 17"),
        ({"SPARK_HOME": "/nope"}, "there is no /nope/./bin/spark-submit", "SPARK_HOME is the"),
    ],
    ids=["heap", "java", "home"],
)
def test_a_spark_that_does_not_start_is_told_in_the_words_of_java(
    lake: Path, environment: dict[str, str], said: str, hint: str
) -> None:
    done = command("build", str(lake), "-c", "n:minmax", "--master", "local[1]", **environment)
    assert (done.returncode, done.stdout) == (1, "")
    error, told = done.stderr.splitlines()
    assert error.startswith("error: Spark did not start: ")
    assert said in error
    assert told.startswith("hint: ")
    assert hint in told


@pytest.mark.spark
@pytest.mark.long
def test_what_a_session_throws_is_told_without_its_class(lake: Path) -> None:
    wrong = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=1k pyspark-shell"}
    done = command("build", str(lake), "-c", "n:minmax", "--master", "local[1]", **wrong)
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: Spark did not start: ")
    assert "Executor memory 1024 must be at least" in error
    assert "internal" not in error
    assert hint.startswith("hint: ")


# -- paths and predicates --------------------------------------------------------------------------


def test_a_directory_without_files_says_that_there_are_none(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    error, hint = said(run, "count", empty, "n = 1")
    assert error.startswith("no column n")
    assert hint == "there are no columns: check that the path has data files"
    _, hint = said(run, "build", empty, "-c", "n:minmax", "--no-spark")
    assert hint == "it has none: check that the path has data files"


@pytest.mark.parametrize(
    "order, hint", [("m desc", "did you mean 'n'?"), ("zzz", "sort keys are columns")]
)
def test_an_order_by_a_column_that_is_not_there(
    run: Run, lake: Path, order: str, hint: str
) -> None:
    error, told = said(run, "query", lake, "--order-by", order)
    assert error.startswith(f"there is no column {order.split()[0]!r}")
    assert told.startswith(hint) or order == "m desc"


def test_what_a_store_without_keys_says_has_the_names_of_the_keys() -> None:
    fault = fault_of(OSError("s3://bucket/t/_txn: Generic S3 error: status code: 403 Forbidden"))
    assert fault.message.startswith("s3://bucket/t/_txn: ")
    assert "AWS_ACCESS_KEY_ID" in fault.hint


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_where_no_index_can_be_written_another_place_is_proposed(number: int) -> None:
    fault = fault_of(OSError(number, os.strerror(number), "/lake/_events.skipstone/facts"))
    assert fault.message.startswith("/lake/_events.skipstone/facts: ")
    assert fault.hint == "`--index-location` puts the index elsewhere"


def test_a_parquet_file_that_was_cut_off_is_a_case_for_salvage(run: Run, lake: Path) -> None:
    whole = lake / "part-0.parquet"
    torn = lake.parent / "torn.parquet"
    torn.write_bytes(whole.read_bytes()[:-20])
    error, hint = said(run, "inspect", torn)
    assert "no Parquet magic at the end" in error
    assert "skipstone salvage" in hint


@pytest.mark.parametrize("output", ["-o", "--output"])
def test_salvage_and_retrofit_write_where_they_are_told(run: Run, lake: Path, output: str) -> None:
    whole = (lake / "part-0.parquet").read_bytes()
    torn = lake.parent / "torn.parquet"
    torn.write_bytes(whole[:-20])
    saved, better = lake.parent / "saved.parquet", lake.parent / "better.parquet"
    assert run("salvage", torn, output, saved).exit_code == 0
    assert torn.read_bytes() == whole[:-20]
    rows = pq.read_table(lake / "part-0.parquet")
    assert pq.read_table(saved) == rows
    assert not list(lake.parent.glob("*.salvaged.parquet"))
    done = run("retrofit", lake / "part-0.parquet", "--bloom", "user_id", output, better)
    assert done.exit_code == 0, done.output
    assert (lake / "part-0.parquet").read_bytes() == whole
    assert pq.read_table(better) == rows
    assert skipstone.ParquetFile(better).bloom_filter(0, "user_id") is not None


def test_salvage_of_a_whole_file_says_that_its_rows_are_there_twice(run: Run, lake: Path) -> None:
    done = run("salvage", lake / "part-0.parquet")
    assert done.exit_code == 0
    assert "the footer is complete, and nothing was lost" in done.stderr
    assert run("count", lake).stdout == "30\n"


def test_help_says_how_to_get_the_first_rows_by_an_order(run: Run) -> None:
    text = " ".join(run("query", "--help").stdout.split())
    assert "--order-by KEYS with --limit N gives the first N rows (Top-N)" in text


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_what_the_terminal_cannot_show_is_escaped(lake: Path, form: str) -> None:
    rows = pa.table({"user_id": ["ü \U0001f600"], "n": [77]})
    pq.write_table(rows, lake / "part-2.parquet")
    done = command("query", str(lake), "n = 77", form, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    if form == "--json":
        assert json.loads(done.stdout)["rows"] == [["ü \U0001f600", 77]]
    else:
        assert done.stdout.splitlines()[1] == r"\u00fc \ud83d\ude00,77"


def test_a_closed_stdout_is_no_error(lake: Path) -> None:
    line = f"{sys.executable} -m skipstone query {lake} 'n = 3' >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_link_to_nowhere_is_not_proposed_for_itself(run: Run, lake: Path) -> None:
    (lake.parent / "dangling").symlink_to("nowhere")
    error, hint = said(run, "query", lake.parent / "dangling")
    assert error.startswith("no such file or directory")
    assert hint == "check the spelling of the path"


def test_a_thousand_columns_are_found_by_name(tmp_path: Path) -> None:
    """Names in other capitals, and a file that lacks some: as in a table of few columns."""
    root = tmp_path / "wide"
    root.mkdir()
    names = [f"column_{number}" for number in range(1_200)]
    pq.write_table(pa.table({name: [1] for name in names}), root / "a.parquet")
    other = {name.upper(): [2] for name in names[:1_100]}
    pq.write_table(pa.table(other), root / "b.parquet")
    found = Table(root).query("column_7 >= 1")
    assert (found.num_rows, found.column_names) == (2, names)
    assert found.column("column_1099").to_pylist() == [1, 2]
    assert found.column("column_1199").to_pylist() == [1, None]


# -- file indexes ----------------------------------------------------------------------------------


@pytest.fixture
def index(lake: Path) -> Path:
    """A sidecar, away from its data file: nothing tells the types of its columns."""
    table = Table(str(lake))
    table.build(None, ["user_id:bitmap", "n:bitmap"])
    table.export(str(lake.parent / "out"), kind="paimon")
    return lake.parent / "out" / "part-0.parquet.index"


def test_an_open_quote_is_not_taken_for_a_lack_of_types(run: Run, index: Path) -> None:
    error, hint = said(run, "inspect", index, "--where", "user_id = 'u1")
    assert error.startswith("a string without an end at position 10")
    assert "--type" not in hint


@pytest.mark.parametrize("keep", [10, 40, 300])
def test_a_file_index_that_was_cut_off(run: Run, index: Path, keep: int) -> None:
    index.write_bytes(index.read_bytes()[:keep])
    error, hint = said(run, "inspect", index)
    assert str(index) in error
    assert "cut off" in hint


# -- live tables -----------------------------------------------------------------------------------


@pytest.fixture
def trades(tmp_path: Path) -> Path:
    """Two rows, the second one without a time."""
    times = pa.array([datetime.datetime(2026, 3, 1, 10), None], pa.timestamp("us"))
    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({"ts": times, "price": [1.0, 2.0]}), path)
    return path


def test_a_file_is_no_place_for_a_live_table(run: Run, trades: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    error, hint = said(run, "ingest", taken, trades, "--timestamp", "ts")
    assert error == f"{taken} is a file: a live table is a directory"
    assert "name a new directory" in hint
    assert taken.read_text() == "mine"


def test_a_first_ingest_that_is_refused_leaves_no_table(
    run: Run, trades: Path, tmp_path: Path
) -> None:
    root = tmp_path / "db"
    error, _ = said(run, "ingest", root, trades, "--timestamp", "ts")
    assert "1 nulls in column 'ts'" in error
    assert not (root / "_live.json").exists()
    assert not (root / "_txn").exists()
    pq.write_table(pq.read_table(trades)[:1], trades)
    assert run("ingest", root, trades, "--timestamp", "ts").exit_code == 0
    assert run("count", root).stdout == "1\n"


def test_a_later_ingest_that_is_refused_leaves_the_table_as_it_was(
    run: Run, trades: Path, tmp_path: Path
) -> None:
    root, good = tmp_path / "db", tmp_path / "good.parquet"
    pq.write_table(pq.read_table(trades)[:1], good)
    assert run("ingest", root, good, "--timestamp", "ts").exit_code == 0
    said(run, "ingest", root, trades)
    assert run("count", root).stdout == "1\n"


# -- in Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, "x"])
def test_a_size_that_is_none(lake: Path, size: Any) -> None:
    with pytest.raises(ValueError, match="size is the bytes of the file that count"):
        skipstone.ParquetFile(lake / "part-0.parquet", size=size)


@pytest.mark.parametrize(
    "call",
    [
        lambda lake: skipstone.read(NOTHING, lake),
        lambda lake: Table(lake).read(NOTHING, "n = 1"),
        lambda lake: skipstone.last_scan(NOTHING),
        lambda lake: skipstone.watch(NOTHING, lake),
    ],
)
def test_no_session(lake: Path, call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="spark is a SparkSession, not NoneType"):
        call(str(lake))


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda table, bad: table.query(limit=bad), ValueError, "limit is 0 or more, not 'x'"),
        (lambda table, bad: table.drop([bad]), TypeError, "by its name, as 'id:minmax'"),
        (lambda table, bad: table.retrofit(bloom=[bad]), TypeError, "bloom maps columns to prob"),
        (lambda _, __: Table(""), skipstone.SkipstoneError, "a path is empty"),
    ],
)
def test_an_argument_of_another_kind(
    lake: Path, call: Callable[[Any, Any], object], error: type[Exception], said: str
) -> None:
    Table(lake).build(indexes=["n:minmax"])
    with pytest.raises(error, match=said):
        call(Table(lake), "x")


def test_skip_takes_a_dataframe(lake: Path) -> None:
    path: Any = str(lake)
    with pytest.raises(TypeError, match=r"a Spark DataFrame, .* not str; skipstone\.read"):
        skipstone.skip(path)
    with pytest.raises(TypeError, match="a Spark DataFrame"):
        skipstone.explain(NOTHING)


def test_indexes_in_the_place_of_the_session(lake: Path) -> None:
    indexes: Any = ["n:minmax"]
    with pytest.raises(skipstone.SkipstoneError, match="the session comes first"):
        Table(str(lake)).build(indexes)


def test_without_an_index_the_first_verb_is_named(run: Run, lake: Path) -> None:
    """Nothing was built: `refresh` would say that there is nothing to refresh."""
    for arguments in (["explain", lake, "n = 1"], ["describe", lake]):
        done = run(*arguments)
        assert "run `build`" in done.stdout
        assert "run `refresh`" not in done.stdout


def test_a_source_with_a_damaged_page_is_not_ingested(run: Run, tmp_path: Path) -> None:
    times = pa.array(range(4_000), pa.timestamp("us"))
    source = write_damaged(tmp_path / "f.parquet", rows=pa.table({"a": times}))
    root = tmp_path / "db"
    error, _ = said(run, "ingest", root, source, "--timestamp", "a")
    assert "checksum" in error.lower()
    assert not (root / "_txn").exists()
