"""Bounds as people read them: the bytes of ``min_value`` and the like to text, by the leaf's type.

Numbers, dates, times, decimals and text read as Arrow prints them; instants in UTC end in ``Z``.
Bytes of no known meaning are text if they print as such, else ``0x…``; so is what does not fit its
type, for a file may say anything. For people only: nothing is decided by these.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.format.enums import Type
from skipstone.parquet.pages.column_values import LeafColumn, Run

from .arrow_types import leaf_type
from .arrow_values import leaf_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.schema import Leaf

__all__ = ["readable"]

_WIDTHS = {
    Type.BOOLEAN: 1,
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: 12,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
_DTYPES = {Type.INT32: "<i4", Type.INT64: "<i8", Type.FLOAT: "<f4", Type.DOUBLE: "<f8"}


def readable(values: pa.Array, leaf: Leaf) -> pa.Array:
    """Text of each of the binary ``values``, which are PLAIN without lengths; null stays null."""
    given = values.drop_null()
    if not len(given):
        return pa.nulls(len(values), pa.string())
    plain = ByteArrays.from_arrow(given)
    fits = np.flatnonzero(_fitting(plain, leaf))
    if not len(fits):
        texts = pa.array(list(map(_hex, plain)), pa.string())
    elif len(fits) == len(plain):
        texts = _texts(plain, leaf)
    else:
        shown = list(map(_hex, plain))
        for at, text in zip(fits.tolist(), _texts(plain.take(fits), leaf).to_pylist(), strict=True):
            shown[at] = text
        texts = pa.array(shown, pa.string())
    if len(given) == len(values):
        return texts
    places = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    spread = np.full(len(values), -1, np.int64)
    spread[places] = np.arange(len(places))
    return texts.take(pa.array(spread, mask=spread < 0))


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _fitting(values: ByteArrays, leaf: Leaf) -> Any:
    if leaf.type is Type.BYTE_ARRAY:
        return np.ones(len(values), np.bool_)
    return values.lengths == _WIDTHS.get(leaf.type, leaf.type_length)


def _texts(values: ByteArrays, leaf: Leaf) -> pa.Array:
    """Of values that have the width of their type."""
    show: Callable[[bytes], str] = _guessed
    logical = leaf.element.logicalType
    if logical is not None and logical.UUID is not None and leaf.type_length == 16:
        show = _uuid
    else:
        try:
            type_ = leaf_type(leaf)
            if pa.types.is_string(type_):
                show = _text
            elif not (_is_bytes(type_) or pa.types.is_null(type_)):
                return _printed(leaf_array(_column(values, leaf), None, type_))
        except (FormatError, UnsupportedError, pa.ArrowException):
            show = _hex
    return pa.array(list(map(show, values)), pa.string())


def _column(values: ByteArrays, leaf: Leaf) -> LeafColumn:
    return LeafColumn(
        leaf=leaf,
        num_entries=len(values),
        definition_levels=None,
        repetition_levels=None,
        runs=(Run(_physical(values, leaf)),),
    )


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_))


def _guessed(value: bytes) -> str:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return _hex(value)
    return text if text.isprintable() and text else _hex(value)


def _physical(values: ByteArrays, leaf: Leaf) -> Values:
    if leaf.type is Type.BYTE_ARRAY:
        return values
    content: Any = np.ascontiguousarray(values.content)
    made: Values
    if leaf.type is Type.BOOLEAN:
        made = content != 0
    elif leaf.type in _DTYPES:
        made = content.view(_DTYPES[leaf.type])
    else:
        made = content.reshape(len(values), -1)
    return made


def _printed(array: pa.Array) -> pa.Array:
    zone = pa.types.is_timestamp(array.type) and array.type.tz is not None
    if zone:
        array = array.cast(pa.timestamp(array.type.unit))
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    texts = array.cast(pa.string())
    if not zone:
        return texts
    # Arrow prints what no calendar holds as <value out of range: …>.
    return pc.if_else(
        pc.starts_with(texts, "<"), texts, pc.binary_join_element_wise(texts, "Z", "")
    )
