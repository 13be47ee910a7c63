"""Random conditions over random tables against Spark itself: what binding says holds for its rows.

The same question is put to Spark twice, with and without the optimizer rules that move casts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from skipstone.predicate.binding import bind
from skipstone.predicate.render import column_sql, to_sql
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.types import spark_name
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques, rows_of_bound
from tests.predicate.test_against_spark import REWRITES, spark_rows
from tests.strategies import SPARK_TYPES, columns, predicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Each asks sixty conditions, twice; more under the profiles that run for long.
EXAMPLES = max(1, settings().max_examples // 60)


@st.composite
def tables_of_every_type(draw: st.DrawFn) -> pa.Table:
    """Eight rows, a column of each of Spark's types, and ``row``."""
    arrays = {f"c{at}": draw(columns(type, 8)) for at, type in enumerate(SPARK_TYPES)}
    return pa.table({"row": pa.array(range(8), pa.int32()), **arrays})


def ask(
    spark: SparkSession, conditions: list[str], **how: tuple[str, ...]
) -> list[list[int] | None]:
    """As ``spark_rows``, with ``None`` for a condition on which Spark fails."""
    from pyspark.errors import PySparkException

    try:
        return list(spark_rows(spark, conditions, **how))
    except (PySparkException, OSError) as error:
        if len(conditions) == 1:
            note(f"{conditions[0]}: {str(error).splitlines()[0]}")
            return [None]
    half = len(conditions) // 2
    return ask(spark, conditions[:half], **how) + ask(spark, conditions[half:], **how)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_rows_of_spark(spark: SparkSession, zone: str, data: st.DataObject) -> None:
    table = data.draw(tables_of_every_type())
    trees = data.draw(st.lists(predicates(table, max_leaves=3), min_size=60, max_size=60))
    schema = ", ".join(f"{column_sql((f.name,))} {spark_name(f.type)}" for f in table.schema)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        spark.createDataFrame(table, schema=schema).createOrReplaceTempView("t")
        texts = [to_sql(tree) for tree in trees]
        plain = ask(spark, texts, without=REWRITES)
        rewritten = ask(spark, texts)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    wrong: list[object] = []
    for text, *answers in zip(texts, plain, rewritten, strict=True):
        bound = bind(parse_sql(text), table.schema, session_zone=zone, text=text)
        at_least = rows_of_bound(bound, table, opaque=False)
        at_most = rows_of_bound(bound, table, opaque=True)
        for answer in answers:
            if answer is None:
                continue
            if not set(at_least) <= set(answer) <= set(at_most):
                wrong.append((text, str(bound), at_least, at_most, "Spark", answer))
            if not opaques(bound) and at_least != answer:
                wrong.append((text, str(bound), at_least, "Spark", answer))
        try:
            found = matching_rows(table, text, session_zone=zone)
        except (SparkError, NotModelled):
            continue
        if answers[0] is not None and found != answers[0]:
            wrong.append((text, "oracle", found, "Spark", answers[0]))
    assert wrong == []
