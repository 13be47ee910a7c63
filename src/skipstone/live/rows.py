"""Rows of a live table: cast to its schema, split, sorted, encoded, read back.

Times are int64 in the unit of the timestamp column; ``_txn`` counts microseconds, or nanoseconds
where the column does. Partitions begin in UTC; a column without a time zone counts as UTC.

Tasks that encode rows write staged files, and the table's writer appends their bytes:

    <root>/_staging/<uuid>/<file>.parquet     rows of one partition, sorted

Staged files are not part of the table. A file counts if its task reports it; other files are
removed with the directory. All tasks share the file system.
"""

from __future__ import annotations

import shutil
import uuid
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.parquet.format.footer import find_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.reading.arrow_footer import ArrowColumns
from skipstone.parquet.writing.arrow_encoder import EncodedRowGroups, encode_rows
from skipstone.questdb.txn_snapshot import DATA

from .._arrays import distinct
from .disk import mapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .definition import LiveDefinition, LiveUnit
    from .partition import PartitionState


Int64s: TypeAlias = npt.NDArray[np.int64]

_NUMPY_UNITS: dict[str, str] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


def conform(definition: LiveDefinition, rows: Any) -> pa.Table:
    """A table of exactly the definition's schema; ``SkipstoneError`` names the wrong column.

    Columns are matched by name, in any order; types are cast where that is exact.
    """
    schema = definition.schema
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        raise SkipstoneError(
            f"rows of type {type(rows).__name__}", hint="a pyarrow Table or RecordBatch"
        )
    given = rows.column_names
    missing = [name for name in schema.names if given.count(name) != 1]
    other = [name for name in given if name not in schema.names]
    if missing or other:
        raise SkipstoneError(
            f"rows of other columns: {', '.join(missing) or 'none'} missing (or duplicate),"
            f" {', '.join(other) or 'none'} unknown",
            hint=f"the columns are {', '.join(schema.names)}",
        )
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise SkipstoneError(
                    f"column {field.name!r} of type {column.type} does not fit {field.type}:"
                    f" {error}",
                    hint="cast the column before",
                ) from None
        if not field.nullable and column.null_count:
            what = (
                "is the designated timestamp"
                if field.name == definition.timestamp
                else "is not nullable"
            )
            raise SkipstoneError(
                f"{column.null_count} nulls in column {field.name!r}, which {what}",
                hint="leave these rows out, or give them a value",
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def times(definition: LiveDefinition, rows: pa.Table) -> Int64s:
    """The designated timestamps."""
    column = rows.column(definition.timestamp)
    return np.asarray(pc.cast(column, pa.int64()).to_numpy(), np.int64)


def txn_time(definition: LiveDefinition, time: int) -> int:
    """A time of the column as ``_txn`` counts."""
    return time * 1000 if definition.unit == "ms" else time


def partition_starts(at: Int64s, partition_by: LiveUnit, unit: str) -> Int64s:
    """The start of the partition of each time, in the same unit; 0 for all without partitions.

    ``SkipstoneError`` for times that no partition name can express.
    """
    if partition_by == "none" or not len(at):
        return np.zeros(len(at), np.int64)
    low, high = np.datetime64("0001-01-01", "D"), np.datetime64("9999-12-31", "D")
    edges = np.array([at.min(), at.max()])
    days = edges.view(f"M8[{unit}]").astype("M8[D]")
    # The least integer is NumPy's NaT, for which every comparison is false.
    if edges[0] == np.iinfo(np.int64).min or days[0] < low or days[1] > high:
        raise SkipstoneError(
            f"timestamps from {days[0]} to {days[1]}", hint="partitions have years 1 to 9999"
        )
    whole = _NUMPY_UNITS[partition_by]
    stamps = at.view(f"M8[{unit}]")
    # Most writes touch one partition: then nothing is computed per row.
    first, last = edges.view(f"M8[{unit}]").astype(f"M8[{whole}]")
    if first == last:
        return np.full(len(at), first.astype(f"M8[{unit}]").astype(np.int64))
    return np.asarray(stamps.astype(f"M8[{whole}]").astype(f"M8[{unit}]").astype(np.int64))


def split(definition: LiveDefinition, rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """(start of the partition, its rows sorted), by time; starts are in the column's unit."""
    at = times(definition, rows)
    if not len(at):
        return []
    begins = partition_starts(at, definition.partition_by, definition.unit)
    if begins[0] == begins[-1] and (begins == begins[0]).all():
        return [(int(begins[0]), _sorted(definition, rows, at))]
    order = np.argsort(begins, kind="stable")
    found, starts = np.unique(begins[order], return_index=True)
    parts = []
    for begin, (low, high) in zip(
        found.tolist(), pairwise([*starts.tolist(), len(at)]), strict=True
    ):
        chosen = order[low:high]
        parts.append((begin, _sorted(definition, rows.take(chosen), at[chosen])))
    return parts


def merged_size(definition: LiveDefinition, rows: int) -> int:
    """Rows per row group if ``rows`` are divided evenly into as few as possible."""
    groups = max(1, -(-rows // definition.row_group_rows))
    return -(-rows // groups)


def merged(definition: LiveDefinition, parts: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tables, sorted; among equal rows those of the first table come first."""
    rows = pa.concat_tables(parts)
    return _sorted(definition, rows, times(definition, rows))


def by_row_group(
    definition: LiveDefinition, highs: Sequence[int], rows: pa.Table
) -> tuple[dict[int, pa.Table], pa.Table]:
    """Splits sorted rows by the row group of an ordered partition that covers them; and later rows.

    ``highs`` are the largest timestamps of the row groups. A row goes into the first row group that
    has a later one; so each row group ends before the next begins, or at the same instant.
    """
    at = times(definition, rows)
    groups = np.searchsorted(np.asarray(highs, np.int64), at, side="right")
    late: dict[int, pa.Table] = {}
    for group in distinct(groups[groups < len(highs)]).tolist():
        low, high = np.searchsorted(groups, [group, group + 1])
        late[group] = rows.slice(low, high - low)
    behind = int(np.searchsorted(groups, len(highs)))
    return late, rows.slice(behind)


def _sorted(definition: LiveDefinition, rows: pa.Table, at: Int64s) -> pa.Table:
    if definition.sort_by == ((definition.timestamp, "ascending"),) and (at[:-1] <= at[1:]).all():
        return rows
    if not definition.sort_by:
        return rows
    try:
        # Nulls come last: Arrow's default, and what the sorting columns of the footer declare.
        order = pc.sort_indices(rows, sort_keys=list(definition.sort_by))
    except (pa.ArrowException, TypeError) as error:
        raise SkipstoneError(
            f"rows cannot be sorted: {error}", hint="sort_by numbers, text and times"
        ) from None
    return rows.take(order)


def encode(
    definition: LiveDefinition, rows: pa.Table, *, row_group_rows: int | None = None
) -> EncodedRowGroups:
    """Sorted rows of the definition's schema as row groups of at most ``row_group_rows``."""
    size = row_group_rows or definition.row_group_rows
    # Sized for the most values that there can be: Arrow's default is a million, in 1 MiB.
    options = {"ndv": max(1, min(size, len(rows)))}
    blooms: Any = dict.fromkeys(definition.bloom_filters, options) or None
    return encode_rows(
        rows,
        row_group_size=size,
        compression=definition.compression,
        write_page_index=True,
        bloom_filter_options=blooms,
        sorting_columns=pq.SortingColumn.from_ordering(definition.schema, list(definition.sort_by)),
    )


def read_row_groups(
    definition: LiveDefinition, directory: str, size: int, row_groups: Sequence[int]
) -> Iterator[pa.Table]:
    """Each of these row groups of the first ``size`` bytes, in the definition's schema."""
    path = f"{directory}/{DATA}"
    data = mapped(path, size)
    names = definition.schema.names
    try:
        tail, footer = find_footer(data[:size])
        columns = ArrowColumns(
            FooterArrays.scan(footer, tail.offset), tuple((name,) for name in names), path, size
        )
        with pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data[:size])),
            metadata=columns.metadata,
            page_checksum_verification=True,
        ) as file:
            for row_group in row_groups:
                # Arrow's threads may hold the bytes after Python has ended, and then abort.
                rows = file.read_row_group(row_group, use_threads=False)
                yield rows.rename_columns(names).cast(definition.schema)
    except FormatError as error:
        raise error.in_file(path) from error
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"Arrow cannot read it back: {error}", file=path) from error


# -- staged files ----------------------------------------------------------------------------------

STAGING: Final = "_staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One file: ``rows`` rows of the partition that begins at ``begin``, of times from ``low`` to
    ``high``, all in the unit of the timestamp column."""

    path: str
    begin: int
    rows: int
    low: int
    high: int


def stage(definition: LiveDefinition, rows: pa.Table, directory: str) -> list[Staged]:
    """Rows split by partition, sorted, encoded, and written below ``directory``."""
    found = []
    for begin, part in split(definition, conform(definition, rows)):
        path = f"{directory}/{uuid.uuid4().hex}.parquet"
        Path(path).write_bytes(encode(definition, part).data)
        at = times(definition, part)
        found.append(
            Staged(path=path, begin=begin, rows=len(part), low=int(at.min()), high=int(at.max()))
        )
    return found


def clear(root: str) -> None:
    """Remove the files of dead writers. The holder of the lock has staged nothing yet."""
    shutil.rmtree(f"{root}/{STAGING}", ignore_errors=True)


def by_partition(staged: Iterable[Staged]) -> Iterator[tuple[int, list[Staged]]]:
    """The files of each partition in the order of their rows; (start, files), by time."""
    ordered = sorted(staged, key=lambda each: (each.begin, each.low, each.high, each.path))
    for begin, files in groupby(ordered, key=lambda each: each.begin):
        yield begin, list(files)


def placeable(
    definition: LiveDefinition, state: PartitionState | None, files: Sequence[Staged]
) -> pa.Table | list[EncodedRowGroups]:
    """What to add to a partition (``None``: a new one): row groups, or else their rows.

    Row groups are appended unchanged if they keep the order of the partition, and their writer
    encoded the schema as the writer of the partition did.
    """
    encoded = [EncodedRowGroups.of(mapped(each.path)) for each in files]
    columns = {each.editor.columns for each in encoded}
    if state is not None:
        columns.add(state.footer.columns)
    last = None if state is None else state.highs[-1]
    follows = True
    for each in files:
        follows = follows and (last is None or last <= each.low)
        last = each.high
    if len(columns) == 1 and (follows or not definition.ordered):
        return encoded
    read = [
        pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(each.data)), page_checksum_verification=True
        ).read(use_threads=False)
        for each in encoded
    ]
    exact = [each.select(definition.schema.names).cast(definition.schema) for each in read]
    return merged(definition, exact)
