"""Definition and repetition levels of a data page.

    v1   [u32 length, hybrid]  [u32 length, hybrid]  values        RLE
         [packed bits]         [packed bits]         values        BIT_PACKED, long deprecated
    v2   [hybrid]              [hybrid]              values        lengths stand in the header
          repetition            definition

Levels of which the schema allows only 0 are left out, whatever encoding the header declares for
them. Both kinds use the fewest bits that hold the highest level. Levels that are all the trivial
one (no nulls: the highest definition level; no lists: repetition level 0) come back as ``None``,
which most pages do, and from a single run without being unpacked.

BIT_PACKED packs them from the most significant bit on, the reverse of the order in ``rle.py``. ::

    values 0 to 7 in 3 bits:   00000101 00111001 01110111
                               AAABBBCC CDDDEEEF FFGGGHHH

It has no runs, no length, and padding only in the last byte: ``count`` values take
``ceil(count * width / 8)`` bytes. Files may declare it for levels of width 0, where it has no
effect. Source: README.md and Encodings.md of parquet-format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings import rle
from skipstone.parquet.format.enums import Encoding
from skipstone.parquet.values import Buffer, as_bytes, check_count, check_room

if TYPE_CHECKING:
    import numpy.typing as npt

    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.parquet.values import I64, U8

    from .page import Page


_LENGTH = 4


def levels_v1(
    page: Page, body: memoryview, leaf: ColumnDescriptor
) -> tuple[U8 | None, U8 | None, int]:
    """Repetition levels, definition levels, and where the values begin in the decompressed body."""
    repetition, at = _v1(
        body, 0, page.repetition_level_encoding, leaf.max_repetition_level, page.num_values, 0
    )
    definition, at = _v1(
        body,
        at,
        page.definition_level_encoding,
        leaf.max_definition_level,
        page.num_values,
        leaf.max_definition_level,
    )
    return repetition, definition, at


def levels_v2(
    page: Page, body: memoryview, leaf: ColumnDescriptor
) -> tuple[U8 | None, U8 | None, int]:
    """Repetition levels, definition levels, and where the values begin in the stored body."""
    first = page.repetition_levels_byte_length
    second = page.definition_levels_byte_length
    if first < 0 or second < 0 or first + second > len(body):
        raise FormatError(
            "levels longer than their page", expected=f"at most {len(body)}", got=(first, second)
        )
    stop = first + second
    repetition = _hybrid(body[:first], leaf.max_repetition_level, page.num_values, 0)
    definition = _hybrid(
        body[first:stop], leaf.max_definition_level, page.num_values, leaf.max_definition_level
    )
    return repetition, definition, stop


def _v1(
    body: memoryview, at: int, encoding: int, highest: int, count: int, trivial: int
) -> tuple[U8 | None, int]:
    if not highest:
        return None, at
    if encoding == Encoding.BIT_PACKED:
        length = (count * highest.bit_length() + 7) // 8
        part = _part(body, at, length)
        levels, _ = decode_bit_packed(part, count, highest.bit_length(), dtype=np.uint8)
        return _checked(levels, highest, trivial), at + length
    if encoding != Encoding.RLE:
        raise UnsupportedError(f"levels of encoding {encoding}")
    if not count and at == len(body):
        return None, at  # a page without values may lack even the length
    length = int.from_bytes(_part(body, at, _LENGTH), "little")
    at += _LENGTH
    return _hybrid(_part(body, at, length), highest, count, trivial), at + length


def _part(body: memoryview, at: int, length: int) -> memoryview:
    if length > len(body) - at:
        raise FormatError(
            "levels longer than their page", offset=at, expected=len(body) - at, got=length
        )
    return body[at : at + length]


def _hybrid(data: memoryview, highest: int, count: int, trivial: int) -> U8 | None:
    if not highest or not count:
        return None
    width = highest.bit_length()
    if rle.constant(data, count, width) == trivial:
        return None
    levels, _ = rle.decode(data, count, width, dtype=np.uint8)
    return _checked(levels, highest, trivial)


def _checked(levels: U8, highest: int, trivial: int) -> U8 | None:
    if not len(levels):
        return None
    low, high = int(levels.min()), int(levels.max())
    if high > highest:
        raise FormatError("a level above the schema's", expected=f"at most {highest}", got=high)
    return None if low == high == trivial else levels


def rows_begun(page: Page, body: memoryview, leaf: ColumnDescriptor) -> tuple[int, bool]:
    """How many rows begin in a v1 page, and whether its first entry belongs to an earlier row."""
    repetition, _, _ = levels_v1(page, body, leaf)
    if repetition is None:
        return page.num_values, False
    begun = len(repetition) - int(np.count_nonzero(repetition))
    return begun, bool(len(repetition) and repetition[0])


def row_starts(repetition_levels: U8) -> I64:
    """The entries that begin a row.

    The first entry of a v1 page need not: pages of nested columns may end within a row.
    """
    return np.flatnonzero(repetition_levels == 0)


def decode_bit_packed(
    data: Buffer, count: int, bit_width: int, *, dtype: npt.DTypeLike = np.int32
) -> tuple[npt.NDArray[Any], int]:
    """``count`` levels of ``bit_width`` (0 to 32) bits, and the number of bytes used."""
    check_count(count)
    if not 0 <= bit_width <= min(32, 8 * np.dtype(dtype).itemsize):
        raise FormatError("bit width of levels", expected="0 to 32", got=bit_width)
    view, used = as_bytes(data), count * bit_width + 7 >> 3
    check_room(f"{count} levels of {bit_width} bits", used, len(view))
    made = np.zeros(count, dtype)
    if not bit_width:
        return made, 0
    for start in range(0, count, 8_192):  # whole bytes, and few enough for the cache
        here = made[start : start + 8_192]
        packed = view[start * bit_width >> 3 : (start + len(here)) * bit_width + 7 >> 3]
        bits = np.zeros((len(here), 32), np.uint8)
        flat = np.unpackbits(packed, count=len(here) * bit_width)
        bits[:, 32 - bit_width :] = flat.reshape(-1, bit_width)
        here[:] = np.packbits(bits, axis=1).reshape(-1).view(">u4").astype(made.dtype)
    return made, used
