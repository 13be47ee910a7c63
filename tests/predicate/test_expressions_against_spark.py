"""Values of expressions, and rows that conditions choose, against Spark itself on random data."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from skipstone.errors import ExpressionError
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Computed, columns_read, pieces
from skipstone.pruning.residual import matching
from skipstone.spark.session import set_to
from tests.predicate.spark_expressions import CONDITIONS, EVERY, TIMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 400
ALPHABET = [*"abAZ éÉßǆİıΣσﬁ中😀_%1\n.-ŉK"]
WORDS = [
    "",
    " ",
    "abc",
    "abcabc",
    "ABC",
    "ΑΣ",
    "ΑΣ Σ",
    "a\r\n",
    "a\n",
    "ab\u2028",
    "12",
    " 7 ",
    "+5",
]
WORDS += ["1998-05-03", "1998-05-03 04:05:06.7", "1998-5-3", "2000", "nope", "1e3", "-0", "NaN"]
WORDS += ["true", "f", "Infinity", "1998-02-30", "  x ", "99999999999999999999", "1.5", "2D"]


def drawn(seed: int, some: Callable[[random.Random], Any], nulls: float = 0.1) -> list[Any]:
    rng = random.Random(seed)
    return [None if rng.random() < nulls else some(rng) for _ in range(ROWS)]


def table(first_year: int) -> pa.Table:
    """Random values; ``small`` and what begins with it stay where no operation overflows."""
    day = (dt.date(first_year, 1, 1) - dt.date(1970, 1, 1)).days
    micros = day * 86_400_000_000
    most = (dt.date(2037, 1, 1) - dt.date(1970, 1, 1)).days

    def word(rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(WORDS)
        return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 7)))

    def double(rng: random.Random) -> float:
        awkward = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 2.5, -2.5, 9.3e18]
        return rng.choice(awkward) if rng.random() < 0.3 else rng.uniform(-1000, 1000)

    def instant(rng: random.Random) -> int:
        near = [1_729_989_000_000_000, 1_711_846_800_000_000, 1_289_097_030_000_000, 0]
        near += [1_730_613_600_000_000, 1_730_527_200_000_000, 1_710_054_000_000_000]
        if rng.random() < 0.3:
            return max(rng.choice(near) + rng.randint(-5_000, 5_000) * 1_000_000, micros)
        return rng.randint(micros, most * 86_400_000_000)

    def entries(rng: random.Random) -> list[tuple[str, str | None]]:
        return [(key, rng.choice(["v", "w", None])) for key in "kj"[: rng.randint(0, 2)]]

    days = drawn(7, lambda rng: rng.randint(day, most))
    columns = {
        "row": pa.array(range(ROWS), pa.int32()),
        "tiny": pa.array(drawn(1, lambda rng: rng.randint(-128, 127)), pa.int8()),
        "small": pa.array(drawn(2, lambda rng: rng.randint(-1000, 1000)), pa.int32()),
        "small2": pa.array(drawn(3, lambda rng: rng.choice([-7, -2, -1, 1, 2, 3, 50])), pa.int32()),
        "i": pa.array(drawn(4, lambda rng: rng.randint(-(2**31), 2**31 - 1)), pa.int32()),
        "l": pa.array(drawn(5, lambda rng: rng.randint(-(2**63), 2**63 - 1)), pa.int64()),
        "f": pa.array(drawn(6, lambda rng: float(np.float32(rng.uniform(-9, 9)))), pa.float32()),
        "d": pa.array(drawn(8, double), pa.float64()),
        "small_d": pa.array(drawn(9, lambda rng: rng.uniform(-1000, 1000)), pa.float64()),
        "dec": pa.array(
            drawn(10, lambda rng: Decimal(rng.randint(-99_999, 99_999)).scaleb(-2)),
            pa.decimal128(7, 2),
        ),
        "dec2": pa.array(
            drawn(11, lambda rng: Decimal(rng.choice([-1, 1]) * rng.randint(1, 9999)).scaleb(-3)),
            pa.decimal128(7, 3),
        ),
        "wide": pa.array(
            drawn(12, lambda rng: Decimal(rng.randint(-(10**18), 10**18)).scaleb(-4)),
            pa.decimal128(22, 4),
        ),
        "s": pa.array(drawn(13, word), pa.string()),
        "s2": pa.array(drawn(14, word), pa.string()),
        "number": pa.array(drawn(15, lambda rng: str(rng.randint(-99, 99))), pa.string()),
        "flag": pa.array(drawn(16, lambda rng: rng.random() < 0.5), pa.bool_()),
        "day": pa.array(days, pa.int32()).cast(pa.date32()),
        "day2": pa.array(drawn(17, lambda rng: rng.randint(day, most)), pa.int32()).cast(
            pa.date32()
        ),
        "ts": pa.array(drawn(18, instant), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "ntz": pa.array(drawn(19, instant), pa.int64()).cast(pa.timestamp("us")),
        "tags": pa.array(
            drawn(20, lambda rng: [rng.choice(["x", "y", None]) for _ in range(rng.randint(0, 3))]),
            pa.list_(pa.string()),
        ),
        "longs": pa.array(
            drawn(21, lambda rng: [rng.choice([1, 2, 3]) for _ in range(rng.randint(0, 3))]),
            pa.list_(pa.int64()),
        ),
        "m": pa.array(drawn(22, entries), pa.map_(pa.string(), pa.string())),
        "st": pa.array(
            drawn(23, lambda rng: {"q": rng.choice([1, 2, None])}), pa.struct([("q", pa.int64())])
        ),
    }
    return pa.table(columns)


DDL = {
    "tiny": "tinyint", "small": "int", "small2": "int", "row": "int", "i": "int", "l": "bigint",
    "f": "float", "d": "double", "small_d": "double", "dec": "decimal(7,2)",
    "dec2": "decimal(7,3)", "wide": "decimal(22,4)", "s": "string", "s2": "string",
    "number": "string", "flag": "boolean", "day": "date", "day2": "date", "ts": "timestamp",
    "ntz": "timestamp_ntz", "tags": "array<string>", "longs": "array<bigint>",
    "m": "map<string,string>", "st": "struct<q:bigint>",
}  # fmt: skip


def dataframe(spark: SparkSession, data: pa.Table) -> Any:
    schema = ", ".join(f"{name} {DDL[name]}" for name in data.column_names)
    return spark.createDataFrame(data, schema=schema)


def values(data: pa.Table, expression: str, zone: str) -> list[Any]:
    """The values of an expression, as the engine computes those of a condition."""
    from skipstone.predicate.binding import Binder
    from skipstone.predicate.kernels.rows import RowValues
    from skipstone.predicate.zones import zone as zone_of

    (operand,) = [parse_sql(f"({expression}) IS NULL").operand]  # type: ignore[union-attr]
    binder = Binder(data.schema, False, zone_of(zone), True, None, True)
    typed = binder.typed(operand)
    paths = {
        "st.q": pa.compute.struct_field(data.column("st").combine_chunks(), "q"),
        "m['j']": pa.compute.map_lookup(data.column("m").combine_chunks(), "j", "first"),
        "m['k']": pa.compute.map_lookup(data.column("m").combine_chunks(), "k", "first"),
    }
    arrays = {}
    for name, type in typed.columns():
        arrays[name] = paths[name] if name in paths else data.column(name).combine_chunks()
        assert arrays[name].type == type
    return list(RowValues(arrays, data.num_rows, zone_of(zone)).of(typed).to_pylist())


def same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or (math.isnan(mine) and math.isnan(theirs))
    if isinstance(theirs, dt.timedelta):
        return bool(mine == theirs.days)
    return type(mine) is type(theirs) and bool(mine == theirs)


def differences(spark: SparkSession, data: pa.Table, listed: list[str], zone: str) -> list[Any]:
    dataframe(spark, data).createOrReplaceTempView("t")
    rules = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    spark.conf.set("spark.sql.optimizer.excludedRules", rules)
    named = ", ".join(f"{each} AS c{at}" for at, each in enumerate(listed))
    found = spark.sql(f"SELECT row, {named} FROM t ORDER BY row").toArrow()
    wrong: list[Any] = []
    for at, expression in enumerate(listed):
        mine = values(data, expression, zone)
        theirs = found.column(f"c{at}").to_pylist()
        bad = [n for n in range(ROWS) if not same(mine[n], theirs[n])]
        if bad:
            shown = [(mine[n], theirs[n]) for n in bad[:3]]
            names = sorted({*re.findall(r"[a-z_]\w*", expression)} & {*data.column_names})
            inputs = data.select(names).take(bad[:3]).to_pylist()
            wrong.append((expression, len(bad), "mine, Spark's", shown, inputs))
    return wrong


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata", "+05:30"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    with set_to(spark, {"spark.sql.session.timeZone": request.param}):
        yield request.param


@pytest.mark.parametrize("topic", list(EVERY))
def test_expressions_have_the_values_of_spark(spark: SparkSession, topic: str) -> None:
    assert differences(spark, table(1971), EVERY[topic], "UTC") == []


def test_dates_and_times_have_the_values_of_spark(spark: SparkSession, zone: str) -> None:
    first = 1971 if "/" in zone else 1600
    assert differences(spark, table(first), TIMES, zone) == []


@pytest.mark.parametrize(
    "condition, error",
    [
        ("i + tiny + 2147483647 > 0", "a result that int cannot hold"),
        ("l * l > 0", "a result that bigint cannot hold"),
        ("tiny + tiny > 0", "a result that tinyint cannot hold"),
        ("-l < 0 AND abs(l) > 0 AND l * l > 0", "a result that bigint cannot hold"),
        ("wide * wide * wide > 0", r"a result that decimal\(38,6\) cannot hold"),
        ("small / (small2 - 1) > 1", "a division by zero"),
        ("small % (small2 - 1) > 1", "a division by zero"),
        ("small_d / (small2 - small2) > 1", "a division by zero"),
        ("dec / (small2 - 1) > 1", "a division by zero"),
        ("CAST(i + tiny AS tinyint) = 1", "cannot be cast to tinyint"),
        ("CAST(s AS int) = 1", "cannot be cast to int"),
        ("CAST(d AS int) = 1", "cannot be cast to int"),
        ("CAST(s AS date) > day", "cannot be cast to date"),
        ("CAST(dec AS decimal(3,2)) > 1", r"cannot be cast to decimal\(3,2\)"),
        ("s > 5 OR s = small", "cannot be cast to bigint"),
        ("1 / 0 = small", "a division by zero"),
    ],
)
def test_what_fails_in_spark_fails_here(spark: SparkSession, condition: str, error: str) -> None:
    data = table(1971)
    dataframe(spark, data).createOrReplaceTempView("t")
    with pytest.raises(Exception, match=r"OVERFLOW|_BY_ZERO|CAST_|OUT_OF_RANGE"):
        spark.sql(f"SELECT * FROM t WHERE {condition}").collect()
    with pytest.raises(ExpressionError, match=error):
        decided(data, condition)


@pytest.mark.parametrize(
    "condition, exact",
    [
        ("i + 2147483647 > 0", "i > -2147483647 AND i <= 0"),
        ("l * 2 > 0", "l > 0 AND l <= 4611686018427387903"),
    ],
)
def test_conditions_of_a_column_do_not_fail(
    spark: SparkSession, condition: str, exact: str
) -> None:
    """They are carried back to the column, and have the rows that Spark computes without error."""
    data = table(1971)
    dataframe(spark, data).createOrReplaceTempView("t")
    with pytest.raises(Exception, match="OVERFLOW"):
        spark.sql(f"SELECT * FROM t WHERE {condition}").collect()
    assert decided(data, condition) == decided(data, exact)
    assert decided(data, exact)


LAZY = """
small2 <> 1 AND small / (small2 - 1) > 1
small2 = 1 OR small / (small2 - 1) > 1
CASE WHEN small2 = 1 THEN false ELSE small / (small2 - 1) > 1 END
if(small2 = 1, NULL, small / (small2 - 1)) > 1
small IS NOT NULL AND coalesce(small, 1 / (small2 - small2)) > 5
s IS NULL AND CAST(s AS int) = 1
length(number) > 0 AND CAST(number AS int) > 5
""".strip().splitlines()


def decided(data: pa.Table, condition: str) -> list[int]:
    tree = bind(parse_sql(condition), data.schema, map_keys=True)
    columns = {name: data.column(name) for name in columns_read(tree)}
    return [int(n) for n in np.flatnonzero(matching(tree, columns, data.num_rows))]


@pytest.mark.parametrize("condition", LAZY)
def test_what_spark_does_not_evaluate_does_not_fail(spark: SparkSession, condition: str) -> None:
    data = table(1971)
    dataframe(spark, data).createOrReplaceTempView("t")
    found = spark.sql(f"SELECT row FROM t WHERE {condition}").collect()
    assert decided(data, condition) == sorted(row[0] for row in found)


def test_conditions_choose_the_rows_of_spark_negated_and_among_others(spark: SparkSession) -> None:
    data = table(1971)
    dataframe(spark, data).createOrReplaceTempView("t")
    some = [each for each in CONDITIONS if each.startswith(("small", "(small", "NOT", "d ", "dec"))]
    asked = [f"NOT ({each})" for each in some]
    asked += [f"({each}) AND tiny > 5" for each in some]
    asked += [f"NOT (({each}) OR tiny > 5)" for each in some]
    named = ", ".join(f"coalesce({each}, false) AS c{at}" for at, each in enumerate(asked))
    found = spark.sql(f"SELECT {named} FROM t ORDER BY row").toArrow()
    computed = 0
    for at, condition in enumerate(asked):
        tree = bind(parse_sql(condition), data.schema)
        computed += any(isinstance(node, Computed) for node in pieces(tree))
        theirs = np.flatnonzero(found.column(f"c{at}").to_numpy(zero_copy_only=False))
        assert decided(data, condition) == theirs.tolist(), condition
    assert computed > len(asked) // 2
