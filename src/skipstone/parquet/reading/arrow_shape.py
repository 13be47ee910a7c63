"""The shape of a field: how its Arrow type maps to Parquet nodes, and how leaves join into arrays.

Arrow decides what a group means (``LIST`` in its two- and three-level forms, ``MAP``, a repeated
field without annotation). Its type is taken as it is, and each part is matched with its node, for
the wanted leaves only. A repeated group with one child may be the element or only contain it: the
one that fits the type is meant. A map without its keys, or without its values, becomes a list of
structs.

A leaf decoded alone (``splice_pages.py``) has one layer per node above it: a struct of one field
for a group, a list for a repeated node. All leaves below a node have the same layers down to it. So
``join`` takes the validity of a struct and the offsets of a list from its first leaf; lists of
other lengths in another leaf mean that the file is damaged.

``check_entries`` proves that lists fill their pages. A page header counts the entries of a page,
nulls and empty lists included, and an offset index says which rows they are. A row has at least one
entry, so the first rows of a run of pages have as many entries as the pages only if they are the
rows of these pages. With a wrong ``first_row_index`` a row would get the values of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import FieldRepetitionType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from skipstone.parquet.format.schema import Node


class Kind(Enum):
    """Kinds of parts of a type."""

    LEAF = "leaf"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One part of a type over ``node``.

    ``leaves`` are the wanted leaves below it. The children of a LIST are its element, of a MAP its
    key and its value. ``bare``: the list is the repeated node itself, with no group around it, and
    so never null.
    """

    kind: Kind
    node: Node
    type: pa.DataType
    leaves: tuple[int, ...]
    children: tuple[Shape, ...] = ()
    bare: bool = False


def shape_of(node: Node, type: pa.DataType, wanted: Collection[int]) -> Shape:
    """The shape of a field of the root, whose Arrow type is ``type``."""
    return _of_field(node, type, frozenset(wanted))


