"""A container by itself: what it says of a predicate, asked as a planner asks, from few bytes."""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.errors import FormatError, PredicateError, UnsupportedError
from skipstone.paimon.file_index import PaimonFileIndex
from skipstone.paimon.format import container
from skipstone.paimon.format.bitmap import write_bitmap
from skipstone.paimon.format.bsi import write_bsi
from skipstone.paimon.format.column_keys import column_of
from skipstone.paimon.format.keys import PaimonType
from skipstone.paimon.format.range_bitmap import write_range_bitmap
from skipstone.paimon.sidecar import in_millis, types_of
from skipstone.predicate.tree import Const, Leaf, Op
from tests.oracle import matching_rows
from tests.paimon.format import golden as g
from tests.paimon.format.blooms import write_bloom_filter
from tests.paimon.format.strategies import coded

if TYPE_CHECKING:
    from pathlib import Path

    from skipstone.paimon.format.column_keys import KeyColumn


def test_what_paimon_wrote_is_answered_right(golden: Path) -> None:
    """Every container of Paimon's own classes, every third query: no row is missed, what is called
    exact is, and where Java is right the answer is never wider than Java's."""
    seen: Counter[str] = Counter()
    for case in g.read_cases(golden)[0]:
        types = {field["name"]: PaimonType.parse(field["type"]) for field in case["schema"]}
        named = {name: type for name, type in types.items() if type.root != "TIME"}
        index = PaimonFileIndex(
            bytes.fromhex(case["index_hex"]), types=named, rows=case["row_count"]
        )
        for query in case["queries"][::3]:
            where = query.get("where")
            asked = where and g.tree(where, types)
            if not asked:
                continue
            found = index.select(asked)
            rows = set(found.rows.to_list())
            true = g.truth(where, types, case["columns"])
            label = f"{case['name']}: {where}"
            assert true <= rows, label
            if found.exact:
                assert rows == true, label
                seen["exact"] += 1
            if not all(type.exact for type in types.values()):
                continue
            if query.get("vs_sql_truth") in ("exact", "superset"):
                if query["answer"]["result"] == "SKIP":
                    assert not rows, label
                elif query["answer"]["result"] == "BITMAP":
                    assert rows <= g.rows_of_runs(query["answer"]["runs"]), label
                seen["as Java or better"] += 1
            elif query.get("vs_sql_truth") == "MISSES_ROWS":
                seen["right where Java is not"] += 1
    assert seen["exact"] > 2_500
    assert seen["as Java or better"] > 3_000
    assert seen["right where Java is not"] > 0


# -- against brute force ---------------------------------------------------------------------------

CITIES = ["Oslo", "Bergen", "Å", "", "Osl", "Oslo%", None]


def blob(kind: str, type: PaimonType, column: KeyColumn) -> bytes:
    """An index of this kind."""
    if kind == "bloom-filter":
        return write_bloom_filter(type, [column.keys], items=100)
    if kind == "bsi":
        return write_bsi(coded(column))
    write = write_bitmap if kind == "bitmap" else write_range_bitmap
    return write(coded(column))


def containers(table: pa.Table, kinds: dict[str, list[str]]) -> bytes:
    """A container with these kinds of index over each column."""
    blobs: dict[str, dict[str, bytes | None]] = {}
    types = types_of(table.schema)
    for name, wanted in kinds.items():
        type = types[name].paimon
        column = column_of(type, table[name])
        blobs[name] = {kind: blob(kind, type, column) for kind in wanted}
    return container.to_bytes(blobs)


TABLE = pa.table(
    {
        "city": pa.array([CITIES[n % 7] for n in range(700)]),
        "age": pa.array([None if n % 13 == 5 else n % 90 for n in range(700)], pa.int32()),
        "f": pa.array(
            [[math.nan, 0.0, -0.0, 1.5, None, -math.inf, math.inf][n % 7] for n in range(700)]
        ),
        "ts": pa.array([n * 1_000_000 for n in range(700)], pa.timestamp("us")),
    }
)
KINDS = {
    "city": ["bitmap", "bloom-filter"],
    "age": ["range-bitmap"],
    "f": ["range-bitmap", "bitmap"],
    "ts": ["bsi"],
}


def brute(where: str) -> set[int]:
    return set(matching_rows(TABLE, where))


LEAVES = st.sampled_from(
    [
        "city = 'Oslo'",
        "city <> 'Oslo'",
        "city IN ('Bergen', 'nowhere')",
        "city NOT IN ('Bergen', '')",
        "city LIKE 'Osl%'",
        "city IS NULL",
        "city IS NOT NULL",
        "NOT (city <=> 'Oslo')",
        "age = 40",
        "age <> 40",
        "age >= 85",
        "age < 3",
        "age BETWEEN 10 AND 12",
        "age IS NULL",
        "f = 0.0",
        "f = double('NaN')",
        "f > 1.5",
        "f <= -0.0",
        "f <> 0.0",
        "ts >= '1970-01-01 00:11:00'",
        "ts < '1970-01-01 00:00:03'",
    ]
)


