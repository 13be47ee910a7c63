"""Compiled loops over the column chunks of many files: pages, Snappy, levels and values.

Each function works on all chunks of a batch in one call, without the lock of the interpreter.
The page table is described in ``bulk_columns``. A chunk with anything unexpected gets a ``status``
other than 0, and is left to the readers that explain errors.

Sources: parquet.thrift (PageHeader), Encodings.md (PLAIN, RLE), Snappy's format description.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba.extending import register_jitable

from skipstone._numba import compile_kernel, fingerprint
from skipstone.parquet.encodings import jit_runs as runs
from skipstone.parquet.encodings.jit_runs import CHECKED, load, store
from skipstone.parquet.format.enums import Encoding, PageType
from skipstone.parquet.format.metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
)
from skipstone.parquet.thrift import compact, kernel_wire
from skipstone.parquet.thrift.compact import FALSE, I32, STRUCT, TRUE
from skipstone.parquet.thrift.structs import field_ids

from . import bulk_columns
from .bulk_columns import (
    AT, CHUNK, COMPRESSED, CRC, ENCODING, LEVELS, SIZE, STORED, VALUES, VERSION, BulkKernels,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = field_ids(PageHeader)
_TYPE: Final = _HEADER["type"]
_SIZE: Final = _HEADER["uncompressed_page_size"]
_STORED: Final = _HEADER["compressed_page_size"]
_CRC: Final = _HEADER["crc"]
_V1: Final = _HEADER["data_page_header"]
_DICTIONARY: Final = _HEADER["dictionary_page_header"]
_V2: Final = _HEADER["data_page_header_v2"]
_VALUES: Final = 1  # of all three
_ENCODING_V1: Final = field_ids(DataPageHeader)["encoding"]
_LEVELS_V1: Final = field_ids(DataPageHeader)["definition_level_encoding"]
_ENCODING_D: Final = field_ids(DictionaryPageHeader)["encoding"]
_ENCODING_V2: Final = field_ids(DataPageHeaderV2)["encoding"]
_DEFINITION: Final = field_ids(DataPageHeaderV2)["definition_levels_byte_length"]
_REPETITION: Final = field_ids(DataPageHeaderV2)["repetition_levels_byte_length"]
_IS_COMPRESSED: Final = field_ids(DataPageHeaderV2)["is_compressed"]
_DATA_PAGE: Final = int(PageType.DATA_PAGE)
_DATA_PAGE_V2: Final = int(PageType.DATA_PAGE_V2)
_DICTIONARY_PAGE: Final = int(PageType.DICTIONARY_PAGE)
_PLAIN: Final = int(Encoding.PLAIN)
_PLAIN_DICTIONARY: Final = int(Encoding.PLAIN_DICTIONARY)
_RLE: Final = int(Encoding.RLE)
_RLE_DICTIONARY: Final = int(Encoding.RLE_DICTIONARY)

_wire = {name: register_jitable(getattr(kernel_wire, name)) for name in (
    "failed", "zigzag", "count", "field", "items", "flat", "skip",
)}  # fmt: skip
_hybrid = register_jitable(runs.hybrid)
_zigzag, _field, _skip = kernel_wire.zigzag, kernel_wire.field, kernel_wire.skip


@register_jitable
def _inner(data: Any, at: Any, end: Any, id: Any, page: Any, stack: Any) -> Any:
    """The header of a page's type: fills a row, and gives the place after it."""
    last = 0
    definition, repetition = np.int64(0), np.int64(0)
    levels = np.int64(_RLE)
    while True:
        kind, last, at = _field(data, at, end, last)
        if at < 0:
            return at
        if kind == 0:
            break
        if kind == I32:
            value, at = _zigzag(data, at, end)
            if at < 0:
                return at
            if last == _VALUES:
                page[VALUES] = value
            elif id == _V1 and last == _ENCODING_V1:
                page[ENCODING] = value
            elif id == _V1 and last == _LEVELS_V1:
                levels = value
            elif id == _DICTIONARY and last == _ENCODING_D:
                page[ENCODING] = value
            elif id == _V2 and last == _ENCODING_V2:
                page[ENCODING] = value
            elif id == _V2 and last == _DEFINITION:
                definition = value
            elif id == _V2 and last == _REPETITION:
                repetition = value
        else:
            if id == _V2 and last == _IS_COMPRESSED and kind == FALSE:
                page[COMPRESSED] = 0
            at = _skip(data, at, end, kind, stack)
            if at < 0:
                return at
    if id == _V2:
        if definition < 0 or repetition != 0:
            return -1
        page[LEVELS] = definition
    elif levels != _RLE:
        page[LEVELS] = -2
    return at


