"""The routes without Spark: what is called, and whether its answer is that of the rows in memory.

A route's call is Python text over ``table``, ``root`` and the fields of a ``Trial``; the same text
stands in the script of a finding. A check returns what is wrong, or "".
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.oracle import values_of
from tests.soak.generate import ROW
from tests.soak.merged import STORED, as_spark, comparable, converted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tests.soak.life import World
    from tests.soak.truth import RowsInMemory

CALLS = {
    "query": "table.query(where, columns, time_zone=zone)",
    "batches": "list(table.scan(where, columns=columns, time_zone=zone).to_batches())",
    "count": "table.count(where, time_zone=zone)",
    "extreme": "(table.min(column, where, time_zone=zone), "
    "table.max(column, where, time_zone=zone))",
    "order": "table.query(where, columns, order_by, limit, time_zone=zone)",
    "top": "table.top(order_by, limit, where=where, time_zone=zone)",
    "plan": "table.plan(where, time_zone=zone)",
    "schema": "table.scan(where, time_zone=zone).schema",
    "duckdb": "table.scan(where, time_zone=zone).to_duckdb().to_arrow_table()",
    "polars": "table.scan(where, time_zone=zone).to_polars().collect().to_arrow()",
    "pyarrow": "table.scan(where, time_zone=zone).to_pyarrow().to_table()",
    "file": "file.query(where, columns, time_zone=zone)",
}
_CODE = {route: compile(text, route, "eval") for route, text in CALLS.items()}


@dataclass(frozen=True)
class Trial:
    """One question: a route with its arguments. ``path`` is the file that ``file`` asks.

    In Spark a ``form`` of ``FORMS``, the settings of the session, and what is cached.
    """

    route: str
    where: str | None
    zone: str = "UTC"
    columns: tuple[str, ...] | None = None
    column: str = ""
    order_by: tuple[str, ...] = ()
    limit: int | None = None
    path: str = ""
    form: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    cache: str = ""

    def arguments(self) -> dict[str, Any]:
        return {
            "where": self.where,
            "zone": self.zone,
            "columns": None if self.columns is None else list(self.columns),
            "column": self.column,
            "order_by": list(self.order_by),
            "limit": self.limit,
        }


def asked(trial: Trial, world: World) -> Any:
    """The answer of the route; raises as it does."""
    names: dict[str, Any] = {"table": world.table(), "root": world.root, **trial.arguments()}
    if trial.route == "file":
        names["file"] = world.file(trial.path)
    return eval(_CODE[trial.route], names)


# -- checks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expected:
    """What the rows in memory say: all rows, which match, and in which file each row lies."""

    rows: RowsInMemory
    matching: NDArray[np.int64]
    paths: dict[str, NDArray[np.int64]]

    def ids(self) -> NDArray[np.int64]:
        return ids_of(self.rows.table.column(ROW))[self.matching]


def ids_of(column: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    return found


def column_at(table: pa.Table, name: str) -> Any:
    at = [each.lower() for each in table.column_names]
    return table.column(at.index(name.lower()))


def same_rows(found: pa.Table, expected: Expected, columns: tuple[str, ...] | None) -> str:
    """Whether ``found`` has the matching rows, in any order, with their values and types."""
    table = expected.rows.table
    wanted = list(columns) if columns is not None else table.column_names
    if wrong := same_schema(found, table, wanted):
        return wrong
    if ROW not in found.column_names:
        if found.num_rows != len(expected.matching):
            return f"rows: {found.num_rows}, not {len(expected.matching)}"
        return ""
    ids = ids_of(column_at(found, ROW))
    if wrong := same_ids(ids, expected.ids()):
        return wrong
    return same_values(found, expected, wanted)


def same_schema(found: pa.Table, table: pa.Table, wanted: list[str]) -> str:
    """Whether ``found`` has these columns with the types of ``table``."""
    if sorted(map(str.lower, found.column_names)) != sorted(map(str.lower, wanted)):
        return f"schema: columns {found.column_names}, not {wanted}"
    for name in wanted:
        one, other = column_at(found, name).type, field_at(table.schema, name)
        if not as_promised(one, other):
            return f"schema: {name} is {one}, not {other.type}"
    return ""


def as_promised(found: pa.DataType, wanted: pa.Field) -> bool:
    """Whether a column may have this type: an unsigned one only where all files agree on it."""
    if folded(found) != folded(wanted.type):
        return False
    if pa.types.is_struct(found):
        return all(as_promised(each.type, field_at(wanted.type, each.name)) for each in found)
    if pa.types.is_unsigned_integer(found):
        return (wanted.metadata or {}).get(STORED) == str(found).encode()
    return True


def field_at(fields: Any, name: str) -> pa.Field:
    return next(each for each in fields if each.name.lower() == name.lower())


def folded(type: pa.DataType) -> str:
    """A type as Spark reads it, as text; names of fields without regard to case.

    Arrow's unsigned, large and dictionary types, and its units of time, may stay what they are.
    """
    type = as_spark(type)
    if pa.types.is_struct(type):
        fields = sorted(f"{f.name.lower()}: {folded(f.type)}" for f in type)
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_list(type):
        return f"list<{folded(type.value_type)}>"
    return str(type).replace("large_", "")


def same_ids(found: NDArray[np.int64], wanted: NDArray[np.int64]) -> str:
    if np.array_equal(np.sort(found), np.sort(wanted)):
        return ""
    got, want = Counter(found.tolist()), Counter(wanted.tolist())
    lost, more = sorted((want - got).elements()), sorted((got - want).elements())
    return f"rows: lost {lost[:10]}, too many {more[:10]}"


def same_values(found: pa.Table, expected: Expected, wanted: list[str]) -> str:
    """Whether each row of ``found``, told by its id, has its values."""
    ids = ids_of(column_at(found, ROW))
    every = ids_of(expected.rows.table.column(ROW))
    order = np.argsort(every)
    at = pa.array(order[np.searchsorted(every, ids, sorter=order)])
    for name in wanted:
        column = column_at(found, name)
        truth = column_at(expected.rows.table, name).take(at)
        if folded(column.type) == folded(truth.type) and column.type != truth.type:
            if pa.types.is_nested(truth.type):
                truth, column = (pa.chunked_array([in_order(x)]) for x in (truth, column))
            else:
                column = converted(column.combine_chunks(), truth.type)
        if len(ids) and not comparable(column).equals(comparable(truth)):
            got, want = values_of(column), values_of(truth)
            bad = next((i for i in range(len(got)) if repr(got[i]) != repr(want[i])), 0)
            row = ids[bad]
            return f"values: {name} of row {row} is {got[bad]!r}, not {want[bad]!r}"
    return ""


def in_order(column: Any) -> pa.Array:
    """A struct with its fields in the order of their names, in lower case."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_struct(column.type):
        type = as_spark(column.type)
        if pa.types.is_large_string(type):
            type = pa.string()
        return converted(column, type)
    names = [column.type.field(i).name.lower() for i in range(column.type.num_fields)]
    order = sorted(range(len(names)), key=names.__getitem__)
    children = [in_order(column.field(i)) for i in order]
    return pa.StructArray.from_arrays(
        children, names=[names[i] for i in order], mask=column.is_null()
    )


