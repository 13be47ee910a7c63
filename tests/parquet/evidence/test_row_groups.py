"""What each kind of evidence skips of layouts told in words, and what it reads for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.format.bloom_filter import (
    BloomFilter,
    BloomFilterCompression,
    BloomFilterHash,
    guess_bitset,
    xxh64_values,
)
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.thrift.compact import BINARY, Field
from skipstone.parquet.thrift.structs import Empty
from skipstone.predicate.binding import bind
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Cause
from tests.parquet.evidence.written import Written, rewritten, with_chunks, write
from tests.parquet.format.test_bloom_filter import header

if TYPE_CHECKING:
    from skipstone.parquet.format.metadata import ColumnMetaData, FileMetaData


def leaf(type: pa.DataType, op: Op, *values: Any) -> Leaf:
    return Leaf("c", type, op, values)


def equals(value: int) -> Leaf:
    return leaf(pa.int64(), Op.EQ, value)


def keys(count: int) -> pa.Table:
    """A column of numbers all over the place, none of them twice."""
    spread = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return pa.table({"c": (spread >> np.uint64(2)).astype(np.int64)})


# -- statistics ------------------------------------------------------------------------------------


def test_row_groups_of_a_sorted_column() -> None:
    """Ten row groups of ten ascending numbers each: 0 to 9, 10 to 19, …"""
    table = pa.table({"c": np.arange(100)})
    written = Written(write(table, group=10))
    plan = written.plan(bind(parse_sql("c = 42"), table.schema))
    assert plan.details[0].row_groups == (4,)
    plan = written.plan(bind(parse_sql("c >= 38 AND c < 50"), table.schema))
    assert plan.details[0].row_groups == (3, 4)
    assert not plan.details[0].exact
    plan = written.plan(bind(parse_sql("c >= 40 AND c < 60"), table.schema))
    assert plan.details[0].row_groups == (4, 5)
    assert plan.details[0].exact  # a count needs no row
    assert written.fetching.asked == []


def test_a_member_of_a_struct_has_the_bounds_of_its_leaf() -> None:
    """Three row groups: s.x from 0 to 9, a struct that is null, from 20 to 29."""
    rows = [{"x": i} for i in range(10)] + [None] * 10 + [{"x": i} for i in range(20, 30)]
    table = pa.table({"s": pa.array(rows, pa.struct([("x", pa.int64())]))})
    written = Written(write(table, group=10))
    for text, kept in (
        ("s.x = 25", (2,)),
        ("s.x IS NULL", (1,)),
        ("s.x < 100", (0, 2)),
        ("NOT s.x <=> 25", (0, 1, 2)),
    ):
        plan = written.plan(bind(parse_sql(text), table.schema))
        found = plan.details[0].row_groups if 0 in plan.details else (0, 1, 2)
        assert found == kept, text


def test_what_lies_below_a_list_has_no_evidence() -> None:
    table = pa.table({"c": [[1, 2], [3]]})
    written = Written(write(table))
    assert written.files[0].columns == {}
    assert written.row_groups.evidence(written.units(frozenset("c")), frozenset("c")) == []


@pytest.mark.parametrize("value", ["f > 100", "f = double('NaN')", "NOT f < 51", "f <> 1"])
def test_rows_of_nan_that_other_engines_lose(value: str) -> None:
    """1, NaN, -0.0 and 50: the bounds that Arrow writes are -0.0 and 50, and no count of NaN."""
    table = pa.table({"f": [1.0, float("nan"), -0.0, 50.0]})
    written = Written(write(table, page=4), write(table, page=2, use_dictionary=False))
    value = value.replace("double('NaN')", "CAST('NaN' AS DOUBLE)")
    plan = written.plan(bind(parse_sql(value), table.schema))
    assert all(1 in rows.tolist() for rows in written.kept(plan))


# -- Bloom filters ---------------------------------------------------------------------------------


def bloomed(table: pa.Table, group: int, ndv: int = 1000) -> Written:
    return Written(
        write(
            table,
            group=group,
            use_dictionary=False,
            bloom_filter_options={"c": {"ndv": ndv, "fpp": 0.0001}},
        )
    )


def test_a_probe_reads_the_header_once_and_a_block_per_row_group() -> None:
    """Ten row groups of a hundred keys in no order: only a filter can tell where one is."""
    table = keys(1000)
    written = bloomed(table, 100, 100)
    present, absent = table.column(0)[555].as_py(), 77
    assert written.may("bloom filter", equals(present)) == [i == 5 for i in range(10)]
    sizes = sorted(each.length for each in written.fetching.asked)
    assert sizes == [32] * 10 + [64] * 10  # blocks where the usual header leads, and headers
    written.fetching.asked.clear()
    assert not any(written.may("bloom filter", equals(absent)))
    assert [each.length for each in written.fetching.asked] == [32] * 10


def test_a_probe_without_the_length_of_the_filter_takes_two_rounds() -> None:
    table = keys(300)
    whole = bloomed(table, 100).fetching.files["/t/0.parquet"]

    def forget(metadata: FileMetaData) -> FileMetaData:
        return with_chunks(metadata, lambda r, c, chunk: replace(chunk, bloom_filter_length=None))

    written = Written(rewritten(whole, forget))
    assert written.may("bloom filter", equals(table.column(0)[250].as_py())) == [
        False,
        False,
        True,
    ]
    assert [each.length for each in written.fetching.asked] == [64] * 3 + [32] * 3


def test_long_lists_take_the_whole_bitset() -> None:
    table = keys(300)
    written = bloomed(table, 100)
    wanted = [*range(1000, 1040), table.column(0)[150].as_py()]
    assert written.may("bloom filter", leaf(pa.int64(), Op.IN, *wanted)) == [False, True, False]
    whole = [each.length for each in written.fetching.asked if each.length > 64]
    assert len(whole) == 3
    assert written.may("bloom filter", leaf(pa.int64(), Op.IN)) == [False] * 3


def test_filters_say_nothing_of_ranges() -> None:
    written = bloomed(keys(100), 100)
    for asked in (
        leaf(pa.int64(), Op.LT, 5),
        leaf(pa.int64(), Op.NE, 5),
        leaf(pa.int64(), Op.IS_NULL),
    ):
        answer = written.ask("bloom filter", asked)
        assert answer.bounds is None
        assert answer.reasons[0].cause is Cause.NOT_APPLICABLE


VALUES: list[tuple[pa.Array, pa.DataType, Any, Any]] = [
    # A column, the table's type, a value in it and one that is not.
    (pa.array([1, -2], pa.int8()), pa.int8(), -2, 3),
    (pa.array([1, -2], pa.int32()), pa.int64(), -2, 2**40),
    (pa.array([1, 2**32 - 1], pa.uint32()), pa.int64(), 2**32 - 1, -1),
    (pa.array([1, 2**64 - 1], pa.uint64()), pa.decimal128(20, 0), 2**64 - 1, -1),
    (pa.array([0.0, 1.5], pa.float64()), pa.float64(), -0.0, 2.5),
    (pa.array([-0.0, 1.5], pa.float32()), pa.float32(), 0.0, 2.5),
    (pa.array([1.5], pa.float32()), pa.float64(), 1.5, 0.1),
    (pa.array(["a", "é"]), pa.string(), "é", "e"),
    (pa.array([b"a", b"\xff"]), pa.binary(), b"\xff", b""),
    (pa.array([b"abc"], pa.binary(3)), pa.binary(), b"abc", b"ab"),
    (pa.array([5, 6], pa.date32()), pa.date32(), 6, 7),
    (pa.array([5, 6], pa.timestamp("ms")), pa.timestamp("us"), 6000, 6001),
    (pa.array([5, 6], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC"), 6, 7),
]


@pytest.mark.parametrize("column, type, inside, outside", VALUES)
def test_literals_hash_as_writers_hash_them(
    column: pa.Array, type: pa.DataType, inside: Any, outside: Any
) -> None:
    written = bloomed(pa.table({"c": column}), 100, 100)
    assert written.may("bloom filter", leaf(type, Op.EQ, inside)) == [True]
    assert written.may("bloom filter", leaf(type, Op.EQ, outside)) == [False]
    assert written.may("bloom filter", leaf(type, Op.IN, outside, inside)) == [True]


def test_values_of_many_patterns_are_not_asked_for() -> None:
    nan = leaf(pa.float64(), Op.EQ, float("nan"))
    assert bloomed(pa.table({"c": [1.5]}), 1).ask("bloom filter", nan).bounds is None
    nanos = pa.table({"c": pa.array([1500], pa.timestamp("ns"))})
    asked = leaf(pa.timestamp("us"), Op.EQ, 1)
    assert bloomed(nanos, 1).ask("bloom filter", asked).bounds is None


def spliced(table: pa.Table, filter_: bytes, length: int | None) -> Written:
    """The file with these bytes as the filter of its only row group, before the footer."""
    whole = write(table)
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")

    def point(metadata: FileMetaData) -> FileMetaData:
        def change(r: int, c: int, chunk: ColumnMetaData) -> ColumnMetaData:
            return replace(chunk, bloom_filter_offset=end, bloom_filter_length=length)

        return with_chunks(metadata, change)

    data = rewritten(whole, point)
    return Written(data[:end] + filter_ + data[end:])


def filled(num_bytes: int, *values: int) -> BloomFilter:
    found = BloomFilter.of_size(num_bytes)
    found.insert(xxh64_values(np.array(values, np.int64)))
    return found


def test_a_header_of_any_length_leads_to_the_bitset() -> None:
    """The header has a field that nobody knows: a guess from the length would read wrong blocks."""
    table = pa.table({"c": [5]})
    bitset = filled(96, 5).bitset()
    for extra in (1, 15, 100, 3000):
        odd = Empty(unknown=(Field(1, BINARY, b"x" * extra),))
        head = header(96, compression=BloomFilterCompression(UNCOMPRESSED=odd))
        for length in (None, len(head) + 96):
            written = spliced(table, head + bitset, length)
            assert written.may("bloom filter", equals(5)) == [True]
            assert written.may("bloom filter", equals(6)) == [False]
    # The length alone would be that of a usual filter of 128 bytes.
    pad = next(n for n in range(80) if guess_bitset(len(_padded(n)) + 96) is not None)
    written = spliced(table, _padded(pad) + bitset, len(_padded(pad)) + 96)
    assert written.may("bloom filter", equals(5)) == [True]
    assert written.may("bloom filter", equals(6)) == [False]


def _padded(extra: int) -> bytes:
    odd = Empty(unknown=(Field(1, BINARY, b"x" * extra),))
    return header(96, compression=BloomFilterCompression(UNCOMPRESSED=odd))


HOSTILE = [
    (header(0), Cause.CORRUPT),
    (header(33), Cause.CORRUPT),
    (header(2**31 - 32), Cause.CORRUPT),
    (header(1 << 20), Cause.CORRUPT),  # ends past the file
    (header(64, hash=BloomFilterHash()), Cause.UNSUPPORTED),
    (b"\xff" * 80, Cause.CORRUPT),
    (b"\x40\0\0\0" + bytes(80), Cause.UNSUPPORTED),  # Murmur3, of the time before the format
]


@pytest.mark.parametrize("data, cause", HOSTILE)
@pytest.mark.parametrize("length", [None, 1, 80, 1 << 30])
def test_hostile_filters_say_nothing(data: bytes, cause: Cause, length: int | None) -> None:
    table = pa.table({"c": [5]})
    written = spliced(table, data, length)
    for asked in (equals(5), equals(6)):
        answer = written.ask("bloom filter", asked)
        assert answer.bounds is not None
        assert answer.bounds.may.tolist() == [True]
        if length is None:
            assert [reason.cause for reason in answer.reasons] == [cause]
    assert sum(each.length for each in written.fetching.asked) < 10_000


def test_no_filter_no_evidence() -> None:
    written = Written(write(pa.table({"c": [1]})))
    assert written.evidence("c", "bloom filter") is None


# -- dictionaries ----------------------------------------------------------------------------------


def texts(prefix: str) -> list[str]:
    return [f"{prefix}{i % 4}" for i in range(1000)]


def test_a_dictionary_knows_every_value() -> None:
    """Three row groups of a thousand rows, each with four texts of its own, and a null at last."""
    filler = np.random.default_rng(1).random(3000)
    column = [*texts("a"), *texts("b"), *texts("c")[:-1], None]
    table = pa.table({"c": column, "filler": filler})
    written = Written(write(table, group=1000, use_dictionary=["c"]))
    text = pa.string()
    asked = leaf(text, Op.EQ, "b2")
    assert written.may("dictionary", asked) == [False, True, False]
    pages = len(written.fetching.asked)
    assert pages == 3
    # Between the bounds, but in no row.
    assert written.may("statistics", leaf(text, Op.EQ, "b11")) == [False, True, False]
    assert written.may("dictionary", leaf(text, Op.EQ, "b11")) == [False] * 3
    assert written.may("dictionary", leaf(text, Op.LIKE, "%3", "\\", "")) == [True] * 3
    assert written.may("dictionary", leaf(text, Op.LIKE, "%4", "\\", "")) == [False] * 3
    # All values begin so; the null of the last row group does not.
    assert written.must("dictionary", leaf(text, Op.NOT_LIKE, "%9", "\\", "")) == [
        True,
        True,
        False,
    ]
    assert len(written.fetching.asked) == pages  # remembered


def test_a_dictionary_is_not_read_where_that_does_not_pay() -> None:
    """A dictionary of as many values as rows is nearly all of the row group."""
    table = pa.table({"c": [f"text number {i}" for i in range(1000)]})
    written = Written(write(table, use_dictionary=True))
    assert written.evidence("c", "dictionary") is None


def test_a_dictionary_is_not_used_where_some_pages_have_none() -> None:
    """The writer gave the dictionary up when it grew past its limit, and went on in plain."""
    table = pa.table({"c": [f"text number {i % 600}" for i in range(20_000)]})
    mixed = write(table, dictionary_pagesize_limit=4096, data_page_size=1024, write_batch_size=64)
    written = Written(mixed)
    encodings = read_metadata(mixed).row_groups[0].columns[0].meta_data
    assert encodings is not None
    assert encodings.dictionary_page_offset is not None
    assert written.evidence("c", "dictionary") is None


def test_a_damaged_dictionary_says_nothing() -> None:
    table = pa.table({"c": texts("a"), "filler": np.random.default_rng(1).random(1000)})
    data = bytearray(write(table, use_dictionary=["c"]))
    meta = read_metadata(bytes(data)).row_groups[0].columns[0].meta_data
    assert meta is not None
    assert meta.dictionary_page_offset is not None
    for damage in range(meta.dictionary_page_offset, meta.data_page_offset):
        hurt = bytearray(data)
        hurt[damage] ^= 0xFF
        answer = Written(bytes(hurt)).ask("dictionary", leaf(pa.string(), Op.EQ, "a1"))
        if answer.bounds is None:
            assert answer.reasons[0].cause in (Cause.CORRUPT, Cause.UNSUPPORTED)