def walk(
    data: Any, starts: Any, stops: Any, values: Any, status: Any, pages: Any, stack: Any
) -> Any:
    """Fills ``pages`` with those of all chunks; their number, or -1 where there are more rows than
    fit. A walk ends when a chunk has its ``values``."""
    n: Any = 0
    for chunk in range(len(starts)):
        at, end, left = starts[chunk], stops[chunk], values[chunk]
        while left > 0:
            if n == len(pages):
                return -1
            page = pages[n]
            page[CHUNK] = chunk
            page[VERSION] = -1
            page[ENCODING] = -1
            page[VALUES] = -1
            page[LEVELS] = -1
            page[COMPRESSED] = 1
            page[CRC] = -1
            page[SIZE] = -1
            page[STORED] = -1
            what, last, inside = np.int64(-1), 0, np.int64(-1)
            while True:
                kind, last, at = _field(data, at, end, last)
                if at < 0 or kind == 0:
                    break
                if kind == I32:
                    value, at = _zigzag(data, at, end)
                    if at < 0:
                        break
                    if last == _TYPE:
                        what = value
                    elif last == _SIZE:
                        page[SIZE] = value
                    elif last == _STORED:
                        page[STORED] = value
                    elif last == _CRC:
                        page[CRC] = value & 0xFFFFFFFF
                elif kind == STRUCT and (last == _V1 or last == _V2 or last == _DICTIONARY):
                    inside = last
                    at = _inner(data, at, end, last, page, stack)
                    if at < 0:
                        break
                else:
                    at = _skip(data, at, end, kind, stack)
                    if at < 0:
                        break
            stored, size = page[STORED], page[SIZE]
            if at < 0 or stored < 0 or size < 0 or stored > end - at:
                status[chunk] = 1
                break
            page[AT] = at
            at += stored
            if what == _DICTIONARY_PAGE and inside == _DICTIONARY:
                page[VERSION] = 0
                if left != values[chunk] or page[VALUES] < 0:
                    status[chunk] = 1
                    break
            elif (what == _DATA_PAGE and inside == _V1) or (
                what == _DATA_PAGE_V2 and inside == _V2
            ):
                page[VERSION] = 1 if inside == _V1 else 2
                if page[VALUES] < 0 or page[VALUES] > left or page[LEVELS] > min(stored, size):
                    status[chunk] = 1
                    break
                left -= page[VALUES]
            else:
                status[chunk] = 1
                break
            n += 1
    return n


@register_jitable
def _move(data: Any, at: Any, out: Any, to: Any, length: Any) -> None:
    """Copies bytes; up to 7 more where both have them."""
    k = 0
    if at + length + 8 <= len(data) and to + length + 8 <= len(out):
        while k < length:
            store(out, to + k, load(data, at + k))
            k += 8
    else:
        while k < length:
            out[to + k] = data[at + k]
            k += 1


