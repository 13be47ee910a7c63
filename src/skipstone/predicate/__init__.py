"""Predicates: one tree for SQL text, Spark's filters and DNF tuples.

``sql.parse_sql`` and ``dnf.from_dnf`` (and ``spark/``, from Catalyst) return an unbound ``Expr``.
``binding.bind`` resolves its columns against a schema, casts every literal to its column's stored
domain, pushes NOT to the leaves, and returns a bound tree of ``And``, ``Or``, ``Leaf``, ``Const``
and ``Opaque``. ``tree`` has both trees and loads neither Arrow nor NumPy.
"""
