"""The verbs over a real table, one after the other, as one would type them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.table import Table
from tests.cli.test_speech import SOURCE, command

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Run

FILES, ROWS = 12, 100


def add(root: Path, i: int, *, old: bool = True) -> None:
    """File i: ids i*1000 ... i*1000 + 99, one of three countries, as days go by."""
    ids = [i * 1000 + n for n in range(ROWS)]
    path = root / f"part-{i:03d}.parquet"
    pq.write_table(pa.table({"id": ids, "country": [("SE", "NO", "DK")[i % 3]] * ROWS}), path)
    if old:
        os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """12 files under a name that needs quoting."""
    root = tmp_path / "it's é a b%20=x"
    root.mkdir()
    for i in range(FILES):
        add(root, i)
    return root


def told(done: Result, code: int = 0) -> dict[str, Any]:
    """The JSON of a call."""
    assert done.exit_code == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_life(run: Run, table: Path) -> None:
    advice = told(run("advise", table, "--json"))
    assert advice["indexes"] == ["id:minmax", "country:minmax"]
    words = shlex.split(advice["command"])
    assert words[:3] == ["skipstone", "build", str(table)]

    built = told(run(*words[1:], "--no-spark", "--json"))
    assert (built["files_built"], built["files_total"], built["files_failed"]) == (12, 12, [])
    again = told(run(*words[1:], "--no-spark", "--json"))
    assert (again["files_built"], again["files_already"]) == (0, 12)

    described = told(run("describe", table, "--json"))
    assert (described["fresh"], described["missing"]) == (12, 0)
    kinds = [(index["column"], index["kind"]) for index in described["indexes"]]
    assert sorted(kinds) == [("country", "minmax"), ("id", "minmax")]

    plan = told(run("explain", table, "id = 5042 and country = 'DK'", "--json"))
    assert plan["files"] == {"kept": 1, "total": 12}
    assert plan["paths"] == [str(table / "part-005.parquet")]
    assert "read 1 of 12 files" in run("explain", table, "id = 5042").stdout

    assert told(run("check", table, "--json"))["ok"] is True
    add(table, 12)
    (table / "part-000.parquet").unlink()
    drifted = told(run("check", table, "--json"), code=3)
    assert (drifted["missing"], drifted["orphaned"]) == (1, 1)
    plan = told(run("explain", table, "id = 5042", "--json"))
    assert plan["files"] == {"kept": 2, "total": 12}, "a file without facts is read"

    refreshed = told(run("refresh", table, "--no-spark", "--json"))
    assert (refreshed["files_built"], refreshed["files_already"]) == (1, 11)
    told(run("compact", table, "--json"))
    assert told(run("check", table, "--deep", "--json"))["untrue"] == []

    dry = told(run("drop", table, "id:minmax", "--dry-run", "--json"))
    assert dry["dropped"] == ["id:minmax"]
    dropped = told(run("drop", table, "id:minmax", "--yes", "--json"))
    assert (dropped["dropped"], dropped["remaining"]) == (["id:minmax"], ["country:minmax"])
    left = told(run("explain", table, "id = 5042", "--json"))
    assert left["files"]["kept"] == 1, "row groups have bounds of it still"
    assert {step["index"] for step in left["steps"] if step["used"]} == {"_pm statistics"}
    told(run("vacuum", table, "--older-than", "0s", "--json"))
    assert told(run("explain", table, "country = 'SE'", "--json"))["files"]["kept"] == 4
    assert told(run("drop", table, "--yes", "--json"))["remaining"] == []
    for verb, options in (("compact", []), ("drop", ["--yes"])):
        refused = run(verb, table, *options)
        assert refused.exit_code == 1
        assert f"error: {table} has no index" in refused.stderr
        assert "hint: " in refused.stderr


def test_every_report_has_a_text(run: Run, table: Path) -> None:
    spark = ["--no-spark"]
    for verb, options in {
        "build": ["-c", "id:minmax,bloom", *spark],
        "describe": [],
        "refresh": spark,
        "check": ["--deep", "--sample", "2"],
        "compact": [],
        "vacuum": ["--dry-run"],
        "drop": ["--yes"],
    }.items():
        done = run(verb, table, *options)
        assert (done.exit_code, done.stderr) == (0, ""), (verb, done.output)
        assert done.stdout.strip(), verb


def test_dry_run_understands_an_alias(run: Run, table: Path) -> None:
    run("build", table, "-c", "id:bloom", "--no-spark")
    dry = told(run("drop", table, "id:bloom", "--dry-run", "--json"))
    files = told(run("describe", table, "--json"))["files_total"]
    assert dry["dropped"] == [f"id:bloomfilter(files={files},fpp=0.01)"]


@pytest.mark.parametrize(
    "where, words",
    [
        ("idd = 1", ["idd", "'id'"]),
        ("id = = 1", ["id = = 1"]),
        ("id = '", ["id = '"]),
    ],
)
def test_a_predicate_that_is_none(run: Run, table: Path, where: str, words: list[str]) -> None:
    run("build", table, "-c", "id:minmax", "--no-spark")
    done = run("explain", table, where)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 2
    assert "internal" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("verb", ["describe", "check", "refresh", "drop", "compact"])
def test_a_table_that_is_not_there(run: Run, tmp_path: Path, verb: str) -> None:
    options = {"refresh": ["--no-spark"], "drop": ["--yes"]}.get(verb, [])
    done = run(verb, tmp_path / "nowhere", *options)
    assert done.exit_code == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]
    assert "internal" not in done.stderr


def test_a_column_that_is_not_there(run: Run, table: Path) -> None:
    done = run("build", table, "-c", "contry:minmax", "--no-spark")
    assert done.exit_code == 1
    assert "'country'" in done.stderr.splitlines()[1]


def test_a_corrupt_file_is_reported_and_the_build_goes_on(run: Run, table: Path) -> None:
    bad = table / "part-003.parquet"
    bad.write_bytes(b"PAR1 nothing PAR1")
    os.utime(bad, (1_700_000_000, 1_700_000_000))
    built = told(run("build", table, "-c", "id:minmax", "--no-spark", "--json"), code=3)
    assert built["files_built"] == 11
    assert [path for path, _ in built["files_failed"]] == [str(bad)]


def test_nothing_is_written_into_the_table(run: Run, table: Path, tmp_path: Path) -> None:
    before = sorted(table.iterdir())
    elsewhere = tmp_path / "elsewhere"
    run("build", table, "-c", "id:minmax", "--no-spark", "--index-location", elsewhere)
    assert sorted(table.iterdir()) == before
    assert sorted(tmp_path.iterdir()) == sorted([table, elsewhere])
    plan = told(run("explain", table, "id = 1", "--index-location", elsewhere, "--json"))
    assert plan["files"]["kept"] == 1


def test_what_is_exported_can_be_inspected(run: Run, table: Path, tmp_path: Path) -> None:
    run("build", table, "-c", "id:minmax,bloom", "--no-spark")
    exported = told(run("export", table, tmp_path / "md", "--xskipper", "--json"))
    assert (exported["kind"], exported["files"], exported["files_total"]) == ("xskipper", 12, 12)
    (found,) = told(run("inspect", tmp_path / "md", "--json"))["found"]
    assert (found["version"], found["rows"], found["table_identifier"]) == (4, 12, str(table))
    assert [column["kind"] for column in found["columns"]] == ["minmax", "bloomfilter"]


def test_an_index_larger_than_its_data_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    add(tmp_path / "t", 0)
    built = run("build", tmp_path / "t", "-c", "id:minmax", "--no-spark")
    share = built.stdout.partition("(")[2].partition(" %")[0]
    assert float(share.replace(",", "")) > 100


@pytest.mark.parametrize("name", ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/x"])
def test_tables_of_other_formats_are_refused(run: Run, table: Path, name: str) -> None:
    (table / name).parent.mkdir()
    (table / name).write_text("{}")
    (table / "data").mkdir(exist_ok=True)
    (table / "data" / "x").write_text("")
    done = run("build", table, "-c", "id:minmax", "--no-spark")
    assert done.exit_code == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


def on_a_terminal(*arguments: str, result: bool = False, **env: str) -> tuple[str, str]:
    """Run the command line with a terminal for stderr: what stdout got, and what it showed.
    ``result``: stdout is the terminal too."""
    master, slave = os.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "skipstone", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", **env},
        stdout=slave if result else subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    out, _ = running.communicate()
    return out or "", shown.decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_first_rows_and_how_many_there_are(table: Path) -> None:
    """A pipe, and whoever asks for more, gets all."""
    _, shown = on_a_terminal("query", str(table), "country = 'SE'", result=True)
    lines = shown.splitlines()
    assert lines[-1] == ("(the first 100 of 400 rows: --limit N shows more, a pipe gets all)")
    assert lines[0].split() == ["id", "country"]
    assert len(lines) == 103
    _, shown = on_a_terminal("query", str(table), "--limit", "150", result=True)
    assert shown.splitlines()[-1] == "(150 rows)"
    _, shown = on_a_terminal("query", str(table), "id < 100", result=True)
    assert shown.splitlines()[-1] == "(100 rows)"
    _, shown = on_a_terminal("query", str(table), "--order-by", "id desc", result=True)
    assert f"{FILES * 1000 - 1000 + 99}" in shown.splitlines()[2]
    assert shown.splitlines()[-1].startswith("(the first 100 of 1,200 rows")
    _, shown = on_a_terminal("query", str(table), "--csv", result=True)
    assert len(shown.splitlines()) == FILES * ROWS + 1
    out, _ = on_a_terminal("query", str(table))
    assert out.splitlines()[-1] == "(1,200 rows)"


def test_progress_is_drawn_on_a_terminal_and_stdout_stays_clean(table: Path) -> None:
    build = ["build", str(table), "-c", "id:bloom", "--no-spark", "--json"]
    out, shown = on_a_terminal(*build)
    assert json.loads(out)["files_built"] == FILES
    assert "indexing" in shown
    assert "12" in shown
    out, shown = on_a_terminal(*build, "--quiet")
    assert json.loads(out)["files_already"] == FILES
    assert shown == ""


def test_no_colour_where_it_is_not_wanted(table: Path) -> None:
    _, shown = on_a_terminal("explain", str(table), "nix = 1", NO_COLOR="")
    assert "\x1b[1;31merror:" in shown
    _, shown = on_a_terminal("explain", str(table), "nix = 1", NO_COLOR="1")
    assert "\x1b" not in shown
    assert shown.startswith("error:")


@pytest.mark.spark
@pytest.mark.slow
def test_build_with_a_session_of_its_own(table: Path) -> None:
    """As a process: the result alone on stdout, although Spark ran."""
    done = command("build", str(table), "-c", "id:minmax", "--master", "local[1]", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files_built"] == FILES
    assert Table(str(table)).explain("id = 5042").plan.files_kept == 1


@pytest.mark.parametrize("missing", [{"PATH": "/nowhere"}])
def test_without_java_it_says_so(table: Path, missing: dict[str, str]) -> None:
    named = ("--master", "local[1]")
    done = command("build", str(table), "-c", "id:minmax", *named, **missing, JAVA_HOME="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: Spark needs Java, and there is none on the PATH",
        "hint: install Java 17 or newer (JAVA_HOME); build and refresh need none (--no-spark)",
    ]
