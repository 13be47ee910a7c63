"""Counting the rows of one file that its table's indexes do not decide.

The table has columns that the file has not: those of the folders that it lies in, whose value all
of its rows have, and those that were added later, which are null in it. Where a folder and the file
both have a column, the folder's counts, as in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.index.schema import find_path
from skipstone.predicate import bind, leaves
from skipstone.predicate.types import column_path
from skipstone.scan.residual import matching, require_decidable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skipstone.bounds import RowSet
    from skipstone.predicate.tree import Expr
    from skipstone.scan.file import ParquetFile

__all__ = ["count_in_file"]


def count_in_file(
    file: ParquetFile,
    expr: Expr,
    schema: pa.Schema,
    folders: Mapping[str, pa.Scalar],
    rows: RowSet | None,
    *,
    time_zone: str,
    text: str | None = None,
) -> int:
    """How many of ``rows`` (``None``: all) match ``expr``.

    ``schema`` is the table's, ``folders`` are the values of the columns in the file's path. Raises
    ``UnsupportedError`` for what no reader but an engine can decide.
    """
    shadowed = {name.lower() for name in folders}
    own = pa.schema([field for field in file.schema if field.name.lower() not in shadowed])
    known = {field.name.lower() for field in own}
    added = [field for field in schema if field.name.lower() not in known | shadowed]
    named = [pa.field(name, value.type) for name, value in folders.items()]
    both = pa.schema([*own, *added, *named])
    tree = bind(expr, both, session_zone=time_zone, text=text)
    columns = {leaf.column for leaf in leaves(tree)}
    paths = {each: find_path(own, each) for each in columns}
    if all(paths.values()) and not shadowed:
        return file.count(expr, time_zone=time_zone)
    require_decidable(tree)
    stored = {each: tuple(f.name for f in path) for each, path in paths.items() if path}
    constants: dict[str, Any] = {}
    for each in columns - stored.keys():
        name = str(column_path(each)[0])
        value = next((v for folder, v in folders.items() if folder.lower() == name.lower()), None)
        if value is None:
            found = find_path(both, each)
            value = pa.scalar(None, pa.null() if found is None else found[-1].type)
        constants[each] = value
    if not stored:
        count = file.num_rows if rows is None else len(rows)
        one = matching(
            tree, {each: pa.array([v.as_py()], v.type) for each, v in constants.items()}, 1
        )
        return count if one[0] else 0
    total = 0
    for table in file.waves(file.selection.of_paths(list(stored.values())), rows):
        values = {each: _part(table, path) for each, path in stored.items()}
        values.update({each: pa.repeat(v, table.num_rows) for each, v in constants.items()})
        total += int(np.count_nonzero(matching(tree, values, table.num_rows)))
    return total


def _part(table: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
