"""Spark's filters become the predicate tree exactly, or opaque with a reason.

Every expression goes the whole way: Spark parses and optimizes it and hands it to ``listFiles``.
The table has one file and one column of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Expr,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
)
from skipstone.predicate.types import TIMESTAMP, TIMESTAMP_NTZ
from skipstone.spark.skip import explain, skip
from tests.spark.fake import finder
from tests.spark.since import since

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BERLIN = "Europe/Berlin"
_COLLATIONS = since(4, 0, "collations")
INNER = pa.struct([("c", pa.int32()), ("D.e", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("a", pa.struct([("b", INNER)])),
        ("file_name", pa.string()),
    ]
)

Ask = Callable[[str], Expr]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("catalyst")
    rows: list[Any] = [{"id": 1, "s": "x"}]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), root / "one.parquet")
    return root


@pytest.fixture
def ask(spark: SparkSession, table: Path) -> Iterator[Ask]:
    """The tree that a condition reaches the index as, without Spark's own ``IS NOT NULL``."""
    find = finder(table)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", BERLIN)

    def asked(condition: str) -> Expr:
        df = spark.read.parquet(str(table))
        explain(skip(df, find).where(condition))
        tree = find.pruners[str(table)].asked[-1]
        if isinstance(tree, And):
            guards = {child for child in tree.children if is_guard(child)}
            rest = [child for child in tree.children if child not in guards]
            tree = rest[0] if len(rest) == 1 else And(tuple(rest)) if rest else tree
        return tree  # type: ignore[no-any-return]

    yield asked
    spark.conf.set("spark.sql.session.timeZone", str(before))


def is_guard(tree: Any) -> bool:
    return isinstance(tree, Not) and isinstance(tree.child, NullTest)


def column(*path: str) -> ColumnRef:
    return ColumnRef(path)


def listed(tree: Expr) -> list[Any]:
    assert isinstance(tree, Membership)
    literals = [value for value in tree.values if isinstance(value, Literal)]
    assert len(literals) == len(tree.values)
    return [literal.value for literal in literals]


def values_of(tree: Expr) -> list[Any]:
    assert isinstance(tree, Membership), tree
    return sorted(listed(tree), key=lambda v: (v is not None, v))


