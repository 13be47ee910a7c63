"""Columns of many files, decoded together, are what Arrow reads of each file."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from skipstone.parquet.reading import file_reader
from skipstone.parquet.reading.bulk_chunks import LENGTH, ROWS
from skipstone.parquet.reading.bulk_columns import FilePart, Scratch, read_bulk
from tests.parquet.reading.bulk import (
    COMPILED,
    by_arrow,
    chunks_of,
    opened,
    part,
    plain,
    read_rows,
    read_together,
    same,
)


def _integers(type: pa.DataType) -> st.SearchStrategy[int]:
    signed = pa.types.is_signed_integer(type)
    low = -(1 << (type.bit_width - 1)) if signed else 0
    high = (1 << (type.bit_width - signed)) - 1
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high))


def _decimals(type: pa.DataType) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**type.precision - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-type.scale))


_FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25])
_TIMES = st.integers(-(1 << 40), 1 << 40)
_TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(["", "a", "é😀", "x" * 300]))
_BYTES = st.one_of(st.binary(max_size=12), st.just(b"\xff" * 40))
_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((type, _integers(type)) for type in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(),
        pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    )),
    (pa.float32(), _FLOATS),
    (pa.float64(), _FLOATS),
    *((type, _decimals(type)) for type in (pa.decimal128(9, 2), pa.decimal128(18, 6))),
    (pa.date32(), st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    *((pa.timestamp(unit, zone), _TIMES) for unit in ("ms", "us", "ns")
      for zone in (None, "UTC", "Europe/Berlin")),
    (pa.string(), _TEXTS),
    (pa.large_string(), _TEXTS),
    (pa.binary(), _BYTES),
    (pa.large_binary(), _BYTES),
]  # fmt: skip
_CODECS = ["none", "snappy", "snappy", "gzip", "brotli", "lz4", "zstd"]


@st.composite
def settings_of_writer(draw: st.DrawFn) -> dict[str, Any]:
    """Every codec and page version; dictionaries that chunks leave in the middle."""
    return {
        "compression": draw(st.sampled_from(_CODECS)),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 40, 200, 1 << 20])),
        "data_page_size": draw(st.sampled_from([1, 60, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([1, 7, 1024])),
        "max_rows_per_page": draw(st.sampled_from([3, 20, 20_000])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "write_page_checksum": draw(st.booleans()),
        "write_page_index": draw(st.booleans()),
        "row_group_size": draw(st.sampled_from([1, 9, 30, 1 << 20])),
        "store_decimal_as_integer": True,
    }


@st.composite
def columns(
    draw: st.DrawFn, type: pa.DataType, values: st.SearchStrategy[Any], nullable: bool
) -> pa.Array:
    rows = draw(st.sampled_from([0, 1, 2, 8, 9, 40, 100]))
    shape = draw(st.sampled_from(["any", "few", "one", "runs", "nulls"]))
    if shape == "nulls" and nullable:
        return pa.nulls(rows, type)
    pool = draw(st.lists(values, min_size=1, max_size={"any": 40, "one": 1}.get(shape, 4)))
    picks = np.random.default_rng(draw(st.integers(0, 99))).integers(0, len(pool), rows)
    if shape == "runs":
        picks = np.sort(picks)
    some = draw(st.sampled_from([0, 0, 0.1, 0.9])) if nullable else 0
    gone = np.random.default_rng(draw(st.integers(0, 99))).random(rows) < some
    return pa.array(
        [
            None if lost else pool[at]
            for at, lost in zip(picks.tolist(), gone.tolist(), strict=True)
        ],
        type,
    )


@st.composite
def written(draw: st.DrawFn) -> list[tuple[pa.Table, dict[str, Any], bool]]:
    """Files of one schema: rows, how they are written, and whether an empty row group follows."""
    chosen = draw(st.lists(st.sampled_from(_TYPES), min_size=1, max_size=2))
    nullable = draw(st.booleans())
    schema = pa.schema([
        pa.field(name, type, nullable) for name, (type, _) in zip("ab", chosen, strict=False)
    ])  # fmt: skip
    drawn = []
    for _ in range(draw(st.integers(1, 4))):
        made = [draw(columns(type, values, nullable)) for type, values in chosen]
        rows = min(map(len, made))
        table = pa.table([each[:rows] for each in made], schema=schema)
        drawn.append((table, draw(settings_of_writer()), draw(st.booleans())))
    return drawn


@given(written())
def test_columns_of_many_files_are_what_arrow_reads(
    drawn: list[tuple[pa.Table, dict[str, Any], bool]],
) -> None:
    schema = drawn[0][0].schema
    names = schema.names
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, (table, how, empty) in enumerate(drawn):
            paths.append(Path(folder, f"{number}.parquet"))
            more = {key: value for key, value in how.items() if key != "row_group_size"}
            with pq.ParquetWriter(paths[-1], schema, **more) as writer:
                writer.write_table(table, row_group_size=how["row_group_size"])
                if empty:
                    writer.write_table(table.slice(0, 0))  # a row group without rows
        files = [opened(path) for path in paths]
        # Without a row group there is nothing to describe.
        files = [file for file in files if file.num_row_groups]
        if not files:
            return
        for kernels in (COMPILED, None):
            found = read_together(files, names, kernels)
            assert found is not None
            assert found.done.all()
            for column, name in enumerate(names):
                found.arrays[column].validate(full=True)
                for number, file in enumerate(files):
                    wanted = by_arrow(file.path, name, schema.field(name).type)
                    assert same(part(found, column, number), wanted), (name, number)


@st.composite
def picked(draw: st.DrawFn) -> list[tuple[pa.Table, dict[str, Any], list[int]]]:
    """Files of one column, and some rows of each."""
    type, values = draw(st.sampled_from(_TYPES))
    nullable = draw(st.booleans())
    drawn = []
    for _ in range(draw(st.integers(1, 3))):
        column = draw(columns(type, values, nullable).filter(len))
        rows = draw(st.sets(st.integers(0, len(column) - 1), min_size=1, max_size=5))
        table = pa.table([column], schema=pa.schema([pa.field("a", type, nullable)]))
        how = draw(settings_of_writer()) | {"row_group_size": 1 << 20}
        drawn.append((table, how, sorted(rows)))
    return drawn


@given(picked())
def test_some_rows_are_read_from_their_pages_alone(
    drawn: list[tuple[pa.Table, dict[str, Any], list[int]]],
) -> None:
    rows = [np.array(each, np.int64) for _, _, each in drawn]
    type = drawn[0][0].schema.field(0).type
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_reader, "SMALL_CHUNK", 0)
        paths = []
        for number, (table, how, _) in enumerate(drawn):
            paths.append(Path(folder, f"{number}.parquet"))
            pq.write_table(table, paths[-1], **how)
        files = [opened(path) for path in paths]
        found, lengths = read_rows(files, "a", rows)
        assert found is not None
        found.validate(full=True)
        first = 0
        for at, (path, mine) in enumerate(zip(paths, rows, strict=True)):
            values_read = found[first : first + len(mine)]
            first += len(mine)
            assert same(values_read, by_arrow(path, "a", type).take(pa.array(mine)))
            chunks = chunks_of(files[at], "a")
            assert chunks is not None
            assert lengths[at] <= chunks.spans[0, LENGTH]
            event("fewer bytes" if lengths[at] < chunks.spans[0, LENGTH] else "all bytes")


def test_files_of_all_codecs_are_one_batch(tmp_path: Path) -> None:
    """A page in compiled code may write beyond its end, and Arrow decompresses the next."""
    wanted = []
    files: list[Any] = []
    for codec in _CODECS[1:] * 2:
        for version in ("1.0", "2.0"):
            path = tmp_path / f"{len(files)}.parquet"
            ids = pa.array(np.arange(37) + 1000 * len(files), pa.int32())
            words = pa.array([f"w{len(files)}-{at % 5}" for at in range(37)])
            pq.write_table(
                pa.table({"i": ids, "s": words}), path, compression=codec,
                data_page_version=version, use_dictionary=["s"], max_rows_per_page=5,
                write_batch_size=1,
            )  # fmt: skip
            files.append(opened(path))
            wanted.append((ids, words))
    found = read_together(files, ["i", "s"])
    assert found is not None
    assert found.done.all()
    for number, (ids, words) in enumerate(wanted):
        assert same(part(found, 0, number), ids)
        assert same(part(found, 1, number), words)


@pytest.mark.parametrize("codec", sorted({*_CODECS}))
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_nulls_alone(tmp_path: Path, codec: str, version: str) -> None:
    path = tmp_path / "a.parquet"
    gone = pa.nulls(100, pa.int64())
    pq.write_table(
        pa.table({"i": gone, "s": gone.cast(pa.string())}), path, compression=codec,
        data_page_version=version,
    )  # fmt: skip
    found = read_together([opened(path), opened(path)], ["i", "s"])
    assert found is not None
    assert found.done.all()
    assert part(found, 0, 1).null_count == part(found, 1, 1).null_count == 100


def _other_writers(folder: Path) -> list[Path]:
    rows = 500
    frame = pd.DataFrame({
        "i": np.arange(rows) % 7,
        "f": np.where(np.arange(rows) % 5, np.arange(rows) / 3, np.nan),
        "s": [f"word {at % 11}" for at in range(rows)],
        "u": [f"unique {at}" for at in range(rows)],
    })  # fmt: skip
    made = []
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        for codec in ("snappy", "zstd", "uncompressed", "gzip", "lz4_raw", "brotli"):
            for version in ("v1", "v2"):
                path = folder / f"duckdb-{codec}-{version}.parquet"
                connection.execute(
                    "COPY (SELECT i, if(isnan(f), NULL, f) AS f, s, u FROM frame)"
                    f" TO '{path}' (FORMAT parquet, CODEC {codec}, PARQUET_VERSION {version},"
                    f" ROW_GROUP_SIZE 2048)"
                )
                made.append(path)
    for codec in ("snappy", "zstd", "uncompressed", "gzip", "lz4", "brotli"):
        path = folder / f"polars-{codec}.parquet"
        how: Any = {"compression": codec, "data_page_size": 300, "row_group_size": 200}
        pl.from_pandas(frame).write_parquet(path, **how)
        made.append(path)
    for codec in ("SNAPPY", "UNCOMPRESSED", "GZIP"):
        for nulls in (True, False):
            path = folder / f"fastparquet-{codec}-{nulls}.parquet"
            fastparquet.write(
                str(path), frame, compression=codec, has_nulls=nulls, row_group_offsets=[0, 200]
            )
            made.append(path)
    return made


def test_files_of_other_writers(tmp_path: Path) -> None:
    done = 0
    for path in _other_writers(tmp_path):
        file = opened(path)
        for name in file.schema.names:
            found = read_together([file, file], [name])
            # DuckDB's second version has the DELTA encodings.
            if found is None or not found.done.all():
                assert re.fullmatch("duckdb-.*-v2.parquet", path.name), (path.name, name)
                continue
            type = file.schema.field(name).type
            for number in range(2):
                assert same(part(found, 0, number), by_arrow(path, name, type)), (path.name, name)
            done += 1
    assert done >= 60


def test_forms_that_are_not_decoded_together(tmp_path: Path) -> None:
    rows = pa.table({
        "flag": [True, False], "list": [[1], [2]], "struct": [{"x": 1}, {"x": 2}],
        "half": pa.array([0.5, 1.5], pa.float16()), "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        "wide": pa.array([decimal.Decimal(1), None], pa.decimal128(30, 2)),
        "categories": pa.array(["a", "b"]).dictionary_encode(), "delta": [1, 2], "split": [0.5, 1],
        "usual": [3, 4],
    })  # fmt: skip
    path = tmp_path / "a.parquet"
    pq.write_table(
        rows, path, use_dictionary=["usual", "categories"],
        column_encoding={"delta": "DELTA_BINARY_PACKED", "split": "BYTE_STREAM_SPLIT"},
    )  # fmt: skip
    file = opened(path)
    usual = [name for name in rows.column_names if chunks_of(file, name) is not None]
    assert usual == ["usual"]


def test_a_file_that_is_gone_or_replaced_is_not_done(tmp_path: Path) -> None:
    files = []
    for number in range(4):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"a": np.arange(10) + number, "s": ["x"] * 10}), path)
        files.append(opened(path))
    (tmp_path / "1.parquet").unlink()
    pq.write_table(pa.table({"a": np.arange(11), "s": ["y"] * 11}), tmp_path / "2.parquet")
    found = read_together(files, ["a", "s"])
    assert found is not None
    assert found.done.tolist() == [True, False, False, True]
    assert part(found, 0, 3).to_pylist() == list(range(3, 13))
    assert part(found, 1, 0).to_pylist() == ["x"] * 10
    for array in found.arrays:
        array.validate(full=True)


def test_a_wrong_checksum_is_not_done_unless_it_is_not_verified(tmp_path: Path) -> None:
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path in paths:
        pq.write_table(
            pa.table({"a": pa.array(np.arange(64), pa.int64())}), path, write_page_checksum=True,
            compression="none", use_dictionary=False, write_statistics=False,
        )  # fmt: skip
    raw = bytearray(paths[0].read_bytes())
    at = raw.index((62).to_bytes(8, "little") + (63).to_bytes(8, "little")) + 8
    raw[at] ^= 1
    paths[0].write_bytes(raw)
    files = [opened(path) for path in paths]
    found = read_together(files, ["a"])
    assert found is not None
    assert found.done.tolist() == [False, True]
    assert part(found, 0, 1).to_pylist() == list(range(64))
    found = read_together(files, ["a"], verify_checksums=False)
    assert found is not None
    assert found.done.all()
    assert part(found, 0, 0).to_pylist() == [*range(63), 62]


def test_what_takes_more_memory_than_the_limit_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": ["x" * 1000] * 5000, "i": np.zeros(5000, np.int64)}), path)
    files = [opened(path)] * 3
    for name, enough, little in (("s", 1 << 20, 100_000), ("i", 1 << 18, 100_000)):
        found = read_together(files, [name], memory=enough)
        assert found is not None
        assert found.done.all()
        found = read_together(files, [name], memory=little)
        assert found is not None
        assert not found.done.any()


def test_rows_whose_number_no_memory_holds_are_not_done(tmp_path: Path) -> None:
    """Sums of such numbers wrap in 64 bits."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.arange(10)}), path)
    file = opened(path)
    chunks = chunks_of(file, "a")
    assert chunks is not None
    usual = FilePart(file.path, file.reader, (chunks.spans,))
    spans = chunks.spans.copy()
    spans[:, ROWS] = 1 << 62
    claim = FilePart(file.path, file.reader, (spans,))
    for parts in ([claim], [claim, usual, claim, claim, claim, usual]):
        found = read_bulk(parts, [chunks.kind], COMPILED)
        assert not found.done.any()


