"""SQL text to the tree as written: Spark's literals, names, operators, and where errors point."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from skipstone.errors import PredicateError
from skipstone.predicate.render import to_sql
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    And,
    Call,
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

TS, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")


def literal(text: str) -> Literal:
    found = parse_sql(f"c = {text}")
    assert isinstance(found, Comparison)
    assert isinstance(found.right, Literal), found
    return found.right


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


@pytest.mark.parametrize(
    "text, value, type",
    [
        ("5", 5, pa.int32()),
        ("007", 7, pa.int32()),
        ("-2147483648", -(2**31), pa.int32()),
        ("2147483648", 2**31, pa.int64()),
        ("-9223372036854775808", -(2**63), pa.int64()),
        ("9223372036854775808", 2**63, dec(19, 0)),
        ("- 5", -5, pa.int32()),
        ("+5", 5, pa.int32()),
        ("5L", 5, pa.int64()),
        ("5l", 5, pa.int64()),
        ("5S", 5, pa.int16()),
        ("-128Y", -128, pa.int8()),
        ("5.5", 55, dec(2, 1)),
        ("5.50", 550, dec(3, 2)),
        ("0.05", 5, dec(2, 2)),
        ("1.", 1, dec(1, 0)),
        (".5", 5, dec(1, 1)),
        ("-1.50BD", -150, dec(3, 2)),
        ("1e3BD", 1000, dec(4, 0)),
        ("1e-3BD", 1, dec(3, 3)),
        ("5BD", 5, dec(1, 0)),
        ("1e3", 1000.0, pa.float64()),
        ("1.5E-3", 0.0015, pa.float64()),
        ("1D", 1.0, pa.float64()),
        ("0.1F", 0.10000000149011612, pa.float32()),
        ("1e3F", 1000.0, pa.float32()),
        ("1e-300F", 0.0, pa.float32()),
        ("1e-999999999D", 0.0, pa.float64()),
        ("16777217F", 16777216.0, pa.float32()),
        ("16777219F", 16777220.0, pa.float32()),
        ("3.4028234663852886e38F", 3.4028234663852886e38, pa.float32()),
        ("1.401298464324817e-45F", 1.401298464324817e-45, pa.float32()),
        ("TRUE", True, pa.bool_()),
        ("false", False, pa.bool_()),
        ("NULL", None, None),
        ("X'00ff'", b"\0\xff", pa.binary()),
        ("x'F'", b"\x0f", pa.binary()),
        ("X''", b"", pa.binary()),
        ("DATE '2024-01-05'", 19_727, pa.date32()),
        ("date'2024-1-5'", 19_727, pa.date32()),
        ("DATE '2024'", 19_723, pa.date32()),
        ("DATE '1969-12-31'", -1, pa.date32()),
        ("DATE '+12024-01-05'", 3_672_152, pa.date32()),
        ("DATE '-0001-01-05'", -719_889, pa.date32()),
        ("TIMESTAMP_NTZ '2024-01-01 00:00:00.5'", 1_704_067_200_500_000, NTZ),
        ("TIMESTAMP '2024-10-27 02:30:00'", "2024-10-27 02:30:00", TS),
        ("TIMESTAMP_LTZ '2024-10-27 02:30:00'", "2024-10-27 02:30:00", TS),
    ],
)  # fmt: skip
def test_literal(text: str, value: Any, type: pa.DataType | None) -> None:
    found = literal(text)
    assert (found.value, found.type) == (value, type)
    assert isinstance(found.value, bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    "text, value",
    [
        (r"'plain'", "plain"),
        (r"''", ""),
        (r"'it\'s'", "it's"),
        (r"'it''s'", "it's"),
        (r'"it' + "'s" + r'"', "it's"),
        (r'"a""b"', 'a"b'),
        (r"""'a""b'""", 'a""b'),
        (r"'a' 'b'  'c'", "abc"),
        (r"'\0\n\t\b\r\Z\q'", "\0\n\t\b\r\x1aq"),
        (r"'\\'", "\\"),
        (r"'\%\_'", r"\%\_"),
        (r"'\u0041\U0001F600'", "A😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\ud83d'", "?"),
        (r"'\101\177\400'", "A\x7f400"),
        (r"'\200\377'", "200377"),
        (r"'\U00110000'", "??"),
        (r"'\ud83d\ufffd'", "?\ufffd"),
        (r"r'a\nb'", r"a\nb"),
        (r"""R"a'b\"""", r"a'b" + "\\"),
        ("'a\nb'", "a\nb"),
        ("'é😀'", "é😀"),
        ("'-- no comment /* either */'", "-- no comment /* either */"),
    ],
)
def test_string(text: str, value: str) -> None:
    assert literal(text) == Literal(value, pa.string())


