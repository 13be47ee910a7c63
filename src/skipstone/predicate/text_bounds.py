"""What a condition on a function of a text implies for the text itself.

| condition | leaves on the column c | |
|---|---|---|
| ``substr(c, 1, n) = 'x'``, ``left`` | begins with x of n characters, c = x of fewer | exact |
| ``substr(c, 1, n) < 'x'`` and others, x of at most n characters | c < x | exact |
| ``upper(c) = 'X'``, ``lower``, ``ILIKE`` | c is one of the spellings of X | exact |
| the same, of many spellings | c begins with one of the spellings of its beginning | implied |
| ``'a' || c = 'abc'`` | c = 'bc' | exact |
| ``c RLIKE '^abc'``, ``c RLIKE 'abc'`` | begins with, contains abc | exact |
| ``c RLIKE '^abc[0-9]'`` | begins with abc | implied |
| ``c RLIKE '[ab]cd+(ef|gh)'`` | c LIKE '%cd%ef%' or '%cd%gh%' | implied |
| ``c ILIKE '%x%'``, ``lower(c) LIKE '%x%'``, ``c RLIKE '(?i)x'`` | lower(c) LIKE '%x%' | implied |

Why ``substr(c, 1, n) < x``, for x of at most n characters: texts are compared as their UTF-8 bytes,
from the left. If c and x differ within the first n characters, the cut text differs there too. If
they do not, x is the beginning of both, and neither is smaller than x.

Spellings: if the upper case of a text is ASCII, so is that of each character, because upper case
does not depend on neighbours. Lower case does for one Greek letter, but that is not ASCII. Later
versions of Unicode do not change that for ASCII.

An implied leaf is TRUE wherever the condition is. ``condition AND implied`` has the same rows as
the condition, so indexes answer the leaf, and the condition is computed on the remaining rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from .equivalents import complement
from .operands import literal_prefix, plain_pattern
from .tree import FLIPPED, Bound, Const, Leaf, Op, conjunction, disjunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from .typed import Typed

# The most spellings that are listed, and the most beginnings of longer texts.
_MOST, _MOST_PREFIXES = 64, 16
# Characters from this one on have no case.
_CASELESS = 0x1E944


def bounds_of(typed: Typed, value: bool) -> tuple[Bound, bool] | None:
    """The rows for which a boolean expression has this value, and whether that is exact; else it is
    a superset. ``None`` if nothing is known."""
    match typed.kernel:
        case "not":
            return bounds_of(typed.args[0], not value)
        case "compare":
            left, right = typed.args
            op = typed.value
            if left.is_constant:
                left, right, op = right, left, FLIPPED[op]
            if not right.is_constant:
                return None
            listed = [right.value]
        case "in":
            (left,), op = typed.args, "IN"
            listed, has_null = typed.value
            if has_null and not value:
                return Const(False), True
        case "like" | "rlike" | "startswith":
            left, op, listed = typed.args[0], typed.kernel, [typed.value]
        case _:
            return None
    column = _column(left)
    if column is None:
        return None
    parts = [_known(left, op, each, column) for each in listed]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(each is None for each in listed):
        return None
    found, exact = disjunction([part for part, _ in known]), all(sure for _, sure in known)
    not_null = Leaf(column.column, column.type, Op.NOT_NULL)
    if value ^ (op == "<>"):
        return found, exact
    if not exact:
        return None
    rest = complement(found)
    return (rest if op == "<=>" else conjunction([not_null, rest])), True


def _column(typed: Typed) -> Leaf | None:
    """The only column of a function, for leaves; ``None`` if it has none or several."""
    found = [arg for arg in (typed, *typed.args) if arg.kernel == "column"]
    others = [arg for arg in typed.args if not arg.is_constant and arg.kernel != "column"]
    if len(found) != 1 or others or found[0].type != pa.string():
        return None
    return Leaf(str(found[0].value), found[0].type, Op.NOT_NULL)


def _known(typed: Typed, op: str, value: object, column: Leaf) -> tuple[Bound, bool] | None:
    """The rows for which the condition holds (of ``<>``: those of ``=``)."""

    def leaf(op: Op, *values: str) -> Leaf:
        return Leaf(column.column, column.type, op, values)

    if op == "rlike":
        return _regex(typed, value, leaf)
    if typed.kernel in ("upper", "lower"):
        return _cased(typed.kernel, op, value, leaf)
    if not isinstance(value, str):
        return None
    equal = op in ("=", "<=>", "<>", "IN")
    if typed.kernel == "substring":
        place, count = typed.value
        if place not in (0, 1) or count is None or count <= 0:
            return None
        same: Bound = leaf(Op.STARTS_WITH, value) if len(value) == count else leaf(Op.EQ, value)
        if len(value) > count:
            same = Const(False)
        if equal:
            return same, True
        if len(value) > count or op not in ("<", "<=", ">", ">="):
            return None
        below, above = leaf(Op.LT, value), leaf(Op.GE, value)
        if op in ("<", ">="):
            return (below if op == "<" else above), True
        if op == "<=":
            return disjunction([below, same]), True
        return conjunction([above, complement(same)]), True
    if typed.kernel == "concat" and equal and all(arg.value is not None for arg in typed.args):
        at = next(n for n, arg in enumerate(typed.args) if not arg.is_constant)
        before = "".join(arg.value for arg in typed.args[:at])
        after = "".join(arg.value for arg in typed.args[at + 1 :])
        middle = value[len(before) : len(value) - len(after)]
        return (leaf(Op.EQ, middle) if before + middle + after == value else Const(False)), True
    return None


def _regex(typed: Typed, value: object, leaf: Callable[..., Leaf]) -> tuple[Bound, bool] | None:
    from .kernels.java_regex import JavaRegex
    from .kernels.text import unsettled

    assert isinstance(value, JavaRegex)
    if typed.kernel not in ("column", "lower"):
        return None
    exact = value.exact and typed.kernel == "column" and "\ufffd" not in value.prefix
    if exact and not value.prefix:
        return leaf(Op.NOT_NULL), True
    lower = ("lower",) if value.any_case or typed.kernel == "lower" else ()
    if lower and unsettled("".join(text for texts in value.alternatives for text in texts)):
        return None
    patterns: list[Bound] = []
    for texts in value.alternatives:
        if not texts or any("\ud800" <= char <= "\udfff" for text in texts for char in text):
            return None
        # The characters of the prefix are those next to the anchor.
        begins = value.anchored and value.prefix and not lower
        begins = bool(begins) and texts[0].startswith(value.prefix)
        rest = texts[1:] if begins else texts
        parts: list[Bound] = [leaf(Op.STARTS_WITH, texts[0])] if begins else []
        if rest:
            pattern = "".join(f"%{plain_pattern(text)}" for text in rest)
            parts.append(leaf(Op.LIKE, f"{pattern}%", "\\", "", *lower))
        patterns.append(conjunction(parts))
    return disjunction(patterns), exact


def _cased(
    kernel: str, op: str, value: object, leaf: Callable[..., Leaf]
) -> tuple[Bound, bool] | None:
    """Of ``upper(c)`` and ``lower(c)``."""
    whole, prefix, exact = False, "", True
    also: list[Bound] = []
    if op == "like" and kernel == "lower":
        from .kernels.text import unsettled

        assert isinstance(value, tuple)
        also = [] if unsettled("".join(value)) else [leaf(Op.LIKE, *value, "", "lower")]
    if op == "like":
        assert isinstance(value, tuple)
        prefix, exact, whole = literal_prefix(*value)
    elif op == "startswith" and isinstance(value, bytes):
        prefix = value.decode("utf-8", "replace")
    elif op in ("=", "<=>", "<>", "IN") and isinstance(value, str):
        prefix, whole = value, True
    if whole:
        found = _spellings(kernel, prefix, True, _MOST) if prefix.isascii() else None
        if found is not None:
            if not found:
                return Const(False), True
            return leaf(Op.IN if len(found) > 1 else Op.EQ, *found), True
        exact = False
    size = len(prefix)
    while size:
        cut = prefix[:size]
        found = _spellings(kernel, cut, False, _MOST_PREFIXES) if cut.isascii() else None
        if found is not None:
            begins = disjunction([leaf(Op.STARTS_WITH, each) for each in found])
            if exact and not whole and size == len(prefix):
                return begins, True
            return conjunction([begins, *also]), False
        size -= 1
    return (also[0], False) if also else None


def _spellings(kernel: str, text: str, whole: bool, most: int) -> list[str] | None:
    """All texts whose case is ``text``; unless ``whole``, the shortest texts whose case begins with
    it. ``None`` if there are more than ``most``."""
    images, found = _images(kernel), list[str]()
    stack = [("", 0)]
    while stack:
        begun, at = stack.pop()
        if len(found) + len(stack) > most:
            return None
        if at == len(text):
            found.append(begun)
            continue
        rest = text[at:]
        for char, image in images.get(rest[0], ()):
            if rest.startswith(image):
                stack.append((begun + char, at + len(image)))
            elif not whole and image.startswith(rest):
                found.append(begun + char)
    return sorted(found)


@lru_cache(maxsize=2)
def _images(kernel: str) -> dict[str, list[tuple[str, str]]]:
    """Characters with their upper or lower case, by its first character, which is ASCII."""
    found: dict[str, list[tuple[str, str]]] = {}
    for code in range(_CASELESS):
        char = chr(code)
        image = char.upper() if kernel == "upper" else char.lower()
        if image[0] < "\x80":
            found.setdefault(image[0], []).append((char, image))
    return found
