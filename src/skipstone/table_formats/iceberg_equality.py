"""Equality deletes of Apache Iceberg: a file of keys deletes the rows that have one of them.

A delete applies to older data files of its own partition, or of all partitions if it has none. A
null in a key equals a null in the data.

**The join.** Deletes by the same columns form one list of keys. Of equal keys, the newest decides:
a row is deleted if the newest delete with its key is newer than the row's file. So each row is
looked up once, however many deletes there are. The key columns of a data file are read when a plan
keeps the file. Files without a key inside their bounds are not read at all. The deleted rows are
cached, because files never change; only newer deletes are looked up again.

Some keys are refused: floats, fields of structs, dropped columns, and columns that a data file
lacks although its value there may not be null.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone import _compute as pc
from skipstone._arrays import arrow, numbers
from skipstone._dataclasses import dataclass
from skipstone.errors import UnsupportedError
from skipstone.predicate.literals import order_keys
from skipstone.predicate.members import ascending_distinct
from skipstone.predicate.naming import SAME, Named
from skipstone.predicate.types import column_name, spark_type
from skipstone.pruning.interval import window

from .field_ids import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.naming import Naming

    from .iceberg_columns import DataFile
    from .snapshot import FileStatistics

IntArray: TypeAlias = "NDArray[np.int64]"
# How many rows are looked up at once.
_ROWS: Final = 1 << 20
# A smaller file is read whole.
_SMALL: Final = 1 << 18
_NONE: Final = np.empty(0, np.int64)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """The results of ``work`` in order. A thread takes a run of the items: passing a small file to
    another thread takes longer than reading it."""
    runs = [items[at::READERS] for at in range(min(READERS, len(items)))]
    if len(runs) < 2:
        return [work(each) for each in items]
    with ThreadPoolExecutor(READERS) as pool:
        done = list(pool.map(lambda run: [work(each) for each in run], runs))
    return [done[at % READERS][at // READERS] for at in range(len(items))]


@dataclass(frozen=True, eq=False, kw_only=True)
class TableState:
    """A table of ``pyiceberg`` at a snapshot: its columns in ``schema``, by its own ``fields``, its
    data files in order, and what the manifests know of them; ``names`` are those of the columns in
    some files, by their paths."""

    table: Any
    fields: Any
    schema: pa.Schema
    names: Mapping[str, Naming]
    data: Sequence[DataFile]
    statistics: FileStatistics


#: key columns as a file has them, ``None`` for one that it lacks, and the number of its rows
_Stored: TypeAlias = tuple[list[pa.ChunkedArray | None], int]


class EqualityDeletes:
    """The equality deletes of a table, and what was found for the files of earlier snapshots."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The deletes in the order in which they were seen; and for each data file, how many of them
        # were looked up, and the rows found.
        self._order: dict[str, int] = {}
        self._rows: dict[tuple[str, int], tuple[int, IntArray]] = {}
        self._keys: dict[str, _Stored] = {}

    def of(self, state: TableState, deletes: Sequence[DataFile]) -> DeletedByValues:
        """The deletes of a snapshot. If one that was known is gone, everything is looked up again:
        the rows that it deleted may be back."""
        now = {each.path: each for each in deletes}
        if not self._order.keys() <= now.keys():
            self._order, self._rows, self._keys = {}, {}, {}
        for path in now:
            self._order.setdefault(path, len(self._order))
        files = {(each.path, each.sequence) for each in state.data}
        self._rows = {key: each for key, each in self._rows.items() if key in files}
        ordered = [now[path] for path in self._order]
        return DeletedByValues(self.name, state, ordered, self._rows, self._keys)