@register_jitable
def _snappy(data: Any, at: Any, end: Any, out: Any, start: Any, size: Any) -> Any:
    """One raw block of ``size`` bytes into ``out`` at ``start``; whether it is one."""
    declared, shift = np.int64(0), 0
    while True:
        if at >= end or shift > 28:
            return False
        byte = np.int64(data[at])
        at += 1
        declared |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if declared != size:
        return False
    to, stop = start, start + size
    while at < end:
        tag = np.int64(data[at])
        kind = tag & 3
        at += 1
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                more = length - 60
                if more > end - at:
                    return False
                length = np.int64(0)
                for k in range(more):
                    length |= np.int64(data[at + k]) << (8 * k)
                length += 1
                at += more
            if length > end - at or length > stop - to:
                return False
            _move(data, at, out, to, length)
            at += length
        else:
            if kind == 1:
                if end - at < 1:
                    return False
                length = 4 + ((tag >> 2) & 7)
                back = (tag >> 5) << 8 | np.int64(data[at])
                at += 1
            elif kind == 2:
                if end - at < 2:
                    return False
                length = 1 + (tag >> 2)
                back = np.int64(data[at]) | np.int64(data[at + 1]) << 8
                at += 2
            else:
                if end - at < 4:
                    return False
                length = 1 + (tag >> 2)
                back = (
                    np.int64(data[at])
                    | np.int64(data[at + 1]) << 8
                    | np.int64(data[at + 2]) << 16
                    | np.int64(data[at + 3]) << 24
                )
                at += 4
            if back <= 0 or back > to - start or length > stop - to:
                return False
            if back >= 8 and to + length + 8 <= len(out):
                for k in range(0, length, 8):
                    store(out, to + k, load(out, to - back + k))
            else:
                for k in range(length):
                    out[to + k] = out[to - back + k]
        to += length
    return to == stop


def decompress(data: Any, pages: Any, places: Any, how: Any, status: Any, out: Any) -> None:
    """Every page's body into ``out`` at its place: as it is where ``how`` is 0, decompressed by
    Snappy where it is 1."""
    for n in range(len(pages)):
        page, to = pages[n], places[n]
        chunk, at, stored, size = page[CHUNK], page[AT], page[STORED], page[SIZE]
        if status[chunk] != 0 or how[n] == 2:
            continue
        if how[n] == 1:
            levels = max(page[LEVELS], np.int64(0))
            _move(data, at, out, to, levels)
            rest = size - levels
            empty = stored == levels and rest == 0
            if not empty and not _snappy(data, at + levels, at + stored, out, to + levels, rest):
                status[chunk] = 2
        elif stored != size:
            status[chunk] = 2
        else:
            _move(data, at, out, to, size)


@register_jitable
def _validity(body: Any, count: Any, valid: Any, to: Any) -> Any:
    """Levels of one bit into flags; how many are set, or -1."""
    # Nearly always one run of ones.
    if len(body) >= 2:
        head, shift, at = np.int64(0), 0, 0
        while at < len(body) and at < 5:
            byte = np.int64(body[at])
            head |= (byte & 127) << shift
            at += 1
            shift += 7
            if byte < 128:
                break
        if head & 1 == 0 and head >> 1 >= count and at < len(body) and body[at] == 1:
            return count
    flags = valid[to : to + count]
    if _hybrid(body, 1, flags) < 0:
        return -1
    total = 0
    for k in range(count):
        total += np.int64(flags[k])
    return total


@register_jitable
def _after_levels(plain: Any, page: Any, place: Any, optional: Any, valid: Any, to: Any) -> Any:
    """Where the values of a page begin, and how many there are; -1 where levels are wrong."""
    start, count = place, page[VALUES]
    if not optional:
        return start + max(page[LEVELS], np.int64(0)), count
    stop = place + page[SIZE]
    if page[VERSION] == 2:
        length = page[LEVELS]
    elif page[LEVELS] == -2:
        return start, np.int64(-1)
    else:
        if stop - start < 4:
            return start, np.int64(-1)
        length = np.int64(load(plain, start) & np.uint64(0xFFFFFFFF))
        start += 4
        if length > stop - start:
            return start, np.int64(-1)
    found = _validity(plain[start : start + length], count, valid, to)
    return start + length, found


