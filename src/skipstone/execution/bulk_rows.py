"""Batches of row groups whose columns are decoded together.

Pieces of columns in the usual forms (``bulk_columns``) are combined over files: those that cover
whole row groups, and those of which indexes or deleted rows have left some rows. A batch is read as
one table: the columns of the predicate, then the predicate once for all rows, then the other
columns, of which only pages with a matching row are read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._arrays import arrow, no_rows
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.reading.bulk_chunks import KERNELS, LENGTH, BulkKernels, Room
from skipstone.parquet.reading.bulk_columns import BulkColumns, FilePart, Scratch, read_bulk
from skipstone.parquet.reading.bulk_values import BulkColumn
from skipstone.parquet.reading.decoding_memory import (
    bytes_of_strings,
    limit_of,
    without_dictionary,
)
from skipstone.parquet.reading.few_rows import FewRows, chunk_entries, read_few_rows, read_pages
from skipstone.parquet.reading.row_ranges import rows_alone
from skipstone.predicate.tree import POSITIVE, Computed, Leaf
from skipstone.predicate.tree import pieces as nodes_of
from skipstone.predicate.types import column_path
from skipstone.pruning import RowSet
from skipstone.pruning.residual import matching, require_decidable

from .batches import (
    MANY,
    Batch,
    BulkPiece,
    Given,
    bulk_piece,
    repeated,
    stored_chunks,
    with_columns,
)
from .table_types import in_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Bound

    from .file_columns import FileColumns
    from .table_files import Piece


#: reads columns of some rows of one file, in the types of the table
OtherColumns: TypeAlias = "Callable[[FileColumns, Sequence[str], RowSet], pa.Table]"

# Without compiled loops, fewer pieces are read one by one.
_LEAST: Final = 8
# Other readers take as long for a few rows of a chunk as for this many values.
_ROWS_ALONE: Final = 20_000
# The compiled loops gain as much time with one value of a few rows as with so many values of whole
# columns, which Arrow decodes nearly as fast.
_VALUES_OF_ONE: Final = 12
# Without compiled loops, columns are decoded whole where half of the rows are needed, or one in so
# many at scattered places: then nearly every page holds one.
_MANY_OF: Final = 2_000
# The most bytes, stored and decoded, of a value that is not a long text. Compiled loops search long
# texts as they are stored: that gains as much for so many more bytes as for one value.
_SHORT: Final = 32
_BYTES_OF_VALUE: Final = 64
# Rows in longer runs on average.
_RUN: Final = 1_000
# Types of strings, and those with 32-bit offsets of the same.
_NARROW: Final = {
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
}


class BatchReader:
    """Reads the rows of batches that match ``tree``, as ``schema``. ``wanted`` has the columns to
    read by field of ``schema``. Methods give ``None`` where the pieces must be read one by one."""

    def __init__(
        self,
        tree: Bound,
        schema: pa.Schema,
        wanted: Mapping[str, Sequence[str]],
        scratch: Scratch,
    ) -> None:
        self.tree, self.schema, self.wanted, self.scratch = tree, schema, wanted, scratch
        self._once = _asked_once(tree)

    def count(self, batch: Batch) -> int | None:
        """How many rows match."""
        with self.scratch.lease() as room:
            found = self._decided(batch, room, ())
            return None if found is None else int(np.count_nonzero(found[1]))

    def read(self, batch: Batch, other: OtherColumns) -> pa.Table | None:
        """The matching rows; ``other`` reads further columns of one file."""
        with self.scratch.lease() as room:
            found = self._read(batch, other, room)
            return None if found is None else found[1]

    def read_with_rows(
        self, batch: Batch, other: OtherColumns
    ) -> tuple[NDArray[np.int64], pa.Table] | None:
        """The position of each matching row among the rows of the batch, and the rows."""
        with self.scratch.lease() as room:
            found = self._read(batch, other, room)
            if found is None:
                return None
            at, table = found
            return np.arange(table.num_rows) if at is None else at, table

    def few(self, piece: Piece, names: Sequence[str]) -> dict[str, Any] | None:
        """These columns of the few rows of one piece."""
        held = bulk_piece(piece, names)
        if held is None or held.chosen is None:
            return None
        with self.scratch.lease() as room:
            return read_some([held], names, [held.chosen], room)

    def _read(
        self, batch: Batch, other: OtherColumns, room: Room
    ) -> tuple[NDArray[np.int64] | None, pa.Table] | None:
        """As ``read_with_rows``, with ``None`` for the positions where all rows match."""
        if batch.sure:
            columns = _all_rows(batch, room)
            if columns is None:
                return None
            table = self._table(self.schema, batch.pieces, _by_field(columns), batch.rows)
            return None if table is None else (None, table)
        found = self._decided(batch, room, self.wanted)
        if found is None:
            return None
        read, matches, kernels = found
        at = np.flatnonzero(matches)
        if not len(at):
            return at, no_rows(self.schema)
        places = arrow(at)
        try:
            have = {
                name: _values_at(column, places)
                for name, column in _by_field(read.columns).items()
                if name in self.wanted
            }
        except FormatError:  # read one by one, the pieces name the file in the error
            return None
        later = pa.schema([field for field in self.schema if field.name not in have])
        if len(later):
            bounds = np.searchsorted(at, read.first)
            hit = np.flatnonzero(np.diff(bounds)).tolist()
            rows = [at[bounds[n] : bounds[n + 1]] - read.first[n] for n in hit]
            have |= self._rest([batch.pieces[n] for n in hit], later, rows, kernels, other, room)
        table = self._table(self.schema, batch.pieces, have, len(at))
        return None if table is None else (at, table)

    def _rest(
        self,
        pieces: Sequence[BulkPiece],
        schema: pa.Schema,
        rows: Sequence[NDArray[np.int64]],
        kernels: BulkKernels | None,
        other: OtherColumns,
        room: Room,
    ) -> dict[str, pa.ChunkedArray]:
        """The columns of ``schema`` of ``rows`` of each piece. Neighbours that store them alike are
        read together."""
        names = [each for field in schema for each in self.wanted[field.name]]
        held = [with_columns(each, names) for each in pieces]
        tables: list[pa.Table] = []
        for run in _runs(held):
            alike = [each for each in held[run] if each is not None]
            some = _of_rows(alike, names, rows[run], kernels, room) if alike else None
            table = None
            if some is not None:
                table = self._table(schema, alike, _by_field(some), sum(map(len, rows[run])))
            if table is not None:
                tables.append(table)
                continue
            tables += [
                other(each.piece.file, names, RowSet.of(each.positions(mine)))
                for each, mine in zip(pieces[run], rows[run], strict=True)
            ]
        found = pa.concat_tables(tables)
        return dict(zip(found.column_names, found.columns, strict=True))

    def _decided(
        self, batch: Batch, room: Room, wanted: Collection[str]
    ) -> tuple[BatchColumns, NDArray[np.bool_], BulkKernels | None] | None:
        """The columns of the predicate, and for each row whether it matches. Values of the fields
        ``wanted`` are needed after it."""
        require_decidable(self.tree)
        kernels = _kernels(batch)
        read = read_columns(batch.pieces, batch.names, kernels, room, lazy=True)
        if read is None:
            return None
        for name, column in read.columns.items():
            if isinstance(column, BulkColumn) and column_path(name)[0] not in wanted:
                column.once = name in self._once
        try:
            return read, matching(self.tree, read.columns, batch.rows), kernels
        except FormatError:  # read one by one, the pieces name the file in the error
            return None

    def _table(
        self, schema: pa.Schema, pieces: Sequence[BulkPiece], have: Mapping[str, Any], rows: int
    ) -> pa.Table | None:
        """The columns of ``schema`` from columns of a batch; ``None`` where they take more memory
        than the limit."""
        if not schema.names:
            return rows_alone(rows)
        made, path = [], pieces[0].piece.file.opened.path
        for field in schema:
            column = have[field.name]
            if isinstance(column, pa.DictionaryArray) and not pa.types.is_dictionary(field.type):
                column = _decoded(column, pieces)
                if column is None:
                    return None
            if not isinstance(column, pa.ChunkedArray):
                column = pa.chunked_array([column])
            made.append(in_type(column, field, path))
        return pa.Table.from_arrays(made, schema=schema)


def _asked_once(tree: Bound) -> frozenset[str]:
    """The columns whose values are needed only once, by a single condition."""
    asked: Counter[str] = Counter()
    for node in nodes_of(tree):
        if isinstance(node, Leaf):
            # A negated condition also asks which values are null.
            asked[node.column] += 2 if node.op in POSITIVE else 1
        elif isinstance(node, Computed):
            asked.update(2 * [name for name, _ in node.typed.columns()])
    return frozenset(name for name, times in asked.items() if times == 1)


def _decoded(column: pa.DictionaryArray, pieces: Sequence[BulkPiece]) -> Any:
    """The values of a column; ``None`` where strings repeat so often that they take more memory
    than the limit."""
    type = column.type.value_type
    narrow = _NARROW.get(type)
    if narrow is None:
        return column.dictionary_decode()
    if narrow != type:
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(narrow))
    opened = pieces[0].piece.file.opened
    spans = [chunks.of(each.groups) for each in pieces for chunks in stored_chunks(each)]
    stored = sum(int(each[:, LENGTH].sum()) for each in spans)
    limit, whole = limit_of(opened.memory, stored), pa.chunked_array([column])
    if bytes_of_strings(whole, limit) > limit:
        return None
    return without_dictionary(whole, type)


def _by_field(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Top-level columns by the names of their fields, without the quotes of column names."""
    return {column_path(name)[0]: column for name, column in columns.items()}


