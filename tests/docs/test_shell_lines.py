"""Every shell line of README.md and docs/ runs, or names what it needs that is not here.

The lines of a page run in their order. Where the page makes its tables (``OWN``), the directory has
no others; else it has the tables and files that pages name: ``events`` and ``lake/events`` are one
table, ``db/trades`` is a live table, ``torn.parquet`` has lost its footer.
The examples of ``skipstone VERB --help`` run each by itself. What is not run is parsed: the
verb and its options exist.
"""

from __future__ import annotations

import datetime
import re
import shlex
import shutil
import subprocess
import sys
from itertools import takewhile
from typing import TYPE_CHECKING

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skipstone import LiveTable, Table
from skipstone.cli import VERBS, cli
from tests.docs.pages import PAGES, blocks, run_examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHELL = ("console", "bash", "sh")
# Pages whose examples in Python make what their shell lines need.
OWN = {"docs/parquet.md", "docs/report.md", "docs/text.md"}
KEY = bytes(range(200, 216))
# What a line needs that is not here.
ELSEWHERE = {
    "s3://": "an object store",
    "hdfs://": "a Hadoop cluster",
    "--table ": "a catalog",
    "--spark": "a session",
    "mycompany.": "the KMS of a company",
    "prefixlist": "the package of its page, which tests/indexes/test_registry.py installs",
    "hexadecimal digits>": "a name for the digits",
    "--parquet-size": "the size of a file of one's own",
}
# Exit codes that are no failure: files that cannot be done, or a machine without Spark.
ENDS = {"doctor": {0, 1}, "check": {0, 3}}


def lines_of(text: str) -> list[str]:
    """The commands of a block: without prompts and comments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", text)
    prompted = [line for line in text.splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ").strip() for line in prompted or text.splitlines()]


def shell_lines(page: str) -> list[str]:
    return [line for _, text in blocks(page, *SHELL) for line in lines_of(text)]


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


def pages() -> list[tuple[str, list[str]]]:
    """Each page and its lines that call Skipstone; its verbs' examples, each as a page."""
    found = []
    for page in PAGES:
        lines = shell_lines(page)
        found.append((page, [line for line in lines if line.startswith("skipstone ")]))
    context = click.Context(cli, info_name="skipstone")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        text = re.sub(r"\\\n\s*", "", (command and command.help) or "")
        lines = [line.strip() for line in text.splitlines()]
        own = [line for line in lines if line.startswith(f"skipstone {verb}")]
        found += [(f"--help of {verb}", [line]) for line in own]
    return [(page, lines) for page, lines in found if lines]


FOUND = pages()


def test_lines_are_found() -> None:
    assert sum(len(lines) for _, lines in FOUND) >= 60
    assert {"README.md", "docs/questdb.md", "--help of build"} <= {page for page, _ in FOUND}