class DeletedByValues:
    """The rows that the equality deletes of a snapshot delete. ``files`` are the ordinals of data
    files that may have some, ascending."""

    def __init__(
        self,
        name: str,
        state: TableState,
        deletes: Sequence[DataFile],
        rows: dict[tuple[str, int], tuple[int, IntArray]],
        keys: dict[str, _Stored],
    ) -> None:
        self.name, self.state, self.deletes = name, state, deletes
        self._rows, self._keys = rows, keys
        specs = state.table.specs()
        self._parted = {
            id: any(str(each.transform) != "void" for each in spec.fields)
            for id, spec in specs.items()
        }
        self._sources = {each.source_id for spec in specs.values() for each in spec.fields}
        self._codes: dict[tuple[Any, ...], int] = {}
        self._sequences = np.array([each.sequence for each in state.data], np.int64)
        self._scopes = self._scopes_of(state.data, any(self._parted.values()))
        self.files: IntArray = np.flatnonzero(self._reached(deletes))

    def of(self, files: Iterable[int]) -> dict[int, IntArray]:
        """The deleted rows of these files, by their ordinals."""
        data, count = self.state.data, len(self.deletes)
        keys = {at: (data[at].path, data[at].sequence) for at in files}
        pending: dict[int, list[int]] = {}
        for at, key in keys.items():
            known = self._rows.get(key, (0, _NONE))[0]
            if known < count:
                pending.setdefault(known, []).append(at)
        for known, some in pending.items():
            fresh = self._found(np.array(some, np.int64), self.deletes[known:])
            for at in some:
                old = self._rows.get(keys[at], (0, _NONE))[1]
                new = [old, *fresh.get(at, ())]
                found = np.unique(np.concatenate(new)) if len(new) > 1 else old
                self._rows[keys[at]] = count, found
        return {at: self._rows[key][1] for at, key in keys.items()}

    def _scope(self, file: DataFile) -> int:
        """A number of the partition of a file. NaN is one value."""
        values = file.file.partition
        found = [values[at] for at in range(len(values))]
        key = (file.file.spec_id, *("NaN" if each != each else each for each in found))
        return self._codes.setdefault(key, len(self._codes))

    def _grouped(
        self, deletes: Sequence[DataFile]
    ) -> Iterator[tuple[tuple[str, ...], bool, list[DataFile]]]:
        """The deletes by their columns, and whether they are those of partitions."""
        found: dict[tuple[tuple[str, ...], bool], list[DataFile]] = {}
        for each in deletes:
            key = self._names(each), self._parted[each.file.spec_id]
            found.setdefault(key, []).append(each)
        for (names, parted), some in found.items():
            yield names, parted, some

    def _reached(self, deletes: Sequence[DataFile]) -> NDArray[np.bool_]:
        """Flags of the data files that a newer delete may apply to."""
        found = np.zeros(len(self.state.data), np.bool_)
        for _, parted, some in self._grouped(deletes):
            sequences = np.array([each.sequence for each in some], np.int64)
            scopes = self._scopes_of(some, parted)
            newest = np.full(len(self._codes) + 1, -1, np.int64)
            np.maximum.at(newest, scopes, sequences)
            found |= self._sequences < (newest[self._scopes] if parted else newest[0])
        return found

    def _found(self, files: IntArray, deletes: Sequence[DataFile]) -> dict[int, list[IntArray]]:
        """The rows of these files that have a key of these deletes."""
        found: dict[int, list[IntArray]] = {}
        for names, parted, some in self._grouped(deletes):
            reached = files[self._reached(some)[files]]
            if not len(reached):
                continue
            keys = _Keys(self._columns(some, names), self._scopes_of(some, parted), some)
            reached = reached[self._may_have(keys, names, reached)]
            for batch in self._batches(reached):
                rows = self._columns([self.state.data[at] for at in batch.tolist()], names)
                counts = np.array([len(each[0]) for each in rows], np.int64)
                scopes = self._scopes[batch] if parted else np.zeros(len(batch), np.int64)
                at = keys.find(rows, scopes, self._sequences[batch], counts)
                ends = np.cumsum(counts)
                cuts = np.searchsorted(at, ends)
                for one, end, part in zip(batch, ends - counts, np.split(at, cuts), strict=False):
                    if len(part):
                        found.setdefault(int(one), []).append(part - end)
        return found

    def _scopes_of(self, files: Sequence[DataFile], parted: bool) -> IntArray:
        return np.array([self._scope(each) if parted else 0 for each in files], np.int64)

    def _may_have(self, keys: _Keys, names: tuple[str, ...], files: IntArray) -> NDArray[np.bool_]:
        """Flags of the files that may have one of the keys, by their bounds of each column."""
        found = np.ones(len(files), np.bool_)
        for name, values in zip(names, keys.columns, strict=True):
            known = self.state.statistics(column_name((name,)))
            if known is None:
                continue
            units, type = known.where(files), self.state.schema.field(name).type
            first, after = window(ascending_distinct(order_keys(values, type)), units)
            may = first < after
            found &= may | (units.nulls != 0) if values.null_count else may
        return found

    def _batches(self, files: IntArray) -> Iterator[IntArray]:
        """The files in batches of limited rows."""
        rows = [self.state.data[at].file.record_count for at in files.tolist()]
        parts = np.cumsum(np.array(rows, np.int64)) // _ROWS
        yield from np.split(files, np.flatnonzero(np.diff(parts)) + 1) if len(files) else ()

    def _names(self, delete: DataFile) -> tuple[str, ...]:
        """The columns of the keys."""
        if delete.kind != "PARQUET":
            raise self._refused(delete, f"by keys in {delete.kind}, not in Parquet")
        tops = {each.field_id: each for each in self.state.fields.fields}
        found = [tops.get(id) for id in sorted(delete.file.equality_ids or ())]
        if not found or None in found:
            raise self._refused(delete, "by columns that the table does not have")
        names = tuple(each.name for each in found if each is not None)
        for name in names:
            type = self.state.schema.field(name).type
            if pa.types.is_floating(type) or spark_type(type) is None:
                raise self._refused(delete, f"by {name!r}, of type {type}")
        return names

    def _columns(
        self, files: Sequence[DataFile], names: tuple[str, ...]
    ) -> list[tuple[pa.Array, ...]]:
        """The key columns of each file, in the types of the table."""
        fresh = [each for each in files if each.path not in self._keys]
        read = side_by_side(lambda each: self._stored(each, names), fresh)
        held = {each.path: rows for each, rows in zip(fresh, read, strict=True)}
        self._keys |= {each.path: held[each.path] for each in fresh if each.file.equality_ids}
        held |= self._keys
        return [self._typed(each, held[each.path], names) for each in files]

    def _stored(self, file: DataFile, names: tuple[str, ...]) -> _Stored:
        naming = self.state.names.get(file.path, SAME)
        own = [naming.fields.get(each, Named(each, SAME)).name for each in names]
        with self.state.table.io.new_input(file.file.file_path).open() as opened:
            size, is_delete = file.file.file_size_in_bytes, bool(file.file.equality_ids)
            content = opened.read() if is_delete or size <= _SMALL else None
            if content is not None and len(content) != size:
                raise ValueError(
                    f"{file.path} has {len(content):,} bytes, and its manifest says {size:,}"
                )
            stored = pq.ParquetFile(opened if content is None else pa.BufferReader(content))
            held = {*stored.schema_arrow.names}.intersection(filter(None, own))
            rows = stored.read(sorted(held), use_threads=False)
            found = [rows.column(each) if each in held else None for each in own]
            return found, stored.metadata.num_rows

    def _typed(
        self, file: DataFile, stored: _Stored, names: tuple[str, ...]
    ) -> tuple[pa.Array, ...]:
        found = []
        for name, values in zip(names, stored[0], strict=True):
            type = self.state.schema.field(name).type
            field = self.state.fields.find_field(name)
            if values is not None:
                found.append(values.combine_chunks().cast(type))
                continue
            if (
                file.file.equality_ids
                or field.initial_default is not None
                or field.field_id in self._sources
            ):
                raise self._refused(file, f"by {name!r}, which it lacks")
            found.append(pa.nulls(stored[1], type))
        return tuple(found)

    def _refused(self, file: DataFile, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: rows of {file.path} are deleted {why}, which is not applied here",
            hint="compact the table in Iceberg (rewrite_data_files)",
        )


