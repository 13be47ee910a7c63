"""A file's metadata as Arrow tables, which can be queried.

    row_groups   one row per row group
    chunks       one row per column chunk: row group by row group, the leaves in schema order
    pages        one row per page: ``page_table``

Columns have the names of parquet.thrift; null is absent. ``min_value`` and ``max_value`` (and the
deprecated ``min`` and ``max``) are the stored bytes; ``min_text`` and ``max_text`` are their text.

``readable`` makes that text by the leaf's type. Numbers, dates, times, decimals and strings look as
Arrow prints them; instants in UTC end in ``Z``. Bytes without a known meaning are text if they are
printable, otherwise ``0x…``. Bytes that do not fit the type are ``0x…`` too. The text is for people
only: no decision depends on it.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.encodings.dictionary import gather_bytes
from skipstone.parquet.encodings.plain import DTYPES
from skipstone.parquet.format.enums import PLAIN_WIDTHS, CompressionCodec, Encoding, Type
from skipstone.parquet.pages.column_values import LeafColumn, Run
from skipstone.parquet.values import ByteArrays, Values
from skipstone.predicate.literals import text_of_times

from .arrow_types import leaf_type
from .arrow_values import leaf_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import IntEnum

    from numpy.typing import NDArray

    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor

    I64Array = NDArray[np.int64]


_COUNTS = (
    "num_values",
    "null_count",
    "nan_count",
    "distinct_count",
)
_SIZES = (
    "total_uncompressed_size",
    "total_compressed_size",
    "unencoded_byte_array_data_bytes",
)
_PLACES = (
    "data_page_offset",
    "dictionary_page_offset",
    "index_page_offset",
    "offset_index_offset",
    "offset_index_length",
    "column_index_offset",
    "column_index_length",
    "bloom_filter_offset",
    "bloom_filter_length",
)
_SORTING = pa.list_(
    pa.struct([("column", pa.string()), ("descending", pa.bool_()), ("nulls_first", pa.bool_())])
)


def nullable(values: NDArray[Any]) -> pa.Array:
    """An array in which -1 is null."""
    flat = values.reshape(-1)
    return pa.array(flat, mask=flat < 0)


def _flags(values: I64Array) -> pa.Array:
    flat = values.reshape(-1)
    return pa.array(flat == 1, mask=flat < 0)


def gathered(buffer: NDArray[np.uint8], start: I64Array, length: I64Array) -> pa.Array:
    """Bytes at places of a buffer as a binary array; null where ``start`` is -1."""
    start, absent = start.reshape(-1), start.reshape(-1) < 0
    length = np.where(absent, 0, length.reshape(-1))
    offsets = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    # Byte i of the result is i - its value's offset + its value's start in the buffer.
    shift = np.repeat(start - offsets[:-1], length)
    data = buffer[np.arange(offsets[-1]) + shift]
    large = bool(offsets[-1] > (1 << 31) - 1)
    valid = None
    if absent.any():
        valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_binary() if large else pa.binary(),
        len(start),
        [
            valid,
            pa.py_buffer(offsets if large else offsets.astype(np.int32)),
            pa.py_buffer(data),
        ],
    )


def names(values: I64Array, kind: type[IntEnum]) -> pa.Array:
    """Names of an enumeration; a number without a name stays a number."""
    found, places = np.unique(values.reshape(-1), return_inverse=True)
    known = {int(each): each.name for each in kind}
    names = [None if each < 0 else known.get(each, str(each)) for each in found.tolist()]
    return pa.array(names, pa.string()).take(pa.array(places))


def _encodings(masks: I64Array) -> pa.Array:
    found, places = np.unique(masks.reshape(-1), return_inverse=True)
    known = {int(each): each.name for each in Encoding}
    lists = [
        None
        if mask < 0
        else [known.get(bit, str(bit)) for bit in range(mask.bit_length()) if mask >> bit & 1]
        for mask in found.tolist()
    ]
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(places))


def shown(name: str) -> str:
    """A name as text for Arrow: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def row_groups(footer: FooterArrays) -> pa.Table:
    """One row per row group."""
    count = footer.num_row_groups
    leaves = footer.schema.leaves
    sorting: list[Any] = []
    for r in range(count):
        found = footer.sorting_columns(r)
        sorting.append(
            None
            if found is None
            else [
                {
                    "column": shown(leaves[each.column_idx].name)
                    if 0 <= each.column_idx < len(leaves)
                    else str(each.column_idx),
                    "descending": each.descending,
                    "nulls_first": each.nulls_first,
                }
                for each in found
            ]
        )
    return pa.table(
        {
            "row_group": pa.array(np.arange(count), pa.int32()),
            "first_row": nullable(footer.group("first_row")),
            **{
                name: nullable(footer.group(name))
                for name in (
                    "num_rows",
                    "total_byte_size",
                    "total_compressed_size",
                    "file_offset",
                    "ordinal",
                )
            },
            "sorting_columns": pa.array(sorting, _SORTING),
        }
    )


