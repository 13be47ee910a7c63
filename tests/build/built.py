"""Index one column over files given as arrays, and ask about it: what the tests of kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.build.column_indexes import BuildSettings, ColumnsBuilder
from skipstone.predicate.tree import Leaf, Op
from skipstone.pruning import Units
from skipstone.pruning.kind import Places, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning import Answer
    from skipstone.pruning.kind import Index


class Indexed:
    """``index`` built over ``files``, read back; file ``i`` is unit ``i``."""

    def __init__(
        self,
        index: Index,
        files: Sequence[pa.Array],
        type: pa.DataType | None = None,
        *,
        foreign: bool = False,
    ) -> None:
        """``foreign``: without counts, as in a store that Xskipper wrote."""
        self.files = list(files)
        self.type = type or self.files[0].type
        schema = pa.schema([pa.field(index.column, self.type)])
        values, nulls, self.reasons = [], [], []
        self.containers: list[bytes | None] = []
        for array in self.files:
            builder = ColumnsBuilder([index], schema, BuildSettings())
            builder.add(index.column, array)
            found = builder.finish(len(array))
            value = found.values[index]
            values.append(pa.nulls(1, index.stored_type(self.type)) if value is None else value)
            self.containers.append(found.container)
            nulls.append(found.null_counts.get(index.column, -1))
            self.reasons.append(found.reasons.get(repr(index)))
            assert "failed" not in str(self.reasons[-1]), self.reasons[-1]
        n = len(self.files)
        rows = np.array([len(array) for array in self.files], np.int64)
        self.stored = Stored(
            type=self.type,
            values=pa.concat_arrays(values) if n else pa.nulls(0, index.stored_type(self.type)),
            rows=np.full(n, -1, np.int64) if foreign else rows,
            nulls=np.full(n, -1, np.int64) if foreign else np.array(nulls, np.int64),
            row_of_file=np.arange(n, dtype=np.int64),
            places=Places(
                packs=(),
                pack=np.full(n, -1, np.int64),
                offset=np.full(n, -1, np.int64),
                length=np.full(n, -1, np.int64),
                inline=pa.array(self.containers, pa.large_binary()),
            ),
        )
        self.evidence = index.read_back(self.stored)
        self.units = Units.objects(np.arange(n, dtype=np.int64), self.stored.rows)

    def leaf(self, op: Op, *values: Any, type: pa.DataType | None = None) -> Leaf:
        """A leaf on the column, of its type unless said otherwise."""
        return Leaf(self.evidence.column, type or self.type, op, values)

    def ask(self, leaf: Leaf, units: Units | None = None) -> Answer:
        """The one answer."""
        (answer,) = self.evidence.answer([leaf], self.units if units is None else units, {})
        return answer

    def may(self, op: Op, *values: Any) -> list[int]:
        """The files that may match; all of them where the evidence says nothing."""
        bounds = self.ask(self.leaf(op, *values)).bounds
        if bounds is None:
            return list(range(len(self.files)))
        return [int(at) for at in np.flatnonzero(bounds.may)]

    def must(self, op: Op, *values: Any) -> list[int]:
        """The files whose every row must match."""
        bounds = self.ask(self.leaf(op, *values)).bounds
        return [] if bounds is None else [int(at) for at in np.flatnonzero(bounds.must)]
