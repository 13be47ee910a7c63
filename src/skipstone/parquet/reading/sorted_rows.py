"""Whether the rows of a row group are in the order that sorting columns claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.predicate.literals import Keys, order_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from skipstone.parquet.format.metadata import SortingColumn
    from skipstone.parquet.format.schema import Leaf

    from .file_reader import FileReader

__all__ = ["are_sorted", "is_sorted"]


def is_sorted(file: FileReader, row_group: int, claimed: Sequence[SortingColumn]) -> bool | None:
    """Whether the rows of a row group have this order; ``None`` where a type has no order."""
    if not file.footer.group("num_rows")[row_group]:
        return True
    leaves = file.footer.schema.leaves

    def values(each: SortingColumn) -> tuple[Any, pa.DataType | None]:
        leaf = leaves[each.column_idx]
        type_ = file.indexed.stored(each.column_idx).type
        if type_ is None:
            return None, None
        return file.read_row_group(row_group, [leaf.name]).column(0), type_

    return are_sorted((each, leaves[each.column_idx], *values(each)) for each in claimed)


def are_sorted(
    keys: Iterable[tuple[SortingColumn, Leaf, Any, pa.DataType | None]],
) -> bool | None:
    """The same over values in memory: each key with its leaf, the values of the leaf's field of the
    root, and the leaf's canonical type (``None``: without order)."""
    undecided: Any = None
    for each, leaf, column, type_ in keys:
        if type_ is None:
            return None
        values: Any = column.combine_chunks()
        for part in leaf.path[1:]:
            values = values.field(part) if values.null_count == 0 else _child(values, part)
        order = _steps(order_keys(values, type_), each)
        if undecided is None:
            undecided = np.ones(len(order), np.bool_)
        if np.any(undecided & (order > 0)):
            return False
        undecided &= order == 0
    return True


def _child(values: Any, name: str) -> Any:
    """A field of a struct array, null where the struct is null."""
    import pyarrow.compute as pc

    return pc.struct_field(values, name)


def _steps(keys: Keys, claim: SortingColumn) -> Any:
    """For each row but the first: -1, 0, 1 where the previous row sorts before, with, after it."""
    if isinstance(keys.data, np.ndarray):
        before, after = keys.data[:-1], keys.data[1:]
        steps = (before > after).astype(np.int8) - (before < after).astype(np.int8)
    else:
        import pyarrow.compute as pc

        before, after = keys.data[:-1], keys.data[1:]
        more = pc.greater(before, after).fill_null(False).to_numpy(zero_copy_only=False)
        less = pc.less(before, after).fill_null(False).to_numpy(zero_copy_only=False)
        steps = more.astype(np.int8) - less.astype(np.int8)
    if claim.descending:
        steps = -steps
    here, there = keys.valid[:-1], keys.valid[1:]
    steps[~here & ~there] = 0
    nulls_late = -1 if claim.nulls_first else 1
    steps[~here & there] = nulls_late
    steps[here & ~there] = -nulls_late
    return steps
