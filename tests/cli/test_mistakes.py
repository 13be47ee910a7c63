"""What a user is told after a mistake: the thing that the user named, and what to write instead.

``lake/events`` has ``id`` (bigint), ``name`` (text), ``day`` (date), ``ts`` (timestamp) and ``x``
(double), and the indexes ``id:minmax`` and ``name:bloom``; ``lake/plain`` is the same without one.
Mistakes that verbs answer alike are in ``ALIKE``; the others belong to a verb.
``lake/nested`` has a struct, a list, a map and a duration.
``bad`` has what is no table: nothing, text, a file that was cut, a file of 0 bytes, a CSV file.
"""

from __future__ import annotations

import datetime
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone import Encryption, Table
from skipstone.rewrite import encrypt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

EVENTS, PLAIN, BAD = "{0}/lake/events", "{0}/lake/plain", "{0}/bad"
NESTED = "{0}/lake/nested"
KMS = "tests.parquet.encryption.keys:PlainKms"
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
    (root / "lake/nested").mkdir()
    nested = pa.table(
        {
            "st": pa.array([{"a": 1}]),
            "li": pa.array([[1]]),
            "mp": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "took": pa.array([1], pa.duration("us")),
        }
    )
    pq.write_table(nested, root / "lake/nested/a.parquet")
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
    (bad / "bytes.bin").write_bytes(b"{\xff}")
    (bad / "hex.key").write_text("0123456789abcdef")
    (bad / "people.csv").write_text("name,born\nZoe,1999\n")
    (bad / "good.key").write_bytes(bytes(range(200, 216)))
    key = Encryption(footer_key=bytes(range(200, 216)))
    encrypt(str(root / "lake/plain/part-0.parquet"), str(bad / "enc.parquet"), encryption=key)
    return root


# What a verb takes beside TABLE, so that nothing but the mistake is wrong.
BESIDE = {
    "build": ("-c", "id:minmax", "--no-spark"),
    "refresh": ("--no-spark",),
    "drop": ("--yes",),
    "export": ("--xskipper",),
    "usage": ("--log", "-"),
    "report": ("-o", "{0}/bad/report.html"),
}
# The verbs of a table and its index; those of files have fewer options.
OF_TABLES = ["build", "refresh", "describe", "explain", "query", "count", "report", "usage"]
OF_TABLES += ["check", "advise", "drop", "compact", "vacuum", "export"]
KEY = "never give the key itself: file:PATH or env:NAME says where it is"
# Mistakes that each of them answers alike.
ALIKE = [
    ((), "Missing argument 'TABLE'"),
    ((BAD + "/nope",), "(?i)no such file or directory: {0}/bad/nope|{0}/bad/nope: no such file"),
    (("",), "a path is empty"),
    ((EVENTS, "--nosuch"), "No such option '--nosuch'.* run `skipstone [a-z]+ --help`"),
    ((EVENTS + "/part-0.parquet/x",), "(?i)no such file|not a directory"),
    (("foo://x/t",), "foo://x is read through Hadoop|cannot open foo://x: "),
    ((EVENTS, "--storage-option", "endpoint"), "'endpoint' is not of the form key=value"),
    ((EVENTS, "--storage-option", "secret_key=x"), "set it in the environment"),
    ((EVENTS, "--index-key", "l=abc"), KEY),
    ((EVENTS, "--index-key", "labc"), "not of the form LABEL=SOURCE"),
    ((EVENTS, "--index-key", "l=file:" + BAD + "/none.key"), "{0}/bad/none.key: No such file"),
    ((EVENTS, "--index-key", "l=env:NO_SUCH_KEY"), "environment variable NO_SUCH_KEY is not set"),
    ((EVENTS, "--index-kms", "nope:X"), "no KMS client 'nope:X'.*PYTHONPATH"),
    ((EVENTS, "--index-kms", "os:getcwd"), "'os:getcwd' makes no KMS client, but .* type str"),
    ((EVENTS, "--index-location", BAD + "/none"), "there is no index at {0}/bad/none"),
]
# `build` makes an index there; `advise` only names the place in what it proposes.
ANYWHERE = {"build", "advise"}


