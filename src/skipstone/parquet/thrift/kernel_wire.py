"""Thrift's compact protocol as bare functions over integers, for the hot loop over a footer.

Every function runs as plain Python over ``bytes`` and lists, and compiled by numba over arrays
(``footer_jit``), from one source. So there are no exceptions and no objects, only integers. A place
is an index into ``data``; a negative place is an error that carries its own place and cause
(``failed``, ``cause``). Every read checks ``end`` first. ``compact.py`` describes the layout.

Integers are zigzag varints of 10 bytes at most. They are built halved, sign apart, because the raw
64 bits would not fit a signed register.
"""

from __future__ import annotations

from typing import Any, Final

from .compact import BINARY, BYTE, DOUBLE, FALSE, I16, I32, I64, LIST, MAP, STRUCT, TRUE, UUID

CAUSES = (
    "ends within a value",
    "a varint of more than 64 bits",
    "nested more deeply than the limit allows",
    "an unknown wire type",
    "more elements than bytes",
    "an integer beyond its type",
    "a row group with another number of columns than the schema has leaves",
    "a required field is missing",
    "a size, count or offset that is impossible",
    "a chunk of another type than its column",
    "a column chunk without metadata, neither plain nor encrypted",
    "a field twice",
    "a list of other elements",
    "a field of no type",
)
ENDS: Final = 0
LONG_VARINT: Final = 1
TOO_DEEP: Final = 2
UNKNOWN_WIRE_TYPE: Final = 3
TOO_MANY: Final = 4
OUT_OF_RANGE: Final = 5
OTHER_COLUMNS: Final = 6
MISSING: Final = 7
IMPLAUSIBLE: Final = 8
OTHER_TYPE: Final = 9
NO_META_DATA: Final = 10
TWICE: Final = 11
ELEMENTS: Final = 12
NO_TYPE: Final = 13

DEPTH = 40
STACK: Final = 2 * DEPTH


def failed(at: Any, why: Any) -> Any:
    """The negative place that encodes a failure: where, and why (an index into ``CAUSES``)."""
    return -1 - (at * 16 + why)


def cause(failure: int) -> tuple[int, str]:
    """Place and cause of the failure that a negative place encodes."""
    code = -1 - failure
    return code >> 4, CAUSES[code & 15]


def zigzag(data: Any, at: Any, end: Any) -> Any:
    """A signed integer, and the place after it."""
    if at >= end:
        return 0, failed(at, ENDS)
    byte = data[at] & 0xFF
    at += 1
    sign = byte & 1
    half = (byte & 0x7F) >> 1
    shift = 6
    while byte >= 0x80:
        if shift > 62:
            return 0, failed(at, LONG_VARINT)
        if at >= end:
            return 0, failed(at, ENDS)
        byte = data[at] & 0xFF
        at += 1
        if shift == 62 and byte > 1:
            return 0, failed(at, LONG_VARINT)
        half |= (byte & 0x7F) << shift
        shift += 7
    return half ^ -sign, at


def count(data: Any, at: Any, end: Any) -> Any:
    """A length or size, at most the number of bytes left, and the place after it."""
    value = 0
    shift = 0
    while True:
        if at >= end:
            return 0, failed(at, ENDS)
        byte = data[at] & 0xFF
        at += 1
        if shift > 56 and byte:
            return 0, failed(at, TOO_MANY)
        value |= (byte & 0x7F) << min(shift, 56)
        if byte < 0x80:
            break
        shift += 7
    if value > end - at:
        return 0, failed(at, TOO_MANY)
    return value, at


def field(data: Any, at: Any, end: Any, previous: Any) -> Any:
    """Type and id of the next field, and the place after its head; type 0 ends the struct."""
    if at >= end:
        return 0, 0, failed(at, ENDS)
    head = data[at] & 0xFF
    at += 1
    kind = head & 0x0F
    if kind == 0:
        if head:
            return 0, 0, failed(at - 1, NO_TYPE)
        return 0, 0, at
    delta = head >> 4
    if delta:
        return kind, previous + delta, at
    id, at = zigzag(data, at, end)
    if at >= 0 and not -0x8000 <= id < 0x8000:
        return 0, 0, failed(at, OUT_OF_RANGE)
    return kind, id, at


def items(data: Any, at: Any, end: Any) -> Any:
    """Element type and size of a list, and the place after its head."""
    if at >= end:
        return 0, 0, failed(at, ENDS)
    head = data[at] & 0xFF
    at += 1
    size = head >> 4
    if size == 15:
        size, at = count(data, at, end)
    elif size > end - at:
        return 0, 0, failed(at, TOO_MANY)
    return head & 0x0F, size, at


def flat(data: Any, at: Any, end: Any, kind: Any) -> Any:
    """The place after a value that holds no other; booleans are elements here, of one byte."""
    if kind == BINARY:
        length, at = count(data, at, end)
        return at + length if at >= 0 else at
    if kind in (I16, I32, I64):
        return zigzag(data, at, end)[1]
    if kind in (TRUE, FALSE, BYTE):
        length = 1
    elif kind == DOUBLE:
        length = 8
    elif kind == UUID:
        length = 16
    else:
        return failed(at, UNKNOWN_WIRE_TYPE)
    return at + length if length <= end - at else failed(at, ENDS)


def skip(data: Any, at: Any, end: Any, kind: Any, stack: Any) -> Any:
    """The place after the value of a field; ``stack`` is scratch of ``2 * DEPTH`` integers.

    An open container is a pair on the stack: of a struct -1 and the last id; of a list the elements
    left and their type; of a map the keys and values left, and both types with the one that is next
    in the low four bits.
    """
    if kind in (TRUE, FALSE):
        return at
    top = -2
    while True:
        # A value of ``kind`` begins here.
        if kind < LIST or kind > STRUCT:
            at = flat(data, at, end, kind)
            if at < 0:
                return at
        else:
            if top + 2 >= STACK:
                return failed(at, TOO_DEEP)
            top += 2
            if kind == STRUCT:
                stack[top] = -1
                stack[top + 1] = 0
            elif kind == MAP:
                size, at = count(data, at, end)
                if at < 0:
                    return at
                kinds = 0
                if size:
                    if 2 * size > end - at:
                        return failed(at, TOO_MANY)
                    byte = data[at] & 0xFF
                    at += 1
                    kinds = (byte >> 4) | ((byte & 0x0F) << 4)
                stack[top] = 2 * size
                stack[top + 1] = kinds | 0x100
            else:
                element, size, at = items(data, at, end)
                if at < 0:
                    return at
                stack[top] = size
                stack[top + 1] = element
        # Close what is complete, and find the next value.
        while True:
            if top < 0:
                return at
            left = stack[top]
            if left < 0:
                kind, id, at = field(data, at, end, stack[top + 1])
                if at < 0:
                    return at
                if kind == 0:
                    top -= 2
                    continue
                stack[top + 1] = id
                if kind in (TRUE, FALSE):
                    continue
                break
            if left == 0:
                top -= 2
                continue
            stack[top] = left - 1
            kinds = stack[top + 1]
            kind = kinds & 0x0F
            if kinds & 0x100:
                stack[top + 1] = 0x100 | ((kinds >> 4) & 0x0F) | (kind << 4)
            break