FIVE = Literal(5, pa.int32())


def shape(tree: Any) -> Any:
    """The tree without positions."""
    if isinstance(tree, ColumnRef):
        return ColumnRef(tree.path)
    if isinstance(tree, tuple):
        return tuple(shape(item) for item in tree)
    if hasattr(tree, "__dataclass_fields__") and not isinstance(tree, Literal | Opaque):
        return type(tree)(*(shape(getattr(tree, name)) for name in tree.__dataclass_fields__))
    return tree


def column(*path: str) -> ColumnRef:
    return ColumnRef(path)


c = column("c")
CASES: list[tuple[str, Expr]] = [
    ("c", Truth(c)),
    ("NOT c", Not(Truth(c))),
    ("! c", Not(Truth(c))),
    ("NOT NOT c", Truth(c)),
    ("c = 5", Comparison("=", c, FIVE)),
    ("c == 5", Comparison("=", c, FIVE)),
    ("c != 5", Comparison("<>", c, FIVE)),
    ("c <> 5", Comparison("<>", c, FIVE)),
    ("c !> 5", Comparison("<=", c, FIVE)),
    ("c !< 5", Comparison(">=", c, FIVE)),
    ("c <=> 5", Comparison("<=>", c, FIVE)),
    ("5 < c", Comparison("<", FIVE, c)),
    ("(c) = (5)", Comparison("=", c, FIVE)),
    ("((c = 5))", Comparison("=", c, FIVE)),
    ("c IS DISTINCT FROM 5", Not(Comparison("<=>", c, FIVE))),
    ("c IS NOT DISTINCT FROM 5", Comparison("<=>", c, FIVE)),
    ("c IS NULL", NullTest(c)),
    ("c IS NOT NULL", Not(NullTest(c))),
    ("c IS UNKNOWN", NullTest(c)),
    ("c IS NOT TRUE", Not(Comparison("<=>", c, Literal(True, pa.bool_())))),
    ("c IS FALSE", Comparison("<=>", c, Literal(False, pa.bool_()))),
    ("c IN (5, NULL)", Membership(c, (FIVE, Literal(None)))),
    ("c NOT IN (5)", Not(Membership(c, (FIVE,)))),
    ("NOT c IN (5)", Not(Membership(c, (FIVE,)))),
    ("c IN (CAST('NaN' AS FLOAT))", Membership(c, (Literal(math.nan, pa.float32()),))),
    ("c IN (CAST('2024' AS TIMESTAMP))", Membership(c, (Literal("2024", TS),))),
    ("c BETWEEN 5 AND 5", And((Comparison(">=", c, FIVE), Comparison("<=", c, FIVE)))),
    ("c NOT BETWEEN 5 AND 5", Not(And((Comparison(">=", c, FIVE), Comparison("<=", c, FIVE))))),
    ("c LIKE 'a%'", PatternMatch(c, "a%")),
    ("c NOT LIKE 'a#%' ESCAPE '#'", Not(PatternMatch(c, "a#%", "#"))),
    ("c LIKE NULL", Truth(Literal(None))),
    ("startswith(c, 'x')", Truth(Call("startswith", (c, Literal("x", pa.string()))))),
    ("NULL", Truth(Literal(None))),
    ("CAST(c AS BIGINT) = 5", Comparison("=", Cast(c, pa.int64()), FIVE)),
    ("c::bigint = 5", Comparison("=", Cast(c, pa.int64()), FIVE)),
    ("bigint(c) = 5", Comparison("=", Cast(c, pa.int64()), FIVE)),
    ("CAST(c AS DECIMAL(10, 2)) = 5", Comparison("=", Cast(c, dec(10, 2)), FIVE)),
    ("CAST(c AS decimal) = 5", Comparison("=", Cast(c, dec(10, 0)), FIVE)),
    ("CAST(c AS ARRAY) = 5", Comparison("=", Cast(c, None), FIVE)),
    ("a.b.c = 5", Comparison("=", column("a", "b", "c"), FIVE)),
    ("`a.b`.`c``d` = 5", Comparison("=", column("a.b", "c`d"), FIVE)),
    ("`select` = 5", Comparison("=", column("select"), FIVE)),
    ("date = 5", Comparison("=", column("date"), FIVE)),
    ("1e3L = 5", Comparison("=", column("1e3L"), FIVE)),
    ("1day = 5", Comparison("=", column("1day"), FIVE)),
    ("é = 5", Comparison("=", column("é"), FIVE)),
    ("c = 5 -- so\n", Comparison("=", c, FIVE)),
    ("/* /* x */ */ c = 5", Comparison("=", c, FIVE)),
    ("c AND c OR c AND c", Or((And((Truth(c), Truth(c))), And((Truth(c), Truth(c)))))),
    ("c AND (c OR c)", And((Truth(c), Or((Truth(c), Truth(c)))))),
    ("NOT c AND c", And((Not(Truth(c)), Truth(c)))),
    ("NOT c = 5", Not(Comparison("=", c, FIVE))),
    ("c AND c = 5 AND c", And((Truth(c), Comparison("=", c, FIVE), Truth(c)))),
]  # fmt: skip


