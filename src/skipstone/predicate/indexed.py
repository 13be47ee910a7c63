"""Expressions that have an index: each is a column of its own, whose name is its canonical form.

    lower(email) :: string
    CAST(ts AS date) :: date /* ts timestamp, in Europe/Oslo */

Only ``read_expression`` makes the name. It consists of the text in SQL, with columns as the table
spells them and literals of their types; the type of the value; and everything else that decides the
value: the type of each column that is not a string, and the session's time zone if a timestamp is
computed. ``column_name`` quotes a name with ``::``, so no column of a file has such a name.

**Equality** of expressions is decided by the typed expression, not by the text: ``lcase(x)`` is
``lower(x)``, ``date(ts)`` is ``to_date(ts)``. If the types of the columns or the session's zone are
no longer those of the name, the index is not asked.

**Elements.** An index on a list is an index on ``explode(tags) :: string``: the elements of all
rows, without nulls. It has no value per row. It answers leaves of the form "some element of the row
equals a value" (``ExpressionBinder.of_elements``), which stand next to the condition that decides
the rows.

**ANSI mode.** An index has values of a file only if the expression failed for none of its rows
under ANSI rules. For such rows, Spark without ANSI mode computes the same from the same types: the
modes differ only in the result of a failure, and in the casts that Spark puts around arguments.
Catalyst shows its casts. For SQL text that is bound without ANSI mode, only expressions that need
none of these casts are recognized (``same_in_both_modes``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import PredicateError, UnsupportedError

from .bind_expressions import elements_name, elements_of
from .binding import Binder
from .functions import BY_SPARK
from .operands import Unusable
from .render import operand_sql
from .sql import parse_sql
from .tree import (
    ELEMENTS,
    Call,
    ColumnRef,
    KnownExpressions,
    Operand,
    Truth,
    is_expression,
    mapped,
)
from .types import (
    EXPRESSION,
    TIMESTAMP,
    column_name,
    column_path,
    parse_type,
    spark_name,
    spark_type,
)
from .zones import Zone, zone, zone_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .typed import Typed


_CONTEXT = re.compile(
    r" /\* (?P<columns>.*?)(?:(?:(?<=/\* )|, )in (?P<zone>[^\s,]+))? \*/$", re.DOTALL
)
_TEXT = re.compile(r"('(?:[^'\\]|\\.|'')*')", re.DOTALL)
_TYPE = re.compile(r"[^,(]*(?:\([^)]*\))?")
_ELEMENTS = re.compile(rf"\s*{ELEMENTS}\s*\((?P<lists>.*)\)\s*", re.DOTALL | re.IGNORECASE)
_MOST_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression over a table's columns; ``name`` is its canonical form."""

    name: str
    typed: Typed
    zone: Zone | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name, _ in self.typed.columns())


def read_expression(
    text: str, schema: pa.Schema, session_zone: str | None = None, *, case_sensitive: bool = False
) -> Expression:
    """The expression in ``text``: a user's SQL, or a name, which has its own time zone.

    ``PredicateError`` for text that is not SQL and for an unknown column or function,
    ``UnsupportedError`` for an expression that has no index.
    """
    sql, context = _parts(text)
    session_zone = _context(context)[1] or session_zone
    session = zone(session_zone or "UTC")
    elements = _ELEMENTS.fullmatch(sql)
    if elements is not None:
        sql = elements["lists"]
    # Another version, with more functions, may have made the name.
    expr = parse_sql(sql, any_function=is_expression(text))
    binder = Binder(schema, case_sensitive, session, True, sql, True)
    try:
        operand = binder.spelled(expr.operand if isinstance(expr, Truth) else expr)
        typed = binder.typed(operand)
        if elements is not None or typed.kernel in ("map_keys", "map_values"):
            found = elements_of(typed)
            return Expression(elements_name(found), found, session)
        _check(typed)
    except Unusable as why:
        raise UnsupportedError(
            f"no index on {sql}: {why}",
            hint="the documentation, on expressions, lists those that have indexes",
        ) from None
    if typed.kernel == "column":
        return Expression(str(typed.value), typed, session)
    own_text = operand_sql(operand)
    if isinstance(operand, Call) and not own_text.endswith((")", "]")):
        own_text = f"({own_text})"
    name = f"{own_text}{EXPRESSION}{spark_name(typed.type)}"
    shown = [f"{each} {spark_name(type)}" for each, type in typed.columns() if type != pa.string()]
    if in_a_zone(typed):
        if session is None:
            raise UnsupportedError(
                f"no index on {sql}: the rules of time zone {session_zone} are not certain",
                hint="set spark.sql.session.timeZone to a region such as Europe/Oslo, or UTC",
            )
        shown.append(f"in {zone_text(session)}")
    if shown:
        name += f" /* {', '.join(shown)} */"
    return Expression(name, typed, session)


