"""A pruner that knows every row: it keeps exactly the files of the facts in which a row matches."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Const,
    Literal,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
)
from skipstone.spark.relation import Pruner, Pruning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Expr
    from skipstone.spark.relation import FileListing, FileStats, ReadSettings, RelationInfo


class Unknown(Exception):
    """The tree asks something that only Spark can answer."""


def plain(value: Any, type: pa.DataType) -> Any:
    """A Python value in its stored domain."""
    if value is None:
        return None
    if pa.types.is_struct(type):
        return {field.name: plain(value[field.name], field.type) for field in type}
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        unit = pa.int32() if pa.types.is_date(type) else pa.int64()
        exact = type if pa.types.is_date(type) else pa.timestamp("us", type.tz)
        return pa.scalar(value, exact).cast(unit).as_py()
    if pa.types.is_decimal(type):
        return int(value.scaleb(type.scale))
    return value


def operand(node: Any, row: dict[str, Any]) -> Any:
    """The value of an operand in a row."""
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, ColumnRef):
        value: Any = row
        for part in node.path:
            if value is None:
                return None
            if part not in value:
                raise Unknown(part)
            value = value[part]
        return value
    raise Unknown(str(node))


def order(value: Any) -> Any:
    """A key in Spark's order: NaN equals NaN and is the largest."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return (0, value)
    return value


def compare(op: str, left: Any, right: Any) -> bool | None:
    """A comparison with SQL's NULL."""
    if op == "<=>":
        if left is None or right is None:
            return left is right
        return bool(order(left) == order(right))
    if left is None or right is None:
        return None
    a, b = order(left), order(right)
    return bool({"=": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op])


def like(pattern: str, escape: str) -> re.Pattern[str]:
    """The regular expression of a LIKE pattern."""
    out, i = "", 0
    while i < len(pattern):
        if pattern[i] == escape and i + 1 < len(pattern):
            i += 1
            out += re.escape(pattern[i])
        else:
            out += {"%": ".*", "_": "."}.get(pattern[i], re.escape(pattern[i]))
        i += 1
    return re.compile(out, re.DOTALL)


def truth(tree: Any, row: dict[str, Any]) -> bool | None:
    """The predicate in a row: TRUE, FALSE or NULL."""
    match tree:
        case Const(value):
            return value
        case And(children) | Or(children):
            kind = isinstance(tree, Or)
            values = []
            unknown = False
            for child in children:
                try:
                    values.append(truth(child, row))
                except Unknown:
                    unknown = True
            if kind in values:
                return kind
            if unknown:
                raise Unknown
            return None if None in values else not kind
        case Not(child):
            inner = truth(child, row)
            return None if inner is None else not inner
        case Comparison(op, left, right):
            return compare(op, operand(left, row), operand(right, row))
        case Membership(left, values):
            value = operand(left, row)
            if value is None:
                return None
            listed = [
                plain(item, values.type) if isinstance(values, pa.Array) else item.value
                for item in (values.to_pylist() if isinstance(values, pa.Array) else values)
            ]
            if any(compare("=", value, item) for item in listed):
                return True
            return None if None in listed else False
        case NullTest(left):
            return operand(left, row) is None
        case Truth(left):
            flag = operand(left, row)
            return None if flag is None else bool(flag)
        case PatternMatch(left, pattern, escape, prefix_only):
            text = operand(left, row)
            if text is None:
                return None
            if prefix_only:
                return bool(text.startswith(pattern))
            return like(pattern, escape).fullmatch(text) is not None
        case Opaque() | Cast() | _:
            raise Unknown


def may_match(tree: Expr, rows: Iterable[dict[str, Any]]) -> bool:
    """Whether a row may match."""
    for row in rows:
        try:
            if truth(tree, row):
                return True
        except Unknown:
            return True
    return False


@dataclass
class FakePruner(Pruner):
    """Facts are taken from the files when it is made; ``asked`` remembers the predicates."""

    root: Path
    asked: list[Any] = field(default_factory=list)
    settings: list[ReadSettings] = field(default_factory=list)
    matches: int = 0
    fail: str | None = None
    facts: dict[str, tuple[int, int, list[dict[str, Any]]]] = field(default_factory=dict)
    inodes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Read every file anew."""
        for path in self.root.rglob("*.parquet"):
            now = path.stat()
            table = pq.ParquetFile(path).read()
            rows = [
                {f.name: plain(row[f.name], f.type) for f in table.schema}
                for row in table.to_pylist()
            ]
            self.facts[str(path)] = (now.st_size, now.st_mtime_ns // 10**6, rows)
            self.inodes[str(path)] = (now.st_ino, now.st_ctime_ns)

    def match(self, listing: FileListing) -> object:
        self.matches += 1
        if self.fail == "match":
            raise RuntimeError("no match today")
        found = []
        triples = zip(listing.paths, listing.sizes, listing.mtimes, strict=True)
        for path, size, mtime in triples:
            fact = self.facts.get(path)
            fresh = fact is not None and fact[:2] == (int(size), int(mtime))
            found.append((path, fact[2] if fact is not None and fresh else None))
        return found

    def prune(self, matched: Any, predicate: Expr, settings: ReadSettings) -> Pruning:
        self.asked.append(predicate)
        self.settings.append(settings)
        if self.fail == "prune":
            raise RuntimeError("no pruning today")
        keep = [rows is None or may_match(predicate, rows) for _, rows in matched]
        return Pruning(keep=np.array(keep, np.bool_), report=None)

    def still_valid(
        self, matched: Any, indices: NDArray[np.int64], now: FileStats | None
    ) -> NDArray[np.bool_]:
        if self.fail == "still_valid":
            raise RuntimeError("no check today")
        assert now is not None
        known = [self.inodes[matched[i][0]] for i in indices.tolist()]
        got = zip(now.inode.tolist(), now.ctime.tolist(), strict=True)
        return np.array([a == b for a, b in zip(known, got, strict=True)], np.bool_)


@dataclass
class Finder:
    """Finds a pruner for every relation with a root in or above its folder."""

    pruners: dict[str, FakePruner]
    seen: list[RelationInfo] = field(default_factory=list)

    def __call__(self, relation: RelationInfo) -> FakePruner | None:
        self.seen.append(relation)
        for root in relation.roots:
            for folder in (Path(root), *Path(root).parents):
                if str(folder) in self.pruners:
                    return self.pruners[str(folder)]
        return None


def finder(*roots: Path) -> Finder:
    """A finder with a new pruner for each folder."""
    return Finder({str(root): FakePruner(root) for root in roots})