def check_rows(found: Any, trial: Trial, expected: Expected) -> str:
    return same_rows(found, expected, trial.columns)


def check_batches(found: Any, trial: Trial, expected: Expected) -> str:
    if not found:
        many = len(expected.matching)
        return f"rows: none, not {many}" if many else ""
    return same_rows(pa.Table.from_batches(found), expected, trial.columns)


def check_count(found: Any, trial: Trial, expected: Expected) -> str:
    wanted = len(expected.matching)
    return "" if found == wanted else f"count: {found}, not {wanted}"


def path_of(column: str) -> tuple[str, ...]:
    from skipstone.predicate.types import column_path

    return tuple(map(str, column_path(column)))


def check_extreme(found: Any, trial: Trial, expected: Expected) -> str:
    path = path_of(trial.column)
    ranks = expected.rows.values(path).ranks[expected.matching]
    array = expected.rows.array(path).take(pa.array(expected.matching))
    for name, each, pick in (("min", found[0], np.min), ("max", found[1], np.max)):
        known = ranks[ranks >= 0]
        one = array.slice(int(np.flatnonzero(ranks == pick(known))[0]), 1) if len(known) else None
        wanted = None if one is None else in_python(one)
        if not same_value(each, wanted):
            return f"{name}: {each!r}, not {wanted!r}"
    return ""