def _of_field(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.repetition is not FieldRepetitionType.REPEATED:
        return _of_value(node, type, wanted)
    if not _is_list(type):
        raise _no_fit(node, type)
    element = _of_value(node, type.value_type, wanted)
    return Shape(
        kind=Kind.LIST,
        node=node,
        type=_list_of(type, element),
        leaves=element.leaves,
        children=(element,),
        bare=True,
    )


def _of_value(node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    if node.is_leaf:
        return Shape(kind=Kind.LEAF, node=node, type=type, leaves=(node.first_leaf,))
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    mine = tuple(leaf for leaf in range(node.first_leaf, node.stop_leaf) if leaf in wanted)
    whole = len(mine) == node.stop_leaf - node.first_leaf
    if pa.types.is_map(storage):
        found = _map(node, storage, mine, wanted)
    elif _is_list(storage):
        found = _list(node, storage, mine, wanted)
    elif pa.types.is_struct(storage) and storage.num_fields == len(node.children):
        found = _struct(node, storage, mine, wanted)
    else:
        raise _no_fit(node, type)
    if storage is not type and whole:
        return Shape(kind=found.kind, node=node, type=type, leaves=mine, children=found.children)
    return found


def _struct(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    fields, children = [], []
    for at, child in enumerate(node.children):
        if not wanted.isdisjoint(range(child.first_leaf, child.stop_leaf)):
            field = type.field(at)
            shape = _of_field(child, field.type, wanted)
            fields.append(field.with_type(shape.type))
            children.append(shape)
    return Shape(
        kind=Kind.STRUCT,
        node=node,
        type=pa.struct(fields),
        leaves=mine,
        children=tuple(children),
    )


def _list(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    repeated = _repeated(node, type)
    element = _element_of(repeated, node, type, wanted)
    return Shape(
        kind=Kind.LIST,
        node=node,
        type=_list_of(type, element),
        leaves=mine,
        children=(element,),
    )


def _element_of(repeated: Node, node: Node, type: pa.DataType, wanted: frozenset[int]) -> Shape:
    """The element of a list: the repeated node itself, or its only child."""
    value = type.value_type
    if repeated.is_leaf or len(repeated.children) != 1:
        return _of_value(repeated, value, wanted)
    child = repeated.children[0]
    itself, held = _fits(repeated, value), _fits_field(child, value)
    if itself and held:
        itself = repeated.name in ("array", f"{node.name}_tuple")
    return _of_value(repeated, value, wanted) if itself else _of_field(child, value, wanted)


def _map(node: Node, type: pa.DataType, mine: tuple[int, ...], wanted: frozenset[int]) -> Shape:
    entries = _repeated(node, type)
    if len(entries.children) != 2:
        raise _no_fit(node, type)
    types = type.key_type, type.item_type
    kept = [
        (child, _of_field(child, each, wanted), field)
        for child, each, field in zip(
            entries.children, types, (type.key_field, type.item_field), strict=True
        )
        if not wanted.isdisjoint(range(child.first_leaf, child.stop_leaf))
    ]
    if len(kept) == 2:
        (_, key, key_field), (_, item, item_field) = kept
        made = pa.map_(
            key_field.with_type(key.type), item_field.with_type(item.type), type.keys_sorted
        )
        return Shape(kind=Kind.MAP, node=node, type=made, leaves=mine, children=(key, item))
    entry = Shape(
        kind=Kind.STRUCT,
        node=entries,
        type=pa.struct([field.with_type(shape.type) for _, shape, field in kept]),
        leaves=mine,
        children=tuple(shape for _, shape, _ in kept),
    )
    made = pa.list_(pa.field(entries.name, entry.type, nullable=False))
    return Shape(kind=Kind.LIST, node=node, type=made, leaves=mine, children=(entry,))


def _repeated(node: Node, type: pa.DataType) -> Node:
    if len(node.children) != 1 or (node.children[0].repetition is not FieldRepetitionType.REPEATED):
        raise _no_fit(node, type)
    return node.children[0]


def _list_of(type: pa.DataType, element: Shape) -> pa.DataType:
    """``type`` with another element type."""
    if element.type == type.value_type:
        return type
    field = type.value_field.with_type(element.type)
    if pa.types.is_large_list(type):
        return pa.large_list(field)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(field, type.list_size)
    if pa.types.is_list_view(type):
        return pa.list_view(field)
    if pa.types.is_large_list_view(type):
        return pa.large_list_view(field)
    return pa.list_(field)


def _is_list(type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_list(type)
        or t.is_large_list(type)
        or t.is_fixed_size_list(type)
        or t.is_list_view(type)
        or t.is_large_list_view(type)
    )


def _fits_field(node: Node, type: pa.DataType) -> bool:
    if node.repetition is FieldRepetitionType.REPEATED:
        return _is_list(type) and _fits(node, type.value_type)
    return _fits(node, type)


def _fits(node: Node, type: pa.DataType) -> bool:
    """Whether a value of ``node``, without its own repetition, may have this type."""
    if node.is_leaf:
        return not pa.types.is_nested(type)
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if node.is_list or node.is_map:
        return bool(_is_list(type) or pa.types.is_map(type))
    return bool(
        pa.types.is_struct(type)
        and [child.name for child in node.children] == [field.name for field in type.fields]
        and all(
            _fits_field(child, field.type)
            for child, field in zip(node.children, type.fields, strict=True)
        )
    )


def _no_fit(node: Node, type: pa.DataType) -> UnsupportedError:
    return UnsupportedError(f"column {'.'.join(node.path)} as {type}")


def join(shape: Shape, parts: Mapping[int, pa.Array]) -> pa.Array:
    """The array of ``shape`` from its leaves' arrays, which must have equally many rows."""
    if len({len(part) for part in parts.values()}) > 1:
        raise _different_lists(shape)
    if shape.kind is Kind.LEAF:
        (part,) = parts.values()
        return part if part.type == shape.type else _as(part, shape.type)
    type = shape.type
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if shape.kind is Kind.STRUCT:
        made = _join_struct(shape, storage, parts)
    else:
        made = _join_list(shape, storage, parts)
    if storage is not type:
        return pa.ExtensionArray.from_storage(type, made)
    return made


def _as(part: pa.Array, type: pa.DataType) -> pa.Array:
    if isinstance(type, pa.BaseExtensionType) and part.type == type.storage_type:
        return pa.ExtensionArray.from_storage(type, part)
    if isinstance(part.type, pa.BaseExtensionType):
        part = part.storage
    return part.cast(type)


def _join_struct(shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array]) -> pa.Array:
    outer = parts[shape.leaves[0]]
    children = [
        join(child, {leaf: parts[leaf].field(0) for leaf in child.leaves})
        for child in shape.children
    ]
    mask = outer.is_null() if outer.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type.fields), mask=mask)


def _join_list(shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array]) -> pa.Array:
    outer = parts[shape.leaves[0]]
    lists = parts if shape.bare else {leaf: part.field(0) for leaf, part in parts.items()}
    offsets, values = _offsets_and_values(lists[shape.leaves[0]])
    inner = {shape.leaves[0]: values}
    for leaf in shape.leaves[1:]:
        others, inner[leaf] = _offsets_and_values(lists[leaf])
        if not np.array_equal(offsets, others):
            raise _different_lists(shape)
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
    return _list_array(type, offsets, items, mask)


def _list_array(
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
        # A cast makes lists of the type null longer than their elements.
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
    """Arrow's cast cannot do this: null lists get elements, and it has no ``take`` for views."""
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


def _offsets_and_values(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Offsets that start at 0, and the values that they count."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0]) if len(offsets) else 0
    last = int(offsets[-1]) if len(offsets) else 0
    return offsets - first, array.values.slice(first, last - first)


def _different_lists(shape: Shape) -> FormatError:
    return FormatError(f"the leaves of {'.'.join(shape.node.path)} have lists of other lengths")


IntArray: TypeAlias = "NDArray[np.int64]"


def check_entries(column: pa.ChunkedArray, rows: IntArray, entries: IntArray, name: str) -> None:
    """``FormatError`` unless the first ``rows[0]`` rows have ``entries[0]`` entries, the next
    ``rows[1]`` rows ``entries[1]``, …. ``column`` is one leaf of lists, decoded alone."""
    counts = [entries_per_row(chunk) for chunk in column.chunks]
    before = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))]
    )
    found = np.diff(before[np.concatenate([[0], np.cumsum(rows)])], prepend=0)[1:]
    wrong = np.flatnonzero(found != entries)
    if len(wrong):
        at = int(wrong[0])
        raise FormatError(
            f"pages of {name} hold other rows than their index says",
            expected=f"{int(entries[at])} entries in {int(rows[at])} rows",
            got=int(found[at]),
        )


def entries_per_row(array: pa.Array) -> IntArray:
    """Entries per row, of structs of one field, lists of one element, and leaves."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        return entries_per_row(array.field(0))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return np.ones(len(array), np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    inner = array.values.slice(first, last - first)
    if pa.types.is_nested(inner.type):
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(entries_per_row(inner))])
        offsets = before[offsets - first]
    return np.asarray(np.maximum(np.diff(offsets), 1))
