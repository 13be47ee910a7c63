"""Whole columns of a file, decoded by Arrow from the chunks as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._parquet import ArrowParquetFile
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.arrow.arrow_types import ShapeKind
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.pages.page import walk_pages
from skipstone.storage import ByteRange

from .decoding_memory import (
    WIDTHS,
    bytes_of_strings,
    check_indices,
    claim_of,
    is_string,
    limit_of,
    longest_string,
    without_dictionary,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .file_reader import FileReader
    from .selection import SelectedField


# Larger files are read in parts, and their columns by several threads.
_LARGEST_WHOLE = 64 << 20


def read_whole(file: FileReader, fields: Sequence[SelectedField]) -> pa.Table | None:
    """All rows of these fields, decoded by Arrow from the chunks as they are stored.

    Without rows to leave out, page-wise reading saves nothing, and Arrow works without the lock of
    the interpreter. Arrow is given a sparse copy of the file: these chunks at their offsets, and
    the footer. Pages of memory that are never written take no space. ``None`` if Arrow refuses, or
    cannot read them alone. Errors of reading the bytes are raised: ``StaleError``, ``OSError``.
    """
    if not _is_plain(file, fields):
        return None
    ranges = _whole_chunks(file, fields)
    if ranges is None:
        return None
    last = max(each.offset + each.length for each in ranges)
    footer = file.footer.data[: file.footer.end]
    ending = footer + Tail(last + len(footer) + TAIL_LENGTH, len(footer), False).to_bytes()
    made = np.zeros(last + len(ending), np.uint8)
    made[last:] = np.frombuffer(ending, np.uint8)
    for where, data in file.reader.read(ranges).items():
        made[where.offset : where.offset + where.length] = np.frombuffer(data, np.uint8)
    limit = limit_of(file.memory, sum(each.length for each in ranges))
    indexed = _indexed(file, fields, made, limit)
    if indexed is None:
        return None
    names = [field.field.name for field in fields]
    try:
        source = ArrowParquetFile(
            pa.BufferReader(made),
            read_dictionary=list(indexed),
            page_checksum_verification=file.verify_checksums,
            coerce_int96_timestamp_unit="us",
        )
        found = source.read(names).select(names)
        for name, entries in indexed.items():
            check_indices(found.column(name), entries)
        if sum(bytes_of_strings(found.column(name), limit) for name in indexed) > limit:
            return None
        for name in indexed:
            at = names.index(name)
            strings = without_dictionary(found.column(at), fields[at].field.type)
            found = found.set_column(at, found.field(at).with_type(strings.type), strings)
        if _has_int96(file, fields):  # Arrow gives times without zone
            schema = pa.schema([each.field for each in fields], found.schema.metadata)
            types = [each.field.type for each in fields]
            columns = [each.cast(type) for each, type in zip(found.columns, types, strict=True)]
            found = pa.table(columns, schema=schema)
    except (pa.ArrowException, FormatError, OSError, KeyError):
        return None  # our own decoders report the error and its place
    # A chunk may hold another number of values than stated, and a table is as long as its first
    # column.
    sound = all(
        found.field(at).type == each.field.type and len(found.column(at)) == file.num_rows
        for at, each in enumerate(fields)
    )
    return found if sound else None


def _indexed(
    file: FileReader, fields: Sequence[SelectedField], data: NDArray[np.uint8], limit: int
) -> dict[str, list[int]] | None:
    """The fields that Arrow decodes as dictionaries of strings, with the sizes of these; ``None``
    where the columns may take more memory than the limit."""
    view = memoryview(data.data)
    indexed: dict[str, list[int]] = {}
    needed = 0
    for field in fields:
        described = file.footer.schema.leaves[field.shape.leaves[0]]
        width = WIDTHS.get(described.type, described.type_length or 0)
        if described.type is not Type.BYTE_ARRAY:
            needed += file.num_rows * width
            continue
        try:
            claims = []
            for group in range(file.footer.num_row_groups):
                place = file.chunk_pages.place((group, described.ordinal))
                chunk = view[place.start : place.stop]
                pages = list(walk_pages(chunk, base=place.start, num_values=place.num_values))
                claim = claim_of(described, pages)
                if claim.most > limit and not claim.repeats:
                    key = group, described.ordinal
                    longest = longest_string(file.chunk_pages, key, place.codec, pages)
                    claim = claim_of(described, pages, longest)
                claims.append(claim)
        except FormatError:
            return None
        if all(claim.repeats for claim in claims) and is_string(field.field.type):
            indexed[field.field.name] = [claim.entries for claim in claims]
            needed += sum(claim.certain for claim in claims)
        else:
            needed += sum(claim.most for claim in claims)
    return indexed if needed <= limit else None


def _has_int96(file: FileReader, fields: Sequence[SelectedField]) -> bool:
    leaves = file.footer.schema.leaves
    return any(leaves[leaf].type is Type.INT96 for each in fields for leaf in each.shape.leaves)


def _is_plain(file: FileReader, fields: Sequence[SelectedField]) -> bool:
    """Whether Arrow, given these names, reads exactly these leaves, all of them plaintext."""
    names = [field.field.name for field in fields]
    every = file.schema.names
    return (
        bool(fields)
        and not file.reader.storage.remote
        and file.size <= _LARGEST_WHOLE
        and not file.encrypted_footer
        and file.footer.selected is None
        and len(set(names)) == len(names)
        and not any("." in name for name in every)
        and len(set(every)) == len(every)
        and all(field.shape.kind is ShapeKind.LEAF for field in fields)
    )


def _whole_chunks(file: FileReader, fields: Sequence[SelectedField]) -> list[ByteRange] | None:
    """The chunks; ``None`` where Arrow cannot read one of them from such a copy."""
    found: list[ByteRange] = []
    for field in fields:
        leaf = field.shape.leaves[0]
        for group in range(file.footer.num_row_groups):
            try:
                place = file.chunk_pages.place((group, leaf))
            except SkipstoneError:
                return None
            if file.footer.chunk("encrypted")[group, leaf] > 0 or place.path != file.path:
                return None
            found.append(ByteRange(file.path, place.start, place.stop - place.start))
    return found or None
