"""Values of one leaf with their levels: of a page, of a whole chunk, or of a run of its rows.

    entry               0     1     2     3     4
    repetition level    0     1     0     0     1      0 begins a row
    definition level    2     2     0     2     1      the highest: there is a value
    values              a     b           c

A ``LeafColumn`` holds only values that are there, so ``values`` are at most as many as entries.
Values that came dictionary-encoded stay indices into their dictionary until they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import FormatError
from skipstone.parquet.encodings.levels import U8, row_starts
from skipstone.parquet.encodings.values import ByteArrays, gather
from skipstone.parquet.format.enums import Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.encodings.values import I32, Values
    from skipstone.parquet.format.schema import Leaf

__all__ = ["LeafColumn", "Run", "concat", "join_values", "no_values"]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Values in a row: ``values`` themselves, or ``indices`` into them as a dictionary.

    Indices are below the dictionary's length: who makes a run has checked it.
    """

    values: Values
    indices: I32 | None = None

    def __len__(self) -> int:
        return len(self.values if self.indices is None else self.indices)

    def __getitem__(self, rows: slice) -> Run:
        """The values ``start:stop``, not copied."""
        if self.indices is None:
            return Run(self.values[rows])
        return Run(self.values, self.indices[rows])

    def plain(self) -> Values:
        """The values, looked up in the dictionary if there is one."""
        if self.indices is None:
            return self.values
        return gather(self.values, self.indices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeafColumn:
    """Entries of one leaf; see the module.

    ``definition_levels`` is ``None`` where every entry has the highest level, and
    ``repetition_levels`` where every entry begins a row. ``runs`` hold one value for each entry of
    the highest definition level.
    """

    leaf: Leaf
    num_entries: int
    definition_levels: U8 | None
    repetition_levels: U8 | None
    runs: tuple[Run, ...] = field(repr=False)

    @property
    def num_values(self) -> int:
        """Values that are there."""
        return sum(map(len, self.runs))

    @property
    def num_nulls(self) -> int:
        """Entries without a value: nulls, and empty or null lists above them."""
        return self.num_entries - self.num_values

    @property
    def num_rows(self) -> int:
        """Rows that begin here."""
        if self.repetition_levels is None:
            return self.num_entries
        return self.num_entries - int(np.count_nonzero(self.repetition_levels))

    def values(self) -> Values:
        """The values that are there, in order."""
        return join_values([run.plain() for run in self.runs], self.leaf)

    def rows(self, start: int, stop: int) -> LeafColumn:
        """The rows ``start`` to ``stop`` of those that begin here, clipped to what there is.

        Entries before the first row's beginning continue a row of the page before; row 0 is the
        first that begins here, and leaves them out.
        """
        start = max(start, 0)
        stop = max(min(stop, self.num_rows), start)
        if self.repetition_levels is None:
            return self.entries(start, stop)
        places = row_starts(self.repetition_levels)
        first = int(places[start]) if start < len(places) else self.num_entries
        last = int(places[stop]) if stop < len(places) else self.num_entries
        return self.entries(first, last)

    def entries(self, start: int, stop: int) -> LeafColumn:
        """The entries ``start`` to ``stop``; levels and values are shared."""
        if start == 0 and stop >= self.num_entries:
            return self
        start = min(start, self.num_entries)
        stop = max(start, min(stop, self.num_entries))
        definition, repetition = self.definition_levels, self.repetition_levels
        first, last = start, stop
        if definition is not None:
            highest = self.leaf.max_definition_level
            first = int(np.count_nonzero(definition[:start] == highest))
            last = first + int(np.count_nonzero(definition[start:stop] == highest))
        return LeafColumn(
            leaf=self.leaf,
            num_entries=stop - start,
            definition_levels=None if definition is None else definition[start:stop],
            repetition_levels=None if repetition is None else repetition[start:stop],
            runs=_cut(self.runs, first, last),
        )


def _cut(runs: Sequence[Run], start: int, stop: int) -> tuple[Run, ...]:
    kept: list[Run] = []
    at = 0
    for run in runs:
        low, high = max(start - at, 0), min(stop - at, len(run))
        if low < high:
            kept.append(run if high - low == len(run) else run[low:high])
        at += len(run)
    return tuple(kept)


def concat(leaf: Leaf, parts: Sequence[LeafColumn]) -> LeafColumn:
    """All entries of all parts, in order; runs of one dictionary are joined."""
    if len(parts) == 1:
        return parts[0]
    total = sum(part.num_entries for part in parts)
    return LeafColumn(
        leaf=leaf,
        num_entries=total,
        definition_levels=_levels(
            [(part.definition_levels, part.num_entries) for part in parts],
            leaf.max_definition_level,
        ),
        repetition_levels=_levels(
            [(part.repetition_levels, part.num_entries) for part in parts], 0
        ),
        runs=_joined([run for part in parts for run in part.runs if len(run)], leaf),
    )


def _levels(parts: Sequence[tuple[U8 | None, int]], absent: int) -> U8 | None:
    if all(levels is None for levels, _ in parts):
        return None
    made = np.empty(sum(count for _, count in parts), np.uint8)
    at = 0
    for levels, count in parts:
        made[at : at + count] = absent if levels is None else levels
        at += count
    return made


def _joined(runs: Sequence[Run], leaf: Leaf) -> tuple[Run, ...]:
    made: list[Run] = []
    at = 0
    while at < len(runs):
        first, stop = runs[at], at + 1
        while stop < len(runs) and _alike(first, runs[stop]):
            stop += 1
        if stop - at == 1:
            made.append(first)
        elif first.indices is None:
            made.append(Run(join_values([run.values for run in runs[at:stop]], leaf)))
        else:
            indices = [run.indices for run in runs[at:stop] if run.indices is not None]
            made.append(Run(first.values, np.concatenate(indices)))
        at = stop
    return tuple(made)


def _alike(a: Run, b: Run) -> bool:
    if a.indices is None or b.indices is None:
        return a.indices is b.indices
    return a.values is b.values


def join_values(parts: Sequence[Values], leaf: Leaf) -> Values:
    """The values of all parts of one leaf, in order."""
    if len(parts) == 1:
        return parts[0]
    texts = [part for part in parts if isinstance(part, ByteArrays)]
    if not parts:
        return no_values(leaf)
    if len(texts) == len(parts):
        return ByteArrays.concat(texts)
    arrays = [part for part in parts if not isinstance(part, ByteArrays)]
    if len(arrays) != len(parts) or len({(a.dtype, a.shape[1:]) for a in arrays}) > 1:
        raise FormatError(f"values of two types in column {leaf.name}")
    return np.concatenate(arrays)


def no_values(leaf: Leaf) -> Values:
    """No values of the leaf's physical type."""
    match leaf.type:
        case Type.BYTE_ARRAY:
            return ByteArrays(np.empty(0, np.uint8), np.zeros(1, np.int64))
        case Type.FIXED_LEN_BYTE_ARRAY:
            return np.empty((0, leaf.type_length), np.uint8)
        case Type.INT96:
            return np.empty((0, 12), np.uint8)
        case _:
            return np.empty(0, _NUMBERS[leaf.type])


_NUMBERS: Mapping[Type, type[np.generic]] = {
    Type.BOOLEAN: np.bool_,
    Type.INT32: np.int32,
    Type.INT64: np.int64,
    Type.FLOAT: np.float32,
    Type.DOUBLE: np.float64,
}
