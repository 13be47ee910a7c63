"""A container of any writer: its head, its evidence, and whether it belongs to a file.

A container states neither the types of its columns nor which file it belongs to. The types come
from the schema of the data file (``types_of``) or from the caller; a column of unknown type is not
used. Every blob is evidence of the row level. A Bloom filter excludes all rows, or proves nothing.
An empty entry proves that no row of the column holds a value, and nothing about nulls.

``type_in`` compares the indexes of a column with the file's footer. Where the two disagree, the
container is of another file, or of another version of it:

| the footer has, for a column | the index must have |
|---|---|
| rows | as many |
| nulls | as many |
| least and greatest integer, date, instant, decimal of up to 18 digits | both, none beyond them |

A Bloom filter counts neither rows nor nulls; it is only checked for the least and the greatest
value. For text and floating point only rows and nulls are compared: a footer may have truncated
text, and leaves NaN out.

An index of up to ``SMALL`` bytes is also checked for consistency: its keys ascend, and each row is
null or has one value. Containers have no checksum, so consistent damage is not detected.

The same comparison finds the unit of a column of milliseconds. Paimon keeps timestamps of up to 3
digits in milliseconds and all others in microseconds; Skipstone's own containers have only
microseconds. Only one unit matches the footer's least and greatest value, unless all values are 0
or null: then the two indexes are equal. Without bounds in the footer such a column has no type,
unless the caller names it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import Type
from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer
from skipstone.parquet.reading.selection import Selection
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.predicate.types import TIMESTAMP, TIMESTAMP_NTZ, column_name, indexable
from skipstone.pruning import Answer, BaseEvidence, Bounds, Cause, Level, RowSet
from skipstone.pruning.kind import Blob, Stored
from skipstone.pruning.table_schema import find_field

from . import index_blob as reading
from .base import paimon_column
from .bloom import PaimonBloom
from .format.column_keys import type_of
from .format.container import HEAD_PREFIX, ContainerHead, head_length
from .format.keys import In, Null, PaimonType, Range, Root
from .index_blob import SMALL, ask_blob, describe_keys
from .kinds import KINDS, RangeBitmap
from .row_evidence import MOST_KEYS, FileRows
from .top_rows import TopFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import ColumnDescriptor, Node
    from skipstone.pruning import Evidence, Fetched, Units
    from skipstone.storage import ByteRange, Storage

    from .format.container import IndexEntry
    from .format.partial_blob import Pieces


# Bytes of the first read: most heads are shorter. A container up to ``SMALL`` is read whole.
_GUESS = 4_096
_PLAIN = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.DATE: pa.date32(),
    Root.TIMESTAMP: TIMESTAMP_NTZ,
    Root.TIMESTAMP_LTZ: TIMESTAMP,
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
}


@dataclass(frozen=True, slots=True)
class PaimonColumnType:
    """A column's type in Paimon, and in predicates (``stored``); ``None`` if predicates cannot use
    the column (time of day)."""

    paimon: PaimonType
    stored: pa.DataType | None

    @classmethod
    def of_paimon(cls, type: PaimonType) -> PaimonColumnType:
        """From Paimon's type."""
        if type.root is Root.DECIMAL:
            return cls(type, pa.decimal128(type.precision, type.scale))
        return cls(type, _PLAIN.get(type.root))


def types_of(
    physical: pa.Schema, schema: pa.Schema | None = None, *, millis: bool = False
) -> dict[str, PaimonColumnType]:
    """The columns of a data file whose type is certain, by their names in a container.

    ``physical`` has the stored types, with milliseconds; ``schema`` the types as Spark reads them,
    if they differ. ``millis`` includes columns of milliseconds, as if of microseconds
    (``type_in`` finds which of the two a container has).
    """
    read = physical if schema is None else schema
    found: dict[str, PaimonColumnType] = {}
    pending: list[tuple[tuple[str, ...], pa.Field]] = [((f.name,), f) for f in physical]
    while pending:
        path, field = pending.pop()
        if pa.types.is_struct(field.type):
            pending += [((*path, child.name), child) for child in field.type]
            continue
        seen = find_field(read, column_name(path))
        stored = None if seen is None else indexable(seen)
        timed = pa.types.is_timestamp(field.type)
        if stored is None or (timed and field.type.unit in ("s", "ms") and not millis):
            continue
        try:
            type = type_of(field.type if timed and field.type.unit == "ns" else stored)
        except UnsupportedError:
            continue
        found[".".join(path)] = PaimonColumnType(type, stored)
    return found


