"""Assembles records: turns levels and values of leaves into Arrow arrays of any nesting.

A *slot* is one place of an array: a row at the top, an element inside a list. At depth ``r`` (the
number of lists around the array) the entries of a leaf, without those of outer lists that are null
or empty, are

    slots           repetition level <= r
    elements        definition level >= that of the list's repeated node
    list sizes      elements with repetition level <= r + 1, from one slot to the next
    validity        definition level >= that of the node, at the slots

and going down into a list keeps only the elements. So every array takes a few passes over the
levels of a leaf, without a loop over rows. All leaves of a group must agree; FormatError otherwise.
Source: Dremel (Melnik et al., 2010), "record assembly", for columns instead of records.

Each leaf is assembled alone first, with one layer per node above it: a struct of one field for a
group, a list for a repeated node. Arrow decodes a leaf alone in the same way
(``reading/splice_pages.py``). All leaves below a node have the same layers down to it. So ``join``
takes the validity of a struct and the offsets of a list from its first leaf; lists of other lengths
in another leaf mean that the file is damaged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._arrays import arrow, numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.enums import FieldRepetitionType

from .arrow_types import Shape, ShapeKind, storage_type
from .arrow_values import TooLongError, leaf_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from skipstone.parquet.format.schema import Node
    from skipstone.parquet.pages.column_values import LeafColumn
    from skipstone.parquet.values import I64, U8


_LONGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Levels of a leaf below some list; ``None`` means that all are trivial (``LeafColumn``)."""

    leaf: LeafColumn
    length: int
    definition: U8 | None
    repetition: U8 | None

    def slots(self, depth: int) -> I64 | None:
        """Places of the slots at this depth; ``None`` if every entry is a slot."""
        if self.repetition is None or depth >= self.leaf.leaf.max_repetition_level:
            return None
        places = np.flatnonzero(self.repetition <= depth)
        if self.length and (not len(places) or places[0]):
            raise _unlike(self.leaf, "its levels do not begin with a row")
        return places

    def valid(self, level: int, depth: int) -> npt.NDArray[np.bool_] | None:
        """For each slot, whether it is defined to this level; ``None`` if all are."""
        if self.definition is None:
            return None
        places = self.slots(depth)
        definition = self.definition if places is None else self.definition[places]
        made: npt.NDArray[np.bool_] = definition >= level
        return None if made.all() else made

    def count(self, depth: int) -> int:
        """The number of slots."""
        places = self.slots(depth)
        return self.length if places is None else len(places)

    def offsets(self, depth: int, element_level: int) -> tuple[I64, _Entries]:
        """Where the list of each slot begins (and ends) among the elements, and the elements."""
        places = self.slots(depth)
        if places is None:
            places = np.arange(self.length)
        elements = None if self.definition is None else self.definition >= element_level
        inner = self._kept(elements)
        made = np.empty(len(places) + 1, np.int64)
        made[-1] = inner.count(depth + 1)
        first = elements
        if self.repetition is not None and depth + 1 < self.leaf.leaf.max_repetition_level:
            begins = self.repetition <= depth + 1
            first = begins if elements is None else begins & elements
        if first is None:
            made[:-1] = places
        else:
            before = np.cumsum(first)
            made[:-1] = before[places] - first[places]
        if len(places) and made[0]:
            raise _unlike(self.leaf, "elements before the first list")
        return made, inner

    def _kept(self, elements: npt.NDArray[np.bool_] | None) -> _Entries:
        if elements is None or elements.all():
            return self
        definition = None if self.definition is None else self.definition[elements]
        repetition = None if self.repetition is None else self.repetition[elements]
        return _Entries(self.leaf, int(np.count_nonzero(elements)), definition, repetition)


def _unlike(column: LeafColumn, message: str) -> FormatError:
    return FormatError(f"levels of column {column.leaf.name}: {message}")


def assemble(shape: Shape, columns: Mapping[int, LeafColumn]) -> pa.Array:
    """The Arrow array of a field of the root, one slot per row.

    ``columns`` holds the shape's leaves by ordinal, all with the same rows. FormatError where
    levels disagree or values do not fit the type; TooLongError where the array needs 64-bit offsets
    (take fewer rows).
    """
    if not shape.leaves:
        raise UnsupportedError(f"{shape.node.name} has no columns")
    parts: dict[int, pa.Array] = {}
    for leaf in _leaves(shape):
        column = columns[leaf.leaves[0]]
        entries = _Entries(
            column, column.num_entries, column.definition_levels, column.repetition_levels
        )
        nodes = (*column.leaf.ancestors[1:], leaf.node)
        parts[leaf.leaves[0]] = _layers(nodes, leaf.type, entries, 0)
    return join(shape, parts, strict=True)


