"""Tables exchanged with an embedded QuestDB: its own read by us, ours by its ``read_parquet``.

Version 9.3.4 is the newest that resolved through Maven. It makes no ``_pm`` files and does not read
them: those of ``migrate`` must not disturb it.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import skipstone
from skipstone import ParquetFile, Table
from skipstone.rewrite import retrofit
from tests.interop.java_systems import JavaProgram, jar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.interop

ROW_GROUP = 500
_OPENS = ("java.base/java.lang", "java.base/java.nio", "java.base/jdk.internal.misc")
_EPOCH = datetime(1970, 1, 1)

#: columns of every type that a Parquet partition has, each null in some rows, as functions of n
COLUMNS = {
    "flag": ("BOOLEAN", "n % 3 = 0"),
    "b": ("BYTE", "(n % 100)::byte"),
    "sh": ("SHORT", "(n % 30000 - 15000)::short"),
    "ch": ("CHAR", "CASE WHEN n % 2 = 0 THEN 'x'::char ELSE 'é'::char END"),
    "i": ("INT", "CASE WHEN n % 7 = 0 THEN NULL ELSE (n * 31 % 5000 - 900)::int END"),
    "l": ("LONG", "CASE WHEN n % 5 = 0 THEN NULL ELSE n * 1000003 END"),
    "day": ("DATE", "CASE WHEN n % 11 = 0 THEN NULL ELSE (n * 86400000)::date END"),
    "at": ("TIMESTAMP", "CASE WHEN n % 6 = 0 THEN NULL ELSE (n * 1000001)::timestamp END"),
    "f": ("FLOAT", "CASE WHEN n % 9 = 0 THEN NULL ELSE (n / 4.0)::float END"),
    "d": ("DOUBLE", "CASE WHEN n % 8 = 0 THEN NULL WHEN n % 8 = 1 THEN -0.0 ELSE n / 3.0 END"),
    "st": ("STRING", "CASE WHEN n % 4 = 0 THEN NULL ELSE 'text ' || n END"),
    "sy": ("SYMBOL", "CASE WHEN n % 10 = 0 THEN NULL ELSE concat('s', n % 13) END"),
    "v": ("VARCHAR", "CASE WHEN n % 3 = 1 THEN NULL ELSE ('Ångström ' || (n % 97))::varchar END"),
    "u": ("UUID", "CASE WHEN n % 7 = 3 THEN NULL ELSE rnd_uuid4() END"),
    "ip": ("IPV4", "rnd_ipv4('10.0.0.0/8', 4)"),
    "l256": ("LONG256", "rnd_long256()"),
    "dec": ("DECIMAL(12,3)", "CASE WHEN n % 5 = 2 THEN NULL ELSE (n - 700)::decimal(12,3) END"),
}
#: predicates with one meaning in both; with the columns that partitions of the table have at first
PREDICATES = (
    "i = 100",
    "i < -880",
    "i BETWEEN 4000 AND 4050",
    "i IS NULL",
    "l > 2500000000",
    "l IN (1000003, 2000006, 7)",
    "f >= 700.0",
    "d < 5.0",
    "sy = 's7'",
    "sy IN ('s1', 'nowhere')",
    "st = 'text 333'",
    "st IS NULL",
    "v LIKE 'Ångström 9%'",
    "sh > 14990",
    "b = 42",
    "sy = 's7' AND i > 1000",
    "l < 5000000 OR i = -900",
)


class QuestDb:
    """One database; each ``run`` is a server that starts, answers and stops."""

    def __init__(self, program: JavaProgram, home: Path) -> None:
        self.program, self.home = program, home
        self.db, self.files = home / "db", home / "files"
        self.db.mkdir()
        self.files.mkdir()

    def run(self, *statements: str) -> list[list[dict[str, Any]]]:
        """The rows of each SELECT among these statements; every one of them must succeed."""
        answers = self.home / "answers.json"
        given = (self.db, self.files, str(ROW_GROUP))
        self.program.run((" ".join(each.split()) for each in statements), answers, *given)
        found = []
        lines = answers.read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(statements)
        for statement, line in zip(statements, lines, strict=True):
            answer = json.loads(line)
            assert "error" not in answer, f"{statement}: {answer['error']}"
            if "columns" in answer:
                found.append(
                    [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
                )
        return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> JavaProgram:
    flags = ["--add-exports", "java.base/jdk.internal.math=ALL-UNNAMED"]
    for package in _OPENS:
        flags += ["--add-opens", f"{package}=ALL-UNNAMED"]
    return JavaProgram("QuestDb", [jar("questdb")], tmp_path_factory.mktemp("classes"), flags)


@pytest.fixture
def questdb(program: JavaProgram, tmp_path: Path) -> QuestDb:
    return QuestDb(program, tmp_path)


def inserted(first: int, count: int, *, start: str = "2024-01-01", extra: str = "") -> str:
    """An INSERT of rows ``first`` …, a minute apart from ``start``."""
    names = ", ".join(("ts", "n", *COLUMNS, *(["more"] if extra else [])))
    values = ", ".join(value for _, value in COLUMNS.values())
    more = f", {extra}" if extra else ""
    return f"""INSERT INTO t ({names}) SELECT dateadd('m', (n - {first})::int, '{start}'), n,
        {values}{more} FROM (SELECT x + {first} - 1 AS n FROM long_sequence({count}))"""


def plain(value: Any) -> Any:
    """A value of ours as QuestDB prints it; NaN is its null."""
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value)
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return str(value)
    return value


def as_questdb(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table of QuestDB as its own SELECT gives them."""
    found = [{name: plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    for row in found:
        row["day"] = None if row["day"] is None else row["day"] // 1_000
        row["ch"] = chr(row["ch"])
        row["u"] = None if row["u"] is None else str(row["u"])
        row["ip"] = None if not row["ip"] else str(IPv4Address(row["ip"] & 0xFFFF_FFFF))
        if row["l256"] is not None:
            row["l256"] = hex(int.from_bytes(row["l256"], "little"))
    return found


def different(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> str:
    """The first differences of two results, as text."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, and {len(theirs)} of QuestDB"
    found = [
        f"n={b['n']} {name}: {a.get(name)!r}, and {b[name]!r} of QuestDB"
        for a, b in zip(ours, theirs, strict=True)
        for name in b
        if numbers(a.get(name)) != numbers(b[name])
    ]
    return "\n".join(found[:20])


def numbers(value: Any) -> Any:
    """Text of a number as the number."""
    if not isinstance(value, str):
        return value
    try:
        return int(value, 16) if value.startswith("0x") else float(value)
    except ValueError:
        return value


def asked(until: str) -> list[str]:
    """All rows before a day, in order, and how many of them match each predicate."""
    of = f"FROM t WHERE ts < '{until}'"
    counts = [f"SELECT count() AS c {of} AND ({each})" for each in PREDICATES]
    return [f"SELECT * {of} ORDER BY ts, n", *counts]


def test_a_table_that_questdb_converts_is_read_row_by_row(questdb: QuestDb) -> None:
    """Converted; with ``_pm`` files; after late rows; and with more partitions.

    Its last partition is never Parquet: every answer of ours is of the others, and QuestDB is asked
    for the same days. A column is added before all conversions: 9.3.4 itself neither reads nor
    changes a Parquet partition that is older than a column.
    """
    declared = ", ".join(f"{name} {type}" for name, (type, _) in COLUMNS.items())
    three, five = "2024-01-04", "2024-01-06"
    first = questdb.run(
        f"CREATE TABLE t (ts TIMESTAMP, n LONG, {declared}) TIMESTAMP(ts) PARTITION BY DAY"
        " BYPASS WAL",
        inserted(0, 4_000),
        "ALTER TABLE t ADD COLUMN more INT",
        inserted(4_000, 1_000, start="2024-01-03T18:40", extra="n::int"),
        f"ALTER TABLE t CONVERT PARTITION TO PARQUET WHERE ts < '{three}'",
        *asked(three),
    )
    root = questdb.db / "t"
    check(root, three, first, 3 * 1_440)
    Table(str(root), partial=True).migrate()
    assert len(list(root.glob("*/_pm"))) == 3
    check(root, three, first, 3 * 1_440)
    assert questdb.run(*asked(three)) == first

    # Late rows go into row groups of a Parquet partition, whose _pm is then of another version.
    late = questdb.run(inserted(6_000, 400, start="2024-01-02T05:00:30"), *asked(three))
    check(root, three, late, 3 * 1_440 + 400)
    Table(str(root), partial=True).migrate()
    check(root, three, late, 3 * 1_440 + 400)
    assert questdb.run(*asked(three)) == late

    more = questdb.run(
        inserted(7_000, 2_000, start="2024-01-05", extra="n::int"),
        f"ALTER TABLE t CONVERT PARTITION TO PARQUET WHERE ts < '{five}'",
        *asked(five),
    )
    assert {row["more"] for row in more[0]} == {None, *range(4_000, 5_000), *range(7_000, 8_440)}
    check(root, five, more, 5_000 + 400 + 1_440)
    Table(str(root), partial=True).migrate()
    check(root, five, more, 5_000 + 400 + 1_440)
    assert questdb.run(*asked(five)) == more


def check(root: Path, until: str, answers: list[list[dict[str, Any]]], count: int) -> None:
    """The table's Parquet partitions have QuestDB's rows, and each predicate has its count."""
    table = Table(str(root), partial=True)
    rows, *counted = answers
    assert len(rows) == count
    ours = table.query(f"ts < '{until}'", order_by=["ts", "n"])
    assert not (text := different(as_questdb(ours), rows)), text
    for where, [answer] in zip(PREDICATES, counted, strict=True):
        where = f"ts < '{until}' AND ({where})"
        assert table.count(where) == answer["c"], where
        assert table.query(where).num_rows == answer["c"], where
    print(f"{count} rows and {len(PREDICATES)} predicates equal before {until}")


def foreign(rows: int) -> pa.Table:
    """Types that QuestDB has, each with nulls, and the timestamp in order."""
    n = range(rows)
    return pa.table(
        {
            "ts": pa.array([i * 1_000_000 for i in n], pa.timestamp("us", "UTC")),
            "n": pa.array(n, pa.int64()),
            "i": pa.array([None if i % 7 == 0 else i * 31 % 5_000 for i in n], pa.int32()),
            "sh": pa.array([i % 30_000 for i in n], pa.int16()),
            "f": pa.array([None if i % 9 == 0 else i / 4 for i in n], pa.float32()),
            "d": pa.array([None if i % 8 == 0 else -0.0 if i % 8 == 1 else i / 3 for i in n]),
            "s": pa.array([None if i % 4 == 0 else f"é{i % 97}" for i in n]),
            "u": pa.array([f"{i:040}" for i in n]),
            "flag": pa.array([i % 3 == 0 for i in n]),
            "day": pa.array([date(2020, 1, 1) + timedelta(days=i % 700) for i in n], pa.date32()),
        }
    )


ENCODINGS: tuple[dict[str, Any], ...] = (
    {},
    {"compression": "zstd", "arrow_options": {"data_page_version": "2.0"}},
    {"compression": "none", "arrow_options": {"use_dictionary": False}},
    {
        "compression": "gzip",
        "arrow_options": {
            "use_dictionary": False,
            "column_encoding": {"n": "DELTA_BINARY_PACKED", "s": "DELTA_LENGTH_BYTE_ARRAY"},
        },
    },
    {
        "compression": "lz4",
        "arrow_options": {"use_dictionary": False, "column_encoding": {"u": "DELTA_BYTE_ARRAY"}},
    },
    {"bloom": {"n": 0.01, "s": 0.01}, "page_rows": 70, "sorting": ["ts"]},
)


def test_read_parquet_reads_what_is_written_retrofitted_and_ingested(questdb: QuestDb) -> None:
    """Every row of each, and the rows of predicates that its row group pruning can use."""
    table = foreign(3_000)
    for number, options in enumerate(ENCODINGS):
        skipstone.write_table(
            table, questdb.files / f"w{number}.parquet", row_group_rows=700, **options
        )
    bare = questdb.files / "bare.parquet"
    pa.parquet.write_table(table, bare, row_group_size=700, write_statistics=False)
    retrofit(bare, bloom={"n": 0.01, "s": 0.01}, output=questdb.files / "r0.parquet")
    retrofit(bare, page_rows=50, output=questdb.files / "r1.parquet")
    for part in (table.slice(1_000), table.slice(0, 1_000)):  # late rows rewrite row groups
        skipstone.ingest(
            part,
            str(questdb.files / "live"),
            timestamp="ts",
            partition_by="day",
            row_group_rows=300,
            bloom_filters=["n"],
        )
    [live] = (questdb.files / "live").glob("*/data.parquet")
    files = sorted([*questdb.files.glob("[wr]*.parquet"), live])
    wheres = ("n = 2345", "i > 4900", "s = 'é13'", "ts < '1970-01-01T00:01:00'", "d < 10.0")
    statements = []
    for file in files:
        source = f"read_parquet('{file.relative_to(questdb.files)}')"
        statements.append(f"SELECT * FROM {source} ORDER BY n")
        statements += [f"SELECT count() AS c FROM {source} WHERE {where}" for where in wheres]
    answers = iter(questdb.run(*statements))
    wanted = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    for row in wanted:
        row["day"] = (row["day"] - date(1970, 1, 1)).days * 86_400_000
    for file in files:
        assert not (text := different(next(answers), wanted)), f"{file}: {text}"
        for where in wheres:
            [answer] = next(answers)
            assert answer["c"] == ParquetFile(file).query(where).num_rows > 0, (file, where)
    assert len(files) == len(ENCODINGS) + 3
    assert pc.sum(table["n"]).as_py() == sum(row["n"] for row in wanted)