@register_jitable
def _spread(out: Any, valid: Any, to: Any, count: Any, held: Any) -> None:
    """Moves ``held`` values to the places of the set flags, the last first."""
    k = to + held
    for i in range(to + count - 1, to - 1, -1):
        if valid[i]:
            k -= 1
            out[i] = out[k]
        else:
            out[i] = 0


@register_jitable
def _codes(plain: Any, start: Any, stop: Any, entries: Any, out: Any) -> Any:
    """Fills ``out`` with indices below ``entries``; whether they are."""
    if start >= stop or entries == 0:
        return False
    width = np.int64(plain[start])
    if width == 0:
        out[:] = 0
        return True
    if width > 31 or _hybrid(plain[start + 1 : stop], width, out) < 0:
        return False
    most, least = np.int64(0), np.int64(0)
    for k in range(len(out)):
        most = max(most, np.int64(out[k]))
        least = min(least, np.int64(out[k]))
    return least >= 0 and most < entries


@register_jitable
def _noted(optional: Any, valid: Any, nulls: Any, chunk: Any, to: Any, count: Any, held: Any) -> Any:
    """Notes the nulls of a page; whether there are any."""
    if held < count:
        nulls[chunk] += count - held
        return True
    if optional:
        valid[to : to + count] = 1
    return False


def indices(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, base: Any, entries: Any,
    status: Any, out: Any, valid: Any, nulls: Any,
) -> None:  # fmt: skip
    """Indices into the dictionaries of all chunks, that of chunk ``c`` beginning at ``base[c]``
    with ``entries[c]`` values. ``first[c]`` is the first row of a chunk in ``out``."""
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], places[n] + page[SIZE]
        start, held = _after_levels(plain, page, places[n], optional, valid, to)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        some = out[to : to + held]
        if held > 0 and not _codes(plain, start, stop, entries[chunk], some):
            status[chunk] = 4
            continue
        if base[chunk]:
            shift = np.int32(base[chunk])
            for k in range(held):
                some[k] += shift
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)
        to += count


def fixed(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, dictionary: Any,
    entries: Any, items: Any, status: Any, out: Any, valid: Any, nulls: Any, some: Any,
) -> None:  # fmt: skip
    """Values of a fixed width, plain or by a dictionary at byte ``dictionary[c]`` of ``plain``.
    ``items`` is ``out`` as bytes; ``some`` is scratch."""
    width = len(items) // max(len(out), 1)
    before, to = np.int64(-1), np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if chunk != before:
            before, to = chunk, first[chunk]
        if page[VERSION] == 0 or status[chunk] != 0:
            continue
        count, stop = page[VALUES], places[n] + page[SIZE]
        start, held = _after_levels(plain, page, places[n], optional, valid, to)
        if held < 0 or start > stop:
            status[chunk] = 4
            continue
        encoding = page[ENCODING]
        if encoding == _PLAIN:
            if held * width > stop - start:
                status[chunk] = 4
                continue
            _move(plain, start, items, to * width, held * width)
        elif encoding == _RLE_DICTIONARY or encoding == _PLAIN_DICTIONARY:
            found = some[:held]
            if held > 0 and not _codes(plain, start, stop, entries[chunk], found):
                status[chunk] = 4
                continue
            origin = dictionary[chunk]
            for k in range(held):
                out[to + k] = load(plain, origin + np.int64(found[k]) * width)
        else:
            status[chunk] = 3
            continue
        if _noted(optional, valid, nulls, chunk, to, count, held):
            _spread(out, valid, to, count, held)
        to += count


