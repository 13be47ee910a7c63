"""Decoding Parquet's encodings: our decoders against Arrow's, one thread each, a column per figure.

Both decode one chunk of a required column, not compressed, in Arrow's own pages, from memory, into
one array. Ours get the bytes of each page; Arrow reads the headers too, which are few. Times are
the quickest of many runs in turns, and a ratio of 1 is Arrow's.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.parquet.encodings import ByteArrays, Values, decode_values
from skipstone.parquet.encodings.dictionary import decode_indices, gather
from skipstone.parquet.format.enums import Encoding, Type
from skipstone.parquet.format.footer import read_metadata
from skipstone.parquet.format.metadata import PageHeader
from skipstone.parquet.values import concat

from .figure import Figure, Peer, interleaved, median

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workbench import Workbench

__all__ = ["figures"]

ROWS = 2_000_000
#: Where a target is set: times Arrow's.
LIMIT = 2.0
TARGETED = frozenset({Encoding.PLAIN, Encoding.RLE_DICTIONARY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is encoded: ``values`` of the physical ``type_``, with ``encoding``."""

    name: str
    encoding: Encoding
    type_: Type
    values: pa.Array

    @property
    def type_length(self) -> int | None:
        return self.values.type.byte_width if self.type_ is Type.FIXED_LEN_BYTE_ARRAY else None

    def file(self) -> bytes:
        """A Parquet file of this column alone."""
        coded = self.encoding is Encoding.RLE_DICTIONARY
        schema = pa.schema([pa.field("x", self.values.type, nullable=False)])
        sink = io.BytesIO()
        pq.write_table(
            pa.table([self.values], schema=schema),
            sink,
            compression="none",
            row_group_size=max(1, len(self.values)),
            use_dictionary=coded,
            column_encoding=None if coded else {"x": self.encoding.name},
            dictionary_pagesize_limit=1 << 30,
            data_page_version="1.0",
        )
        return sink.getvalue()


@dataclass(frozen=True, slots=True)
class Page:
    """The header's facts, and the bytes after it."""

    dictionary: bool
    encoding: int
    count: int
    data: memoryview


def columns(rows: int) -> Iterator[Column]:
    """One for each encoding, and for each type that is decoded in another way."""
    rng = np.random.default_rng(1)
    random = rng.integers(-(1 << 62), 1 << 62, rows)
    rising = rng.integers(0, 1_000, rows).cumsum()
    few = rng.integers(0, 10_000, rows)
    runs = np.repeat(rng.integers(0, 300, rows // 50 + 1), 50)[:rows]
    fixed = pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))])
    halves = pa.Array.from_buffers(pa.binary(2), rows, [None, pa.py_buffer(rng.bytes(2 * rows))])

    def words(numbers: Any) -> pa.Array:
        return pa.array([b"customer %d" % each for each in numbers.tolist()], pa.binary())

    names = words(rng.integers(0, 1_000_000, rows))
    plain, coded, delta = Encoding.PLAIN, Encoding.RLE_DICTIONARY, Encoding.DELTA_BINARY_PACKED
    split = Encoding.BYTE_STREAM_SPLIT
    for name, encoding, type_, values in [
        ("boolean", plain, Type.BOOLEAN, pa.array(random > 0)),
        ("int32", plain, Type.INT32, pa.array(random.astype(np.int32))),
        ("int64", plain, Type.INT64, pa.array(random)),
        ("double", plain, Type.DOUBLE, pa.array(random.astype(float))),
        ("byte_array", plain, Type.BYTE_ARRAY, names),
        ("fixed_16", plain, Type.FIXED_LEN_BYTE_ARRAY, fixed),
        ("int64", coded, Type.INT64, pa.array(few)),
        ("int64_runs", coded, Type.INT64, pa.array(runs)),
        ("double", coded, Type.DOUBLE, pa.array(few.astype(float))),
        ("byte_array", coded, Type.BYTE_ARRAY, words(few)),
        ("byte_array_runs", coded, Type.BYTE_ARRAY, words(runs)),
        ("fixed_16", coded, Type.FIXED_LEN_BYTE_ARRAY, fixed.take(pa.array(few % max(1, rows)))),
        ("boolean", Encoding.RLE, Type.BOOLEAN, pa.array(random > 0)),
        ("int32", delta, Type.INT32, pa.array(few.astype(np.int32))),
        ("int64_rising", delta, Type.INT64, pa.array(rising)),
        ("int64_random", delta, Type.INT64, pa.array(random)),
        ("byte_array", Encoding.DELTA_LENGTH_BYTE_ARRAY, Type.BYTE_ARRAY, names),
        ("byte_array", Encoding.DELTA_BYTE_ARRAY, Type.BYTE_ARRAY, words(rising)),
        ("float", split, Type.FLOAT, pa.array(random.astype(np.float32))),
        ("double", split, Type.DOUBLE, pa.array(random.astype(float))),
        ("fixed_2", split, Type.FIXED_LEN_BYTE_ARRAY, halves),
    ]:
        yield Column(name=name, encoding=encoding, type_=type_, values=values)


