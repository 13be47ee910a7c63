"""Hypothesis strategies that every test shares: tables, predicates over them, ways to lay them out.

The awkward values are always drawn, never filtered out: NaN, both zeros, infinities, nulls,
columns of nulls only, empty tables and files, both instants of 2024-10-27 02:30 in Berlin, the
edges of unsigned and decimal types, strings with ``%``, ``_``, backslashes, quotes, NUL and
characters beyond the BMP, and file names with a blank, ``%``, ``é`` and ``=``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from skipstone.predicate.render import column_sql, to_sql
from skipstone.predicate.tree import (
    And,
    Cast,
    ColumnRef,
    Comparison,
    Expr,
    Literal,
    Membership,
    Not,
    NullTest,
    Or,
    PatternMatch,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMESTAMP, TIMESTAMP_NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")

# Every type that Spark reads from Parquet, as Spark's own readers and writers have it.
SPARK_TYPES: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(18, 6),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
    TIMESTAMP_NTZ,
)
# And what other writers leave in files.
ARROW_TYPES: tuple[pa.DataType, ...] = (
    *SPARK_TYPES,
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.large_string(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("ms"),
)

MICROSECOND, DAY = 1, 86_400_000_000
# Both are 02:30 in Berlin.
AMBIGUOUS = (1_729_989_000_000_000, 1_729_992_600_000_000)
INSTANTS: tuple[int, ...] = (
    0,
    *AMBIGUOUS,
    AMBIGUOUS[0] + 7_200_000_000,  # the local time that was ambiguous, as a time without zone
    1_711_848_600_000_000,  # half an hour after the clocks went forward
    1_711_848_600_000_000 + 3_600_000_000,
    1_704_067_200_000_000,  # 2024-01-01
    1_704_067_199_999_999,
    1_704_067_200_000_001,
    1_325_239_200_000_000,  # Apia skips 2011-12-30
    1,
)
STRINGS: tuple[str, ...] = (
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "ab%",
    "a_c",
    "a\\c",
    "%",
    "_",
    "\\",
    "'",
    "it's",
    '"',
    "a\0b",
    "\0",
    "a\nb",
    "ä",
    "é",
    "日本",
    "\uffff",
    "😀",
    "a😀b",
    "Z" * 70,
    "Z" * 70 + "a",
    "5",
    " 5 ",
    "2024-01-01",
    "NaN",
    "true",
)
BINARIES: tuple[bytes, ...] = (b"", b"\0", b"\0\xff", b"a", b"\x7f", b"\x80", b"\xff", b"\xff" * 20)
FILE_NAMES: tuple[str, ...] = (
    "plain.parquet",
    "with blank.parquet",
    "100%.parquet",
    "%20.parquet",
    "é.parquet",
    "a=b.parquet",
    "x+y&z.parquet",
    "日本.parquet",
)
PARTITIONED_NAMES: tuple[str, ...] = (
    "p=1/part.parquet",
    "p=1/100%.parquet",
    "p=a%2Fb/part.parquet",
    "p=é/part.parquet",
    "p=__HIVE_DEFAULT_PARTITION__/part.parquet",
)
COLUMN_NAMES: tuple[str, ...] = (
    "c0",
    "Amount",
    "with blank",
    "é",
    "dot.ted",
    "date",
    "select",
    "x`y",
)


# -- values ----------------------------------------------------------------------------------------


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    """Integers of a width: edges, small ones, and anything."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    edges = [low, low + 1, 0, 1, 2, 5, high // 2 + 1, high - 1, high]
    if signed:
        edges += [-1, -2]
    near = st.integers(max(low, -20), 20)
    return st.one_of(st.sampled_from(edges), near, near, st.integers(low, high))


def floats(width: int) -> st.SearchStrategy[float]:
    """Floats of a width, NaN, both zeros and infinities among them."""
    special = [float("nan"), 0.0, -0.0, float("inf"), float("-inf"), 1.0, -1.0, 0.5, 16777216.0]
    if width == 64:
        special += [0.1, float(2**53), float(2**63), 1.7976931348623157e308, 5e-324]
    else:
        special += [float(np.float32(0.1)), float(np.float32(3.4028235e38)), 1.401298464324817e-45]
    near = st.integers(-40, 40).map(lambda x: x / 4)
    return st.one_of(st.sampled_from(special), near, st.floats(width=32 if width == 32 else 64))


