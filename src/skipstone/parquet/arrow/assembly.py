"""Assembles records: turns levels and values of leaves into Arrow arrays of any nesting.

A *slot* is one place of an array: a row at the top, an element inside a list. At depth ``r`` (the
number of lists around the array) the entries of a leaf, without those of outer lists that are null
or empty, are

    slots           repetition level <= r
    elements        definition level >= the list's ``element_level``
    list sizes      elements with repetition level <= r + 1, from one slot to the next
    validity        definition level >= that of the node, at the slots

and going down into a list keeps only the elements. So every array takes a few passes over the
levels of a leaf, without a loop over rows. All leaves of a group must agree; FormatError otherwise.
Source: Dremel (Melnik et al., 2010), "record assembly", for columns instead of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.format.schema import (
    LeafShape,
    ListShape,
    MapShape,
    Shape,
    StructShape,
    field_shape,
)

from .arrow_types import storage_type
from .arrow_values import TooLongError, leaf_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from skipstone.parquet.encodings.kernels import I64, U8
    from skipstone.parquet.format.schema import Node
    from skipstone.parquet.pages.column_values import LeafColumn


_LONGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Levels of a leaf below some list, as in ``LeafColumn``: ``None`` is all trivial."""

    leaf: LeafColumn
    length: int
    definition: U8 | None
    repetition: U8 | None

    def slots(self, depth: int) -> I64 | None:
        """Places of the slots at this depth; ``None``: every entry is one."""
        if self.repetition is None or depth >= self.leaf.leaf.max_repetition_level:
            return None
        places = np.flatnonzero(self.repetition <= depth)
        if self.length and (not len(places) or places[0]):
            raise _unlike(self.leaf, "its levels do not begin with a row")
        return places

    def valid(self, level: int, depth: int) -> npt.NDArray[np.bool_] | None:
        """Per slot: whether it is defined to this level; ``None``: all are."""
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
        """Where each slot's list begins among the elements (and ends), and the elements."""
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


def assemble(
    node: Node, columns: Mapping[int, LeafColumn], type_: pa.DataType | None = None
) -> pa.Array:
    """The Arrow array of a field of the root, one slot per row.

    ``columns`` holds leaves by ordinal, all with the same rows; other leaves of the field are left
    out of their structs. ``type_`` is the wanted type, pruned like the leaves; by default the
    natural type. FormatError where levels disagree or values do not fit the type; TooLongError
    where the array needs 64-bit offsets (take fewer rows).
    """
    shape = field_shape(node, columns.keys())
    entries = {
        ordinal: _Entries(
            columns[ordinal],
            columns[ordinal].num_entries,
            columns[ordinal].definition_levels,
            columns[ordinal].repetition_levels,
        )
        for ordinal in range(node.first_leaf, node.stop_leaf)
        if ordinal in columns
    }
    array, length = _assemble(shape, entries, 0, type_)
    if len(array) != length:
        raise FormatError(f"rows of {node.name}", expected=length, got=len(array))
    return array


_Made = tuple[pa.Array, int]


def _assemble(
    shape: Shape, entries: Mapping[int, _Entries], depth: int, type_: pa.DataType | None
) -> _Made:
    if isinstance(type_, pa.BaseExtensionType) and not isinstance(shape, LeafShape):
        array, length = _assemble(shape, entries, depth, storage_type(type_))
        return pa.ExtensionArray.from_storage(type_, array), length
    match shape:
        case LeafShape():
            mine = entries[shape.ordinal]
            array = leaf_array(mine.leaf, mine.valid(shape.definition_level, depth), type_)
            return _checked(array, mine, depth)
        case StructShape():
            return _struct(shape, entries, depth, type_)
        case ListShape() | MapShape():
            return _list(shape, entries, depth, type_)


def _checked(array: pa.Array, mine: _Entries, depth: int) -> _Made:
    length = mine.count(depth)
    if len(array) != length:
        raise _unlike(mine.leaf, f"{len(array)} values for {length} places")
    return array, length


def _struct(
    shape: StructShape, entries: Mapping[int, _Entries], depth: int, type_: pa.DataType | None
) -> _Made:
    children: list[pa.Array] = []
    fields: list[pa.Field] = []
    leader = entries[_first(shape)]
    length = leader.count(depth)
    valid = leader.valid(shape.definition_level, depth) if shape.nullable else None
    for ordinal in _ordinals(shape)[1:]:
        other = entries[ordinal].valid(shape.definition_level, depth) if shape.nullable else None
        if entries[ordinal].count(depth) != length or not _same(valid, other):
            raise _unlike(entries[ordinal].leaf, f"unlike those of {leader.leaf.leaf.name}")
    wanted = _fields_of(shape, type_)
    for child, field in zip(shape.children, wanted, strict=True):
        array, _ = _assemble(child, entries, depth, None if field is None else field.type)
        children.append(array)
        fields.append(pa.field(child.name, array.type, child.nullable) if field is None else field)
    made = pa.struct(fields)
    array = pa.Array.from_buffers(made, length, [_bits(valid)], children=children)
    return array, length


