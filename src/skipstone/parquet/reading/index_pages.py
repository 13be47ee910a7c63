"""``IndexPages``: rows found by the index pages of 2013 alone, without any later index.

>>> index = skipstone.ParquetFile("events.parquet").index_pages("ts")
>>> index.range(lo, hi)                      # the data pages of ts that may hold such a value
>>> index.ordinals(1_000_000, 1_001_000)     # the data pages that hold these rows
>>> index.query(lo, hi, columns=["amount"])  # down the tree of ts, then by row down the others

As the specification describes it: in row groups that the footer's statistics do not exclude, the
search follows the tree of keys to data pages and decodes them to find the matching rows. With these
rows it follows the trees of ordinals of all other columns. A row group without a tree of keys is
read completely. Pages of a column without any tree are found by its offset index, or by its page
headers. Values compare as everywhere here: NaN is the largest, 0.0 equals -0.0, a null matches
nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, UnsupportedError
from skipstone.parquet.evidence.stored_values import StoredColumn
from skipstone.parquet.format.page_index import OffsetIndexArrays
from skipstone.parquet.reading.file_reader import FileReader, names_its_file
from skipstone.parquet.reading.row_ranges import GroupRows, column_at, group_rows
from skipstone.predicate.binding import bind
from skipstone.predicate.tree import (
    And,
    Bound,
    ColumnRef,
    Comparison,
    Const,
    Expr,
    Literal,
    Not,
    NullTest,
    columns_read,
    leaves,
)
from skipstone.predicate.types import column_path
from skipstone.pruning import RowSet
from skipstone.pruning.residual import matching

from .index_page_descent import (
    Descent,
    FoundPages,
    KeyInterval,
    Roots,
    Steps,
    interval_of,
    picking,
    run_together,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.reading.chunk_pages import ChunkKey


IntArray: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DataPages:
    """Data pages that were found, in the order of the file: int64 ``(n,)`` each.

    ``offset`` and ``length`` are bytes of the file, headers included. ``first_row`` and
    ``stop_row`` are rows of the file, -1 where they were found by keys, which have no rows.
    """

    row_group: IntArray
    offset: IntArray
    length: IntArray
    first_row: IntArray
    stop_row: IntArray
    bytes_read: int = 0
    requests: int = 0

    def __len__(self) -> int:
        return len(self.offset)

    def __repr__(self) -> str:
        return (
            f"DataPages({len(self):,} pages, {int(self.length.sum()):,} bytes; found by"
            f" {self.bytes_read:,} bytes in {self.requests:,} requests)"
        )


class IndexPages:
    """The trees of one column in all row groups; see the module.

    ``keyed`` says for each row group whether it has keys. Index pages that were read are kept.
    ``bytes_read`` and ``requests`` count what the calls of this object took. Raises ``FormatError``
    for damaged trees.
    """

    def __init__(self, file: FileReader, column: str) -> None:
        self.file, self.path = file, file.path
        leaf = file.footer.schema.leaf(column)
        self._leaf = file.chunk_key(0, column)[1] if leaf is None else leaf.ordinal
        #: the dotted path of the leaf
        self.column = file.footer.schema.leaves[self._leaf].name
        self.bytes_read = self.requests = 0
        self._descents: dict[ChunkKey, Descent | None] = {}

    def __repr__(self) -> str:
        held = sum(self._descent((r, self._leaf)) is not None for r in self._groups)
        return f"IndexPages({self.path!r}, {self.column!r}, {held} of {len(self._groups)} chunks)"

    @property
    def _groups(self) -> range:
        return range(self.file.num_row_groups)

    @property
    @names_its_file
    def keyed(self) -> tuple[bool, ...]:
        """For each row group, whether the chunk has a tree of keys."""
        with self._counting():
            return tuple(self._keyed_of(self._groups).values())

    def _keyed_of(self, groups: Iterable[int]) -> dict[int, bool]:
        found = {r: self._descent((r, self._leaf)) for r in groups}
        self._run([each.root() for each in found.values() if each is not None])
        return {r: each is not None and each.keyed for r, each in found.items()}

    def _kept_row_groups(self, tree: Bound) -> list[int]:
        """Row groups that the statistics in the footer do not exclude for ``tree``, a conjunction;
        no tree of the others is read."""
        may = np.ones(self.file.num_row_groups, np.bool_)
        if not isinstance(tree, Const):
            bounds = self.file.indexed.chunk_bounds(self._leaf)
            for leaf in leaves(tree):
                found = bounds.bounds_of(leaf)
                if found is not None:
                    may &= found.may
        return [int(r) for r in np.flatnonzero(may)]

    # -- searches ----------------------------------------------------------------------------------

    def find(self, key: object) -> DataPages:
        """The data pages that may hold ``key``; ``UnsupportedError`` where no chunk has keys.

        Keys are Python values, or a ``Literal`` of ``skipstone.predicate``.
        """
        return self._by_key(self._compared("=", key))

    def range(self, low: object = None, high: object = None) -> DataPages:
        """The data pages that may hold values from ``low`` to ``high``, both included; ``None`` is
        open."""
        return self._by_key(self._between(low, high))

    @names_its_file
    def ordinals(self, start: int, stop: int) -> DataPages:
        """The data pages that hold rows ``start:stop`` of the file, by their ordinals.

        ``UnsupportedError`` where a chunk that is needed has no tree of ordinals.
        """
        groups = group_rows(RowSet([start], [stop]), self.file.row_starts)
        with self._counting() as count:
            found = self._by_row((self._leaf,), groups)
        parts = []
        for group in groups:
            pages = found[group.row_group, self._leaf]
            if pages is None:
                raise UnsupportedError(
                    f"row group {group.row_group} has no ordinals of {self.column}",
                    hint="`skipstone retrofit FILE --index-pages COLUMN` adds index pages",
                )
            parts.append((group.row_group, pages))
        return self._made(parts, count)

    @names_its_file
    def _by_key(self, condition: Expr) -> DataPages:
        tree = bind(condition, self.file.schema)
        with self._counting() as count:
            found = self._search(self._kept_row_groups(tree), interval_of(tree, self._stored))
            none = not found and not any(self._keyed_of(self._groups).values())
        if none:
            raise UnsupportedError(
                f"no index pages of {self.path} hold keys of {self.column}",
                hint=f"`skipstone retrofit FILE --index-pages {self.column}` adds them",
            )
        return self._made([(chunk[0], each) for chunk, each in found.items()], count)

    def _made(self, parts: Sequence[tuple[int, FoundPages]], count: Mapping[str, int]) -> DataPages:
        none = np.empty(0, np.int64)
        columns: list[list[IntArray]] = [[none], [none], [none], [none], [none]]
        for r, found in parts:
            first = stop = np.full(len(found), -1, np.int64)
            if found.first_row is not None:
                first = found.first_row + self.file.row_starts[r]
                stop = np.append(found.first_row[1:], found.stop_row) + self.file.row_starts[r]
            every = (np.full(len(found), r, np.int64), found.offset, found.length, first, stop)
            for column, values in zip(columns, every, strict=True):
                column.append(values)
        group, offset, length, first, stop = map(np.concatenate, columns)
        return DataPages(
            row_group=group,
            offset=offset,
            length=length,
            first_row=first,
            stop_row=stop,
            **count,
        )

    # -- rows --------------------------------------------------------------------------------------

    @names_its_file
    def query(
        self, low: object = None, high: object = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows whose value is from ``low`` to ``high``, both included, found by trees alone."""
        tree = bind(self._between(low, high), self.file.schema)
        with self._counting():
            interval, groups = interval_of(tree, self._stored), self._kept_row_groups(tree)
            found = self._search(groups, interval)
            rows = self._matching(tree, self._candidates(groups, found, interval))
            if not rows:
                return self.file.selection.empty_table(columns)
            return self._fetched(self.file.selection.fields(columns), rows)

    def _candidates(
        self, groups: Sequence[int], found: Mapping[ChunkKey, FoundPages], interval: KeyInterval
    ) -> RowSet:
        """The rows of the data pages that were found; all rows where there are no keys."""
        starts: list[int] = []
        stops: list[int] = []
        chunks = [chunk for chunk, pages in found.items() if len(pages)]
        edges: list[tuple[ChunkKey, int]] = []
        for chunk in chunks:
            ends = found[chunk].offset
            edges += [(chunk, int(ends[0])), (chunk, int(ends[-1]))]
        placed = self._placed(edges)
        for r in groups:
            begin, end = (int(each) for each in self.file.row_starts[r : r + 2])
            chunk = (r, self._leaf)
            if chunk not in found:
                if not interval.empty:
                    starts.append(begin)
                    stops.append(end)
            elif len(found[chunk]):
                offsets = found[chunk].offset
                starts.append(begin + placed[chunk, int(offsets[0])][0])
                stops.append(begin + placed[chunk, int(offsets[-1])][1])
        return RowSet(starts, stops)

    def _placed(
        self, edges: Sequence[tuple[ChunkKey, int]]
    ) -> dict[tuple[ChunkKey, int], tuple[int, int]]:
        """First row and the row after the last of data pages, in their row groups."""
        made: dict[tuple[ChunkKey, int], tuple[int, int]] = {}
        steps, places = [], []
        for chunk, offset in dict.fromkeys(edges):
            descent = self._descent(chunk)
            assert descent is not None
            if descent.ordinals is not None:
                steps.append(descent.holding(offset))
                places.append((chunk, offset))
                continue
            (table,) = self.file.chunk_pages.tables([chunk])
            at = int(np.searchsorted(table.offset, offset))
            if at == len(table) or int(table.offset[at]) != offset:
                raise FormatError("an entry that is not a data page", offset=offset)
            made[chunk, offset] = (int(table.first_row[at]), int(table.first_row[at + 1]))
        for place, pages in zip(places, self._run(steps), strict=True):
            assert pages.first_row is not None
            made[place] = (int(pages.first_row[0]), pages.stop_row)
        return made

    def _matching(self, tree: Bound, rows: RowSet) -> RowSet:
        """Those of ``rows`` that match, row group by row group."""
        if isinstance(tree, Const):
            return rows if tree.value else RowSet()
        paths = {name: column_path(name) for name in columns_read(tree)}
        fields = self.file.selection.of_paths(list(paths.values()))
        found = []
        for begin, end in pairwise(self.file.row_starts.tolist()):
            mine = rows & RowSet([begin], [end])
            if not mine:
                continue
            table = self._fetched(fields, mine)
            columns = {name: column_at(table, path) for name, path in paths.items()}
            at = np.flatnonzero(matching(tree, columns, table.num_rows))
            found.append(mine.at(at))
        return RowSet.of(np.concatenate(found)) if found else RowSet()

    def _fetched(self, fields: Sequence[Any], rows: RowSet) -> pa.Table:
        """Reads ``rows``: trees of ordinals find their pages, in the same waves for all columns."""
        groups = group_rows(rows, self.file.row_starts)
        if not groups or not fields:
            schema = pa.schema([each.field for each in fields], self.file.schema.metadata)
            return schema.empty_table()
        every = [leaf for field in fields for leaf in field.shape.leaves]
        known: dict[ChunkKey, Any] = {}
        for chunk, pages in self._by_row(every, groups).items():
            if pages is not None:
                known[chunk] = self._around(chunk, pages)
        return self.file.read_groups(fields, groups, self.file.chunk_pages_of(known))

    def _around(self, chunk: ChunkKey, pages: FoundPages) -> OffsetIndexArrays:
        """These pages as an offset index, with empty pages before and after them."""
        assert pages.first_row is not None
        descent = self._descent(chunk)
        assert descent is not None
        end = int(pages.offset[-1] + pages.length[-1])
        return OffsetIndexArrays(
            offset=np.concatenate(([descent.data_page_offset], pages.offset, [end])),
            compressed_page_size=np.concatenate(([0], pages.length, [0])),
            first_row_index=np.concatenate(([0], pages.first_row, [pages.stop_row])),
        )

    # -- descents ----------------------------------------------------------------------------------

    def _descent(self, chunk: ChunkKey) -> Descent | None:
        return descent_of(self.file, chunk, self._descents)

    def _search(self, groups: Sequence[int], interval: KeyInterval) -> dict[ChunkKey, FoundPages]:
        """The data pages of these row groups that may hold values in ``interval``, by chunk; a
        chunk without a tree of keys is left out."""
        steps: dict[ChunkKey, Steps] = {}
        for r, keyed in self._keyed_of(groups).items():
            descent = self._descent((r, self._leaf))
            if keyed and descent is not None:
                steps[r, self._leaf] = descent.keys(picking(self._stored, interval))
        return dict(zip(steps, self._run(list(steps.values())), strict=True))

    def _by_row(
        self, every: Iterable[int], groups: Sequence[GroupRows]
    ) -> dict[ChunkKey, FoundPages | None]:
        """For each chunk the data pages that hold rows of its group, ``None`` without ordinals."""
        wanted: dict[ChunkKey, tuple[Descent, int, int]] = {}
        made: dict[ChunkKey, FoundPages | None] = {}
        for group in groups:
            for leaf in dict.fromkeys(every):
                chunk = (group.row_group, leaf)
                descent = self._descent(chunk)
                made[chunk] = None
                if descent is not None:
                    wanted[chunk] = descent, int(group.starts[0]), int(group.stops[-1])
        self._run([descent.root() for descent, _, _ in wanted.values()])
        rooted = {chunk: each for chunk, each in wanted.items() if each[0].ordinals is not None}
        found = self._run([descent.rows(start, stop) for descent, start, stop in rooted.values()])
        made.update(zip(rooted, found, strict=True))
        return made

    def _run(self, steps: Sequence[Steps]) -> list[FoundPages]:
        return run_together(self.file.reader, steps)

    @contextmanager
    def _counting(self) -> Iterator[dict[str, int]]:
        """Counts the bytes and requests of the block; the result is filled at its end."""
        file, count = self.file, dict[str, int]()
        bytes_before, requests_before = file.bytes_read, file.requests
        yield count
        count["bytes_read"] = file.bytes_read - bytes_before
        count["requests"] = file.requests - requests_before
        self.bytes_read += count["bytes_read"]
        self.requests += count["requests"]

    # -- predicates --------------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> StoredColumn:
        return StoredColumn.of(self.file.footer.schema.leaves[self._leaf])

    def _compared(self, op: str, value: object) -> Expr:
        column = ColumnRef(column_path(self.column))
        return Comparison(op, column, value if isinstance(value, Literal) else Literal(value))

    def _between(self, low: object, high: object) -> Expr:
        parts = [
            self._compared(op, value)
            for op, value in ((">=", low), ("<=", high))
            if value is not None
        ]
        if not parts:
            return Not(NullTest(ColumnRef(column_path(self.column))))
        return parts[0] if len(parts) == 1 else And(tuple(parts))


def descent_of(
    file: FileReader, chunk: ChunkKey, known: dict[ChunkKey, Descent | None]
) -> Descent | None:
    """The trees of a chunk, kept in ``known``; ``None`` where the footer names none."""
    if chunk not in known:
        known[chunk] = None
        offset = int(file.footer.chunk("index_page_offset")[chunk])
        if offset > 0 and file.chunk_pages.column_decryptor(chunk) is None:
            known[chunk] = Descent(
                place=file.chunk_pages.place(chunk),
                leaf=file.footer.schema.leaves[chunk[1]],
                index_page_offset=offset,
                data_page_offset=int(file.footer.chunk("data_page_offset")[chunk]),
            )
    return known[chunk]


def index_page_root(file: FileReader, chunk: ChunkKey) -> Roots | None:
    """The roots of the trees of a chunk, ``None`` where the footer names none."""
    descent = descent_of(file, chunk, {})
    if descent is None:
        return None
    run_together(file.reader, [descent.root()])
    return descent.roots
