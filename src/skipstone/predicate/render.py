"""Both trees as Spark SQL text, for engines that evaluate the residual predicate, and for people.

The text of a bound tree is TRUE for the same rows; its columns are spelled as the schema spells
them.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone import _compute as pc
from skipstone.human import plural

from .literals import to_domain
from .tree import (
    And,
    Bound,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Const,
    Expr,
    Leaf,
    Literal,
    Membership,
    Not,
    NullTest,
    Op,
    Opaque,
    Operand,
    Or,
    PatternMatch,
    Truth,
    ignores_case,
)
from .types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Kind,
    MapKey,
    backquoted,
    column_path,
    decimal_text,
    kind_of,
    quote,
    spark_name,
    spark_type,
    sql_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that Spark's grammar, or ``sql.py``, does not read as a column.
_RESERVED = """
ALL AND ANTI ANY AS BETWEEN BOTH CASE CAST CROSS DATE DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE
FROM FULL ILIKE IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE MINUS NATURAL NOT NULL ON OR
RIGHT RLIKE REGEXP SELECT SEMI SOME STARTSWITH THEN TIME TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TRUE
TRY_CAST UNION UNIQUE UNKNOWN USING WHEN WHERE X
"""
_WORDS = frozenset(_RESERVED.split())


def column_sql(path: tuple[str, ...]) -> str:
    """A column's path as SQL text, backquoted where needed."""
    found = ""
    for part in path:
        if isinstance(part, MapKey):
            found += f"[{quote(part)}]"
            continue
        plain = _PLAIN.fullmatch(part) and part.upper() not in _WORDS
        found += ("." if found else "") + (part if plain else backquoted(part))
    return found


def literal_sql(literal: Literal) -> str:
    """A literal as SQL text that has its value, and its type where it has one."""
    value, type = literal.value, literal.type
    if value is None:
        known = None if type is None or pa.types.is_null(type) else spark_type(type)
        return "NULL" if known is None else f"CAST(NULL AS {spark_name(known)})"
    if type is None:
        return _plain_sql(value)
    if pa.types.is_interval(type):
        return _interval(value)
    kind = kind_of(type)
    if kind is Kind.TIMESTAMP and isinstance(value, str):
        return f"TIMESTAMP {quote(value)}"
    assert isinstance(value, bool | int | float | str | bytes)
    text = sql_text(value, type)
    if kind is Kind.INTEGER:
        return text + {8: "Y", 16: "S", 32: "", 64: "L"}[type.bit_width]
    if kind is Kind.DECIMAL:
        digits = max(len(str(abs(int(value)))), type.scale)
        if digits != type.precision:
            return f"CAST({text} AS {spark_name(type)})"
    return text


