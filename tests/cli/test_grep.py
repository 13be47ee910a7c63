"""``grep``: texts that match, by file, with the habits of grep."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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
        r"there is no index of text: reading 6 of 10 files \(all: [\d.]+ kB\) takes about", told
    ), told
    assert f"`skipstone build {logs} -c m:ngram` makes one that would" in told
    assert run("grep", logs, "Timeout", "-q").stderr == ""
    assert run("build", logs, "-c", "m:ngram", "--no-spark").exit_code == 0
    done = run("grep", logs, "Timeout", "--column", "m")
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
    told = run("grep", logs, "GET", "--column", "m").stderr
    assert "its indexes of text skip no file: reading 6 of 10 files" in told


def test_columns_without_an_index_are_named(run: Run, logs: Path) -> None:
    told = run("grep", logs, "Timeout").stderr
    assert "-c m:ngram -c host:ngram` makes some that would" in told
    assert run("build", logs, "-c", "m:ngram", "--no-spark").exit_code == 0
    told = run("grep", logs, "Timeout").stderr
    assert "its indexes of text skip no file" in told
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


def written(root: Path, **columns: object) -> Path:
    root.mkdir()
    pq.write_table(pa.table(columns), root / "p.parquet")
    return root


BAD = pa.array([b"abc\xffdef", b"xyz", b"abc\xed\xa0\x80"], pa.binary()).view(pa.string())


def test_names_that_are_words_or_operators_of_sql(run: Run, tmp_path: Path) -> None:
    names = ["null", "true", "NOT m", "m", "user-id", "sp ace", "num 1", "1", "b[0]", "b", "a.b"]
    names += ["c`d", "case", "current_date", "m['k']", "x -- y", "\x1b[31mred", "new\nline", "é"]
    columns = {name: [f"hello {at}", "other"] for at, name in enumerate(names)}
    root = written(tmp_path / "t", id=[1, 2], **columns)
    texts = [line.rpartition(":")[2] for line in run("grep", root, "hello").stdout.splitlines()]
    assert texts == [f"hello {at}" for at in range(len(names))]
    assert "\x1b" not in run("grep", root, "hello").stdout
    for at, name in enumerate(names):
        quoted = "`" + name.replace("`", "``") + "`"
        done = run("grep", root, f"hello {at}$", "--column", quoted, "--columns", "id")
        assert done.stdout == f"p.parquet:1\thello {at}\n", name
        assert run("grep", root, "-F", f"hello {at + 1}x", "--column", quoted).stdout == ""
    root = written(tmp_path / "u", **{"NOT m": ["x", "y"], "m": ["zzz", "hello"]})
    assert run("grep", root, "hello").stdout == "p.parquet:m:hello\n"


def test_text_that_is_not_utf8(run: Run, tmp_path: Path) -> None:
    nested = pa.StructArray.from_arrays([BAD], ["s"])
    root = written(tmp_path / "t", id=[1, 2, 3], m=BAD, nested=nested)
    bad = ["abc\ufffddef", "abc\ufffd\ufffd\ufffd"]
    for args in (["abc"], ["-F", "abc"], ["-w", "abc"]):
        done = run("grep", root, *args, "--color", "always", "--no-filename")
        red = [line.replace("abc", "\x1b[1;31mabc\x1b[m") for line in bad]
        assert done.stdout.splitlines() == red, args
    done = run("grep", root, "xyz|def", "--columns", "nested", "--json")
    found = json.loads(done.stdout)["matches"]
    assert [each["text"] for each in found] == [bad[0], "xyz"]
    assert [each["context"] for each in found] == [[{"s": bad[0]}], [{"s": "xyz"}]]
    # Row 1 is decided by the column that is UTF-8; the other is no text that ILIKE decides.
    root_of_two = written(tmp_path / "u", a=["ABC"], m=BAD[:1])
    done = run("grep", root_of_two, "-F", "-i", "Abc", "--no-filename")
    assert done.stdout.splitlines() == ["a:ABC", f"m:{bad[0]}"], done.stderr
    for args in ([], ["--csv"], ["--json"]):
        told = run("query", root, *args)
        assert told.exit_code == 0, told.stderr
        assert told.stdout.count("abc\ufffddef") == 2


def test_no_expression_takes_exponential_time(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "t", a=["match y xxy", "zzz"], b=["x" * 40, "xxy " + "x" * 40])
    for args in (["(x+x+)+y"], ["-w", "(x+x+)+y"], ["-i", "(X+x+)+Y"]):
        done = run("grep", root, *args, "--color", "always", "--no-filename")
        assert done.stdout.splitlines() == [
            "a:match y \x1b[1;31mxxy\x1b[m",
            f"b:\x1b[1;31mxxy\x1b[m {'x' * 40}",
        ]
        found = json.loads(run("grep", root, *args, "--json").stdout)
        assert [each["column"] for each in found["matches"]] == ["a", "b"]
    odd = [b"x" * 40 + b"!\n", b"x" * 40 + b"\xff", b"xxy\n", b"xxy\xff"]
    root = written(tmp_path / "u", m=pa.array(odd, pa.binary()).view(pa.string()))
    done = run("grep", root, "(x+x+)+y$", "--color", "always", "--no-filename")
    assert done.stdout == "\x1b[1;31mxxy\x1b[m\ufffd\n"
    assert run("grep", root, "(x+x+)+y", "--no-filename").stdout == "xxy\ufffd\n" * 2


def test_the_rule_that_decides_the_row_names_the_column(run: Run, tmp_path: Path) -> None:
    # In lower case, the capital is two characters.
    root = written(tmp_path / "t", a=["first", "ix"], b=["-\u0130X-", "zz"])
    done = run("grep", root, "-F", "-i", "i\u0307x", "--color", "always", "--no-filename")
    assert done.stdout == "b:-\x1b[1;31m\u0130X\x1b[m-\n"
    done = run("grep", root, "-F", "-i", "IX", "--no-filename")
    assert done.stdout == "a:ix\n"


def test_all_matches_of_a_text_are_highlighted(run: Run, tmp_path: Path) -> None:
    root = written(tmp_path / "t", m=["to to to, tot to\n", "a.a.a|a"])
    for args, line in (
        (["-w", "to"], "<to> <to> <to>, tot <to>\ufffd"),
        (["to$"], "to to to, tot <to>\ufffd"),
        (["^to|t$"], "<to> to to, tot to\ufffd"),
        (["-F", "to"], "<to> <to> <to>, <to>t <to>\ufffd"),
        (["-F", "a.a"], "<a.a>.a|a"),
        (["-w", "-F", "a.a"], "<a.a>.a|a"),
        (["-w", "-F", "|"], ""),
        (["b*"], "to to to, tot to\ufffd"),
    ):
        done = run("grep", root, *args, "--color", "always", "--no-filename")
        shown = done.stdout.replace("\x1b[1;31m", "<").replace("\x1b[m", ">").splitlines()
        assert shown[:1] == [line][: bool(line)], args


def test_counts_stop_after_so_many(run: Run, logs: Path) -> None:
    done = run("grep", logs, "GET", "--column", "m", "-c", "-m", "60")
    assert done.stdout == "p0.parquet:49\np1.parquet:11\n"


def test_a_closed_stdout(logs: Path) -> None:
    command = f"{sys.executable} -m skipstone grep {logs} Timeout >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "internal" not in done.stderr
    assert done.returncode == 0


def test_a_flag_of_the_pattern_beside_the_option(run: Run, logs: Path) -> None:
    for args in (["-i", "(?i)timeout"], ["-w", "(?i)timeout"], ["-w", "-i", "(?i)timeout"]):
        assert len(run("grep", logs, *args).stdout.splitlines()) == 3, args


def test_a_column_named_twice(run: Run, logs: Path) -> None:
    done = run("grep", logs, "Timeout", "--column", "m", "--column", "M", "--columns", "id,ID")
    assert done.stdout == f"p3.parquet:157\t{ERROR}\np8.parquet:408\t{ERROR}\n"
    done = run("grep", logs, "u7$", "--column", "user.name", "--columns", "User.Name", "-m", "1")
    assert done.stdout == "p0.parquet:u7\tu7\n"


def test_a_table_without_files(run: Run, tmp_path: Path) -> None:
    done = run("grep", tmp_path, "x")
    assert done.exit_code != 0
    assert "has no data file, so there is nothing to search" in done.stderr


def test_values_that_python_lacks_within_others(run: Run, tmp_path: Path) -> None:
    ns = pa.timestamp("ns")
    at, shown = 10**18 + 1, "2001-09-09 01:46:40.000000001"
    columns = {
        "lists": pa.array([[at, None], None, []], pa.list_(ns)),
        "fixed": pa.array([[at, at], None, [0, 1]], pa.list_(ns, 2)),
        "fields": pa.array([{"a": at, "b": [at]}, None, {"a": None, "b": None}]).cast(
            pa.struct([("a", ns), ("b", pa.list_(ns))])
        ),
        "maps": pa.array([[("k", at)], None, []], pa.map_(pa.string(), ns)),
    }
    root = written(tmp_path / "t", m=["hello"] * 3, **columns)
    first = "1970-01-01 00:00:00.00000000"
    expected = [
        [[shown, None], [shown] * 2, {"a": shown, "b": [shown]}, [["k", shown]]],
        [None] * 4,
        [[], [f"{first}0", f"{first}1"], {"a": None, "b": None}, []],
    ]
    done = run("grep", root, "hello", "--columns", ",".join(columns), "--json")
    assert [each["context"] for each in json.loads(done.stdout)["matches"]] == expected
    done = run("query", root, "--columns", ",".join(columns), "--json")
    assert json.loads(done.stdout)["rows"] == expected
    assert f'["{shown}", null]' in run("query", root).stdout


def test_text_of_any_layout(run: Run, tmp_path: Path) -> None:
    text = pa.array(["hello", None, "abc"])
    layouts = {"large": text.cast(pa.large_string()), "coded": text.dictionary_encode()}
    layouts["view"] = text.cast(pa.string_view())
    root = written(tmp_path / "t", id=[1, 2, 3], **layouts)
    for args in (["hel+o"], ["-F", "hello"], ["-F", "-i", "HELLO"], ["-w", "hello"]):
        done = run("grep", root, *args, "--color", "always", "--no-filename")
        expected = [f"{name}:\x1b[1;31mhello\x1b[m" for name in layouts]
        assert done.stdout.splitlines() == expected, args
        assert run("grep", root, *args, "--column", "coded", "-c").stdout == "p.parquet:1\n"


def test_a_line_end_that_matches_is_highlighted(run: Run, tmp_path: Path) -> None:
    """It is shown by the character for what cannot be printed; elsewhere the last one is no part of
    the match."""
    root = written(tmp_path / "t", m=["one \n", "b a\nc", "b a\n"])
    done = run("grep", root, "-w", r"\s", "--color", "always", "--no-filename")
    assert done.stdout.splitlines()[0] == "one \x1b[1;31m\ufffd\x1b[m"
    done = run("grep", root, r"a\nc|a$", "--color", "always", "--no-filename")
    assert done.stdout.splitlines() == [
        "b \x1b[1;31ma\ufffdc\x1b[m",
        "b \x1b[1;31ma\x1b[m\ufffd",
    ]
