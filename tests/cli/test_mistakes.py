"""What a user is told after a mistake: the thing that the user named, and what to write instead.

``lake/events`` has ``id`` (bigint), ``name`` (text), ``day`` (date), ``ts`` (timestamp) and ``x``
(double), and the indexes ``id:minmax`` and ``name:bloom``; ``lake/plain`` is the same without one.
``bad`` has what is no table: nothing, text, a file that was cut, a file of 0 bytes, a CSV file.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

EVENTS, PLAIN, BAD = "{0}/lake/events", "{0}/lake/plain", "{0}/bad"
NO_FILE = "no such file or directory: {0}/bad/nope"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mistakes")
    for folder in ("lake/events", "lake/plain"):
        (root / folder).mkdir(parents=True)
        for at in range(2):
            count = 100
            table = pa.table(
                {
                    "id": pa.array(range(at * count, at * count + count), pa.int64()),
                    "name": [f"u-{number}" for number in range(count)],
                    "day": [datetime.date(2026, 1, 1 + at)] * count,
                    "ts": pa.array(range(count), pa.timestamp("us")),
                    "x": [number / 7 for number in range(count)],
                }
            )
            pq.write_table(table, root / folder / f"part-{at}.parquet")
    Table(root / "lake/events").build(indexes=["id:minmax", "name:bloom"])
    bad = root / "bad"
    for folder in ("empty", "cut", "zero"):
        (bad / folder).mkdir(parents=True)
    whole = (root / "lake/plain/part-0.parquet").read_bytes()
    (bad / "cut/a.parquet").write_bytes(whole[:-60])
    (bad / "zero/a.parquet").write_bytes(b"")
    (bad / "text.parquet").write_text("hello, I am no Parquet file at all")
    (bad / "rows.csv").write_text("a,b\n1,2\n")
    (bad / "short.key").write_text("abc")
    return root


BUILD = [
    ((), "Missing argument 'TABLE'"),
    ((EVENTS,), "`skipstone advise` proposes some"),
    ((EVENTS, "-c", "idd:minmax"), "there is no column 'idd' .* did you mean 'id'"),
    ((EVENTS, "-c", "id:minmx"), "no index kind is called 'minmx' .* did you mean 'minmax'"),
    ((EVENTS, "-c", "id"), "write COLUMN:KIND"),
    ((EVENTS, "-c", "id:"), "write COLUMN:KIND"),
    ((EVENTS, "-c", "id:bloom(fpp=2)"), "fpp is a probability between 0 and 1, not 2.0"),
    ((EVENTS, "-c", "id:bloom(fp=0.1)"), "takes files, fpp, max_bytes, not fp"),
    ((EVENTS, "-c", "id:bloom(fpp=x)"), "'x' is not a number"),
    ((EVENTS, "-c", "id:bitmap("), "write COLUMN:KIND"),
    ((EVENTS, "id:minmax"), "an index is named with -c: skipstone build TABLE -c id:minmax"),
    ((BAD + "/nope", "-c", "id:minmax"), NO_FILE),
    ((BAD + "/empty", "-c", "id:minmax"), "check that the path has data files"),
    ((BAD + "/cut", "-c", "id:minmax"), "cut/a.parquet.*`skipstone salvage FILE` saves its rows"),
    ((BAD + "/text.parquet", "-c", "id:minmax"), "text.parquet.*no Parquet magic"),
    ((EVENTS, "-c", "id:minmax", "--memory", "many"), "'many' is not a size; write 512MiB"),
    ((EVENTS, "-c", "id:minmax", "--pm", "yes"), "'external', 'inlined', 'none'"),
    ((EVENTS, "-c", "id:minmax", "--colum", "x"), "No such option '--colum'.*--column"),
    ((EVENTS, "-c", "id:minmax", "--index-location", EVENTS), "would be read as data of"),
    ((EVENTS, "-c", "id:minmax", "--storage-option", "endpoint"), "not of the form key=value"),
    ((EVENTS, "-c", "id:minmax", "--storage-option", "secret_key=x"), "set it in the environment"),
    ((EVENTS, "-c", "id:minmax", "--format", "csvv"), "'parquet', 'csv', 'json', 'orc'"),
]
QUERY = [
    ((), "Missing argument 'TABLE'"),
    ((EVENTS, "idd = 5"), "no column idd at position 0 .* did you mean 'id'"),
    ((EVENTS, "id = "), "not complete at position 3"),
    ((EVENTS, "id = 'x'"), "'x' cannot be read as bigint: a number is 42, without quotes"),
    ((EVENTS, "day > 'yesterday'"), "'yesterday' cannot be read as date: a date is DATE '2026-01"),
    ((EVENTS, "ts > 'yesterday'"), "a time is TIMESTAMP '2026-01-31 12:00:00'"),
    ((EVENTS, "day > DATE '01.02.2026'"), "it is written as DATE '2026-01-31'"),
    ((EVENTS, "x > abc"), "no column abc .* the columns are id, name, day, ts, x"),
    ((EVENTS, "id > 5 && id < 3"), "write AND in place of &&"),
    ((EVENTS, "SELECT * FROM t"), "give only the condition that follows WHERE"),
    ((EVENTS, "lower(name) = 'x'"), "function lower is not supported"),
    ((EVENTS, "id = 5", "--columns", "idd"), "there is no column idd .* did you mean 'id'"),
    ((EVENTS, "id = 5", "--order-by", "idd"), "no column 'idd' .* to sort by .* did you mean 'id'"),
    ((EVENTS, "id = 5", "--order-by", "id down"), r"write COLUMN \[ASC|DESC\]"),
    ((EVENTS, "id = 5", "--limit", "-1"), "-1 is not in the range"),
    ((EVENTS, "id = 5", "extra"), "quote a predicate"),
    ((EVENTS, EVENTS, "a/b.parquet"), "quote a pattern, 'data/"),
    ((BAD + "/nope", "id = 5"), NO_FILE),
    ((BAD + "/text.parquet", "id = 5"), "text.parquet.*no Parquet magic"),
    ((BAD + "/zero", "id = 5"), "check that the path has data files"),
    ((EVENTS + "/nope*", "id = 5"), "no data file matches .*nope.*2 data files below"),
    ((EVENTS, "id = 5", "--index-location", BAD + "/none"), "there is no index at {0}/bad/none"),
    ((EVENTS, "id = 5", "--index-key", "l=file:" + BAD + "/none.key"), "{0}/bad/none.key: No such"),
    ((EVENTS, "id = 5", "--index-key", "l=file:" + BAD + "/short.key"), "a key is 16, 24 or 32"),
    ((EVENTS, "id = 5", "--index-key", "l=abc"), "never give the key itself"),
    (("foo://x/t", "id = 5"), "foo://x is read through Hadoop|cannot open foo://x: "),
]
DROP = [
    ((EVENTS, "name:minmax", "--yes"), "no index 'name:minmax' .* did you mean 'name:bloomfilter"),
    ((EVENTS, "idd:minmax", "--yes"), "did you mean 'id:minmax'"),
    ((EVENTS, "id", "--yes"), "did you mean 'id:minmax'"),
    ((EVENTS, "ts:minmax", "--yes"), "it has id:minmax, name:bloomfilter"),
    ((PLAIN, "id:minmax", "--yes"), "{0}/lake/plain has no index"),
    ((BAD + "/nope", "--yes"), NO_FILE),
    ((EVENTS, "id:minmax"), "give --yes"),
]
OTHERS = [
    ("refresh", (PLAIN, "--no-spark"), "run `skipstone build {0}/lake/plain` first"),
    ("refresh", (BAD + "/nope", "--no-spark"), NO_FILE),
    ("refresh", (EVENTS, "--index-location", BAD + "/none"), "there is no index at {0}/bad/none"),
    ("describe", (BAD + "/nope",), NO_FILE),
    ("describe", (EVENTS, "--index-location", BAD + "/none"), "there is no index at"),
    ("explain", (EVENTS, "idd = 5"), "did you mean 'id'"),
    ("explain", (BAD + "/nope", "id = 5"), NO_FILE),
    ("count", (EVENTS, "id = 'x'"), "a number is 42"),
    ("count", (BAD + "/nope",), NO_FILE),
    ("check", (BAD + "/nope",), NO_FILE),
    ("check", (EVENTS, "--sample", "x"), "'x' is not a valid integer"),
    ("compact", (BAD + "/nope",), NO_FILE),
    ("compact", (EVENTS + "/*.parquet",), "name the directory: {0}/lake/events"),
    ("vacuum", (EVENTS, "--older-than", "soon"), "write 1d, 36h, 90m or 45s"),
    ("export", (EVENTS,), "name a format"),
    ("advise", (BAD + "/text.parquet",), "no Parquet magic"),
    ("advise", (EVENTS, "--queries", BAD + "/none.sql"), "{0}/bad/none.sql"),
    ("usage", (EVENTS,), "Missing option '--log'"),
    ("report", (EVENTS, "id = 5", "-o", "/proc/x.html"), "/proc/x.html: No such file"),
    ("retrofit", (PLAIN, "--bloom", "namme"), "no column 'namme' in 2 files .*did you mean 'name'"),
    ("retrofit", (BAD + "/text.parquet",), "text.parquet"),
    ("salvage", (BAD + "/text.parquet",), "expected PAR1"),
    ("inspect", (BAD + "/zero/a.parquet",), "the file is empty: 0 bytes"),
    ("inspect", (BAD + "/rows.csv",), "unknown format .*inspect shows"),
    ("inspect", (EVENTS,), "`skipstone describe` shows its index"),
    ("inspect", (EVENTS + "/part-0.parquet", "--column", "idd"), "did you mean 'id'"),
    ("write-metadata", (BAD + "/cut",), "cut/a.parquet"),
    ("migrate", (BAD + "/nope",), NO_FILE),
    ("encrypt", (EVENTS, "--footer-key", "file:" + BAD + "/none.key"), "{0}/bad/none.key: No such"),
    ("encrypt", (EVENTS, "--footer-key", "env:NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
    ("decrypt", (PLAIN + "/part-0.parquet",), "is not encrypted"),
    ("ingest", (BAD + "/db", BAD + "/nope.parquet", "--timestamp", "ts"), "nope.parquet"),
    (
        "ingest",
        (BAD + "/db", PLAIN + "/part-0.parquet", "--timestamp", "tss"),
        "columns are id, na",
    ),
    ("ingest", (PLAIN, PLAIN + "/part-0.parquet", "--timestamp", "ts"), "is not empty"),
    ("buidl", (EVENTS,), "did you mean 'build'"),
]
MISTAKES = [
    *(("build", (*arguments, "--no-spark"), said) for arguments, said in BUILD),
    *(("query", arguments, said) for arguments, said in QUERY),
    *(("drop", arguments, said) for arguments, said in DROP),
    *OTHERS,
]


@pytest.mark.parametrize(
    "verb, arguments, said",
    MISTAKES,
    ids=[f"{verb} {' '.join(given)}".replace("{0}/", "") for verb, given, _ in MISTAKES],
)
def test_what_is_said(
    run: Run, home: Path, verb: str, arguments: tuple[str, ...], said: str
) -> None:
    import re

    done = run(verb, *(each.replace("{0}", str(home)) for each in arguments))
    assert done.exit_code in (1, 2)
    error = " ".join(done.stderr.split())
    assert re.search(said.replace("{0}", re.escape(str(home))), error), error
    assert "_tmp-" not in error
    assert "internal" not in error
    assert error.count("error: ") == 1


def test_files_that_fail_are_named_once(run: Run, home: Path) -> None:
    done = run("retrofit", home / "bad" / "cut")
    assert done.exit_code == 3
    assert done.stdout.count("cut/a.parquet") == 1