def words(
    plain: Any, pages: Any, places: Any, base: Any, entries: Any, status: Any, offsets: Any,
    out: Any,
) -> None:  # fmt: skip
    """The strings of the dictionary pages, those of chunk ``c`` from ``base[c]`` on."""
    end = np.int64(0)
    for n in range(len(pages)):
        page = pages[n]
        chunk = page[CHUNK]
        if page[VERSION] != 0 or entries[chunk] == 0:
            continue
        encoding, to = page[ENCODING], base[chunk]
        at, stop, k = places[n], places[n] + page[SIZE], np.int64(0)
        good = status[chunk] == 0 and (encoding == _PLAIN or encoding == _PLAIN_DICTIONARY)
        while good and k < entries[chunk]:
            if stop - at < 4:
                break
            length = np.int64(load(plain, at) & np.uint64(0xFFFFFFFF))
            at += 4
            if length > stop - at:
                break
            _move(plain, at, out, end, length)
            at += length
            end += length
            k += 1
            offsets[to + k] = end
        if k < entries[chunk]:
            status[chunk] = 4
            offsets[to + k + 1 : to + entries[chunk] + 1] = end


def strings(
    plain: Any, pages: Any, places: Any, optional: Any, first: Any, base: Any, entries: Any,
    starts: Any, letters: Any, status: Any, offsets: Any, out: Any, valid: Any, nulls: Any,
    some: Any,
) -> Any:  # fmt: skip
    """Strings back to back, plain or from the dictionaries (``starts`` and ``letters``, as from
    ``words``). ``offsets`` are of all rows. The bytes in ``out``, or -1 where they do not fit."""
    end, n = np.int64(0), 0
    for chunk in range(len(first) - 1):
        to = first[chunk]
        while n < len(pages) and pages[n, CHUNK] == chunk:
            page, place = pages[n], places[n]
            n += 1
            if page[VERSION] == 0 or status[chunk] != 0:
                continue
            count, stop, encoding = page[VALUES], place + page[SIZE], page[ENCODING]
            at, held = _after_levels(plain, page, place, optional, valid, to)
            if held < 0 or at > stop:
                status[chunk] = 4
                continue
            coded = encoding == _RLE_DICTIONARY or encoding == _PLAIN_DICTIONARY
            found = some[:held]
            if coded and held > 0 and not _codes(plain, at, stop, entries[chunk], found):
                status[chunk] = 4
                continue
            if not coded and encoding != _PLAIN:
                status[chunk] = 3
                continue
            k, whole = np.int64(0), held == count
            for i in range(to, to + count):
                if whole or valid[i]:
                    if coded:
                        word = base[chunk] + np.int64(found[k])
                        start = np.int64(starts[word])
                        length = np.int64(starts[word + 1]) - start
                        if end + length + 8 > len(out):
                            return -1
                        _move(letters, start, out, end, length)
                    else:
                        if stop - at < 4:
                            break
                        length = np.int64(load(plain, at) & np.uint64(0xFFFFFFFF))
                        at += 4
                        if length > stop - at:
                            break
                        if end + length + 8 > len(out):
                            return -1
                        _move(plain, at, out, end, length)
                        at += length
                    end += length
                    k += 1
                offsets[i + 1] = end
            if k != held:
                status[chunk] = 4
                continue
            _noted(optional, valid, nulls, chunk, to, count, held)
            to += count
        offsets[to + 1 : first[chunk + 1] + 1] = end
    return end


def _versioned(kernel: Callable[..., Any], version: int) -> Callable[..., Any]:
    """``kernel`` with a version that is part of the key of numba's cache."""
    called = register_jitable(kernel)

    def call(*arguments: Any) -> Any:
        _ = version
        return called(*arguments)

    call.__qualname__ = call.__name__ = kernel.__name__
    return call


def compiled() -> BulkKernels:
    found = fingerprint(bulk_columns, runs, kernel_wire, compact)
    compile = partial(compile_kernel, cache=found is not None and not CHECKED)
    return BulkKernels(
        **{
            name: compile(_versioned(kernel, found or 0))
            for name, kernel in (
                ("walk", walk),
                ("decompress", decompress),
                ("indices", indices),
                ("fixed", fixed),
                ("words", words),
                ("strings", strings),
            )
        }
    )
