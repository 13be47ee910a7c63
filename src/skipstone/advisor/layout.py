"""``advise --layout``: what another order of rows would save, for given queries or for lookups that
suit the columns.

A sample of the rows of many files is put in each order that ``cluster`` can make, and cut into as
many parts as the table would have row groups. A query reads the parts whose ranges may hold a
match; its share of the parts is its share of the table's bytes. For the present order, the
statistics of the sampled files' row groups give the ranges. So both count whole row groups, and
neither counts indexes, dictionaries or pages, which skip more in either order.

Rows of a part that are not in the sample may lie outside its range. On average, the least of n
random values lies one n-th of the range above the least of all, and in 95 of 100 cases less than
three n-ths above it. So each range is made wider by ``_SPACINGS`` n-ths, in order not to promise
too much.

The bytes of one query are those of the row groups that it reads and ``OPENING`` for each file.

**Candidates** are the single columns that the queries compare, and the curves over two to four of
those that are compared most. A simpler order is proposed if it is as good within ``_AS_GOOD``.

Without queries, there are lookups of each column of ``_columns``: of values of the sample, and for
instants and fractions of ranges with ``_RANGE`` of their values.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.predicate.literals import Keys, from_key, order_keys
from skipstone.predicate.tree import And, Leaf, Op, leaves
from skipstone.predicate.types import spark_type
from skipstone.pruning.interval import Intervals
from skipstone.pruning.partitions import PartitionColumns
from skipstone.pruning.table_schema import find_field
from skipstone.rewrite.curve import sort_order

from .layout_report import LayoutAdvice, LayoutSavings
from .layout_sample import LayoutSample, RowGroups, SampledColumn, layout_sample
from .propose import advise
from .report import QuerySavings
from .sampling import SEED
from .simulate import bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Bound

    from .sampling import AdviceRequest
    from .simulate import Query


#: how many files are sampled by default
FILES: Final = 256
#: the cost of opening a file, in bytes
OPENING: Final = 1 << 20
_MEBIBYTE = 1 << 20
#: the sizes of files that are tried besides the given one
SIZES: Final = (32 << 20, 128 << 20, 512 << 20)
# Spark's writer begins a new row group after this many bytes.
_ROW_GROUP = 128 << 20
# The least rows of a simulated row group.
_LEAST_ROWS = 20
# A range is wider than that of the sample by this many mean distances of its values at either end.
_SPACINGS = 3
_AS_GOOD = 1.1
# A layout that saves a smaller share is not proposed.
_LEAST = 0.2
_ON_CURVE = 4
_LOOKED_UP = 6
_LOOKUPS = 12
_RANGE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportedQuery:
    """One line of the report: a query, or lookups of a column, and their trees."""

    shown: str
    weight: float
    trees: tuple[Bound, ...]


def advise_layout(
    request: AdviceRequest, queries: Sequence[Query] | None, file_size: int | None
) -> LayoutAdvice:
    """What orders of rows would save over the table; ``file_size`` is that of its new files, by
    default about what it is now.

    ``PredicateError`` names the place of a query that is not a predicate; ``FormatError`` if no
    file can be read. Timestamps without a zone are in UTC.
    """
    listing = request.listing
    empty = LayoutAdvice(table=request.shown, files_total=len(listing))
    if not len(listing):
        return replace(empty, notes=("the table has no files",))
    schema = request.table_schema()
    whole = PartitionColumns.of(listing).added_to(schema)
    trees = None if queries is None else bound(queries, whole)
    if trees is None:
        types = dict(_columns(request, schema))
    else:
        types = {each.column: each.type for tree in trees for each in leaves(tree)}
    sample = layout_sample(request, types)
    if not sample.rows:
        return replace(empty, notes=("the sampled files have no rows", *sample.notes))
    if queries is None or trees is None:
        asked = list(_lookups(sample, types))
    else:
        asked = [
            _ReportedQuery(shown=query.where, weight=query.weight, trees=(tree,))
            for query, tree in zip(queries, trees, strict=True)
        ]
    total = listing.total_bytes
    if file_size is None:
        mean = total / len(listing) / _MEBIBYTE
        file_size = _MEBIBYTE << max(0, round(math.log2(max(mean, 1))))
    sizes = sorted({file_size, *(each for each in SIZES if each < total)})
    found = _Trials(sample, asked, total, len(listing)).run(file_size, sizes)
    return replace(
        empty,
        rows_sampled=sample.rows,
        files_sampled=sample.sampled,
        bytes_data=total,
        queries=tuple(found.queries()),
        layouts=tuple(found.layouts),
        chosen=found.chosen is not None,
        notes=(*sample.notes, *found.notes),
    )


# -- trials ----------------------------------------------------------------------------------------


class _Trials:
    """Tries orders of the sample; figures are scaled to the table."""

    def __init__(
        self,
        sample: LayoutSample,
        asked: Sequence[_ReportedQuery],
        bytes_total: int,
        files_total: int,
    ) -> None:
        self.sample, self.asked = sample, asked
        self.bytes_total = bytes_total
        self.weight = sum(each.weight for each in asked)
        self.notes: list[str] = []
        by_bytes = bytes_total / max(sample.bytes, 1)
        by_files = files_total / max(sample.sampled, 1)
        self.before = [
            (by_bytes * read, by_files * files)
            for read, files in (self._of(sample.present, each) for each in asked)
        ]
        self.layouts: list[LayoutSavings] = []
        self.after: list[tuple[float, float]] = []
        self.chosen: LayoutSavings | None = None

    def run(self, file_size: int, sizes: Sequence[int]) -> _Trials:
        """All orders at ``file_size``, then the best three at the other sizes."""
        by_order: dict[tuple[str, tuple[str, ...]], LayoutSavings] = {}
        for order in self._orders():
            by_order[order] = self._tried(order, file_size)
        ranked = sorted(by_order, key=lambda order: self._rank(by_order[order]))
        tried = list(by_order.values())
        for order in ranked[:3]:
            tried += [self._tried(order, size) for size in sizes if size != file_size]
        self.layouts = sorted(tried, key=self._rank)
        before = self._total(self.before)
        if self.layouts and before > 0:
            best = self._simplest()
            self.layouts.remove(best)
            self.layouts.insert(0, best)
            saved = 1 - self._rank(best) / before
            if saved >= _LEAST and best.bytes < best.bytes_before:
                self.chosen = best
            self.after = self._results(self._groups((best.curve, best.by), best.file_size))
        return self

    def queries(self) -> Iterator[QuerySavings]:
        """Each query before, and with the best layout."""
        for asked, before, after in zip(self.asked, self.before, self.after, strict=False):
            yield QuerySavings(
                where=asked.shown,
                weight=asked.weight,
                files_before=round(before[1]),
                files_after=round(after[1]),
                bytes_before=round(before[0]),
                bytes_after=round(after[0]),
            )

    def _orders(self) -> list[tuple[str, tuple[str, ...]]]:
        compared: dict[str, float] = dict.fromkeys(self.sample.columns, 0.0)
        for asked in self.asked:
            for column in {leaf.column for tree in asked.trees for leaf in leaves(tree)}:
                if column in compared:
                    compared[column] += asked.weight
        ranked = sorted(compared, key=lambda each: -compared[each])
        found: list[tuple[str, tuple[str, ...]]] = [("sort", (each,)) for each in ranked]
        for count in range(2, _ON_CURVE + 1):
            for some in itertools.combinations(ranked[:_ON_CURVE], count):
                found += [(curve, some) for curve in ("z-order", "hilbert")]
        return found

    def _rank(self, layout: LayoutSavings) -> float:
        return layout.bytes + layout.files * OPENING

    def _simplest(self) -> LayoutSavings:
        """The layout of the fewest columns that is as good as the best, or nearly."""
        limit = _AS_GOOD * self._rank(self.layouts[0])
        good = [each for each in self.layouts if self._rank(each) <= limit]
        return min(good, key=lambda each: (len(each.by), self._rank(each)))

    def _tried(self, order: tuple[str, tuple[str, ...]], file_size: int) -> LayoutSavings:
        results = self._results(self._groups(order, file_size))
        return LayoutSavings(
            curve=order[0],
            by=order[1],
            file_size=file_size,
            files_made=max(1, -(-self.bytes_total // file_size)),
            bytes_before=round(self._mean(self.before, 0)),
            bytes=round(self._mean(results, 0)),
            files=round(self._mean(results, 1), 1),
        )

    def _groups(self, order: tuple[str, tuple[str, ...]], file_size: int) -> RowGroups:
        curve, by = order
        columns = self.sample.columns
        placed = sort_order(curve, [columns[each].values for each in by])
        files = max(1, -(-self.bytes_total // file_size))
        groups = max(files, -(-self.bytes_total // min(file_size, _ROW_GROUP)))
        most = max(1, self.sample.rows // _LEAST_ROWS)
        if groups > most:
            note = (
                f"{groups:,} row groups are simulated by {most:,}: the sample has "
                f"{self.sample.rows:,} rows"
            )
            if note not in self.notes:
                self.notes.append(note)
            groups = most
        starts = np.arange(groups + 1) * self.sample.rows // groups
        return RowGroups(
            ranges={name: _ranges(column, placed, starts) for name, column in columns.items()},
            bytes=np.full(groups, self.bytes_total / groups),
            files=np.arange(groups) * files // groups,
        )

    def _results(self, groups: RowGroups) -> list[tuple[float, float]]:
        return [self._of(groups, each) for each in self.asked]

    def _of(self, groups: RowGroups, asked: _ReportedQuery) -> tuple[float, float]:
        costs = [groups.cost(tree) for tree in asked.trees]
        count = max(len(costs), 1)
        return sum(each[0] for each in costs) / count, sum(each[1] for each in costs) / count

    def _total(self, results: Sequence[tuple[float, float]]) -> float:
        return self._mean(results, 0) + OPENING * self._mean(results, 1)

    def _mean(self, results: Sequence[tuple[float, float]], at: int) -> float:
        """The mean over all queries, by their weights."""
        pairs = zip(self.asked, results, strict=True)
        return sum(asked.weight * each[at] for asked, each in pairs) / max(self.weight, 1e-9)


def _ranges(
    column: SampledColumn, placed: NDArray[np.int64], starts: NDArray[np.int64]
) -> Intervals:
    """The ranges of the parts that begin at ``starts``, which ends with the length, of rows in the
    order ``placed``; see the module."""
    codes, first, parts = column.codes[placed], starts[:-1], np.diff(starts)
    held = codes >= 0
    count = len(column.distinct)
    low = np.minimum.reduceat(np.where(held, codes, count), first)
    high = np.maximum.reduceat(codes, first)
    nulls = np.add.reduceat((~held).astype(np.int64), first)
    valid = nulls < parts
    wider = _SPACINGS * (high - low) // np.maximum(parts - nulls, 1)
    if not count:
        lo = hi = order_keys(pa.nulls(len(parts), column.type), column.type)
    else:
        lo, hi = (
            Keys(found.data, valid)
            for each in (low - wider, high + wider)
            for found in [column.distinct.take(np.where(valid, np.clip(each, 0, count - 1), 0))]
        )
    return Intervals.checked(
        type=column.type, lo=lo, hi=hi, rows=parts.astype(np.int64), nulls=nulls
    )


# -- queries by the columns' shapes ----------------------------------------------------------------


def _columns(request: AdviceRequest, schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that are worth an index, and instants: at most ``_LOOKED_UP``."""
    advice = advise(replace(request, sample=min(request.sample, 20)))
    count = 0
    for each in advice.columns:
        field = find_field(schema, each.column)
        type_ = None if field is None else spark_type(field.type)
        if type_ is None:  # a column of the folders
            continue
        wanted = each.kinds or pa.types.is_date(type_) or pa.types.is_timestamp(type_)
        if wanted and count < _LOOKED_UP:
            count += 1
            yield each.column, type_