def alike() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for verb in OF_TABLES:
        for arguments, said in ALIKE:
            if "--index-location" in arguments and verb in ANYWHERE:
                continue
            beside = BESIDE.get(verb, ()) if arguments else ()
            yield verb, (*arguments[:1], *beside, *arguments[1:]), said


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
    ((EVENTS, "id:minmax"), "an index is named with -c, .*: skipstone build TABLE -c 'id:minmax'"),
    ((EVENTS, "id"), "skipstone build TABLE -c 'id:KIND'"),
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
    ((EVENTS, "-c", "minmax:id"), "no index kind is called 'id' .* write id:minmax: the column"),
    ((EVENTS, "-c", "id=minmax"), "'id=minmax' is not an index definition: write COLUMN:KIND"),
    (
        (EVENTS, "-c", "*:minmax"),
        r"there is no column '\*' .* its columns are id, name, day, ts, x",
    ),
    ((BAD + "/../lake", "-c", "id:minmax"), "name one of the folders, as {0}/lake/(events|plain),"),
    (("{0}/lake/event", "-c", "id:minmax"), "did you mean {0}/lake/events"),
    *(
        ((EVENTS, "-c", "id:minmax", "--master", master), "is not a Spark master: write local")
        for master in ("local[0]", "local[x]", "local[", "Local", "spark://here", "yarn-client", "")
    ),
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
    ((EVENTS, "soundex(name) = 'x'"), "only Spark computes soundex"),
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
    (
        (EVENTS, "id = 5", "--index-key", "l=file:" + BAD + "/hex.key"),
        "holds 8 bytes, and a key is",
    ),
    ((EVENTS, "when = 5"), "when is a word of SQL: .* is written `when`, in backquotes"),
    ((EVENTS, "WHERE id = 5"), "give only the condition that follows WHERE"),
    ((EVENTS, "select = 5"), "select is a word of SQL: .* is written `select`, in backquotes"),
    ((EVENTS, "id = 1 AND Order ID = 5"), "name has blanks is written `Order ID`, in backquotes"),
    ((EVENTS, "id = 5;"), "unexpected ';' at position 6 .* no semicolon"),
    ((EVENTS, "name = abc"), "no column abc .* a text is written 'abc'"),
    ((EVENTS, "day > 20260101"), "date and int do not compare: a date is DATE '2026-01-31'"),
    ((EVENTS, "id = 5)"), r"unexpected '\)' at position 6"),
    ((EVENTS, "ts = '2026"), "a string without an end at position 5"),
    ((EVENTS, "id = 1 or or id = 2"), "an expression is expected before 'or' at position 10"),
    ((EVENTS, "--columns", ","), "no column was named: write A,B"),
    ((EVENTS, "--csv", "--json"), "either --csv or --json"),
    ((BAD + "/cut",), "cut/a.parquet.*`skipstone salvage FILE` saves its rows"),
    ((BAD + "/rows.csv",), "rows.csv: at byte 0: too short for a Parquet file"),
    ((EVENTS, "id = 5", "--footer-key", "abc"), KEY),
    ((EVENTS, "id = 5", "--keys", BAD + "/none.json"), "{0}/bad/none.json"),
    ((EVENTS, "id = 5", "--keys", BAD + "/rows.csv"), "rows.csv does not say which column"),
    ((EVENTS, "id > INTERVAL 1 DAY"), "of type interval; bigint and interval do not compare"),
    ((EVENTS, "id = 5", "--keys", "/dev/zero"), "/dev/zero is neither a file nor a folder"),
    ((EVENTS, "id = 5", "--keys", "/dev/zero:id"), "neither.* write the keys to a file"),
    ((EVENTS, "id = 5", "--limit", "ten"), "'ten' is not a valid integer"),
    ((NESTED, "st = 3"), "compare a field of it, as in st.FIELD"),
    ((NESTED, "li = 3"), r"array_contains\(li, 42\)"),
    ((NESTED, "mp = 3"), r"as in mp\['KEY'\] = 42"),
    ((NESTED, "took > INTERVAL 5 SECONDS"), "a duration is a whole number"),
    ((EVENTS, "id"), "compare it with a value, as in id = 42"),
    ((EVENTS, "name = 'x' limit 3"), "LIMIT is not part of a condition.*--limit"),
    ((EVENTS, "id = 5 order by ts"), "ORDER BY is not part of a condition.*--order-by"),
    ((EVENTS, "--order-by", "zzz"), "sort keys are columns.* here are id, name, day, ts, x"),
]
EXPLAIN = [
    ((EVENTS, "idd = 5"), "did you mean 'id'"),
    ((EVENTS, "id = "), "not complete at position 3"),
    ((EVENTS, "when = 5"), "is written `when`, in backquotes"),
    ((EVENTS, "SELECT id FROM t"), "give only the condition that follows WHERE"),
    ((EVENTS, "id = 5", "--columns", "idd"), "there is no column idd .* did you mean 'id'"),
    ((EVENTS, "--order-by", "id down"), r"write COLUMN \[ASC|DESC\]"),
    ((EVENTS, "--limit", "-3"), "-3 is not in the range"),
    ((EVENTS, "id", "=", "5"), 'quote a predicate, "id = 5"'),
    ((BAD + "/cut", "id = 5"), "cut/a.parquet.*`skipstone salvage FILE` saves its rows"),
    ((EVENTS + "/nope*", "id = 5"), "no data file matches .*nope.*2 data files below"),
]
REFRESH = [
    ((PLAIN,), "`skipstone advise {0}/lake/plain` proposes some to build"),
    ((BAD + "/empty",), "{0}/bad/empty has no index"),
    ((EVENTS, "-c", "id:bloom"), "No such option '-c'"),
    ((EVENTS, "--pm", "x"), "'external', 'inlined', 'none'"),
    ((EVENTS, "id:minmax"), "existing indexes; skipstone build TABLE -c 'id:minmax' adds one"),
    ((EVENTS + "/nope*",), "no data file matches"),
    ((EVENTS, "--plaintext"), "--plaintext-index"),
]
DESCRIBE = [
    ((EVENTS, "extra"), "`skipstone describe --help` shows what it takes"),
    ((EVENTS, "a/b.parquet"), "one table at a time: quote a pattern"),
    ((EVENTS, "--format", "cvs"), "'parquet', 'csv', 'json', 'orc'"),
    ((EVENTS, "--option", "header"), "'header' is not of the form key=value"),
    ((EVENTS, "--recursive"), "--recursive-file-lookup"),
    (("{0}/lake/events.parquet",), "did you mean {0}/lake/events"),
    ((EVENTS + "/*.csv",), "no data file matches"),
    (("s3://",), "has no parent directory"),
    (("hdfs:/x",), "names no name node .*webhdfs=|no host: hdfs:///"),  # the latter with a session,
]
CHECK = [
    ((EVENTS, "--sample", "x"), "'x' is not a valid integer"),
    ((EVENTS, "--sample", "-1"), "-1 is not in the range"),
    ((EVENTS, "--deep", "yes"), "`skipstone check --help` shows what it takes"),
    ((EVENTS, "--fix"), "No such option '--fix'"),
    ((EVENTS + "/*.parquet",), "check works on the index of all files.* name the directory: {0}"),
    ((EVENTS + "/part-0.parquet", "a/b"), "one table at a time"),
    ((BAD + "/../lake",), "name one of the folders"),
]
ADVISE = [
    ((BAD + "/text.parquet",), "no Parquet magic"),
    ((BAD + "/cut",), "cut/a.parquet"),
    ((EVENTS, "--queries", BAD + "/none.sql"), "{0}/bad/none.sql"),
    ((EVENTS, "--queries", BAD), "{0}/bad': Is a directory"),
    ((EVENTS, "--queries", "/dev/null"), "/dev/null, there is no query"),
    ((EVENTS, "--queries", BAD + "/rows.csv"), "{0}/bad/rows.csv, line 1: "),
    ((EVENTS, "id = 5"), "predicates are lines of a file: --queries FILE"),
    ((EVENTS, "--sample", "0"), "0 is not in the range"),
    ((EVENTS + "/nope*",), "no data file matches"),
]
DROP = [
    (
        (EVENTS, "id:minmax", "name:bloom", "--yes"),
        "one index at a time, or without one all of them",
    ),
    ((EVENTS, "id:minmax;", "--yes"), "has no index 'id:minmax;' .* did you mean 'id:minmax'"),
    ((EVENTS, "", "--yes"), "it has id:minmax, name:bloomfilter"),
    ((EVENTS + "/*.parquet", "id:minmax", "--yes"), "name the directory: {0}/lake/events"),
    ((EVENTS, "name:minmax", "--yes"), "no index 'name:minmax' .* did you mean 'name:bloomfilter"),
    ((EVENTS, "idd:minmax", "--yes"), "did you mean 'id:minmax'"),
    ((EVENTS, "id", "--yes"), "did you mean 'id:minmax'"),
    ((EVENTS, "ts:minmax", "--yes"), "it has id:minmax, name:bloomfilter"),
    ((PLAIN, "id:minmax", "--yes"), "{0}/lake/plain has no index"),
    ((BAD + "/nope", "--yes"), NO_FILE),
    ((EVENTS, "id:minmax"), "give --yes"),
]
VACUUM = [
    ((EVENTS, "--older-than", "soon"), "write 1d, 36h, 90m or 45s"),
    ((EVENTS, "--older-than", "3"), "write 1d, 36h, 90m or 45s"),
    ((EVENTS, "--older-than", "1w"), "write 1d, 36h, 90m or 45s"),
    ((EVENTS, "--older", "1d"), "--older-than"),
    ((EVENTS, "--dry-runn"), "--dry-run"),
    ((EVENTS, "--at-version", "1"), "No such option '--at-version'"),
    ((EVENTS, "extra"), "`skipstone vacuum --help` shows what it takes"),
    ((EVENTS + "/*.parquet",), "vacuum works on the index of all files"),
]
REPORT = [
    ((EVENTS, "id = 5", "-o", "/proc/x.html"), "/proc/x.html: No such file"),
    ((EVENTS, "id = 5", "-o", BAD + "/nope/x.html"), "there is no directory {0}/bad/nope: "),
    ((EVENTS, "id = 5", "-o", BAD), "{0}/bad' is a directory"),
    ((EVENTS, "id = 5", "-o", EVENTS + "/part-0.parquet"), "part-0.parquet exists, and is no page"),
    ((EVENTS, "idd = 5"), "did you mean 'id'"),
    ((EVENTS, "id = "), "not complete at position 3"),
    ((EVENTS, "id = 5", "extra"), "quote a predicate"),
    ((BAD + "/text.parquet",), "no Parquet magic"),
    ((BAD + "/cut",), "cut/a.parquet"),
]
RETROFIT = [
    ((), "Missing argument 'TABLE'"),
    (("",), "a path is empty"),
    ((BAD + "/nope",), NO_FILE),
    (("{0}/lake/plains",), "did you mean {0}/lake/plain"),
    ((PLAIN, "--bloom", "namme"), "no column 'namme' in 2 files .*did you mean 'name'"),
    ((PLAIN, "--bloom", "name:2"), "the Bloom filter of name: 2 is not a probability .* as 0.01"),
    ((PLAIN, "--bloom", "name,id"), "no column 'name,id' in 2 files"),
    ((PLAIN, "--bloom", ""), "no column '' .*the columns are id, name, day, ts, x"),
    ((PLAIN, "--bloom", "id.x"), "no column 'id.x'"),
    ((PLAIN + "/part-0.parquet", "--bloom", "namme"), "part-0.parquet .*did you mean 'name'"),
    ((PLAIN, "--sorting", "idd"), "no column 'idd' in 2 files"),
    ((PLAIN, "--sorting", "id:down"), "'id:down' is not a sort key .* write column"),
    ((PLAIN, "--page-rows", "0"), "0 is not in the range"),
    ((PLAIN, "--page-rows", "x"), "'x' is not a valid integer"),
    ((PLAIN, "-o", BAD + "/x"), "--output is for one file"),
    ((PLAIN + "/part-0.parquet", "-o", "/nope/x.parquet"), "/nope/x.parquet: No such file"),
    ((PLAIN + "/part-0.parquet", "-o", BAD), "{0}/bad is a directory"),
    ((BAD + "/text.parquet",), "text.parquet"),
    ((BAD + "/rows.csv",), "rows.csv: at byte 0: too short"),
    (("s3://x/y",), "only local files are done"),
    ((PLAIN, "--columns", "id"), "No such option '--columns'"),
]
FOOTER = "--footer-key"
GOOD = "file:" + BAD + "/good.key"
ENCRYPT = [
    ((), "Missing argument 'FILE|TABLE'"),
    ((PLAIN,), "either --footer-key, or --kms and --footer-key-id"),
    ((PLAIN, FOOTER, "file:" + BAD + "/none.key"), "{0}/bad/none.key: No such"),
    ((PLAIN, FOOTER, "file:" + BAD), "{0}/bad: Is a directory"),
    ((PLAIN, FOOTER, "file:" + BAD + "/short.key"), "short.key does not hold a key .* hex, base64"),
    ((PLAIN, FOOTER, "file:" + BAD + "/hex.key"), "{0}/bad/hex.key holds 8 bytes"),
    ((PLAIN, FOOTER, "env:NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
    ((PLAIN, FOOTER, "0123456789abcdef"), KEY),
    ((PLAIN, FOOTER, "env:"), KEY),
    ((PLAIN, "--column-key", "id=" + GOOD), "either --footer-key"),
    ((PLAIN, FOOTER, GOOD, "--column-key", "id"), "not of the form COLUMN=SOURCE"),
    ((PLAIN, FOOTER, GOOD, "--column-key", "idd=" + GOOD), "no column 'idd' .* did you mean 'id'"),
    ((PLAIN, FOOTER, GOOD, "--plaintext-column", "idd"), "no column 'idd' .*did you mean 'id'"),
    ((PLAIN, FOOTER, GOOD, "--algorithm", "aes"), "'gcm', 'gcm-ctr'"),
    ((PLAIN, FOOTER, GOOD, "--key-bits", "512"), "'128', '192', '256'"),
    ((PLAIN, FOOTER, GOOD, "--kms", "nope:X"), "no KMS client 'nope:X'"),
    ((PLAIN, FOOTER, GOOD, "-o", BAD + "/x"), "--output is for one file"),
    ((BAD + "/nope", FOOTER, GOOD), "{0}/bad/nope: No such file or directory"),
    ((BAD + "/rows.csv", FOOTER, GOOD), "rows.csv: at byte 0: too short"),
    ((PLAIN, FOOTER, GOOD, "--key-bits", "x"), "'128', '192', '256'"),
]
PART = EVENTS + "/part-0.parquet"
INSPECT = [
    ((), "Missing argument"),
    (("",), "a path is empty"),
    ((BAD + "/nope",), "{0}/bad/nope: no such file"),
    ((BAD,), "{0}/bad is not an index store"),
    ((BAD + "/empty",), "{0}/bad/empty: no such file or directory, or an empty one"),
    ((BAD + "/zero/a.parquet",), "the file is empty: 0 bytes"),
    ((BAD + "/cut/a.parquet",), "cut/a.parquet.*`skipstone salvage FILE` saves its rows"),
    ((BAD + "/text.parquet",), "text.parquet: unknown format"),
    ((BAD + "/rows.csv",), "unknown format .*inspect shows"),
    ((EVENTS,), "`skipstone describe` shows its index"),
    ((PART, "--column", "idd"), "did you mean 'id'"),
    ((PART, "--rows", "-1"), "-1 is not in the range"),
    ((PART, "--where", "id = 5"), "--where is for file indexes; {0}/lake/events/part-0.parquet"),
    ((PART, "--keys", BAD + "/none.json"), "{0}/bad/none.json"),
    ((PART, "--keys", BAD + "/rows.csv"), "rows.csv: key file: not a JSON document"),
    ((PART, "--type", "bigint"), "not of the form COLUMN=TYPE"),
    ((PART, "--index-key", "l=abc"), KEY),
    ((PART, "--nosuch"), "No such option '--nosuch'"),
    ((PART, "extra"), "`skipstone inspect --help`"),
    (("foo://x/y",), "foo://x is read through Hadoop|cannot open foo://x: "),
    ((BAD + "/cut/a.parquet", "--verify"), "no Parquet magic at the end"),
]
CUT = BAD + "/cut/a.parquet"
SALVAGE = [
    ((), "Missing argument 'FILE|TABLE'"),
    (("",), "a path is empty"),
    ((BAD + "/nope",), "{0}/bad/nope: No such file"),
    ((BAD + "/rows.csv",), "rows.csv: at byte 0: no Parquet file: expected PAR1"),
    ((BAD + "/zero/a.parquet",), "zero/a.parquet: too short for a Parquet file"),
    ((BAD + "/text.parquet",), "expected PAR1"),
    ((BAD + "/text.parquet", "--schema", PART), "text.parquet: at byte 0: no Parquet file"),
    ((CUT, "-o", "/nope/x.parquet"), "/nope/x.parquet: No such file"),
    ((CUT, "-o", BAD), "{0}/bad exists already .* another --output"),
    ((CUT, "-o", PART), "part-0.parquet exists already"),
    ((CUT, "-o", CUT), "cut/a.parquet exists already"),
    ((CUT, "--schema", BAD + "/none"), "{0}/bad/none: No such file"),
    ((CUT, "--schema", BAD + "/rows.csv"), "rows.csv: no schema: expected a Parquet file"),
    ((CUT, "--keys", BAD + "/none.json"), "{0}/bad/none.json"),
    ((CUT, "--keys", BAD + "/rows.csv"), "not a JSON document"),
    ((CUT, FOOTER, "file:" + BAD + "/none.key"), "{0}/bad/none.key: No such"),
    ((CUT, FOOTER, "abc"), KEY),
    ((CUT, "--skip-bad"), "--skip-bad-pages"),
    ((CUT, "--columns", "id"), "No such option '--columns'"),
    (("s3://x/y.parquet",), "only local files"),
    ((CUT, "extra"), "`skipstone salvage --help`"),
]
#: told before Spark starts: there is no such master
TO = ("--to", "{0}/bad/clustered", "--master", "spark://nowhere:1")
CLUSTER = [
    ((PLAIN, "--by", "idd", *TO), "no column 'idd' .* did you mean 'id'"),
    ((PLAIN, "--by", "", *TO), "there is no column to cluster by"),
    ((PLAIN, "--by", "id,id", *TO), "a column occurs twice"),
    ((PLAIN, "--by", "id", "--bloom", "idd:0.01", *TO), "no column 'idd' for a Bloom filter"),
    ((PLAIN, "--by", "id", "--to", PLAIN + "/x", *TO[2:]), "lie in each other"),
    ((PLAIN, "--by", "id", "--to", EVENTS, *TO[2:]), "{0}/lake/events exists"),
    ((BAD + "/nope", "--by", "id", *TO), NO_FILE),
    ((BAD + "/empty", "--by", "id", *TO), "check that the path has data files|has no files"),
    ((PLAIN, "--by", "id", "--file-size", "small", *TO), "'small' is not a size"),
]
OTHERS = [
    (
        "build",
        ("--table", "db.t", "-c", "id:minmax", "--master", "sc://127.0.0.1:1"),
        "no server of Spark Connect answers at 127.0.0.1:1",
    ),
    (
        "cluster",
        (PLAIN, "--by", "id", "--to", "{0}/to", "--master", "sc://127.0.0.1:1"),
        "only build and refresh take",
    ),
    ("count", (EVENTS, "id = 'x'"), "a number is 42"),
    ("count", (EVENTS, "id = 1", "id = 2"), "quote a predicate"),
    ("compact", (EVENTS + "/*.parquet",), "name the directory: {0}/lake/events"),
    ("compact", (EVENTS, "--at-version", "1"), "No such option '--at-version'"),
    ("export", (EVENTS,), "name one format"),
    ("export", (EVENTS, "--xskipper", "--paimon"), "name one format"),
    ("export", (EVENTS, "--paimon"), "name the directory DEST"),
    ("export", (PLAIN, "--xskipper"), "no index of {0}/lake/plain can be published"),
    ("usage", (EVENTS,), "Missing option '--log'"),
    ("usage", (EVENTS, "--log", BAD + "/none"), "{0}/bad/none"),
    ("write-metadata", (BAD + "/cut",), "cut/a.parquet"),
    ("write-metadata", (BAD + "/empty",), "{0}/bad/empty has no data files"),
    ("write-metadata", (EVENTS + "/part-0.parquet",), "name the directory of a table"),
    ("migrate", (BAD + "/nope",), NO_FILE),
    ("decrypt", (PLAIN + "/part-0.parquet",), "is not encrypted"),
    ("decrypt", (PLAIN, FOOTER, "file:" + BAD + "/none.key"), "{0}/bad/none.key: No such"),
    ("rekey", (PLAIN,), "Missing option '--kms'"),
    ("rekey", (PLAIN, "--kms", "nope:X"), "no KMS client 'nope:X'"),
    ("ingest", (BAD + "/db", BAD + "/nope.parquet", "--timestamp", "ts"), "nope.parquet"),
    ("ingest", (BAD + "/db", PART), "a new live table .* needs a timestamp .* --timestamp ts"),
    ("ingest", (BAD + "/db", PART, "--timestamp", "tss"), "columns are id, na"),
    ("ingest", (BAD + "/db", PART, "--timestamp", "name"), "'name' is of type string"),
    ("ingest", (PLAIN, PLAIN + "/part-0.parquet", "--timestamp", "ts"), "is not empty"),
    ("grep", (EVENTS, "u-5", "--column", "nmae"), "there is no column nmae .* mean 'name'"),
    ("grep", ("u-5", EVENTS), "TABLE comes first: skipstone grep {0}/lake/events u-5"),
    ("demo", (EVENTS,), "is not empty: it has part-0.parquet, which is not of the demo"),
    ("demo", ("/proc/x",), "/proc/x: No such file"),
    ("demo", ("",), "'' is not a local directory"),
    ("demo", ("s3://bucket/x",), "'s3://bucket/x' is not a local directory"),
    ("count", (EVENTS, "id = 5 || x > 1"), "joins texts in Spark SQL: write OR"),
    ("grep", (EVENTS, "u-5", "--where", "idd = 1"), "no column idd at position 0 of 'idd = 1'"),
    ("grep", (EVENTS, "u-5", "--where", "id ="), "not complete at position 3 of 'id ='"),
    ("report", (BAD + "/empty",), "{0}/bad/empty has no data files"),
    ("report", (EVENTS, "-o"), "requires an argument.* run `skipstone report --help`"),
    ("build", (BAD + "/people.csv", "-c", "a:minmax"), "another format: --format csv, json"),
    (
        "build",
        (BAD + "/rows.csv", "--format", "csv", "-c", "a:minmax", "--no-spark"),
        "Spark finds the columns of such files.*without --no-spark.*--schema",
    ),
    ("ingest", (BAD + "/db", BAD + "/text.parquet", "--timestamp", "ts"), "no Parquet magic"),
    ("ingest", (BAD + "/db", BAD + "/enc.parquet", "--timestamp", "ts"), "`skipstone decrypt FILE"),
    ("encrypt", (BAD + "/enc.parquet", FOOTER, GOOD), "encrypted already.*as --keys FILE"),
    ("rekey", (BAD + "/enc.parquet", "--kms", KMS), "no KMS has wrapped its keys"),
    (
        "rekey",
        (BAD + "/enc.parquet", "--kms", "builtins:dict"),
        "makes no KMS client, .* type dict",
    ),
    ("check", (PLAIN, "--keys", BAD + "/bytes.bin"), "bytes.bin: key file: not a JSON document"),
    ("inspect", (PART, "--keys", BAD + "/bytes.bin"), "bytes.bin: key file: not a JSON document"),
    ("inspect", (PART, "--keys", "/dev/zero"), "/dev/zero: key file: it has more than 16.0 MB"),
    ("check", (PLAIN, "--keys", "/dev/zero"), "/dev/zero: key file: it has more than 16.0 MB"),
    ("rekey", (PART, "--kms", "json:loads"), "'json:loads' cannot be made: TypeError.*arguments"),
    ("rekey", (PART, "--kms", ":"), "no KMS client ':': ValueError"),
    ("decrypt", (PART, FOOTER, GOOD), "in the clear already"),
    ("buidl", (EVENTS,), "did you mean 'build'"),
    ("help", (), "`skipstone VERB --help` shows the options"),
    ("completion", ("bash",), "_SKIPSTONE_COMPLETE=bash_source skipstone"),
]
OWN = {
    "query": QUERY,
    "explain": EXPLAIN,
    "refresh": REFRESH,
    "describe": DESCRIBE,
    "check": CHECK,
    "advise": ADVISE,
    "drop": DROP,
    "vacuum": VACUUM,
    "report": REPORT,
    "retrofit": RETROFIT,
    "encrypt": ENCRYPT,
    "inspect": INSPECT,
    "salvage": SALVAGE,
}
MISTAKES = [
    *alike(),
    *(("build", (*arguments, "--no-spark"), said) for arguments, said in BUILD),
    *((verb, arguments, said) for verb, own in OWN.items() for arguments, said in own),
    *(("cluster", arguments, said) for arguments, said in CLUSTER),
    *OTHERS,
]


def test_the_main_verbs_have_twenty_mistakes_each() -> None:
    of = Counter(verb for verb, _, _ in MISTAKES)
    assert [verb for verb in ("build", *OWN) if of[verb] < 20] == []


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


def test_a_misprint_encrypts_nothing_and_drops_no_index(run: Run, home: Path) -> None:
    key = f"file:{home}/bad/good.key"
    table = home / "lake/events"
    before = {each.name: each.read_bytes() for each in table.iterdir()}
    done = run("encrypt", table, "--footer-key", key, "--column-key", f"idd={key}")
    assert done.exit_code == 1
    assert {each.name: each.read_bytes() for each in table.iterdir()} == before
    assert {info.name.partition("(")[0] for info in Table(table).describe().indexes} == {
        "id:minmax",
        "name:bloomfilter",
    }


def test_a_limit_beyond_all_rows_is_none(run: Run, home: Path) -> None:
    done = run("query", home / "lake/plain", "--columns", "id", "--limit", 10**30)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "(200 rows)")


def test_a_log_without_scans_is_named(run: Run, home: Path) -> None:
    done = run("usage", home / "lake/events", "--log", home / "bad/rows.csv")
    assert "no line of the log is a scan of Skipstone" in done.stdout


def test_a_report_replaces_a_page_and_nothing_else(run: Run, home: Path) -> None:
    page, data = home / "bad/report.html", home / "lake/plain/part-0.parquet"
    before = data.read_bytes()
    assert run("report", home / "lake/events", "-o", data).exit_code == 1
    assert data.read_bytes() == before
    for where in ("id = 5", "id = 150"):
        assert run("report", home / "lake/events", where, "-o", page).exit_code == 0
    assert "id = 150" in page.read_text("utf-8")
