"""Sort keys: ``"ts desc, id"`` as columns of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skipstone.errors import PredicateError, SkipstoneError, UnsupportedError
from skipstone.human import some_of
from skipstone.predicate.types import (
    UNCOMPARABLE,
    column_name,
    column_path,
    spark_type,
    split_names,
)
from skipstone.pruning.plan import SortKey
from skipstone.pruning.table_schema import spelled_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from .open_table import OpenTable


_ORDER = re.compile(
    r"\s*(?P<column>(?:(?>`(?:[^`]|``)*`)|(?>\['(?:[^'\\]|\\.)*'\])"
    r"|\[(?!')|`(?![^`]*`)|[^\s`[])+?)"
    r"(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)


def orders_of(order_by: str | Sequence[str]) -> list[SortKey]:
    """``"age desc nulls last, name"`` as sort keys, nulls where Spark has them by default.

    ``PredicateError`` for text that is not a sort key.
    """
    items = split_names(order_by) if isinstance(order_by, str) else list(order_by)
    found = []
    for item in items:
        match = _ORDER.fullmatch(item)
        if match is None:
            raise PredicateError(
                f"{item!r} is not a sort key", hint="write COLUMN [ASC|DESC] [NULLS FIRST|LAST]"
            )
        descending = (match["way"] or "").lower() == "desc"
        nulls = (match["nulls"] or ("last" if descending else "first")).lower()
        found.append(SortKey(match["column"], descending, nulls == "first"))
    return found


def orders_in(
    table: OpenTable, schema: pa.Schema, order_by: str | Sequence[str] | None, aim: str
) -> list[SortKey]:
    """The sort keys of a query, spelled as the table has them; see ``sort_column``."""
    found = []
    for order in [] if order_by is None else orders_of(order_by):
        path = sort_column(table, schema, order.column, aim)
        if len(path) > 1 or len(column_path(order.column)) > 1:
            raise UnsupportedError(
                f"cannot {aim} {order.column}, which lies below another column",
                hint="name a column of the root",
            )
        field = schema.field(path[0])
        if spark_type(field.type) is None:
            raise SkipstoneError(
                f"cannot {aim} {order.column}: it is {field.type}",
                hint="name a column of numbers, texts, times or booleans",
            )
        found.append(SortKey(path[0], order.descending, order.nulls_first))
    return found


def sort_column(
    table: OpenTable, schema: pa.Schema, name: str, aim: str = "sort by"
) -> tuple[str, ...]:
    """The path of a sort key as ``schema`` spells it; ``PredicateError`` where it has none.

    ``UnsupportedError`` for a column with a collation: its order is not that of the bytes.
    """
    path = spelled_path(schema, name)
    if path is None:
        text = f"there is no column {name!r} in {table.path} to sort by"
        names = [column_name((each,)) for each in schema.names]
        hint = f"sort keys are columns, as in 'ts desc, id'; here are {some_of(names, 8)}"
        raise PredicateError.of_name(text, name, names, hint)
    # Text of char(n) is padded where Spark compares it; its order is that of the stored text.
    field = schema.field(path[0])
    why = (field.metadata or {}).get(UNCOMPARABLE, b"").decode()
    if why.startswith("collation"):
        raise UnsupportedError(
            f"cannot {aim} {name}: {why}", hint="let Spark do it: Table.read(spark, where)"
        )
    return path
