"""The integers of page headers: of one header, or of a chain of consecutive pages.

A page header states the length of its page, and the next header follows the page: so from the first
byte after the magic on they form a chain, which needs no footer. ``header`` fills one row of
integers for a page; -1 stands for a field that the header does not have:

    TYPE UNCOMPRESSED COMPRESSED CRC HAS_CRC NUM_VALUES ENCODING DEFINITION REPETITION
    NUM_NULLS NUM_ROWS DEFINITION_LENGTH REPETITION_LENGTH IS_COMPRESSED OFFSET HEADER_LENGTH

A header counts only if it is complete and in the usual form: it has type, sizes and one struct,
that of its type, and its page ends within the data. ``read_page`` reads other headers in another
way. The walk runs as Python, or compiled (``page_headers_jit``) over many pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone._numba import CompiledKernels
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
)
from skipstone.parquet.thrift.compact import BINARY, FALSE, I32, STRUCT, TRUE
from skipstone.parquet.thrift.compact import I64 as WIRE_I64
from skipstone.parquet.thrift.structs import field_ids
from skipstone.parquet.values import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    # ``walk``, compiled
    Walk = Callable[..., tuple[int, int]]


TYPE: Final = 0
UNCOMPRESSED: Final = 1
COMPRESSED: Final = 2
CRC: Final = 3
HAS_CRC: Final = 4
NUM_VALUES: Final = 5
ENCODING: Final = 6
DEFINITION: Final = 7
REPETITION: Final = 8
NUM_NULLS: Final = 9
NUM_ROWS: Final = 10
DEFINITION_LENGTH: Final = 11
REPETITION_LENGTH: Final = 12
IS_COMPRESSED: Final = 13
OFFSET: Final = 14
HEADER_LENGTH: Final = 15
FIELDS: Final = 16
STACK: Final = 8

# Field ids: compiled code wants plain constants.
_PAGE: Final = field_ids(PageHeader)
PAGE_V1: Final = _PAGE["data_page_header"]
PAGE_INDEX: Final = _PAGE["index_page_header"]
PAGE_DICTIONARY: Final = _PAGE["dictionary_page_header"]
PAGE_V2: Final = _PAGE["data_page_header_v2"]
HEADERS: Final = (PAGE_V1, PAGE_INDEX, PAGE_DICTIONARY, PAGE_V2)
V2_IS_COMPRESSED: Final = field_ids(DataPageHeaderV2)["is_compressed"]

_PLACES: Final = {
    "type": TYPE,
    "uncompressed_page_size": UNCOMPRESSED,
    "compressed_page_size": COMPRESSED,
    "crc": CRC,
    "num_values": NUM_VALUES,
    "encoding": ENCODING,
    "definition_level_encoding": DEFINITION,
    "repetition_level_encoding": REPETITION,
    "num_nulls": NUM_NULLS,
    "num_rows": NUM_ROWS,
    "definition_levels_byte_length": DEFINITION_LENGTH,
    "repetition_levels_byte_length": REPETITION_LENGTH,
}
# Fields with this id or a greater one are not used, in any of the structs.
IDS: Final = 9
_STRUCTS: Final = {
    0: PageHeader,
    PAGE_V1: DataPageHeader,
    PAGE_DICTIONARY: DictionaryPageHeader,
    PAGE_V2: DataPageHeaderV2,
}
_BY_IDS: Final = {
    (struct, id): _PLACES.get(name, -1)
    for struct, kind in _STRUCTS.items()
    for name, id in field_ids(kind).items()
}
#: At ``id + IDS * s`` the place in the row of the field ``id`` of the struct ``s`` of PageHeader
#: (0: PageHeader itself); -1 for other fields.
PLACES: Final = tuple([_BY_IDS.get(divmod(at, IDS), -1) for at in range(IDS * IDS)])

DATA_PAGE: Final = int(PageType.DATA_PAGE)
INDEX_PAGE: Final = int(PageType.INDEX_PAGE)
DICTIONARY_PAGE: Final = int(PageType.DICTIONARY_PAGE)
DATA_PAGE_V2: Final = int(PageType.DATA_PAGE_V2)

DATA_PAGES: Final = (DATA_PAGE, DATA_PAGE_V2)
#: encodings of indices in a dictionary
INDICES: Final = (Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY)

# After this many pages compiled code is worth its import.
_FEW: Final = 1 << 11
COMPILED: Final[CompiledKernels[Walk]] = CompiledKernels(
    module=f"{__package__}.page_headers_jit", once=_FEW, least=_FEW
)
_BATCH: Final = 1 << 14


#: a row before its header is read
BLANK: Final = tuple([{HAS_CRC: 0, IS_COMPRESSED: 1}.get(at, -1) for at in range(FIELDS)])
# For as many pages as most windows have at most.
_BLANKS: Final = np.tile(np.array(BLANK, np.int64), (1 << 8, 1))


def _is_usual(row: Any, struct: Any) -> Any:
    """Whether a header has the struct of its type of page, and the fields that this must have."""
    page = row[TYPE]
    if page == INDEX_PAGE:
        return struct == 0 or struct == PAGE_INDEX
    if row[NUM_VALUES] < 0 or row[ENCODING] < 0:
        return False
    if page == DICTIONARY_PAGE:
        return struct == PAGE_DICTIONARY
    if page == DATA_PAGE:
        return struct == PAGE_V1 and row[DEFINITION] >= 0 and row[REPETITION] >= 0
    return (
        page == DATA_PAGE_V2
        and struct == PAGE_V2
        and 0 <= row[NUM_NULLS] <= row[NUM_VALUES]
        and 0 <= row[NUM_ROWS] <= row[NUM_VALUES]
        and row[DEFINITION_LENGTH] >= 0
        and row[REPETITION_LENGTH] >= 0
        and row[DEFINITION_LENGTH] + row[REPETITION_LENGTH] <= row[COMPRESSED]
    )


def _integer(data: Any, at: Any, end: Any) -> Any:
    """A varint, and the place after it; -1 where it is cut or too long."""
    value = 0
    shift = 0
    byte = 128
    while byte > 127:
        if at >= end or shift > 63:
            return 0, -1
        byte = data[at] & 0xFF
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 127) << shift
        shift += 7
    return value, at


def header(data: Any, at: Any, end: Any, row: Any, stack: Any) -> Any:
    """The place after the header at ``at``, whose fields are written to ``row``, which is
    ``BLANK``; -1 if there is none. ``stack`` is scratch of ``STACK`` integers."""
    start = at
    kind_of_page = 0
    depth = 0
    id = 0
    while True:
        if at >= end:
            return -1
        byte = data[at] & 0xFF
        at += 1
        if byte == 0:
            if depth == 0:
                break
            depth -= 1
            id = stack[depth]
            continue
        kind = byte & 15
        if byte < 16 or not kind:
            return -1
        id += byte >> 4
        if kind in (I32, BINARY, WIRE_I64):
            value, at = _integer(data, at, end)
            if at < 0:
                return -1
            if kind == BINARY:
                if value < 0 or value > end - at:
                    return -1
                at += value
            elif kind == I32 and depth <= 1 and id < IDS and (depth == 0 or stack[0] < IDS):
                place = PLACES[stack[0] * IDS + id] if depth else PLACES[id]
                if place >= 0:
                    if value >> 32:
                        return -1
                    row[place] = (value >> 1) ^ -(value & 1)
                if place == CRC:
                    row[HAS_CRC] = 1
        elif kind == STRUCT:
            stack[depth] = id
            depth += 1
            if depth > 5:
                return -1
            if depth == 1 and id in HEADERS:
                if kind_of_page:
                    return -1
                kind_of_page = id
            id = 0
        elif kind <= FALSE:
            if depth == 1 and stack[0] == PAGE_V2 and id == V2_IS_COMPRESSED:
                row[IS_COMPRESSED] = 1 if kind == TRUE else 0
        else:
            return -1
    if row[UNCOMPRESSED] < 0 or row[COMPRESSED] < 0 or row[COMPRESSED] > end - at:
        return -1
    if not _is_usual(row, kind_of_page):
        return -1
    row[OFFSET] = start
    row[HEADER_LENGTH] = at - start
    return at


#: ``header`` and the functions that it calls, for modules that compile it
HELPERS: Final[tuple[Callable[..., Any], ...]] = (_integer, _is_usual, header)


def walk(data: Any, at: Any, end: Any, rows: Any, stack: Any) -> Any:
    """Walks at most ``len(rows)`` pages from ``at`` on; their number, and where the next begins."""
    count = 0
    while count < len(rows) and at < end:
        stop = header(data, at, end, rows[count], stack)
        if stop < 0:
            break
        at = stop + rows[count, COMPRESSED]
        count += 1
    return count, at


def _walked(
    function: Walk, data: memoryview, at: int, end: int, blanks: I64
) -> tuple[list[I64], int]:
    """The chain of pages from ``at`` on, in parts of at most as many as ``blanks``, and where it
    ends."""
    array, stack, count = as_bytes(data), np.zeros(STACK, np.int64), len(blanks)
    parts: list[I64] = []
    while count == len(blanks):
        rows = blanks.copy()
        count, at = function(array, at, end, rows, stack)
        parts.append(rows[:count])
    return parts, int(at)


def walk_window(compiled: Walk, data: memoryview, num_values: int) -> I64:
    """The chain of pages from the beginning of ``data`` on, int64 (pages, ``FIELDS``), until its
    data pages hold ``num_values``."""
    parts, _ = _walked(compiled, data, 0, len(data), _BLANKS)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    values = rows[:, NUM_VALUES] * ((rows[:, TYPE] == DATA_PAGE) | (rows[:, TYPE] == DATA_PAGE_V2))
    if values.sum() < num_values:
        return rows
    return rows[: int(np.searchsorted(np.cumsum(values), num_values)) + 1]


def walk_pages_of(data: memoryview, at: int, end: int) -> tuple[I64, int]:
    """The chain of pages from ``at`` on, int64 (pages, ``FIELDS``), and where it ends."""
    found, at = walk_few(data, at, end, _FEW)
    count = len(found)
    parts = [np.array(found, np.int64).reshape(count, FIELDS)]
    if count == _FEW:
        blanks = np.tile(np.array(BLANK, np.int64), (_BATCH, 1))
        more, at = _walked(COMPILED.for_work(count) or walk, data, at, end, blanks)
        parts += more
    return np.concatenate(parts), int(at)


def page_stop(row: I64) -> int:
    """The place after a page."""
    return int(row[OFFSET] + row[HEADER_LENGTH] + row[COMPRESSED])


def walk_few(data: memoryview, at: int, end: int, most: int) -> tuple[list[list[int]], int]:
    """The first pages of that chain, at most ``most``, as lists, and where the next begins."""
    found: list[list[int]] = []
    stack = [0] * STACK
    while len(found) < most and at < end:
        row = list(BLANK)
        stop = int(header(data, at, end, row, stack))
        if stop < 0:
            break
        at = stop + row[COMPRESSED]
        found.append(row)
    return found, at


def candidates(data: memoryview, at: int, end: int) -> I64:
    """Places from ``at`` on where a page header may begin: two i32 fields, the first a type."""
    array = np.frombuffer(data, np.uint8)[at:end]
    if len(array) < 3:
        return np.empty(0, np.int64)
    first = np.flatnonzero((array[:-2] == 0x15) & (array[2:] == 0x15))
    return (first[array[first + 1] <= 6] + at).astype(np.int64)
