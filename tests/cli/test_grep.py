"""``grep``: texts that match, by file, with the habits of grep."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

FILES = 10
ERROR = "ERROR [upstream] 100% Timeout after 30 s, Timeout again"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Ten files of 50 lines; file 3 has an error at row 7, file 8 has it twice, in capitals too."""
    root = tmp_path / "logs"
    root.mkdir()
    for part in range(FILES):
        lines: list[str | None] = [f"GET /item/{row} ok" for row in range(50)]
        lines[1] = None
        if part == 3:
            lines[7] = ERROR
        if part == 8:
            lines[8], lines[9] = ERROR, ERROR.upper()
        hosts = [f"host-{part}{'-error' if row == 20 and part == 5 else ''}" for row in range(50)]
        users = [{"name": f"u{row}"} for row in range(50)]
        columns = {"id": range(part * 50, part * 50 + 50), "m": lines, "host": hosts, "user": users}
        pq.write_table(pa.table(columns), root / f"p{part}.parquet")
    return root


def test_a_regular_expression_in_one_column(run: Run, logs: Path) -> None:
    done = run("grep", logs, "Time(out|r) after [0-9]+", "--column", "m")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [f"p3.parquet:{ERROR}", f"p8.parquet:{ERROR}"]


def test_all_columns_of_text_are_searched(run: Run, logs: Path) -> None:
    lines = run("grep", logs, "-i", "error").stdout.splitlines()
    assert lines == [
        f"p3.parquet:m:{ERROR}",
        "p5.parquet:host:host-5-error",
        f"p8.parquet:m:{ERROR}",
        f"p8.parquet:m:{ERROR.upper()}",
    ]


def test_plain_texts(run: Run, logs: Path) -> None:
    done = run("grep", logs, "-F", "[upstream] 100%", "--column", "m")
    assert len(done.stdout.splitlines()) == 2
    done = run("grep", logs, "-F", "-i", "[UPSTREAM] 100%", "--column", "m")
    assert len(done.stdout.splitlines()) == 3
    assert run("grep", logs, "-F", "1_0", "--column", "m").exit_code == 1


def test_whole_words(run: Run, logs: Path) -> None:
    for args, rows in (
        (["Time"], 0),
        (["Timeout"], 2),
        (["-F", "100%"], 3),
        (["-i", "TIMEOUT|upstream"], 3),
        (["-F", "-i", "[upstream"], 3),
        (["-F", "é_é"], 0),
        (["[0-9]"], 9 * FILES - 3),
    ):
        done = run("grep", logs, "-w", *args, "--column", "m", "-q")
        assert len(done.stdout.splitlines()) == rows, args
    line = run("grep", logs, "-w", "ERROR", "--column", "m", "-m", "1", "--color", "always").stdout
    assert "\x1b[1;31mERROR\x1b[m [upstream]" in line


def test_columns_before_the_text(run: Run, logs: Path) -> None:
    args = ("Timeout", "--column", "m", "--columns", "id,user.name")
    lines = run("grep", logs, *args, "--no-filename").stdout.splitlines()
    assert lines == [f"157\tu7\t{ERROR}", f"408\tu8\t{ERROR}"]


def test_a_field_is_searched(run: Run, logs: Path) -> None:
    done = run("grep", logs, "^u7$", "--column", "user.name", "-c")
    assert done.stdout.splitlines() == [f"p{part}.parquet:1" for part in range(FILES)]


def test_counts_and_names(run: Run, logs: Path) -> None:
    assert run("grep", logs, "(?i)timeout", "-c").stdout == "p3.parquet:1\np8.parquet:2\n"
    assert run("grep", logs, "(?i)timeout", "-l").stdout == "p3.parquet\np8.parquet\n"
    done = run("grep", logs, "x", "-c", "-l")
    assert done.exit_code == 2
    assert "either -c or -l" in done.stderr


def test_it_stops_after_so_many(run: Run, logs: Path) -> None:
    lines = run("grep", logs, "GET", "-m", "60", "--column", "m").stdout.splitlines()
    assert len(lines) == 60
    assert lines[0] == "p0.parquet:GET /item/0 ok"
    assert lines[-1].startswith("p1.parquet:")


def test_a_condition(run: Run, logs: Path) -> None:
    done = run("grep", logs, "Timeout", "--where", "id > 200 OR id < 3", "-c")
    assert done.stdout == "p8.parquet:1\n"