def _all_rows(batch: Batch, room: Room) -> Mapping[str, Any] | None:
    """The columns of a batch all of whose rows match."""
    chosen = [each.chosen for each in batch.pieces if each.chosen is not None]
    few = batch.rows <= MANY * sum(int(each.counts.sum()) for each in batch.pieces)
    if chosen and few and not _in_runs(chosen):
        return read_some(batch.pieces, batch.names, chosen, room)
    whole = read_columns(batch.pieces, batch.names, _kernels(batch), room)
    return None if whole is None else whole.columns


def _in_runs(rows: Sequence[NDArray[np.int64]]) -> bool:
    """Whether the rows, ascending, lie in runs so long that they fill most of their pages."""
    runs = sum(1 + int(np.count_nonzero(each[1:] - each[:-1] != 1)) for each in rows)
    return sum(map(len, rows)) > _RUN * runs


def _kernels(batch: Batch) -> BulkKernels | None:
    """The compiled loops, where they pay for this work. Without them Arrow reads the columns."""
    values = batch.rows * len(batch.names)
    long = max(sum(piece.size for piece in batch.pieces) - _SHORT * values, 0)
    return KERNELS.for_work(values // _VALUES_OF_ONE + long // _BYTES_OF_VALUE)


def _runs(pieces: Sequence[BulkPiece | None]) -> list[slice]:
    """Neighbours that store their columns alike; those that cannot be in a batch, one by one."""
    runs, begin = [], 0
    for stop in range(1, len(pieces) + 1):
        first = pieces[begin]
        if stop < len(pieces) and first is not None:
            after = pieces[stop]
            if after is not None and after.is_like(first):
                continue
        runs.append(slice(begin, stop))
        begin = stop
    return runs


def _of_rows(
    pieces: Sequence[BulkPiece],
    names: Sequence[str],
    rows: Sequence[NDArray[np.int64]],
    kernels: BulkKernels | None,
    room: Room,
) -> dict[str, Any] | None:
    """Columns of ``rows`` of pieces that store them alike; ``None`` where they must be read one by
    one."""
    if sum(map(len, rows)) <= MANY * sum(each.rows for each in pieces):
        return read_some(pieces, names, _chosen(pieces, rows), room)
    whole = read_columns(pieces, names, kernels, room)
    if whole is None:
        return None
    places = [mine + first for mine, first in zip(rows, whole.first, strict=False)]
    at = arrow(np.concatenate(places))
    return {name: _values_at(each, at) for name, each in whole.columns.items()}


@dataclass(frozen=True, slots=True, eq=False)
class BatchColumns:
    """Columns of all rows of a batch; ``first`` are the rows before each piece, and all rows."""

    columns: dict[str, Any]
    first: NDArray[np.int64]


def read_columns(
    pieces: Sequence[BulkPiece],
    names: Sequence[str],
    kernels: BulkKernels | None,
    room: Room,
    *,
    lazy: bool = False,
) -> BatchColumns | None:
    """The columns of a batch as the files store them (``lazy``: decoded when they are needed);
    ``None`` where a piece cannot be read this way."""
    arrays: Sequence[Any] | None
    if kernels is None and len(pieces) < _LEAST:
        return None
    if pieces[0].chosen is not None:
        if kernels is None:
            arrays = _taken(pieces, room)
        else:
            arrays = _read_pages(pieces, kernels, room, lazy=lazy)
    else:
        found = _read(pieces, kernels, room, lazy=lazy)
        arrays = None if found is None else found.arrays
    if arrays is None:
        return None
    counts = [each.rows for each in pieces]
    columns = _columns(pieces, names, arrays, counts)
    return BatchColumns(columns, np.concatenate([[0], np.cumsum(counts)]))


def read_some(
    pieces: Sequence[BulkPiece], names: Sequence[str], rows: Sequence[NDArray[np.int64]], room: Room
) -> dict[str, Any] | None:
    """Columns of some ``rows`` of each piece, ascending: only pages that hold one are read."""
    kinds = [each.kind for each in stored_chunks(pieces[0])]
    parts = _parts(pieces, rows)
    kernels = KERNELS.for_work(_ROWS_ALONE * len(parts) * len(kinds))
    if kernels is None:
        return None
    opened = pieces[0].piece.file.opened
    arrays = read_few_rows(
        parts,
        kinds,
        kernels,
        verify_checksums=opened.verify_checksums,
        memory=opened.memory,
        room=room,
    )
    if arrays is None:
        return None
    return _columns(pieces, names, arrays, [len(each) for each in rows])


def _taken(pieces: Sequence[BulkPiece], room: Room) -> Sequence[Any] | None:
    """The columns of the rows that are chosen, without compiled loops; ``None`` where few are."""
    chosen = [each.chosen for each in pieces if each.chosen is not None]
    stops = np.cumsum([int(each.counts.sum()) for each in pieces])
    count = sum(map(len, chosen))
    if 2 * count < stops[-1] and (_MANY_OF * count < stops[-1] or _in_runs(chosen)):
        return None
    found = _read(pieces, None, room)
    if found is None:
        return None
    starts = [0, *stops[:-1].tolist()]
    at = arrow(np.concatenate([a + each for a, each in zip(starts, chosen, strict=True)]))
    return [_values_at(array, at) for array in found.arrays]


def _values_at(column: Any, places: pa.Array) -> pa.Array:
    """Values of a ``BulkColumn``, or of a column of Arrow, whose ``take`` imports
    ``pyarrow.compute``."""
    is_arrow = isinstance(column, pa.ChunkedArray | pa.Array)
    return pc.take(column, places) if is_arrow else column.take(places)


def _chosen(
    pieces: Sequence[BulkPiece], rows: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """``rows`` of each piece, counted over its row groups."""
    return [
        mine if each.chosen is None else each.chosen[mine]
        for each, mine in zip(pieces, rows, strict=True)
    ]


def _parts(pieces: Sequence[BulkPiece], rows: Sequence[NDArray[np.int64]]) -> list[FewRows]:
    """Where ``rows`` of each piece lie; they count over its row groups."""
    parts = []
    for each, mine in zip(pieces, rows, strict=True):
        opened, chunks = each.piece.file.opened, stored_chunks(each)
        stops = np.cumsum(each.counts)
        ends = np.searchsorted(mine, stops)
        for one in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            at, first = each.groups[one], stops[one] - each.counts[one]
            here = mine[ends[one - 1] : ends[one]] - first if one else mine[: ends[one]]
            if len(here) == each.counts[one]:
                entries = tuple([chunk_entries(None, of.spans[at]) for of in chunks])
            else:
                share = len(here) / int(each.counts[one])
                entries = opened.page_entries(chunks, at, share)
            parts.append(FewRows(opened.path, opened.reader, entries, here))
    return parts


def _read_pages(
    pieces: Sequence[BulkPiece], kernels: BulkKernels, room: Room, *, lazy: bool
) -> Sequence[Any] | None:
    """The columns of the rows that are chosen."""
    opened = pieces[0].piece.file.opened
    found = read_pages(
        _parts(pieces, [each.chosen for each in pieces if each.chosen is not None]),
        [each.kind for each in stored_chunks(pieces[0])],
        kernels,
        verify_checksums=opened.verify_checksums,
        memory=opened.memory,
        room=room,
    )
    return found if lazy or found is None else [each.to_arrow() for each in found]


def _read(
    pieces: Sequence[BulkPiece],
    kernels: BulkKernels | None,
    room: Room,
    *,
    lazy: bool = False,
) -> BulkColumns | None:
    parts = [
        FilePart(
            each.piece.file.opened.path,
            each.piece.file.opened.reader,
            tuple([chunks.of(each.groups) for chunks in stored_chunks(each)]),
        )
        for each in pieces
    ]
    opened = pieces[0].piece.file.opened
    found = read_bulk(
        parts,
        [each.kind for each in stored_chunks(pieces[0])],
        kernels,
        lazy=lazy,
        verify_checksums=opened.verify_checksums,
        memory=opened.memory,
        room=room,
    )
    return found if found.done.all() else None


def _columns(
    pieces: Sequence[BulkPiece],
    names: Sequence[str],
    arrays: Sequence[Any],
    counts: Sequence[int],
) -> dict[str, Any]:
    """The columns by name: ``arrays`` of stored ones, and repeated values of the others."""
    columns: dict[str, Any] = {}
    left = iter(arrays)
    for at, (name, source) in enumerate(zip(names, pieces[0].sources, strict=True)):
        if isinstance(source, Given):
            values = [each.sources[at].value for each in pieces]  # type: ignore[union-attr]  # alike
            columns[name] = repeated(values, counts)
        else:
            columns[name] = next(left)
    return columns
