"""Expressions as leaves choose the rows that the same expressions choose when they are computed.

The kernels are held to Spark by ``test_expressions_against_spark.py``; here they are the oracle of
``monotone.py``, ``equivalents.py`` and ``text_bounds.py``, which share no code with them.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.predicate.binding import Binder, bind
from skipstone.predicate.kernels.numbers import Failure
from skipstone.predicate.kernels.rows import RowValues
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Computed, columns_read, leaves, pieces
from skipstone.predicate.zones import zone
from skipstone.pruning.residual import matching

DAY = 86_400_000_000
INTS = st.one_of(st.integers(-60, 60), st.sampled_from([-(2**31), 2**31 - 1, 2**31 - 2]))
LONGS = st.one_of(INTS, st.integers(-(2**63), 2**63 - 1))
DOUBLES = st.one_of(
    st.floats(-100, 100).map(lambda x: round(x, 2)), st.floats(allow_nan=True, allow_infinity=True)
)
DAYS = st.one_of(st.integers(9_000, 12_000), st.integers(-800_000, 2_900_000))
# Around changes of clocks in New York: backward in 2024, forward in 2000; and anywhere.
_CHANGES = st.sampled_from([1_730_613_600_000_000, 954_658_800_000_000])
INSTANTS = st.one_of(
    st.integers(100 * DAY, 20_000 * DAY),
    st.tuples(_CHANGES, st.integers(-30, 30)).map(lambda x: x[0] + x[1] * 1_800_000_000),
    st.tuples(_CHANGES, st.integers(-2 * DAY, 2 * DAY)).map(sum),
    st.integers(-3, 3).map(lambda x: x + 10_227 * DAY),
)
TEXTS = st.one_of(
    st.text(st.sampled_from("abAB kKiIıſßﬁẖK_%1"), max_size=5), st.sampled_from(["abc", "AI", ""])
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    def some(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.one_of(st.none(), each, each, each), min_size=6, max_size=6))

    cents = st.integers(-999_99, 999_99).map(lambda x: Decimal(x).scaleb(-2))
    return pa.table(
        {
            "c": pa.array(some(INTS), pa.int32()),
            "l": pa.array(some(LONGS), pa.int64()),
            "d": pa.array(some(DOUBLES), pa.float64()),
            "dec": pa.array(some(cents), pa.decimal128(7, 2)),
            "day": pa.array(some(DAYS), pa.int32()).cast(pa.date32()),
            "ts": pa.array(some(INSTANTS), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "ntz": pa.array(some(INSTANTS), pa.int64()).cast(pa.timestamp("us")),
            "s": pa.array(some(TEXTS), pa.string()),
            "flag": pa.array(some(st.booleans()), pa.bool_()),
        }
    )


NUMBER = st.one_of(st.integers(-60, 60), st.sampled_from([2**31 - 1, -(2**31) + 1])).map(str)
FACTOR = st.integers(-5, 5).filter(bool).map(str)
REAL = st.sampled_from(["0.5D", "1D", "3D", "1e-3", "7D", "100D"])
CENTS = st.integers(-5_000, 5_000).map(lambda x: f"{x / 100:.2f}")
YEARS = st.integers(1990, 2010).map(str)
DATE = st.integers(9_000, 12_000).map(lambda n: f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(n)}'")
MONTH = st.integers(0, 480).map(
    lambda n: f"TIMESTAMP '{1990 + n // 12}-{n % 12 + 1:02}-01 00:00:00'"
)
TIME = st.one_of(
    MONTH,
    st.integers(0, 10**9).map(
        lambda n: f"TIMESTAMP '{dt.datetime(1990, 1, 1) + dt.timedelta(seconds=n)}'"
    ),
    st.tuples(_CHANGES, st.integers(-150, 150)).map(
        lambda x: f"TIMESTAMP '{dt.datetime(1970, 1, 1) + dt.timedelta(0, x[1] * 1_800, x[0])}'"
    ),
)
UNIT = st.sampled_from(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
DATE_UNIT = st.sampled_from(["year", "quarter", "month", "week"])
INTERVAL = st.sampled_from(
    [
        "INTERVAL 1 DAY",
        "INTERVAL 1 MONTH",
        "INTERVAL 1 YEAR",
        "INTERVAL 36 HOURS",
        "INTERVAL 2 WEEKS",
    ]
)
SIGN = st.sampled_from(["+", "-"])
WORD = st.sampled_from(
    ["a", "ab", "abc", "AI", "k1", "", "SS", "iK", "abcde", "ß", "fi", "a_", "h"]
)
NUMBERS = {
    "c {sign} {n}": ({"sign": SIGN, "n": NUMBER}, NUMBER),
    "{n} - c": ({"n": NUMBER}, NUMBER),
    "-c": ({}, NUMBER),
    "c * {k}": ({"k": FACTOR}, NUMBER),
    "c * {k} - {n}": ({"k": FACTOR, "n": st.integers(-9, 9).map(str)}, NUMBER),
    "l / {k}": ({"k": REAL}, st.one_of(CENTS.map(lambda x: x + "D"), NUMBER)),
    "d {sign} {k}": ({"sign": SIGN, "k": REAL}, CENTS.map(lambda x: x + "D")),
    "d * {k}": ({"k": REAL}, CENTS.map(lambda x: x + "D")),
    "dec {sign} {n}": ({"sign": SIGN, "n": CENTS}, CENTS),
    "dec * {k}": ({"k": FACTOR}, CENTS),
    "{n} - dec": ({"n": CENTS}, CENTS),
    "CAST(l AS INT)": ({}, NUMBER),
    "TRY_CAST(l AS INT)": ({}, NUMBER),
    "TRY_CAST(l AS TINYINT) + 1": ({}, NUMBER),
    "CAST(dec AS INT)": ({}, NUMBER),
    "coalesce(c, {n})": ({"n": NUMBER}, NUMBER),
    "nullif(c, {n})": ({"n": NUMBER}, NUMBER),
    "least(c, {n})": ({"n": NUMBER}, NUMBER),
    "greatest({n}, c)": ({"n": NUMBER}, NUMBER),
    "CASE WHEN c > {n} THEN 1 WHEN flag THEN 2 END": ({"n": NUMBER}, st.sampled_from("123")),
    "if(c = {n}, 5, c)": ({"n": NUMBER}, NUMBER),
    "year(day)": ({}, YEARS),
    "year(ts)": ({}, YEARS),
    "year(ntz) + 1": ({}, YEARS),
    "unix_timestamp(ts)": ({}, st.integers(-3, 10**9).map(str)),
    "unix_millis(ts)": ({}, st.integers(-3, 10**12).map(str)),
}
TIMES = {
    "trunc(day, '{u}')": ({"u": DATE_UNIT}, DATE),
    "trunc(ts, '{u}')": ({"u": DATE_UNIT}, DATE),
    "to_date(ts)": ({}, DATE),
    "day {sign} {n}": ({"sign": SIGN, "n": st.integers(0, 400).map(str)}, DATE),
    "day {sign} {i}": ({"sign": SIGN, "i": INTERVAL}, DATE),
    "add_months(day, {n})": ({"n": st.integers(-30, 30).map(str)}, DATE),
    "date_trunc('{u}', ts)": ({"u": UNIT}, TIME),
    "date_trunc('{u}', day)": ({"u": UNIT}, TIME),
    "ts {sign} {i}": ({"sign": SIGN, "i": INTERVAL}, TIME),
    "ntz {sign} {i}": ({"sign": SIGN, "i": INTERVAL}, TIME),
}
WORDS = {
    "substr(s, 1, {n})": ({"n": st.sampled_from("123")}, WORD),
    "left(s, {n})": ({"n": st.sampled_from("123")}, WORD),
    "upper(s)": ({}, WORD.map(str.upper)),
    "lower(s)": ({}, WORD.map(str.lower)),
    "upper(s) ": ({}, WORD),
    "'a' || s": ({}, WORD),
    "coalesce(s, 'ab')": ({}, WORD),
    "concat('a', s, 'b')": ({}, WORD),
    "CASE WHEN s = 'a' THEN 'x' ELSE s END": ({}, WORD),
}
PATTERNS = [
    "s ILIKE '{w}%'",
    "s ILIKE '{w}'",
    "s ILIKE '{w}_%'",
    "s RLIKE '^{w}'",
    "s RLIKE '{w}'",
    "s RLIKE '^{w}[a-z]'",
    "s RLIKE '{w}*'",
    "upper(s) LIKE '{w}%'",
    "startswith(lower(s), '{w}')",
    "startswith(s, '{w}')",
    "endswith(s, '{w}')",
    "contains(s, '{w}')",
]
TESTS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


@st.composite
def conditions(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["numbers", "times", "words", "patterns"]))
    if kind == "patterns":
        found = draw(st.sampled_from(PATTERNS)).format(w=draw(WORD.filter(lambda w: w != "")))
    else:
        listed = {"numbers": NUMBERS, "times": TIMES, "words": WORDS}[kind]
        form = draw(st.sampled_from(sorted(listed)))
        holes, values = listed[form]
        made = form.format(**{name: draw(each) for name, each in holes.items()})
        value = values if kind != "words" else values.map(lambda w: f"'{w}'")
        shape = draw(st.sampled_from(["compare", "compare", "in", "null", "between"]))
        if shape == "compare":
            sides = [made, draw(value)]
            if draw(st.booleans()):
                sides.reverse()
            found = f"{sides[0]} {draw(st.sampled_from(TESTS))} {sides[1]}"
        elif shape == "in":
            found = (
                f"{made} IN ({draw(value)}, {draw(value)}{draw(st.sampled_from(['', ', NULL']))})"
            )
        elif shape == "between":
            found = f"({made} BETWEEN {draw(value)} AND {draw(value)})"
        else:
            found = f"{made} IS NULL"
    form = draw(st.sampled_from(["{}", "{}", "NOT ({})", "({}) IS TRUE", "({}) IS NOT TRUE",
                                 "({}) = false", "({}) IS NULL", "({}) <=> true",
                                 "if({}, 1, 0) = 1", "coalesce(({}), true)"]))  # fmt: skip
    return form.format(found)


def computed(data: pa.Table, condition: str, where: str) -> tuple[list[int], list[int]]:
    """The rows for which the kernels find the condition TRUE, and those where they fail."""
    binder = Binder(data.schema, False, zone(where), True, None, True)
    typed = binder.typed(parse_sql(condition))

    def true(part: pa.Table) -> list[bool]:
        columns = {name: part.column(name).combine_chunks() for name in part.column_names}
        return [
            each is True
            for each in RowValues(columns, len(part), zone(where)).of(typed).to_pylist()
        ]

    found, failed = [], []
    for row in range(len(data)):
        try:
            if true(data.slice(row, 1))[0]:
                found.append(row)
        except Failure:
            failed.append(row)
    return found, failed


@pytest.mark.parametrize("where", ["UTC", "America/New_York"])
@given(data=tables(), condition=conditions())
@settings(max_examples=4 * settings().max_examples)
def test_leaves_choose_the_rows_that_kernels_choose(
    where: str, data: pa.Table, condition: str
) -> None:
    if where != "UTC":
        known = pa.compute.less(data.column("day").cast(pa.int32()), 100)
        data = data.filter(pa.compute.invert(pa.compute.fill_null(known, False)))
    expected, failed = computed(data, condition, where)
    tree = bind(parse_sql(condition), data.schema, session_zone=where)
    for row in range(len(data)):
        if row in failed:
            continue
        one = data.slice(row, 1)
        columns = {name: one.column(name) for name in columns_read(tree)}
        assert bool(matching(tree, columns, 1)[0]) == (row in expected), (condition, str(tree), row)


@pytest.mark.parametrize("op", ["<=", ">", "="])
@pytest.mark.parametrize("interval", ["36 HOURS", "1 DAY 12 HOURS", "1 DAY", "12 HOURS"])
def test_days_are_of_the_calendar_and_hours_are_not(op: str, interval: str) -> None:
    """Between the two times the clocks of New York go forward."""
    halves = [954_748_800_000_000 + n * 1_800_000_000 for n in range(-60, 60)]
    data = pa.table({"ts": pa.array(halves, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    for sign in "-+":
        condition = f"ts {sign} INTERVAL {interval} {op} TIMESTAMP '2000-04-01 16:00:00'"
        expected, failed = computed(data, condition, "America/New_York")
        tree = bind(parse_sql(condition), data.schema, session_zone="America/New_York")
        assert not failed
        found = matching(tree, {"ts": data.column("ts")}, len(data))
        assert [row for row, flag in enumerate(found) if flag] == expected, str(tree)


@pytest.mark.parametrize(
    "condition, expected",
    [
        ("c + 1 = 51", "c = 50"),
        ("-c < 5", "c >= -4"),
        ("5 - c IN (1, 2)", "c IN (3, 4)"),
        ("c * 2 > 99", "c >= 50 AND c <= 1073741823"),
        ("dec + 1 = 2.5", "dec = 1.50"),
        ("l / 7 > 3", "l >= 22"),
        ("year(day) = 1998", "day >= DATE '1998-01-01' AND day <= DATE '1998-12-31'"),
        ("trunc(day, 'year') = DATE '1998-01-02'", "FALSE"),
        ("day + INTERVAL 1 MONTH = DATE '1998-02-28'",
         "day >= DATE '1998-01-28' AND day <= DATE '1998-01-31'"),
        ("coalesce(c, 9) > 10", "c IS NOT NULL AND c > 10"),
        ("(c > 5) IS NOT TRUE", "c <= 5 OR c IS NULL"),
        ("(c > 5 AND l < 3) = false", "c <= 5 OR l >= 3"),
        ("CASE WHEN c > 5 THEN 'a' ELSE 'b' END = 'b'", "c <= 5 OR c IS NULL"),
        ("substr(s, 1, 3) = 'abc'", "s STARTS WITH 'abc'"),
        ("left(s, 3) = 'ab'", "s = 'ab'"),
        ("upper(s) = 'AB'", "s IN ('AB', 'Ab', 'aB', 'ab')"),
        ("s RLIKE '^abc'", "s STARTS WITH 'abc'"),
        ("isnan(d)", "d = NaN"),
        ("1 + 1 = c", "c = 2"),
        ("c IN (1, 2.0, 3L)", "c IN (1, 2, 3)"),
    ],
)  # fmt: skip
def test_exact_leaves(condition: str, expected: str) -> None:
    tree = bind(parse_sql(condition), SCHEMA)
    assert str(tree) == expected
    assert not any(isinstance(node, Computed) for node in pieces(tree))


SCHEMA = pa.schema(
    [
        ("c", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(7, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("t", pa.string()),
    ]
)


@pytest.mark.parametrize(
    "condition, reason",
    [
        ("c % 2 = 1", "a remainder of a column is decided on rows"),
        ("month(day) = 3", "month begins again and again"),
        ("c + l = 1", "two columns are combined"),
        ("length(s) = 3", "length of a column"),
        ("upper(s) = t", "upper of a column"),
        ("TRY_CAST(l AS INT) IS NULL", "TRY_CAST may be NULL"),
        ("date_trunc('hour', ts) > TIMESTAMP '1998-05-01'", "clocks change"),
    ],
)
def test_reasons_why_nothing_is_carried_back(condition: str, reason: str) -> None:
    tree = bind(parse_sql(condition), SCHEMA, session_zone="Europe/Berlin")
    assert isinstance(tree, Computed)
    assert reason in tree.reason
    assert not leaves(tree)


def test_implied_leaves_stand_beside_what_is_computed() -> None:
    tree = bind(parse_sql("s RLIKE '^abc[0-9]+'"), SCHEMA)
    assert str(tree) == "s STARTS WITH 'abc' AND s RLIKE '^abc[0-9]+'"
    tree = bind(parse_sql("upper(s) = 'SHIPPED EXPRESS'"), SCHEMA)
    assert "s STARTS WITH 'sh'" in str(tree)
    assert str(tree).endswith("upper(s) = 'SHIPPED EXPRESS'")


def test_nested_cases_take_bounded_time() -> None:
    nested = "c"
    for _ in range(40):
        nested = f"coalesce({nested}, 1)"
    assert isinstance(bind(parse_sql(f"{nested} = 1"), SCHEMA), Computed)
