"""Converts a file's decoded column to the table's type, and says which values can be trusted.

Types are the canonical ones of ``skipstone.predicate.types``. ``exactly`` converts decoded values
to a table's type if every value of the one type is a value of the other **and Spark reads it as
that value**. Only the types decide, so a fact never depends on the values that a file holds:

    the file has                     the table may have
    tinyint smallint int bigint      a wider integer, a decimal with room for all its digits
    tinyint smallint int             double
    float                            double
    decimal(p, s)                    a decimal with at least as many digits on both sides
    date                             timestamp_ntz (midnight)
    binary                           string (Spark reads the bytes as they are)
    bigint                           interval day to second (its microseconds)
    nanoseconds                      timestamp (its microseconds, rounded down, as rows are decided)

Any other pair has no facts: an instant is not a local timestamp, and Spark rejects or wraps values
of a wider type than the table's. Spark itself reads nanoseconds as bigint or not at all; a leaf on
bigint has no counterpart over a timestamp.

``restate`` goes the other way. A column of the table may have been widened since it was indexed. A
leaf in the table's type becomes the leaf in the indexed type that is TRUE for the same rows
(``predicate/preimage.py``): over a column that was int, ``c < 3000000000`` is TRUE for all non-null
values, and ``c = 1.5`` for none. All kinds of index use it.

**Calendars.** Spark before 3.0 (3.1 for INT96), Hive, and Spark in its LEGACY modes wrote the
hybrid calendar: Julian up to 1582-10-04, Gregorian from 1582-10-15, and local mean times before
time zones. How a reader converts ancient values then depends on its session. From 1582-10-15
(dates) and 1900-01-01T00:00:00Z (timestamps) on both calendars agree, so a column of such a file is
indexed only if none of its values is older (``ancient``). A file says which it is in its footer:
``org.apache.spark.version``, and the keys ``org.apache.spark.legacyDateTime`` and
``org.apache.spark.legacyINT96``, whose presence alone counts. A file that no Spark wrote says
nothing, and is treated like an old one. Source: Spark's ``DataSourceUtils`` and ``RebaseDateTime``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers, validity, within
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import stored
from skipstone.predicate.operands import Unusable
from skipstone.predicate.tree import And, Const, Joint, Leaf, Op
from skipstone.predicate.types import Kind, kind_of, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from skipstone.predicate.types import ManyValues, Value


def atomic(type: pa.DataType) -> bool:
    """True for the canonical types, which a column with an index may have."""
    return bool(spark_type(type) == type)


def is_text(type: pa.DataType) -> bool:
    """True for string and binary: values are byte strings, ordered byte by byte."""
    return type in (pa.string(), pa.binary())


def refuse(kind: str, column: str, type: pa.DataType, others: Sequence[str]) -> UnsupportedError:
    """The error for a column that ``kind`` cannot index; ``others`` are the kinds that could."""
    if others:
        hint = f"{' or '.join(others)} takes this type"
    else:
        hint = "an index takes a column of an atomic type, outside arrays and maps"
    return UnsupportedError(f"{kind} cannot index column {column!r} of type {type}", hint=hint)


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """True where the module's table allows a file of ``narrow`` in a table of ``wide``."""
    from skipstone.predicate.preimage import exact_cast

    t = pa.types
    if narrow == wide:
        return True
    if t.is_date32(narrow):
        return bool(t.is_timestamp(wide) and wide.tz is None)
    if atomic(narrow) and atomic(wide) and exact_cast(narrow, wide):
        return True
    if t.is_signed_integer(narrow) and t.is_float64(wide):
        return bool(narrow.bit_width <= 32)
    if t.is_int64(narrow):
        return bool(t.is_duration(wide))
    return bool(t.is_binary(narrow) and t.is_string(wide))