@pytest.mark.parametrize(
    "condition, tree",
    [
        ("id = 5", Comparison("=", column("id"), Literal(5, pa.int64()))),
        ("id <=> 5", Comparison("<=>", column("id"), Literal(5, pa.int64()))),
        ("id <> 5", Not(Comparison("=", column("id"), Literal(5, pa.int64())))),
        ("5 >= id", Comparison(">=", Literal(5, pa.int64()), column("id"))),
        ("small > 7", Comparison(">", column("small"), Literal(7, pa.int16()))),
        ("id IS NULL", NullTest(column("id"))),
        ("id IS NOT NULL", Not(NullTest(column("id")))),
        ("flag", Truth(column("flag"))),
        ("NOT flag", Not(Truth(column("flag")))),
        (
            "s = 'it\\'s; \\n é 😀'",
            Comparison("=", column("s"), Literal("it's; \n é 😀", pa.string())),
        ),
        ("s = 'a\ufffdb'", Comparison("=", column("s"), Literal("a\ufffdb", pa.string()))),
        ("bin = X'00FF'", Comparison("=", column("bin"), Literal(b"\x00\xff", pa.binary()))),
        ("f > 1.1f", Comparison(">", column("f"), Literal(1.100000023841858, pa.float32()))),
        ("d <= -0.1d", Comparison("<=", column("d"), Literal(-0.1, pa.float64()))),
        (
            "d = double('-Infinity')",
            Comparison("=", column("d"), Literal(float("-inf"), pa.float64())),
        ),
        (
            "dec >= 1234567890123456789012345678.0123456789",
            Comparison(
                ">=",
                column("dec"),
                Literal(12345678901234567890123456780123456789, pa.decimal128(38, 10)),
            ),
        ),
        ("dec < -0.0000000001", Comparison("<", column("dec"), Literal(-1, pa.decimal128(38, 10)))),
        ("day = DATE'1969-12-31'", Comparison("=", column("day"), Literal(-1, pa.date32()))),
        ("day < DATE'12345-01-02'", Comparison("<", column("day"), Literal(3789392, pa.date32()))),
        ("day > DATE'-0044-03-15'", Comparison(">", column("day"), Literal(-735525, pa.date32()))),
        (
            "ntz = TIMESTAMP_NTZ'2024-10-27 02:30:00.000001'",
            Comparison("=", column("ntz"), Literal(1729996200000001, TIMESTAMP_NTZ)),
        ),
        ("a.b.c = 3", Comparison("=", column("a", "b", "c"), Literal(3, pa.int32()))),
        ("a.B.`d.E` = 'x'", Comparison("=", column("a", "b", "D.e"), Literal("x", pa.string()))),
        ("a.b.c IS NULL", NullTest(column("a", "b", "c"))),
        ("s LIKE 'ab%'", PatternMatch(column("s"), "ab", prefix_only=True)),
        ("startswith(s, '50%')", PatternMatch(column("s"), "50%", prefix_only=True)),
        ("s LIKE 'a%b_'", PatternMatch(column("s"), "a%b_")),
        ("s LIKE 'a/%b%c' ESCAPE '/'", PatternMatch(column("s"), "a/%b%c", escape="/")),
        ("s LIKE '%a\\\\_'", PatternMatch(column("s"), "%a\\_")),
        ("s LIKE '%50\\\\%'", PatternMatch(column("s"), "%50\\%")),
        ("contains(s, '_x%')", PatternMatch(column("s"), "%\\_x\\%%")),
        ("id = 1 OR s = 'x' OR flag", None),
        ("file_name = 'x'", Comparison("=", column("file_name"), Literal("x", pa.string()))),
        (
            "CAST(day AS TIMESTAMP) < ts",
            Comparison("<", Cast(column("day"), TIMESTAMP), column("ts")),
        ),
        (
            "CAST(small AS DOUBLE) > d",
            Comparison(">", Cast(column("small"), pa.float64()), column("d")),
        ),
    ],
)
def test_exact_trees(ask: Ask, condition: str, tree: Expr | None) -> None:
    if tree is None:
        tree = Or(
            (
                Comparison("=", column("id"), Literal(1, pa.int64())),
                Comparison("=", column("s"), Literal("x", pa.string())),
                Truth(column("flag")),
            )
        )
    assert ask(condition) == tree


def test_nan(ask: Ask) -> None:
    for condition, op in (("d = double('NaN')", "="), ("isnan(f)", "<=>")):
        tree = ask(condition)
        assert isinstance(tree, Comparison)
        assert tree.op == op
        assert isinstance(tree.right, Literal)
        assert tree.right.value != tree.right.value


def test_both_instants_of_the_hour_that_comes_twice(ask: Ask) -> None:
    """02:30 in Berlin on 2024-10-27 is 00:30Z and 01:30Z; both print alike."""
    first, second = 1729989000000000, 1729992600000000
    for utc, micros in (("00:30:00Z", first), ("01:30:00Z", second)):
        tree = ask(f"ts = TIMESTAMP'2024-10-27 {utc}'")
        assert tree == Comparison("=", column("ts"), Literal(micros, TIMESTAMP))
    both = ["TIMESTAMP'2024-10-27 00:30:00Z'", "TIMESTAMP'2024-10-27 01:30:00Z'"]
    for more in (0, 5, 8, 9, 40):
        hours = [f"TIMESTAMP'2020-01-{1 + i // 24:02d} {i % 24:02d}:00:00Z'" for i in range(more)]
        found = values_of(ask(f"ts IN ({', '.join(both + hours)})"))
        assert found == [1577836800000000 + i * 3_600_000_000 for i in range(more)] + [
            first,
            second,
        ]


