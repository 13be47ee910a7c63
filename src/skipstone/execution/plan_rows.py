"""The rows of a plan as Arrow tables, in the order of the listing and of the files.

The reader cuts a plan into pieces: row groups of one file whose pages fit into memory together. It
works on several pieces at a time. For each piece it reads the columns of the predicate first and
finds the matching rows exactly. Then it reads only those pages of the other columns that hold a
matching row. Rows that the plan proves to match are not checked again.

Where many files are read whole, pieces are combined into batches (``batches``): their columns are
decoded together, and the predicate is evaluated once for all of them.

A file that has changed since it was listed is read completely and checked row by row, because its
indexes describe another version. A file that changes after it was opened is a ``StaleError``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._arrays import no_rows
from skipstone.errors import SkipstoneError, StaleError
from skipstone.parquet.reading.row_ranges import joined, rows_alone, take_rows
from skipstone.predicate.tree import Bound, columns_read
from skipstone.predicate.types import column_name, column_path
from skipstone.pruning import RowSet
from skipstone.pruning.residual import matching, require_decidable

from .batches import MANY, Batch, batches
from .bulk_rows import BatchReader
from .table_files import Footers, Piece
from .table_types import by_field, in_type, output_schema, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning.plan import Plan

    from .file_columns import FileColumns


# Bytes of a piece, stored and decoded. Several pieces are in memory at a time.
_PIECE = 64 << 20
# In an object store, all columns of a piece up to these sizes, stored and decoded, are read at
# once: a piece that indexes have cut, and a whole file.
_TOGETHER, _WHOLE = 512 << 10, 128 << 10
# On a disk, all columns of a whole file up to this size, if it is the only one that is left.
_ALONE = 512 << 10
# With more files than this, small pieces go to other threads too.
_FEW = 16
# The most files that are divided evenly among the threads at once, and how often that is done. Of
# more files, the first batches are small.
_ROUND, _ROUNDS = 32, 2
# The most rows of an array that repeats one value.
_REPEATED = 1 << 20


def plan_of(plan: Plan, files: NDArray[np.int64] | Sequence[int]) -> Plan:
    """``plan`` with only those of its files that ``files`` names."""
    keep = np.zeros_like(plan.keep)
    keep[files] = True
    return replace(plan, keep=keep & plan.keep)


class TableReader:
    """Reads ``columns`` of the rows that match ``tree``.

    ``columns`` are names of the table (or dotted paths below them), ``None`` for all.
    """

    def __init__(self, footers: Footers, tree: Bound, columns: Sequence[str] | None) -> None:
        self.footers, self.files, self.tree = footers, footers.files, tree
        self.table = table = footers.table
        self.asked = columns_read(tree)
        self.schema = output_schema(table.schema, columns)
        names = [column_name((name,)) for name in table.schema.names]
        self.columns = names if columns is None else resolved(table.schema, columns)
        self._wanted = by_field(self.columns)
        self._batches = BatchReader(tree, self.schema, self._wanted, footers.files.scratch)
        #: the leaves to read in files of one schema, and whether all rows match
        self._touched: dict[tuple[object, ...], tuple[int, ...]] = {}
        # Whether there are many files: then Arrow reads whole columns, since it starts more slowly
        # but holds the interpreter's lock for less time. And whether one file is left.
        self._scans = self._alone = False

    # -- pieces ------------------------------------------------------------------------------------

    def pieces(self, plan: Plan) -> Iterator[Piece]:
        """The pieces of the plan; files are opened a few ahead."""
        kept = np.flatnonzero(plan.keep).tolist()
        step = max(64, self.files.workers)
        for first in range(0, len(kept), step):
            wave = kept[first : first + step]
            self.footers.open(wave)
            for at in wave:
                yield from self.pieces_of(plan, at)

    def pieces_of(self, plan: Plan, at: int) -> Iterator[Piece]:
        """The pieces of one opened file."""
        if at in self.footers.failed:
            raise self.footers.failed[at]
        file = self.footers.opened[at]
        rows: RowSet | None = None
        sure = False
        if self.footers.fresh(at):
            detail = plan.details.get(at)
            sure = bool(plan.must[at])
            if detail is not None:
                rows, sure = detail.rows, sure or detail.exact
                if rows is not None and len(rows) == file.opened.num_rows:
                    rows = None
        if at in plan.deleted and not (
            self.footers.fresh(at) and file.opened.num_rows == plan.row_counts[at]
        ):
            # Positions of deleted rows belong to one version of the file.
            raise StaleError(
                f"{file.opened.path} is not the file of {plan.row_counts[at]:,} rows of which "
                f"{plan.deleted[at]:,} are deleted",
                hint="data files of a table format never change: the file was replaced",
            )
        yield from self.cut(Piece(file, rows, sure))

    def cut(self, piece: Piece) -> Iterator[Piece]:
        """Splits a piece into parts that fit into memory."""
        opened, rows = piece.file.opened, piece.rows
        key = opened.selection.shared, piece.file.naming, piece.sure
        touched = self._touched.get(key)
        if touched is None:
            names = self.asked if not piece.sure else {}
            touched = tuple(self.leaves_of(piece.file, [*names, *self.columns]))
            self._touched[key] = touched
        size = opened.read_size(touched)
        if size <= _PIECE:
            count = opened.num_rows
            if rows is not None:
                # Pages are read whole, so this is too low for a few rows.
                size, count = size * len(rows) // max(count, 1), len(rows)
            if count:
                yield Piece(piece.file, rows, piece.sure, size)
            return
        for part, size in opened.row_waves(touched, rows, _PIECE):
            yield Piece(piece.file, part, piece.sure, size)

    def leaves_of(self, file: FileColumns, columns: Sequence[str]) -> list[int]:
        """Ordinals of the leaves to read for these columns of the table."""
        opened = file.opened
        paths = [path for each in columns if (path := file.read_path(each)) is not None]
        fields = opened.selection.of_paths(paths)
        return sorted({leaf for field in fields for leaf in field.shape.leaves})

    # -- rows --------------------------------------------------------------------------------------

    def tables(self, plan: Plan) -> Iterator[pa.Table]:
        """The matching rows, piece by piece; tables without rows are left out."""
        return (found for found in self._read_units(self._units(plan)) if found.num_rows)

    def tables_of(self, pieces: Iterable[Piece], files: int) -> Iterator[pa.Table]:
        """The matching rows of pieces of this many files, in their order."""
        return self._read_units(self.units(pieces, files))

    def by_file(self, plan: Plan) -> Iterator[tuple[str, pa.Table]]:
        """The matching rows of each file with its path, in pieces of which some have no row."""
        files = int(np.count_nonzero(plan.keep))
        units = (
            (piece.file.opened.path, unit)
            for piece in self.pieces(plan)
            for unit in self.units([piece], files)
        )
        return self.files.ahead(
            lambda each: (each[0], self._read_unit(each[1])),
            units,
            lambda each: each[1].is_small and not self._scans,
        )

    def _read_units(self, units: Iterable[Piece | Batch]) -> Iterator[pa.Table]:
        return self.files.ahead(
            self._read_unit, units, lambda unit: unit.is_small and not self._scans
        )

    def counted(self, plan: Plan) -> int:
        """How many rows match."""
        sure = np.flatnonzero(plan.keep & plan.must).tolist()
        self.footers.open(sure)
        keep, total = plan.keep.copy(), 0
        for at in sure:
            if self.footers.fresh(at) and at not in plan.details:
                total += int(self.footers.opened[at].opened.row_starts[-1])
                keep[at] = False
        if not keep.any():
            return total
        every = self.files.ahead(
            self._count_unit,
            self._units(replace(plan, keep=keep)),
            lambda unit: unit.is_small and not self._scans,
        )
        return total + sum(every)

    def _units(self, plan: Plan) -> Iterator[Piece | Batch]:
        """The pieces of the plan, of many files in batches."""
        return self.units(self.pieces(plan), int(np.count_nonzero(plan.keep)))

    def units(self, pieces: Iterable[Piece], files: int) -> Iterator[Piece | Batch]:
        """``pieces``, in batches where files are local; ``files``, their number, decides the sizes
        of the batches, so that all threads have work."""
        self._scans, self._alone = files > _FEW, files == 1
        if self.files.storage.remote:
            return iter(pieces)
        rounds = -(-files // _ROUND)
        each = _shares(files, rounds * self.files.workers) if rounds <= _ROUNDS else ()
        return batches(pieces, list(self.asked), self.columns, each)

    def batch_with_rows(self, batch: Batch) -> tuple[NDArray[np.int64], pa.Table] | None:
        """The matching rows of a batch and their positions in it; ``None`` where its pieces must be
        read one by one."""
        with suppress(SkipstoneError):
            return self._batches.read_with_rows(batch, self._columns)
        return None

    def _read_unit(self, unit: Piece | Batch) -> pa.Table:
        if isinstance(unit, Piece):
            return self.read(unit)
        found = None
        with suppress(SkipstoneError):  # one by one, the error names its file
            found = self._batches.read(unit, self._columns)
        if found is not None:
            return found
        return joined([self.read(each.piece) for each in unit.pieces])

    def _count_unit(self, unit: Piece | Batch) -> int:
        if isinstance(unit, Piece):
            return self.count(unit)
        found = None
        with suppress(SkipstoneError):
            found = None if unit.sure else self._batches.count(unit)
        return sum(self.count(each.piece) for each in unit.pieces) if found is None else found

    def read(self, piece: Piece) -> pa.Table:
        """The matching rows of one piece.

        ``UnsupportedError`` where the reader cannot evaluate a part of the predicate.
        """
        try:
            return self._read(piece)
        except StaleError as error:
            self.files.forget(piece.file.opened.path)
            raise StaleError(
                f"{piece.file.opened.path} changed while it was read",
                hint="query again: the new version has no facts, and is read in full",
            ) from error

    def _read(self, piece: Piece) -> pa.Table:
        every = True if piece.sure else self._for_all(piece.file)
        if every is not None:
            if not every:
                return no_rows(self.schema)
            return self._columns(piece.file, self.columns, piece.rows)
        found, at, asked = self.decided(piece)
        if not len(at):
            return no_rows(self.schema)
        return self._assembled(piece, found, at, asked)

    def read_with_rows(self, piece: Piece) -> tuple[NDArray[np.int64], pa.Table]:
        """The matching rows of one piece, and the position of each in its file."""
        rows = RowSet.all(piece.file.opened.num_rows) if piece.rows is None else piece.rows
        if piece.sure or self._for_all(piece.file) is not None:
            table = self.read(piece)
            return (rows.positions() if table.num_rows else np.empty(0, np.int64)), table
        found, at, asked = self.decided(piece)
        if not len(at):
            return np.empty(0, np.int64), no_rows(self.schema)
        return found.positions(), self._assembled(piece, found, at, asked)

    def _for_all(self, file: FileColumns) -> bool | None:
        """Whether all rows of a file match, or none; ``None`` where its columns decide.

        A file without any column of the predicate needs no values, however many rows it claims.
        """
        if any(file.read_path(each) is not None for each in self.asked):
            return None
        require_decidable(self.tree)
        columns = {name: file.values(name, {}, 1, type) for name, type in self.asked.items()}
        return bool(matching(self.tree, columns, 1, file.opened.path)[0])

    def count(self, piece: Piece) -> int:
        """How many rows of one piece match."""
        every: bool | None = True if piece.sure else self._for_all(piece.file)
        if every is None:
            return int(np.count_nonzero(self._matches(piece)[0]))
        rows = piece.file.opened.num_rows if piece.rows is None else len(piece.rows)
        return rows if every else 0

    def _matches(
        self, piece: Piece, with_: Sequence[tuple[str, ...]] = ()
    ) -> tuple[NDArray[np.bool_], pa.Table]:
        """Whether each row of the piece matches, and the columns of the predicate as read, with
        others."""
        require_decidable(self.tree)
        file = piece.file
        paths = [path for each in self.asked if (path := file.read_path(each)) is not None]
        paths += with_
        asked = self._rows_of(file, paths, piece.rows)
        count = asked.num_rows
        have = dict(zip(asked.column_names, asked.columns, strict=True))
        columns = {name: file.values(name, have, count, type) for name, type in self.asked.items()}
        return matching(self.tree, columns, count, file.opened.path), asked

    def decided(self, piece: Piece) -> tuple[RowSet, NDArray[np.int64], pa.Table]:
        """The matching rows of the file, their positions within the piece, and the columns of the
        predicate as read, with others that are read with them."""
        mask, asked = self._matches_with(piece, self.with_predicate(piece))
        at = np.flatnonzero(mask)
        if len(at) == len(mask):
            rows = piece.rows if piece.rows is not None else RowSet.all(len(mask))
        elif piece.rows is None:
            rows = RowSet.of(at)
        else:
            rows = RowSet.of(piece.rows.at(at))
        return rows, at, asked

    def _matches_with(
        self, piece: Piece, others: Sequence[tuple[str, ...]]
    ) -> tuple[NDArray[np.bool_], pa.Table]:
        if others:
            # A column that cannot be read matters only where a row matches.
            with suppress(SkipstoneError):
                return self._matches(piece, others)
        return self._matches(piece)

    def with_predicate(self, piece: Piece) -> list[tuple[str, ...]]:
        """The columns of the result to read together with those of the predicate: all flat ones,
        where an index has left few pages of an object, or where one small local file is left. A
        second read would take longer than their bytes."""
        whole = piece.rows is None
        if self.files.storage.remote:
            most = _WHOLE if whole else _TOGETHER
        else:
            most = _ALONE if whole and self._alone else 0
        if piece.size > most:
            return []
        schema, names = piece.file.opened.schema, piece.file.opened.schema.names
        found = (piece.file.path(column_name((name,))) for name in self._wanted)
        flat = (path for path in found if path is not None and names.count(path[0]) == 1)
        return [path for path in flat if not pa.types.is_nested(schema.field(path[0]).type)]

    def _rows_of(
        self, file: FileColumns, paths: Sequence[tuple[str, ...]], rows: RowSet | None
    ) -> pa.Table:
        """The values at ``paths``: a column for each root."""
        from skipstone.parquet.reading.whole_columns import read_whole

        if not paths:
            count = file.opened.num_rows if rows is None else len(rows)
            return rows_alone(count)
        fields = file.opened.selection.of_paths(list(dict.fromkeys(paths)))
        if self._scans and (rows is None or len(rows) == file.opened.num_rows):
            whole = read_whole(file.opened, fields)
            if whole is not None:
                return whole
        return file.opened.read_fields(fields, rows)

    def _assembled(
        self, piece: Piece, found: RowSet, at: NDArray[np.int64], asked: pa.Table
    ) -> pa.Table:
        """The output columns of the matching rows; columns in memory are not read again."""
        file = piece.file
        every = len(at) == asked.num_rows
        have: dict[str, pa.ChunkedArray] = {}
        for name in self._wanted:
            path = file.path(column_name((name,)))
            if path is None or path[0] not in asked.column_names:
                continue
            if not pa.types.is_nested(file.opened.schema.field(path[0]).type):
                have[name] = asked.column(path[0])
        if have and not every:
            taken = take_rows(pa.table(list(have.values()), names=list(have)), at)
            have = {name: taken.column(name) for name in have}
        rest = [
            each for name, columns in self._wanted.items() if name not in have for each in columns
        ]
        if not rest:
            return self._table(file, have, len(at))
        if not every and len(at) > MANY * asked.num_rows:
            later = take_rows(self._columns(file, rest, piece.rows), at)
        else:
            few = self._few(file, rest, found)
            if few is not None:
                return self._table(file, have | few, len(at))
            later = self._columns(file, rest, found)
        whole = {name: later.column(name) for name in later.column_names}
        return self._table(file, have, len(at), whole=whole)

    def _few(
        self, file: FileColumns, names: Sequence[str], rows: RowSet
    ) -> dict[str, pa.ChunkedArray] | None:
        """Columns of a few rows of a file as it stores them; ``None`` where they are read as those
        of many."""
        if self.files.storage.remote:
            return None
        stored = [name for name in names if file.read_path(name) is not None]
        with suppress(SkipstoneError):  # the other way has the error
            found = self._batches.few(Piece(file, rows, sure=True), stored) if stored else None
            if found is not None:
                return {
                    column_path(name)[0]: pa.chunked_array([each]) for name, each in found.items()
                }
        return None

    def _columns(self, file: FileColumns, columns: Sequence[str], rows: RowSet | None) -> pa.Table:
        """Columns of the table for some rows of a file, in the table's types."""
        paths = [path for each in columns if (path := file.read_path(each)) is not None]
        read = self._rows_of(file, paths, rows)
        names, have = frozenset(read.column_names), dict[str, pa.ChunkedArray]()
        for name in by_field(columns):
            path = file.path(column_name((name,)))
            if path is not None and path[0] in names:
                have[name] = read.column(path[0])
        return self._table(file, have, read.num_rows, list(by_field(columns)))

    def _table(
        self,
        file: FileColumns,
        have: dict[str, pa.ChunkedArray],
        rows: int,
        names: Sequence[str] | None = None,
        whole: Mapping[str, pa.ChunkedArray] | None = None,
    ) -> pa.Table:
        """Columns of the file in the table's names and types. Those in ``whole`` have these
        already; columns that the file lacks are null."""
        wanted = self.schema.names if names is None else names
        if not wanted:
            return rows_alone(rows)
        made = []
        for name in wanted:
            field = self.schema.field(name)
            given = file.given(name)
            if whole is not None and name in whole:
                made.append(whole[name])
            elif given is not None:
                made.append(_repeated(given, rows))
            elif name in have:
                made.append(in_type(have[name], field, file.opened.path, file.naming.below(name)))
            else:
                made.append(_repeated(pa.scalar(None, field.type), rows))
        return pa.Table.from_arrays(made, schema=pa.schema([self.schema.field(n) for n in wanted]))


def _shares(files: int, most: int) -> list[int]:
    """``files`` divided over at most ``most`` batches, the larger ones first."""
    count = min(files, most)
    return [(files + count - 1 - at) // count for at in range(count)]


def _repeated(value: pa.Scalar, rows: int) -> pa.ChunkedArray:
    """``value`` in each of ``rows`` rows. A file may claim any number of them, so the chunks share
    memory."""
    if rows <= _REPEATED:
        return pa.chunked_array([pa.repeat(value, rows)])
    whole, rest = divmod(rows, _REPEATED)
    chunk = pa.repeat(value, _REPEATED)
    return pa.chunked_array([chunk] * whole + [chunk.slice(0, rest)] * (rest > 0))