@pytest.mark.parametrize("text, tree", CASES, ids=[text for text, _ in CASES])
def test_tree(text: str, tree: Expr) -> None:
    assert repr(shape(parse_sql(text))) == repr(tree)


@pytest.mark.parametrize(
    "text",
    [
        "c LIKE ANY ('a', 'b')",
        "c LIKE concat('a', '%')",
        "c LIKE 'a' ESCAPE '😀'",
        "c IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "c.d[0].e = 5",
        "struct(c).d = 5",
        "exists(c, x -> x = 5 AND x = 6)",
        "c = DATE 'today'",
        "c = :name",
        "c > ALL (SELECT 1)",
        "(a, b) IN ((1, 2))",
        "d \u0131s NULL",
    ],
)
def test_what_is_no_expression_here_is_one_opaque_piece_with_its_own_text(text: str) -> None:
    found = parse_sql(text)
    assert isinstance(found, Opaque), found
    assert found.sql == text
    assert found.reason
    # Its neighbours are not swallowed.
    beside = parse_sql(f"d = 5 AND {text} OR NOT ({text}) AND d IS NULL")
    assert isinstance(beside, Or)
    assert [type(part) for part in beside.children] == [And, And]
    both = [part.children for part in beside.children if isinstance(part, And)]
    assert both[0][1] == found
    assert isinstance(both[1][0], Not)
    assert both[1][0].child == found


@pytest.mark.parametrize(
    "text, position",
    [
        ("", 0),
        ("c = 'abc", 4),
        ("c = `abc", 4),
        ("c /* no end", 2),
        ("c = 5 AND", 9),
        ("c = 5 AND OR d", 10),
        ("c = 5)", 5),
        ("()", 1),
        ("300Y = c", 0),
        ("c = 40000S", 4),
        ("c = 9223372036854775808L", 4),
        ("c = 1e99BD", 4),
        ("c = 1e300F", 4),
        ("c = 3.4028235000000001e38F", 4),
        ("c = 1e999999999F", 4),
        ("c = 1e999D", 4),
        ("c = 1e309", 4),
        ("c = X'0 1'", 0),
        ("c = 1e999999999BD", 4),
        ("c = " + "9" * 5_000, 4),
        ("c = 5 foo", 6),
        ("c d", 2),
        ("c = \u0663", 4),
        ("c = 1\u0663", 5),
        ("c = 1 --x\r AND c = 2 e", 21),
        ("c = 1 /*+ x */", 6),
        ("c = 3.4028235e38F", 4),
        ("c = 1.7976931348623159e308", 4),
        ("c = 1e-2147483648D", 4),
        ("c = DATE '2024' '-01-01'", 9),
        ("c = X'00' '01'", 10),
        ("NOT", 3),
    ],
)
def test_error_points_at_the_place(text: str, position: int) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_sql(text)
    assert (caught.value.text, caught.value.position) == (text, position)