def _fields_of(shape: StructShape, type_: pa.DataType | None) -> list[pa.Field | None]:
    if type_ is None:
        return [None] * len(shape.children)
    fields = [type_.field(i) for i in range(type_.num_fields)] if pa.types.is_struct(type_) else []
    if [field.name for field in fields] != [child.name for child in shape.children]:
        raise UnsupportedError(f"{shape.name} as {type_}")
    return fields


def _list(
    shape: ListShape | MapShape,
    entries: Mapping[int, _Entries],
    depth: int,
    type_: pa.DataType | None,
) -> _Made:
    leader = entries[_first(shape)]
    valid = leader.valid(shape.definition_level, depth) if shape.nullable else None
    offsets, inner = leader.offsets(depth, shape.element_level)
    below = {_first(shape): inner}
    for ordinal in _ordinals(shape)[1:]:
        other = entries[ordinal].valid(shape.definition_level, depth) if shape.nullable else None
        theirs, below[ordinal] = entries[ordinal].offsets(depth, shape.element_level)
        if not np.array_equal(offsets, theirs) or not _same(valid, other):
            raise _unlike(entries[ordinal].leaf, f"unlike those of {leader.leaf.leaf.name}")
    length = len(offsets) - 1
    if isinstance(shape, MapShape):
        return _map_array(shape, below, depth, type_, offsets, valid), length
    field = type_.value_field if type_ is not None and _is_list(type_) else None
    if type_ is not None and field is None:
        raise UnsupportedError(f"{shape.name} as {type_}")
    element, _ = _assemble(shape.element, below, depth + 1, None if field is None else field.type)
    if field is None:
        field = pa.field(shape.element.name, element.type, shape.element.nullable)
    is_large = type_ is not None and pa.types.is_large_list(type_)
    made = pa.large_list(field) if is_large else pa.list_(field)
    array = _from_offsets(made, offsets, valid, element, 64 if is_large else 32)
    if type_ is None or made == type_:
        return array, length
    try:
        return array.cast(type_), length
    except pa.ArrowException as error:
        raise FormatError(f"{shape.name} as {type_}: {error}") from error


def _map_array(
    shape: MapShape,
    below: Mapping[int, _Entries],
    depth: int,
    type_: pa.DataType | None,
    offsets: I64,
    valid: npt.NDArray[np.bool_] | None,
) -> pa.Array:
    if type_ is not None and not pa.types.is_map(type_):
        raise UnsupportedError(f"{shape.name} as {type_}")
    key, _ = _assemble(shape.key, below, depth + 1, None if type_ is None else type_.key_type)
    value, _ = _assemble(shape.value, below, depth + 1, None if type_ is None else type_.item_type)
    if key.null_count:
        raise FormatError(f"{shape.name}: {key.null_count} keys are null")
    made = type_
    if made is None:
        made = pa.map_(
            pa.field(shape.key.name, key.type, False),
            pa.field(shape.value.name, value.type, shape.value.nullable),
        )
    entries = pa.Array.from_buffers(
        pa.struct([made.key_field, made.item_field]), len(key), [None], children=[key, value]
    )
    return _from_offsets(made, offsets, valid, entries, 32)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _from_offsets(
    type_: pa.DataType,
    offsets: I64,
    valid: npt.NDArray[np.bool_] | None,
    child: pa.Array,
    bits: int,
) -> pa.Array:
    if bits == 32:
        if offsets[-1] > _LONGEST:
            raise TooLongError(f"{offsets[-1]} elements in an Arrow array of {type_}")
        buffer = pa.py_buffer(offsets.astype(np.int32))
    else:
        buffer = pa.py_buffer(offsets)
    return pa.Array.from_buffers(type_, len(offsets) - 1, [_bits(valid), buffer], children=[child])


def _bits(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _same(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def _ordinals(shape: Shape) -> list[int]:
    match shape:
        case LeafShape():
            return [shape.ordinal]
        case StructShape():
            return [each for child in shape.children for each in _ordinals(child)]
        case ListShape():
            return _ordinals(shape.element)
        case MapShape():
            return [*_ordinals(shape.key), *_ordinals(shape.value)]


def _first(shape: Shape) -> int:
    ordinals = _ordinals(shape)
    if not ordinals:
        raise UnsupportedError(f"{shape.name} has no columns")
    return ordinals[0]


def assemble_rows(
    node: Node, columns: Mapping[int, LeafColumn], type_: pa.DataType | None, num_rows: int
) -> list[pa.Array]:
    """A field of the root as one array, or as several where one array cannot hold it."""
    for column in columns.values():
        if column.num_rows != num_rows:
            raise FormatError(
                f"rows of column {column.leaf.name}", expected=num_rows, got=column.num_rows
            )
    try:
        return [assemble(node, columns, type_)]
    except TooLongError:
        if num_rows < 2:
            raise
    half = num_rows // 2
    made: list[pa.Array] = []
    for start, stop in ((0, half), (half, num_rows)):
        part = {ordinal: column.rows(start, stop) for ordinal, column in columns.items()}
        made += assemble_rows(node, part, type_, stop - start)
    return made
