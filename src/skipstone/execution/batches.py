"""Pieces of a plan that are read together: whole row groups or some rows of them, and where their
columns lie."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.parquet.reading.bulk_columns import LeafChunks
from skipstone.predicate.types import column_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from skipstone.parquet.reading.file import ParquetFile
    from skipstone.pruning import RowSet

    from .file_columns import FileColumns
    from .table_files import Piece


#: Rows are read one by one up to this share of them. Above it, nearly every page holds one.
MANY: Final = 0.2
# The most pieces of a batch, and about the most bytes, stored and decoded. The allocator returns
# larger buffers to the system after each batch, and then page faults cost time.
_MOST_PIECES: Final = 32
_MOST_BYTES: Final = 40 << 20


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
    """A piece of row groups; the source of each of its columns."""

    piece: Piece
    groups: tuple[int, ...]
    #: first row of each row group in the file, and the rows of each
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    sources: tuple[LeafChunks | Given, ...]
    #: about how many bytes its columns take, stored and decoded; and rows
    size: int
    rows: int
    #: the rows that are read, ascending, counted over its row groups; ``None`` for all
    chosen: NDArray[np.int64] | None = None

    def split(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For ``rows`` of the piece, ascending: which of its row groups, and the row in it."""
        if len(self.groups) == 1:
            return np.zeros(len(rows), np.int64), rows
        ends = np.cumsum(self.counts)
        group = np.searchsorted(ends, rows, side="right")
        return group, rows - (ends - self.counts)[group]

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the file of ``rows`` of the piece, ascending."""
        group, inside = self.split(rows if self.chosen is None else self.chosen[rows])
        return self.starts[group] + inside

    def is_like(self, other: BulkPiece) -> bool:
        """Whether both can be in one batch."""
        if (self.chosen is None) != (other.chosen is None) or self.piece.sure != other.piece.sure:
            return False
        for one, two in zip(self.sources, other.sources, strict=True):
            if isinstance(one, LeafChunks) and isinstance(two, LeafChunks):
                # Equal kinds of files of one schema are one object.
                if one.kind is not two.kind and one.kind != two.kind:
                    return False
            elif one != two:
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Pieces that are read together; ``names`` are the columns that their ``sources`` give."""

    pieces: tuple[BulkPiece, ...]
    names: tuple[str, ...]

    @property
    def is_small(self) -> bool:
        """Whether these are a few rows of one piece: another thread would take longer to start."""
        first = self.pieces[0]
        return len(self.pieces) == 1 and first.chosen is not None and first.piece.is_small

    @property
    def rows(self) -> int:
        """Rows of all pieces."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def sure(self) -> bool:
        """Whether all rows match."""
        return self.pieces[0].piece.sure

    def places(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For rows ``at`` of the batch, ascending: the ordinals of their files, and their positions
        in these."""
        first = np.cumsum([0, *(piece.rows for piece in self.pieces)])
        bounds = np.searchsorted(at, first)
        ordinals = [each.piece.file.ordinal for each in self.pieces]
        positions = [
            each.positions(at[bounds[n] : bounds[n + 1]] - first[n])
            for n, each in enumerate(self.pieces)
        ]
        return np.repeat(np.array(ordinals, np.int64), np.diff(bounds)), np.concatenate(positions)


def bulk_piece(piece: Piece, names: Sequence[str]) -> BulkPiece | None:
    """``piece`` for a batch of these columns of the table; ``None`` where it cannot be in one."""
    file = piece.file
    if piece.rows is not None:
        held = _described(file, names, piece.rows)
    else:
        key = tuple(names)
        if key not in file.whole:
            file.whole[key] = _described(file, names, None)
        held = file.whole[key]
    return None if held is None else BulkPiece(piece, *held)


def with_columns(held: BulkPiece, names: Sequence[str]) -> BulkPiece | None:
    """The piece with other columns."""
    if held.chosen is None:
        return bulk_piece(held.piece, names)
    sources = _sources(held.piece.file, names)
    return None if sources is None else replace(held, sources=sources)


def _described(file: FileColumns, names: Sequence[str], rows: RowSet | None) -> Any:
    """The fields of a ``BulkPiece`` after ``piece``."""
    found = (*file.opened.row_group_rows, None) if rows is None else _some_rows(rows, file.opened)
    sources = None if found is None else _sources(file, names)
    if found is None or sources is None:
        return None
    groups, starts, counts, chosen = found
    size = sum(each.size(groups) for each in sources if isinstance(each, LeafChunks))
    every = int(counts.sum())
    if chosen is None:
        return groups, starts, counts, sources, size, every, None
    if len(chosen) <= MANY * every:
        size = size * len(chosen) // every
    return groups, starts, counts, sources, size, len(chosen), chosen


def _some_rows(
    rows: RowSet, opened: ParquetFile
) -> tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None] | None:
    """The row groups that hold ``rows``, their first rows and their counts, and the positions of
    the rows over these row groups, ``None`` for all. ``None`` where there are no rows."""
    row_starts = opened.row_starts
    held = rows.counts(row_starts)
    used = np.flatnonzero(held)
    if not len(used) or int(held.sum()) < len(rows):  # the file has fewer rows
        return None
    held, counts = held[used], np.diff(row_starts)[used]
    found = tuple(used.tolist()), row_starts[used], counts
    if np.array_equal(held, counts):
        return *found, None
    before = row_starts[used] - (np.cumsum(counts) - counts)
    positions = rows.positions()
    return *found, positions - before.repeat(held) if before.any() else positions


def _sources(file: FileColumns, names: Sequence[str]) -> tuple[LeafChunks | Given, ...] | None:
    found: list[LeafChunks | Given] = []
    opened = file.opened
    for name in names:
        path = column_path(name)
        given = file.given(path[0])
        if given is not None:
            found.append(Given(given))
            continue
        if len(path) > 1 or file.naming.below(path[0]):
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


def batches(
    pieces: Iterable[Piece],
    names_of: Sequence[str],
    sure_names: Sequence[str],
    sizes: Sequence[int],
) -> Iterator[Piece | Batch]:
    """The pieces in order; neighbours that can be read together become batches. ``sizes`` are the
    most pieces of the first batches; after them each batch may have twice as many as the last, so
    that a limit does not read too much.

    ``names_of`` are the columns to read first, ``sure_names`` those of pieces whose rows surely
    match.
    """
    held: list[BulkPiece] = []
    left = iter(sizes)
    size, most = 0, next(left, 1)
    for piece in pieces:
        names = sure_names if piece.sure else names_of
        found = bulk_piece(piece, names) if names else None
        more = 0 if found is None else found.size
        if held and (
            found is None
            or not found.is_like(held[0])
            or len(held) >= most
            or size + more > _MOST_BYTES
        ):
            yield _batch(held, names_of, sure_names)
            held, size, most = [], 0, next(left, min(2 * most, _MOST_PIECES))
        if found is None:
            yield piece
        else:
            held.append(found)
            size += more
    if held:
        yield _batch(held, names_of, sure_names)


def _batch(held: list[BulkPiece], names_of: Sequence[str], sure_names: Sequence[str]) -> Batch:
    return Batch(tuple(held), tuple(sure_names if held[0].piece.sure else names_of))


def stored_chunks(piece: BulkPiece) -> list[LeafChunks]:
    """The chunks of the columns that the file has."""
    return [each for each in piece.sources if isinstance(each, LeafChunks)]


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