def chunks(footer: FooterArrays) -> pa.Table:
    """One row per column chunk."""
    count, leaves = footer.num_row_groups, footer.schema.leaves
    columns_of = pa.array([shown(leaf.name) for leaf in leaves], pa.string())
    ordinals = np.tile(np.arange(len(leaves)), count)
    columns: dict[str, pa.Array] = {
        "row_group": pa.array(np.repeat(np.arange(count), len(leaves)), pa.int32()),
        "leaf": pa.array(ordinals, pa.int32()),
        "column": columns_of.take(pa.array(ordinals)),
        "file_path": _file_paths(footer),
        "type": names(np.tile(footer.scanned.types, count), Type),
        "codec": names(footer.chunk("codec"), CompressionCodec),
        "encodings": _encodings(footer.chunk("encodings")),
        "dict_only": _flags(footer.chunk("dict_only")),
    }
    for name in _COUNTS:
        columns[name] = nullable(footer.chunk(name))
    bounds = {
        name: gathered(footer.buffer, *footer.places(name))
        for name in ("min_value", "max_value", "min", "max")
    }
    for side in ("min", "max"):
        best = pc.coalesce(bounds[f"{side}_value"], bounds[side])
        columns[f"{side}_text"] = texts_by_leaf(best, ordinals, leaves)
    for side in ("min", "max"):
        columns[f"{side}_value"] = bounds[f"{side}_value"]
        columns[f"is_{side}_value_exact"] = _flags(footer.chunk(f"is_{side}_value_exact"))
    columns["min"], columns["max"] = bounds["min"], bounds["max"]
    for name in (*_SIZES, *_PLACES):
        columns[name] = nullable(footer.chunk(name))
    columns["encrypted"] = _flags(footer.chunk("encrypted"))
    columns["has_meta_data"] = _flags(footer.chunk("has_meta_data"))
    return pa.table(columns)


def _file_paths(footer: FooterArrays) -> pa.Array:
    start, length = footer.places("file_path")
    if (start < 0).all():
        return pa.nulls(start.size, pa.string())
    paths = gathered(footer.buffer, start, length).to_pylist()
    return pa.array(
        [None if each is None else each.decode("utf-8", "backslashreplace") for each in paths],
        pa.string(),
    )


def texts_by_leaf(
    values: pa.Array, ordinals: I64Array, leaves: Sequence[ColumnDescriptor]
) -> pa.Array:
    """``readable`` for values of many leaves, called once for all leaves of the same type.

    ``ordinals`` are the places of the values' leaves in ``leaves``.
    """
    kinds: dict[Any, int] = {}
    first: list[ColumnDescriptor] = []
    of_leaf = np.zeros(len(leaves), np.int64)
    for leaf in leaves:
        key = _meaning(leaf)
        if key not in kinds:
            kinds[key] = len(first)
            first.append(leaf)
        of_leaf[leaf.ordinal] = kinds[key]
    if len(first) == 1:
        return readable(values, first[0])
    kind = of_leaf[ordinals]
    order = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[order], np.arange(len(first) + 1))
    parts = [
        readable(values.take(pa.array(order[ends[at] : ends[at + 1]])), leaf)
        for at, leaf in enumerate(first)
    ]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    whole = pa.concat_arrays(parts) if parts else pa.nulls(0, pa.string())
    return whole.take(pa.array(back))


def _meaning(leaf: ColumnDescriptor) -> Any:
    element = leaf.element
    if element.logicalType is None and element.converted_type is None:
        return leaf.type, leaf.type_length
    try:
        type_: object = leaf_type(leaf)
    except UnsupportedError:
        type_ = leaf.ordinal
    uuid = element.logicalType is not None and element.logicalType.UUID is not None
    return leaf.type, leaf.type_length, type_, uuid


def readable(values: pa.Array, leaf: ColumnDescriptor) -> pa.Array:
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
        for at, text in zip(
            fits.tolist(), _texts(gather_bytes(plain, fits), leaf).to_pylist(), strict=True
        ):
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


def _fitting(values: ByteArrays, leaf: ColumnDescriptor) -> Any:
    if leaf.type is Type.BYTE_ARRAY:
        return np.ones(len(values), np.bool_)
    return values.lengths == PLAIN_WIDTHS.get(leaf.type, leaf.type_length)


def _texts(values: ByteArrays, leaf: ColumnDescriptor) -> pa.Array:
    """Texts of values that have the width of their type."""
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


def _column(values: ByteArrays, leaf: ColumnDescriptor) -> LeafColumn:
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


def _physical(values: ByteArrays, leaf: ColumnDescriptor) -> Values:
    if leaf.type is Type.BYTE_ARRAY:
        return values
    content: Any = np.ascontiguousarray(values.content)
    made: Values
    if leaf.type is Type.BOOLEAN:
        made = content != 0
    elif leaf.type in DTYPES:
        made = content.view(DTYPES[leaf.type])
    else:
        made = content.reshape(len(values), -1)
    return made


def _printed(array: pa.Array) -> pa.Array:
    if pa.types.is_temporal(array.type):
        if pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        return text_of_times(array)
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    return array.cast(pa.string())