def _leaves(shape: Shape) -> Iterator[Shape]:
    if shape.kind is ShapeKind.LEAF:
        yield shape
    for child in shape.children:
        yield from _leaves(child)


def _layers(nodes: Sequence[Node], type: pa.DataType, entries: _Entries, depth: int) -> pa.Array:
    """A leaf with its layers, as Arrow decodes it alone, but with 64-bit offsets."""
    node, *below = nodes
    offsets: I64 | None = None
    if node.repetition is FieldRepetitionType.REPEATED:
        offsets, entries = entries.offsets(depth, node.max_definition_level)
        depth += 1
    valid = entries.valid(node.max_definition_level, depth)
    if below:
        inner = _layers(below, type, entries, depth)
        kind = pa.struct([pa.field("v", inner.type)])
        nulls = _bits(valid if node.repetition is FieldRepetitionType.OPTIONAL else None)
        array = pa.Array.from_buffers(kind, len(inner), [nulls], children=[inner])
    else:
        array, length = leaf_array(entries.leaf, valid, type), entries.count(depth)
        if len(array) != length:
            raise _unlike(entries.leaf, f"{len(array)} values for {length} places")
    if offsets is None:
        return array
    kind = pa.large_list(pa.field("v", array.type, nullable=False))
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[array])


def _bits(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def assemble_rows(shape: Shape, columns: Mapping[int, LeafColumn], num_rows: int) -> list[pa.Array]:
    """A field of the root as one array, or as several where one array cannot hold it."""
    for column in columns.values():
        if column.num_rows != num_rows:
            raise FormatError(
                f"rows of column {column.leaf.name}", expected=num_rows, got=column.num_rows
            )
    try:
        return [assemble(shape, columns)]
    except TooLongError:
        if num_rows < 2:
            raise
    half = num_rows // 2
    made: list[pa.Array] = []
    for start, stop in ((0, half), (half, num_rows)):
        part = {ordinal: column.rows(start, stop) for ordinal, column in columns.items()}
        made += assemble_rows(shape, part, stop - start)
    return made


# -- leaves that Arrow decoded ---------------------------------------------------------------------


def join(shape: Shape, parts: Mapping[int, pa.Array], *, strict: bool = False) -> pa.Array:
    """The array of ``shape`` from its leaves' arrays. They must have equally many rows, and with
    ``strict`` the same nulls in the nodes above them."""
    if len({len(part) for part in parts.values()}) > 1:
        raise _different_lists(shape)
    if strict and len(parts) > 1 and shape.nullable:
        first, *others = (part.is_null() for part in parts.values())
        if any(not first.equals(other) for other in others):
            raise FormatError(f"the leaves of {'.'.join(shape.node.path)} have other nulls")
    if shape.kind is ShapeKind.LEAF:
        (part,) = parts.values()
        return part if part.type == shape.type else _as(part, shape.type)
    type, storage = shape.type, storage_type(shape.type)
    if shape.kind is ShapeKind.STRUCT:
        made = _join_struct(shape, storage, parts, strict=strict)
    else:
        made = _join_list(shape, storage, parts, strict=strict)
    if storage is not type:
        return pa.ExtensionArray.from_storage(type, made)
    return made


def _as(part: pa.Array, type: pa.DataType) -> pa.Array:
    if isinstance(type, pa.BaseExtensionType) and part.type == type.storage_type:
        return pa.ExtensionArray.from_storage(type, part)
    if isinstance(part.type, pa.BaseExtensionType):
        part = part.storage
    return part.cast(type)


def _join_struct(
    shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array], *, strict: bool
) -> pa.Array:
    outer = parts[shape.leaves[0]]
    children = [
        join(child, {leaf: parts[leaf].field(0) for leaf in child.leaves}, strict=strict)
        for child in shape.children
    ]
    mask = outer.is_null() if outer.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type.fields), mask=mask)