class _Keys:
    """The keys of deletes by the same columns; ``scopes`` are the numbers of their partitions."""

    def __init__(
        self, parts: Sequence[tuple[pa.Array, ...]], scopes: IntArray, deletes: Sequence[DataFile]
    ) -> None:
        counts = [len(each[0]) for each in parts]
        self.columns = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
        # The number of a key among the distinct keys so far, column by column.
        known, key = np.unique(np.repeat(scopes, counts), return_inverse=True)
        self._steps: list[tuple[pa.Array, IntArray]] = []
        self._scopes = known
        for values in self.columns:
            distinct = values.unique()
            pair = key * len(distinct) + numbers(pc.index_in(values, distinct), -1)
            known, key = np.unique(pair, return_inverse=True)
            self._steps.append((distinct, known))
        self._newest = np.full(len(known), -1, np.int64)
        sequences = np.array([each.sequence for each in deletes], np.int64)
        np.maximum.at(self._newest, key, np.repeat(sequences, counts))

    def find(
        self,
        parts: Sequence[tuple[pa.Array, ...]],
        scopes: IntArray,
        sequences: IntArray,
        counts: IntArray,
    ) -> IntArray:
        """The deleted rows among the concatenated rows of some files; null equals null. ``scopes``,
        ``sequences`` and ``counts`` are those of the files."""
        at, key = _place(self._scopes, np.repeat(scopes, counts))
        for values, (distinct, known) in zip(zip(*parts, strict=True), self._steps, strict=True):
            column = pa.concat_arrays(values)
            some = column if len(at) == len(column) else pc.take(column, arrow(at))
            code = numbers(pc.index_in(some, distinct), -1).astype(np.int64)
            held = np.flatnonzero(code >= 0)
            kept, place = _place(known, key[held] * len(distinct) + code[held])
            at, key = at[held[kept]], place
        return at[self._newest[key] > np.repeat(sequences, counts)[at]]


def _place(known: IntArray, values: IntArray) -> tuple[IntArray, IntArray]:
    """Which of the values are among ``known``, ascending numbers, and where."""
    if not len(known):
        return _NONE, _NONE
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    kept = np.flatnonzero(known[place] == values)
    return kept, place[kept]
