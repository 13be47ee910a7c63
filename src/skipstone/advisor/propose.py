"""``advise``: which indexes to build, each with its reason, and the ``Advice`` that reports them.

A lookup of an existing value shows the worth of an index: the share of all files that it still
reads. An index helps where that is at most ``HELPS``. The proposal is the cheapest kind that is
nearly as good as the best:

- ``minmax`` where few ranges hold a value: it costs almost nothing and serves ranges too;
- ``valuelist`` where a file has few distinct values, else ``bloom`` for columns that are looked up
  by equality: not for fractions, instants and free text;
- ``minmax`` and ``bloom`` where ranges help, and the values help clearly more; a list of values
  makes ``minmax`` superfluous, as it answers the same questions.

Nothing else is proposed: an index that never skips still costs time and bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.human import percent, plural
from skipstone.indexes.valuelist import MAX_BYTES, MAX_VALUES
from skipstone.predicate.types import column_name, indexable, spark_name
from skipstone.pruning.column_types import atomic
from skipstone.pruning.partitions import PartitionColumns

from .measure import Measured, bloom_bytes, measure, minmax_bytes, store_bytes, valuelist_bytes
from .report import Advice, ColumnAdvice
from .sampling import BUDGET, AdviceRequest, FileSample, read_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from skipstone.storage import Listing


#: most that a lookup may still read, as a share of all files, for an index to be proposed
HELPS = 0.7
# Ranges are as good as values if a lookup by ranges reads at most this share of all files more.
_AS_GOOD = 0.05
# A bloom filter replaces a list of values that is this many times larger.
_SMALLER = 2.0
_MAX_FILES_NAMED = 3
# A column that pandas adds for an index without a name.
_ROW_LABELS = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableColumn:
    """A column of the table: its path, and its canonical type or why it has none."""

    path: tuple[str, ...]
    shown: str
    type: pa.DataType | None
    why: str = ""


def advise(request: AdviceRequest, budget: int = BUDGET) -> Advice:
    """Advice on a table from a sample of its files; about ``budget`` bytes are decoded.

    Files that cannot be read are noted and skipped; ``FormatError`` where none can be read.
    """
    listing, name = request.listing, request.shown
    if not len(listing):
        return Advice(
            table=name,
            sampled=0,
            files_total=0,
            rows_read=0,
            bytes_data=0,
            columns=(),
            notes=("the table has no files",),
        )
    schema = request.table_schema()
    columns = list(_leaves(schema, ()))
    typed = {column.path: column.type for column in columns if column.type is not None}
    files, unread = read_sample(request, typed, budget)
    total = len(listing)
    advised = [
        ColumnAdvice(
            column=column_name((name,)),
            type="partition",
            why="partition column: its value is in the path, no index is needed",
        )
        for name in PartitionColumns.of(listing).values
    ]
    taken = {each.column for each in advised}
    advised += [
        _column(column, files, listing)
        for column in columns
        if column_name(column.path) not in taken
    ]
    chosen = [column for column in advised if column.kinds]
    proposed = sum(column.bytes_estimate for column in chosen)
    stored = store_bytes(total, len(chosen), [(each.leaves, each.row_groups) for each in files])
    return Advice(
        table=name,
        sampled=len(files),
        files_total=total,
        rows_read=sum(file.rows_read for file in files),
        bytes_data=listing.total_bytes,
        columns=tuple(advised),
        bytes_estimate=proposed + stored if chosen else 0,
        notes=tuple(_notes(files, unread, total)),
        recursive_file_lookup=listing.recursive,
    )


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...]) -> Iterator[_TableColumn]:
    for field in fields:
        path = (*above, field.name)
        type_ = indexable(field)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        elif type_ is not None and atomic(type_):
            yield _TableColumn(path=path, shown=spark_name(type_), type=type_)
        else:
            nested = pa.types.is_nested(field.type)
            shown = str(field.type).partition("<")[0] if nested else str(field.type)
            name, why = column_name(path), "no index supports this type"
            if pa.types.is_map(field.type):
                why = f"a value of a key may have an index: {name}['KEY']:bloom"
            elif nested:
                why = f"{name}:bloom serves array_contains({name}, …)"
            yield _TableColumn(path=path, shown=shown, type=None, why=why)


def _notes(files: Sequence[FileSample], unread: Sequence[str], total: int) -> Iterator[str]:
    yield from unread[:_MAX_FILES_NAMED]
    if len(unread) > _MAX_FILES_NAMED:
        yield f"and {len(unread) - _MAX_FILES_NAMED:,} more files could not be read"
    partly = [file for file in files if 0 < file.rows_read < file.rows]
    if partly:
        read, rows = sum(f.rows_read for f in partly), sum(f.rows for f in partly)
        yield (
            f"{percent(read, rows)} of the rows of {plural(len(partly), 'file')} were read: "
            "numbers with ~ are scaled up from those"
        )
    if total == 1:
        yield (
            "indexes skip files, and this is one: page indexes and Bloom filters in it skip parts"
            " (`skipstone retrofit`), bitmap and rangebitmap rows (`advise --queries`)"
        )
    footers = sum(1 for file in files if not file.rows_read and file.rows)
    if footers:
        yield f"only the footers of {footers:,} of the sampled files were read"


def _column(column: _TableColumn, files: Sequence[FileSample], listing: Listing) -> ColumnAdvice:
    name = column_name(column.path)
    if column.type is None:
        return ColumnAdvice(column=name, type=column.shown, why=column.why)
    if _ROW_LABELS.fullmatch(name):
        return ColumnAdvice(column=name, type=column.shown, why="the row labels of pandas")
    total = len(listing)
    found = measure(files, column.path, total)
    kinds, why = _decide(column.type, found, total)
    return ColumnAdvice(
        column=name,
        type=column.shown,
        nulls=found.nulls,
        distinct_per_file=None if found.nulls is None else round(found.distinct),
        distinct_exact=found.exact,
        sorted=found.ascending if found.distinct > 1 else None,
        overlap=found.overlap,
        reads_minmax=found.reads_minmax,
        reads_values=found.reads_values,
        kinds=kinds,
        why=why,
        bytes_estimate=sum(_bytes(kind, column.type, found, listing) for kind in kinds),
        bytes_per_key=(
            bloom_bytes(found.distinct, total) / max(found.distinct, 1)
            if "bloom" in kinds
            else None
        ),
    )


def _bytes(kind: str, type_: pa.DataType, found: Measured, listing: Listing) -> int:
    total = len(listing)
    if kind == "minmax":
        return round(total * minmax_bytes(type_, found.width))
    if kind == "valuelist":
        args = found.width, found.distinct, total, found.distinct_total
        return round(valuelist_bytes(type_, *args))
    # The larger a file, the more values it has: the bytes that were sampled stand for all bytes.
    filters = sum(bloom_bytes(count, total) for count, _ in found.distinct_by_file)
    sampled = sum(size for _, size in found.distinct_by_file)
    return round(filters * listing.total_bytes / max(sampled, 1))


def _decide(type_: pa.DataType, found: Measured, total: int) -> tuple[tuple[str, ...], str]:
    """The kinds to build, best first, and why these or none."""
    if total < 2:
        return (), "one file: there is nothing to skip"
    if found.nulls is None:
        return (), "no row of it was read"
    if found.distinct_overall == 0:
        return (), "only nulls in the sample"
    if found.distinct_overall == 1:
        return (), "one value in all files of the sample"
    ranges = found.reads_minmax if found.reads_minmax is not None else 1.0
    values = found.reads_values if found.reads_values is not None else 1.0
    ranges_help, values_help = ranges <= HELPS, values <= HELPS
    if ranges_help and ranges <= values + _AS_GOOD:
        return ("minmax",), f"a value lies in the range of {_files(ranges)}"
    exact, against = _exact_kind(type_, found, total)
    if exact and values_help:
        count = f"{round(found.distinct):,} values per file, each in {_files(values)}"
        if ranges_help and exact == "bloom":
            return ("minmax", exact), f"{count}; in the range of {_files(ranges)}"
        return (exact,), f"{count}; min/max would read {_files(ranges)}"
    if ranges_help:
        return ("minmax",), f"a value lies in the range of {_files(ranges)}"
    if values_help:
        return (), f"{against}, and a value lies in the range of {_files(ranges)}"
    return (), f"spread over all: a value is in {_files(values)}"


def _files(share: float) -> str:
    return f"{percent(share, 1) if share < 0.9995 else '100 %'} of files"


def _exact_kind(type_: pa.DataType, found: Measured, total: int) -> tuple[str | None, str]:
    """The kind that would store the values, or ``None`` and why there is none."""
    t = pa.types
    largest = max((count for count, _ in found.distinct_by_file), default=0.0)
    per_row = found.distinct / max(found.rows_per_file, 1)
    fractions = t.is_floating(type_) or (t.is_decimal(type_) and type_.scale > 0)
    # Fractions that repeat are whole numbers, or of few kinds; others are not looked up.
    listed = not fractions or per_row <= 0.5
    if listed and largest <= MAX_VALUES and largest * (found.width + 4) <= MAX_BYTES:
        args = found.width, found.distinct, total, found.distinct_total
        filters = total * bloom_bytes(found.distinct, total)
        short = valuelist_bytes(type_, *args) <= _SMALLER * filters
        if short or t.is_boolean(type_):
            return "valuelist", ""
    if fractions:
        return None, "fractions are queried by range"
    if t.is_timestamp(type_) or t.is_duration(type_):
        return None, "instants are queried by range"
    if t.is_boolean(type_):
        return None, "two values"
    if found.spaced > 0.5 and per_row > 0.5:
        return None, "free text is not looked up as a whole; ngram serves LIKE"
    return "bloom", ""
