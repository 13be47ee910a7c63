"""What QuestDB's own reader skips and finds in the recorded files, and what is skipped here.

Everything that it prunes is pruned, with two exceptions where it is not entitled to: a FLOAT that
may be NaN, which is the largest value here, and a chunk whose minimum is above its maximum. One
group more is pruned: of an IPv4 column 0 is a value like others here, and lies below the minimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from skipstone.predicate.tree import Leaf, Op
from skipstone.questdb.evidence.opened_pm import OpenedPm, open_pm
from tests.questdb.evidence.asked import ask
from tests.questdb.format.golden import case

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.parquet.evidence.stored_values import StoredColumn

OPS = {
    "eq": Op.EQ,
    "lt": Op.LT,
    "le": Op.LE,
    "gt": Op.GT,
    "ge": Op.GE,
    "is_null": Op.IS_NULL,
    "is_not_null": Op.NOT_NULL,
}
#: Case, column, operation: what is decided otherwise here.
ELSE = {
    ("all_types", "float", "ge"): [False],
    ("all_types", "string", "eq"): [False],
    ("all_types", "ipv4", "eq", 0): [True],
}
SKIPS = (
    "all_types",
    "bloom_inlined_write_order",
    "bloom_inlined_convert_order",
    "update_bloom_3_snapshots",
    "one_col_one_rg",
)


def literal(value: dict[str, Any], stored: StoredColumn) -> Any:
    """A recorded constant as a leaf has it."""
    ((kind, raw),) = value.items()
    if kind == "var":
        return bytes.fromhex(raw).decode()
    if kind == "bytes":
        raw = bytes.fromhex(raw)
        decimal = stored.type is not None and pa.types.is_decimal(stored.type)
        return int.from_bytes(raw, "big", signed=True) if decimal else raw
    if kind == "null_var":
        return None
    if stored.type == pa.bool_():
        return bool(raw)
    return raw * 1000 if stored.unit == "ms" else raw


@pytest.mark.parametrize("name", SKIPS)
def test_row_groups_are_skipped_as_recorded(golden: Path, name: str) -> None:
    data, recorded = case(golden, name)
    file = OpenedPm.of(open_pm(data, parquet_size=None), path="data.parquet")
    asked = 0
    for each in recorded["skip"]:
        ((place, op, values),) = [(f["column"], f["op"], f["values"]) for f in each["filters"]]
        column = file.snapshot.pm.name(place)
        known = file.stored(column)
        if known is None:
            assert not any(each["result"]["skip"]), column
            continue
        assert known[0] == place
        constants = [literal(value, known[1]) for value in values]
        if None in constants:
            continue  # `= NULL` is no leaf: it matches nothing
        type_ = pa.binary() if known[1].type is None else known[1].type
        if op == "between":
            both = [
                Leaf(column, type_, way, (x,))
                for way, x in zip((Op.GE, Op.LE), constants, strict=True)
            ]
            sides = [ask(file, leaf).may for leaf in both]
            skipped = [not (a and b) for a, b in zip(*sides, strict=True)]
        else:
            way = Op.IN if len(constants) > 1 else OPS[op]
            skipped = [not may for may in ask(file, Leaf(column, type_, way, tuple(constants))).may]
        key = (name, column, op)
        expected = ELSE.get(key, ELSE.get((*key, *constants), each["result"]["skip"]))
        assert skipped == expected, each
        asked += 1
    assert asked >= min(5, len(recorded["skip"]))