@pytest.mark.parametrize("line", sorted({line for _, lines in FOUND for line in lines}))
def test_a_line_is_understood(line: str) -> None:
    """The verb exists and takes these options and as many arguments."""
    words = words_of(line)
    assert words[0] in VERBS
    # Click keeps the help option of the first context that asks a command for it.
    names = cli.context_settings["help_option_names"]
    context = click.Context(cli, info_name="skipstone", help_option_names=names)
    command = cli.get_command(context, words[0])
    assert command is not None
    with click.Context(command, info_name=words[0], parent=context) as inner:
        command.make_parser(inner).parse_args(words[1:])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the pages name, by the paths that they have there."""
    home = tmp_path_factory.mktemp("world")
    start = datetime.datetime(2026, 3, 10, 13, tzinfo=datetime.UTC)
    events = home / "events"
    events.mkdir()
    for part in range(4):
        rows = range(500 * part, 500 * (part + 1))
        table = pa.table(
            {
                "id": pa.array(rows, pa.int64()),
                "user_id": [f"u-{n * 7_919 % 20_000}" for n in rows],
                "ts": [start + datetime.timedelta(seconds=n) for n in rows],
                "country": [("SE", "NO", "DK")[n % 3] for n in rows],
                "city": [f"c{n % 7}" for n in rows],
                "zip": [str(10_000 + n % 9) for n in rows],
                "age": [n % 90 for n in rows],
                "day": [n // 100 for n in rows],
                "order_id": list(rows),
                "amount": [n % 97 / 4 for n in rows],
                "price": [float(n) for n in rows],
                "user": [{"name": f"n{n}"} for n in rows],
            }
        )
        pq.write_table(table, events / f"part-{part:05}.parquet")
    pq.write_table(pa.table({"user_id": ["u-7919"]}), home / "users.parquet")
    for name in ("lake/events", "data/events", "data/t", "shop/orders"):
        shutil.copytree(events, home / name)
    (home / "data/events/part-00000.parquet").rename(home / "data/events/part-0.parquet")
    first = events / "part-00000.parquet"
    shutil.copy(first, home / "orders.parquet")
    (home / "torn.parquet").write_bytes(first.read_bytes()[:-90])
    (home / "secrets").mkdir()
    for name in ("secrets/footer", "k1.key"):
        (home / name).write_bytes(KEY)
    (home / "queries.txt").write_text("# of this week\nuser_id = 'u-8814'\n40\tcountry = 'NO'\n")
    (home / "scans.log").write_text("")
    trades = pa.table({"ts": table["ts"], "price": table["price"]})
    pq.write_table(trades, home / "new.parquet")
    (home / "lake/people").mkdir()
    pq.write_table(pa.table({"name": ["Zoe", "Ann"]}), home / "lake/people/part-0.parquet")
    (home / "lake/articles").mkdir()
    articles = pa.table({"id": [1, 2], "tags": [["urgent", "new"], []]})
    pq.write_table(articles, home / "lake/articles/part-0.parquet")
    (home / "exports").mkdir()
    pq.write_table(trades, home / "exports/a.parquet")
    path = str(home / "db/trades")
    with LiveTable.create(path, trades.schema, timestamp="ts", partition_by="hour") as live:
        live.append(trades)
    return home


def here(words: Sequence[str]) -> list[str]:
    """With the tables of the root below this directory."""
    roots = ("/data/", "/lake/")
    return [word.removeprefix("/") if word.startswith(roots) else word for word in words]


@pytest.mark.parametrize(
    "page, lines", FOUND, ids=[f"{page} {at}" for at, (page, _) in enumerate(FOUND)]
)
def test_lines_run(
    page: str, lines: list[str], world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    if page in OWN:
        home.mkdir()
    else:
        shutil.copytree(world, home)
    monkeypatch.chdir(home)
    if page in OWN:
        run_examples(page, {})
        prepared = [line for line in shell_lines(page) if line.startswith("mkdir ")]
        subprocess.run(["bash", "-ec", "\n".join(prepared)], check=True)
    for name in ("FOOTER_KEY", "AMOUNT_KEY", "KF"):
        monkeypatch.setenv(name, KEY.hex())
    alone = page.startswith("--help")
    for line in lines:
        if any(needed in line for needed in ELSEWHERE):
            continue
        words = here(words_of(line))
        reads = words[0] in ("query", "explain", "count", "decrypt")
        if alone and reads and "--footer-key" in words:
            given = ["encrypt", words[1], "--footer-key", "env:FOOTER_KEY"]
            assert CliRunner().invoke(cli, given).exit_code == 0
        if "--partition-by" in words:  # it makes the table
            shutil.rmtree(words[1])
        if page == "docs/recipes.md" and words[0] == "compact":
            Table(words[1]).build(indexes=["user_id:bloom"])  # as the job in the line above does
        done = CliRunner().invoke(cli, words)
        told = f"{line}\n{done.output}\n{done.exception!r}"
        assert done.exit_code in ENDS.get(words[0], {0}), told


def test_what_is_not_run_is_in_a_line() -> None:
    lines = [line for _, lines in FOUND for line in lines]
    assert [needed for needed in ELSEWHERE if not any(needed in line for line in lines)] == []


# -- other programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, *SHELL)])
def test_bash_understands_the_blocks(page: str) -> None:
    for _, text in blocks(page, *SHELL):
        script = "\n".join(lines_of(text)).replace("<64 hexadecimal digits>", "0" * 64)
        done = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stderr}"


def options_of(program: str) -> set[str]:
    """The options that the lines of the pages give to this program."""
    given: set[str] = set()
    for page in PAGES:
        for _, text in blocks(page, *SHELL):
            for line in lines_of(text):
                for part in re.split(r"&&|\|", line):
                    _, called, rest = part.partition(f"{program} ")
                    words = rest.split() if called else []
                    # What follows the application is for the application.
                    own = takewhile(lambda word: not word.endswith((".py", '"$RUN"')), words)
                    given |= {each for each in own if re.fullmatch("--[a-z-]+", each)}
    return given


def test_pip_knows_its_options() -> None:
    given = options_of("pip download") | options_of("pip install")
    assert given
    known = ""
    for verb in ("download", "install"):
        command = [sys.executable, "-m", "pip", verb, "--help"]
        known += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [each for each in sorted(given) if each not in known] == []


@pytest.mark.spark
def test_spark_submit_knows_its_options() -> None:
    import pyspark

    given = options_of("spark-submit")
    assert {"--conf", "--py-files", "--archives", "--master"} <= given
    submit = re.sub(r"[^/]+$", "bin/spark-submit", pyspark.__file__)
    done = subprocess.run([submit, "--help"], capture_output=True, text=True, check=False)
    assert [each for each in sorted(given) if each not in done.stdout + done.stderr] == []
