"""Estimates the answers and the size of a Bloom filter or a row index, without building it.

While the sample is read, each condition of the queries is decided for every row. A row index would
return exactly the matching rows; a Bloom filter keeps the files that have one. So the flags of the
rows take the place of the index in a plan.

To estimate the size of a row index, one is built over ``WINDOWS`` windows of 65,536 rows, spread
over the file. The entries of its values are scaled up by the distinct values, the rest by the rows.
The size of a Bloom filter follows from the distinct values. Files of at most two windows are
measured whole.

Hashing and writing all rows would take five times as long, and 200 MB for a file of 1.5 million
rows.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.indexes.bloom import Bloom
from skipstone.paimon.container_builder import coded, encoded
from skipstone.paimon.index_blob import SMALL
from skipstone.paimon.kinds import Bitmap, RangeBitmap, RowIndex
from skipstone.predicate.tree import Leaf, Op, Pair
from skipstone.pruning import Answer, BaseEvidence, Bounds, Level, RowSet
from skipstone.pruning.file_bounds import RangeBuilder, range_type
from skipstone.pruning.kind import Builder, Built, Chunk, Index, PerFile, Stored
from skipstone.pruning.residual import matching

from .measure import bloom_bytes, distinct_in_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.pruning import BoolArray, Fetched, Units
    from skipstone.pruning.kind import Rows


#: The rows of a container of a Roaring bitmap, and how many such windows of a file are measured.
WINDOW, WINDOWS = 1 << 16, 2
#: A build over a sample gets one of this many parts of a real build's memory.
MEMORY_PARTS = 2
# The memory that a real build needs for a row.
_ROW = 36
# With this many runs of matching rows per row, or more, every page contains one.
_EVERYWHERE = 1 / 8
# Bytes in a bitmap index: offset and length of a key's bitmap, the bitmap's head, and a container
# of one row.
_ENTRY, _HEAD, _CONTAINER = 8, 8, 10
# From this many rows per key on average, the keys of a file have several rows.
_FEW = 1.5
_TEXTS = frozenset({Op.LIKE, Op.NOT_LIKE})
_RANGES = frozenset({Op.LT, Op.LE, Op.GT, Op.GE, Op.STARTS_WITH, Op.NOT_STARTS_WITH})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlob:
    """The size of an index of rows over one file: entries of values, and rows."""

    entries: float
    rows: float

    @property
    def size(self) -> int:
        """Bytes of both."""
        return round(self.entries + self.rows)

    def read(self, kind: str, leaf: Leaf, share: float) -> float:
        """The bytes of an answer that has the share ``share`` of the rows."""
        if self.size <= SMALL:
            return self.size
        if kind == Bitmap.name:
            lookups = len(leaf.values) if leaf.op in (Op.EQ, Op.IN) else 1
            return min(self.size, SMALL + lookups * SMALL / 2 + share * self.rows)
        return min(self.size, SMALL + self.rows)


@dataclass(slots=True, eq=False, kw_only=True)
class FileTrial:
    """One column of one file: packed flags of the rows of each leaf, and sizes by kind."""

    rows: int
    nulls: int
    ends: pa.Array | None
    distinct: float
    flags: Mapping[Leaf, NDArray[np.uint8]]
    blobs: Mapping[str, RowBlob]

    def of(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        """The rows where ``leaf`` is TRUE; ``None`` where that is unknown."""
        packed = self.flags.get(leaf)
        return None if packed is None else np.unpackbits(packed, count=self.rows).astype(np.bool_)


class Trial(Index):
    """The index definition that collects the ``FileTrial`` of one file's column for these
    ``kinds``."""

    name = "trial"

    def __init__(self, column: str, kinds: Sequence[Index], leaves: Sequence[Leaf]) -> None:
        super().__init__(column)
        self.kinds, self.leaves = kinds, leaves
        self.found: FileTrial | None = None

    def stored_type(self, type: pa.DataType) -> pa.DataType:
        return pa.null()

    def build(self, type: pa.DataType, budget: int) -> Builder:
        self.found = None
        return _TrialBuilder(self, type, budget)

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        raise AssertionError("a trial answers nothing")


class _TrialBuilder(Builder):
    def __init__(self, trial: Trial, type: pa.DataType, budget: int) -> None:
        self.trial, self.ends, self.budget = trial, RangeBuilder(type), budget * MEMORY_PARTS
        self.leaves = [each for each in trial.leaves if not isinstance(each, Pair)]
        self.of_rows = [each for each in trial.kinds if isinstance(each, RowIndex)]
        self.paimon = self.of_rows[0].paimon_type(type) if self.of_rows else None
        self.codes: list[pa.DictionaryArray] = []
        self.flags: dict[Leaf, list[NDArray[np.bool_]]] = {each: [] for each in self.leaves}
        self.values: list[tuple[int, pa.Array]] = []
        self.rows = self.nulls = self.read = 0
        self.windows: list[tuple[int, int]] = [(0, WINDOW * WINDOWS)]

    def cut(self, rows: Sequence[int]) -> None:
        total = sum(rows)
        if total > WINDOW * WINDOWS:
            last = (total - WINDOW) // WINDOW
            starts = [WINDOW * (last * at // (WINDOWS - 1)) for at in range(WINDOWS)]
            self.windows = [(start, start + WINDOW) for start in starts]

    def add(self, chunk: Chunk) -> None:
        self.ends.add(chunk)
        count = len(chunk.values)
        for leaf in list(self.flags):
            try:
                self.flags[leaf].append(matching(leaf, {leaf.column: chunk.values}, count))
            except Exception:  # then nothing is known about the file
                del self.flags[leaf]
        for number, (start, stop) in enumerate(self.windows):
            first, last = max(start - self.rows, 0), min(stop - self.rows, count)
            if first >= last:
                continue
            part = chunk.values.slice(first, last - first)
            self.read += last - first
            self.values.append((number, Chunk(part).distinct))
            if self.paimon is not None:
                self.codes.append(encoded(self.paimon, part))
        self.rows += count
        self.nulls += chunk.null_count

    def finish(self) -> Built:
        seen = _count([each for _, each in self.values])
        early = _count([each for number, each in self.values if 2 * number < len(self.windows)])
        self.values.clear()
        distinct = distinct_in_all(seen, early, self.read, self.rows)
        self.trial.found = FileTrial(
            rows=self.rows,
            nulls=self.nulls,
            ends=self.ends.finish().value,
            distinct=distinct,
            flags={
                leaf: np.packbits(np.concatenate(parts))
                for leaf, parts in self.flags.items()
                if parts
            },
            blobs=dict(self._blobs(distinct)),
        )
        return Built(None, "tried")

    def _blobs(self, distinct: float) -> Iterator[tuple[str, RowBlob]]:
        """The sizes of the indexes of rows; none where a real build leaves them out."""
        if self.paimon is None or self.rows * _ROW > self.budget:
            return
        column = coded(self.paimon, self.codes)
        self.codes.clear()
        keys, scale = column.keys, self.rows / max(self.read, 1)
        of_key = np.bincount(column.codes[column.codes >= 0], minlength=len(keys))
        by_keys = distinct / max(len(keys), 1)
        for each in self.of_rows:
            size = len(each.write()(column))
            entries = float(keys.lengths().sum())
            rows = size - entries
            if each.name == Bitmap.name:
                single = int((of_key == 1).sum())
                entries += _ENTRY * len(keys)
                rows -= _ENTRY * len(keys)
                if scale > 1 and self.rows > _FEW * distinct:
                    # Keys of one row have no bitmap yet.
                    entries += _HEAD * len(keys)
                    rows += _CONTAINER * single - _HEAD * (len(keys) - single)
            yield each.name, RowBlob(entries=entries * by_keys, rows=max(rows, 0) * scale)


def _count(values: Sequence[pa.Array]) -> int:
    return len(pc.unique(pa.concat_arrays(values))) if values else 0


# -- as evidence -----------------------------------------------------------------------------------


class Tried(PerFile):
    """An index over the files of a sample as evidence. ``trials`` are those of its column, ``None``
    for a file without one. ``taken`` counts the bytes that answers about rows read."""

    trials: Sequence[FileTrial | None] = ()
    taken: float = 0.0

    @classmethod
    def over(cls, column: str, type: pa.DataType, trials: Sequence[FileTrial | None]) -> Tried:
        """The index of a column of ``type``."""
        made, none = cls(column), pa.nulls(1, range_type(type))
        made.trials = trials
        ends = [none if each is None or each.ends is None else each.ends for each in trials]
        counts = [(-1, -1) if each is None else (each.rows, each.nulls) for each in trials]
        rows, nulls = np.array(counts, np.int64).T
        made.stored = Stored(
            type=type,
            values=pa.concat_arrays(ends),
            rows=rows,
            nulls=nulls,
            row_of_file=np.arange(len(trials)),
        )
        return made

    @abstractmethod
    def size(self, files: int) -> list[int]:
        """Bytes for each file that has the index, in a table of this many files."""


class _TriedBloom(Tried, Bloom):
    """A filter that holds exactly the values of its file."""

    def known(self, stored: Stored) -> BoolArray:
        return PerFile.known(self, stored)

    def size(self, files: int) -> list[int]:
        return [round(bloom_bytes(each.distinct, files)) for each in self.trials if each]

    def bounds_of(self, leaf: Leaf, rows: Rows) -> Bounds[BoolArray] | None:
        """``may`` where a row matches."""
        at = range(len(self.trials)) if rows.at is None else rows.at.tolist()
        found = []
        for each in at:
            trial = self.trials[each]
            flags = None if trial is None else trial.flags.get(leaf)
            if trial is not None and flags is None:
                return None
            found.append(flags is not None and bool(flags.any()))
        return Bounds(np.zeros(len(found), np.bool_), np.array(found, np.bool_))


class _TriedRows(Tried, RowIndex):
    """An index of rows that answers with the rows that match."""

    def size(self, files: int) -> list[int]:
        held = [each.blobs.get(self.name) for each in self.trials if each]
        return [blob.size for blob in held if blob]

    def of_file(self, file: int, shared: dict[Any, Any] | None = None) -> Any:
        trial = self.trials[file]
        return None if trial is None or self.name not in trial.blobs else _TriedFile(self, trial)


class _TriedBitmap(_TriedRows, Bitmap):
    pass


class _TriedRangeBitmap(_TriedRows, RangeBitmap):
    pass


class _TriedFile(BaseEvidence):
    """The rows of one file."""

    level = Level.ROW

    def __init__(self, index: _TriedRows, trial: FileTrial) -> None:
        self.index, self.trial = index, trial
        self.name, self.column, self.cost = index.name, index.column, index.row_cost
        assert index.stored is not None
        self.exact = index.paimon_type(index.stored.type).exact

    def decides(self, leaf: Leaf) -> bool:
        """Like ``FileRows``: a range in a bitmap joins the bitmaps of all its values."""
        joins = self.name == Bitmap.name and leaf.op in _RANGES
        return self.exact and not joins and leaf.op not in _TEXTS and leaf in self.trial.flags

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        return [self._answer(leaf) for leaf in leaves]

    def _answer(self, leaf: Leaf) -> Answer:
        flags = None if leaf.op in _TEXTS else self.trial.of(leaf)
        if flags is None:
            return self.silent(leaf)
        self.index.taken += self.trial.blobs[self.name].read(self.name, leaf, flags.mean())
        edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
        if len(edges) > 2 * _EVERYWHERE * len(flags):
            return self.silent(leaf)
        rows = RowSet(edges[::2], edges[1::2])
        return Answer(bounds=Bounds(rows, rows))


#: the kinds that are tried instead of built, by name
TRIED: Mapping[str, type[Tried]] = {
    each.name: each for each in (_TriedBloom, _TriedBitmap, _TriedRangeBitmap)
}
