"""Checks whether a container belongs to a data file: its indexes against the file's footer.

A container does not name its file. Where the two disagree, the container is of another file, or of
another version of it:

| the footer says of a column | the index must have |
|---|---|
| rows | as many |
| nulls | as many |
| least and greatest integer, date, instant, decimal of up to 18 digits | both, none beyond them |

A Bloom filter counts neither rows nor nulls; it is only checked for the least and the greatest
value. Of text and floating point only rows and nulls are compared: a footer may have cut text
short, and leaves NaN out.

The same comparison finds the unit of a column of milliseconds: Paimon's keys are milliseconds,
Skipstone's are microseconds. Only one unit gives the footer's least and greatest value; both do
where all values are 0 or null, and then the two indexes are equal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skipstone.errors import FormatError

from .blob_description import ask_blob
from .bloom import PaimonBloom
from .container_evidence import PaimonColumnType
from .format import open_index as reading
from .format.keys import In, Null, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from skipstone.pruning import Fetched
    from skipstone.storage import ByteRange

    from .container_evidence import Sidecar
    from .format.container import IndexEntry
    from .format.partial_blob import Pieces


_MILLIS = 3  # digits of a timestamp that Paimon keeps in milliseconds
_COUNTING = ("bitmap", "bsi", "range-bitmap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """What a footer says of one column: ``nulls`` is -1, ``low`` and ``high`` ``None`` if unknown.

    ``low`` and ``high`` are in the file's own unit, which is milliseconds if ``in_millis``.
    """

    nulls: int = -1
    low: int | None = None
    high: int | None = None
    in_millis: bool = False


def column_counts(footer: Any, wanted: Collection[str]) -> dict[str, ColumnCounts]:
    """What pyarrow's ``FileMetaData`` says of the columns ``wanted``, by dotted name. A name that
    two columns share is left out."""
    schema = footer.schema
    names = [schema.column(at).path for at in range(len(schema))]
    usual = Counter(names)
    return {
        name: _counts(footer, at)
        for at, name in enumerate(names)
        if name in wanted and usual[name] == 1
    }


def _counts(footer: Any, at: int) -> ColumnCounts:
    column = footer.schema.column(at)
    logical = str(column.logical_type)
    in_millis = "Timestamp" in logical and "milliseconds" in logical
    ordered = column.physical_type in ("INT32", "INT64") and _is_signed(logical)
    nulls, low, high = 0, None, None
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(at)
        found = chunk.statistics
        if found is None:
            nulls, ordered = -1, False
            break
        nulls = nulls + found.null_count if nulls >= 0 and found.has_null_count else -1
        if ordered and found.has_min_max:
            low = found.min_raw if low is None else min(low, found.min_raw)
            high = found.max_raw if high is None else max(high, found.max_raw)
        elif not (found.has_null_count and found.null_count == chunk.num_values):
            ordered = False
    if not ordered:
        low = high = None
    return ColumnCounts(nulls=nulls, low=low, high=high, in_millis=in_millis)


def _is_signed(logical: str) -> bool:
    """Whether stored numbers of this logical type are ordered, and equal the keys of an index."""
    if "isSigned=false" in logical or "nanoseconds" in logical:
        return False
    return logical.partition("(")[0] in ("None", "Int", "Date", "Decimal", "Timestamp")


def type_in(
    sidecar: Sidecar,
    name: str,
    type: PaimonColumnType,
    counts: ColumnCounts,
    rows: int,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> PaimonColumnType | None:
    """The type of a column in the container; ``None`` if it cannot be found out. ``name`` is the
    column's name in the container, ``type`` its type in the data file.

    ``FormatError`` if the container is damaged or of another file, ``OSError`` for bytes that
    cannot be read.
    """
    kinds = (*_COUNTING, PaimonBloom.paimon)
    entries = [each for each in sidecar.head.of_column(name) if each.kind in kinds]
    entries = [each for each in entries if not each.is_empty]
    if not counts.in_millis or not type.paimon.is_timestamp:
        for entry in entries:
            _compare(sidecar, name, entry, type, counts, rows, fetch)
        return type
    fitting = []
    errors: list[FormatError] = []
    for precision in (_MILLIS, type.paimon.precision):
        candidate = PaimonColumnType(replace(type.paimon, precision=precision), type.stored)
        try:
            for entry in entries:
                _compare(sidecar, name, entry, candidate, counts, rows, fetch)
        except FormatError as error:
            errors.append(error)
        else:
            fitting.append(candidate)
    if not fitting:
        raise errors[0]
    sure = counts.low is not None or (counts.nulls == rows and counts.nulls >= 0)
    counting = any(each.kind in _COUNTING for each in entries)
    return fitting[0] if sure and (counting or len(fitting) == 1) else None


def _compare(
    sidecar: Sidecar,
    name: str,
    entry: IndexEntry,
    type: PaimonColumnType,
    counts: ColumnCounts,
    rows: int,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> None:
    """``FormatError`` if one index contradicts ``counts``: it is of another file."""
    kind = entry.kind
    place = sidecar.blob.part(entry.start, entry.length)
    if place is None:
        raise FormatError("the index lies outside its container")
    scale = 1_000 if counts.in_millis and not type.paimon.in_millis else 1
    low = None if counts.low is None else counts.low * scale
    high = None if counts.high is None else counts.high * scale

    def compare(pieces: Pieces) -> None:
        def found(ask: In | Null | Range) -> reading.RowAnswer:
            return reading.answer(kind, type.paimon, ask, pieces)

        if kind in _COUNTING:
            nulls = found(Null())
            if nulls.row_count != rows:
                raise _other(f"{rows:,} rows", f"{nulls.row_count:,}")
            if counts.nulls >= 0 and nulls.may is not None and len(nulls.may) != counts.nulls:
                raise _other(f"{counts.nulls:,} nulls in {name}", f"{len(nulls.may):,}")
        for value in (low, high):
            if value is None:
                continue
            hit = found(In((value,))).may
            if hit is not None and not hit:
                raise _other(f"the file's least and greatest {name}", "it lacks one of them")
        if kind in _COUNTING and low is not None and high is not None:
            for beyond in (Range(hi=low, hi_open=True), Range(lo=high, lo_open=True)):
                if found(beyond).may:
                    raise _other(f"the file's least and greatest {name}", "values beyond them")

    ask_blob(place, fetch, compare)


def _other(expected: str, got: str) -> FormatError:
    return FormatError("the index is of another file", expected=expected, got=got)
