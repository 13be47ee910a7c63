"""``write_table``: rows that every reader reads back, and what readers skip by, in its place."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skipstone
from skipstone import ParquetFile, write_table
from skipstone.errors import SkipstoneError, UnsupportedError
from skipstone.parquet.format.bloom_filter import optimal_bytes
from skipstone.predicate.types import column_name
from tests.oracle import NotModelled, SparkError, matching_rows
from tests.rewrite.written import NAN, page_rows_of, same_everywhere, table
from tests.strategies import ARROW_TYPES, predicates, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "codec, name", [("snappy", "a.parquet"), ("zstd", "a é=%.parquet"), ("none", "a b.parquet")]
)
def test_every_reader_reads_every_option_at_once(
    tmp_path: Path, codec: str, version: str, name: str
) -> None:
    rows = table()
    report = write_table(
        rows,
        tmp_path / name,
        row_group_rows=1_500,
        page_rows=130,
        bloom={"id": 0.01, "s": 0.05, "l": 0.01, "st": 0.1},
        index_pages=["id"],
        sorting=["id"],
        compression=codec,
        checkpoint_every=2,
        arrow_options={"data_page_version": version, "dictionary_pagesize_limit": 20_000},
    )
    assert (report.rows, report.row_groups, report.sorted_groups) == (5_000, 4, 4)
    assert report.checkpoints == 2
    assert report.bytes == (tmp_path / name).stat().st_size
    assert [each.name for each in tmp_path.iterdir()] == [name]
    file = same_everywhere(tmp_path / name, rows)
    assert file.schema.equals(rows.schema)
    # Row groups of 1,500, 1,500, 1,500 and 500 rows: pages of exactly 130, lists and maps too.
    assert page_rows_of(file) == {(130,) * 11 + (70,), (130,) * 3 + (110,)}
    for r in range(4):
        for leaf in file.footer.schema.leaves:
            meta = file.metadata.row_groups[r].columns[leaf.ordinal].meta_data
            assert meta is not None
            assert meta.index_page_offset is not None
            headers = file.page_headers(r, leaf.name)
            assert all(each.crc is not None for each in headers if each.index_page_header is None)
            # The order of all types is known; f has NaN, of which bounds would not tell.
            assert (file.column_index(r, leaf.name) is None) == (leaf.name == "f")
    assert file.bloom_filter(0, "id") is not None
    assert file.bloom_filter(0, "l.list.element") is not None
    assert file.bloom_filter(0, "st.b") is not None
    assert file.bloom_filter(0, "k") is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_table_by_any_options(tmp_path: Path, data: st.DataObject) -> None:
    """Rows and types as Arrow itself would have written them; predicates find what brute force
    finds; nothing in the file is untrue."""
    rows = data.draw(tables(ARROW_TYPES, max_rows=20))
    path, theirs = tmp_path / "drawn.parquet", tmp_path / "theirs.parquet"
    columns = [
        field.name
        for field in rows.schema
        if not pa.types.is_boolean(field.type) and not pa.types.is_nested(field.type)
    ]
    page_rows = data.draw(st.sampled_from([None, 1, 3, 100]))
    options: dict[str, Any] = {
        "data_page_version": data.draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": data.draw(st.booleans()),
        "dictionary_pagesize_limit": data.draw(st.sampled_from([1, 1 << 20])),
        "write_batch_size": 2,
    }
    pq.write_table(rows, theirs)
    quoted = [column_name((name,)) for name in columns]
    write_table(
        _given(data, rows),
        path,
        row_group_rows=data.draw(st.integers(1, 20)),
        page_rows=page_rows,
        page_index=data.draw(st.booleans()) or page_rows is not None,
        bloom=dict.fromkeys(quoted, 0.01),
        index_pages=data.draw(st.sampled_from([None, [], quoted])),
        sorting=quoted[:1] or None,
        checkpoint_every=data.draw(st.integers(0, 3)),
        arrow_options=options,
    )
    found = pq.read_table(path, page_checksum_verification=True)
    whole = pq.read_table(theirs)
    assert found.schema.equals(whole.schema, check_metadata=True)
    assert repr(found.to_pydict()) == repr(whole.to_pydict())
    file = ParquetFile(path)
    verified = file.verify()
    assert verified.ok, str(verified)
    if page_rows is not None:
        for pages in page_rows_of(file):
            assert set(pages[:-1]) <= {page_rows}
            assert pages[-1] <= page_rows
    predicate = data.draw(predicates(rows))
    try:
        expected = matching_rows(rows, predicate)
        read = file.query(predicate)
    except (SparkError, NotModelled, UnsupportedError):
        return
    assert repr(read.to_pydict()) == repr(whole.take(pa.array(expected, pa.int64())).to_pydict())


def _given(data: st.DataObject, rows: pa.Table) -> Any:
    """The rows as a table or as one of the streams."""
    batches = rows.to_batches(max_chunksize=data.draw(st.integers(1, 7)))
    kind = data.draw(st.sampled_from(["table", "reader", "iterable", "tables"]))
    if kind == "reader":
        return pa.RecordBatchReader.from_batches(rows.schema, batches)
    if kind == "iterable" and batches:
        return iter(batches)
    return [rows.slice(0, 2), rows.slice(2)] if kind == "tables" else rows


# -- what goes in ---------------------------------------------------------------------------------


def test_streams_of_others(tmp_path: Path) -> None:
    rows = pa.table({"n": range(3_000), "s": [f"{i % 7}" for i in range(3_000)]})
    given: dict[str, Any] = {
        "polars": polars.from_arrow(rows),
        "duckdb": duckdb.sql("SELECT range n, (range % 7)::VARCHAR s FROM range(3000)"),
        "reader": rows.to_reader(max_chunksize=70),
        "batch": rows.combine_chunks().to_batches()[0],
    }
    for name, data in given.items():
        report = write_table(data, tmp_path / name, row_group_rows=1_000)
        assert report.row_groups == 3, name
        assert pq.read_table(tmp_path / name).cast(rows.schema).equals(rows), name


def test_no_rows(tmp_path: Path) -> None:
    rows = table(0)
    for number, data in enumerate([rows, [], [rows], rows.to_reader()]):
        path = tmp_path / f"{number}.parquet"
        report = write_table(data, path, schema=rows.schema, bloom={"id": 0.1}, sorting=["id"])
        assert report.row_groups == 0
        assert same_everywhere(path, rows).schema.equals(rows.schema)


def test_of_a_stream_two_row_groups_are_held(tmp_path: Path) -> None:
    """100 batches of 0.8 MB as row groups of one batch; each is freed when its turn is over."""
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        before = pa.total_allocated_bytes()
        for number in range(100):
            values = np.random.default_rng(number).integers(0, 1 << 60, 100_000)
            yield pa.record_batch({"n": pa.array(values.tolist(), pa.int64())})
            most = max(most, pa.total_allocated_bytes() - before)

    report = write_table(batches(), tmp_path / "a.parquet", row_group_rows=100_000)
    assert report.row_groups == 100
    # Rows, pages and Arrow's buffers of two row groups, and not 80 MB.
    assert most < 30_000_000


def test_what_is_refused(tmp_path: Path) -> None:
    rows, path = table(10), tmp_path / "a.parquet"
    other = rows.select(["id"])
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (SkipstoneError, "no column 'Id'", {"bloom": {"Id": 0.1}}),
        (UnsupportedError, "booleans", {"bloom": {"b": 0.1}}),
        (SkipstoneError, "probability", {"bloom": {"id": 1.0}}),
        (SkipstoneError, "sorted by", {"sorting": ["l"]}),
        (SkipstoneError, "no column 'x'", {"index_pages": ["x"]}),
        (ValueError, "row_group_rows", {"row_group_rows": 0}),
        (ValueError, "page_rows", {"page_rows": 0}),
        (ValueError, "checkpoint_every", {"checkpoint_every": -1}),
        (ValueError, "write_page_index", {"arrow_options": {"write_page_index": True}}),
        (UnsupportedError, "Unsupported compression", {"compression": "zip"}),
        (SkipstoneError, "another schema than the given one", {"schema": other.schema}),
        (SkipstoneError, "another schema than the first", {"data": [rows, other]}),
        (SkipstoneError, "has no schema", {"data": []}),
        (TypeError, "not int", {"data": 3}),
        (TypeError, "not of str", {"data": ["rows"]}),
        (UnsupportedError, "without columns", {"data": pa.table({})}),
        (UnsupportedError, "object store", {"path": "s3://b/a.parquet"}),
    ]
    path.write_bytes(b"what was there")
    for error, text, arguments in cases:
        with pytest.raises(error, match=text):
            write_table(arguments.pop("data", rows), arguments.pop("path", path), **arguments)
    assert path.read_bytes() == b"what was there"
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


def test_an_error_in_the_stream_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_table(table(10), path)
    before = path.read_bytes()

    def broken() -> Iterator[pa.Table]:
        yield table(3_000)
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError, match="the network is gone"):
        write_table(broken(), path, row_group_rows=1_000)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]
    write_table(table(20), path)
    assert pq.read_table(path).num_rows == 20


# -- what readers skip by -------------------------------------------------------------------------


@pytest.fixture
def numbers(tmp_path: Path) -> ParquetFile:
    """10 row groups of 1,000 rows in pages of 100; ``id`` ascends, ``key`` is scattered over all
    row groups and has a Bloom filter, ``f`` is the row's hundred; ``text`` is 1,000 bytes long."""
    n = np.arange(10_000)
    rows = pa.table(
        {
            "id": n,
            "key": (7_919 * n) % 10_007 * 2,
            "f": (n // 100).astype(float),
            "text": [f"{i:01000}" for i in n],
        }
    )
    path = tmp_path / "numbers.parquet"
    write_table(
        rows,
        path,
        row_group_rows=1_000,
        page_rows=100,
        bloom={"key": 0.001},
        compression="none",
        arrow_options={"use_dictionary": False},
    )
    return ParquetFile(path)


def _rows_of(file: ParquetFile, where: str) -> list[tuple[int, int]]:
    (planned,) = file.plan(where).files
    if planned.detail.rows is None:
        return [(0, file.num_rows)]
    starts, stops = planned.detail.rows.ranges()
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def test_a_point_is_one_page(numbers: ParquetFile) -> None:
    """Row 4,711 is in row group 4, in its page of rows 4,700 to 4,800."""
    assert _rows_of(numbers, "id = 4711") == [(4_700, 4_800)]
    before = numbers.bytes_read
    assert numbers.query("id = 4712")["text"].to_pylist() == [f"{4712:01000}"]
    # A page of text is 100 kB, one of numbers 0.8 kB.
    assert 101_600 < numbers.bytes_read - before < 108_000


def test_a_range_is_its_pages(numbers: ParquetFile) -> None:
    """Rows 2,950 to 3,149: the last page of row group 2 and the first two of row group 3; f > 98.5
    in the last page of all, as no row group has a NaN, by its count."""
    assert _rows_of(numbers, "id BETWEEN 2950 AND 3149") == [(2_900, 3_200)]
    assert _rows_of(numbers, "f > 98.5") == [(9_900, 10_000)]


@pytest.mark.parametrize("every", [0, 1, 2])
def test_no_reader_loses_nan(tmp_path: Path, every: int) -> None:
    """4 row groups of 100 rows, f ascending, a NaN in the third: f has bounds in no row group, and
    every reader finds the NaN above all numbers, as it does among rows in memory."""
    f = [i / 100 for i in range(400)]
    f[250] = NAN
    path = tmp_path / "a.parquet"
    report = write_table(
        pa.table({"f": f, "g": range(400)}),
        path,
        row_group_rows=100,
        page_rows=10,
        checkpoint_every=every,
    )
    assert "f holds NaN" in str(report)
    file = ParquetFile(path)
    for r, group in enumerate(file.metadata.row_groups):
        f_meta, g_meta = (each.meta_data for each in group.columns)
        assert f_meta is not None
        assert f_meta.statistics is not None
        assert f_meta.statistics.min_value is f_meta.statistics.max is None
        assert f_meta.statistics.nan_count == (r == 2)
        assert (file.column_index(r, "f") is None) == (r == 2)
        assert g_meta is not None
        assert g_meta.statistics is not None
        assert g_meta.statistics.min_value is not None
    assert file.verify().ok
    assert file.count("f > 3.5") == 50
    assert duckdb.read_parquet(str(path)).filter("f > 3.5").to_arrow_table().num_rows == 50
    assert polars.scan_parquet(path).filter(polars.col("f") > 3.5).collect().height == 50
    context: Any = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    assert context.sql("SELECT * FROM t WHERE f > 3.5").count() == 50
    assert context.sql("SELECT * FROM t WHERE f > 100").count() == 1


def test_an_absent_key_is_a_block_of_each_filter(numbers: ParquetFile) -> None:
    assert numbers.count("key = 7") == 0
    before = numbers.bytes_read
    assert numbers.count("key = 9") == 0
    assert numbers.bytes_read - before <= 10 * 32


def test_bounds_and_counts(tmp_path: Path) -> None:
    """Text of 200 bytes: bounds of 64 and the flags that say so; NaN counted in page and chunk."""
    text = ["a" * 200, "b" * 200, None, "z"]
    rows = pa.table({"t": text, "f": [NAN, 1.0, None, -0.0], "g": [NAN, NAN, 2.0, 3.0]})
    write_table(rows, tmp_path / "a.parquet", page_rows=2)
    file = ParquetFile(tmp_path / "a.parquet")
    t, f, g = (each.meta_data for each in file.metadata.row_groups[0].columns)
    assert t is not None
    assert t.statistics is not None
    assert t.statistics.min_value == b"a" * 64
    assert (t.statistics.is_min_value_exact, t.statistics.is_max_value_exact) == (False, True)
    assert t.size_statistics is not None
    assert t.size_statistics.unencoded_byte_array_data_bytes == 401
    assert t.size_statistics.definition_level_histogram == (1, 3)
    index = file.column_index(0, "t")
    assert index is not None
    assert index.max_values.to_list()[0] == b"a" * 0 + b"b" * 63 + b"c"
    assert f is not None
    assert f.statistics is not None
    assert (f.statistics.nan_count, f.statistics.null_count) == (1, 1)
    assert g is not None
    assert file.column_index(0, "g") is None
    assert file.offset_index(0, "g") is not None


def test_a_filter_is_as_large_as_its_distinct_values(tmp_path: Path) -> None:
    """20,000 rows of 100 values: the filter is that of 100."""
    rows = pa.table({"few": [i % 100 for i in range(20_000)], "all": range(20_000)})
    write_table(rows, tmp_path / "a.parquet", bloom={"few": 0.01, "all": 0.01})
    file = ParquetFile(tmp_path / "a.parquet")
    for name, distinct in (("few", 100), ("all", 20_000)):
        found = file.bloom_filter(0, name)
        assert found is not None
        assert found.blocks.nbytes == optimal_bytes(distinct, 0.01)


def test_an_order_is_claimed_where_it_is_found(tmp_path: Path) -> None:
    """Four row groups of 100 rows; the third one is not sorted by t, whose nulls come first."""
    t = [None] * 10 + list(range(390))
    t[250], t[260] = t[260], t[250]
    rows = pa.table({"t": t, "st": [{"a": i // 7} for i in range(400)]})
    path = tmp_path / "a.parquet"
    report = write_table(rows, path, row_group_rows=100, sorting=["st.a", "t:nulls_first"])
    assert report.sorted_groups == 3
    assert "not sorted by st.a, t" in str(report)
    file = ParquetFile(path)
    claimed = [file.footer.sorting_columns(r) for r in range(4)]
    assert [bool(each) for each in claimed] == [True, True, False, True]
    assert pq.ParquetFile(path).metadata.row_group(0).sorting_columns == (
        pq.SortingColumn(1, nulls_first=False),
        pq.SortingColumn(0, nulls_first=True),
    )
    assert file.verify().ok
    descending = write_table(
        rows.sort_by([("t", "descending")]), path, row_group_rows=100, sorting=["t:desc"]
    )
    assert descending.sorted_groups == 4


def test_without_a_page_index(tmp_path: Path) -> None:
    write_table(table(500), tmp_path / "a.parquet", page_index=False, bloom={"id": 0.01})
    file = same_everywhere(tmp_path / "a.parquet", table(500))
    assert file.offset_index(0, "id") is None
    assert file.column_index(0, "id") is None
    assert file.bloom_filter(0, "id") is not None


def test_indexes_of_all_row_groups_lie_together(tmp_path: Path) -> None:
    """Behind the pages, kind by kind: one request has the column indexes of a column."""
    rows = table(3_000).drop_columns(["f"])
    write_table(rows, tmp_path / "a.parquet", row_group_rows=1_000, page_rows=100)
    file = ParquetFile(tmp_path / "a.parquet")
    chunks = [each for group in file.metadata.row_groups for each in group.columns]
    places = [
        (at, length)
        for name in ("column_index", "offset_index")
        for each in chunks
        if (at := getattr(each, f"{name}_offset")) and (length := getattr(each, f"{name}_length"))
    ]
    assert len(places) == 2 * len(chunks)
    assert all(at + length == following for (at, length), (following, _) in pairwise(places))
    assert sum(places[-1]) == file.tail.offset


def test_index_pages_between_data_pages(tmp_path: Path) -> None:
    """As the specification draws it: not for DuckDB and polars."""
    rows = table(2_000)
    path = tmp_path / "a.parquet"
    report = write_table(
        rows, path, page_rows=50, index_pages=["id", "f"], interleave=True, row_group_rows=1_000
    )
    assert "f: its index pages hold ordinals, its pages do not ascend" in str(report)
    found = pq.read_table(path, page_checksum_verification=True)
    assert repr(found.to_pydict()) == repr(rows.to_pydict())
    file = ParquetFile(path)
    assert file.verify().ok
    assert file.query("id = 1234").num_rows == 1
    behind = write_table(rows, path, page_rows=50, index_pages=[], row_group_rows=1_000)
    assert "index pages" not in str(behind)
    same_everywhere(path, rows)


def test_compression_and_encoding_by_column(tmp_path: Path) -> None:
    rows = table(2_000)
    write_table(
        rows,
        tmp_path / "a.parquet",
        compression={"id": "zstd", "u": "gzip"},
        arrow_options={
            "use_dictionary": ["k"],
            "column_encoding": {"id": "DELTA_BINARY_PACKED", "u": "DELTA_BYTE_ARRAY"},
            "compression_level": {"id": 5},
        },
    )
    same_everywhere(tmp_path / "a.parquet", rows)
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    assert [group.column(at).compression for at in (0, 1, 4)] == ["ZSTD", "UNCOMPRESSED", "GZIP"]
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "RLE_DICTIONARY" in group.column(3).encodings


def test_one_page_of_a_dictionary_that_overflowed(tmp_path: Path) -> None:
    """Values of 40 bytes overflow 20 kB: all pages have the rows that were asked for all the same,
    and no page refers to a dictionary; the other columns keep theirs."""
    write_table(
        table(4_000),
        tmp_path / "a.parquet",
        row_group_rows=2_000,
        page_rows=300,
        arrow_options={"dictionary_pagesize_limit": 20_000},
    )
    file = same_everywhere(tmp_path / "a.parquet", table(4_000))
    assert page_rows_of(file) == {(300,) * 6 + (200,)}
    for r in range(2):
        u, k = (file.metadata.row_groups[r].columns[at].meta_data for at in (4, 3))
        assert u is not None
        assert k is not None
        assert u.dictionary_page_offset is None
        assert k.dictionary_page_offset is not None


def test_spark_reads_it_and_skips(spark: SparkSession, tmp_path: Path) -> None:
    rows = table(4_000).drop_columns(["n"])
    path = tmp_path / "a é.parquet"
    write_table(
        rows,
        path,
        row_group_rows=1_000,
        page_rows=100,
        bloom={"k": 0.01},
        index_pages=["id"],
        checkpoint_every=1,
        sorting=["id"],
    )
    frame = spark.read.parquet(str(path))
    assert frame.count() == 4_000
    found = frame.orderBy("id").collect()
    expected = rows.to_pylist()
    for one, other in zip(found, expected, strict=True):
        assert (one.id, one.s, one.k, one.l, one.ll) == tuple(
            other[name] for name in ("id", "s", "k", "l", "ll")
        )
        assert repr(one.f) == repr(other["f"])
        assert one.m == dict(other["m"])
        assert (one.st.asDict() if one.st else None) == other["st"]
    assert [row.id for row in frame.where("id = 2345").collect()] == [2_345]
    assert frame.where("f > 1e9").count() == len(range(0, 4_000, 7))  # the NaN
    assert frame.where("k = 'k3' and id < 500").count() == sum(i % 11 == 3 for i in range(500))
    matching = pc.sum(pc.equal(rows["k"], "k3")).as_py()
    assert skipstone.skip(frame).where("k = 'k3'").count() == matching