def exactly(values: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Decoded ``values`` as ``type``, value for value, or ``None`` where the types do not allow it.

    A dictionary of byte strings stays one. Bytes that are not UTF-8 stay as they are: they equal no
    literal and are ordered like all others.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        # Rows are decided on the same microseconds (``order_keys``).
        values = stored(values, pa.timestamp("us", values.type.tz and "UTC"))
    elif pa.types.is_duration(values.type) and pa.types.is_int64(type):
        values = values.view(pa.int64())  # only Arrow's own schema says that it is more
    read = spark_type(values.type)
    if read is None or not widens(read, type):
        return None
    if pa.types.is_dictionary(values.type):
        if is_text(type):
            dictionary = _text(values.dictionary, type)
            return pa.DictionaryArray.from_arrays(values.indices, dictionary)
        values = values.dictionary_decode()
    if is_text(type):
        return _text(values, type)
    try:
        if values.type != read:
            values = values.cast(read)
        return values if read == type else values.cast(type)
    except pa.ArrowInvalid:  # past the range of microseconds: Spark cannot read it either
        return None


def _text(values: pa.Array, type: pa.DataType) -> pa.Array:
    if values.type == type:
        return values
    if pa.types.is_string_view(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    elif not is_text(values.type):
        values = values.cast(pa.binary())
    # String and binary have the same layout: no check, no copy.
    return pa.Array.from_buffers(
        type, len(values), values.buffers(), values.null_count, values.offset
    )


def without_views(type: pa.DataType) -> pa.DataType:
    """``type`` with ``large_string`` and ``large_binary`` in place of views, of which Arrow takes
    no rows."""
    t = pa.types
    if t.is_string_view(type):
        return pa.large_string()
    if t.is_binary_view(type):
        return pa.large_binary()
    if t.is_struct(type):
        return pa.struct([each.with_type(without_views(each.type)) for each in type])
    if t.is_map(type):
        return pa.map_(without_views(type.key_type), without_views(type.item_type))
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        element = type.value_field.with_type(without_views(type.value_type))
        if t.is_fixed_size_list(type):
            return pa.list_(element, type.list_size)
        return pa.large_list(element) if t.is_large_list(type) else pa.list_(element)
    return type


def lists_of(views: pa.Array) -> pa.Array:
    """A list view as a list. Arrow's own cast loses elements, and few of its kernels know views."""
    valid = validity(views)
    sizes = np.where(valid, numbers(views.sizes), 0).astype(np.int64)
    places = np.repeat(numbers(views.offsets).astype(np.int64), sizes) + within(sizes)
    values = views.values
    elements = values.cast(without_views(values.type)).take(arrow(places))
    offsets = arrow(np.append(0, np.cumsum(sizes)))
    return pa.LargeListArray.from_arrays(offsets, elements, mask=arrow(~valid))


def values_of_key(maps: pa.Array | pa.ChunkedArray, key: str) -> pa.Array | pa.ChunkedArray:
    """The values of one key of maps from strings; of several entries the first, as in Spark."""
    if not pa.types.is_string(maps.type.key_type):
        # Arrow's lookup supports no views and no dictionaries.
        maps = maps.cast(pa.map_(pa.string(), maps.type.item_type))
    return pc.map_lookup(maps, str(key), "first")


def binary_parts(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """``(data, offsets)`` of a binary or string array without nulls; offsets as int64.

    Views into Arrow's buffers where they are wide enough; the array must outlive them.
    """
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        width: DTypeLike = np.int32
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        width = np.int64
    else:
        raise UnsupportedError(f"not an array of byte strings: {array.type}")
    _validity, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    every = np.frombuffer(offsets, dtype=width)
    own = every[array.offset : array.offset + len(array) + 1].astype(np.int64)
    bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    return bytes_, own


StoredLeaf: TypeAlias = "Leaf | Const"


def restate(leaf: Leaf, stored: pa.DataType) -> StoredLeaf | None:
    """The leaf over values of type ``stored`` that is TRUE for the same rows, or ``None``.

    ``Const`` where no row or every row matches; a leaf on values may become NOT_NULL. The parts of
    a ``Joint`` that have no counterpart are left out, which only lets more values match.
    """
    if leaf.type == stored:
        return leaf
    if isinstance(leaf, Joint):
        return _joint([restate(part, stored) for part in leaf.parts])
    local = spark_type(stored)
    if local is None:
        return None
    if local == leaf.type or leaf.op in (Op.IS_NULL, Op.NOT_NULL):
        return Leaf(leaf.column, local, leaf.op, leaf.values)
    # Bytes have no numeric ranges, and an interval gives its number another unit.
    if is_text(leaf.type) or kind_of(leaf.type) is Kind.DURATION or not widens(local, leaf.type):
        return None
    try:
        if leaf.op in (Op.IN, Op.NOT_IN):
            return _members(leaf, local)
        if leaf.op is Op.NE_OR_NULL:
            found = _carry(leaf, "=", leaf.values[0], local)
            if isinstance(found, Const):
                return Const(True)
            return Leaf(leaf.column, local, Op.NE_OR_NULL, found.values) if found else None
        return _carry(leaf, str(leaf.op), leaf.values[0], local)
    except Unusable:
        return None


def _joint(parts: Sequence[StoredLeaf | None]) -> StoredLeaf | None:
    if Const(False) in parts:
        return Const(False)
    on_values = tuple(
        each
        for each in parts
        if isinstance(each, Leaf) and each.op not in (Op.IS_NULL, Op.NOT_NULL, Op.NE_OR_NULL)
    )
    return Joint.of(on_values) if on_values else None


def _carry(leaf: Leaf, op: str, value: Value, local: pa.DataType) -> StoredLeaf | None:
    from skipstone.predicate.preimage import carry_back, leaves_of, range_key, ranges_of

    ranges = ranges_of(op, range_key(value, leaf.type), leaf.type)
    found = leaves_of(leaf.column, local, carry_back(ranges, local, leaf.type, None))
    if isinstance(found, And) and op in _SIDE:
        # The other side is the last date that microseconds can represent: no row is beyond it.
        sides = [each for each in found.children if isinstance(each, Leaf)]
        return next((each for each in sides if each.op is _SIDE[op]), None)
    return found if isinstance(found, Leaf | Const) else None


_SIDE = {"<": Op.LE, "<=": Op.LE, ">": Op.GE, ">=": Op.GE}


def _members(leaf: Leaf, local: pa.DataType) -> StoredLeaf | None:
    """IN and NOT IN member by member: a list that became ranges would not be a leaf."""
    if not isinstance(leaf.values, tuple):
        return _many_members(leaf, leaf.values, local)
    values: list[Value] = []
    for value in leaf.values:
        found = _carry(leaf, "=", value, local)
        if isinstance(found, Leaf) and found.op is Op.EQ:
            values.append(found.values[0])
        elif found != Const(False):
            return None
    if not values:
        return Const(False) if leaf.op is Op.IN else Leaf(leaf.column, local, Op.NOT_NULL)
    return Leaf(leaf.column, local, leaf.op, tuple(values))


def _many_members(leaf: Leaf, values: ManyValues, local: pa.DataType) -> StoredLeaf | None:
    """Restates a leaf with an array of values, once for all files of this type."""
    from skipstone.predicate.value_array import restated

    key = (leaf.column, leaf.op, local)
    if key not in values.cache:
        values.cache[key] = None
        found = restated(values, local)
        if found is not None and len(found):
            values.cache[key] = Leaf(leaf.column, local, leaf.op, found)
        elif found is not None:
            none = Leaf(leaf.column, local, Op.NOT_NULL)
            values.cache[key] = Const(False) if leaf.op is Op.IN else none
    made: StoredLeaf | None = values.cache[key]
    return made


# -- calendars -------------------------------------------------------------------------------------

#: 1582-10-15, in days since the epoch: the first date that both calendars agree on
FIRST_DATE = -141_427
#: 1900-01-01T00:00:00Z in microseconds: from here on no zone has a local mean time of its own
FIRST_TIMESTAMP = -2_208_988_800_000_000

# The first and the last microsecond of the years 1 and 9999.
_COMMON_ERA = (-62_135_596_800_000_000, 253_402_300_799_999_999)

_VERSION = b"org.apache.spark.version"
_LEGACY = {False: b"org.apache.spark.legacyDateTime", True: b"org.apache.spark.legacyINT96"}
# Compared as text, as Spark does.
_SINCE = {False: b"3.0.0", True: b"3.1.0"}


def proleptic(metadata: Mapping[bytes, bytes] | None, *, int96: bool) -> bool:
    """True when the footer's ``metadata`` says that old values are in the calendar of today."""
    version = (metadata or {}).get(_VERSION)
    if version is None or metadata is None:
        return False
    return version >= _SINCE[int96] and _LEGACY[int96] not in metadata


def ancient(values: pa.Array) -> str | None:
    """Why dates or timestamps (in microseconds) are uncertain in a hybrid calendar; else
    ``None``."""
    if pa.types.is_dictionary(values.type) or not len(values):
        return None
    if pa.types.is_date32(values.type):
        first, limit, text = values.view(pa.int32()), FIRST_DATE, "1582-10-15"
    elif pa.types.is_timestamp(values.type):
        scale = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(values.type.unit)
        if scale is None:
            return None
        first, limit, text = values.view(pa.int64()), FIRST_TIMESTAMP // scale, "1900-01-01"
    else:
        return None
    least = pc.min(first).as_py()
    if least is None or least >= limit:
        return None
    return f"has values before {text} that may be in the legacy calendar"


def overflown(values: pa.Array) -> str | None:
    """Why timestamps (microseconds) that were INT96 cannot be trusted; else ``None``.

    Days before the Julian epoch, and sums past 64 bits, wrap around in Spark's writer. Its own
    reader undoes that; Arrow's, which reads days and nanoseconds as unsigned, does not.
    """
    found = pc.min_max(values.view(pa.int64()))
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None or (least >= _COMMON_ERA[0] and most <= _COMMON_ERA[1]):
        return None
    return "has INT96 values outside the years 1 to 9999, which readers convert differently"