def known_expressions(
    columns: Iterable[str],
    schema: pa.Schema,
    session_zone: str,
    *,
    case_sensitive: bool = False,
    folders: Collection[str] = (),
) -> KnownExpressions:
    """The expressions among the ``columns`` of indexes, as a session sees them over ``schema``.

    ``folders`` are columns of partitions, in lower case: the files' own values of such a column are
    not those of the table."""
    names: dict[Typed, str] = {}
    unusable: dict[str, str] = {}
    for name in filter(is_expression, columns):
        try:
            sql = _parts(name)[0]
            here = read_expression(sql, schema, session_zone, case_sensitive=case_sensitive)
        except (PredicateError, UnsupportedError) as error:
            unusable[name] = error.message
            continue
        shadowed = [each for each in here.columns if str(column_path(each)[0]).lower() in folders]
        if shadowed:
            unusable[name] = f"{shadowed[0]} is a column of the partitions"
        # A catalog may spell columns in lower case.
        elif here.name.lower() != name.lower():
            unusable[name] = f"in this session it is {here.name}"
        else:
            names[here.typed] = name
    return KnownExpressions(names, unusable)


def columns_of_name(name: str) -> tuple[str, ...]:
    """The columns of files that an index over ``name`` reads; for a column, the column itself."""
    return tuple(fields_of_name(name)) if is_expression(name) else (name,)


def is_elements(name: str) -> bool:
    """Whether an index over ``name`` is on the elements of lists or maps."""
    return is_expression(name) and _ELEMENTS.fullmatch(_parts(name)[0]) is not None


@lru_cache(maxsize=256)
def elements_of_name(name: str) -> tuple[str, str]:
    """The column that has the elements ``name``, and their kernel: ``column`` for a column of
    lists, ``map_keys`` or ``map_values`` for a column of maps."""
    elements = _ELEMENTS.fullmatch(_parts(name)[0])
    found = parse_sql(elements["lists"]) if elements else None
    match getattr(found, "operand", None):
        case Call(kernel, (ColumnRef(path),)):
            return column_name(path), kernel
        case ColumnRef(path):
            return column_name(path), "column"
    raise ValueError(f"{name} is not a name of elements")


def fields_of_name(name: str) -> dict[str, pa.Field]:
    """The columns that an expression reads, with the types that its name has."""
    sql, context = _parts(name)
    if _ELEMENTS.fullmatch(sql):
        column, kernel = elements_of_name(name)
        type = parse_type(name.rpartition(EXPRESSION)[2]) or pa.null()
        maps = pa.map_(type, pa.null()) if kernel == "map_keys" else pa.map_(pa.string(), type)
        return {column: pa.field(column, pa.list_(type) if kernel == "column" else maps)}
    default = pa.string()
    types = f", {_context(context)[0]}, "
    found: dict[str, pa.Field] = {}

    def note(operand: Operand) -> Operand:
        if isinstance(operand, ColumnRef):
            column = column_name(operand.path)
            _, there, rest = types.partition(f", {column} ")
            type = parse_type(_TYPE.match(rest)[0]) if there else default  # type: ignore[index]
            if type is not None:
                found[column] = pa.field(column, type)
        return operand

    mapped(parse_sql(sql, any_function=True), note)
    return found


