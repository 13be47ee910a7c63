"""The sample of ``advise --layout``: rows of many files, and the row groups of those files.

The files are drawn at random, with a fixed seed. From each, ``_RUNS`` runs of rows are read, spread
over the file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.literals import Keys, order_keys
from skipstone.predicate.tree import leaves
from skipstone.predicate.types import column_path, spark_type
from skipstone.pruning.bounds import Constants
from skipstone.pruning.column_types import exactly
from skipstone.pruning.evaluation import combine
from skipstone.pruning.interval import Intervals, interval_bounds
from skipstone.pruning.partitions import PartitionColumns

from .sampling import SEED, leaf_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.predicate.tree import Bound

    from .sampling import AdviceRequest


_ROWS = 200_000
# How many runs of rows are read from each file.
_RUNS = 4
_WORKERS = 8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowGroups:
    """Row groups: the ranges of columns in them, their bytes and their files."""

    ranges: Mapping[str, Intervals]
    bytes: NDArray[np.float64]
    files: NDArray[np.int64]

    def cost(self, tree: Bound) -> tuple[float, float]:
        """The bytes and the files that ``tree`` reads."""
        constants = Constants(len(self.bytes))
        found = {}
        for leaf in leaves(tree):
            known = self.ranges.get(leaf.column)
            answer = None if known is None else interval_bounds(leaf, known)
            if answer is not None:
                found[leaf] = answer
        may = combine(tree, found, constants).may
        return float(self.bytes[may].sum()), float(len(np.unique(self.files[may])))


@dataclass(frozen=True, slots=True, eq=False)
class SampledColumn:
    """A column of the sample: ``codes`` are positions in ``distinct``, which ascends, -1 for null.

    ``distinct`` begins and ends with the least and the largest value that the statistics know.
    """

    type: pa.DataType
    values: pa.Array
    distinct: Keys
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, values: pa.Array, type_: pa.DataType, known: Intervals) -> SampledColumn:
        """A column made of the values and the ranges of all row groups."""
        keys = order_keys(values, type_)
        parts = [each.take(each.valid) for each in (keys, known.lo, known.hi)]
        if isinstance(keys.data, np.ndarray):
            every = np.concatenate([np.asarray(each.data) for each in parts])
            distinct: Any = np.unique(every)
            codes = np.searchsorted(distinct, keys.data)
        else:
            texts: list[Any] = [each.data for each in parts]
            distinct = pc.unique(pa.concat_arrays(texts))
            distinct = distinct.take(pc.array_sort_indices(distinct))
            codes = np.asarray(pc.index_in(keys.data, distinct).fill_null(-1), np.int64)
        valid = np.ones(len(distinct), np.bool_)
        return cls(type_, values, Keys(distinct, valid), np.where(keys.valid, codes, -1))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayoutSample:
    """Rows of the table's columns, and the row groups of the sampled files as they are."""

    columns: Mapping[str, SampledColumn]
    rows: int
    present: RowGroups
    sampled: int
    bytes: int
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, eq=False)
class _OfFile:
    """Some rows of a file, and the ranges of all its row groups."""

    columns: Mapping[str, pa.Array]
    rows: int
    ranges: Mapping[str, Intervals]
    groups: int
    bytes: NDArray[np.float64]


