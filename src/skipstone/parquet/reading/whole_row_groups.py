"""Columns of a file of which all rows are wanted, by Arrow from the bytes as they lie in the file.

Where nothing is left out there is nothing to gain by pages: Arrow reads the chunks itself, without
the lock of the interpreter. What it is given is a file in which nothing is but the chunks of these
columns, in their places and of the version that was opened, and the footer; memory that is not
written to takes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.errors import SkipstoneError
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.storage import ByteRange

from .arrow_shape import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .file import ParquetFile
    from .selection import Field

__all__ = ["read_whole"]

# Larger files are read in parts, and their columns by several threads.
_LARGEST = 64 << 20


def read_whole(file: ParquetFile, fields: Sequence[Field]) -> pa.Table | None:
    """All rows of these fields; ``None`` where it takes more than Arrow alone, or Arrow refuses.

    Errors of reading the bytes are raised: ``StaleError``, ``OSError``.
    """
    if not _is_plain(file, fields):
        return None
    ranges = _ranges(file, fields)
    if ranges is None:
        return None
    last = max(each.offset + each.length for each in ranges)
    footer = file.footer.data[: file.footer.end]
    ending = footer + Tail(last + len(footer) + TAIL_LENGTH, len(footer), False).to_bytes()
    made = np.zeros(last + len(ending), np.uint8)
    made[last:] = np.frombuffer(ending, np.uint8)
    for where, data in file.reader.read(ranges).items():
        made[where.offset : where.offset + where.length] = np.frombuffer(data, np.uint8)
    names = [field.field.name for field in fields]
    try:
        source = pq.ParquetFile(pa.BufferReader(made), page_checksum_verification=True)
        found = source.read(columns=names, use_threads=False).select(names)
    except (pa.ArrowException, OSError, KeyError):
        return None  # our own decoders say what is wrong, and where
    # A chunk may hold other values than it says, and a table is as long as its first column.
    told = all(
        found.field(at).type == each.field.type and len(found.column(at)) == file.num_rows
        for at, each in enumerate(fields)
    )
    return found if told else None


def _is_plain(file: ParquetFile, fields: Sequence[Field]) -> bool:
    """Whether Arrow, given these names, reads just these leaves, all of them in the clear."""
    names = [field.field.name for field in fields]
    return (
        bool(fields)
        and not file.reader.storage.remote
        and file.size <= _LARGEST
        and not file.encrypted_footer
        and file.view is None
        and file.footer.selected is None
        and len(set(names)) == len(names)
        and not any("." in name for name in file.schema.names)
        and len(set(file.schema.names)) == len(file.schema.names)
        and all(field.shape.kind is Kind.LEAF for field in fields)
    )


def _ranges(file: ParquetFile, fields: Sequence[Field]) -> list[ByteRange] | None:
    """The chunks; ``None`` where there is one that Arrow cannot read like this."""
    chunks = file.chunks_pages
    found: list[ByteRange] = []
    for field in fields:
        leaf = field.shape.leaves[0]
        for group in range(file.footer.num_row_groups):
            try:
                place = chunks.place((group, leaf))
            except SkipstoneError:
                return None
            sealed = file.footer.chunk("encrypted")[group, leaf] > 0
            if sealed or place.path != file.path:
                return None
            found.append(ByteRange(file.path, place.start, place.stop - place.start))
    return found or None
