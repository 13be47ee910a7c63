"""Builds of indexes on expressions: what they are over a table, and what only Spark computes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import PredicateError, UnsupportedError
from skipstone.predicate.indexed import known_expressions, read_expression, spark_expression
from skipstone.predicate.tree import ELEMENTS, is_expression
from skipstone.predicate.types import EXISTS_DEFAULT, column_path, is_list
from skipstone.pruning import Reason
from skipstone.pruning.table_schema import find_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.pruning.kind import Index


# A name of one column, or of a field of a struct.
_NAME = re.compile(r"[\w.`]+")
# Something that is no name.
_OPERATOR = re.compile(r"\w.*[()+*/%<>=|]")


def expression_column(
    text: str, schema: pa.Schema, known: Sequence[str], spark: SparkSession | None
) -> str | None:
    """The name of the expression ``text``, as a table with the indexes ``known`` has it already;
    ``None`` for a column, except for a list, which stands for its elements."""
    field = find_field(schema, text)
    if field is not None and is_list(field.type):
        text = f"{ELEMENTS}({text})"
    elif field is not None or _NAME.fullmatch(text):
        return None
    zone = _zone(spark)
    try:
        found = read_expression(text, schema, zone)
    except (PredicateError, UnsupportedError):
        if _OPERATOR.search(text):
            raise
        return None  # the error for a column names those that there are
    if not is_expression(found.name):
        return found.name
    if found.typed.by_spark() is not None:
        for name in found.columns:
            top = schema.field(column_path(name)[0])
            if EXISTS_DEFAULT in (top.metadata or {}):
                raise UnsupportedError(
                    f"no index on {text}: {name} has a default in files that lack it"
                )
    return known_expressions(known, schema, zone).names.get(found.typed, found.name)


def _zone(spark: SparkSession | None) -> str:
    """The time zone of timestamps in expressions: the session's, and UTC as in queries."""
    if spark is None:
        return "UTC"
    from skipstone.spark.session import ZONE

    return str(spark.conf.get(ZONE))


def without_spark(
    groups: Sequence[tuple[tuple[Index, ...], NDArray[np.bool_]]],
    left_out: list[Reason],
    *,
    required: bool,
) -> Iterator[tuple[tuple[Index, ...], NDArray[np.bool_]]]:
    """The groups without what only Spark computes, which is an error where it is ``required``."""
    for lacking, files in groups:
        own: list[Index] = []
        for index in lacking:
            found = spark_expression(index.column)
            if found is None:
                own.append(index)
                continue
            error = UnsupportedError(
                f"{index!r} needs a Spark build: only Spark computes {found.function}",
                hint="give build a Spark session; on the command line, --master local[*]",
            )
            if required:
                raise error
            reason = Reason.of_error(repr(index), error)
            left_out.append(replace(reason, units=int(np.count_nonzero(files))))
        yield tuple(own), files
