"""The indexes that a build is asked for: their columns and expressions as the table has them, which
kinds fit, and what only Spark computes."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import PredicateError, UnsupportedError
from skipstone.human import some_of
from skipstone.indexes.registry import kind, known_kinds
from skipstone.predicate.indexed import (
    columns_of_name,
    is_elements,
    known_expressions,
    read_expression,
    spark_expression,
)
from skipstone.predicate.tree import ELEMENTS, is_expression
from skipstone.predicate.types import EXISTS_DEFAULT, MapKey, column_name, column_path, is_list
from skipstone.pruning import Reason
from skipstone.pruning.kind import column_fields
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import find_field, spelled_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing

    from .open_table import OpenTable

_LOG = logging.getLogger("skipstone")

# A name of one column, or of a field of a struct.
_NAME = re.compile(r"[\w.`]+")
# Text that is not a name: an operator or a bracket follows a word.
_OPERATOR = re.compile(r"\w.*[()+*/%<>=|]")


def checked(
    table: OpenTable,
    listing: Listing,
    wanted: Sequence[Index],
    spark: SparkSession | None,
    left_out: list[Reason] | None = None,
) -> tuple[list[Index], pa.Schema]:
    """``wanted`` with each column as the table spells it, and the table's schema.

    Raises ``PredicateError`` with the nearest name for an unknown column, and ``UnsupportedError``
    for a type that a kind does not support, or a partition column. ``left_out``, where it is given,
    receives the reason in place of the error: a column may have been replaced by another one.
    """
    schema = table.file_columns(listing, spark)
    partitions = PartitionColumns.of(listing).values
    known = [each.column for each in table.store.snapshot().definitions]
    found: list[Index] = []
    for index in wanted:
        try:
            expression = expression_column(index.column, schema, known, spark)
            own = _spelled(index, table, schema, partitions, expression)
            column_fields([own], schema)
            _check_kind(table, own)
        except (PredicateError, UnsupportedError) as error:
            if left_out is None:
                raise
            reason = Reason.of_error(repr(index), error)
            left_out.append(replace(reason, units=len(listing)))
        else:
            found.append(own)
    return list(dict.fromkeys(found)), schema


def _spelled(
    index: Index,
    table: OpenTable,
    schema: pa.Schema,
    partitions: Collection[str],
    expression: str | None,
) -> Index:
    """``index`` with its column as the table spells it, or with ``expression``."""
    path = spelled_path(schema, index.column)
    if expression is None and path is None and index.column in partitions:
        raise UnsupportedError(
            f"{index.column!r} is a partition column: its values are in the paths",
            hint="predicates on it skip files without an index",
        )
    if expression is None and path is None:
        names = [column_name((each,)) for each in (*schema.names, *partitions)]
        text = f"there is no column {index.column!r} in {table.path}"
        if not names and not table.is_parquet:
            hint = "Spark finds the columns of such files: build with a session, without --no-spark"
            raise PredicateError(text, hint=f"{hint}; or name them: schema=…, --schema 'id int'")
        raise PredicateError.of_name(text, index.column, names, _columns_of(schema))
    column = column_name(path or ()) if expression is None else expression
    return type(index).from_params(column, index.params)


def _columns_of(schema: pa.Schema) -> str:
    if not schema.names:
        return "it has none: check that the path has data files"
    return f"its columns are {some_of(schema.names, 20)}"


def _check_kind(table: OpenTable, index: Index) -> None:
    """Refuse row indexes where rows have no positions; warn of a kind that Paimon deprecates."""
    from skipstone.paimon.kinds import Bsi

    if index.sidecar is not None and not table.is_parquet:
        raise UnsupportedError(
            f"{index!r}: only rows of Parquet files have positions that Spark keeps",
            hint=f"{_kinds(lambda each: each.sidecar is None)} are about whole files of any format",
        )
    if index.sidecar is not None and spark_expression(index.column) is not None:
        raise UnsupportedError(
            f"{index!r}: only Spark computes it, and its rows come without their positions",
            hint=f"{_kinds(lambda each: each.sidecar is None)} are about whole files",
        )
    if is_elements(index.column):
        _check_elements(table, index)
    read = columns_of_name(index.column)
    if not table.is_parquet and any(isinstance(column_path(e)[-1], MapKey) for e in read):
        raise UnsupportedError(f"{index!r}: keys of maps are columns of Parquet files only")
    if isinstance(index, Bsi):
        _LOG.warning(
            "%r: Paimon has deprecated bsi; %s:rangebitmap answers the same queries "
            "faster, unless it is a decimal of more than 18 digits",
            index,
            index.column,
        )


def _check_elements(table: OpenTable, index: Index) -> None:
    if not table.is_parquet:
        raise UnsupportedError(f"{index!r}: elements are those of lists and maps in Parquet files")
    if not index.of_elements:
        raise UnsupportedError(
            f"{index!r}: elements of lists are not rows",
            hint=f"{_kinds(lambda each: each.of_elements)} are about whole files",
        )


def _kinds(which: Callable[[type[Index]], bool]) -> str:
    """The names of those kinds that a user may choose."""
    kinds = {name: kind(name) for name in known_kinds()}
    *names, last = (name for name, found in kinds.items() if found is not None and which(found))
    return f"{', '.join(names)} and {last}"


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
        return None  # the error for a column names the existing ones
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
