"""The queries that indexes serve: predicates with weights.

As a file, one predicate to a line:

    # blank lines and comments are skipped
    user_id = 'u-8814'
    40<TAB>ts >= '2024-03-01' AND country = 'NO'

A number and a tab before a predicate is its weight, 1 for none. Or a JSON list, whose elements are
a text, ``[weight, text]``, or ``{"where": text, "weight": weight}``.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from skipstone.errors import PredicateError, SkipstoneError
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from skipstone.predicate.tree import Bound

__all__ = ["Query", "WeightedPredicate", "bound", "parse_queries", "queries_of"]

#: What ``Table.advise`` takes for one query: a predicate, or its weight and the predicate.
WeightedPredicate: TypeAlias = "str | tuple[float, str]"

_WEIGHTED = re.compile(r"\s*(?P<weight>[0-9.eE+-]+)[ ]*\t(?P<where>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One predicate, run ``weight`` times; ``place`` names its origin: ``line 3``."""

    where: str
    weight: float = 1.0
    place: str = ""


def parse_queries(text: str) -> list[Query]:
    """The queries of a file's text; ``SkipstoneError`` with the line of a wrong one."""
    if text.lstrip("\ufeff \t\r\n").startswith("["):
        return queries_of(_json(text.lstrip("\ufeff")), "element")
    found = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"line {number}"
        match = _WEIGHTED.fullmatch(line)
        if match is None:
            found.append(Query(where=line.strip(), place=place))
        else:
            weight = _weight(match["weight"], place)
            found.append(_query(match["where"], weight, place))
    return _some(found)


def queries_of(given: Iterable[Any], unit: str = "query") -> list[Query]:
    """The queries of a list of texts, ``(weight, text)`` or objects; see the module."""
    if isinstance(given, str):
        raise SkipstoneError(f"queries={given!r} is one text", hint=f"pass a list: [{given!r}]")
    found = []
    for number, each in enumerate(given, 1):
        place = f"{unit} {number}"
        if isinstance(each, Query):
            found.append(each)
            continue
        weight: Any = 1.0
        where = each
        if isinstance(each, dict) and set(each) <= {"where", "weight"}:
            where, weight = each.get("where"), each.get("weight", 1.0)
        elif isinstance(each, list | tuple) and len(each) == 2:
            weight, where = each
        found.append(_query(where, _weight(weight, place), place))
    return _some(found)


def bound(queries: Sequence[Query], schema: pa.Schema, time_zone: str) -> list[Bound]:
    """The predicates over ``schema``; ``PredicateError`` with the place of a wrong one."""
    trees = []
    for query in queries:
        try:
            expr = parse_sql(query.where)
            tree = bind(expr, schema, session_zone=time_zone, text=query.where, map_keys=True)
        except PredicateError as error:
            raise PredicateError(f"{query.place}: {error.message}", hint=error.hint) from error
        trees.append(tree)
    return trees


def _json(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise SkipstoneError(
            f"line {line}: queries begin like JSON and are none: {error}",
            hint='a JSON list of texts, or of [weight, text]: ["id = 7", [40, "day = 3"]]',
        ) from error
    assert isinstance(found, list)  # it begins with a bracket
    return found


def _query(where: object, weight: float, place: str) -> Query:
    if not isinstance(where, str) or not where.strip():
        raise SkipstoneError(
            f"{place}: {where!r} is no predicate", hint="write it as SQL: user_id = 'u-8814'"
        )
    return Query(where=where.strip(), weight=weight, place=place)


def _weight(given: object, place: str) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError(given)
        weight = float(given)
        if not 0 < weight < math.inf:
            raise ValueError(given)
    except (ValueError, OverflowError):
        raise SkipstoneError(
            f"{place}: {given!r} is no weight", hint="how often it is asked: a number above 0"
        ) from None
    return weight


def _some(found: list[Query]) -> list[Query]:
    if not found:
        raise SkipstoneError("there is no query", hint="one predicate per line")
    return found
