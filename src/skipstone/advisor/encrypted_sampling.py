"""A sample of a file that is encrypted, or lies among such: read page by page, with its keys.

Ranges of columns are those of the row groups' statistics, rows the first ones of row groups that
are spread over the file, as ``sampling`` has them of files in the clear. Columns without a key, and
INT96, are not sampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.errors import SkipstoneError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.reading.file import ParquetFile
from skipstone.predicate.literals import from_key
from skipstone.predicate.types import column_name, spark_type
from skipstone.pruning.column_types import exactly

from .sampling import FileSample, column_sample, spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skipstone.parquet.encryption.decryption import Decryption

__all__ = ["read_sealed"]


def read_sealed(
    path: str,
    size: int,
    columns: Mapping[tuple[str, ...], pa.DataType],
    budget: int,
    decryption: Decryption,
    storage_options: Mapping[str, str] | None = None,
) -> FileSample:
    """``columns`` of one file, of which ``budget`` decoded bytes are read; raises as
    ``ParquetFile``."""
    file = ParquetFile(path, storage_options=storage_options, decryption=decryption)
    leaves = {leaf.path: leaf for leaf in file.footer.schema.leaves}
    there = {
        column: leaves[column].ordinal
        for column in columns
        if column in leaves
        and leaves[column].ordinal not in file.unavailable
        and leaves[column].type != Type.INT96
    }
    ranges = {}
    for column, leaf in there.items():
        found = _range(file, leaf, columns[column])
        if found is not None:
            ranges[column] = found
    if budget == 0 or not there:
        return FileSample(path=path, size=size, rows=file.num_rows, ranges=ranges)
    rows = file.read_rows([column_name(each) for each in there], _ranges(file, there, budget))
    samples = {}
    for column in there:
        read = exactly(_leaf(rows, column), columns[column])
        if read is not None:
            samples[column] = column_sample([read], columns[column])
    return FileSample(
        path=path,
        size=size,
        rows=file.num_rows,
        rows_read=rows.num_rows,
        ranges=ranges,
        columns=samples,
    )


def _ranges(
    file: ParquetFile, leaves: Mapping[tuple[str, ...], int], budget: int
) -> list[tuple[int, int]]:
    """Rows within the budget."""
    at = list(leaves.values())
    total = int(file.footer.chunk("total_uncompressed_size")[:, at].sum())
    if total <= budget:
        return [(0, file.num_rows)]
    wanted = max(1, file.num_rows * budget // total)
    starts: Sequence[int] = file.row_starts.tolist()
    groups = file.num_row_groups
    chosen = spread(groups, max(1, -(-wanted * groups // file.num_rows)))
    each = max(1, wanted // len(chosen))
    return [(starts[g], min(starts[g] + each, starts[g + 1])) for g in chosen]


def _leaf(rows: pa.Table, path: Sequence[str]) -> pa.Array:
    """The values of a nested field; null where a struct above it is."""
    values = rows.column(path[0]).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _range(file: ParquetFile, leaf: int, type_: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """The column's range, where the statistics of all row groups that have any value say it."""
    t = pa.types
    if t.is_decimal(type_) or t.is_boolean(type_) or t.is_nested(type_):
        return None
    try:
        bounds = file.indexed.chunk_bounds(leaf)
    except SkipstoneError:
        return None
    if spark_type(bounds.stored.type) != type_:
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
        else:
            found = pa.array([least, greatest], type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return found[0], found[1]