def figures(bench: Workbench) -> Iterator[Figure]:
    """Time to decode a chunk, for each encoding and kind of value."""
    for column in columns(min(ROWS, bench.sizes.files * bench.sizes.rows_per_file)):
        yield _figure(column, bench.sizes.runs)


def _figure(column: Column, runs: int) -> Figure:
    data = column.file()
    pages = list(_pages(data))
    theirs = pq.ParquetFile(pa.BufferReader(data))
    right = theirs.read(use_threads=False).column("x").combine_chunks()
    if not _same(_decode(column, pages), right):
        raise AssertionError(f"{column.encoding.name} of {column.name}: other values than Arrow's")
    taken = interleaved(
        5 * runs,
        {
            "own": lambda: _decode(column, pages),
            "arrow": lambda: theirs.read(use_threads=False),
        },
    )
    # A few milliseconds each: the quickest are those that nothing else came between.
    value, peer = min(taken["own"]), min(taken["arrow"])
    targeted = column.encoding in TARGETED
    rows = len(column.values)
    return Figure(
        name=f"parquet_encodings.{column.encoding.name.lower()}.{column.name}",
        value=value,
        unit="s",
        peer=Peer(what="pyarrow, one thread", value=peer),
        ratio=value / peer,
        target=f"<= {LIMIT:g} times Arrow's" if targeted else None,
        met=value <= LIMIT * peer if targeted else None,
        details={
            "rows": rows,
            "pages": len(pages),
            "bytes": sum(len(page.data) for page in pages),
            "ns_per_value": value / max(1, rows) * 1e9,
            "arrow_ns_per_value": peer / max(1, rows) * 1e9,
            "median_s": median(taken["own"]),
            "arrow_median_s": median(taken["arrow"]),
        },
    )


def _pages(data: bytes) -> Iterator[Page]:
    meta = read_metadata(data).row_groups[0].columns[0].meta_data
    assert meta is not None
    at = meta.dictionary_page_offset or meta.data_page_offset
    end = at + meta.total_compressed_size
    while at < end:
        header = PageHeader.from_bytes(data[at : at + 4_096])
        at += len(header.to_bytes())
        facts = header.dictionary_page_header or header.data_page_header
        assert facts is not None
        body = memoryview(data)[at : at + header.compressed_page_size]
        at += header.compressed_page_size
        yield Page(
            header.dictionary_page_header is not None, facts.encoding, facts.num_values, body
        )


def _decode(column: Column, pages: list[Page]) -> Values:
    kind = (column.type_, column.type_length)
    dictionary: Values | None = None
    indices, parts = list[Any](), list[Values]()
    for page in pages:
        if page.dictionary:
            dictionary = decode_values(page.encoding, page.data, page.count, *kind)
        elif dictionary is not None:
            indices.append(decode_indices(page.data, page.count))
        else:
            parts.append(decode_values(page.encoding, page.data, page.count, *kind))
    if dictionary is not None:
        return gather(dictionary, np.concatenate(indices))
    return concat(parts)


def _same(values: Values, right: pa.Array) -> bool:
    if isinstance(values, ByteArrays):
        return bool(values == ByteArrays.from_arrow(right))
    if values.ndim == 2:
        width = values.shape[1]
        buffer = right.buffers()[1]
        held = buffer.slice(right.offset * width, len(right) * width)
        return bool(values.tobytes() == held.to_pybytes())
    return bool(np.array_equal(values, right.to_numpy(zero_copy_only=False)))