def layout_sample(request: AdviceRequest, types: Mapping[str, pa.DataType]) -> LayoutSample:
    listing = request.listing
    order = np.random.default_rng(SEED).permutation(len(listing))[: request.sample]
    at = sorted(order.tolist())
    folders = PartitionColumns.of(listing).values
    each = max(_ROWS // len(at), 1)

    def one(ordinal: int) -> _OfFile | str:
        path = listing.paths[ordinal]
        try:
            file = ParquetFile(
                path, storage_options=request.storage_options, decryption=request.decryption
            )
            fixed = {name: values[ordinal] for name, values in folders.items() if name in types}
            return _of_file(file, types, fixed, each, int(listing.sizes[ordinal]))
        except (SkipstoneError, OSError, ValueError, pa.ArrowException) as error:
            text = error.message if isinstance(error, SkipstoneError) else str(error)
            return f"{path} could not be read: {text.removeprefix(f'{path}: ')}"

    with ThreadPoolExecutor(max_workers=_WORKERS if request.storage.remote else 2) as pool:
        found = list(pool.map(one, at))
    read = [each for each in found if isinstance(each, _OfFile)]
    notes = [each for each in found if isinstance(each, str)]
    if not read:
        raise FormatError("no file of the sample can be read", file=listing.paths[at[0]])
    ranges = {
        name: Intervals.concat([each.ranges[name] for each in read])
        for name in types
        if all(name in each.columns for each in read)
    }
    columns = {
        name: SampledColumn.of(
            pa.concat_arrays([each.columns[name] for each in read]), types[name], known
        )
        for name, known in ranges.items()
    }
    counts = [each.groups for each in read]
    return LayoutSample(
        columns=columns,
        rows=sum(each.rows for each in read),
        present=RowGroups(
            ranges=ranges,
            bytes=np.concatenate([each.bytes for each in read]),
            files=np.repeat(np.arange(len(read)), counts),
        ),
        sampled=len(read),
        bytes=int(sum(each.bytes.sum() for each in read)),
        notes=tuple(notes[:3]),
    )


def _of_file(
    file: ParquetFile,
    types: Mapping[str, pa.DataType],
    fixed: Mapping[str, pa.Scalar],
    rows: int,
    size: int,
) -> _OfFile:
    total = file.num_rows
    run = max(1, rows // _RUNS)
    starts = [at * max(total - run, 0) // max(_RUNS - 1, 1) for at in range(_RUNS)]
    wanted = (
        [(0, total)] if total <= rows else [(start, start + run) for start in sorted({*starts})]
    )
    paths = {name: column_path(name) for name in types if name not in fixed}
    names = {each.lower(): each for each in file.schema.names}
    there = {name: names.get(path[0].lower()) for name, path in paths.items()}
    held = file.read_rows(sorted({each for each in there.values() if each}), wanted)
    count = sum(stop - start for start, stop in wanted) if not held.num_columns else held.num_rows
    groups = file.num_row_groups
    group_rows = np.diff(file.row_starts).astype(np.int64)
    columns: dict[str, pa.Array] = {}
    ranges: dict[str, Intervals] = {}
    for name, type_ in types.items():
        if name in fixed:
            columns[name] = pa.repeat(fixed[name], count).cast(type_)
            one = order_keys(pa.repeat(fixed[name], groups).cast(type_), type_)
            nulls = np.where(one.valid, 0, group_rows)
            ranges[name] = Intervals(type=type_, lo=one, hi=one, rows=group_rows, nulls=nulls)
            continue
        values = _values(held, there[name], paths[name], type_)
        if values is None:
            continue
        columns[name] = values
        ranges[name] = _known(file, paths[name], type_, group_rows, absent=there[name] is None)
    stored = file.footer.chunk("total_compressed_size").sum(axis=1).astype(np.float64)
    share = stored / max(stored.sum(), 1)
    return _OfFile(columns, count, ranges, groups, share * size)


def _values(
    held: pa.Table, top: str | None, path: Sequence[str], type_: pa.DataType
) -> pa.Array | None:
    """The values of a column as ``type_``; nulls if the file lacks it, ``None`` if they have
    another type."""
    if top is None:
        return pa.nulls(held.num_rows, type_)
    try:
        values = leaf_values(held, (top, *path[1:]))
    except pa.ArrowException:  # the key of a map, the elements of a list
        return None
    read = exactly(values, type_)
    if read is not None and pa.types.is_dictionary(read.type):
        read = read.dictionary_decode()
    return None if read is None else read.cast(type_)


def _known(
    file: ParquetFile,
    path: Sequence[str],
    type_: pa.DataType,
    rows: NDArray[np.int64],
    *,
    absent: bool,
) -> Intervals:
    """The ranges of a column by the statistics of the row groups; unknown without statistics."""
    groups = len(rows)
    none = np.zeros(groups, np.bool_)
    empty = order_keys(pa.nulls(groups, type_), type_)
    unknown = Intervals(
        type=type_,
        lo=Keys(empty.data, none),
        hi=Keys(empty.data, none),
        rows=rows,
        nulls=rows if absent else np.full(groups, -1, np.int64),
    )
    lower = tuple(each.lower() for each in path)
    for leaf in file.footer.schema.leaves:
        if tuple(each.lower() for each in leaf.path) == lower and not leaf.max_repetition_level:
            bounds = file.indexed.chunk_bounds(leaf.ordinal)
            known = bounds.numbers or bounds.all
            if bounds.stored.type is not None and spark_type(bounds.stored.type) == type_:
                return known
    return unknown
