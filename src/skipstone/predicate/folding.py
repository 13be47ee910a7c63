"""AND and OR of bound trees: flat, without repetitions, constants folded away.

A constant decides alone or not at all; an ``Opaque`` goes only where the rest decides alone.
"""

from __future__ import annotations

from .tree import And, Bound, Const, Expr, Or

__all__ = ["conjunction", "disjunction", "flat"]


def flat(tree: And | Or) -> list[Expr | Bound]:
    """The children, those of nested nodes of the same kind among them, without recursion."""
    out: list[Expr | Bound] = []
    stack: list[Expr | Bound] = [tree]
    while stack:
        node = stack.pop()
        if type(node) is type(tree):
            stack.extend(reversed(node.children))
        else:
            out.append(node)
    return out


def conjunction(children: list[Bound]) -> Bound:
    kept = _distinct(children, And)
    if Const(False) in kept:
        return Const(False)
    kept = [child for child in kept if child != Const(True)]
    if not kept:
        return Const(True)
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def disjunction(children: list[Bound]) -> Bound:
    kept = _distinct(children, Or)
    if Const(True) in kept:
        return Const(True)
    kept = [child for child in kept if child != Const(False)]
    if not kept:
        return Const(False)
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def _distinct(children: list[Bound], joined: type[And] | type[Or]) -> list[Bound]:
    found: dict[Bound, None] = {}
    for child in children:
        for part in child.children if isinstance(child, joined) else (child,):
            found.setdefault(part)  # type: ignore[arg-type]
    return list(found)
