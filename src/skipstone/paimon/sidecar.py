"""A container of any writer: its head and its evidence.

A container states neither the types of its columns nor which file it belongs to. The types come
from the schema of the data file (``types_of``) or from the caller; a column of unknown type is not
used. ``sidecar_match`` finds out whether it belongs to a file. Every blob is evidence of the row
level. A Bloom filter excludes all rows, or proves nothing. An empty entry proves that no row of the
column holds a value, and nothing about nulls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, KeyUnavailableError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.reading.pinned_file import PinnedReader, load_footer
from skipstone.parquet.reading.selection import Selection
from skipstone.predicate.tree import Const, Leaf, Op
from skipstone.predicate.types import TIMESTAMP, TIMESTAMP_NTZ, column_name, indexable
from skipstone.pruning import Answer, BaseEvidence, Bounds, Cause, Level, RowSet
from skipstone.pruning.kind import Blob, Stored
from skipstone.pruning.table_schema import find_field

from .base import paimon_column
from .bloom import PaimonBloom
from .format.column_keys import type_of
from .format.container import HEAD_PREFIX, ContainerHead, head_length
from .format.keys import PaimonType, Root
from .index_blob import SMALL
from .kinds import KINDS, RangeBitmap
from .row_evidence import MOST_KEYS, FileRows
from .top_rows import TopFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from skipstone.identity import ObjectId
    from skipstone.parquet.format.footer_arrays import FooterArrays
    from skipstone.parquet.format.schema import Node
    from skipstone.pruning import Evidence, Fetched, Units
    from skipstone.storage import ByteRange, Storage

    from . import index_blob as reading

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
    """The leaf with its constants rounded to whole milliseconds, so that it matches the same values
    of whole milliseconds."""
    values = [value for value in leaf.values[: MOST_KEYS + 1] if isinstance(value, int)]
    full = tuple(value for value in values if value % 1_000 == 0)
    if len(full) == len(leaf.values) or len(values) > MOST_KEYS:  # no index is asked for so many
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