def test_a_long_list_of_instants_that_stays_a_list(spark: SparkSession, ask: Ask) -> None:
    spark.conf.set("spark.sql.optimizer.inSetConversionThreshold", "10000")
    try:
        parts = [f"TIMESTAMP'2024-10-27 00:30:00.{i:06d}Z'" for i in range(100)]
        found = values_of(ask(f"ts IN ({', '.join(parts)}, NULL)"))
    finally:
        spark.conf.unset("spark.sql.optimizer.inSetConversionThreshold")
    assert found == [None, *(1729989000000000 + i for i in range(100))]


SEPARATORS = [", ", "\n", "'", '"', "; ", "(", ")", "null", "\x1e", "%", "X'00'", ""]


@pytest.mark.parametrize("count", [10, 11, 5_000])
def test_lists_of_strings_with_separators(ask: Ask, count: int) -> None:
    wanted = [
        f"{SEPARATORS[i % len(SEPARATORS)]}{i // len(SEPARATORS) or ''}" for i in range(count)
    ]
    quoted = ("'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in wanted)
    tree = ask(f"s IN ({', '.join(quoted)})")
    assert values_of(tree) == sorted(wanted)
    assert isinstance(tree, Membership)
    assert tree.operand == column("s")
    assert {v.type for v in tree.values if isinstance(v, Literal)} == {pa.string()}


@pytest.mark.parametrize("count", [10, 11, 5_000])
@pytest.mark.parametrize(
    "name, literal, value",
    [
        ("id", lambda i: str(i), lambda i: i),
        ("small", lambda i: f"CAST({i} AS SMALLINT)", lambda i: i),
        ("bin", lambda i: f"X'00FF{i:04x}'", lambda i: b"\x00\xff" + i.to_bytes(2, "big")),
        ("dec", lambda i: f"{i}.5BD", lambda i: i * 10**10 + 5 * 10**9),
        ("day", lambda i: f"date_add(DATE'1970-01-01', {i})", lambda i: i),
        ("d", lambda i: f"{i}.25D", lambda i: i + 0.25),
        ("f", lambda i: f"{i}.25F", lambda i: i + 0.25),
    ],
)
def test_lists_of_other_types(
    ask: Ask, count: int, name: str, literal: Callable[[int], str], value: Callable[[int], Any]
) -> None:
    tree = ask(f"{name} IN ({', '.join(literal(i) for i in range(count))})")
    assert values_of(tree) == [value(i) for i in range(count)]


@pytest.mark.parametrize("count", [5, 12])
def test_null_in_a_list(ask: Ask, count: int) -> None:
    """NULL, the string "null", and both."""
    plain = [f"'v{i}'" for i in range(count)]
    for extra, wanted in (
        (["NULL"], {None}),
        (["'null'"], {"null"}),
        (["NULL", "'null'"], {None, "null"}),
    ):
        tree = ask(f"s IN ({', '.join(plain + extra)})")
        assert isinstance(tree, Membership)
        assert set(listed(tree)) == {f"v{i}" for i in range(count)} | wanted
    hexes = [f"X'{i:02x}'" for i in range(count)]
    tree = ask(f"bin IN ({', '.join(hexes)}, NULL)")
    assert isinstance(tree, Membership)
    assert set(listed(tree)) == {bytes([i]) for i in range(count)} | {None}


def test_the_empty_binary_and_infinities_in_lists(ask: Ask) -> None:
    hexes = [f"X'{i:02x}'" for i in range(12)]
    tree = ask(f"bin IN (X'', {', '.join(hexes)})")
    assert values_of(tree) == [b"", *(bytes([i]) for i in range(12))]
    special = ["double('NaN')", "double('Infinity')", "-0.0D", "1e300D", "4.9e-324D"]
    found = ask(f"d IN ({', '.join(special + [f'{i}.5D' for i in range(8)])})")
    assert isinstance(found, Membership)
    assert {repr(value) for value in listed(found)} >= {"nan", "inf", "1e+300", "5e-324"}


@pytest.mark.parametrize(
    "condition, words",
    [
        ("soundex(s) = 'A'", "SoundEx"),
        ("s = CAST(X'41FF' AS STRING)", "UTF-8"),
        ("levenshtein(s, 'x') = 2", "Levenshtein"),
        ("shiftleft(id, 1) = 2", "shiftleft"),
        ("a IS NULL", "struct"),
        ("_metadata.file_name LIKE '%x_y%'", "metadata"),
        pytest.param("s COLLATE UTF8_LCASE = 'X'", "collat", marks=_COLLATIONS),
        ("CASE WHEN id = 1 THEN flag ELSE soundex(s) = 'A' END", "SoundEx"),
    ],
)
def test_what_prunes_nothing_says_why(ask: Ask, condition: str, words: str) -> None:
    tree = ask(condition)
    assert isinstance(tree, Opaque), tree
    assert words.lower() in tree.reason.lower()
    assert tree.sql


def test_a_usable_part_beside_an_opaque_one(ask: Ask) -> None:
    tree = ask("id = 1 AND soundex(s) = 'A'")
    assert isinstance(tree, And)
    assert tree.children[0] == Comparison("=", column("id"), Literal(1, pa.int64()))
    assert isinstance(tree.children[1], Opaque)


def test_metadata_and_a_column_of_the_same_name(ask: Ask) -> None:
    """The table has a column ``file_name``; Spark's hidden column has a field of that name."""
    tree = ask("file_name = 'x' AND _metadata.file_name LIKE '%a_b%'")
    assert isinstance(tree, And)
    kinds = {type(child) for child in tree.children}
    assert kinds == {Comparison, Opaque}


def test_a_thousand_terms(ask: Ask) -> None:
    tree = ask(" OR ".join(f"(id = {i} AND small = {i})" for i in range(1_000)))
    assert isinstance(tree, Or)
    assert len(tree.children) == 1_000


@_COLLATIONS
def test_collated_columns_and_defaults_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Files hold other values than the reader gives: a default where the column is missing."""
    name = "catalyst_collated"
    spark.sql(
        f"CREATE TABLE {name} (k STRING COLLATE UTF8_LCASE,"
        " n STRUCT<q: STRING COLLATE UNICODE, r: INT>, c CHAR(5), v VARCHAR(5))"
        f" USING parquet LOCATION '{tmp_path / 't'}'"
    )
    try:
        spark.sql(f"INSERT INTO {name} VALUES ('ABC', named_struct('q', 'Z', 'r', 1), 'y', 'w')")
        spark.sql(f"ALTER TABLE {name} ADD COLUMN z INT DEFAULT 42")
        default = "named_struct('in', 7)"
        spark.sql(f"ALTER TABLE {name} ADD COLUMN st STRUCT<`in`: INT> DEFAULT {default}")
        find = finder(tmp_path / "t")
        for condition, words, rows in (
            ("k = 'abc'", "collat", 1),
            ("n.q = 'Z'", "collat", 1),
            ("k IN ('abc', 'x')", "collat", 1),
            ("z = 42", "default", 1),
            ("st.`in` = 7", "default", 1),
            ("c = 'y'", "StaticInvoke", 1),
        ):
            df = skip(spark.table(name), find).where(condition)
            assert df.count() == rows, condition
            trees = [t for p in find.pruners.values() for t in p.asked[-1:]]
            opaque = [c for t in trees for c in opaques(t)]
            assert any(words in o.reason for o in opaque), (condition, trees)
        assert skip(spark.table(name), find).where("v = 'nope' AND n.r = 1").count() == 0
        assert not any(list(opaques(t)) for p in find.pruners.values() for t in p.asked[-1:])
    finally:
        spark.sql(f"DROP TABLE {name}")


def opaques(tree: Any) -> Iterator[Opaque]:
    if isinstance(tree, Opaque):
        yield tree
    for child in getattr(tree, "children", ()):
        yield from opaques(child)
    if isinstance(tree, Not):
        yield from opaques(tree.child)


def test_decimals_beyond_the_context_of_decimal(ask: Ask) -> None:
    digits = "1234567890123456789012345678.9876543211"
    tree = ask(f"dec = {digits}BD")
    assert isinstance(tree, Comparison)
    assert isinstance(tree.right, Literal)
    assert tree.right.value == int(digits.replace(".", ""))
    assert Decimal(digits).as_tuple().exponent == -10
