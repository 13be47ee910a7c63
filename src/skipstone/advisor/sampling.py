"""Reads a sample of a table's files: all their footers, and rows of some, within a budget of bytes.

The files are drawn at random, with a fixed seed: neighbours in the listing may be similar, and
evenly spread files would hide that. Rows are decoded from as many of them as fit the budget
completely, and from at least five: those are then read in part, the first rows of row groups spread
over the file. ``rows_read < rows`` marks a file that was read in part. Where a table has
thousands of columns, fewer files are read, but at least two.

Ranges come from the statistics of the row groups, or from the rows where all of them were read.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone._arrays import runs_up_to
from skipstone._dataclasses import dataclass
from skipstone.errors import SkipstoneError, in_words
from skipstone.execution.table_engine import Engine
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.literals import from_key
from skipstone.predicate.types import column_name, spark_type
from skipstone.pruning.column_types import exactly, is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from skipstone.parquet.encryption.decryption import Decryption
    from skipstone.parquet.format.schema import ColumnDescriptor
    from skipstone.storage import Listing, Storage


#: Decoded bytes of a sample; reading and comparing them takes 300 MB, and two seconds of a core.
BUDGET = 48 * 1024 * 1024
_FEWEST = 5
# Columns of files that are read; a table may have ten thousand columns.
_MOST_COLUMNS = 20_000
# Bytes of columns that are read together.
_TOGETHER = 1 << 20
_WORKERS = 4
SEED = 8_814


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdviceRequest:
    """The table to advise on, and how many of its files to sample.

    ``schema`` is that of the table, in canonical types, where it is known. ``decryption`` has the
    keys of encrypted files. ``name`` is the name that the report shows.
    """

    listing: Listing
    storage: Storage
    sample: int = 20
    name: str = ""
    schema: pa.Schema | None = None
    decryption: Decryption | None = None
    storage_options: Mapping[str, str] | None = None

    @property
    def shown(self) -> str:
        """The name of the table, by default its root."""
        return self.name or self.listing.root

    def table_schema(self) -> pa.Schema:
        """``schema``, or that of the files."""
        if self.schema is not None:
            return self.schema
        engine = Engine(self.storage, self.storage_options)
        if self.decryption is not None:
            engine.files.opening = lambda id: {"decryption": self.decryption}
        return engine.schema(self.listing).merged.spark


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnSample:
    """One column of one file: ``rows`` rows were decoded, and ``nulls`` of them are null.

    ``distinct``: the distinct values, without null; ``early``: how many of them the first half of
    the rows had. ``ascending``: the rows that were read are. ``spaced``: share of the distinct
    values with two blanks or more, 0 for other types than strings.
    """

    rows: int
    nulls: int
    distinct: pa.Array
    early: int
    ascending: bool
    width: float
    spaced: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSample:
    """One file of ``rows`` rows and ``size`` bytes.

    ``ranges``: least and largest value of each column of the whole file, as Arrow scalars, where
    the footer or the rows show them. ``columns``: of the decoded rows; empty when there are none.
    """

    path: str
    size: int
    rows: int
    leaves: int = 0
    row_groups: int = 0
    rows_read: int = 0
    ranges: Mapping[tuple[str, ...], tuple[pa.Scalar, pa.Scalar]] = field(default_factory=dict)
    columns: Mapping[tuple[str, ...], ColumnSample] = field(default_factory=dict)


def spread(total: int, count: int) -> list[int]:
    """``count`` positions of ``total``, the first and the last among them."""
    if count >= total:
        return list(range(total))
    if count == 1:
        return [total // 2]
    return sorted({round(i * (total - 1) / (count - 1)) for i in range(count)})


def read_sample(
    request: AdviceRequest, columns: Mapping[tuple[str, ...], pa.DataType], budget: int = BUDGET
) -> tuple[list[FileSample], list[str]]:
    """The files that were sampled, and what could not be read. ``budget``: decoded bytes."""
    listing, decryption = request.listing, request.decryption
    columns_read = _MOST_COLUMNS // max(len(columns), 1)
    sample = min(request.sample, max(_FEWEST, columns_read))
    order = np.random.default_rng(SEED).permutation(len(listing))
    at = sorted(order[:sample].tolist())
    size = max(1, sum(int(listing.sizes[i]) for i in at) // max(len(at), 1))
    # Decoded data is about four times as large as in the file; the footers have the exact size.
    whole = min(max(_FEWEST, budget // (4 * size)), max(2, columns_read))
    decoded = set(order[: min(whole, sample)].tolist())
    share = budget // max(len(decoded), 1)

    def one(i: int) -> FileSample | str:
        path, limit = listing.paths[i], share if i in decoded else 0
        try:
            file = ParquetFile(path, storage_options=request.storage_options, decryption=decryption)
            if decryption is None and (file.footer.chunk("encrypted") > 0).any():
                raise ValueError("its columns are encrypted")
            return _read(file, columns, limit)
        except (SkipstoneError, OSError, ValueError, pa.ArrowException) as error:
            text = in_words(error, path).partition("\n")[0]
            return f"{path} could not be read: {text}"

    # Each holds a decoded column. Threads wait for an object store, and use a core for a disk.
    workers = _WORKERS if request.storage.remote else min(_WORKERS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        found = list(pool.map(one, at))
    return (
        [each for each in found if isinstance(each, FileSample)],
        [each for each in found if isinstance(each, str)],
    )


def _read(
    file: ParquetFile, columns: Mapping[tuple[str, ...], pa.DataType], budget: int
) -> FileSample:
    """The sample of one file. Columns without a key are not sampled."""
    leaves = {leaf.path: leaf for leaf in file.footer.schema.leaves}
    there = {
        column: leaves[column]
        for column in columns
        if column in leaves
        and not leaves[column].max_repetition_level
        and leaves[column].ordinal not in file.unavailable
    }
    ranges = _ranges(file, there, columns)
    sample = FileSample(
        path=file.path,
        size=file.size,
        rows=file.num_rows,
        leaves=len(leaves),
        row_groups=file.num_row_groups,
        ranges=ranges,
    )
    if budget == 0 or not there:
        return sample
    wanted = _rows_within(file, [leaf.ordinal for leaf in there.values()], budget)
    rows_read = sum(stop - start for start, stop in wanted)
    samples = {}
    for some in _together(file, there):  # only the distinct values of a column are kept
        rows = file.read_rows(list(map(column_name, some)), wanted)
        for column in some:
            read = exactly(leaf_values(rows, column), columns[column])
            if read is not None:
                samples[column] = column_sample(read)
    if rows_read == file.num_rows:
        for column, sampled in samples.items():
            if column not in ranges and (whole := _extremes(sampled.distinct)) is not None:
                ranges[column] = whole
    return replace(sample, rows_read=rows_read, columns=samples)


def _together(
    file: ParquetFile, leaves: Mapping[tuple[str, ...], ColumnDescriptor]
) -> Iterator[list[tuple[str, ...]]]:
    """The columns in parts that are read together: a large one alone, thousands of small ones in
    few reads."""
    at = [leaf.ordinal for leaf in leaves.values()]
    sizes = file.footer.chunk("total_uncompressed_size")[:, at].sum(axis=0).tolist()
    columns = list(leaves)
    return (columns[start:stop] for start, stop in runs_up_to(sizes, _TOGETHER))


def _ranges(
    file: ParquetFile,
    leaves: Mapping[tuple[str, ...], ColumnDescriptor],
    columns: Mapping[tuple[str, ...], pa.DataType],
) -> dict[tuple[str, ...], tuple[pa.Scalar, pa.Scalar]]:
    """The ranges of those columns that have one by the statistics of all row groups."""
    found = {column: _range(file, leaf.ordinal, columns[column]) for column, leaf in leaves.items()}
    return {column: each for column, each in found.items() if each is not None}


def _rows_within(file: ParquetFile, leaves: Sequence[int], budget: int) -> list[tuple[int, int]]:
    """Row ranges within the budget, spread over the row groups; at least one row."""
    total = int(file.footer.chunk("total_uncompressed_size")[:, leaves].sum())
    if total <= budget:
        return [(0, file.num_rows)]
    starts: Sequence[int] = file.row_starts.tolist()
    groups, rows = file.num_row_groups, file.num_rows
    least = max(1, int(rows * budget / total))
    chosen = spread(groups, max(1, -(-least * groups // rows)))
    each = max(1, least // len(chosen))
    return [(starts[g], min(starts[g] + each, starts[g + 1])) for g in chosen]


def leaf_values(rows: pa.Table, path: Sequence[str]) -> pa.Array:
    """The values of a nested field; null where a struct above it is."""
    values = rows.column(rows.schema.get_field_index(path[0]))
    values = pa.concat_arrays(values.chunks) if values.chunks else values.combine_chunks()
    return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values


def _range(file: ParquetFile, leaf: int, type_: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """The column's range, where the statistics of all row groups with values have it."""
    t = pa.types
    if t.is_nested(type_):
        return None
    try:
        bounds = file.indexed.chunk_bounds(leaf)
    except SkipstoneError:
        return None
    if bounds.stored.type is None or spark_type(bounds.stored.type) != type_:
        return None
    known = bounds.numbers or bounds.all
    empty = (known.nulls >= 0) & (known.nulls == known.rows)
    if not (known.lo.valid & known.hi.valid | empty).all():
        return None
    lows = [key for key in known.lo.take(~empty).to_list() if key is not None]
    highs = [key for key in known.hi.take(~empty).to_list() if key is not None]
    if not lows or not highs:
        return None
    least, greatest = from_key(min(lows), type_), from_key(max(highs), type_)
    try:
        if t.is_date(type_):
            found = pa.array([least, greatest], pa.int32()).cast(type_)
        elif t.is_timestamp(type_):
            found = pa.array([least, greatest], pa.int64()).cast(type_)
        elif t.is_decimal(type_):
            found = pa.array([_decimal(each, type_.scale) for each in (least, greatest)], type_)
        else:
            found = pa.array([least, greatest], type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return found[0], found[1]


def _decimal(unscaled: Any, scale: int) -> Decimal:
    # Made of its digits: arithmetic would round to the precision of the context.
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((unscaled < 0, digits, -scale))


def _extremes(values: pa.Array) -> tuple[pa.Scalar, pa.Scalar] | None:
    if not len(values):
        return None
    order = pc.array_sort_indices(values)
    low, high = values[order[0].as_py()], values[order[-1].as_py()]
    return (low, high) if low.is_valid and high.is_valid else None


def column_sample(read: pa.Array) -> ColumnSample:
    """The sample of a column from some of its rows, in the order of the file."""
    values = read.dictionary_decode() if pa.types.is_dictionary(read.type) else read
    distinct = pc.drop_null(pc.unique(values))
    half = values.slice(0, len(values) // 2)
    width, spaced = _width(distinct)
    return ColumnSample(
        rows=len(values),
        nulls=values.null_count,
        distinct=distinct,
        early=len(pc.drop_null(pc.unique(half))),
        ascending=_ascends(values),
        width=width,
        spaced=spaced,
    )


def _ascends(values: pa.Array) -> bool:
    held = pc.drop_null(values)
    if len(held) < 2:
        return True
    in_order = pc.all(pc.less_equal(held.slice(0, len(held) - 1), held.slice(1)))
    return bool(in_order.as_py())


def _width(distinct: pa.Array) -> tuple[float, float]:
    """Mean bytes of a value, and for strings the share of values with two blanks or more."""
    if is_text(distinct.type):
        if not len(distinct):
            return 0.0, 0.0
        width = float(pc.mean(pc.binary_length(distinct)).as_py())
        if not pa.types.is_string(distinct.type):
            return width, 0.0
        try:
            blanks = pc.greater_equal(pc.count_substring(distinct, " "), 2)
            return width, float(pc.mean(blanks.cast(pa.int8())).as_py())
        except pa.ArrowInvalid:  # bytes that are not UTF-8
            return width, 0.0
    return max(1.0, distinct.type.bit_width / 8), 0.0