def footer_and_schemas(
    storage: Storage, version: ObjectId
) -> tuple[FooterArrays, pa.Schema, pa.Schema]:
    """A data file's footer, its stored schema, and its schema as Spark reads it.

    ``UnsupportedError`` where the footer or columns are encrypted.
    """
    reader = PinnedReader(storage)
    reader.pin(version)
    try:
        footer = load_footer(reader, version.path, None).footer
    except KeyUnavailableError:
        raise UnsupportedError("its footer is encrypted") from None
    if footer.encryption_algorithm is not None:
        raise UnsupportedError("its columns are encrypted")
    columns = Selection(footer, version.path)
    stored = map(_stored, columns.schema, footer.schema.root.children)
    return footer, pa.schema(list(stored)), columns.file_schema.spark


def _stored(field: pa.Field, node: Node) -> pa.Field:
    """The field of a column; INT96 holds nanoseconds."""
    if node.element.type is Type.INT96:
        return field.with_type(pa.timestamp("ns"))
    if pa.types.is_struct(field.type):
        children = map(_stored, field.type, node.children)
        return field.with_type(pa.struct(list(children)))
    return field


@dataclass(frozen=True, slots=True, eq=False)
class Sidecar:
    """An open container that lies at ``blob``."""

    blob: Blob
    head: ContainerHead

    def evidence(
        self,
        types: Mapping[str, PaimonColumnType],
        rows: int,
        columns: Iterable[str] | None = None,
    ) -> list[Evidence[Leaf]]:
        """The evidence about ``columns`` (dotted names; all by default) of a file of ``rows`` rows.
        An index of unknown kind or type gives only the reason."""
        wanted = None if columns is None else {paimon_column(name): name for name in columns}
        found: list[Evidence[Leaf]] = []
        for column in self.head.columns:
            if wanted is not None and column.name not in wanted:
                continue
            name = column.name if wanted is None else wanted[column.name]
            type = types.get(column.name)
            for entry in column.indexes:
                place = self.blob.part(entry.start, entry.length)
                if entry.is_empty:
                    found.append(EmptyEntry(name=entry.kind, column=name))
                elif entry.kind not in KINDS or type is None or type.stored is None:
                    text = "the column's type is not known"
                    if entry.kind not in KINDS:
                        text = f"file index of kind {entry.kind!r} is not known"
                    answer = Answer.silent(Cause.UNSUPPORTED, f"{entry.kind}({name})", text, 1)
                    found.append(Silent(name=entry.kind, column=name, said=answer))
                else:
                    found.append(_rows(entry.kind, name, type, place, rows))
        return found

    def top_file(
        self, types: Mapping[str, PaimonColumnType], rows: int, column: str
    ) -> TopFile | None:
        """The range-bitmap of a column (dotted name), for Top-N."""
        name = paimon_column(column)
        type = types.get(name)
        for entry in self.head.of_column(name):
            place = self.blob.part(entry.start, entry.length)
            if entry.kind == RangeBitmap.paimon and place is not None and type is not None:
                return TopFile(blob=place, type=type.paimon, row_count=rows)
        return None