@given(st.lists(LEAVES, min_size=1, max_size=3), st.sampled_from(["AND", "OR"]), st.booleans())
def test_exactly_the_rows_of_brute_force(leaves: list[str], how: str, negated: bool) -> None:
    where = f" {how} ".join(leaves)
    where = f"NOT ({where})" if negated else where
    index = PaimonFileIndex(containers(TABLE, KINDS), types=TABLE.schema)
    found = index.select(where)
    assert found.exact, where
    assert set(found.rows) == brute(where), where
    assert index.count(where) == len(found)


# -- opening ---------------------------------------------------------------------------------------


def test_types_come_from_the_data_file_beside_it(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    path = tmp_path / "x.parquet.index"
    path.write_bytes(containers(TABLE, KINDS))
    index = PaimonFileIndex(str(path))
    assert index.data == str(tmp_path / "x.parquet")
    assert index.count("city = 'Oslo'") == 100
    assert index.row_count == 700


def test_a_container_inside_a_pack_is_read_where_it_lies(tmp_path: Path) -> None:
    data = containers(TABLE, KINDS)
    path = tmp_path / "some.pack"
    path.write_bytes(b"x" * 1_000 + data + b"y" * 1_000)
    index = PaimonFileIndex(str(path), offset=1_000, length=len(data), types=TABLE.schema)
    assert index.size == len(data)
    assert index.count("age IS NULL") == TABLE["age"].null_count
    with pytest.raises(FormatError, match="no such part"):
        PaimonFileIndex(str(path), offset=1_000, length=len(data) + 2_000)


def test_one_value_takes_few_bytes_of_a_large_container(tmp_path: Path) -> None:
    """100,000 rows, all different: half a megabyte, of which a lookup reads a fraction."""
    table = pa.table({"k": pa.array(np.random.default_rng(1).permutation(100_000))})
    path = tmp_path / "x.index"
    path.write_bytes(containers(table, {"k": ["bitmap"]}))
    index = PaimonFileIndex(str(path), types=table.schema)
    assert index.count("k = 77777") == 1
    assert index.size > 1_000_000
    assert index.bytes_read < 60_000


def test_only_bloom_filters_do_not_know_how_many_rows_there_are() -> None:
    data = containers(TABLE, {"city": ["bloom-filter"]})
    with pytest.raises(UnsupportedError, match="how many rows"):
        PaimonFileIndex(data, types=TABLE.schema).select("city = 'nowhere'")
    index = PaimonFileIndex(data, types=TABLE.schema, rows=700)
    assert index.count("city = 'nowhere'") == 0
    assert index.count("city = 'Oslo'") is None
    assert len(index.select("city = 'Oslo'")) == 700


def test_a_column_without_a_type_cannot_be_asked() -> None:
    index = PaimonFileIndex(containers(TABLE, KINDS), types={"age": "INT"})
    assert index.count("age = 40") is not None
    with pytest.raises(PredicateError):
        index.select("city = 'Oslo'")


def test_an_empty_entry_says_no_value_and_nothing_of_nulls() -> None:
    data = container.to_bytes({"c": {"bitmap": None}})
    index = PaimonFileIndex(data, types={"c": "STRING"}, rows=10)
    for where in ("c = 'x'", "c <> 'x'", "c LIKE 'x%'", "c BETWEEN 'a' AND 'b'", "c IS NOT NULL"):
        assert index.count(where) == 0, where
    for where in ("c IS NULL", "NOT (c <=> 'x')"):
        assert (len(index.select(where)), index.count(where)) == (10, None), where


def test_unknown_kinds_say_nothing() -> None:
    column = coded(column_of(PaimonType.parse("INT"), TABLE["age"]))
    data = container.to_bytes({"age": {"bitmap": write_bitmap(column), "zz-new": b"??"}})
    index = PaimonFileIndex(data, types=TABLE.schema)
    assert index.count("age IS NULL") == TABLE["age"].null_count
    steps = {step.index: step for step in index.select("age = 1").steps}
    (reason,) = steps["zz-new"].reasons
    assert "zz-new" in str(reason)
    assert not steps["zz-new"].used
    (trust,) = steps["bitmap"].reasons
    assert "no checksums" in str(trust)
    assert steps["bitmap"].used


def test_a_damaged_index_says_nothing_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(containers(TABLE, {"city": ["bitmap"], "age": ["range-bitmap"]}))
    entry = container.ContainerHead.from_bytes(bytes(data)).of_column("city")[0]
    data[entry.start] = 77  # the version
    index = PaimonFileIndex(bytes(data), types=TABLE.schema)
    with caplog.at_level(logging.WARNING, "skipstone"):
        found = index.select("city = 'Oslo' AND age = 40")
    assert set(found.rows.positions().tolist()) == brute("age = 40")
    assert not found.exact
    assert len(caplog.records) == 1


WHOLE = containers(TABLE, {"city": ["bitmap"], "age": ["range-bitmap"], "ts": ["bsi"]})


@given(st.integers(0, len(WHOLE) - 1))
def test_of_a_truncated_container_no_row_is_lost(length: int) -> None:
    try:
        found = PaimonFileIndex(WHOLE[:length], types=TABLE.schema, rows=700).select("age = 40")
    except FormatError:
        return
    assert brute("age = 40") <= set(found.rows.positions().tolist())


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_flipped_bit_is_a_format_error_or_silence(at: int, bit: int) -> None:
    """There is no checksum, so that a flip may also give another container that is one."""
    raw = WHOLE[:at] + bytes([WHOLE[at] ^ (1 << bit)]) + WHOLE[at + 1 :]
    try:
        found = PaimonFileIndex(raw, types=TABLE.schema, rows=700).select("age = 40")
    except (FormatError, UnsupportedError, PredicateError):
        return
    assert len(found) <= 700


def test_an_index_of_another_file_says_nothing() -> None:
    index = PaimonFileIndex(containers(TABLE, KINDS), types=TABLE.schema, rows=699)
    found = index.select("age = 40")
    assert (len(found), found.exact) == (699, False)


# -- milliseconds ----------------------------------------------------------------------------------


@given(
    st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IN, Op.NOT_IN, Op.NE_OR_NULL]),
    st.lists(st.integers(-5_000, 5_000), min_size=1, max_size=3),
)
def test_microseconds_are_asked_of_milliseconds(op: Op, literals: list[int]) -> None:
    """Keys are full milliseconds, literals are not: every row and no other."""
    values = [None, *range(-5, 6)]
    literals = literals if op in (Op.IN, Op.NOT_IN) else literals[:1]
    micros = pa.array([None if v is None else v * 1_000 for v in values], pa.timestamp("us"))
    column = coded(column_of(PaimonType.parse("TIMESTAMP(3)"), micros))
    data = container.to_bytes({"ts": {"bitmap": write_bitmap(column)}})
    leaf = Leaf("ts", pa.timestamp("us"), op, tuple(literals))
    found = PaimonFileIndex(data, types={"ts": "TIMESTAMP(3)"}).select(leaf)
    tests: dict[Op, Any] = {
        Op.EQ: lambda v: v == literals[0],
        Op.NE: lambda v: v != literals[0],
        Op.NE_OR_NULL: lambda v: v != literals[0],
        Op.LT: lambda v: v < literals[0],
        Op.LE: lambda v: v <= literals[0],
        Op.GT: lambda v: v > literals[0],
        Op.GE: lambda v: v >= literals[0],
        Op.IN: lambda v: v in literals,
        Op.NOT_IN: lambda v: v not in literals,
    }
    true = {
        row
        for row, v in enumerate(values)
        if (op is Op.NE_OR_NULL if v is None else tests[op](v * 1_000))
    }
    assert set(found.rows.positions().tolist()) == true
    assert found.exact
    kept = in_millis(leaf)
    assert isinstance(kept, Const) or all(v % 1_000 == 0 for v in kept.values)


