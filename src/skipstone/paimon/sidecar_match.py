"""Whether a container belongs to a data file.

``type_in`` compares the indexes of a column with the file's footer. Where the two disagree, the
container belongs to another file, or to another version of it:

| the footer has, for a column | the index must have |
|---|---|
| rows | as many |
| nulls | as many |
| least and greatest number (decimals of up to 18 digits), date, instant | both, none beyond them |
| least and greatest text, which may be truncated | one that begins with the least; none beyond |

A Bloom filter counts neither rows nor nulls. It is only checked for the least and the greatest
value; for text, only if the file contains both. Footers leave NaN out, so it is not compared.

An index of up to ``SMALL`` bytes is also checked for consistency: its keys ascend, and each row is
null or has one value. Containers have no checksum, so consistent damage is not detected.

The same comparison finds the unit of a column of milliseconds. Paimon keeps timestamps of up to 3
digits in milliseconds and all others in microseconds; Skipstone's own containers have only
microseconds. Only one unit matches the footer's least and greatest value, unless all values are 0
or null: then the two indexes are equal. Without bounds in the footer such a column has no type,
unless the caller names it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import Type

from . import index_blob as reading
from .bloom import PaimonBloom
from .format.keys import INFINITE, Ask, In, Key, Null, PaimonType, Range, Root, ordinals_of, prefix
from .index_blob import SMALL, ask_blob, describe_keys
from .sidecar import PaimonColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.pruning import Fetched
    from skipstone.storage import ByteRange

    from .format.container import IndexEntry
    from .format.partial_blob import Pieces
    from .sidecar import Sidecar


_MILLIS = 3  # the most digits of a timestamp that Paimon keeps in milliseconds
_COUNTING = ("bitmap", "bsi", "range-bitmap")
# Forms whose stored bytes are numbers in the order of keys, and the width of each type.
_ORDERED = (Form.SIGNED, Form.DECIMAL, Form.TIMESTAMP, Form.FLOATING)
_WIDTHS = {Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}
# A bound of text with fewer bytes is taken for a value of the chunk.
_SHORT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """The footer's numbers for a column: ``nulls`` is -1, ``low`` and ``high`` ``None`` if unknown.

    ``low`` and ``high`` are keys, in the file's own unit, which is milliseconds if ``in_millis``.
    Text may be truncated: some value begins with ``low``. Both are values if ``occurs``.
    """

    nulls: int = -1
    low: Key | None = None
    high: Key | None = None
    in_millis: bool = False
    occurs: bool = True


def column_counts(footer: FooterArrays, wanted: Collection[str]) -> dict[str, ColumnCounts]:
    """The counts of the columns ``wanted``, by dotted name, without names that two columns
    share."""
    names = [".".join(leaf.path) for leaf in footer.schema.leaves]
    usual = Counter(names)
    return {
        name: _counts(footer, leaf)
        for name, leaf in zip(names, footer.schema.leaves, strict=True)
        if name in wanted and usual[name] == 1
    }


def _counts(arrays: FooterArrays, leaf: ColumnDescriptor) -> ColumnCounts:
    column, at = StoredColumn.of(leaf), leaf.ordinal
    null_counts: list[int] = arrays.chunk("null_count")[:, at].tolist()
    values: list[int] = arrays.chunk("num_values")[:, at].tolist()
    ends: list[tuple[Key, Key]] = []
    nulls, ordered, occurs = 0, True, True
    for group, found in enumerate(null_counts):
        if arrays.parts("statistics")[group, at] < 0:
            nulls, ordered = -1, False
            break
        nulls = nulls + found if nulls >= 0 and found >= 0 else -1
        low, high = _bounds(arrays, group, column)
        if low is not None and high is not None:
            ends.append((low, high))
            if isinstance(low, bytes) and isinstance(high, bytes):
                occurs &= _occurs(arrays, group, at, low, high)
        elif found != values[group]:
            ordered = False
    lows, highs = ({each[end] for each in ends} if ordered else set() for end in (0, 1))
    return ColumnCounts(
        nulls=nulls,
        low=min(lows, default=None),
        high=max(highs, default=None),
        in_millis=column.unit == "ms",
        occurs=occurs,
    )


def _bounds(
    arrays: FooterArrays, group: int, column: StoredColumn
) -> tuple[Key, Key] | tuple[None, None]:
    """The least and the greatest value of a chunk as keys, where they order as keys do."""
    leaf = column.column
    text = column.form is Form.TEXT and leaf.type is Type.BYTE_ARRAY
    low, high = (arrays.value_bytes(f"{end}_value", group, leaf.ordinal) for end in ("min", "max"))
    if not text:
        low = arrays.value_bytes("min", group, leaf.ordinal) if low is None else low
        high = arrays.value_bytes("max", group, leaf.ordinal) if high is None else high
    if low is None or high is None:
        return None, None
    if text:
        return low, high
    width = _WIDTHS.get(leaf.type, 0) if column.form in _ORDERED and column.unit != "ns" else 0
    if not len(low) == len(high) == width:
        return None, None
    numbers = [int.from_bytes(each, "little", signed=True) for each in (low, high)]
    if column.form is Form.FLOATING:
        type = PaimonType(Root.FLOAT if width == 4 else Root.DOUBLE)
        numbers = ordinals_of(np.array(numbers, np.int64), type).tolist()
        if max(numbers) > INFINITE[width]:  # NaN bounds nothing
            return None, None
    return numbers[0], numbers[1]


def _occurs(arrays: FooterArrays, group: int, at: int, low: bytes, high: bytes) -> bool:
    """Whether the least and the greatest text of a chunk are values of it. Where the footer does
    not say, short ones are taken for values: no writer truncates to so few bytes."""
    ends = (("is_min_value_exact", low), ("is_max_value_exact", high))
    said = [(int(arrays.chunk(name)[group, at]), len(value)) for name, value in ends]
    return all(exact == 1 or (exact < 0 and length < _SHORT) for exact, length in said)


def type_in(
    sidecar: Sidecar,
    name: str,
    type: PaimonColumnType,
    counts: ColumnCounts,
    rows: int,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> PaimonColumnType | None:
    """The type of a column in the container; ``None`` if it is unknown. ``name`` is the
    column's name in the container, ``type`` its type in the data file.

    ``FormatError`` if the container is damaged or belongs to another file, ``OSError`` for bytes
    that cannot be read.
    """
    kinds = (*_COUNTING, PaimonBloom.paimon)
    entries = [each for each in sidecar.head.of_column(name) if each.kind in kinds]
    entries = [each for each in entries if not each.is_empty]
    if not counts.in_millis or not type.paimon.is_timestamp:
        for entry in entries:
            _compare(sidecar, name, entry, type, counts, rows, fetch)
        return type
    fitting = []
    errors: list[FormatError] = []
    for precision in (_MILLIS, type.paimon.precision):
        candidate = PaimonColumnType(replace(type.paimon, precision=precision), type.stored)
        try:
            for entry in entries:
                _compare(sidecar, name, entry, candidate, counts, rows, fetch)
        except FormatError as error:
            errors.append(error)
        else:
            fitting.append(candidate)
    if not fitting:
        raise errors[0]
    sure = counts.low is not None or (counts.nulls == rows and counts.nulls >= 0)
    counting = any(each.kind in _COUNTING for each in entries)
    return fitting[0] if sure and (counting or len(fitting) == 1) else None


def _compare(
    sidecar: Sidecar,
    name: str,
    entry: IndexEntry,
    type: PaimonColumnType,
    counts: ColumnCounts,
    rows: int,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> None:
    """``FormatError`` if the index contradicts ``counts``: then it belongs to another file."""
    kind = entry.kind
    place = sidecar.blob.part(entry.start, entry.length)
    if place is None:
        raise FormatError("the index lies outside its container")
    scale = 1_000 if counts.in_millis and not type.paimon.in_millis else 1
    low = counts.low * scale if isinstance(counts.low, int) else counts.low
    high = counts.high * scale if isinstance(counts.high, int) else counts.high
    ends = (low, high) if counts.occurs else ()
    occurring: list[Ask] = [In((each,)) for each in ends if each is not None]
    if isinstance(low, bytes) and not counts.occurs and kind in _COUNTING:
        occurring.append(prefix(low))

    def compare(pieces: Pieces) -> None:
        def found(ask: Ask) -> reading.RowAnswer:
            return reading.answer(kind, type.paimon, ask, pieces)

        if kind in _COUNTING:
            if place.length <= SMALL:
                describe_keys(kind, type.paimon, pieces)
            nulls = found(Null())
            if nulls.row_count != rows:
                raise _other(f"{rows:,} rows", f"{nulls.row_count:,}")
            if counts.nulls >= 0 and nulls.may is not None and len(nulls.may) != counts.nulls:
                raise _other(f"{counts.nulls:,} nulls in {name}", f"{len(nulls.may):,}")
        for within in occurring:
            hit = found(within).may
            if hit is not None and not hit:
                raise _other(f"the file's least and greatest {name}", "it lacks one of them")
        if kind in _COUNTING and low is not None and high is not None:
            most = INFINITE[type.paimon.width] if type.paimon.is_float else None
            for beyond in (
                Range(hi=low, hi_open=True),
                Range(lo=high, lo_open=True, hi=most),  # a footer leaves NaN out
            ):
                if found(beyond).may:
                    raise _other(f"the file's least and greatest {name}", "values beyond them")

    ask_blob(place, fetch, compare)


def _other(expected: str, got: str) -> FormatError:
    return FormatError("the index is of another file", expected=expected, got=got)