@pytest.mark.parametrize(
    "text",
    ["c =", "(c = 5", "c IN (", "f(c,", "DROP TABLE c", "SELECT 1", "c = = 5", "c ORDER BY d"],
)
def test_no_condition_is_an_error_within_the_text(text: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_sql(text)
    assert caught.value.position is not None
    assert 0 <= caught.value.position <= len(text)


def test_deep_nesting_says_nothing_and_does_not_fail() -> None:
    text = "(" * 2_000 + "c = 5" + ")" * 2_000
    found = parse_sql(text)
    assert isinstance(found, Opaque)
    assert found.reason == "nested too deeply"
    assert parse_sql("NOT " * 5_001 + "c") == Not(Truth(ColumnRef(("c",), 20_004)))


def test_a_list_of_five_thousand() -> None:
    strings = [f"it's {i}, \\ ', '" for i in range(5_000)]
    quoted = ", ".join("'" + s.replace("\\", "\\\\").replace("'", "\\'") + "'" for s in strings)
    found = parse_sql(f"c IN ({quoted})")
    assert isinstance(found, Membership)
    assert [v.value for v in found.values if isinstance(v, Literal)] == strings


@pytest.mark.parametrize(
    "text, written",
    [
        ("upper(c) = 'X'", ""),
        ("c + 1 * 2 = 5", "c + (1 * 2) = 5"),
        ("c - 1 - 2 = 5", "(c - 1) - 2 = 5"),
        ("(c - 1) - 2 = 5", ""),
        ("c - (1 - 2) = 5", ""),
        ("c DIV 2 % 3 = 1", "(c DIV 2) % 3 = 1"),
        ("- c = -5", ""),
        ("-(-c) = 5", "- (- c) = 5"),
        ("c || 'x' = 'y'", "concat(c, 'x') = 'y'"),
        ("c RLIKE 'a'", ""),
        ("c NOT REGEXP 'a'", "NOT (c RLIKE 'a')"),
        ("c ILIKE 'a%'", ""),
        ("c IN (c, 5)", ""),
        ("c BETWEEN c + 1 AND c + 2", "c >= c + 1 AND c <= c + 2"),
        ("(c = 5) = true", "(c = 5) = TRUE"),
        ("(c = 5 AND d = 6) IS NULL", "(c = 5 AND d = 6) IS NULL"),
        ("(c = 5 OR d = 6) IS NOT TRUE", "NOT ((c = 5 OR d = 6) <=> TRUE)"),
        ("c[0] = 5", ""),
        ("TRY_CAST(c + 1 AS INT) = 5", "TRY_CAST(c + 1 AS int) = 5"),
        ("c + INTERVAL '1' DAY > d", "c + INTERVAL 1 DAY > d"),
        ("c - INTERVAL 2 YEARS 1 MONTH > d", "c - INTERVAL 25 MONTH > d"),
        ("c + INTERVAL '1.5' SECOND > d", "c + INTERVAL '1.500000' SECOND > d"),
        ("CASE WHEN c = 1 THEN 2 END = 3", "CASE WHEN (c = 1) THEN 2 ELSE NULL END = 3"),
        ("CASE c WHEN 1 THEN 2 ELSE 3 END = 3", "CASE WHEN (c = 1) THEN 2 ELSE 3 END = 3"),
        ("if(c > 1 AND d, 'a', 'b') = 'a'", "if((c > 1 AND d), 'a', 'b') = 'a'"),
        ("EXTRACT(YEAR FROM c) = 1998", "year(c) = 1998"),
        ("c LIKE 'a%' = true", None),
    ],
)
def test_expressions_are_read_with_the_precedence_of_their_operators(
    text: str, written: str | None
) -> None:
    found = parse_sql(text)
    if written is None:
        assert isinstance(found, Opaque)
        return
    assert to_sql(found) == (written or text)
    assert to_sql(parse_sql(to_sql(found))) == to_sql(found)
    beside = parse_sql(f"d = 5 AND {text} OR NOT ({text}) AND d IS NULL")
    assert isinstance(beside, Or)


@pytest.mark.parametrize(
    "text, position, hint",
    [
        ("yaer(ts) = 1998", 0, "did you mean 'year'?"),
        ("a = 1 AND coalesce(uper(s), 'x') = 'A'", 19, "did you mean 'upper'?"),
        ("CASE WHEN isnul(a) THEN b END = 1", 10, "did you mean 'isnull'?"),
        ("soundx(s) = 'A'", 0, "did you mean 'soundex'?"),
        ("price_of_the_day(a) > 5", 0, "those of a session are Spark's alone"),
    ],
)
def test_a_function_that_nothing_has_is_an_error_at_its_place(
    text: str, position: int, hint: str
) -> None:
    with pytest.raises(PredicateError, match="no function") as error:
        parse_sql(text)
    assert error.value.position == position
    assert hint in error.value.hint
    # A session may have it.
    parse_sql(text, any_function=True)


@pytest.mark.parametrize(
    "text", ["soundex(s) = 'A'", "kll_sketch_get_n_bigint(c) = 1", "timestampdiff(DAY, a, b) > 1"]
)
def test_a_function_of_spark_alone_is_no_error(text: str) -> None:
    found = parse_sql(text)
    assert isinstance(found, Opaque)
    assert "only Spark computes" in found.reason
    assert "(see the documentation, on expressions)" in found.reason
