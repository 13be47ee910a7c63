"""Whole columns of numbers of many files, decoded by Arrow as one file.

The compiled loops of ``bulk_chunks`` take time to load. Until that pays, batches are read like
this: the chunks of a column become row groups of one file in memory, with a footer of checked
values (``arrow_footer``) and a column of the bare physical type.

Arrow does not check that a chunk has as many values as its row group has rows: those of the next
chunk would take their place. So the values are counted first by the page headers, of all chunks at
once. If one is unusual, nothing is decoded here, and the readers of single files report the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from skipstone.parquet.format.enums import FieldRepetitionType
from skipstone.parquet.format.footer import file_of
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    PageHeader,
    SchemaElement,
)
from skipstone.parquet.thrift.compact import I32, STRUCT
from skipstone.parquet.thrift.kernel_lanes import FEW, Lanes, OutError, Round, over_lanes
from skipstone.parquet.thrift.kernel_wire import ENDS, STACK, failed, field, skip, zigzag
from skipstone.parquet.thrift.structs import field_ids

from .arrow_footer import ArrowChunks, ArrowFrame
from .bulk_chunks import CODEC, LENGTH, ROWS, VALUE, WIDTHS, BulkKind, number_array
from .decoding_memory import limit_of

if TYPE_CHECKING:
    from types import FunctionType

    from numpy.typing import NDArray


_HEADER = field_ids(PageHeader)
_SIZE: Final = _HEADER["uncompressed_page_size"]
_STORED: Final = _HEADER["compressed_page_size"]
_V1: Final = _HEADER["data_page_header"]
_V2: Final = _HEADER["data_page_header_v2"]
#: of both
_VALUES: Final = field_ids(DataPageHeader)["num_values"]


def pages(data: Any, at: Any, end: Any, left: Any, most: Any, stack: Any) -> Any:
    """The place after the pages with the ``left`` values of a chunk; negative where they hold
    another number of values, end beyond the chunk, or claim more than ``most`` bytes."""
    while left > 0:
        previous = 0
        size = -1
        stored = -1
        values = -1
        while True:
            kind, previous, at = field(data, at, end, previous)
            if at < 0:
                return at
            if kind == 0:
                break
            if kind == I32 and previous == _SIZE:
                size, at = zigzag(data, at, end)
            elif kind == I32 and previous == _STORED:
                stored, at = zigzag(data, at, end)
            elif kind == STRUCT and previous in (_V1, _V2):
                last = 0
                while True:
                    kind, last, at = field(data, at, end, last)
                    if at < 0:
                        return at
                    if kind == 0:
                        break
                    if kind == I32 and last == _VALUES:
                        values, at = zigzag(data, at, end)
                    else:
                        at = skip(data, at, end, kind, stack)
                    if at < 0:
                        return at
            else:
                at = skip(data, at, end, kind, stack)
            if at < 0:
                return at
        if size < 0 or size > most or stored < 0 or stored > end - at:
            return failed(at, ENDS)
        at = at + stored
        if values >= 0:
            left = left - values
    if left < 0:
        return failed(at, ENDS)
    return at


_pages = over_lanes(cast("FunctionType", pages))


def decoded(
    kind: BulkKind,
    spans: NDArray[np.int64],
    buffer: NDArray[np.uint8],
    *,
    verify_checksums: bool = True,
    memory: int | None = None,
) -> pa.Array | None:
    """The rows of whole chunks, which lie one after another in ``buffer``; ``None`` where they are
    not what is expected."""
    import pyarrow.parquet as pq

    rows, length = spans[:, ROWS], spans[:, LENGTH]
    starts = np.cumsum(length) - length
    limit = limit_of(memory, len(buffer))
    if float(rows.sum(dtype=np.float64)) * VALUE > limit:
        return None
    total = int(rows.sum())
    if not _are_whole(buffer, starts, length, rows, limit):
        return None
    numbers = np.zeros((len(spans), 1, 6), np.int64)
    numbers[:, 0, 0] = spans[:, CODEC]
    numbers[:, 0, 1] = rows
    numbers[:, 0, 3] = length
    numbers[:, 0, 4] = starts
    footer = _frame(kind).footer_of(ArrowChunks(numbers, rows))
    try:
        source = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(buffer)),
            metadata=pq.read_metadata(pa.py_buffer(file_of(footer))),
            page_checksum_verification=verify_checksums,
        )
        found = source.read(use_threads=False).column(0).combine_chunks()
    except (pa.ArrowException, OSError):
        return None  # our own decoders report the error and its place
    if len(found) != total or found.offset:
        return None
    validity, values = found.buffers()
    width = WIDTHS[kind.physical]
    words = np.frombuffer(values, f"u{width}", total) if total else np.empty(0, f"u{width}")
    return number_array(kind, words, validity)


def _are_whole(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    length: NDArray[np.int64],
    rows: NDArray[np.int64],
    limit: int,
) -> bool:
    """Whether the pages of each chunk hold its rows."""
    # Lanes need many chunks: few chunks are repeated.
    times = -(-FEW // max(len(starts), 1))
    run = Round(buffer, np.tile(starts, times))
    at, end, left = (
        Lanes(run, np.tile(each, times)) for each in (np.zeros_like(rows), length, rows)
    )
    try:
        stop = _pages(run, at, end, left, limit, [0] * STACK)
        return bool(run.alive.all()) and not stop < 0
    except OutError:
        return False


def _frame(kind: BulkKind) -> ArrowFrame:
    repetition = FieldRepetitionType.OPTIONAL if kind.optional else FieldRepetitionType.REQUIRED
    leaf = SchemaElement(name="0", type=kind.physical, repetition_type=repetition)
    root = SchemaElement(name="schema", num_children=1)
    return ArrowFrame.of((root, leaf), ((kind.physical, ("0",)),), (0,))
