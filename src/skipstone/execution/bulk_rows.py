"""Batches of row groups whose columns are decoded together.

Pieces that cover whole row groups, of columns in the usual forms (``bulk_columns``), are combined
over files. A batch is read as one table: the columns of the predicate, then the predicate once for
all rows, then the other columns, of which only pages with a matching row are read. Pieces that a
page index has cut are read one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.parquet.reading.bulk_chunks import KERNELS
from skipstone.parquet.reading.bulk_columns import (
    BulkColumns,
    FilePart,
    LeafChunks,
    read_bulk,
)
from skipstone.parquet.reading.decoding_memory import (
    bytes_of_strings,
    limit_of,
    without_dictionary,
)
from skipstone.parquet.reading.row_ranges import rows_alone
from skipstone.predicate.types import column_name, column_path
from skipstone.pruning import RowSet
from skipstone.pruning.residual import matching, require_decidable

from .table_files import in_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.reading.bulk_chunks import BulkKernels
    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.predicate.tree import Bound

    from .table_files import FileColumns, Piece


#: reads columns of some rows of one file, in the types of the table
OtherColumns: TypeAlias = "Callable[[FileColumns, Sequence[str], RowSet], pa.Table]"

# A batch has at most so many pieces, and about so many bytes, stored and decoded. Larger buffers
# are given back to the system after each batch, and cost page faults.
_MOST_PIECES: Final = 32
_MOST_BYTES: Final = 24 << 20
#: The other columns are read for the matching rows alone up to this share of matching rows. Above
#: it, nearly every page holds one.
MANY: Final = 0.2
# Types of strings, and those with 32-bit offsets of the same.
_NARROW: Final = {
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A column with one value in all rows of a file."""

    value: pa.Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and self.value.type == other.value.type

    def __hash__(self) -> int:
        return hash(Given)


