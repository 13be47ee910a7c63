"""Random tables, layouts, indexes and predicates, and their rows by brute force."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, note
from hypothesis import strategies as st

import skipstone
from skipstone.errors import SkipstoneError
from skipstone.predicate.binding import bind
from skipstone.predicate.render import to_sql
from skipstone.predicate.types import column_name
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.predicate.bound_rows import opaques
from tests.strategies import SPARK_TYPES, layouts, predicates, tables

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.predicate.tree import Expr
    from tests.strategies import DataFile

#: the files of a table, a predicate, the writer's settings, and indexes
Question: TypeAlias = "tuple[list[DataFile], Expr, dict[str, Any], list[str]]"

INDEXES = ("minmax", "valuelist", "bloomfilter", "bitmap", "rangebitmap", "paimonbloom")


def skipstone_name(column: str) -> str:
    return column_name((column,))


def quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[DataFile], Expr, dict[str, Any], list[str]]:
    table = draw(tables(SPARK_TYPES, max_rows=40))
    files = draw(layouts(table))
    settings = {
        "row_group_size": draw(st.sampled_from([1, 3, 8, 1000])),
        "max_rows_per_page": draw(st.integers(1, 9)),
        "write_batch_size": 1,
        "write_page_index": draw(st.booleans()),
        "use_dictionary": draw(st.booleans()),
        "store_schema": draw(st.booleans()),
    }
    names = [n for n in table.column_names if n != "nest"]
    indexes = [
        f"{skipstone_name(name)}:{kind}"
        for name in names
        for kind in INDEXES
        if draw(st.integers(0, 3)) == 0
    ]
    return files, draw(predicates(table)), settings, indexes


def lay(root: Path, files: list[DataFile], settings: dict[str, Any]) -> pa.Table:
    """Write the files, long ago; the rows in the order of the listing."""
    for each in files:
        path = root / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(each.rows, path, **settings)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    listed = sorted(files, key=lambda each: f"{root}/{each.name}")
    return pa.concat_tables([each.rows for each in listed])


def plain(value: Any) -> Any:
    """A value that is equal to itself, and both zeros alike."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def picked(table: pa.Table, rows: list[int]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))


def rows_of(table: pa.Table) -> list[list[Any]]:
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def build(table: skipstone.Table, indexes: list[str], **settings: Any) -> None:
    """Those of ``indexes`` that the types of their columns have, in few builds: one that is refused
    is tried again in halves."""
    if not indexes:
        return
    try:
        table.build(indexes=indexes, **settings)
    except SkipstoneError:
        if len(indexes) > 1:
            middle = len(indexes) // 2
            build(table, indexes[:middle], **settings)
            build(table, indexes[middle:], **settings)
    else:
        note(str(indexes))


def indexed(root: Path, question: Question) -> tuple[skipstone.Table, pa.Table, list[int]] | None:
    """The table at ``root`` with its indexes, all its rows, and the numbers of matching rows.

    ``None`` if Skipstone passes a part of the predicate to the engine. Examples that the oracle or
    the table's schema does not model are dropped.
    """
    files, where, written, indexes = question
    note(to_sql(where))
    note(str(written))
    whole = lay(root, files, written)
    try:
        expected = matching_rows(whole, where)
    except (SparkError, NotModelled, OverflowError):
        assume(False)
    table = skipstone.Table(str(root))
    schema = table.schema(table.listing())
    assume(schema.names == whole.column_names)
    if opaques(bind(where, schema)):
        return None
    build(table, indexes)
    return table, whole, expected
