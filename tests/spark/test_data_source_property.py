"""``format("skipstone")`` against brute force: random tables, layouts, indexes and predicates."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from skipstone.predicate.render import to_sql
from tests.table.brute_force import Question, indexed, picked, questions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark


def told(table: pa.Table) -> list[str]:
    """The rows as sorted texts: instants in UTC, both zeros alike, NaN as itself."""

    def one(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value + 0.0
        if isinstance(value, dict):
            return {key: one(each) for key, each in value.items()}
        return value.isoformat() if hasattr(value, "isoformat") else value

    return sorted(repr([one(value) for value in row.values()]) for row in table.to_pylist())


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(questions())
def test_rows_are_those_of_brute_force(spark: SparkSession, question: Question) -> None:
    where = question[1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        found = indexed(root, question)
        if found is None:
            return
        _, whole, matching = found
        expected = picked(whole, matching)
        source = spark.read.format("skipstone").options(where=to_sql(where), timeZone="UTC")
        assert told(source.load(str(root)).toArrow()) == told(expected)
