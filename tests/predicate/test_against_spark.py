"""The oracle against Spark itself, over DataFrames in memory: never over files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest

from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.types import spark_name
from tests.oracle import SparkError, matching_rows
from tests.predicate.bound_rows import opaques, rows_of_bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
TS = pa.timestamp("us", "UTC")
HALF_PAST_TWO = (1_729_989_000_000_000, 1_729_992_600_000_000)


def column(values: list[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, type)


def table() -> pa.Table:
    """Twelve rows of every type with the awkward values, and ``row``, the position."""
    n = None
    days = [0, 19_813, 20_023, n, 15_338, 15_339, 15_340, 19_723, 19_812, 20_024, 1, 2]
    berlin = [*HALF_PAST_TWO, 1_711_846_800_000_000, n, 1_289_097_030_000_000]
    berlin += [1_289_098_800_000_000]
    berlin += [1_704_067_200_000_000, 1_704_063_600_000_000, 1_729_980_000_000_000]
    berlin += [1_729_987_200_000_000, 1_729_995_000_000_000, 1_704_067_199_999_999]
    local = [1_729_996_200_000_000, 1_711_852_200_000_000, 1_711_848_600_000_000, n, 0, 1]
    local += [1_704_067_200_000_000, 1_704_067_199_999_999, 1_711_850_400_000_000]
    local += [1_729_992_600_000_000, 1_711_846_800_000_000, 2]
    ints = [0, 1, -1, n, 5, 6, 2**31 - 1, -(2**31), 100, 7, 16_777_217, 16_777_216]
    longs = [0, 1, -1, n, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 3_000_000_000, 6, 2**53 + 2]
    floats = [0.0, -0.0, NAN, n, INF, -INF, 0.5, 0.1, 16_777_216.0, 1.5, -1.0, 3.4e38]
    decimals = [0, 1, "1.50", n, "5.55", "5.56", "-999.99", "999.99", 5, "0.01", "-0.01", "5.5"]
    strings = ["", "a", "a%", n, "a_b", "a\\b", "😀b", "a😀b", "it's", "5", "2024-01-01", "a\nb"]
    big = ["0", "9" * 20, "-" + "9" * 20, n, "1", "2", "10", "100", "5", "6", "7", "8"]
    return pa.table(
        {
            "row": pa.array(range(12), pa.int32()),
            "flag": column(
                [True, False, n, True, False, n, True, True, n, False, False, True], pa.bool_()
            ),
            "tiny": column([0, 1, -1, n, 127, -128, 5, 6, 7, 8, 9, 10], pa.int8()),
            "i": column(ints, pa.int32()),
            "l": column(longs, pa.int64()),
            "f": column(floats, pa.float32()),
            "d": column([*floats[:11], 1.7e308], pa.float64()),
            "dec": column(
                [x if x is n else Decimal(str(x)) for x in decimals], pa.decimal128(5, 2)
            ),
            "big": column([x if x is n else Decimal(x) for x in big], pa.decimal128(20, 0)),
            "s": column(strings, pa.string()),
            "b": column(
                [
                    b"",
                    b"\0",
                    b"\xff",
                    n,
                    b"a",
                    b"\0\xff",
                    b"ab",
                    b"\x7f",
                    b"\x80",
                    b"\xff\xff",
                    b"b",
                    b"c",
                ],
                pa.binary(),
            ),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "ts": pa.array(berlin, pa.int64()).cast(TS),
            "ntz": pa.array(local, pa.int64()).cast(pa.timestamp("us")),
            "nest": pa.array(
                [
                    {"in": {"Leaf": i}} if i % 3 else ({"in": None} if i % 2 else None)
                    for i in range(12)
                ],
                pa.struct([("in", pa.struct([("Leaf", pa.int64())]))]),
            ),
        }
    )


COMMON = r"""
flag
NOT flag
flag = true
flag <> true
flag > false
flag IS TRUE
flag IS NOT TRUE
flag IS NOT FALSE
flag IS UNKNOWN
flag <=> NULL
NOT (flag <=> NULL)
flag = 'yes'
flag IN (true, NULL)
tiny = 5
tiny < 300
tiny <> 300
tiny = 5.0
tiny >= 4.5
tiny IN (5, 300, NULL)
i < 5.5
i <= 5.5
i = 5.5
i <> 5.5
i >= -0.5
i > 3000000000
i < 3000000000
i <> 3000000000
i = 5e0
i = '5'
i = ' +5 '
i BETWEEN 1 AND 6.5
i NOT BETWEEN 1 AND 6
i IN (5, 6.5, 7)
i NOT IN (5, 6.5)
i NOT IN (5, NULL)
i IN (NULL)
i IN (5, NULL)
NOT (i IN (5, NULL))
i <=> 5
NOT (i <=> 5)
i <=> NULL
i = NULL
NOT (i = NULL)
i IS DISTINCT FROM 5
i IS NOT DISTINCT FROM NULL
i = 16777217F
CAST(i AS FLOAT) = 16777217
CAST(i AS FLOAT) = CAST(16777216 AS FLOAT)
CAST(i AS FLOAT) <= CAST(16777216 AS FLOAT)
CAST(i AS DECIMAL(12,2)) = 5.00
CAST(i AS BIGINT) < 7L
i::double > 5.5
5 < i
l = 9007199254740993
l = 9007199254740992e0
l <= 9007199254740992e0
l > 9007199254740992e0
l < 9.3e18
l >= 9223372036854775807e0
l <> 9007199254740992e0
l = 99999999999999999999
l < 99999999999999999999
l > 99999999999999999999
NOT (l > 99999999999999999999)
l >= -99999999999999999999
9223372036854775808 >= l
l <= 9223372036854775807.5
l = 99999999999999999999
l <> 99999999999999999999
tiny < 9e30BD
i BETWEEN -99999999999999999999 AND 5
l > 9007199254740993e0
l >= 9007199254740994e0
l <> 9007199254740994e0
l < 9007199254740994e0
l = 9223372036854775807e0
l < 9223372036854775807e0
l = 9223372036854774784e0
l IN (5, 9007199254740992e0)
l = 5.0
l > 4.9999
f = 0.1
f = 0.1F
f = CAST('0.1' AS FLOAT)
f < 0.1
f > 0.1
f = 0
f = -0.0
f < 0
f >= 0
f = 'NaN'
f > 1e300
f <> 'NaN'
f < 'NaN'
f <= CAST('NaN' AS FLOAT)
f = CAST('Infinity' AS DOUBLE)
f > 3.4e38
f >= 3.5e38
f IN (0, 'NaN')
f NOT IN (0.1F, 0.5F)
f IS NOT NULL
d = 'NaN'
d > 1e308
d = -0.0
d = 0.1
d IN (0.0, CAST('NaN' AS DOUBLE))
d NOT IN (0.0, CAST('NaN' AS DOUBLE), NULL)
NOT (d <= 100)
NOT (d > 100)
dec = 5.55
dec = 5.555
dec > 5.555
dec <= 5.555
dec <> 5.555
dec < 5
dec = 5
dec = 1.5e0
dec < 5.55e0
dec >= 5.55e0
dec = '5.55'
dec > 100000
dec < 100000
dec IN (5, 5.555, 5.5)
dec NOT IN (5, 5.555)
big = 99999999999999999999
big < 99999999999999999999.5
big > 1.5
big = 1e20
big >= 1e20
s = 'a'
s <> 'a'
s = ''
s > 'a'
s < 'b'
s >= '😀'
s > '￿'
s LIKE 'a%'
s LIKE '%b'
s LIKE 'a_b'
s LIKE 'a\\_b'
s LIKE 'a\_b'
s LIKE 'a\\%'
s LIKE 'a\\\\b'
s LIKE 'a%%' ESCAPE '%'
s LIKE 'a#%' ESCAPE '#'
s NOT LIKE 'a%'
s LIKE '%'
s NOT LIKE '%'
s LIKE ''
s LIKE '😀%'
s LIKE 'a_b%'
s LIKE '_😀_'
s LIKE NULL
NOT (s LIKE NULL)
startswith(s, 'a')
NOT startswith(s, 'a')
startswith(s, '')
startswith(s, NULL)
s = 'it''s'
s = "it's"
s = 'it\'s'
s = 'a\\b'
s = r'a\b'
s = 'a\nb'
s = 'a' '%'
s = '\u0061'
s IN ('a', '', NULL)
s NOT IN ('a', '')
s <=> NULL
b = X'00FF'
b > X'7F'
b < X'80'
b >= X''
b = 'a'
b IN (X'FF', X'ffff')
b <> X'00'
day = DATE '2024-03-31'
day = '2024-03-31'
day > '2024-01-01'
day >= DATE '2024-1-1'
day < TIMESTAMP '2024-03-31 00:00:00'
day = TIMESTAMP '2024-03-31 00:00:00'
day <= TIMESTAMP '2024-03-31 00:00:00'
day > TIMESTAMP '2024-03-30 23:59:59.999999'
day <> TIMESTAMP '2024-03-31 00:00:00'
day <> TIMESTAMP '2024-03-31 00:00:01'
day = TIMESTAMP_NTZ '2024-03-31 00:00:00'
day < TIMESTAMP_NTZ '2024-03-31 12:00:00'
day IN (DATE '2024-03-31', TIMESTAMP '2024-10-27 00:00:00')
day BETWEEN DATE '2011-12-30' AND '2011-12-31'
CAST(day AS TIMESTAMP) >= TIMESTAMP '2011-12-31 00:00:00'
CAST(day AS TIMESTAMP) = TIMESTAMP '2011-12-30 00:00:00'
CAST(day AS TIMESTAMP) < TIMESTAMP '2011-12-30 12:00:00'
ts = TIMESTAMP '2024-10-27 02:30:00'
ts = TIMESTAMP '2024-10-27 00:30:00Z'
ts = TIMESTAMP '2024-10-27 02:30:00+01:00'
ts > TIMESTAMP '2024-10-27 02:30:00'
ts >= '2024-10-27 02:30:00'
ts < TIMESTAMP '2024-03-31 02:30:00'
ts = TIMESTAMP '2024-03-31 02:00:00'
ts = TIMESTAMP '2024-03-31 03:00:00'
ts >= DATE '2024-01-01'
ts < DATE '2024-01-01'
ts = '2024-01-01'
ts IN (TIMESTAMP '2024-10-27 02:30:00', TIMESTAMP '2024-10-27 01:30:00Z')
ts NOT IN ('2024-10-27 02:30:00')
ts = TIMESTAMP_NTZ '2024-10-27 02:30:00'
ts < TIMESTAMP '2024-10-27 02:30:00 America/New_York'
CAST(ts AS DATE) = DATE '2024-10-27'
CAST(ts AS DATE) < DATE '2024-01-01'
CAST(ts AS DATE) IN (DATE '2024-01-01', DATE '2024-03-31')
CAST(ts AS DATE) = DATE '2010-11-07'
CAST(ts AS DATE) < DATE '2010-11-07'
CAST(ts AS DATE) >= DATE '2010-11-07'
CAST(ts AS DATE) <> DATE '2010-11-06'
CAST(ts AS TIMESTAMP_NTZ) = TIMESTAMP_NTZ '2024-10-27 02:30:00'
CAST(ts AS TIMESTAMP_NTZ) > TIMESTAMP_NTZ '2024-10-27 02:29:00'
ntz = TIMESTAMP_NTZ '2024-10-27 02:30:00'
ntz = '2024-01-01'
ntz >= '2024-03-31 02:30:00'
ntz >= DATE '2024-01-01'
ntz = TIMESTAMP '2024-10-27 00:30:00Z'
ntz = TIMESTAMP '2024-10-27 01:30:00Z'
ntz = TIMESTAMP '2024-03-31 02:30:00'
ntz < TIMESTAMP '2024-03-31 03:30:00'
ntz <= TIMESTAMP '2024-03-31 03:30:00'
ntz > TIMESTAMP '2024-03-31 03:00:00'
ntz >= TIMESTAMP '2024-03-31 02:00:00'
ntz <> TIMESTAMP '2024-03-31 02:30:00'
CAST(ntz AS DATE) = DATE '2024-10-27'
CAST(ntz AS DATE) <> DATE '2024-10-27'
CAST(ntz AS DATE) < DATE '2024-01-01'
nest.in.leaf = 4
nest.in.leaf IS NULL
NOT (nest.in.Leaf > 5)
`nest`.`in`.`Leaf` IN (1, 2)
i = 5 OR s = 'a'
NOT (i = 5 OR s = 'a')
NOT (i = 5 AND s = 'a')
i = NULL OR s = 'a'
NOT (i = NULL AND s = 'a')
(i > 0 AND l > 0) OR (d > 0 AND NOT flag)
NOT (NOT (i > 5))
! flag AND i IS NOT NULL
NULL
NOT NULL
true
1 = 1
1 = NULL OR i = 5
1 < 2.5 AND i = 5
'a' = 'b' OR i = 5
NULL <=> NULL
DATE '2024-01-01' < TIMESTAMP '2024-01-01 00:00:01'
i !> 5
i !< 5
i == 5
i != 5
""".strip().splitlines()  # fmt: skip


@pytest.fixture(scope="module", params=["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"])
def session(
    request: pytest.FixtureRequest, spark: SparkSession
) -> Iterator[tuple[SparkSession, str]]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    in_memory(spark).createOrReplaceTempView("t")
    yield spark, request.param
    spark.catalog.dropTempView("t")
    spark.conf.set("spark.sql.session.timeZone", str(before))


# Move casts from columns to literals, and match other rows where clocks change.
REWRITES = ("UnwrapCastInBinaryComparison", "SimplifyCasts")
Rows: TypeAlias = list[list[int]]


def in_memory(spark: SparkSession) -> DataFrame:
    """The table as a DataFrame; left to itself, Spark takes times without a zone for instants."""
    names = {"ts": "timestamp", "nest": "struct<in:struct<Leaf:bigint>>"}
    schema = ", ".join(
        f"{field.name} {names.get(field.name) or spark_name(field.type)}"
        for field in table().schema
    )
    return spark.createDataFrame(table(), schema=schema)


def spark_rows(spark: SparkSession, conditions: list[str], *, without: Sequence[str] = ()) -> Rows:
    """The rows of view ``t`` for which each condition is TRUE; ``without`` optimizer rules."""
    # Else Spark computes the answer while it plans, before its rewrites.
    rules = ["ConvertToLocalRelation", *without]
    named = [f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in rules]
    spark.conf.set("spark.sql.optimizer.excludedRules", ",".join(named))
    listed = ", ".join(
        f"CASE WHEN CAST(({condition}) AS BOOLEAN) THEN true END AS c{at}"
        for at, condition in enumerate(conditions)
    )
    try:
        found = spark.sql(f"SELECT row, {listed} FROM t").collect()
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")
    return [sorted(row[0] for row in found if row[at]) for at in range(1, len(conditions) + 1)]


def test_oracle_and_bound_tree_find_the_rows_of_spark(
    session: tuple[SparkSession, str],
) -> None:
    spark, zone = session
    data = table()
    optimized = spark_rows(spark, COMMON)
    plain = spark_rows(spark, COMMON, without=REWRITES)
    wrong: list[object] = []
    lost: list[object] = []
    for condition, expected, rewritten in zip(COMMON, plain, optimized, strict=True):
        found = matching_rows(data, condition, session_zone=zone)
        bound = bind(parse_sql(condition), data.schema, session_zone=zone, text=condition)
        at_least = rows_of_bound(bound, data, opaque=False)
        at_most = rows_of_bound(bound, data, opaque=True)
        if found != expected:
            wrong.append((condition, "oracle", found, "spark", expected))
        for answer in (expected, rewritten):
            if not set(at_least) <= set(answer) <= set(at_most):
                lost.append((condition, str(bound), at_least, at_most, "spark", answer))
            if not opaques(bound) and at_least != answer:
                lost.append((condition, str(bound), at_least, "spark", answer))
        if rewritten != expected:
            assert opaques(bound), f"Spark contradicts itself on {condition}"
    assert wrong == []
    assert lost == []


def test_printed_trees_mean_the_same_to_spark(session: tuple[SparkSession, str]) -> None:
    spark, zone = session
    data = table()
    written = [to_sql(parse_sql(condition)) for condition in COMMON]
    bound = [
        to_sql(bind(parse_sql(condition), data.schema, session_zone=zone)) for condition in COMMON
    ]
    plain = spark_rows(spark, COMMON)
    for printed in (written, bound):
        again = spark_rows(spark, printed)
        changed = [
            row for row in zip(COMMON, printed, plain, again, strict=True) if row[2] != row[3]
        ]
        assert changed == []


@pytest.mark.parametrize(
    "condition",
    [
        "s = 5",
        "i = 'x'",
        "i = '5.0'",
        "s = true",
        "day = 'tomorrow or so'",
        "i = '1e1'",
        "s < 1.5",
        "s LIKE 'a%' ESCAPE '%'",
        r"s LIKE r'\a'",
    ],
)
def test_what_spark_fails_on_is_opaque(spark: SparkSession, condition: str) -> None:
    in_memory(spark).createOrReplaceTempView("failing")
    with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|malformed|INVALID_FORMAT"):
        spark.sql(f"SELECT count(*) FROM failing WHERE {condition}").collect()
    assert opaques(bind(parse_sql(condition), table().schema))


def test_oracle_fails_where_spark_fails() -> None:
    with pytest.raises(SparkError):
        matching_rows(table(), "s = 5")