def test_nothing_found_is_exit_code_1(run: Run, logs: Path) -> None:
    done = run("grep", logs, "no such text")
    assert (done.exit_code, done.stdout) == (1, "")


def test_an_error_is_exit_code_2(run: Run, logs: Path) -> None:
    """Also one that comes after rows that matched; other verbs have 1 for it."""
    absent = logs.parent / "absent"
    assert run("grep", absent, "x").exit_code == 2
    assert run("query", absent, "id = 1").exit_code == 1
    file = logs / "p9.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(len(data) - 12) + data[-8:])
    done = run("grep", logs, "item/1 ", "--column", "m")
    assert done.exit_code == 2, done.stderr
    assert "p9.parquet" in done.stderr
    assert run("query", logs, "id = 1").exit_code == 1


def test_what_matches_is_highlighted(run: Run, logs: Path) -> None:
    done = run("grep", logs, "Timeout", "--column", "m", "-m", "1", "--color", "always")
    red = ERROR.replace("Timeout", "\x1b[1;31mTimeout\x1b[m")
    assert done.stdout == f"\x1b[35mp3.parquet\x1b[m:{red}\n"
    assert "\x1b" not in run("grep", logs, "Timeout").stdout


def test_control_characters_are_not_printed(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"m": ["bell \x07 \x1b[2J here\nnext"]}), root / "p.parquet")
    done = run("grep", root, "here", "--color", "always")
    assert (
        re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        == "p.parquet:bell \ufffd \ufffd[2J here\ufffdnext\n"
    )


def test_json(run: Run, logs: Path) -> None:
    found = json.loads(run("grep", logs, "Timeout", "--columns", "id", "--json").stdout)
    assert found["matches"] == [
        {"file": "p3.parquet", "column": "m", "text": ERROR, "context": [157]},
        {"file": "p8.parquet", "column": "m", "text": ERROR, "context": [408]},
    ]
    assert (found["rows"], found["by_file"]) == (2, {"p3.parquet": 1, "p8.parquet": 1})
    assert found["files"] == {"kept": FILES, "total": FILES}


def test_without_an_index_it_says_how_long_and_which_would_help(run: Run, logs: Path) -> None:
    told = run("grep", logs, "Timeout", "--column", "m").stderr
    assert re.search(
        r"there is no index of text: the other 6 of 10 files of [\d.]+ kB in all take about", told
    ), told
    assert f"`skipstone build {logs} -c m:ngram` makes one that would" in told
    assert run("grep", logs, "Timeout", "-q").stderr == ""
    assert run("build", logs, "-c", "m:ngram", "--no-spark").exit_code == 0
    done = run("grep", logs, "Timeout", "--column", "m")
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
    told = run("grep", logs, "GET", "--column", "m").stderr
    assert "no index of text leaves out files: the other 6 of 10 files" in told


def test_columns_without_an_index_are_named(run: Run, logs: Path) -> None:
    told = run("grep", logs, "Timeout").stderr
    assert "-c m:ngram -c host:ngram` makes some that would" in told
    assert run("build", logs, "-c", "m:ngram", "--no-spark").exit_code == 0
    told = run("grep", logs, "Timeout").stderr
    assert "no index of text leaves out files" in told
    assert "-c host:ngram` makes one that would" in told


def test_an_index_leaves_out_files(run: Run, logs: Path) -> None:
    assert run("build", logs, "-c", "m:ngram(fpp=0.001)", "--no-spark").exit_code == 0
    for args in (["Timeout"], ["-F", "-i", "TIMEOUT"], ["-i", "time ?out"], ["Time(out|r) after"]):
        done = run("grep", logs, *args, "--column", "m", "--json")
        found = json.loads(done.stdout)
        assert found["files"] == {"kept": 2, "total": FILES}, args
        assert found["rows"] >= 2


@pytest.mark.parametrize(
    "args, told",
    [
        (["a(?=b)"], "flags, names and lookaround of groups are not decided"),
        (["a("], "unmatched"),
        (["x", "--column", "nope"], "nope"),
        (["x", "--column", "id"], "column id is int64, and not text"),
        (["x", "--where", "id >"], "id >"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, logs: Path, args: list[str], told: str) -> None:
    done = run("grep", logs, *args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert "hint" in done.stderr


def test_a_table_without_text(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"n": [1]}), root / "p.parquet")
    done = run("grep", root, "x")
    assert done.exit_code == 2
    assert "has no column of text" in done.stderr
