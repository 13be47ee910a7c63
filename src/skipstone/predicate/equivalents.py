"""Conditions in terms of others that leaves can have, TRUE, FALSE and NULL for the same rows."""

from __future__ import annotations

from .tree import CONDITIONS, Call, Expr, Literal, Not, NullTest, Operand, PatternMatch


def condition_of(operand: Operand) -> Expr | None:
    """A function as the condition that it is, if it is one that leaves can have."""
    if isinstance(operand, CONDITIONS):
        return operand
    if not isinstance(operand, Call):
        return None
    match operand.name, operand.args:
        case ("startswith" | "endswith" | "contains") as name, (value, Literal(str() as text)):
            if name == "startswith":
                return PatternMatch(value, text, prefix_only=True)
            plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            return PatternMatch(value, f"%{plain}%" if name == "contains" else f"%{plain}")
        case "like", (value, Literal(str() as text), Literal(str() as escape)):
            return PatternMatch(value, text, escape)
        case "isnull", (value,):
            return NullTest(value)
        case "isnotnull", (value,):
            return Not(NullTest(value))
    return None