def _join_list(
    shape: Shape, type: pa.DataType, parts: Mapping[int, pa.Array], *, strict: bool
) -> pa.Array:
    outer = parts[shape.leaves[0]]
    lists = parts if shape.bare else {leaf: part.field(0) for leaf, part in parts.items()}
    offsets, values = _offsets_and_values(lists[shape.leaves[0]])
    inner = {shape.leaves[0]: values}
    for leaf in shape.leaves[1:]:
        others, inner[leaf] = _offsets_and_values(lists[leaf])
        if not np.array_equal(offsets, others):
            raise _different_lists(shape)
    mask = outer.is_null() if outer.null_count else None
    if shape.kind is ShapeKind.MAP:
        key, item = (
            # Entries are structs of key and value.
            join(child, {leaf: inner[leaf].field(0) for leaf in child.leaves}, strict=strict)
            for child in shape.children
        )
        if key.null_count:
            raise FormatError(f"{'.'.join(shape.node.path)}: {key.null_count} keys are null")
        return pa.MapArray.from_arrays(_narrow(offsets, type), key, item, type=type, mask=mask)
    (element,) = shape.children
    # The repeated node is the element, or it holds nothing but the element.
    held = not shape.bare and element.node is not shape.node.children[0]
    items = join(
        element,
        {leaf: inner[leaf].field(0) if held else inner[leaf] for leaf in element.leaves},
        strict=strict,
    )
    return _list_array(type, offsets, items, mask)


def _narrow(offsets: I64, type: pa.DataType) -> pa.Array:
    """Offsets of 32 bits."""
    if len(offsets) and offsets[-1] > _LONGEST:
        raise TooLongError(f"{offsets[-1]} elements in an Arrow array of {type}")
    return arrow(offsets.astype(np.int32))


def _list_array(
    type: pa.DataType, offsets: I64, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    if pa.types.is_list_view(type) or pa.types.is_large_list_view(type):
        wide = pa.types.is_large_list_view(type)
        kind, number = (pa.LargeListViewArray, np.int64) if wide else (pa.ListViewArray, np.int32)
        starts, sizes = arrow(offsets[:-1].astype(number)), arrow(np.diff(offsets).astype(number))
        return kind.from_arrays(starts, sizes, items, type=type, mask=mask)
    if pa.types.is_large_list(type):
        # Not by a cast: that makes lists of the type null longer than their elements.
        return pa.LargeListArray.from_arrays(arrow(offsets), items, type=type, mask=mask)
    made = pa.ListArray.from_arrays(
        _narrow(offsets, type), items, type=pa.list_(type.value_field), mask=mask
    )
    if made.type == type:
        return made
    try:
        return made.cast(type)
    except pa.ArrowNotImplementedError:
        return _fixed_list(type, offsets, items, mask)
    except pa.ArrowException as error:
        raise FormatError(f"lists as {type}: {error}") from error


def _fixed_list(
    type: pa.FixedSizeListType, offsets: I64, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    """Instead of a cast that Arrow lacks: null lists need elements, and views have no ``take``."""
    null = np.zeros(len(offsets) - 1, np.bool_) if mask is None else numbers(mask)
    if np.any(np.diff(offsets)[~null] != type.list_size) or np.any(np.diff(offsets)[null]):
        raise FormatError(f"a list that does not have {type.list_size} elements")
    edges = [0, *(np.flatnonzero(np.diff(null)) + 1).tolist(), len(null)]
    parts = [
        pa.nulls((stop - start) * type.list_size, items.type)
        if null[start]
        else items.slice(int(offsets[start]), int(offsets[stop] - offsets[start]))
        for start, stop in pairwise(edges if len(null) else [])
    ]
    held = pa.concat_arrays(parts) if parts else items
    return pa.FixedSizeListArray.from_arrays(held, type=type, mask=mask)


def _offsets_and_values(array: pa.Array) -> tuple[I64, pa.Array]:
    """Offsets that start at 0, and the values that they count."""
    offsets = numbers(array.offsets).astype(np.int64)
    first = int(offsets[0]) if len(offsets) else 0
    last = int(offsets[-1]) if len(offsets) else 0
    return offsets - first, array.values.slice(first, last - first)


def _different_lists(shape: Shape) -> FormatError:
    return FormatError(f"the leaves of {'.'.join(shape.node.path)} have lists of other lengths")