def _lookups(sample: LayoutSample, types: Mapping[str, pa.DataType]) -> Iterator[_ReportedQuery]:
    """Lookups of each column by values of the sample: ``_LOOKUPS``, each as likely as its rows."""
    rng = np.random.default_rng(SEED)
    for name, column in sample.columns.items():
        type_, values = types[name], column.values
        held = values.filter(values.is_valid())
        if not len(held):
            continue
        held = held.take(pc.array_sort_indices(held))
        ranged = pa.types.is_timestamp(type_) or pa.types.is_floating(type_)
        width = max(1, int(_RANGE * len(held))) if ranged else 0
        at = np.sort(rng.integers(0, max(len(held) - width, 1), _LOOKUPS))
        first = order_keys(held.take(pa.array(at)), type_)
        last = order_keys(held.take(pa.array(np.minimum(at + width, len(held) - 1))), type_)
        trees: list[Bound] = []
        for low, high in zip(first.to_list(), last.to_list(), strict=True):
            assert low is not None  # nulls were left out
            assert high is not None
            if not ranged:
                trees.append(Leaf(name, type_, Op.EQ, (from_key(low, type_),)))
                continue
            ends = (Op.GE, low), (Op.LE, high)
            trees.append(And(tuple(Leaf(name, type_, op, (from_key(k, type_),)) for op, k in ends)))
        shown = f"{name} between … and … ({_RANGE:.0%} of the rows)" if ranged else f"{name} = …"
        yield _ReportedQuery(shown=shown, weight=1.0, trees=tuple(trees))
