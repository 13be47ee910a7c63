"""Conditions with function calls: text for the engines, and their truth for one value.

To an index they are opaque. The embedded engine and Spark evaluate them; a plan keeps all their
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.predicate.render import column_sql
from skipstone.predicate.tree import Opaque
from tests.oracle import NotModelled
from tests.soak.values import is_text, pick

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


@dataclass(frozen=True)
class Function:
    """A condition on one column; ``truth`` takes a value as the oracle has it."""

    column: tuple[str, ...]
    sql: str
    truth: Callable[[Any], Any]


_KNOWN: dict[str, Function] = {}


def function_of(node: Opaque) -> Function:
    """The function that made ``node``."""
    return _KNOWN[node.sql]


def _strict(truth: Callable[[Any], bool]) -> Callable[[Any], bool | None]:
    return lambda value: None if value is None else truth(value)


def _length(text: str) -> int:
    if not is_text(text):
        raise NotModelled("the length of bytes that are not UTF-8")
    return len(text)


def function(rng: np.random.Generator, path: tuple[str, ...], type: pa.DataType) -> Opaque | None:
    """A random function of the column, or ``None`` where there is none for its type."""
    t, column = pa.types, column_sql(path)
    n = int(rng.integers(0, 5))
    forms: list[tuple[str, Callable[[Any], Any]]] = [
        (f"({column} IS NULL) = TRUE", lambda v: v is None),
        (f"CASE WHEN {column} IS NULL THEN TRUE ELSE FALSE END", lambda v: v is None),
    ]
    if t.is_string(type):
        forms += [
            (f"length({column}) > {n}", _strict(lambda v: _length(v) > n)),
            (f"coalesce({column}, 'a') = 'a'", lambda v: v is None or v == "a"),
            (f"{column} || 'x' = 'ax'", _strict(lambda v: v == "a")),
        ]
    if t.is_integer(type):
        forms += [
            (f"pmod(CAST({column} AS BIGINT), 3) = 1", _strict(lambda v: v % 3 == 1)),
            (f"coalesce({column}, {n}) = {n}", lambda v: v is None or v == n),
        ]
    if t.is_floating(type):
        forms.append((f"isnan({column})", lambda v: v is not None and v != v))
    sql, truth = pick(rng, forms)
    _KNOWN[sql] = Function(path, sql, truth)
    return Opaque(sql, "a function")
