"""What indexes are over: columns of a table and expressions, some of which only Spark computes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import PredicateError, SkipstoneError, UnsupportedError
from skipstone.predicate.indexed import known_expressions, read_expression, spark_expression
from skipstone.predicate.tree import ELEMENTS, is_expression
from skipstone.predicate.types import EXISTS_DEFAULT, column_name, column_path, is_list
from skipstone.pruning import Reason
from skipstone.pruning.table_schema import find_field

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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


def not_a_column(
    text: str, table: str, schema: pa.Schema, partitions: Collection[str]
) -> SkipstoneError:
    """Why no index can be over ``text``, which the files of ``table`` do not have."""
    from difflib import get_close_matches

    if text in partitions:
        return UnsupportedError(
            f"{text!r} is a partition column: its values are in the paths",
            hint="predicates on it skip files without an index",
        )
    names = [column_name((each,)) for each in (*schema.names, *partitions)]
    near = get_close_matches(text, names, 1)
    some = f"its columns are {', '.join(schema.names[:20])}"
    none = "it has none: check that the path has data files"
    return PredicateError(
        f"there is no column {text!r} in {table}",
        nearest=near[0] if near else None,
        hint=None if near else some if schema.names else none,
    )
