"""The cases that Paimon's own classes wrote, their values, and what is true of their queries."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.paimon.format.column_keys import KeyColumn, key_of
from skipstone.paimon.format.keys import In, KeyArray, PaimonType, Root
from skipstone.paimon.format.partial_blob import MissingBytes, Pieces
from skipstone.paimon.index_blob import answer
from skipstone.paimon.sidecar import PaimonColumnType
from skipstone.predicate.tree import And, Leaf, Op, Or

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skipstone.paimon.format.keys import Ask, Key
    from skipstone.paimon.format.partial_blob import BlobSpan
    from skipstone.paimon.index_blob import RowAnswer


def read_cases(golden: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All cases that have an index, and the hash vectors."""
    with gzip.open(golden / "paimon" / "cases.jsonl.gz") as lines:
        cases = [json.loads(line) for line in lines]
    return [case for case in cases if "index_hex" in case], cases[-1]["vectors"]


def key(type: PaimonType, value: Any) -> Key:
    """A value of the cases as a key."""
    if type.is_float:
        return key_of(type, float(value))
    if type.root is Root.DECIMAL:
        return key_of(type, int(Decimal(value).scaleb(type.scale)))
    if type.is_timestamp:
        return key_of(type, value[0] * 1_000 + value[1] // 1_000)
    return key_of(type, bytes.fromhex(value) if type.is_binary else value)


def column(type: PaimonType, values: list[Any]) -> KeyColumn:
    """A column of the cases."""
    rows = [row for row, value in enumerate(values) if value is not None]
    keys = KeyArray.of(type, [key(type, values[row]) for row in rows])
    return KeyColumn(len(values), np.array(rows, np.uint32), keys)


def bytes_of(size: str) -> int:
    """``16 kb`` in bytes."""
    number, unit = size.split()
    return int(number) * {"b": 1, "kb": 1 << 10, "mb": 1 << 20}[unit]


def rows_of_runs(runs: list[list[int]]) -> set[int]:
    """The rows of an answer."""
    return {row for first, last in runs for row in range(first, last + 1)}


def speaks(kind: str, ask: Ask) -> bool:
    """Whether an index of this kind can answer such a question."""
    return kind != "bloom-filter" or isinstance(ask, In)


def needs(kind: str, type: PaimonType, ask: Ask, pieces: Pieces) -> tuple[BlobSpan, ...]:
    """The missing spans for an answer: all that are known now."""
    try:
        answer(kind, type, ask, pieces)
    except MissingBytes as missing:
        return missing.spans
    return ()


def _is_text(type: PaimonType) -> bool:
    return type.root in (Root.CHAR, Root.VARCHAR)


def ask_in_waves(
    kind: str, type: PaimonType, ask: Ask, blob: bytes
) -> tuple[RowAnswer, list[BlobSpan]]:
    """The answer, from an index of which only the bytes asked for are ever there."""
    read: list[BlobSpan] = []
    while True:
        parts = [(span.offset, blob[span.offset : span.offset + span.length]) for span in read]
        pieces = Pieces(len(blob), parts)
        missing = needs(kind, type, ask, pieces)
        if not missing:
            return answer(kind, type, ask, pieces), read
        assert not set(missing) <= set(read), "asks for what it has"
        read += missing


def _comparable(type: PaimonType, value: Any) -> Any:
    """Orders and equals as SQL compares: NaN is the largest and equals itself, zeros are equal."""
    if type.is_float:
        number = float(value)
        if type.root is Root.FLOAT:
            number = float(np.float32(number))
        return (1, 0.0) if math.isnan(number) else (0, number + 0.0)
    if type.root is Root.DECIMAL:
        return Decimal(value)
    if type.is_timestamp:
        return value[0] * 1_000_000 + value[1]
    if type.is_binary:
        return bytes.fromhex(value)
    return value.encode() if _is_text(type) else value


def truth(where: dict[str, Any], types: dict[str, PaimonType], columns: dict[str, Any]) -> set[int]:
    """The rows that match, by brute force over the values."""
    op = where["op"]
    if op in ("and", "or"):
        parts = [truth(child, types, columns) for child in where["children"]]
        return set.intersection(*parts) if op == "and" else set.union(*parts)
    type, values = types[where["field"]], columns[where["field"]]
    nulls = {row for row, value in enumerate(values) if value is None}
    rest = set(range(len(values))) - nulls
    if op in ("is_null", "is_not_null"):
        return nulls if op == "is_null" else rest
    literals = where.get("values", [where.get("value")])
    if op == "is_nan":
        return {row for row in rest if math.isnan(float(values[row]))}
    if any(literal is None for literal in literals):
        literals = [literal for literal in literals if literal is not None]
        if op != "in":
            return set()
    test = _test(op, [_comparable(type, literal) for literal in literals])
    return {row for row in rest if test(_comparable(type, values[row]))}


def _test(op: str, literals: list[Any]) -> Callable[[Any], bool]:
    first = literals[0] if literals else None
    last = literals[-1] if literals else None
    tests: dict[str, Callable[[Any], bool]] = {
        "eq": lambda v: v == first,
        "ne": lambda v: v != first,
        "lt": lambda v: v < first,
        "le": lambda v: v <= first,
        "gt": lambda v: v > first,
        "ge": lambda v: v >= first,
        "in": lambda v: v in literals,
        "not_in": lambda v: v not in literals,
        "between": lambda v: first <= v <= last,
        "not_between": lambda v: not first <= v <= last,
        "starts_with": lambda v: v.startswith(first),
        "ends_with": lambda v: v.endswith(first),
        "contains": lambda v: first in v,
        "like": lambda v: _like(v, first),
    }
    return tests[op]


def _like(value: bytes, pattern: Any) -> bool:
    middle = pattern.strip(b"%")
    if pattern.startswith(b"%"):
        return middle in value if pattern.endswith(b"%") else value.endswith(middle)
    return value.startswith(middle) if pattern.endswith(b"%") else value == middle


_OPS = {
    "eq": Op.EQ,
    "ne": Op.NE,
    "lt": Op.LT,
    "le": Op.LE,
    "gt": Op.GT,
    "ge": Op.GE,
    "in": Op.IN,
    "not_in": Op.NOT_IN,
    "is_null": Op.IS_NULL,
    "is_not_null": Op.NOT_NULL,
    "starts_with": Op.STARTS_WITH,
}


def value(type: PaimonType, literal: Any) -> Any:
    """A value of the cases in the domain of predicates."""
    if type.is_float:
        return float(np.float32(literal)) if type.root is Root.FLOAT else float(literal)
    found = key(type, literal)
    if type.is_timestamp and type.in_millis:
        assert isinstance(found, int)
        return literal[0] * 1_000 + literal[1] // 1_000
    return literal if _is_text(type) else bool(found) if type.root is Root.BOOLEAN else found


def tree(where: dict[str, Any], types: dict[str, PaimonType]) -> Any:
    """A query of the cases as a bound tree; ``None`` for one that is no leaf of ours."""
    op = where["op"]
    if op in ("and", "or"):
        parts = [tree(child, types) for child in where["children"]]
        if None in parts:
            return None
        return (And if op == "and" else Or)(tuple(parts))
    type = types[where["field"]]
    stored = PaimonColumnType.of_paimon(type).stored
    literals = where.get("values", [where["value"]] if "value" in where else [])
    if stored is None or None in literals:
        return None
    name = where["field"]
    values = tuple(value(type, literal) for literal in literals)
    if op == "is_nan":
        return Leaf(name, stored, Op.EQ, (math.nan,))
    if op == "starts_with":
        if type.is_binary:
            return None
        return Leaf(name, stored, Op.STARTS_WITH, values)
    if op in ("between", "not_between"):
        sides = (Op.GE, Op.LE) if op == "between" else (Op.LT, Op.GT)
        leaves = tuple(
            Leaf(name, stored, side, (each,)) for side, each in zip(sides, values, strict=True)
        )
        return And(leaves) if op == "between" else Or(leaves)
    if op not in _OPS or (op in ("in", "not_in") and not values):
        return None
    return Leaf(name, stored, _OPS[op], values)
