"""Evidence of `_pm`s over every type, against the rows: no row is lost, ``must`` holds of all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from skipstone.predicate.literals import stored
from skipstone.predicate.tree import Leaf, Op
from skipstone.predicate.types import spark_type
from skipstone.questdb.evidence.opened_pm import OpenedPm, open_pm
from tests.parquet.evidence.test_bounds_property import TYPES, arrays, options
from tests.predicate.bound_rows import rows_of_bound
from tests.pruning.test_bounds_property import leaves
from tests.questdb.evidence.asked import ask
from tests.questdb.evidence.written import parquet, with_ids
from tests.questdb.format.converting import pm_of

MANY = settings(max_examples=4 * settings().max_examples)
MORE = (*TYPES, pa.binary(16), pa.binary(32), pa.timestamp("ns", "UTC"), pa.decimal128(9, 2))


@MANY
@given(type=st.sampled_from(MORE), data=st.data())
def test_evidence_is_true_of_the_rows(type: pa.DataType, data: st.DataObject) -> None:
    read = spark_type(type)
    assert read is not None
    files: dict[int, OpenedPm] = {}
    contents: dict[str, bytes] = {}
    rows: list[pa.Array] = []
    for ordinal in range(data.draw(st.integers(1, 3))):
        array = _array(data, type)
        table = pa.table({"c": array})
        if data.draw(st.booleans()):
            table = with_ids(table)
        whole = parquet(table, data.draw(st.integers(1, 6)), **data.draw(options(table)))
        own = data.draw(st.booleans())
        modes: list[Any] = ["inlined", "external"]
        mode = data.draw(st.sampled_from(modes))
        snapshot = open_pm(pm_of(whole, own=own, bloom_mode=mode), parquet_size=len(whole))
        schema = pa.schema([pa.field("c", type)])
        path = f"{ordinal}.parquet"
        files[ordinal] = OpenedPm.of(snapshot, path=path, schema=schema, own=own)
        contents[path] = whole
        rows.append(stored(array, read))
    everything = pa.concat_arrays(rows)
    if pa.types.is_timestamp(read):
        everything = everything.cast(pa.int64())
    elif pa.types.is_date(read):
        everything = everything.cast(pa.int32())
    leaf = data.draw(leaves(read, [v for v in everything.to_pylist() if v is not None]))
    note(str(leaf))
    found = ask(files, leaf, contents)
    at = 0
    for ordinal, array in enumerate(rows):
        starts = files[ordinal].row_starts.tolist()
        for first, stop in pairwise(starts):
            part = array.slice(first, stop - first)
            matching = len(rows_of_bound(leaf, pa.table({"c": part}), opaque=True))
            assert found.may[at] or not matching, f"{leaf} loses a row of {part.to_pylist()}"
            assert not found.must[at] or matching == len(part), f"not all of {part.to_pylist()}"
            at += 1
    assert at == len(found.may)


def _array(data: st.DataObject, type: pa.DataType) -> pa.Array:
    size = data.draw(st.integers(0, 12))
    if pa.types.is_fixed_size_binary(type) and type.byte_width > 3:
        width = type.byte_width
        one: st.SearchStrategy[Any] = st.none() | st.binary(min_size=width, max_size=width)
        return pa.array(data.draw(st.lists(one, min_size=size, max_size=size)), type)
    if pa.types.is_timestamp(type) and type.unit == "ns":
        some = st.none() | st.integers(-(1 << 62), 1 << 62).map(lambda n: n // 1000 * 1000)
        return pa.array(data.draw(st.lists(some, min_size=size, max_size=size)), type)
    return data.draw(arrays(type, size))


INT = pa.array([1, 2, 3, None, 5, 6, None, None, None, 10, 11, 12], pa.int32())


def int_file(**known: Any) -> OpenedPm:
    """Four row groups of three: 1 2 3 | null 5 6 | null null null | 10 11 12."""
    data = parquet(pa.table({"c": INT}), 3, questdb=True)
    return OpenedPm.of(open_pm(pm_of(data), parquet_size=len(data)), path="x", **known)


@pytest.mark.parametrize(
    "op, values, may, must",
    [
        (Op.EQ, (5,), [0, 1, 0, 0], [0, 0, 0, 0]),
        (Op.IN, (2, 11), [1, 0, 0, 1], [0, 0, 0, 0]),
        (Op.LT, (4,), [1, 0, 0, 0], [1, 0, 0, 0]),
        (Op.LE, (5,), [1, 1, 0, 0], [1, 0, 0, 0]),
        (Op.GT, (6,), [0, 0, 0, 1], [0, 0, 0, 1]),
        (Op.GE, (6,), [0, 1, 0, 1], [0, 0, 0, 1]),
        (Op.NE, (5,), [1, 1, 0, 1], [1, 0, 0, 1]),
        (Op.NOT_IN, (20,), [1, 1, 0, 1], [1, 0, 0, 1]),
        (Op.IS_NULL, (), [0, 1, 1, 0], [0, 0, 1, 0]),
        (Op.NOT_NULL, (), [1, 1, 0, 1], [1, 0, 0, 1]),
    ],
)
def test_each_operation_over_four_row_groups(
    op: Op, values: tuple[Any, ...], may: list[int], must: list[int]
) -> None:
    file, leaf = int_file(), Leaf("c", pa.int32(), op, values)
    found = ask(file, leaf)
    assert found.may == [bool(x) for x in may]
    assert found.must == [bool(x) for x in must]


def test_prefixes_of_strings() -> None:
    """Three row groups: apple apricot | banana berry | é ü."""
    names = ["apple", "apricot", "banana", "berry", "é", "ü"]
    data = parquet(pa.table({"s": names}), 2, questdb=True)
    file = OpenedPm.of(open_pm(pm_of(data), parquet_size=len(data)), path="x")
    found = ask(file, Leaf("s", pa.string(), Op.STARTS_WITH, ("ap",)))
    assert (found.may, found.must) == ([True, False, False], [True, False, False])
    found = ask(file, Leaf("s", pa.string(), Op.NOT_STARTS_WITH, ("b",)))
    assert (found.may, found.must) == ([True, False, True], [True, False, True])


@pytest.mark.parametrize("mode", ["inlined", "external"])
def test_bloom_filters_inlined_and_in_the_data_file(mode: Any) -> None:
    """Two row groups of even numbers, 0 to 98 and 100 to 198: no bound excludes 51 of the first."""
    column = pa.array(np.arange(100) * 2, pa.int64())
    filters = {"c": {"ndv": 50, "fpp": 0.01}}
    data = parquet(pa.table({"c": column}), 50, questdb=True, bloom_filter_options=filters)
    snapshot = open_pm(pm_of(data, bloom_mode=mode), parquet_size=len(data))
    assert snapshot.pm.bloom_external == (mode == "external")
    file = OpenedPm.of(snapshot, path="data.parquet")
    found = ask(file, Leaf("c", pa.int64(), Op.EQ, (51,)), {"data.parquet": data})
    assert found.may == [False, False]
    # One block of 32 bytes of each of two filters, and nothing of those inside.
    assert found.bytes_read == (64 if mode == "external" else 0)
    found = ask(file, Leaf("c", pa.int64(), Op.IN, (51, 150)), {"data.parquet": data})
    assert found.may == [False, True]


def test_files_that_store_a_column_alike_and_otherwise_are_asked_together() -> None:
    """c is int, bigint, and missing; the table's is bigint."""
    schema = pa.schema([("c", pa.int64())])
    files = {}
    for ordinal, (name, type_) in enumerate(
        [("c", pa.int64()), ("c", pa.int32()), ("d", pa.int64())]
    ):
        data = parquet(pa.table({name: pa.array([1, 2, 30, 40], type_)}), 2, questdb=True)
        snapshot = open_pm(pm_of(data, own=True), parquet_size=len(data))
        files[ordinal] = OpenedPm.of(snapshot, path=str(ordinal), schema=schema, own=True)
    found = ask(files, Leaf("c", pa.int64(), Op.GT, (20,)))
    assert found.may == [False, True, False, True, True, True]
    assert [str(each) for each in found.reasons] == [
        "_pm statistics(c): 2 of 6 row groups have no such column (2)"
    ]