def open_sidecar(
    size: int, fetch: Callable[[Sequence[ByteRange]], Fetched], path: str = "", offset: int = 0
) -> Sidecar:
    """The container of ``size`` bytes from ``offset`` of ``path``; one or two small reads.

    ``FormatError`` if it is not a container or damaged, ``UnsupportedError`` for a version above 1,
    ``OSError`` for bytes that cannot be read.
    """
    blob = Blob(path=path, offset=offset, length=size)
    if size <= SMALL:
        return of_bytes(_fetched(blob, size, fetch))
    prefix = _fetched(blob, min(size, _GUESS), fetch)
    length = head_length(prefix[:HEAD_PREFIX])
    if length > size:
        raise FormatError(
            "the head ends past the file", file=path or None, offset=12, expected=size, got=length
        )
    head = prefix if length <= len(prefix) else _fetched(blob, length, fetch)
    return Sidecar(blob, ContainerHead.from_bytes(head, size))


def of_bytes(data: bytes | memoryview) -> Sidecar:
    """A container in memory. Errors as for ``open_sidecar``."""
    view = memoryview(data)
    return Sidecar(Blob(length=len(view), inline=view), ContainerHead.from_bytes(view, len(view)))


def _fetched(
    blob: Blob, length: int, fetch: Callable[[Sequence[ByteRange]], Fetched]
) -> memoryview:
    wanted = blob.span(0, length)
    got = fetch([wanted]).get(wanted) if length else b""
    if got is None or len(got) != length:
        raise OSError(f"{length:,} bytes of {blob.path} could not be read")
    return memoryview(got)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _WithoutReads(BaseEvidence):
    """Evidence of the row level that reads nothing."""

    name: str
    column: str
    cost: float = 0.0
    level: Level = Level.ROW


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Silent(_WithoutReads):
    """Proves nothing, and gives the reason."""

    said: Answer

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """The same answer for all leaves."""
        return [self.said] * len(leaves)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EmptyEntry(_WithoutReads):
    """An empty entry: no leaf that needs a value matches. It proves nothing about nulls."""

    def answer(self, leaves: Sequence[Leaf], units: Units, have: Fetched) -> Sequence[Answer]:
        """No row, for every leaf that a null does not match."""
        nothing = Answer(bounds=Bounds(RowSet(), RowSet()))
        text = "no row holds a value; it says nothing about nulls"
        silent = Answer.silent(Cause.NOT_APPLICABLE, self.subject, text)
        of_null = (Op.IS_NULL, Op.NE_OR_NULL)
        return [silent if leaf.op in of_null else nothing for leaf in leaves]


def _rows(
    kind: str, column: str, type: PaimonColumnType, place: Blob | None, rows: int
) -> SidecarRows:
    one = np.zeros(1, np.int64)
    stored = Stored(
        type=type.stored, values=pa.nulls(1), rows=one + rows, nulls=one - 1, row_of_file=one
    )
    index = KINDS[kind](column).read_back(stored)
    return SidecarRows(index=index, type=type.paimon, blob=place, rows=rows, nulls=-1)


@dataclass(slots=True, eq=False, kw_only=True)
class SidecarRows(FileRows):
    """The rows of a file according to one blob of the container."""

    def _local(self, leaf: Leaf) -> Leaf | Const | None:
        local = FileRows._local(self, leaf)
        if isinstance(local, Leaf) and self.type.in_millis and self.type.is_timestamp:
            return in_millis(local)
        return local

    def _answer(self, leaf: Leaf) -> Answer:
        said = FileRows._answer(self, leaf)
        if said.bounds is None and self._silence is None and leaf.op in (Op.EQ, Op.IN):
            # A Bloom filter that has the value: any row may match.
            return Answer(bounds=Bounds(RowSet(), RowSet.all(self.rows)))
        return said

    def _check(self, found: reading.RowAnswer) -> None:
        if self.index.paimon != PaimonBloom.paimon:  # it does not count rows
            FileRows._check(self, found)


_DOWN = {Op.LT: Op.LE, Op.LE: Op.LE, Op.GT: Op.GT, Op.GE: Op.GT}


