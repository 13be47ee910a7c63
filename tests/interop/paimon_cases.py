"""Columns of every type of Paimon, indexes of every kind over them, and queries: from one seed.

Values are those of JSON that the golden cases of Paimon have (``tests.paimon.format.golden``).
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.paimon.format.keys import PaimonType, Root

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

TEXTS = (Root.CHAR, Root.VARCHAR)
#: types that columns of Parquet files have in containers of ours
WRITTEN = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(9, 2)",
    "DECIMAL(18, 4)",
    "DATE",
    "TIMESTAMP(6)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "STRING",
    "BYTES",
)
#: those that only Paimon writes
FOREIGN = (
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "CHAR(10)",
    "VARCHAR(20)",
    "BINARY(8)",
    "VARBINARY(16)",
)
_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_FLOATS = ("NaN", "Infinity", "-Infinity", "0.0", "-0.0", "1.5", "-2.25", "3.0E10")
_TEXTS = ("", "a", "ab", "Oslo", "Osl", "Å", "é\u0301", "😀x", "zzz", "0", "\x00b")


_PLAIN = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.VARCHAR: pa.string(),
}
_MADE = {
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.DATE: pa.date32(),
    Root.TIMESTAMP: pa.timestamp("us"),
    Root.TIMESTAMP_LTZ: pa.timestamp("us", "UTC"),
    Root.VARBINARY: pa.binary(),
}


def kinds(type: PaimonType) -> list[str]:
    """The kinds of index that Paimon builds over this type."""
    found = []
    if type.root not in (Root.BOOLEAN, Root.DECIMAL):
        found.append("bloom-filter")
    if type.root is not Root.DECIMAL and not type.is_binary:
        found.append("bitmap")
    if not type.is_binary and not (type.is_timestamp and not type.exact):
        found.append("range-bitmap")
    if not (type.is_binary or type.is_float or type.root in (Root.BOOLEAN, *TEXTS)):
        found.append("bsi")
    return found


def options(random: Random, kind: str) -> dict[str, str]:
    """Options of an index, as Paimon spells them."""
    choices: dict[str, list[dict[str, str]]] = {
        "bloom-filter": [{"items": "500", "fpp": "0.02"}, {"items": "40", "fpp": "0.2"}],
        "bitmap": [{}, {"version": "1"}, {"version": "2", "index-block-size": "1kb"}],
        "range-bitmap": [{}, {"chunk-size": "0b"}, {"chunk-size": "1kb"}],
        "bsi": [{}],
    }
    return random.choice(choices[kind])


def value(random: Random, type: PaimonType, spread: int) -> Any:
    """One value; ``spread`` is how many differ, about."""
    n = random.randint(-spread // 2, spread // 2)
    root = type.root
    if root is Root.BOOLEAN:
        return n % 2 == 0
    if root in _BITS:
        top = 2 ** (_BITS[root] - 1) - 1
        # Not the least of 64 bits: its magnitude has no place in a bsi.
        return random.choice([top, -top]) if random.random() < 0.03 else max(-top, min(top, n))
    if type.is_float:
        if random.random() < 0.3:
            return random.choice(_FLOATS)
        return repr(float(np.float32(n / 4)))
    if root is Root.DECIMAL:
        return str(Decimal(n).scaleb(-type.scale))
    if root is Root.DATE:
        return n * 37
    if root is Root.TIME:
        return abs(n) * 997 % 86_400_000
    if type.is_timestamp:
        digits = min(type.precision, 9)
        nanos = random.randrange(4) * 333_333 if digits > 3 else 0
        nanos = nanos // 1_000 * 1_000 if digits <= 6 else nanos
        return [n * (1_000 if digits == 0 else 7), nanos]
    text = random.choice(_TEXTS) if random.random() < 0.2 else f"v{n}"
    if type.is_binary:
        return text.encode()[:8].hex()
    return text


def column(random: Random, type: PaimonType, rows: int) -> list[Any]:
    """Values in no order, in runs, all equal, or all null; with and without nulls."""
    spread = random.choice([1, 3, 20, 400])
    nulls = random.choice([0.0, 0.02, 0.5, 1.0]) if random.random() < 0.6 else 0.1
    if random.random() < 0.3:
        block = random.randint(2, 40)
        each = [value(random, type, spread) for _ in range(rows // block + 1)]
        values = [each[row // block] for row in range(rows)]
    else:
        values = [value(random, type, spread) for _ in range(rows)]
    return [None if random.random() < nulls else found for found in values]


def query(random: Random, types: dict[str, PaimonType], columns: dict[str, list[Any]]) -> Any:
    """A comparison, or two under AND or OR."""
    if random.random() < 0.25:
        children = [query(random, types, columns) for _ in range(2)]
        return {"op": random.choice(["and", "or"]), "children": children}
    name = random.choice(sorted(types))
    type = types[name]
    held = [each for each in columns[name] if each is not None]

    def literal() -> Any:
        if held and random.random() < 0.7:
            return random.choice(held)
        return value(random, type, 500)

    ops = ["eq", "ne", "lt", "le", "gt", "ge", "in", "not_in", "is_null", "is_not_null", "between"]
    op = random.choice([*ops, "starts_with"] if type.root in TEXTS else ops)
    asked: dict[str, Any] = {"field": name, "op": op}
    if op in ("in", "not_in"):
        asked["values"] = [literal() for _ in range(random.choice([1, 3, 25]))]
    elif op == "between":
        asked["values"] = [literal(), literal()]
    elif op not in ("is_null", "is_not_null"):
        asked["value"] = literal()
    return asked


def case(random: Random, name: str, schema: Sequence[str], rows: int) -> dict[str, Any]:
    """A container to be: columns of these types, and for each one to three kinds of index."""
    types = {f"c{i}": PaimonType.parse(text) for i, text in enumerate(schema)}
    indexes: list[dict[str, Any]] = []
    for field, type in types.items():
        possible = kinds(type)
        chosen = random.sample(possible, random.randint(1, min(3, len(possible))))
        indexes += [
            {"column": field, "kind": kind, "options": options(random, kind)} for kind in chosen
        ]
    return {
        "name": name,
        "schema": [{"name": field, "type": str(type)} for field, type in types.items()],
        "indexes": indexes,
        **contents(random, types, rows),
    }


def contents(random: Random, types: dict[str, PaimonType], rows: int) -> dict[str, Any]:
    """Values of the columns, and queries."""
    columns = {field: column(random, type, rows) for field, type in types.items()}
    return {
        "row_count": rows,
        "columns": columns,
        "queries": [query(random, types, columns) for _ in range(25)],
    }


def types_in(case: dict[str, Any]) -> dict[str, PaimonType]:
    """The types of a case's columns."""
    return {field["name"]: PaimonType.parse(field["type"]) for field in case["schema"]}


def arrow(case: dict[str, Any]) -> pa.Table:
    """The values of a case, of types that Parquet files have."""
    types = types_in(case)
    return pa.table({name: _array(types[name], case["columns"][name]) for name in types})


def _array(type: PaimonType, values: list[Any]) -> pa.Array:
    epoch = datetime(1970, 1, 1)
    if type.root in _PLAIN:
        return pa.array(values, _PLAIN[type.root])

    def made(value: Any) -> Any:
        if type.is_float:
            return float(value)
        if type.root is Root.DECIMAL:
            return Decimal(value)
        if type.root is Root.DATE:
            return date(1970, 1, 1) + timedelta(days=value)
        if type.is_timestamp:
            return epoch + timedelta(milliseconds=value[0], microseconds=value[1] // 1_000)
        return bytes.fromhex(value)

    if type.root is Root.DECIMAL:
        stored = pa.decimal128(type.precision, type.scale)
    else:
        stored = _MADE[type.root]
    return pa.array([None if each is None else made(each) for each in values], stored)