def test_a_parquet_column_of_milliseconds_has_no_sure_type() -> None:
    """Paimon keeps milliseconds, Skipstone's own containers microseconds."""
    schema = pa.schema([("ms", pa.timestamp("ms")), ("us", pa.timestamp("us")), ("n", pa.int8())])
    assert set(types_of(schema)) == {"us", "n"}


def test_a_key_of_a_map_is_a_column_of_that_name() -> None:
    column = coded(column_of(PaimonType.parse("INT"), pa.array([1, None, 3], pa.int32())))
    data = container.to_bytes({"m[k]": {"bitmap": write_bitmap(column)}})
    index = PaimonFileIndex(data, types={"m[k]": "INT"})
    assert index.select("`m[k]` >= 2").rows.positions().tolist() == [2]
    assert index.count("`m[k]` IS NULL") == 1


def test_parts_of_a_struct_have_both_names() -> None:
    column = coded(column_of(PaimonType.parse("INT"), pa.array([1, 2, 2], pa.int32())))
    data = container.to_bytes({"a.b": {"bitmap": write_bitmap(column)}})
    index = PaimonFileIndex(data, types={"a.b": "INT"})
    assert index.count("a.b = 2") == index.count("`a.b` = 2") == 2


def test_first_rows() -> None:
    index = PaimonFileIndex(containers(TABLE, KINDS), types=TABLE.schema)
    ages = TABLE["age"].to_pylist()
    top = index.top("age", 4, descending=True).positions().tolist()
    assert [ages[row] for row in top] == [89] * 4
    assert [ages[row] for row in index.top("age", 3).positions()] == [None] * 3
    assert not index.top("age", 0)
    for column in ("city", "nope"):
        with pytest.raises(UnsupportedError, match="no range-bitmap"):
            index.top(column, 3)
