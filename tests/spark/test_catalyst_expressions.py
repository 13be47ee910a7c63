"""Expressions in Spark's filters: what the index is asked chooses Spark's rows, ANSI on and off.

Every condition goes the whole way: Spark parses and optimizes it and hands it to ``listFiles``;
the tree is bound and decided in memory, and Spark decides the rows of the same file.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.predicate.binding import bind
from skipstone.predicate.indexed import read_expression
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Op, Opaque, leaves, pieces
from skipstone.pruning.residual import matching
from skipstone.spark.session import set_to
from skipstone.spark.skip import explain, skip
from tests.predicate.bound_rows import rows_of_bound
from tests.spark.fake import finder
from tests.table.test_expression_skipping import DOCUMENTED, file

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 60
INTS = [2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 50, 49, 0, 1, -1, 5]
LONGS = [2**63 - 1, -(2**63), 2**31, 2**32 + 5, 5, 0, 261, -251]
WORDS = ["abc", "ABC", "ab", "a", "abcd", "", "Kelvin", "K", "k1", "straße", "STRASSE", "ßa", "a_b"]


def rows(*, overflowing: bool) -> pa.Table:
    rng = random.Random(5)
    ints, longs = (INTS, LONGS) if overflowing else ([50, 49, 5], [5, 0, 7])

    def some(each: Any) -> list[Any]:
        return [None if rng.random() < 0.1 else each() for _ in range(ROWS)]

    first = (dt.date(1997, 12, 1) - dt.date(1970, 1, 1)).days
    instant, year = first * 86_400_000_000, 400 * 86_400_000_000
    days = some(lambda: first + rng.randint(0, 500))
    times = some(lambda: instant + rng.randint(0, year))
    return pa.table(
        {
            "row": pa.array(range(ROWS), pa.int32()),
            "c": pa.array(some(lambda: rng.choice([*ints, rng.randint(-60, 60)])), pa.int32()),
            "l": pa.array(some(lambda: rng.choice([*longs, rng.randint(-99, 99)])), pa.int64()),
            "d": pa.array(some(lambda: rng.choice([0.0, math.nan, 2.5, 7.0, 1e300])), pa.float64()),
            "s": pa.array(some(lambda: rng.choice(WORDS)), pa.string()),
            "flag": pa.array(some(lambda: rng.random() < 0.5), pa.bool_()),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


CONDITIONS = """
c + 1 = 51
c + 1 < 50
c + 1 > -5
c - 1 < 50
5 - c > 3
-c > 10
-c < 10
NOT (c + 1 < 50)
c + 1 IS NULL
c * 2 > 99
l + 1 > 5
l / 7 > 3
d + 1 > 3
CAST(l AS INT) = 5
CAST(l AS TINYINT) = 5
try_cast(l AS INT) = 5
coalesce(c, 50) = 50
coalesce(c, 7) > 40
nvl(s, 'abc') = 'abc'
CASE WHEN c > 5 THEN 'a' WHEN flag THEN 'b' ELSE 'c' END = 'b'
if(c > 5, 1, 2) = 2
nullif(c, 50) = 49
least(c, 5) > 3
greatest(c, 5) = 5
(c > 5) = true
(c > 5) IS NOT TRUE
(c > 5 AND l < 3) IS NOT TRUE
isnan(d)
substr(s, 1, 3) = 'abc'
left(s, 2) IN ('ab', 'K')
left(s, 2) <> 'ab'
upper(s) = 'ABC'
upper(s) = 'STRASSE'
lower(s) LIKE 'k%'
s ILIKE 'AB%'
s RLIKE '^abc'
s RLIKE 'bc'
s RLIKE '^abc[d-z]'
concat('x', s) = 'xabc'
startswith(upper(s), 'AB')
year(ts) = 1998
year(day) = 1998
year(day) <> 1998
date_trunc('month', ts) = TIMESTAMP '1998-05-01 00:00:00'
date_trunc('week', ts) < TIMESTAMP '1998-05-04 00:00:00'
trunc(day, 'quarter') = DATE '1998-04-01'
to_date(ts) = DATE '1998-05-03'
day + 7 > DATE '1998-05-03'
date_sub(day, 40) > DATE '1998-05-03'
day + INTERVAL 1 MONTH > DATE '1998-05-30'
ts + INTERVAL 1 DAY > TIMESTAMP '1998-05-03 12:00:00'
ts - INTERVAL 1 MONTH > TIMESTAMP '1998-05-03 12:00:00'
ts + INTERVAL 90 MINUTES > TIMESTAMP '1998-05-03 12:00:00'
unix_timestamp(ts) > 894000000
unix_seconds(ts) > 894000000
date_format(ts, 'yyyy-MM-dd') = '1998-05-03'
date_format(ts, 'yyyy-MM') >= '1998-05'
date_format(ts, 'yyyy') <> '1998'
date_format(ts, 'yyyyMMdd') > '19980503'
date_format(ts, 'yyyy/MM/dd') < '1998/05/03'
date_format(day, 'yyyyMM') IN ('199805', '199807')
""".strip().splitlines()

# What has no leaf, as it wraps around without ANSI mode.
WRAPPING = ["c * 2 > 99", "CAST(l AS INT) = 5", "CAST(l AS TINYINT) = 5"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("ansi", [True, False])
def test_leaves_of_expressions_choose_the_rows_of_spark(
    spark: SparkSession, tmp_path: Path, ansi: bool, zone: str
) -> None:
    data = rows(overflowing=not ansi)
    pq.write_table(data, tmp_path / "one.parquet")
    find = finder(tmp_path)
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": str(ansi).lower()}
    wrong: list[Any] = []
    silent: list[str] = []
    with set_to(spark, settings):
        df = spark.read.parquet(str(tmp_path))
        named = ", ".join(f"coalesce({each}, false) AS c{at}" for at, each in enumerate(CONDITIONS))
        df.createOrReplaceTempView("t")
        decided = spark.sql(f"SELECT {named} FROM t ORDER BY row").toArrow()
        for at, condition in enumerate(CONDITIONS):
            if zone != "UTC" and "ts" not in condition and "day" not in condition:
                continue  # a zone changes none of these
            explain(skip(df, find).where(condition))
            tree = bind(find.pruners[str(tmp_path)].asked[-1], data.schema, session_zone=zone)
            at_least = set(rows_of_bound(tree, data, opaque=False))
            at_most = set(rows_of_bound(tree, data, opaque=True))
            flags = decided.column(f"c{at}").to_pylist()
            found = {row for row, flag in enumerate(flags) if flag}
            if not at_least <= found <= at_most:
                wrong.append((condition, str(tree), at_least - found, found - at_most))
            if not [leaf for leaf in leaves(tree) if leaf.op is not Op.NOT_NULL]:
                silent.append(condition)
    assert wrong == []
    assert silent == (["c + 1 IS NULL", *([] if ansi else WRAPPING)] if zone == "UTC" else [])


def test_the_page_says_what_skips_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    data = file(0)
    pq.write_table(data, tmp_path / "one.parquet")
    find = finder(tmp_path)
    df = spark.read.parquet(str(tmp_path))
    elements = read_expression("explode(tags)", data.schema)
    skips = {}
    for condition, _ in DOCUMENTED:
        explain(skip(df, find).where(condition))
        asked = find.pruners[str(tmp_path)].asked[-1]
        known = {elements.typed: elements.name}
        tree = bind(asked, data.schema, map_keys=True, expressions=known)
        skips[condition] = any(leaf.op is not Op.NOT_NULL for leaf in leaves(tree))
    assert skips == {condition: marks["in Spark"] for condition, marks in DOCUMENTED}


def test_formatted_times_of_all_years(spark: SparkSession, tmp_path: Path) -> None:
    """Years of other than four digits have a sign; years before 1000 have zeros."""
    days = [-720_000 - 365 * 2_000, -719_893, -719_529, -719_163, -719_162, -500_000, -354_650, 0]
    days += [20_000, 20_089, 2_932_896, 2_932_897, 3_000_000, 50_000_000]
    micros = [
        day * 86_400_000_000 + at for day in days for at in (0, 3_599_000_000, 86_399_999_999)
    ]
    data = pa.table(
        {
            "row": pa.array(range(len(micros)), pa.int32()),
            "ts": pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(data, tmp_path / "one.parquet")
    frame = spark.read.parquet(str(tmp_path))
    shown = {
        "yyyy": "2024",
        "yyyy-MM": "0999-01",
        "yyyyMMdd": "20250101",
        "yyyy-MM-dd": "9999-12-31",
    }
    shown |= {"yyyy-MM-dd HH": "2024-10-04 00", "yyyy-MM-dd HH:mm": "1970-01-01 23:59"}
    shown |= {"yyyy-MM-dd HH:mm:ss": "2024-10-04 00:59:59", "yyyy/MM/dd": "0001/01/01"}
    conditions = [
        each
        for pattern, text in shown.items()
        for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")
        for where in (f"date_format(ts, '{pattern}') {op} '{text}'",)
        for each in (where, f"NOT ({where})")
    ]
    named = [f"{each} AS c{at}" for at, each in enumerate(conditions)]
    found = {row["row"]: row for row in frame.selectExpr("row", *named).collect()}
    for at, where in enumerate(conditions):
        tree = bind(parse_sql(where), data.schema)
        assert not [each for each in pieces(tree) if type(each) is Opaque], where
        flags = matching(tree, {"ts": data.column("ts")}, len(data)).tolist()
        assert flags == [found[row][f"c{at}"] for row in range(len(data))], (where, str(tree))
