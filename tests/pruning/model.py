"""A table in memory, honest evidence of any sharpness about it, and what a plan for it must be.

Layout: files of row groups of pages of rows; a row has the int columns ``a`` and ``b``, values or
null. Evidence of every level is computed from the rows, and then blunted at random: exact, lossy
(``may`` too large, ``must`` too small), silent, or broken.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from skipstone.predicate.tree import And, Bound, Const, Leaf, Op, Opaque, Or
from skipstone.pruning import Answer, BaseEvidence, Bounds, Cause, Fetched, Level, RowSet, Units
from skipstone.pruning.evidence import KnownRows, Source
from skipstone.storage import ByteRange, Listing

if TYPE_CHECKING:
    from skipstone.pruning.evaluation import Fetch

Row = Mapping[str, int | None]
COLUMNS = ("a", "b")


def leaf(column: str, op: Op, *values: int) -> Leaf:
    return Leaf(column, pa.int64(), op, values)


def leaf_true(test: Leaf, row: Row) -> bool:
    """Whether ``test`` is TRUE for ``row``, three-valued logic applied."""
    value = row[test.column]
    if test.op is Op.IS_NULL:
        return value is None
    if test.op is Op.NOT_NULL:
        return value is not None
    wanted = test.values[0]
    assert isinstance(wanted, int)
    if test.op is Op.NE_OR_NULL:
        return value is None or value != wanted
    if value is None:
        return False
    return {Op.EQ: value == wanted, Op.NE: value != wanted, Op.LT: value < wanted}[test.op]


def tree_true(tree: Bound, row: Row, opaque: bool = False) -> bool:
    """Whether ``tree`` is TRUE for ``row``; ``opaque`` is what an Opaque comes to."""
    if isinstance(tree, Leaf):
        return leaf_true(tree, row)
    if isinstance(tree, Const):
        return tree.value
    if isinstance(tree, Opaque):
        return opaque
    parts = [tree_true(child, row, opaque) for child in tree.children]  # type: ignore[arg-type]
    return all(parts) if isinstance(tree, And) else any(parts)


@dataclass(frozen=True)
class ModelTable:
    """``files[file][row group][page]`` is a list of rows."""

    files: Sequence[Sequence[Sequence[Sequence[Row]]]]

    def rows(self, file: int) -> list[Row]:
        return [row for group in self.files[file] for page in group for row in page]

    def matching(self, file: int, tree: Bound, opaque: bool = False) -> RowSet:
        rows = self.rows(file)
        return RowSet.of([i for i, row in enumerate(rows) if tree_true(tree, row, opaque)])

    def row_counts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([len(self.rows(f)) for f in range(len(self.files))], np.int64)

    def listing(self) -> Listing:
        n = len(self.files)
        return Listing(
            root="/t",
            paths=[f"/t/{i:03}.parquet" for i in range(n)],
            sizes=np.arange(100, 100 + n, dtype=np.int64),
            mtimes=np.zeros(n, np.int64),
        )

    def unit_rows(self, units: Units) -> list[list[Row]]:
        """The rows of each unit."""
        found = []
        for file, first, count in zip(units.file, units.first_row, units.rows, strict=True):
            rows = self.rows(int(file))
            found.append(rows if count < 0 else rows[int(first) : int(first + count)])
        return found


@dataclass
class ModelEvidence(BaseEvidence):
    """Speaks about one column at one level, as sharply as ``mode`` says."""

    table: ModelTable
    level: Level
    column: str
    mode: str = "exact"  # exact, lossy, silent, raises
    cost: float = 1.0
    name: str = "model"
    seed: int = 0
    file: int = -1  # the file, at the row level
    sure: bool = False  # says before it is asked that it decides
    asked: list[Units] = field(default_factory=list)

    def needs(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[ByteRange]:
        return ()

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        self.asked.append(units)
        if self.mode == "raises":
            raise OSError("no route to host")
        if self.mode == "silent":
            return [Answer.silent(Cause.NOT_APPLICABLE, self.name, "silent") for _ in leaves]
        return [Answer(bounds=self._bounds(each, units)) for each in leaves]

    def decides(self, leaf: Leaf) -> bool:
        return self.sure and not (self.mode == "raises" and self.asked)

    def _blunt(self, chance: random.Random) -> bool:
        return self.mode == "lossy" and chance.random() < 0.5

    def _bounds(self, test: Leaf, units: Units) -> Bounds[Any]:
        chance = random.Random(f"{self.seed} {self.level} {test} {units.file.tolist()}")
        if self.level is Level.ROW:
            truth = [leaf_true(test, row) for row in self.table.rows(self.file)]
            may = [i for i, yes in enumerate(truth) if yes or self._blunt(chance)]
            must = [i for i, yes in enumerate(truth) if yes and not self._blunt(chance)]
            return Bounds(RowSet.of(must), RowSet.of(may))
        truths = [[leaf_true(test, row) for row in rows] for rows in self.table.unit_rows(units)]
        return Bounds(
            np.array([all(t) and not self._blunt(chance) for t in truths], np.bool_),
            np.array([any(t) or self._blunt(chance) for t in truths], np.bool_),
        )


@dataclass
class ModelSource(Source):
    """Splits files into row groups, or row groups into pages; some it cannot split."""

    table: ModelTable
    level: Level
    told: Sequence[ModelEvidence] = ()
    closed: frozenset[int] = frozenset()  # files that cannot be split
    uncounted: frozenset[int] = frozenset()  # files whose parts have no row counts
    chunk: int = -1  # stored bytes of the columns in each unit
    dictionary: int = 0  # those of the dictionaries in it
    split_units: list[Units] = field(default_factory=list)

    def split(
        self, units: Units, columns: frozenset[str]
    ) -> tuple[Units, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        self.split_units.append(units)
        parts: list[tuple[int, int, int, int, int]] = []
        for at in range(len(units)):
            file = int(units.file[at])
            if file in self.closed:
                continue
            start = int(units.first_row[at])
            known = int(units.rows[at])
            stop = start + (known if known >= 0 else len(self.table.rows(file)))
            for ordinal, first, count in self._layout(file):
                if first >= start and first + count <= stop:
                    rows = -1 if file in self.uncounted else count
                    parts.append((at, file, ordinal, first, rows))
        columns_of = np.array(parts, np.int64).reshape(-1, 5).T
        parent, file_, ordinal_, first_, rows_ = columns_of
        fine = Units(level=self.level, file=file_, ordinal=ordinal_, first_row=first_, rows=rows_)
        return fine, parent

    def _layout(self, file: int) -> list[tuple[int, int, int]]:
        """(row group, first row, rows) of each part."""
        found, first = [], 0
        for ordinal, group in enumerate(self.table.files[file]):
            counts = [len(page) for page in group]
            for count in counts if self.level is Level.PAGE else [sum(counts)]:
                found.append((ordinal, first, count))
                first += count
        return found

    def evidence(self, units: Units, columns: frozenset[str]) -> Sequence[ModelEvidence]:
        return self.told

    def stored(
        self, units: Units, columns: frozenset[str]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.full(len(units), self.chunk, np.int64)

    def decoded(self, index: str, column: str, units: Units) -> int:
        return self.dictionary * len(units)


@dataclass
class ModelRows:
    """Row-level evidence of some files."""

    told: Mapping[int, Sequence[ModelEvidence]]

    def evidence(self, file: int, columns: frozenset[str]) -> Sequence[ModelEvidence]:
        return self.told.get(file, ())

    def known(
        self,
        leaves: Sequence[Leaf],
        files: np.ndarray[tuple[int], np.dtype[np.int64]],
        fetch: Fetch,
    ) -> Sequence[KnownRows]:
        return ()

    def stored(
        self, files: np.ndarray[tuple[int], np.dtype[np.int64]], column: str
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.full(len(files), -1, np.int64)


# -- strategies ------------------------------------------------------------------------------------

values = st.one_of(st.none(), st.integers(0, 3))
rows = st.fixed_dictionaries(dict.fromkeys(COLUMNS, values))
# A file may have no row group, a row group no row: both are legal Parquet.
tables = st.builds(
    ModelTable,
    st.lists(
        st.lists(st.lists(st.lists(rows, min_size=1, max_size=3), max_size=3), max_size=3),
        max_size=5,
    ),
)
leaf_strategy = st.one_of(
    st.builds(
        leaf,
        st.sampled_from(COLUMNS),
        st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.NE_OR_NULL]),
        st.integers(0, 4),
    ),
    st.builds(leaf, st.sampled_from(COLUMNS), st.sampled_from([Op.IS_NULL, Op.NOT_NULL])),
)
trees = st.recursive(
    st.one_of(
        leaf_strategy,
        st.builds(Const, st.booleans()),
        st.just(Opaque("f(a)", "a function that no index knows")),
    ),
    lambda children: st.one_of(
        st.builds(lambda c: And(tuple(c)), st.lists(children, max_size=3)),
        st.builds(lambda c: Or(tuple(c)), st.lists(children, max_size=3)),
    ),
    max_leaves=6,
)
modes = st.sampled_from(["exact", "exact", "lossy", "silent", "raises"])


@st.composite
def told(draw: st.DrawFn, table: ModelTable, level: Level, file: int = -1) -> list[ModelEvidence]:
    """Any evidence of one level: some columns, some twice, in any order of cost."""
    return [
        ModelEvidence(
            table=table,
            level=level,
            column=column,
            mode=draw(modes),
            cost=draw(st.sampled_from([0.5, 1.0, 2.0])),
            name=f"{level.name.lower()}{number}",
            seed=draw(st.integers(0, 99)),
            file=file,
            sure=draw(st.booleans()),
        )
        for number, column in enumerate(draw(st.lists(st.sampled_from(COLUMNS), max_size=3)))
    ]
