"""Whether the values of a page may be those of a column, beyond that they can be decoded.

    STRING, ENUM, JSON     UTF-8, all of it
    INT(8), INT(16)        within their range, signed or not
    PLAIN byte arrays      the last value ends with the page
    statistics             of a page: as many nulls; bounds of a value's width; all values within

Only what the specification requires of every writer is checked: a page that is wrongly excluded
from its column could make a wrong division of the pages look certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.format.enums import ConvertedType, Encoding, Type

if TYPE_CHECKING:
    from skipstone.parquet.encodings.values import Values
    from skipstone.parquet.format.metadata import Statistics
    from skipstone.parquet.format.schema import Leaf
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.pages.page import Page


_TEXTS: Final = (ConvertedType.UTF8, ConvertedType.ENUM, ConvertedType.JSON)
_SMALL: Final = {
    ConvertedType.INT_8: (-(1 << 7), (1 << 7) - 1),
    ConvertedType.INT_16: (-(1 << 15), (1 << 15) - 1),
    ConvertedType.UINT_8: (0, (1 << 8) - 1),
    ConvertedType.UINT_16: (0, (1 << 16) - 1),
}
_NUMBERS: Final = {Type.INT32: "<i4", Type.INT64: "<i8", Type.FLOAT: "<f4", Type.DOUBLE: "<f8"}
_WIDTHS: Final = {Type.BOOLEAN: 1, Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}


def plausible_page(page: Page, column: LeafColumn, values_size: int) -> bool:
    """Whether ``column``, decoded from ``page``, may be that column. ``values_size``: the bytes of
    the page from its values on."""
    values: Any = column.values() if column.runs else None
    if (
        isinstance(values, ByteArrays)
        and page.encoding == Encoding.PLAIN
        and int(values.lengths.sum()) + 4 * len(values) != values_size
    ):
        return False
    if values is not None and not plausible_values(column.leaf, values):
        return False
    return _as_stated(page, column, values)


def plausible_values(leaf: Leaf, values: Values) -> bool:
    """The same for values alone."""
    if not len(values):
        return True
    if isinstance(values, ByteArrays):
        return not _is_text(leaf) or _utf8(values)
    return _in_range(leaf, values)


def _is_text(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    return leaf.element.converted_type in _TEXTS or (
        logical is not None and logical.name in ("STRING", "ENUM", "JSON")
    )


def _utf8(values: ByteArrays) -> bool:
    import pyarrow as pa

    try:
        values.to_arrow(pa.binary()).cast(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _in_range(leaf: Leaf, values: Any) -> bool:
    bounds = _SMALL.get(leaf.element.converted_type)  # type: ignore[call-overload]
    logical = leaf.element.logicalType
    if logical is not None and logical.INTEGER is not None:
        bits, signed = logical.INTEGER.bitWidth, logical.INTEGER.isSigned
        kind = f"{'' if signed else 'U'}INT_{bits}"
        bounds = _SMALL.get(ConvertedType[kind]) if kind in ConvertedType.__members__ else None
    if bounds is None or leaf.type is not Type.INT32:
        return True
    return bool(bounds[0] <= values.min() and values.max() <= bounds[1])


def _as_stated(page: Page, column: LeafColumn, values: Any) -> bool:
    statistics = _statistics(page)
    if statistics is None:
        return True
    leaf = column.leaf
    nulls = statistics.null_count
    if nulls is not None and not leaf.max_repetition_level and nulls != column.num_nulls:
        return False
    low, high = statistics.min_value, statistics.max_value
    width = _WIDTHS.get(leaf.type)
    if width is not None and any(each is not None and len(each) != width for each in (low, high)):
        return False
    kind = _NUMBERS.get(leaf.type)
    if kind is None or low is None or high is None or values is None or _unsigned(leaf):
        return True
    held = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(held):
        return True
    least, most = np.frombuffer(low, kind)[0], np.frombuffer(high, kind)[0]
    return bool(least <= held.min() and held.max() <= most)


def _statistics(page: Page) -> Statistics | None:
    try:
        header = page.header
    except FormatError:
        return None
    data = header.data_page_header or header.data_page_header_v2
    return None if data is None else data.statistics


def _unsigned(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is not None and logical.INTEGER is not None:
        return not logical.INTEGER.isSigned
    converted = leaf.element.converted_type
    return converted is not None and str(getattr(converted, "name", "")).startswith("UINT")