@dataclass(frozen=True, slots=True, eq=False)
class BulkPiece:
    """A piece of whole row groups; the source of each of its columns."""

    piece: Piece
    groups: tuple[int, ...]
    #: first row of each row group in the file, and the rows of each
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    sources: tuple[LeafChunks | Given, ...]

    @property
    def size(self) -> int:
        """About how many bytes its columns take, stored and decoded."""
        return sum(chunks.size(self.groups) for chunks in _stored(self))

    @property
    def rows(self) -> int:
        """Rows of the piece."""
        return int(self.counts.sum())

    def split(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For ``rows`` of the piece, ascending: which of its row groups, and the row in it."""
        ends = np.cumsum(self.counts)
        group = np.searchsorted(ends, rows, side="right")
        return group, rows - (ends - self.counts)[group]

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the file of ``rows`` of the piece, ascending."""
        group, inside = self.split(rows)
        return self.starts[group] + inside

    def is_like(self, other: BulkPiece) -> bool:
        """Whether both can be in one batch."""
        return self.piece.sure == other.piece.sure and all(
            one.kind == two.kind
            if isinstance(one, LeafChunks) and isinstance(two, LeafChunks)
            else one == two
            for one, two in zip(self.sources, other.sources, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Pieces that are read together; ``names`` are the columns that their ``sources`` give."""

    pieces: tuple[BulkPiece, ...]
    names: tuple[str, ...]

    is_small = False

    @property
    def rows(self) -> int:
        """Rows of all pieces."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def sure(self) -> bool:
        """Whether all rows match."""
        return self.pieces[0].piece.sure


def bulk_piece(piece: Piece, names: Sequence[str]) -> BulkPiece | None:
    """``piece`` for a batch of these columns of the table; ``None`` where it does not fit one."""
    file = piece.file
    sources = _sources(file, names)
    if sources is None:
        return None
    found = _row_groups(piece.rows, file.opened)
    return None if found is None else BulkPiece(piece, *found, sources)


def _sources(file: FileColumns, names: Sequence[str]) -> tuple[LeafChunks | Given, ...] | None:
    found: list[LeafChunks | Given] = []
    opened = file.opened
    for name in names:
        path = column_path(name)
        given = file.table.partition_value(path[0], file.ordinal)
        if given is not None:
            found.append(Given(given))
            continue
        if len(path) > 1:
            return None
        read = file.read_path(name)
        if read is None or len(read) > 1:
            return None
        chunks = opened.bulk_chunks(opened.selection.of_paths((read,))[0])
        if chunks is None:
            return None
        found.append(chunks)
    if not any(isinstance(each, LeafChunks) for each in found):
        return None
    return tuple(found)


def _row_groups(
    rows: RowSet | None, opened: ParquetFile
) -> tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int64]] | None:
    """The row groups that ``rows`` are, with their first rows and counts; ``None`` where they are
    only a part of one."""
    if rows is None:
        return opened.row_group_rows
    row_starts = opened.row_starts
    starts, stops = rows.ranges()
    first, last = np.searchsorted(row_starts, starts), np.searchsorted(row_starts, stops)
    if (
        not len(starts)
        or last[-1] >= len(row_starts)
        or np.any(row_starts[first] != starts)
        or np.any(row_starts[last] != stops)
    ):
        return None
    inside = [np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    at = np.concatenate(inside)
    counts = np.diff(row_starts)
    at = at[counts[at] > 0]
    return tuple(at.tolist()), row_starts[at], counts[at]


def batches(
    pieces: Iterable[Piece], names_of: Sequence[str], sure_names: Sequence[str]
) -> Iterator[Piece | Batch]:
    """The pieces in order, those that fit together as batches.

    ``names_of`` are the columns to read first, ``sure_names`` those of pieces whose rows surely
    match. The first batches are small, so that a limit does not read too much.
    """
    held: list[BulkPiece] = []
    size, most = 0, 1
    for piece in pieces:
        names = sure_names if piece.sure else names_of
        found = bulk_piece(piece, names) if names else None
        if held and (
            found is None
            or not found.is_like(held[0])
            or len(held) >= most
            or size + found.size > _MOST_BYTES
        ):
            yield _batch(held, names_of, sure_names)
            held, size, most = [], 0, min(2 * most, _MOST_PIECES)
        if found is None:
            yield piece
        else:
            held.append(found)
            size += found.size
    if held:
        yield _batch(held, names_of, sure_names)


def _batch(held: list[BulkPiece], names_of: Sequence[str], sure_names: Sequence[str]) -> Batch:
    return Batch(tuple(held), tuple(sure_names if held[0].piece.sure else names_of))


class BatchReader:
    """Reads batches: the rows that match ``tree``, as ``schema``, whose fields ``wanted`` gives
    with the columns below them. ``None`` where the pieces must be read one by one."""

    def __init__(self, tree: Bound, schema: pa.Schema, wanted: Mapping[str, Sequence[str]]) -> None:
        self.tree, self.schema, self.wanted = tree, schema, wanted

    def count(self, batch: Batch) -> int | None:
        """How many rows match."""
        kernels = _kernels(batch)
        read = None if kernels is None else read_columns(batch.pieces, batch.names, kernels)
        return None if read is None else int(np.count_nonzero(self._matching(read)))

    def read(self, batch: Batch, other: OtherColumns) -> pa.Table | None:
        """The matching rows; ``other`` reads further columns of one file."""
        kernels = _kernels(batch)
        read = None if kernels is None else read_columns(batch.pieces, batch.names, kernels)
        if kernels is None or read is None:
            return None
        columns = _by_field(read.columns)
        if batch.sure:
            return self._table(batch.pieces, columns, int(read.first[-1]))
        at = np.flatnonzero(self._matching(read))
        if not len(at):
            return self.schema.empty_table()
        places = pa.array(at)
        have = {
            name: column.take(places) for name, column in columns.items() if name in self.wanted
        }
        rest = [each for name, below in self.wanted.items() if name not in have for each in below]
        if rest:
            have |= _by_field(_rest(batch.pieces, rest, at, read.first, kernels, other))
        return self._table(batch.pieces, have, len(at))

    def _matching(self, read: BatchColumns) -> NDArray[np.bool_]:
        require_decidable(self.tree)
        return matching(self.tree, read.columns, int(read.first[-1]))

    def _table(
        self, pieces: Sequence[BulkPiece], have: Mapping[str, Any], rows: int
    ) -> pa.Table | None:
        """The output columns from columns of a batch; ``None`` where they take more memory than the
        limit."""
        if not self.schema.names:
            return rows_alone(rows)
        made, path = [], pieces[0].piece.file.opened.path
        for field in self.schema:
            column = have[field.name]
            if isinstance(column, pa.DictionaryArray) and not pa.types.is_dictionary(field.type):
                column = _decoded(column, pieces)
                if column is None:
                    return None
            if not isinstance(column, pa.ChunkedArray):
                column = pa.chunked_array([column])
            made.append(in_type(column, field, path))
        return pa.Table.from_arrays(made, schema=self.schema)


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
    stored = sum(chunks.size(each.groups) for each in pieces for chunks in _stored(each))
    limit, whole = limit_of(opened.memory, stored), pa.chunked_array([column])
    if bytes_of_strings(whole, limit) > limit:
        return None
    return without_dictionary(whole, type)


def _by_field(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the root by the names of their fields, which may be quoted in their own."""
    return {column_path(name)[0]: column for name, column in columns.items()}


def _kernels(batch: Batch) -> BulkKernels | None:
    """The compiled loops, where they pay for this work."""
    return KERNELS.for_work(batch.rows * len(batch.names))


def _rest(
    pieces: Sequence[BulkPiece],
    names: Sequence[str],
    at: NDArray[np.int64],
    first: NDArray[np.int64],
    kernels: BulkKernels,
    other: OtherColumns,
) -> dict[str, Any]:
    """Columns of the rows ``at`` of a batch, whose pieces begin at rows ``first``."""
    bounds = np.searchsorted(at, first)
    hit = np.flatnonzero(np.diff(bounds)).tolist()
    rows = [at[bounds[n] : bounds[n + 1]] - first[n] for n in hit]
    found = [bulk_piece(pieces[n].piece, names) for n in hit]
    alike = [each for each in found if each is not None]
    if len(alike) == len(hit) and all(each.is_like(alike[0]) for each in alike):
        some = None
        if len(at) <= MANY * first[-1]:
            some = read_some(alike, names, rows, kernels)
        elif len(hit) == len(pieces):
            whole = read_columns(alike, names, kernels)
            if whole is not None:
                places = pa.array(at)
                some = {name: each.take(places) for name, each in whole.columns.items()}
        if some is not None:
            return some
    later = [
        other(pieces[n].piece.file, names, RowSet.of(pieces[n].positions(mine)))
        for n, mine in zip(hit, rows, strict=True)
    ]
    table = pa.concat_tables(later)
    return {column_name((name,)): table.column(name) for name in table.column_names}


@dataclass(frozen=True, slots=True, eq=False)
class BatchColumns:
    """Columns of all rows of a batch; ``first`` are the rows before each piece, and all rows."""

    columns: dict[str, Any]
    first: NDArray[np.int64]


def read_columns(
    pieces: Sequence[BulkPiece], names: Sequence[str], kernels: BulkKernels
) -> BatchColumns | None:
    """The columns of a batch as the files store them, strings by dictionary; ``None`` where a piece
    cannot be read this way."""
    spans = [
        tuple([[chunks.spans[group] for group in each.groups] for chunks in _stored(each)])
        for each in pieces
    ]
    found = _read(pieces, spans, kernels)
    if found is None:
        return None
    counts = [each.rows for each in pieces]
    columns = _columns(pieces, names, found.arrays, counts)
    return BatchColumns(columns, np.concatenate([[0], np.cumsum(counts)]))


def read_some(
    pieces: Sequence[BulkPiece],
    names: Sequence[str],
    rows: Sequence[NDArray[np.int64]],
    kernels: BulkKernels,
) -> dict[str, Any] | None:
    """The same for some ``rows`` of each piece, ascending: only pages that hold one are read."""
    stored = len(_stored(pieces[0]))
    spans: list[Any] = []
    of_column: list[list[tuple[int, NDArray[np.int64]]]] = [[] for _ in range(stored)]
    for each, mine in zip(pieces, rows, strict=True):
        group, inside = each.split(mine)
        used = np.flatnonzero(np.bincount(group)).tolist()
        columns = []
        for at, chunks in enumerate(_stored(each)):
            made = []
            for one in used:
                span, local = each.piece.file.opened.bulk_span(
                    chunks, each.groups[one], inside[group == one]
                )
                made.append(span)
                of_column[at].append((span.rows, local))
            columns.append(made)
        spans.append(tuple(columns))
    found = _read(pieces, spans, kernels)
    if found is None:
        return None
    arrays = []
    for array, read in zip(found.arrays, of_column, strict=True):
        before = np.cumsum([0, *(count for count, _ in read)]).tolist()
        at_rows = [local + first for (_, local), first in zip(read, before, strict=False)]
        arrays.append(array.take(pa.array(np.concatenate(at_rows))))
    return _columns(pieces, names, arrays, [len(each) for each in rows])


def _stored(piece: BulkPiece) -> list[LeafChunks]:
    return [each for each in piece.sources if isinstance(each, LeafChunks)]


def _read(
    pieces: Sequence[BulkPiece], spans: Sequence[Any], kernels: BulkKernels
) -> BulkColumns | None:
    parts = [
        FilePart(each.piece.file.opened.path, each.piece.file.opened.reader, columns)
        for each, columns in zip(pieces, spans, strict=True)
    ]
    opened = pieces[0].piece.file.opened
    found = read_bulk(
        parts,
        [each.kind for each in _stored(pieces[0])],
        kernels,
        verify_checksums=opened.verify_checksums,
        memory=opened.memory,
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


def repeated(values: Sequence[pa.Scalar], counts: Sequence[int]) -> pa.DictionaryArray:
    """Each value for its count of rows."""
    places = np.repeat(np.arange(len(values), dtype=np.int32), counts)
    given = pa.array([value.as_py() for value in values], values[0].type)
    nulls = np.asarray(given.is_null())
    mask = nulls[places] if nulls.any() else None
    if nulls.any():
        keep = np.flatnonzero(~nulls)
        back = np.zeros(len(values), np.int32)
        back[keep] = np.arange(len(keep))
        places, given = back[places], given.drop_null()
        if not len(given):
            return pa.nulls(len(places), given.type)
    return pa.DictionaryArray.from_arrays(pa.array(places, mask=mask), given, safe=False)
