"""Predicates: one tree for SQL text, Spark's filters and DNF tuples.

``parse_sql`` / ``from_dnf`` (or ``spark/``, from Catalyst) give an unbound ``Expr``; ``bind``
resolves columns against a schema, brings every literal into its column's stored domain, pushes
NOT to the leaves, and gives a bound tree of ``And``, ``Or``, ``Leaf``, ``Const`` and ``Opaque``.
"""
