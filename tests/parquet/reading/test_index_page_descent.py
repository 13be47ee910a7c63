"""Rows found by trees of index pages: none is lost whatever the values, and few pages are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skipstone import ParquetFile
from skipstone.errors import FormatError, PredicateError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.index_page import IndexPage
from skipstone.parquet.reading.index_page_descent import Descent, run_together
from skipstone.parquet.reading.page_tables import ChunkPlace
from skipstone.parquet.values import ByteArrays
from skipstone.parquet.writing.index_page_tree import place_index_pages
from skipstone.predicate.tree import And, ColumnRef, Comparison
from skipstone.rewrite.index_pages_file import add_index_pages
from tests.oracle import NotModelled, SparkError, matching_rows, sort_key
from tests.parquet.index_trees import leaf_of
from tests.strategies import literals, values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skipstone.storage import ByteRange

TYPES = [
    pa.int32(),
    pa.int64(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms"),
    pa.decimal128(9, 2),
    pa.decimal128(18, 0),
    pa.decimal128(38, 10),
]


@st.composite
def sorted_tables(draw: st.DrawFn) -> tuple[pa.Table, pa.DataType]:
    """A column ``k`` that ascends in Spark's order with nulls at one end, and what goes with it."""
    type_ = draw(st.sampled_from(TYPES))
    few = draw(st.booleans())
    size = draw(st.integers(0, 60))
    pool = draw(st.lists(values(type_), min_size=1, max_size=5 if few else 60))
    held: list[Any] = sorted((draw(st.sampled_from(pool)) for _ in range(size)), key=sort_key)
    nulls = [None] * draw(st.sampled_from([0, 0, 1, 9]))
    held = nulls + held if draw(st.booleans()) else held + nulls
    if draw(st.sampled_from([False] * 7 + [True])):
        held = [None] * len(held)
    rows = len(held)
    return pa.table(
        {
            "k": pa.array(held, type_),
            "n": pa.array(range(rows), pa.int64()),
            "s": pa.array([None if at % 5 == 0 else "x" * (at % 11) for at in range(rows)]),
            "l": pa.array([[at] * (at % 3) for at in range(rows)], pa.list_(pa.int32())),
        }
    ), type_