def test_an_index_that_lies_about_the_rows_of_pages(tmp_path: Path) -> None:
    """Two pages whose rows are swapped in the index: their sum is right."""
    path = tmp_path / "a.parquet"
    table = pa.table({"a": pa.array(np.arange(100), pa.int64())})
    pq.write_table(
        table, path, max_rows_per_page=10, write_batch_size=1, write_page_index=True,
        compression="none", use_dictionary=False,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_reader, "SMALL_CHUNK", 0)
        file = opened(path)
        chunks = chunks_of(file, "a")
        assert chunks is not None
        (pages,) = file.chunk_pages.tables([(0, chunks.leaf)])
        pages.first_row[1], pages.first_row[9] = 5, 85
        assert read_rows([file], "a", [np.array([0, 95])])[0] is None
        sound, _ = read_rows([file], "a", [np.array([20, 75])])
        assert sound is not None
        assert sound.to_pylist() == [20, 75]


def test_no_part_and_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array([1], pa.int64()), "s": ["x"]}), path)
    file = opened(path)
    kinds = []
    for name in ("a", "s"):
        chunks = chunks_of(file, name)
        assert chunks is not None
        kinds.append(chunks.kind)
    found = read_bulk([], kinds, COMPILED)
    assert [len(each) for each in found.arrays] == [0, 0]
    none = np.empty((0, 4), np.int64)
    found = read_bulk([FilePart(file.path, file.reader, (none, none))], kinds, COMPILED)
    assert found.done.all()
    assert [plain(each).to_pylist() for each in found.arrays] == [[], []]


def test_memory_of_a_batch_is_used_again_within_bounds() -> None:
    """Arrays are given to one batch at a time, the shortest that is long enough; those of more than
    64 MiB for each thread are not kept."""
    scratch, mib = Scratch(), 1 << 20
    with scratch.lease() as room:
        small, large = room(mib), room(40 * mib)
        assert not np.shares_memory(small, large)
    with scratch.lease() as room:
        first, second, third = room(39 * mib), room(mib // 2), room(8)
        assert np.shares_memory(first, large)
        assert np.shares_memory(second, small)
        assert len(third) == 8
        assert not np.shares_memory(third, first)
        with scratch.lease() as other:
            later = other(30 * mib)
            assert not np.shares_memory(later, first)
    with scratch.lease() as room:
        again = room(2 * mib)
        assert np.shares_memory(again, later)
        assert not np.shares_memory(again, first)