def values(type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that ``pa.array(…, type)`` takes; timestamps and dates as integers. Never ``None``."""
    t = pa.types
    if t.is_dictionary(type):
        return values(type.value_type)
    if t.is_boolean(type):
        return st.booleans()
    if t.is_integer(type):
        return integers(type.bit_width, signed=t.is_signed_integer(type))
    if t.is_floating(type):
        return floats(type.bit_width)
    if t.is_decimal(type):
        top = 10**type.precision - 1
        edges = [0, 1, -1, top, -top, 10**type.scale, 5 * 10**type.scale, 10**18, -(10**18)]
        unscaled = st.one_of(
            st.sampled_from([e for e in edges if abs(e) <= top]),
            st.integers(max(-500, -top), min(500, top)),
            st.integers(-top, top),
        )
        return unscaled.map(lambda u: exact_decimal(u, type.scale))
    if t.is_string(type) or t.is_large_string(type):
        return st.one_of(
            st.sampled_from(STRINGS),
            st.text(st.sampled_from("ab%_\\'😀é\0"), max_size=4),
            st.text(max_size=8),
        )
    if t.is_binary(type) or t.is_large_binary(type):
        return st.one_of(st.sampled_from(BINARIES), st.binary(max_size=4))
    if t.is_date(type):
        days = [0, -1, 19_723, 15_338, 15_339, 15_340, 19_813, 20_023, -719_162, 2_932_896]
        return st.one_of(st.sampled_from(days), st.integers(19_700, 19_760))
    if t.is_timestamp(type):
        per = {"us": 1, "ms": 1000}[type.unit]
        near = st.sampled_from(INSTANTS).flatmap(
            lambda at: st.sampled_from([at, at - 1, at + 1, at - DAY, at + 3_600_000_000])
        )
        return st.one_of(near, near, st.integers(0, 2_000_000_000_000_000)).map(lambda m: m // per)
    if t.is_struct(type):
        return st.fixed_dictionaries({f.name: st.none() | values(f.type) for f in type})
    raise NotImplementedError(str(type))


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """``unscaled`` × 10^-scale, whatever the precision of the context."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((1 if unscaled < 0 else 0, digits, -scale))


@st.composite
def columns(draw: st.DrawFn, type: pa.DataType, size: int) -> pa.Array:
    """A column of ``size`` values: mixed with nulls, of few distinct values, or of nulls only."""
    shape = draw(st.sampled_from(["any", "any", "few", "full", "nulls"]))
    if shape == "nulls":
        drawn: list[Any] = [None] * size
    elif shape == "few":
        pool = draw(st.lists(st.none() | values(type), min_size=1, max_size=3))
        drawn = [draw(st.sampled_from(pool)) for _ in range(size)]
    else:
        each = values(type) if shape == "full" else st.none() | values(type)
        drawn = draw(st.lists(each, min_size=size, max_size=size))
    return pa.array(drawn, type)


@st.composite
def tables(
    draw: st.DrawFn,
    types: Sequence[pa.DataType] = SPARK_TYPES,
    *,
    max_rows: int = 12,
    max_columns: int = 3,
    nested: bool = True,
) -> pa.Table:
    """A table of up to ``max_columns`` columns; with ``nested``, sometimes ``nest.in.leaf``."""
    size = draw(st.integers(0, max_rows))
    chosen = draw(st.lists(st.sampled_from(types), min_size=1, max_size=max_columns))
    names = draw(
        st.lists(
            st.sampled_from(COLUMN_NAMES),
            min_size=len(chosen),
            max_size=len(chosen),
            unique=True,
        )
    )
    arrays = [draw(columns(type, size)) for type in chosen]
    if nested and draw(st.integers(0, 3)) == 0:
        inner = pa.struct([pa.field("Leaf", draw(st.sampled_from(types)))])
        names.append("nest")
        arrays.append(draw(columns(pa.struct([pa.field("in", inner)]), size)))
    return pa.table(arrays, names=names)


# -- predicates ------------------------------------------------------------------------------------


def leaf_columns(schema: pa.Schema) -> list[tuple[tuple[str, ...], pa.DataType]]:
    """The paths of all columns that are no structs, with their types."""
    found: list[tuple[tuple[str, ...], pa.DataType]] = []

    def walk(fields: Any, prefix: tuple[str, ...]) -> None:
        for field in fields:
            if pa.types.is_struct(field.type):
                walk(field.type, (*prefix, field.name))
            else:
                found.append(((*prefix, field.name), field.type))

    walk(schema, ())
    return found


def _column_values(table: pa.Table, path: tuple[str, ...]) -> list[Any]:
    """The distinct non-null values of a column as ``values`` draws them."""
    array = table.column(path[0]).combine_chunks()
    for part in path[1:]:
        array = array.flatten()[array.type.get_field_index(part)]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    found = [value for value in array.to_pylist() if value is not None]
    return list({repr(value): value for value in found}.values())


def literals(type: pa.DataType, present: Sequence[Any] = ()) -> st.SearchStrategy[Literal]:
    """Literals for a column: of its type and of others that Spark lets it meet, and NULL."""
    plain = values(type)
    if present:
        plain = st.one_of(st.sampled_from(list(present)), plain)
    return plain.flatmap(lambda value: _spellings(value, type))


def _spellings(value: Any, type: pa.DataType) -> st.SearchStrategy[Literal]:
    t = pa.types
    if t.is_dictionary(type):
        type = type.value_type
    own: list[st.SearchStrategy[Literal]] = []
    other: list[st.SearchStrategy[Literal]] = [st.just(Literal(None))]
    if t.is_boolean(type):
        own = [st.just(Literal(value, pa.bool_())), st.just(Literal(value))]
        other.append(st.just(Literal(str(value).lower(), pa.string())))
    elif t.is_integer(type):
        exact = Literal(value) if t.is_unsigned_integer(type) else Literal(value, type)
        near = st.integers(value - 1, value + 1)
        own = [st.just(exact), near.map(Literal)]
        other += [
            near.map(lambda n: Literal(Decimal(n) + Decimal("0.5"))),
            near.map(lambda n: Literal(Decimal(n))),
            st.just(Literal(float(value))),
            st.just(Literal(value + 0.5)),
            st.just(Literal(str(value), pa.string())),
        ]
    elif t.is_floating(type):
        own = [st.just(Literal(value, type)), st.just(Literal(value))]
        other += [
            st.just(Literal(math.nextafter(value, math.inf))),
            st.integers(-3, 3).map(Literal),
            st.sampled_from(["0.1", "0.25", "-1.50"]).map(lambda d: Literal(Decimal(d))),
            st.just(Literal(repr(value), pa.string())),
        ]
    elif t.is_decimal(type):
        digits = int("".join(map(str, value.as_tuple().digits)))
        number = -digits if value.is_signed() else digits
        own = [st.just(Literal(number, pa.decimal128(type.precision, type.scale)))]
        other += [
            st.just(Literal(value)),
            st.integers(-3, 3).map(Literal),
            st.sampled_from(["0.1", "0.005", "-1.5", "1e0"]).map(lambda d: Literal(Decimal(d))),
            st.just(Literal(float(value))),
            st.just(Literal(str(value), pa.string())),
        ]
    elif t.is_string(type) or t.is_large_string(type):
        own = [st.just(Literal(value, pa.string())), st.just(Literal(value))]
    elif t.is_binary(type) or t.is_large_binary(type):
        own = [st.just(Literal(value, pa.binary())), st.just(Literal(value))]
    elif t.is_date(type):
        own = [st.just(Literal(value, pa.date32()))]
        if -700_000 < value < 2_900_000:
            day = date(1970, 1, 1) + timedelta(days=value)
            own.append(st.just(Literal(day)))
            other += [
                st.just(Literal(day.isoformat(), pa.string())),
                st.just(Literal(value * DAY, TIMESTAMP_NTZ)),
                st.just(Literal(value * DAY - 1, TIMESTAMP_NTZ)),
                st.just(Literal(value * DAY, TIMESTAMP)),
                st.just(Literal(f"{day.isoformat()} 00:00:00", TIMESTAMP)),
                st.just(Literal(f"{day.isoformat()} 02:30:00", TIMESTAMP)),
            ]
    else:
        micros = value * {"us": 1, "ms": 1000}[type.unit]
        own = [st.just(Literal(micros, TIMESTAMP if type.tz else TIMESTAMP_NTZ))]
        at = datetime(1970, 1, 1) + timedelta(microseconds=micros)
        text = at.isoformat(" ")
        own.append(st.just(Literal(at.replace(tzinfo=UTC) if type.tz else at)))
        other += [
            st.just(Literal(text, pa.string())),
            st.just(Literal(text, TIMESTAMP)),
            st.just(Literal(f"{text}+02:00", TIMESTAMP)),
            st.just(Literal(micros // DAY, pa.date32())),
            st.just(Literal(at)),
        ]
    return st.one_of(*own, *own, *own, st.one_of(*other))


_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
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


@st.composite
def conditions(draw: st.DrawFn, table: pa.Table) -> Expr:
    """One predicate over one column of ``table``."""
    path, type = draw(st.sampled_from(leaf_columns(table.schema)))
    column = ColumnRef(path)
    given = literals(type, _column_values(table, path))
    forms = ["compare"] * 4 + ["in", "in", "null", "between", "cast"]
    if pa.types.is_boolean(type):
        forms += ["truth"] * 3
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        forms += ["like", "like", "prefix"]
    operand: Any = column
    form = draw(st.sampled_from(forms))
    if form == "cast":
        wider = _WIDER.get(type)
        form = "compare"
        if wider:
            target = draw(st.sampled_from(wider))
            operand = Cast(column, target)
            given = st.one_of(given, literals(target)) if type != pa.date32() else given
    match form:
        case "compare":
            op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
            literal = draw(given)
            if draw(st.booleans()):
                return Comparison(op, operand, literal)
            return Comparison(op, literal, operand)
        case "in":
            return Membership(operand, tuple(draw(st.lists(given, min_size=1, max_size=4))))
        case "null":
            return NullTest(operand)
        case "between":
            low, high = draw(given), draw(given)
            return And((Comparison(">=", operand, low), Comparison("<=", operand, high)))
        case "truth":
            return Truth(operand)
        case "prefix":
            return PatternMatch(operand, draw(st.sampled_from(STRINGS)), prefix_only=True)
        case _:
            return PatternMatch(operand, *draw(patterns()))


@st.composite
def patterns(draw: st.DrawFn) -> tuple[str, str]:
    """A LIKE pattern and its escape; now and then one that Spark refuses."""
    escape = draw(st.sampled_from(["\\", "\\", "#", "%", "_"]))
    pieces = ["a", "b", "%", "_", "😀", "é", "\\", "'", escape + "%", escape + "_", escape * 2]
    return "".join(draw(st.lists(st.sampled_from(pieces), max_size=5))), escape


def predicates(table: pa.Table, *, max_leaves: int = 5) -> st.SearchStrategy[Expr]:
    """Trees of AND, OR and NOT over ``conditions``."""
    return st.recursive(
        conditions(table),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda c: And(tuple(c))),
            st.lists(inner, min_size=2, max_size=3).map(lambda c: Or(tuple(c))),
        ),
        max_leaves=max_leaves,
    )


@st.composite
def sql_texts(draw: st.DrawFn, table: pa.Table) -> str:
    """A condition as SQL text: a tree printed, with blanks and comments here and there."""
    text = to_sql(draw(predicates(table)))
    return draw(st.sampled_from(["{}", "({})", " {} ", "/* why */ {}", "{} -- so"])).format(text)


def column_text(path: tuple[str, ...]) -> str:
    """A column as SQL text."""
    return column_sql(path)


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataFile:
    """One file of a layout: a name that may have folders, and its rows in the table's order."""

    name: str
    rows: pa.Table


@st.composite
def layouts(
    draw: st.DrawFn, table: pa.Table, *, max_files: int = 4, partitioned: bool = False
) -> list[DataFile]:
    """``table`` cut into files, in order; some are empty, names are odd. Either all or none are in
    partition folders: Spark leaves out files outside of them."""
    count = draw(st.integers(1, max_files))
    every = PARTITIONED_NAMES if partitioned else FILE_NAMES
    names = draw(st.lists(st.sampled_from(every), min_size=count, max_size=count, unique=True))
    cut = st.integers(0, len(table))
    cuts = sorted(draw(st.lists(cut, min_size=count - 1, max_size=count - 1)))
    borders = [0, *cuts, len(table)]
    return [
        DataFile(name, table.slice(start, end - start))
        for name, start, end in zip(names, borders, borders[1:], strict=False)
    ]