@given(sorted_tables(), st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_keys_and_ranges_give_the_rows_of_the_oracle(
    tmp_path: Path, drawn: tuple[pa.Table, pa.DataType], data: st.DataObject
) -> None:
    table, type_ = drawn
    path, made = str(tmp_path / "a é.parquet"), str(tmp_path / "b %20.parquet")
    pq.write_table(
        table,
        path,
        row_group_size=data.draw(st.sampled_from([7, 25, 100])),
        write_page_index=data.draw(st.booleans()),
        max_rows_per_page=data.draw(st.integers(1, 9)),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        use_dictionary=data.draw(st.booleans()),
    )
    report = add_index_pages(
        path,
        ["k"],
        interleave=data.draw(st.booleans()),
        roll_over=data.draw(st.sampled_from([1, 50, 200, 1 << 16])),
        output=made,
    )
    file = ParquetFile(made)
    assert shown(file.read_rows()) == shown(table)
    index = file.index_pages("k")
    present = [each for each in table["k"].to_pylist() if each is not None]
    assert any(index.keyed) == bool(present) == bool(report.keyed)
    drawn_values = [each for each in _raw(table["k"], type_) if each is not None]
    for _ in range(3):
        low, high = (data.draw(st.none() | literals(type_, drawn_values)) for _ in range(2))
        if data.draw(st.booleans()):
            high = low
        column = ColumnRef(("k",))
        ends = {">=": low, "<=": high}
        parts = [Comparison(op, column, end) for op, end in ends.items() if end is not None]
        expected = table.filter(table["k"].is_valid())
        try:
            if parts:
                tree = parts[0] if len(parts) == 1 else And(tuple(parts))
                rows = matching_rows(table, tree)
                expected = table.take(pa.array(rows, pa.int64()))
            found = index.query(low, high)
        except (NotModelled, SparkError, PredicateError, UnsupportedError):
            continue  # Spark has no answer, or ours is that the predicate cannot be decided
        assert shown(found) == shown(expected), (low, high)
        if parts:
            assert shown(file.query(tree)) == shown(expected), (low, high)


def shown(table: pa.Table) -> str:
    """What NaN does not make different."""
    return repr(table.to_pydict())


def _raw(column: pa.ChunkedArray, type_: pa.DataType) -> list[Any]:
    """As ``values`` draws them: times as whole numbers."""
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.int64())
    elif pa.types.is_date(type_):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def ascending(path: Path, rows: int = 40_000, **options: Any) -> str:
    """k = 0, 0, 2, 2, 4, 4 …; 400 rows in a page, 100 pages in one row group."""
    n = range(rows)
    table = pa.table(
        {
            "k": pa.array([at // 2 * 2 for at in n], pa.int64()),
            "v": pa.array([at / 8 for at in n]),
            "b": pa.array([at % 2 == 0 for at in n]),
        }
    )
    given_ = {"max_rows_per_page": 400, "write_page_index": True, "use_dictionary": False}
    pq.write_table(table, path, **(given_ | options))
    return str(path)


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("roll_over", [64 << 10, 100])
def test_exactly_the_pages_that_hold_a_key(
    tmp_path: Path, interleave: bool, roll_over: int
) -> None:
    """Page p of k holds the even numbers from 400 p to 400 p + 398, each of them twice."""
    path = ascending(tmp_path / "k.parquet")
    report = add_index_pages(path, ["k"], interleave=interleave, roll_over=roll_over)
    assert report.levels == (1 if roll_over > 100 else 3)
    file = ParquetFile(path)
    places = file.offset_index(0, "k")
    assert places is not None
    index = file.index_pages("k")
    for key, pages in (
        (0, [0]),
        (4_100, [10]),
        (4_101, [10]),  # not there: the page that would have it
        (398, [0, 1]),  # a bound: the next page might begin with it
        (399, [1]),
        (39_998, [99]),
        (-5, []),  # as the footer says
        (39_999, []),
        (1 << 70, []),
    ):
        found = index.find(key)
        assert found.offset.tolist() == places.offset[pages].tolist(), key
        assert found.length.tolist() == places.compressed_page_size[pages].tolist()
    assert len(index.range(4_000, 8_000)) == 11
    assert len(index.range(4_001, 7_997)) == 10
    assert len(index.range()) == len(index.range(None, 1 << 60)) == 100
    assert len(index.range(9, 3)) == 0
    rows = file.index_pages("v").ordinals(799, 801)
    assert rows.first_row.tolist() == [400, 800]
    assert rows.stop_row.tolist() == [800, 1_200]
    assert len(file.index_pages("b").ordinals(0, 40_000)) == 100
    assert len(file.index_pages("v").ordinals(39_999, 50_000)) == 1
    assert len(file.index_pages("v").ordinals(50_000, 60_000)) == 0


def test_a_lookup_reads_the_trees_and_three_pages(tmp_path: Path) -> None:
    """One page each of three columns, and the roots of three chunks: not a byte more."""
    path = ascending(tmp_path / "k.parquet", write_page_index=False, data_page_size=1 << 10)
    add_index_pages(path, ["k"])
    file = ParquetFile(path)
    footer, index = file.bytes_read, file.index_pages("k")
    table = index.query(4_100, 4_100)
    assert table.to_pydict() == {"k": [4_100] * 2, "v": [512.5, 512.625], "b": [True, False]}
    assert index.bytes_read == file.bytes_read - footer < 40_000
    assert index.requests <= 10  # four waves, and that the file is still the same
    trees = sum(
        len(page)
        for page in (file.reader.one(file.path, at, stop - at) for at, stop in _trees(file))
    )
    pages = index.find(4_100).length.sum() * 2  # k and v; b is smaller
    assert index.bytes_read <= trees + 2 * pages


def _trees(file: ParquetFile) -> list[tuple[int, int]]:
    """Where the roots lie, and where their chunks end."""
    found = []
    for leaf in range(3):
        place = file.chunk_pages.place((0, leaf))
        found.append((int(file.footer.chunk("index_page_offset")[0, leaf]), place.stop))
    return found


def test_what_is_asked_of_a_column_without(tmp_path: Path) -> None:
    path = ascending(tmp_path / "k.parquet")
    file = ParquetFile(path)
    with pytest.raises(UnsupportedError, match="no index pages"):
        file.index_pages("k").find(1)
    with pytest.raises(UnsupportedError, match="no ordinals"):
        file.index_pages("k").ordinals(0, 1)
    assert file.index_pages("b").query(True, True).num_rows == 20_000
    assert file.index_pages("k").query(8, 9).num_rows == 2  # the whole column is read
    with pytest.raises(SkipstoneError, match="nope"):
        file.index_pages("nope")
    add_index_pages(path)
    ordinal = ParquetFile(path).index_pages("k")
    assert ordinal.keyed == (False,)
    with pytest.raises(UnsupportedError, match="no index pages"):
        ordinal.range(1, 2)
    assert ordinal.query(8, 9).num_rows == 2


def test_a_plan_takes_them_where_there_is_no_page_index(tmp_path: Path) -> None:
    """Page p of k holds the even numbers from 400 p on; nothing else says so but the tree."""
    path = ascending(tmp_path / "k.parquet", write_page_index=False, data_page_size=3_000)
    assert ParquetFile(path).plan("k = 4100").details == {}
    bare, path = path, str(tmp_path / "trees.parquet")
    add_index_pages(bare, ["k"], output=path)
    file = ParquetFile(path)
    found = file.plan("k >= 4100 AND k <= 4102").details[0].rows
    assert found is not None
    assert 4 <= len(found) < 1_000
    assert file.query("k = 4100")["v"].to_pylist() == [512.5, 512.625]
    assert file.query("k = 4101").num_rows == 0
    assert file.query("k IS NULL").num_rows == 0
    walked, by_row = ParquetFile(bare), ParquetFile(path)
    asked = [(walked.requests, by_row.requests)]
    assert walked.read_rows(None, [(4_000, 4_001)]) == by_row.read_rows(None, [(4_000, 4_001)])
    asked.append((walked.requests, by_row.requests))
    assert 3 * (asked[1][1] - asked[0][1]) < asked[1][0] - asked[0][0]


def test_a_damaged_tree_in_a_file_gives_its_rows_or_a_format_error(tmp_path: Path) -> None:
    """Index pages have checksums: whatever bytes of them are overwritten, no row is lost by it."""
    path = ascending(tmp_path / "k.parquet", 4_000, write_page_index=False, data_page_size=1_000)
    add_index_pages(path, ["k"], roll_over=200)
    rows, whole = pq.read_table(path), (tmp_path / "k.parquet").read_bytes()
    places = [ParquetFile(path).chunk_pages.place((0, leaf)) for leaf in range(2)]
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        place = places[int(rng.integers(2))]
        at = int(rng.integers(place.stop - 2_000, place.stop))
        data[at : at + 2] = rng.bytes(2)
        (tmp_path / "d.parquet").write_bytes(data)
        file = ParquetFile(tmp_path / "d.parquet")
        for way in ("trees", "plan", "rows"):
            try:
                if way == "trees":
                    found = file.index_pages("k").query(1_000, 1_003)
                elif way == "plan":
                    found = file.query("k BETWEEN 1000 AND 1003")
                else:
                    found = file.read_rows(None, [(1_000, 1_004)])
            except FormatError:
                refused += 1
                continue
            assert found.num_rows == 4
            assert found["k"].to_pylist() == rows["k"].slice(1_000, 4).to_pylist()
    assert refused > 2


# -- hostile trees ---------------------------------------------------------------------------------

I64 = leaf_of(Type.INT64)
#: bytes before the chunk, which no entry may reach
BEFORE = 50


class Bytes:
    """Ranges of a file that is only a chunk; what was asked for is counted."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = bytes(BEFORE) + data, 0

    def read(self, ranges: Sequence[ByteRange]) -> dict[ByteRange, memoryview]:
        self.asked += len(ranges)
        for each in ranges:
            assert each.offset >= BEFORE
            assert 0 < each.length <= len(self.data) - each.offset
        view = memoryview(self.data)
        return {each: view[each.offset : each.offset + each.length] for each in ranges}


def ordinals(*entries: tuple[int, int, int]) -> bytes:
    """An index page of (ordinal, offset, length)."""
    rows, offsets, lengths = np.array(entries, np.int64).T
    return IndexPage(page_offset=offsets, page_len=lengths, ordinals=rows).to_bytes(Type.INT64)


def keys(*entries: tuple[int, int, int]) -> bytes:
    """An index page of (key, offset, length)."""
    held, offsets, lengths = np.array(entries, np.int64).T
    values_ = [int(each).to_bytes(8, "little", signed=True) for each in held]
    return IndexPage(
        page_offset=offsets, page_len=lengths, keys=ByteArrays.from_list(values_)
    ).to_bytes(Type.INT64)


def descended(
    chunk: bytes, root: int, *, data: int = 0, rows: int = 100, by_key: bool = False
) -> tuple[list[int], int]:
    """Offsets of all data pages below the root, and how many ranges were read for them."""
    reader = Bytes(chunk)
    descent = Descent(
        place=ChunkPlace(
            path="f", row_group=0, leaf=0, start=BEFORE, stop=BEFORE + len(chunk), codec=0,
            num_values=rows, rows=rows,
        ),
        leaf=I64,
        index_page_offset=BEFORE + root,
        data_page_offset=BEFORE + data,
    )  # fmt: skip
    steps = descent.keys(lambda page: (0, len(page))) if by_key else descent.rows(0, rows)
    (found,) = run_together(reader, [steps])  # type: ignore[arg-type]
    return [int(each) - BEFORE for each in found.offset], reader.asked


DATA = bytes(60)


def test_a_small_tree_of_bytes() -> None:
    """Three data pages of 20 bytes, an index page for two of them, one for the third, the root."""
    one, two = ordinals((0, 0, 20), (40, 20, 20)), ordinals((70, 40, 20))
    at = len(DATA)
    root = ordinals((0, at, len(one)), (70, at + len(one), len(two)))
    found, asked = descended(DATA + one + two + root, at + len(one) + len(two))
    assert found == [0, 20, 40]
    assert asked == 3


def hostile() -> dict[str, tuple[bytes, int]]:
    """Chunks with trees that cannot be, and where their roots lie."""
    at = len(DATA)
    inner = ordinals((0, 0, 20), (40, 20, 20))
    looped = ordinals((0, at, 40), (50, at + 40, 10))  # its first child is itself
    lower = ordinals((30, 40, 20))
    deep, last, length = bytearray(DATA), 1, 20
    for _ in range(40):
        page = ordinals((0, last, length))
        last, length = len(deep), len(page)
        deep += page
    shared = [ordinals((row, at, len(inner))) for row in (0, 50)]
    twice = DATA + inner + b"".join(shared)
    first = at + len(inner)
    second = first + len(shared[0])
    twice += ordinals((0, first, len(shared[0])), (60, second, len(shared[1])))
    return {
        "outside its chunk": (DATA + ordinals((0, 0, 10_000)), at),
        "before its children": (DATA + looped, at),
        "at most 100": (DATA + ordinals((0, 0, 20), (400, 20, 20)), at),
        "too deeply": (bytes(deep), last),
        "PageHeader": (
            DATA + inner + ordinals((0, 1, 19), (60, 20, 20)), at + len(inner)
        ),
        "not in order": (twice, second + len(shared[1])),
        "do not ascend": (
            DATA + inner + lower
            + ordinals((0, at, len(inner)), (50, at + len(inner), len(lower))),
            at + len(inner) + len(lower),
        ),
        "keys and ordinals": (
            DATA + keys((5, 0, 20)) + ordinals((0, at, len(keys((5, 0, 20))))),
            at + len(keys((5, 0, 20))),
        ),
        "an index page outside": (DATA + inner, 5_000),
    }  # fmt: skip


@pytest.mark.parametrize("wrong", hostile())
def test_trees_that_cannot_be(wrong: str) -> None:
    chunk, root = hostile()[wrong]
    with pytest.raises(FormatError, match=wrong):
        descended(chunk, root, data=0 if wrong != "too deeply" else 7)


@given(st.binary(min_size=1, max_size=8), st.integers(1, 400), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_trees_end_in_pages_or_a_format_error(
    noise: bytes, roll_over: int, data: st.DataObject
) -> None:
    """A tree of forty data pages with some bytes overwritten: bounded work, one kind of error."""
    by_key = data.draw(st.booleans())
    sizes = [20] * 40
    held = {"ordinals": list(range(0, 80, 2))}
    if by_key:
        held["keys"] = [each.to_bytes(8, "little") for each in range(40)]  # type: ignore[misc]
    plan = place_index_pages(first=0, sizes=sizes, leaf=I64, roll_over=roll_over, **held)  # type: ignore[arg-type]
    chunk = bytearray(b"".join(bytes(20) if isinstance(e, int) else e for e in plan.order()))
    assert descended(bytes(chunk), plan.index_page_offset, by_key=by_key)[0] == [
        20 * at for at in range(40)
    ]
    at = data.draw(st.integers(800, len(chunk) - 1))
    chunk[at : at + len(noise)] = noise[: len(chunk) - at]
    try:
        found, asked = descended(bytes(chunk), plan.index_page_offset, by_key=by_key)
    except FormatError:
        return
    assert asked <= 2 * len(plan.pages) + 64
    assert found == sorted(set(found))
