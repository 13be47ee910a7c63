"""Random tables of many files, which differ in the types, the order and the number of columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.parquet.reading.test_bulk_columns import settings_of_writer
from tests.strategies import SPARK_TYPES, predicates, tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.predicate.tree import Expr


OLD = 1_600_000_000
_NULL = "__HIVE_DEFAULT_PARTITION__"


@st.composite
def lakes(
    draw: st.DrawFn, types: Sequence[pa.DataType] = SPARK_TYPES
) -> tuple[list[tuple[str, pa.Table, dict[str, Any]]], pa.Table, Expr, int]:
    """Files with their settings, in the order of the listing; all rows; a predicate; pieces."""
    whole = draw(tables(types, max_rows=60))
    count = draw(st.integers(2, 12))
    cuts = sorted(
        draw(st.lists(st.integers(0, len(whole)), min_size=count - 1, max_size=count - 1))
    )
    few = draw(st.lists(settings_of_writer(), min_size=1, max_size=3))
    folders = draw(st.booleans())
    files, parts = [], []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(whole)], strict=True)):
        rows = whole.slice(start, stop - start)
        place, value = f"{number:02}.parquet", None
        if folders:  # ascending, as they are listed
            value = number // 3
            place = f"p={value}/{place}"
            if number >= count - 2:
                value, place = None, f"p={_NULL}/{number:02}.parquet"
        parts.append(rows.append_column("p", pa.array([value] * len(rows), pa.int32())))
        files.append((place, draw(_narrower(rows)), draw(st.sampled_from(few))))
    # "_" sorts behind digits, so files are in this order.
    made = pa.concat_tables(parts)
    if not folders:
        made = made.drop_columns("p")
    return files, made, draw(predicates(made)), draw(st.sampled_from([2, 3, 32]))


@st.composite
def _narrower(draw: st.DrawFn, rows: pa.Table) -> pa.Table:
    """The rows as a file may hold them: columns narrower, in another order, or missing if null."""
    made: list[tuple[str, pa.ChunkedArray]] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        narrow = {pa.int64(): pa.int32(), pa.float64(): pa.float32()}.get(field.type)
        if column.null_count == len(rows) and len(made) and draw(st.booleans()):
            continue
        if narrow is not None and draw(st.integers(0, 3)) == 0:
            try:
                less = column.cast(narrow)
            except pa.ArrowInvalid:
                less = column
            if less.cast(field.type).equals(column):
                column = less
        made.append((field.name, column))
    return pa.table([column for _, column in made], names=[name for name, _ in made])


def lay(root: Path, files: list[tuple[str, pa.Table, dict[str, Any]]]) -> None:
    for name, rows, how in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, **how)
        os.utime(path, (OLD, OLD))
