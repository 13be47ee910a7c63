"""Queries over an object store: how many requests, and in how many round trips.

The table has 60 files of 2,000 rows in pages of 250, and its facts are one part, which is too large
to be read whole. The gate of the server gives no answer before all requests of a round trip are
there; see ``tests/s3.py``.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone
from skipstone.facts.compact import compact
from skipstone.facts.slice_upkeep import Slicing
from tests.s3 import s3, s3_of_module, s3_server

if TYPE_CHECKING:
    from tests.s3 import S3

__all__ = ["s3", "s3_of_module", "s3_server"]  # fixtures

FILES, ROWS = 60, 2_000
INDEXES = ["key:bloom(fpp=1e-15)", "ts:minmax", "label:minmax"]

# The listings of the table and of its facts; the two ends of the part.
LISTINGS, PART = 2, 2
# The filters; what the file ends with, which is its page index and its footer; pages of ``key``,
# whose place is in the facts.
FILTERS, END, KEYS = 1, 1, 1
# Five other columns, of which the page of the row is read.
OTHERS = 5
# A small part and its bit slices; the rows of the seven bits of a key.
ENDS, BITS = 2, 7


def keys(number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(number).integers(0, 2**60, ROWS) * 2


def content(number: int, rows: int = ROWS) -> bytes:
    """``key`` is spread over everything; ``ts`` and ``label`` follow from file to file."""
    at = np.arange(rows) + number * rows
    table = pa.table(
        {
            "key": keys(number)[:rows],
            "id": [f"{value:032x}" for value in keys(number)[:rows]],
            "ts": at,
            "label": [f"run-{number:04d}-{row:05d}" for row in range(rows)],
            "amount": at / 7,
            "code": pa.array(at % 200, pa.int32()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(
        table, sink, max_rows_per_page=250, write_batch_size=250, write_page_index=True,
        use_dictionary=["code"],
    )  # fmt: skip
    return sink.getvalue()


@pytest.fixture(scope="module")
def table(s3_of_module: S3) -> S3:
    """The bucket with the table in it, indexed and compacted."""
    for number in range(FILES):
        s3_of_module.fill(f"t/part-{number:04d}.parquet", data=content(number))
    opened = open_table(s3_of_module)
    opened.build(indexes=INDEXES)
    opened.compact()
    (part,) = s3_of_module.keys("_t.skipstone/facts/part-")
    held = s3_of_module.client.head_object(Bucket=s3_of_module.bucket, Key=part)
    assert held["ContentLength"] > 1 << 20
    return s3_of_module


def open_table(s3: S3) -> skipstone.Table:
    return skipstone.Table(f"{s3.base}/t", storage_options=s3.options)


def needle(number: int) -> str:
    return f"key = {keys(number)[300]}"


def test_a_needle(table: S3) -> None:
    opened = open_table(table)
    with table.gate.trips(LISTINGS, PART, FILTERS, END + KEYS, OTHERS):
        found = opened.query(needle(7))
    assert found.column("label").to_pylist() == ["run-0007-00300"]
    with table.gate.trips(LISTINGS, END + KEYS, OTHERS):
        found = opened.query(needle(30))
    assert found.column("label").to_pylist() == ["run-0030-00300"]
    # Its footer and page index are known by now, and the pages that were read with them.
    with table.gate.trips(LISTINGS, OTHERS):
        assert opened.query(needle(30)).equals(found)


def test_a_small_index_is_read_whole(table: S3) -> None:
    place = f"{table.base}/small"
    url, options = f"{table.base}/t", table.options
    skipstone.Table(url, index_location=place, storage_options=options).build(
        indexes=["key:bloom(fpp=0.0001)"]
    )
    parts = len(table.keys("small/facts/part-"))
    opened = skipstone.Table(url, index_location=place, storage_options=options)
    with table.gate.trips(LISTINGS, parts, END + KEYS, OTHERS):
        assert opened.query(needle(7)).num_rows == 1


def test_a_forecast_counts_the_requests(table: S3) -> None:
    """Few pages are left by the page index, and are surely read."""
    where = f"ts between {12 * ROWS} and {12 * ROWS + 20}"
    analysis = open_table(table).scan(where).analyze()
    forecast = analysis.explanation.forecast
    assert forecast is not None
    assert forecast.certain == analysis.read
    assert (forecast.possible.requests, forecast.possible.bytes) == (0, 0)


def test_a_plan_that_is_shown_reads_no_rows(table: S3) -> None:
    opened = open_table(table)
    with table.gate.trips(LISTINGS, PART, FILTERS, END):
        (file,) = opened.plan(needle(9)).files
    assert file.path == f"{table.base}/t/part-0009.parquet"


@pytest.mark.parametrize(
    "indexes, where, trips",
    [
        # The page index of ``ts`` tells the pages of ``key``, or that of ``key`` does.
        (["key:bloom", "ts:minmax"], f"key = {keys(7)[300]} and ts = {7 * ROWS + 300}", (END, 6)),
        (["ts:bloom", "ts:minmax"], f"ts = {7 * ROWS + 300}", (END, 6)),
    ],
)
def test_pages_are_left_out_first_where_bounds_may_do_that(
    table: S3, indexes: list[str], where: str, trips: tuple[int, ...]
) -> None:
    place = f"{table.base}/{'-'.join(indexes).replace(':', '')}"
    options = table.options
    skipstone.Table(f"{table.base}/t", index_location=place, storage_options=options).build(
        indexes=indexes
    )
    opened = skipstone.Table(f"{table.base}/t", index_location=place, storage_options=options)
    assert opened.count("ts < 0") == 0  # The facts are known by now.
    assert opened.count("key = 11") == 0
    with table.gate.trips(LISTINGS, *trips):
        assert opened.query(where)["ts"].to_pylist() == [7 * ROWS + 300]


def test_a_key_that_is_absent_asks_no_data_file(table: S3) -> None:
    opened = open_table(table)
    with table.gate.trips(LISTINGS, PART, FILTERS):
        assert opened.query("key = 11").num_rows == 0
    with table.gate.trips(LISTINGS):
        assert opened.query("key = 13").num_rows == 0


def test_a_count_reads_the_column_of_the_predicate(table: S3) -> None:
    opened = open_table(table)
    with table.gate.trips(LISTINGS, PART, FILTERS, END + KEYS):
        assert opened.count(needle(5)) == 1
    with table.gate.trips(LISTINGS, END + KEYS):
        assert opened.count(needle(6)) == 1


@pytest.mark.parametrize(
    "where, rows, pages",
    [
        # One page of each column may hold the rows: all six are read at once.
        (f"ts >= {9 * ROWS + 300} and ts < {9 * ROWS + 400}", 100, 6),
        ("label like 'run-0009-003%'", 100, 6),
        # Two pages, which are neighbours.
        (f"ts >= {9 * ROWS + 450} and ts < {9 * ROWS + 550}", 100, 6),
    ],
)
def test_a_range_and_a_prefix(table: S3, where: str, rows: int, pages: int) -> None:
    """Their bounds are in the beginning of the part."""
    opened = open_table(table)
    with table.gate.trips(LISTINGS, PART, END, pages):
        assert opened.query(where).num_rows == rows
    other = where.replace(str(9 * ROWS)[:2], str(21 * ROWS)[:2]).replace("0009", "0021")
    with table.gate.trips(LISTINGS, END, pages):
        assert opened.query(other).num_rows == rows


def test_candidates_are_opened_together(table: S3) -> None:
    """Rows of three files, all of whose pages of the predicate are read at once."""
    opened = open_table(table)
    three = f"key in ({', '.join(str(keys(number)[5]) for number in (1, 2, 3))})"
    with table.gate.trips(LISTINGS, PART, FILTERS, 3 * (END + KEYS), 3 * OTHERS):
        assert opened.query(three).num_rows == 3


def test_bit_slices_are_one_round_trip_more(table: S3) -> None:
    """Their directory comes with the ends of the part; the rows of the asked bits together."""
    place = f"{table.base}/sliced"
    built = skipstone.Table(f"{table.base}/t", index_location=place, storage_options=table.options)
    built.build(indexes=["key:bloom(fpp=0.001)"])
    compact(built.store, built.listing, Slicing(files=1, group=1))
    (slices,) = table.keys("sliced/facts/slices-")
    assert slices
    opened = skipstone.Table(f"{table.base}/t", index_location=place, storage_options=table.options)
    with table.gate.trips(LISTINGS, ENDS, BITS):
        assert opened.query("key = 17").num_rows == 0
    with table.gate.trips(LISTINGS, BITS, END + KEYS, OTHERS):
        assert opened.query(needle(7)).num_rows == 1


def test_a_damaged_column_matters_only_where_a_row_matches(s3: S3) -> None:
    """All columns of a small file are read at once; a byte of a page of ``id`` is wrong."""
    table = pa.table({"key": range(0, 8_000, 2), "id": [f"{each:09}" for each in range(4_000)]})
    sink = io.BytesIO()
    pq.write_table(
        table, sink, max_rows_per_page=500, write_batch_size=500, write_page_index=True,
        use_dictionary=False, compression="none", write_page_checksum=True,
    )  # fmt: skip
    data = bytearray(sink.getvalue())
    data[data.index(b"000000003")] ^= 1
    s3.fill("t/part-0.parquet", data=bytes(data))
    opened = open_table(s3)
    opened.build(indexes=["key:minmax"])
    assert opened.query("key = 7").num_rows == 0
    assert opened.query("key = 1200")["id"].to_pylist() == ["000000600"]
    with pytest.raises(skipstone.errors.FormatError):
        opened.query("key = 6")


def test_the_listing_shows_a_table_format(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hudi", None)
    s3.fill("t/.hoodie/x", "t/part-0.parquet")
    with (
        s3.gate.trips(LISTINGS),
        pytest.raises(skipstone.errors.UnsupportedError, match="hudi is not installed"),
    ):
        open_table(s3).query("key = 1")


def test_pages_that_were_read_early_are_those_of_the_listed_version(s3: S3) -> None:
    s3.fill("t/part-0.parquet", data=content(0))
    open_table(s3).build(indexes=["key:bloom"])
    opened = open_table(s3)
    assert opened.query(needle(0))["label"].to_pylist() == ["run-0000-00300"]
    s3.fill("t/part-0.parquet", data=content(8))
    assert opened.query(needle(0)).num_rows == 0
    assert opened.query(needle(8))["label"].to_pylist() == ["run-0008-00300"]
    open_table(s3).refresh()
    assert opened.query(needle(0)).num_rows == 0
    assert opened.query(needle(8))["label"].to_pylist() == ["run-0008-00300"]


def test_a_file_that_changes_is_read_anew(s3: S3) -> None:
    """Facts that are stale cost requests, and no row."""
    for number in range(4):
        s3.fill(f"t/part-{number}.parquet", data=content(number, 500))
    open_table(s3).build(indexes=INDEXES)
    opened = open_table(s3)
    assert opened.count(f"key = {keys(2)[3]}") == 1
    s3.fill("t/part-1.parquet", data=content(9, 500))
    s3.client.delete_object(Bucket=s3.bucket, Key="t/part-2.parquet")
    assert opened.count(f"key = {keys(2)[3]}") == 0
    assert opened.query(f"key = {keys(9)[3]}").column("ts").to_pylist() == [4503]
    assert opened.count(f"key = {keys(1)[3]}") == 0
    assert opened.plan(f"key = {keys(9)[3]}").facts_stale == 1
