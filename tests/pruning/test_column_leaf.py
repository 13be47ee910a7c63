"""Questions carried back to the type that a column had when it was indexed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.pruning.column_types import restate

INT, LONG, WIDE = pa.int32(), pa.int64(), pa.decimal128(12, 2)
BIG = 3_000_000_000


@pytest.mark.parametrize(
    "stored, table, op, values, expected",
    [
        (INT, LONG, Op.EQ, (5,), (Op.EQ, (5,))),
        (INT, LONG, Op.EQ, (BIG,), False),
        (INT, LONG, Op.NE, (BIG,), (Op.NOT_NULL, ())),
        (INT, LONG, Op.NE_OR_NULL, (BIG,), True),
        (INT, LONG, Op.NE_OR_NULL, (5,), (Op.NE_OR_NULL, (5,))),
        (INT, LONG, Op.LT, (BIG,), (Op.NOT_NULL, ())),
        (INT, LONG, Op.GT, (BIG,), False),
        (INT, LONG, Op.GE, (6,), (Op.GE, (6,))),
        (INT, LONG, Op.IN, (5, BIG, 7), (Op.IN, (5, 7))),
        (INT, LONG, Op.IN, (BIG,), False),
        (INT, LONG, Op.NOT_IN, (BIG,), (Op.NOT_NULL, ())),
        (INT, LONG, Op.NOT_IN, (BIG, 1), (Op.NOT_IN, (1,))),
        (INT, LONG, Op.IS_NULL, (), (Op.IS_NULL, ())),
        # 1.50 as decimal(12,2): between two integers.
        (INT, WIDE, Op.EQ, (150,), False),
        (INT, WIDE, Op.LT, (150,), (Op.LE, (1,))),
        (INT, WIDE, Op.GT, (150,), (Op.GE, (2,))),
        (INT, WIDE, Op.NE, (150,), (Op.NOT_NULL, ())),
        (INT, pa.float64(), Op.LE, (1.5,), (Op.LE, (1,))),
        (INT, pa.float64(), Op.EQ, (-0.0,), (Op.EQ, (0,))),
        (INT, pa.float64(), Op.EQ, (float("nan"),), False),
        (INT, pa.float64(), Op.LT, (float("nan"),), (Op.NOT_NULL, ())),
        (pa.float32(), pa.float64(), Op.EQ, (0.1,), False),
        (pa.float32(), pa.float64(), Op.EQ, (0.5,), (Op.EQ, (0.5,))),
        (pa.date32(), pa.timestamp("us"), Op.EQ, (86_400_000_000,), (Op.EQ, (1,))),
        (pa.date32(), pa.timestamp("us"), Op.EQ, (86_400_000_001,), False),
        (pa.date32(), pa.timestamp("us"), Op.GT, (86_400_000_001,), (Op.GE, (2,))),
        # Casts that are not exact, or run the other way, say nothing.
        (LONG, INT, Op.EQ, (5,), None),
        (LONG, pa.float64(), Op.EQ, (5.0,), None),
        (pa.string(), INT, Op.EQ, (5,), None),
        (INT, pa.string(), Op.EQ, ("5",), None),
        (pa.string(), pa.binary(), Op.EQ, (b"5",), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), Op.EQ, (5,), None),
        (LONG, pa.duration("us"), Op.EQ, (5,), None),
    ],
    ids=str,
)
def test_what_becomes_of_a_leaf(
    stored: pa.DataType, table: pa.DataType, op: Op, values: tuple[Any, ...], expected: Any
) -> None:
    found = restate(Leaf("c", table, op, values), stored)
    match expected:
        case bool():
            assert found == Const(expected)
        case None:
            assert found is None
        case (wanted, inner):
            assert found == Leaf("c", stored, wanted, inner)


def test_an_equal_type_in_another_spelling() -> None:
    leaf = Leaf("c", pa.timestamp("us", "UTC"), Op.EQ, (5,))
    assert restate(leaf, leaf.type) is leaf
    found = restate(leaf, pa.timestamp("us", "Europe/Berlin"))
    assert found == leaf
