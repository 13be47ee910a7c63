"""A predicate over one file: its plan, its rows, its count.

The planner finds the rows that may match by the footer, the Bloom filters and the page index. Of
these rows the predicate's columns are read first, and decided exactly. Of other columns only pages
that hold a matching row are fetched after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._cache import LruCache
from skipstone.parquet.evidence import PageSource, RowGroupSource
from skipstone.predicate.binding import bind
from skipstone.predicate.dnf import from_dnf
from skipstone.predicate.render import to_sql
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import (
    And,
    Comparison,
    Const,
    Membership,
    Not,
    NullTest,
    Opaque,
    Or,
    PatternMatch,
    Truth,
    leaves,
)
from skipstone.predicate.types import column_path
from skipstone.pruning import RowSet
from skipstone.pruning.planner import ObjectLevel, PlanInput, make_plan
from skipstone.pruning.residual import matching, require_decidable
from skipstone.storage.listing import Listing

from .row_ranges import rows_alone, take_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Bound
    from skipstone.pruning.plan import Plan

    from .file_reader import FileReader


#: SQL text, pyarrow's DNF tuples, or a tree of ``skipstone.predicate``
Where: TypeAlias = "str | Any"

_TREES = (And, Or, Not, Comparison, Membership, NullTest, PatternMatch, Truth, Opaque, Const)

# Bound predicates that are remembered.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Predicate:
    """A predicate bound to the file's schema, and its text."""

    tree: Bound
    text: str


class FileQueries:
    """Queries over one file. It remembers bound predicates and combined evidence."""

    def __init__(self, file: FileReader) -> None:
        self.file = file
        self._bound: LruCache[tuple[str, str], _Predicate] = LruCache(_REMEMBERED)

    @cached_property
    def _listing(self) -> Listing:
        id = self.file.id
        return Listing.of(self.file.path, [id], unit=id.unit)

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        return self.file.row_starts[-1:]

    @cached_property
    def _finer(self) -> tuple[Any, ...]:
        files = {0: self.file.indexed}
        return RowGroupSource(files), PageSource(files, self.file.reader.fetch)

    def _bind(self, where: Where, time_zone: str) -> _Predicate:
        if where is None:
            return _Predicate(Const(True), "TRUE")
        if not isinstance(where, str):
            expr = where if isinstance(where, _TREES) else from_dnf(where)
            tree = bind(expr, self.file.schema, session_zone=time_zone)
            return _Predicate(tree, to_sql(expr))
        found = self._bound.get((where, time_zone))
        if found is None:
            tree = bind(parse_sql(where), self.file.schema, session_zone=time_zone, text=where)
            found = _Predicate(tree, where)
            self._bound.put((where, time_zone), found)
        return found

    def plan(self, where: Where, time_zone: str) -> Plan:
        """Which rows of the file may match, and why the others need not be read."""
        return self._plan(self._bind(where, time_zone))

    def _plan(self, predicate: _Predicate) -> Plan:
        return make_plan(
            PlanInput(
                tree=predicate.tree,
                listing=self._listing,
                table=self.file.path,
                predicate=predicate.text,
                objects=ObjectLevel(row_counts=self._rows),
                finer=self._finer,
                fetch=self.file.reader.fetch,
            )
        )

    def _planned(self, predicate: _Predicate) -> tuple[RowSet, bool]:
        """The rows that may match, and whether all of them do."""
        plan = self._plan(predicate)
        if not plan.keep[0]:
            return RowSet(), True
        detail = plan.details.get(0)
        if detail is None or detail.rows is None:
            return RowSet.all(self.file.num_rows), bool(plan.must[0])
        return detail.rows, detail.exact

    def count(self, where: Where, time_zone: str) -> int:
        """How many rows match."""
        predicate = self._bind(where, time_zone)
        rows, exact = self._planned(predicate)
        if exact:
            return len(rows)
        require_decidable(predicate.tree)
        return sum(len(found) for _, found, _ in self._decided(predicate, rows))

    def query(self, where: Where, columns: Sequence[str] | None, time_zone: str) -> pa.Table:
        """The matching rows of these columns."""
        predicate = self._bind(where, time_zone)
        selection = self.file.selection
        fields = selection.fields(columns)
        rows, exact = self._planned(predicate)
        if not rows:
            return selection.empty_table(columns)
        if exact:
            return self.file.read_rows(columns, rows)
        require_decidable(predicate.tree)
        if not fields:
            return rows_alone(sum(len(found) for _, found, _ in self._decided(predicate, rows)))
        names = [field.node.name for field in fields]
        # Nothing forbids a file to have two columns of one name, or names that Arrow must change.
        alone = len(set(names)) == len(names) and names == [each.field.name for each in fields]
        pieces: list[pa.Table] = []
        for table, found, at in self._decided(predicate, rows):
            if not len(found):
                continue
            have = [
                name
                for name, field in zip(names, fields, strict=True)
                if name in table.column_names and field.node.is_leaf and alone
            ]
            if not have:
                pieces.append(self.file.read_rows(columns, RowSet.of(found)))
                continue
            taken = take_rows(table.select(have), at)
            rest = [name for name in names if name not in have]
            if rest:
                later = self.file.read_rows(_below(columns, rest), RowSet.of(found))
                parts = {**_by_name(taken), **_by_name(later)}
                taken = pa.Table.from_arrays([parts[name] for name in names], names=names)
            pieces.append(taken)
        if not pieces:
            return selection.empty_table(columns)
        made = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)
        return pa.Table.from_arrays(made.columns, schema=selection.table_schema(columns))

    def _decided(
        self, predicate: _Predicate, rows: RowSet
    ) -> Iterator[tuple[pa.Table, NDArray[np.int64], NDArray[np.int64]]]:
        """Wave by wave: the predicate's columns, the matching rows of the file, and their positions
        in those columns."""
        paths = {leaf.column: column_path(leaf.column) for leaf in leaves(predicate.tree)}
        fields = self.file.selection.of_paths(list(paths.values()))
        position = rows.positions()
        before = 0
        for table in self.file.tables(fields, rows):
            columns = {name: column_at(table, path) for name, path in paths.items()}
            at = np.flatnonzero(matching(predicate.tree, columns, table.num_rows))
            yield table, position[before + at], at
            before += table.num_rows


def column_at(table: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """A column by its path; below a null struct there are nulls."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _below(columns: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Those of ``columns`` that lie in the fields ``names``."""
    if columns is None:
        return list(names)
    wanted = set(names)
    return [each for each in columns if each in wanted or column_path(each)[0] in wanted]
