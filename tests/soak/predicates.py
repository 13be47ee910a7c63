"""Random conditions over the columns of a table, up to four levels deep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.predicate.render import to_sql
from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Literal,
    Membership,
    Not,
    NullTest,
    Or,
    PatternMatch,
    Truth,
)
from tests import strategies
from tests.soak.functions import function
from tests.soak.values import chance, is_text, pick, value
from tests.strategies import TIMESTAMP, TIMESTAMP_NTZ, exact_decimal

if TYPE_CHECKING:
    import numpy as np

    from skipstone.predicate.tree import Expr
    from tests.soak.shape import Shape
    from tests.soak.truth import RowsInMemory

DAY = 86_400_000_000
ZONES = ("UTC", "Europe/Berlin", "Pacific/Apia", "America/New_York")

_CASTS: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int64(), pa.decimal128(5, 1), pa.float64(), pa.float32()),
    pa.int16(): (pa.int32(), pa.decimal128(10, 2), pa.float64(), pa.float32()),
    pa.int32(): (pa.int64(), pa.decimal128(12, 2), pa.float64(), pa.float32()),
    pa.int64(): (pa.decimal128(20, 0), pa.decimal128(38, 10), pa.float64(), pa.float32()),
    pa.float32(): (pa.float64(),),
    pa.decimal128(5, 2): (pa.decimal128(7, 3), pa.float64()),
    pa.date32(): (TIMESTAMP, TIMESTAMP_NTZ),
    TIMESTAMP: (pa.date32(), TIMESTAMP_NTZ),
    TIMESTAMP_NTZ: (pa.date32(), TIMESTAMP),
}


@dataclass(frozen=True)
class Predicate:
    """A condition, the zone that it is asked in, and the features that it uses."""

    tree: Expr
    zone: str
    used: frozenset[str]

    @property
    def sql(self) -> str:
        return to_sql(self.tree)

    @property
    def has_function(self) -> bool:
        return "functions" in self.used


class Conditions:
    """Draws predicates over the rows of a table; ``exact`` spells columns as it does."""

    def __init__(
        self, rng: np.random.Generator, shape: Shape, rows: RowsInMemory, *, exact: bool = False
    ) -> None:
        self.rng, self.shape, self.rows, self.exact = rng, shape, rows, exact
        self.columns = leaf_columns(rows.table.schema)
        self.used: set[str] = set()

    def predicate(self) -> Predicate:
        self.used = set()
        zone = "UTC"
        if self.shape.has("zones") and chance(self.rng, 0.25):
            zone = pick(self.rng, ZONES[1:])
            self.used.add("zones")
        tree = self.tree(int(self.rng.integers(0, 5)))
        return Predicate(tree, zone, frozenset(self.used))

    def tree(self, depth: int) -> Expr:
        rng = self.rng
        if depth == 0 or chance(rng, 0.3):
            return self.leaf()
        if chance(rng, 0.2):
            return Not(self.tree(depth - 1))
        children = tuple(self.tree(depth - 1) for _ in range(int(rng.integers(2, 4))))
        return And(children) if chance(rng, 0.5) else Or(children)

    def leaf(self) -> Expr:
        rng = self.rng
        path, type = pick(rng, self.columns)
        spelled = path
        if not self.exact and chance(rng, 0.1):
            spelled = tuple(part.upper() for part in path if part.isascii()) or path
            spelled = spelled if len(spelled) == len(path) else path
        if self.shape.has("functions") and chance(rng, 0.02):
            found = function(rng, path, type)
            if found is not None:
                self.used.add("functions")
                return found
        operand: Any = ColumnRef(spelled)
        given = type
        forms = ["compare"] * 5 + ["in", "in", "null", "between"]
        if pa.types.is_boolean(type):
            forms += ["truth"] * 3
        if pa.types.is_string(type):
            forms += ["like", "like", "prefix"]
        form = pick(rng, forms)
        if self.shape.has("casts") and type in _CASTS and chance(rng, 0.1):
            given = pick(rng, _CASTS[type])
            operand = Cast(operand, given)
            self.used.add("casts")
        match form:
            case "compare":
                sides = [operand, self.literal(path, type, given)]
                if chance(rng, 0.3):
                    sides.reverse()
                op = pick(rng, ("=", "=", "<>", "<", "<=", ">", ">=", "<=>"))
                return Comparison(op, *sides)
            case "in":
                many = int(rng.integers(1, 5))
                values = tuple(self.literal(path, type, given) for _ in range(many))
                return Membership(operand, values)
            case "null":
                test = NullTest(operand)
                return test if chance(rng, 0.5) else Not(test)
            case "between":
                low, high = (self.literal(path, type, given) for _ in range(2))
                return And((Comparison(">=", operand, low), Comparison("<=", operand, high)))
            case "truth":
                return Truth(ColumnRef(spelled))
        return self.pattern(path, ColumnRef(spelled), prefix=form == "prefix")

    def pattern(self, path: tuple[str, ...], column: ColumnRef, *, prefix: bool) -> Expr:
        text = str(self.present(path, pa.string()))
        cut = text[: int(self.rng.integers(0, len(text) + 1))]
        if prefix:
            return PatternMatch(column, cut, prefix_only=True)
        plain = "".join("\\" + c if c in "%_\\" else c for c in cut)
        begin, end = pick(self.rng, ("", "", "%", "_%")), pick(self.rng, ("%", "", "_", "%_"))
        return PatternMatch(column, f"{begin}{plain}{end}")

    # -- literals ----------------------------------------------------------------------------------

    def present(self, path: tuple[str, ...], type: pa.DataType) -> Any:
        """Mostly a value that the column has, as ``values.value`` draws them."""
        if chance(self.rng, 0.75):
            found = [x for x in self.rows.values(path).distinct if x is not None]
            if pa.types.is_string(type):
                found = [x for x in found if is_text(x)]  # SQL has no other literals
            if found:
                each = pick(self.rng, found)
                if pa.types.is_decimal(type):
                    return exact_decimal(int(each * 10**type.scale), type.scale)
                is_number = pa.types.is_integer(type) or pa.types.is_temporal(type)
                return int(each) if is_number else each
        return value(self.rng, self.shape, type)

    def literal(self, path: tuple[str, ...], type: pa.DataType, given: pa.DataType) -> Literal:
        """A literal to compare the column, or its cast to ``given``, with."""
        if given != type and (chance(self.rng, 0.5) or pa.types.is_date(type)):
            return self.own(value(self.rng, self.shape, given), given)
        drawn = self.present(path, type)
        if self.shape.has("other_literals") and chance(self.rng, 0.3):
            self.used.add("other_literals")
            return self.other(drawn, type)
        return self.own(drawn, type)

    def own(self, drawn: Any, type: pa.DataType) -> Literal:
        """A literal of the column's type, sometimes a value beside it."""
        t, rng = pa.types, self.rng
        if t.is_integer(type):
            if chance(rng, 0.3):
                return Literal(drawn + int(rng.integers(-1, 2)))
            return Literal(drawn, type)
        if t.is_decimal(type):
            return Literal(unscaled(drawn), type)
        return Literal(drawn, type)

    def other(self, drawn: Any, type: pa.DataType) -> Literal:
        """A literal of a type that Spark lets the column meet."""
        t, rng = pa.types, self.rng
        found: list[Literal] = [Literal(None)]
        if t.is_boolean(type):
            found.append(Literal(str(drawn).lower(), pa.string()))
        elif t.is_integer(type):
            found += [
                Literal(Decimal(drawn) + Decimal("0.5")),
                Literal(Decimal(drawn)),
                Literal(float(drawn)),
                Literal(drawn + 0.5),
                Literal(str(drawn), pa.string()),
            ]
        elif t.is_floating(type):
            found += [
                Literal(drawn),
                Literal(math.nextafter(drawn, math.inf)),
                Literal(int(rng.integers(-3, 4))),
                Literal(Decimal(pick(rng, ("0.1", "0.25", "-1.50")))),
                Literal(repr(drawn), pa.string()),
            ]
        elif t.is_decimal(type):
            found += [
                Literal(drawn),
                Literal(int(rng.integers(-3, 4))),
                Literal(Decimal(pick(rng, ("0.1", "0.005", "-1.5", "1e0")))),
                Literal(float(drawn)),
                Literal(str(drawn), pa.string()),
            ]
        elif t.is_date(type):
            day = date(1970, 1, 1) + timedelta(days=drawn)
            found += [
                Literal(day),
                Literal(day.isoformat(), pa.string()),
                Literal(drawn * DAY, TIMESTAMP_NTZ),
                Literal(drawn * DAY - 1, TIMESTAMP_NTZ),
                Literal(drawn * DAY, TIMESTAMP),
                Literal(f"{day.isoformat()} 02:30:00", TIMESTAMP),
            ]
        elif t.is_timestamp(type):
            at = datetime(1970, 1, 1) + timedelta(microseconds=drawn)
            found += [
                Literal(at.replace(tzinfo=UTC) if type.tz else at),
                Literal(at.isoformat(" "), pa.string()),
                Literal(at.isoformat(" "), TIMESTAMP),
                Literal(f"{at.isoformat(' ')}+02:00", TIMESTAMP),
                Literal(drawn // DAY, pa.date32()),
                Literal(at),
            ]
        elif t.is_string(type) or t.is_binary(type):
            found.append(Literal(drawn))
        return found[int(rng.integers(len(found)))]


def unscaled(number: Decimal) -> int:
    sign, digits, _ = number.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def leaf_columns(schema: pa.Schema) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """The columns that predicates may name: no structs, no lists."""
    every = strategies.leaf_columns(schema)
    return [(path, type) for path, type in every if not pa.types.is_nested(type)]