def fields_of_names(names: Iterable[str]) -> dict[str, pa.Field]:
    """The columns that several expressions read; one name may have only the keys or the values of a
    map."""
    found: dict[str, pa.Field] = {}
    for name in names:
        for column, field in fields_of_name(name).items():
            sides = [found.setdefault(column, field).type, field.type]
            if all(map(pa.types.is_map, sides)):
                keys, values = sorted(sides, key=lambda each: not pa.types.is_null(each.item_type))
                found[column] = pa.field(column, pa.map_(keys.key_type, values.item_type))
    return found


@dataclass(frozen=True, slots=True)
class SparkExpression:
    """An expression that only Spark computes: its text, the ``function`` that needs Spark, and the
    time zone, if its meaning depends on one."""

    sql: str
    function: str
    zone: str | None


def spark_expression(name: str) -> SparkExpression | None:
    """What Spark must compute for an index over ``name``; ``None`` where it need not."""
    if not is_expression(name):
        return None
    sql, context = _parts(name)
    found: list[str] = []

    def note(operand: Operand) -> Operand:
        if isinstance(operand, Call) and operand.name in BY_SPARK:
            found.append(operand.name)
        return operand

    mapped(parse_sql(sql, any_function=True), note)
    return SparkExpression(sql, found[0], _context(context)[1]) if found else None


def names_it(text: str, name: str) -> bool:
    """Whether ``text``, a user's SQL or a name, means the expression ``name``."""
    if text == name or not is_expression(name):
        return text == name
    try:
        expr = parse_sql(text)
    except PredicateError:
        return False
    own = operand_sql(expr.operand if isinstance(expr, Truth) else expr)
    sql = _parts(name)[0]
    elements = _ELEMENTS.fullmatch(sql)
    wanted = {sql, elements["lists"] if elements else sql}
    return _unquoted_lower(own.strip("()")) in {
        _unquoted_lower(each.strip("()")) for each in wanted
    }


def _unquoted_lower(sql: str) -> str:
    """SQL in lower case, except for its string literals."""
    return "".join(part if part.startswith("'") else part.lower() for part in _TEXT.split(sql))


def _parts(name: str) -> tuple[str, str]:
    """The text of a name, and what follows it; the whole text if it is not a name."""
    if not is_expression(name):
        return name, ""
    sql, _, context = name.rpartition(EXPRESSION)
    return sql, context


def _context(context: str) -> tuple[str, str | None]:
    """The columns with their types that follow an expression in its name, and the time zone."""
    own = _CONTEXT.search(context)
    if own is None:
        return "", None
    columns, where = own["columns"], own["zone"]
    if where is not None and parse_type(where) is not None:  # a column of the name "in"
        return f"{columns}, in {where}", None
    return columns, where


def _check(typed: Typed) -> None:
    columns = typed.columns()
    if spark_type(typed.type) is None or pa.types.is_null(typed.type):
        raise Unusable(f"its values are {typed.type}")
    if not columns:
        raise Unusable("it has no column")
    if len(columns) > _MOST_COLUMNS:
        raise Unusable(f"it has {len(columns)} columns, and {_MOST_COLUMNS} is the most")
    for name, type in columns:
        if spark_type(type) is None:
            raise Unusable(f"column {name} is {type}, and must be a number, text, time or boolean")


def in_a_zone(typed: Typed) -> bool:
    """Whether the value may depend on the session's time zone: a node other than a column is a
    timestamp, or has one as an argument."""
    return any(
        node.kernel != "column" and TIMESTAMP in (node.type, *(arg.type for arg in node.args))
        for node in typed.nodes()
        if not node.is_constant
    )