def _plain_sql(value: object) -> str:
    """A Python value without a declared type, from ``from_dnf``."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return sql_text(value, pa.float64())
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                return sql_text(float(value), pa.float64())
            unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
            return decimal_text(-unscaled if sign else unscaled, max(-exponent, 0)) + "BD"
        case str():
            return quote(value)
        case bytes():
            return sql_text(value, pa.binary())
        case datetime():
            type = TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP
            return sql_text(to_domain(value, type), type)
        case date():
            return sql_text(to_domain(value, pa.date32()), pa.date32())
        case _:
            return quote(str(value))


def operand_sql(operand: Operand) -> str:
    """An operand as SQL text; a condition is in parentheses."""
    match operand:
        case ColumnRef():
            return column_sql(operand.path)
        case Literal():
            return literal_sql(operand)
        case Cast():
            name = "?" if operand.type is None else spark_name(operand.type)
            word = "TRY_CAST" if operand.tolerant else "CAST"
            return f"{word}({operand_sql(operand.operand)} AS {name})"
        case Call():
            return _call(operand)
        case Opaque():
            return operand.sql
        case Truth():
            return operand_sql(operand.operand)
        case _:
            return f"({to_sql(operand)})"


def _call(call: Call) -> str:
    """A call as it is written in SQL."""
    args = [operand_sql(arg) for arg in call.args]
    nested = [
        f"({text})" if isinstance(arg, Call) and arg.name in _INFIX else text
        for arg, text in zip(call.args, args, strict=True)
    ]
    if call.name in _INFIX and len(args) == 2:
        return f"{nested[0]} {call.name.upper()} {nested[1]}"
    if call.name == "negate":
        return f"- ({args[0]})" if isinstance(call.args[0], Call) else f"- {args[0]}"
    if call.name == "rlike":
        return f"{nested[0]} RLIKE {nested[1]}"
    if call.name in ("like", "ilike"):
        escape = "" if call.args[2] == Literal("\\", pa.string()) else f" ESCAPE {args[2]}"
        return f"{nested[0]} {call.name.upper()} {args[1]}{escape}"
    if call.name == "subscript":
        return f"{args[0]}[{args[1]}]"
    if call.name == "case":
        pairs = zip(args[:-1:2], args[1::2], strict=True)
        branches = " ".join(f"WHEN {asked} THEN {value}" for asked, value in pairs)
        return f"CASE {branches} ELSE {args[-1]} END"
    return f"{call.name}({', '.join(args)})"


_INFIX = frozenset({"+", "-", "*", "/", "%", "div"})


def _interval(interval: Any) -> str:
    if interval.months:
        return f"INTERVAL {interval.months} MONTH"
    if interval.dates:
        return f"INTERVAL {interval.days} DAY"
    seconds = decimal_text(interval.days * 86_400_000_000 + interval.micros, 6)
    return f"INTERVAL '{seconds}' SECOND"


def to_sql(tree: Expr | Bound, *, counted: bool = False) -> str:
    """``tree``, as written or bound, as Spark SQL. ``counted`` adds how many keys are distinct,
    which takes a while for a million."""
    match tree:
        case And() if counted:
            return " AND ".join(_child(each, counted=True) for each in tree.children) or "TRUE"
        case And():
            return _joined(" AND ", tree.children, "TRUE")
        case Or():
            return _joined(" OR ", tree.children, "FALSE")
        case Not():
            return f"NOT ({to_sql(tree.child)})"
        case Const():
            return "TRUE" if tree.value else "FALSE"
        case Opaque():
            return tree.sql
        case Comparison():
            return f"{operand_sql(tree.left)} {tree.op} {operand_sql(tree.right)}"
        case Membership():
            if not len(tree.values):
                return "FALSE"
            if not isinstance(tree.values, tuple):
                keys = _counted(tree.values) if counted else plural(len(tree.values), "key")
                return f"{operand_sql(tree.operand)} IN ({keys})"
            listed = ", ".join(operand_sql(value) for value in tree.values)
            return f"{operand_sql(tree.operand)} IN ({listed})"
        case NullTest():
            return f"{operand_sql(tree.operand)} IS NULL"
        case PatternMatch():
            if tree.prefix_only:
                return f"startswith({operand_sql(tree.operand)}, {quote(tree.pattern)})"
            return _like(operand_sql(tree.operand), "LIKE", tree.pattern, tree.escape)
        case Truth():
            return operand_sql(tree.operand)
        case Leaf():
            return _leaf(tree)


def _joined(word: str, children: Iterable[Expr | Bound], empty: str) -> str:
    return word.join(_child(child) for child in children) or empty


def _child(child: Expr | Bound, *, counted: bool = False) -> str:
    text = to_sql(child, counted=counted)
    return f"({text})" if isinstance(child, And | Or | Opaque) else text


def _counted(array: pa.Array) -> str:
    """``4 distinct keys of 7, 1 null left out``; ``4 keys`` where that is all of them."""
    from .value_array import plain

    valid = pc.drop_null(plain(array))
    distinct, nulls = len(pc.unique(valid)), len(array) - len(valid)
    if distinct == len(array):
        return plural(distinct, "key")
    left_out = f", {plural(nulls, 'null')} left out" if nulls else ""
    return f"{plural(distinct, 'distinct key')} of {len(array):,}{left_out}"


def _like(column: str, word: str, pattern: str, escape: str) -> str:
    suffix = "" if escape == "\\" else f" ESCAPE {quote(escape)}"
    return f"{column} {word} {quote(pattern)}{suffix}"


def _leaf(leaf: Leaf) -> str:
    column = column_sql(column_path(leaf.column))
    match leaf.op:
        case Op.IS_NULL | Op.NOT_NULL:
            return f"{column} {leaf.op}"
        case Op.IN | Op.NOT_IN:
            listed = ", ".join(sql_text(value, leaf.type) for value in leaf.values)
            return f"{column} {leaf.op} ({listed})"
        case Op.NE_OR_NULL:
            return f"NOT ({column} <=> {sql_text(leaf.values[0], leaf.type)})"
        case Op.STARTS_WITH:
            return f"startswith({column}, {quote(str(leaf.values[0]))})"
        case Op.NOT_STARTS_WITH:
            return f"NOT startswith({column}, {quote(str(leaf.values[0]))})"
        case Op.LIKE | Op.NOT_LIKE:
            pattern, escape = leaf.values[:2]
            column = f"lower({column})" if ignores_case(leaf) else column
            return _like(column, str(leaf.op), str(pattern), str(escape))
        case _:
            return f"{column} {leaf.op} {sql_text(leaf.values[0], leaf.type)}"
