"""Leaves of one field back into one Arrow array.

A leaf decoded by itself (``splice.py``) has one layer per node above it: a struct of one field for
a group, a list for a repeated node. All leaves below a node have the same layers down to it: the
validity of a struct and the offsets of a list come from the first of them, and lists of another
length in another leaf mean that the file is damaged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError

from .arrow_shape import Kind, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["join"]


def join(shape: Shape, parts: Mapping[int, pa.Array]) -> pa.Array:
    """The array of ``shape`` from its leaves' arrays, all of equally many rows."""
    if len({len(part) for part in parts.values()}) > 1:
        raise _apart(shape)
    if shape.kind is Kind.LEAF:
        (part,) = parts.values()
        return part if part.type == shape.type else _as(part, shape.type)
    type = shape.type
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if shape.kind is Kind.STRUCT:
        made = _struct(shape, storage, parts)
    else:
        made = _list(shape, storage, parts)
    if storage is not type:
        return pa.ExtensionArray.from_storage(type, made)
    return made


def _as(part: pa.Array, type: pa.DataType) -> pa.Array:
    if isinstance(type, pa.BaseExtensionType) and part.type == type.storage_type:
        return pa.ExtensionArray.from_storage(type, part)
    if isinstance(part.type, pa.BaseExtensionType):
        part = part.storage
    return part.cast(type)


def _struct(shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array]) -> pa.Array:
    outer = parts[shape.leaves[0]]
    children = [
        join(child, {leaf: parts[leaf].field(0) for leaf in child.leaves})
        for child in shape.children
    ]
    mask = outer.is_null() if outer.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type.fields), mask=mask)


def _list(shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array]) -> pa.Array:
    outer = parts[shape.leaves[0]]
    lists = parts if shape.bare else {leaf: part.field(0) for leaf, part in parts.items()}
    offsets, values = _opened(lists[shape.leaves[0]])
    inner = {shape.leaves[0]: values}
    for leaf in shape.leaves[1:]:
        others, inner[leaf] = _opened(lists[leaf])
        if not np.array_equal(offsets, others):
            raise _apart(shape)
    mask = outer.is_null() if outer.null_count else None
    if shape.kind is Kind.MAP:
        key, item = (
            # Entries are structs of key and value.
            join(child, {leaf: inner[leaf].field(0) for leaf in child.leaves})
            for child in shape.children
        )
        if key.null_count:
            raise FormatError(f"a null key in the map {'.'.join(shape.node.path)}")
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), key, item, type=type, mask=mask
        )
    (element,) = shape.children
    # The repeated node is the element, or it holds nothing but the element.
    held = not shape.bare and element.node is not shape.node.children[0]
    items = join(
        element, {leaf: inner[leaf].field(0) if held else inner[leaf] for leaf in element.leaves}
    )
    return _list_of(type, offsets, items, mask)


def _list_of(
    type: pa.DataType, offsets: NDArray[np.int64], items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    if pa.types.is_list_view(type) or pa.types.is_large_list_view(type):
        wide = pa.types.is_large_list_view(type)
        kind, number = (
            (pa.LargeListViewArray, pa.int64()) if wide else (pa.ListViewArray, pa.int32())
        )
        starts, sizes = pa.array(offsets[:-1], number), pa.array(np.diff(offsets), number)
        return kind.from_arrays(starts, sizes, items, type=type, mask=mask)
    if pa.types.is_large_list(type):
        # Not by a cast, after which lists of the type null are longer than their elements.
        return pa.LargeListArray.from_arrays(
            pa.array(offsets, pa.int64()), items, type=type, mask=mask
        )
    made = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), items, type=pa.list_(type.value_field), mask=mask
    )
    if made.type == type:
        return made
    try:
        return made.cast(type)
    except pa.ArrowNotImplementedError:
        return _fixed_list(type, offsets, items, mask)


def _fixed_list(
    type: pa.FixedSizeListType, offsets: NDArray[np.int64], items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """What Arrow's cast cannot do: lists that are null get elements, and it has no ``take`` for
    views (``taking.py``)."""
    null = np.zeros(len(offsets) - 1, np.bool_) if mask is None else mask.to_numpy(False)
    if np.any(np.diff(offsets)[~null] != type.list_size) or np.any(np.diff(offsets)[null]):
        raise FormatError(f"a list without {type.list_size} elements, which all have")
    edges = [0, *(np.flatnonzero(np.diff(null)) + 1).tolist(), len(null)]
    parts = [
        pa.nulls((stop - start) * type.list_size, items.type)
        if null[start]
        else items.slice(int(offsets[start]), int(offsets[stop] - offsets[start]))
        for start, stop in pairwise(edges if len(null) else [])
    ]
    held = pa.concat_arrays(parts) if parts else items
    return pa.FixedSizeListArray.from_arrays(held, type=type, mask=mask)


def _opened(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Offsets from 0 on, and the values that they count."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0]) if len(offsets) else 0
    last = int(offsets[-1]) if len(offsets) else 0
    return offsets - first, array.values.slice(first, last - first)


def _apart(shape: Shape) -> FormatError:
    return FormatError(f"the leaves of {'.'.join(shape.node.path)} have lists of other lengths")