def in_python(array: pa.Array) -> Any:
    """The one value; text that is not UTF-8 with lone surrogates, which no answer has."""
    return values_of(array)[0] if pa.types.is_string(array.type) else array[0].as_py()


def same_value(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def order_of(text: str) -> tuple[tuple[str, ...], bool, bool]:
    """(path, descending, nulls first) of one of our sort keys."""
    rest, down, first = text, False, True
    for suffix, is_first in ((" nulls first", True), (" nulls last", False)):
        if rest.endswith(suffix):
            rest = rest.removesuffix(suffix)
            down = rest.endswith(" desc")
            return path_of(rest.removesuffix(" desc").removesuffix(" asc")), down, is_first
    down = rest.endswith(" desc")
    first = not down
    return path_of(rest.removesuffix(" desc").removesuffix(" asc")), down, first


def sort_ranks(orders: tuple[str, ...], expected: Expected) -> NDArray[np.int64]:
    """Per row the keys of its order, one column each, ascending."""
    keys = []
    for text in orders:
        path, down, first = order_of(text)
        ranks = expected.rows.values(path).ranks
        key = np.where(ranks < 0, 0, -ranks if down else ranks)
        far = len(ranks) + 1
        keys.append(np.where(ranks < 0, -far if first else far, key))
    return np.stack(keys, axis=1)


def check_order(found: Any, trial: Trial, expected: Expected) -> str:
    names = list(trial.columns or expected.rows.table.column_names)
    if wrong := same_schema(found, expected.rows.table, names):
        return wrong
    keys = sort_ranks(trial.order_by, expected)
    matching = expected.matching
    wanted = matching[np.lexsort(keys[matching].T[::-1])][: trial.limit]
    if found.num_rows != len(wanted):
        return f"rows: {found.num_rows}, not {len(wanted)}"
    ids = ids_of(column_at(found, ROW))
    every = ids_of(expected.rows.table.column(ROW))
    place = {each: at for at, each in enumerate(every.tolist())}
    rows = np.array([place[each] for each in ids.tolist()], np.int64)
    if len(set(rows.tolist())) != len(rows) or not set(rows.tolist()) <= set(matching.tolist()):
        return f"rows: {ids.tolist()[:10]} do not match, or come twice"
    if not np.array_equal(keys[rows], keys[wanted]):
        return f"order: rows {ids.tolist()[:10]}, not {every[wanted].tolist()[:10]}"
    return same_values(found, expected, names)


def check_top(found: Any, trial: Trial, expected: Expected) -> str:
    """The first rows are among those named."""
    keys = sort_ranks(trial.order_by, expected)
    matching = expected.matching
    order = matching[np.lexsort(keys[matching].T[::-1])]
    wanted = order[: trial.limit]
    named: set[int] = set()
    for path, rows in found.rows.items():
        mine = rows_at(expected, path)
        named |= set(mine.tolist() if rows is None else mine[np.asarray(rows)].tolist())
    # Rows that tie with the last may stand for it.
    last = keys[wanted[-1]].tolist() if len(wanted) else None
    sure = [row for row in wanted.tolist() if keys[row].tolist() != last]
    ties = [row for row in named & set(matching.tolist()) if keys[row].tolist() == last]
    if not set(sure) <= named or len(sure) + len(ties) < len(wanted):
        every = ids_of(expected.rows.table.column(ROW))
        return f"top: rows {every[sorted(named)].tolist()}, not {every[wanted].tolist()}"
    return ""


def rows_at(expected: Expected, path: str) -> NDArray[np.int64]:
    """The rows of the file at a full path."""
    found = [rows for name, rows in expected.paths.items() if path.endswith("/" + name)]
    assert len(found) == 1, path
    return found[0]


def check_plan(found: Any, trial: Trial, expected: Expected) -> str:
    """No file with a match is left out, and a file that must match does so with each row."""
    match = np.zeros(expected.rows.table.num_rows, np.bool_)
    match[expected.matching] = True
    seen = 0
    for path, keep, must in zip(found.listing.paths, found.keep, found.must, strict=True):
        mine = rows_at(expected, path)
        seen += 1
        if not keep and match[mine].any():
            return f"plan: {path} is skipped, and has {int(match[mine].sum())} matches"
        if must and not match[mine].all():
            return f"plan: {path} is said to match whole, and does not"
    return "" if seen == len(expected.paths) else f"plan: {seen} files, not {len(expected.paths)}"


def check_schema(found: Any, trial: Trial, expected: Expected) -> str:
    wanted = expected.rows.table.schema
    for each in found if len(found) == len(wanted) else ():
        if not as_promised(each.type, field_at(wanted, each.name)):
            return f"schema: {each.name} is {each.type}, not {field_at(wanted, each.name).type}"
    one = sorted(f"{f.name.lower()}: {folded(f.type)}" for f in found)
    other = sorted(f"{f.name.lower()}: {folded(f.type)}" for f in wanted)
    wrong = [f"{a}, not {b}" for a, b in zip(one, other, strict=False) if a != b]
    if wrong or len(one) != len(other):
        return f"schema: {'; '.join(wrong) or f'{one}, not {other}'}"
    return ""


def check_handed(found: Any, trial: Trial, expected: Expected) -> str:
    """Another engine gets every matching row, with its values, and no row twice."""
    table = expected.rows.table
    if sorted(map(str.lower, found.column_names)) != sorted(map(str.lower, table.column_names)):
        return f"schema: columns {found.column_names}, not {table.column_names}"
    ids = ids_of(column_at(found, ROW))
    lost = sorted(set(expected.ids().tolist()) - set(ids.tolist()))
    if lost:
        return f"rows: lost {lost[:10]}"
    every = set(ids_of(table.column(ROW)).tolist())
    if len(set(ids.tolist())) != len(ids) or not set(ids.tolist()) <= every:
        return "rows: some come twice, or are not of the table"
    # Engines have types of their own; values are compared where theirs casts to ours.
    for name in table.column_names:
        type, mine = column_at(table, name).type, column_at(found, name)
        if pa.types.is_nested(type):
            if wrong := same_nested(mine, ids, name, expected):
                return wrong
            continue
        at = found.column_names.index(mine_name(found, name))
        try:
            found = found.set_column(at, name, mine.cast(type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            return f"schema: {name} is {mine.type}, not {type}: {error}"
    flat = [n for n in table.column_names if not pa.types.is_nested(column_at(table, n).type)]
    return same_values(found, expected, flat)


def same_nested(found: Any, ids: NDArray[np.int64], name: str, expected: Expected) -> str:
    """Whether each value, told by the id of its row, is that of the rows in memory."""
    table = expected.rows.table
    place = {each: at for at, each in enumerate(ids_of(table.column(ROW)).tolist())}
    truth = column_at(table, name).take(
        pa.array([place[each] for each in ids.tolist()], pa.int64())
    )
    for each, wanted, row in zip(listed(found), listed(truth), ids.tolist(), strict=True):
        if plain(each) != plain(wanted):
            return f"values: {name} of row {row} is {each!r}, not {wanted!r}"
    return ""


def listed(column: Any) -> list[Any]:
    """The values as Python has them; as the oracle does where some are no text."""
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        found = values_of(column)
    return found


def plain(value: Any) -> Any:
    """A nested value such that ``==`` compares it; names of fields without regard to case."""
    if isinstance(value, dict):
        return sorted((name.lower(), plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)  # 64 bits without a sign are a decimal in Spark
    return "null" if value is None else value


def mine_name(found: pa.Table, name: str) -> str:
    return str(next(each for each in found.column_names if each.lower() == name.lower()))


CHECKS: dict[str, Callable[[Any, Trial, Expected], str]] = {
    "query": check_rows,
    "batches": check_batches,
    "count": check_count,
    "extreme": check_extreme,
    "order": check_order,
    "top": check_top,
    "plan": check_plan,
    "schema": check_schema,
    "duckdb": check_handed,
    "polars": check_handed,
    "pyarrow": check_handed,
    "file": check_rows,
}