def in_millis(leaf: Leaf) -> Leaf | Const:
    """A leaf with constants of whole milliseconds that matches the same whole milliseconds."""
    values = [value for value in leaf.values[: MOST_KEYS + 1] if isinstance(value, int)]
    full = tuple(value for value in values if value % 1_000 == 0)
    if len(full) == len(leaf.values) or len(values) > MOST_KEYS:  # which no index is asked
        return leaf
    match leaf.op:
        case Op.EQ | Op.IN:
            return Leaf(leaf.column, leaf.type, Op.IN, full) if full else Const(False)
        case Op.NE | Op.NOT_IN:
            if full:
                return Leaf(leaf.column, leaf.type, Op.NOT_IN, full)
            return Leaf(leaf.column, leaf.type, Op.NOT_NULL)
        case Op.NE_OR_NULL:
            return Const(True)
        case Op.LT | Op.LE | Op.GT | Op.GE:
            below = values[0] // 1_000 * 1_000
            return Leaf(leaf.column, leaf.type, _DOWN[leaf.op], (below,))
        case _:
            return leaf


_MILLIS = 3  # digits of a timestamp that Paimon keeps in milliseconds
_COUNTING = ("bitmap", "bsi", "range-bitmap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """The footer's numbers for a column: ``nulls`` is -1, ``low`` and ``high`` ``None`` if unknown.

    ``low`` and ``high`` are in the file's own unit, which is milliseconds if ``in_millis``.
    """

    nulls: int = -1
    low: int | None = None
    high: int | None = None
    in_millis: bool = False


def column_counts(footer: FooterArrays, wanted: Collection[str]) -> dict[str, ColumnCounts]:
    """Those of the columns ``wanted``, by dotted name, without names that two columns share."""
    names = [".".join(leaf.path) for leaf in footer.schema.leaves]
    usual = Counter(names)
    return {
        name: _counts(footer, leaf)
        for name, leaf in zip(names, footer.schema.leaves, strict=True)
        if name in wanted and usual[name] == 1
    }


def _counts(arrays: FooterArrays, leaf: ColumnDescriptor) -> ColumnCounts:
    column, at = StoredColumn.of(leaf), leaf.ordinal
    # Stored numbers are ordered, and equal the keys of an index.
    ordered = (
        leaf.type in (Type.INT32, Type.INT64)
        and column.form in (Form.SIGNED, Form.DECIMAL, Form.TIMESTAMP)
        and column.unit != "ns"
    )
    width = 4 if leaf.type is Type.INT32 else 8
    null_counts: list[int] = arrays.chunk("null_count")[:, at].tolist()
    values: list[int] = arrays.chunk("num_values")[:, at].tolist()
    nulls, low, high = 0, None, None
    for group, found in enumerate(null_counts):
        if arrays.parts("statistics")[group, at] < 0:
            nulls, ordered = -1, False
            break
        nulls = nulls + found if nulls >= 0 and found >= 0 else -1
        least, most = _bound(arrays, group, at, "min"), _bound(arrays, group, at, "max")
        if ordered and least is not None and most is not None and len(least) == len(most) == width:
            first = int.from_bytes(least, "little", signed=True)
            last = int.from_bytes(most, "little", signed=True)
            low = first if low is None else min(low, first)
            high = last if high is None else max(high, last)
        elif found != values[group]:
            ordered = False
    if not ordered:
        low = high = None
    return ColumnCounts(nulls=nulls, low=low, high=high, in_millis=column.unit == "ms")


def _bound(arrays: FooterArrays, group: int, at: int, end: str) -> bytes | None:
    found = arrays.value_bytes(f"{end}_value", group, at)
    return arrays.value_bytes(end, group, at) if found is None else found


def type_in(
    sidecar: Sidecar,
    name: str,
    type: PaimonColumnType,
    counts: ColumnCounts,
    rows: int,
    fetch: Callable[[Sequence[ByteRange]], Fetched],
) -> PaimonColumnType | None:
    """The type of a column in the container; ``None`` if it is unknown. ``name`` is the
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
            if place.length <= SMALL:
                describe_keys(kind, type.paimon, pieces)
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
