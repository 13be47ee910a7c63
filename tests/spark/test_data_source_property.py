"""``format("skipstone")`` against brute force: random tables, layouts, indexes and predicates."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings

import skipstone
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.table.test_query import build, lay, picked, questions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.predicate.tree import Expr
    from tests.strategies import DataFile

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
def test_rows_are_those_of_brute_force(
    spark: SparkSession, question: tuple[list[DataFile], Expr, dict[str, Any], list[str]]
) -> None:
    files, where, written, indexes = question
    note(to_sql(where))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        whole = lay(root, files, written)
        try:
            expected = picked(whole, matching_rows(whole, where))
        except (SparkError, NotModelled, OverflowError):
            assume(False)
        table = skipstone.Table(str(root))
        schema = table.schema(table.listing())
        assume(schema.names == whole.column_names)
        if opaques(bind(where, schema)):
            return
        build(table, indexes)
        source = spark.read.format("skipstone").options(where=to_sql(where), timeZone="UTC")
        assert told(source.load(str(root)).toArrow()) == told(expected)
