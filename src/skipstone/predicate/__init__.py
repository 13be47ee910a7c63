"""Predicates: one tree for SQL text, Spark's filters and DNF tuples.

``parse_sql`` / ``from_dnf`` (or ``spark/``, from Catalyst) give an unbound ``Expr``; ``bind``
resolves columns against a schema, brings every literal into its column's stored domain, pushes NOT
to the leaves, and gives a bound tree of ``And``, ``Or``, ``Leaf``, ``Const`` and ``Opaque``.

The trees are imported eagerly. Modules that need Arrow or NumPy load on first use of a name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .tree import (
    And,
    Bound,
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
    leaves,
)

if TYPE_CHECKING:
    from .binding import bind
    from .dnf import from_dnf
    from .literals import Key, Keys, compare, isin, order_key, order_keys, stored, to_domain
    from .operands import resolve
    from .preimage import exact_cast
    from .render import to_sql
    from .sql import parse_sql
    from .text import Value, display
    from .types import (
        Kind,
        column_name,
        column_path,
        indexable,
        kind_of,
        schema_from_spark,
        spark_name,
        spark_type,
    )

__all__ = [
    "And",
    "Bound",
    "Cast",
    "ColumnRef",
    "Comparison",
    "Const",
    "Expr",
    "Key",
    "Keys",
    "Kind",
    "Leaf",
    "Literal",
    "Membership",
    "Not",
    "NullTest",
    "Op",
    "Opaque",
    "Operand",
    "Or",
    "PatternMatch",
    "Truth",
    "Value",
    "bind",
    "column_name",
    "column_path",
    "compare",
    "display",
    "exact_cast",
    "from_dnf",
    "indexable",
    "isin",
    "kind_of",
    "leaves",
    "order_key",
    "order_keys",
    "parse_sql",
    "resolve",
    "schema_from_spark",
    "spark_name",
    "spark_type",
    "stored",
    "to_domain",
    "to_sql",
]

_LATE = {
    "binding": ("bind",),
    "dnf": ("from_dnf",),
    "literals": (
        "Key",
        "Keys",
        "compare",
        "isin",
        "order_key",
        "order_keys",
        "stored",
        "to_domain",
    ),
    "operands": ("resolve",),
    "preimage": ("exact_cast",),
    "render": ("to_sql",),
    "sql": ("parse_sql",),
    "text": ("Value", "display"),
    "types": (
        "Kind",
        "column_name",
        "column_path",
        "indexable",
        "kind_of",
        "schema_from_spark",
        "spark_name",
        "spark_type",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATE.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
