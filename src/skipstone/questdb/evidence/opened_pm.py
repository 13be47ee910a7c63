"""An opened ``_pm`` with the data file that it belongs to, and what its columns can answer.

>>> snapshot = open_pm(data, parquet_size=size)          # CRC verified once, here
>>> file = OpenedPm.of(snapshot, path=path, schema=schema, own=True)
>>> file.columns["price"]                                # position in the _pm, if it can answer

Nothing is done per column before it is queried. The size of the Parquet file selects the snapshot.
A ``_pm`` without a snapshot of that size belongs to another version, which is a ``FormatError``.

A ``_pm`` keeps QuestDB's type and the physical type, not Parquet's logical type. Name, ID and
repetition are those of the root field. So the ``_pm`` of a file of another writer does not
distinguish int32 from uint32 or a time of day, an instant from a local timestamp, or a struct with
one leaf from a flat column. A column answers

- if the table's type is known, and QuestDB's type is that type in Spark;
- if the table's type is wider, and the column is as QuestDB writes it and not INT or LONG, which
  unsigned columns have too;
- if the table's type is wider, the ``_pm`` is our own (it has no doubtful statistics), and the
  column has statistics;
- if the table's type is not known, and the column is as QuestDB writes it, or the ``_pm`` is ours.

**As QuestDB writes it**: the column has an ID, the physical type and width of its type, and no
group above it. It is optional, except the designated timestamp and the types that old versions
wrote REQUIRED.

Columns are found by ID if the reader of the data uses IDs. If it uses names, as Spark does, exactly
one column must have the name, and where both sides have an ID, it must be the table's: a later
column may have the name of a dropped one. MAX_DEF_LEVEL says whether there can be nulls; the
repetition in FLAGS of a SYMBOL does not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from skipstone._cache import LruCache
from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError
from skipstone.parquet.evidence.stored_values import Form, StoredColumn
from skipstone.parquet.format.enums import ConvertedType, FieldRepetitionType, Type
from skipstone.parquet.format.metadata import DecimalType, LogicalType, SchemaElement, TimestampType
from skipstone.parquet.format.schema import Schema
from skipstone.predicate.types import TIMESTAMP_NTZ, column_name, column_path, indexable
from skipstone.pruning.column_types import is_text, widens
from skipstone.questdb.format.layout import FIELD_REPETITION_SHIFT, Ints
from skipstone.questdb.format.pm import Pm, PmSnapshot
from skipstone.questdb.format.types import ColumnType, Tag

if TYPE_CHECKING:
    import pyarrow as pa

    from skipstone.questdb.format.pm_header import Buffer, Descriptor
    from skipstone.questdb.format.values import PmColumn


_KEPT = 1_024
_KEPT_BYTES = 256 << 20


def open_pm(data: Buffer, *, parquet_size: int | None, file: str | None = None) -> PmSnapshot:
    """The snapshot of the Parquet file of ``parquet_size`` bytes, ``None`` the newest; its CRC is
    right.

    ``FormatError`` if it is damaged or has no snapshot of that size, ``UnsupportedError`` if it has
    unknown required flags.
    """
    snapshot = Pm(data, file=file).snapshot(parquet_size)
    snapshot.verify()
    return snapshot


class SnapshotCache:
    """Open snapshots by identity; the least recently used are dropped first.

    A key names one version of one ``_pm`` and of its Parquet file: the ``ObjectId`` of the ``_pm``,
    or its pack, offset and length, together with the Parquet size. At most ``most`` of them, of at
    most ``most_bytes`` bytes. May be shared among threads.
    """

    def __init__(self, most: int = _KEPT, most_bytes: int = _KEPT_BYTES) -> None:
        self._kept: LruCache[Hashable, PmSnapshot] = LruCache(
            most, most_bytes=most_bytes, size=lambda snapshot: len(snapshot.pm.data)
        )

    def __len__(self) -> int:
        return len(self._kept)

    def snapshot(
        self,
        key: Hashable,
        load: Callable[[], Buffer],
        *,
        parquet_size: int | None,
        file: str | None = None,
        check: Callable[[PmSnapshot], None] | None = None,
    ) -> PmSnapshot:
        """The snapshot of this key; ``load`` gives its bytes if it is not open yet, and ``check``
        looks at what was opened.

        Raises as ``open_pm``, ``load`` and ``check`` do; then nothing is kept.
        """
        whole = (key, parquet_size)
        known = self._kept.get(whole)
        if known is not None:
            return known
        made = open_pm(load(), parquet_size=parquet_size, file=file)
        if check is not None:
            check(made)
        return self._kept.put(whole, made)


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenedPm:
    """A snapshot and the data file at ``path`` that it belongs to; made by ``of``.

    ``schema`` is the table's, ``own`` and ``ids`` as for ``of``. ``row_starts`` int64
    (row groups + 1,): rows before each row group, and all rows.
    """

    path: str
    snapshot: PmSnapshot
    schema: pa.Schema | None
    own: bool
    ids: Mapping[str, int]
    row_starts: Ints
    #: rows of each row group, int64 (row groups,)
    rows: Ints
    _asked: dict[str, tuple[int, StoredColumn] | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        snapshot: PmSnapshot,
        *,
        path: str,
        schema: pa.Schema | None = None,
        own: bool = False,
        ids: Mapping[str, int] | None = None,
    ) -> Self:
        """``schema`` is the table's, or the data file's. ``own`` says that the ``_pm`` was made
        without doubtful statistics. ``ids`` are the IDs of columns that the reader of the data
        finds by ID; all others are found by name.

        ``FormatError`` where the row groups have more rows than possible.
        """
        counts = snapshot.num_rows
        starts = np.zeros(len(counts) + 1, np.int64)
        # Each below 2^44, so that no sum of them wraps: QuestDB's own limit of a partition.
        if len(counts) and int(counts.max()) >> 44:
            raise FormatError(
                "NUM_ROWS of a row group",
                file=snapshot.pm.file,
                expected="below 2^44",
                got=int(counts.max()),
            )
        rows = counts.astype(np.int64)
        np.cumsum(rows, out=starts[1:])
        return cls(
            path=path,
            snapshot=snapshot,
            schema=schema,
            own=own,
            ids=ids or {},
            row_starts=starts,
            rows=rows,
        )

    @property
    def columns(self) -> Mapping[str, int]:
        """Predicate columns (dotted names) that can answer, and their positions."""
        return _Columns(self)

    def stored(self, column: str) -> tuple[int, StoredColumn] | None:
        """Position of a predicate column and what it stores; ``None`` if it cannot answer.

        ``FormatError`` where the names or IDs of the ``_pm`` are damaged.
        """
        if column not in self._asked:
            self._asked[column] = self._find(column)
        return self._asked[column]

    def _find(self, column: str) -> tuple[int, StoredColumn] | None:
        path = column_path(column)
        if len(path) != 1:
            return None  # the names of nested leaves are not kept
        pm, known = self.snapshot.pm, None
        if self.schema is not None:
            at = self.schema.get_all_field_indices(path[0])
            if len(at) != 1:
                return None
            known = self.schema.field(at[0])
        if column in self.ids:
            place = pm.with_id(self.ids[column])
        else:
            named = pm.named(path[0])
            place = named[0] if len(named) == 1 else None
        if place is None:
            return None
        stored = stored_as(self.snapshot, place, known, own=self.own)
        return None if stored is None else (place, stored)


class _Columns(Mapping[str, int]):
    """The value of ``OpenedPm.columns``: columns are looked up on demand."""

    def __init__(self, file: OpenedPm) -> None:
        self.file = file

    def __getitem__(self, column: str) -> int:
        found = self.file.stored(column)
        if found is None:
            raise KeyError(column)
        return found[0]

    def __iter__(self) -> Iterator[str]:
        named = (column_name((name,)) for name in self.file.snapshot.pm.names)
        names = dict.fromkeys((*self.file.ids, *named))
        return (name for name in names if self.file.stored(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_FIELD_ID: Final = b"PARQUET:field_id"
#: Written REQUIRED by versions before 9.
_ONCE_REQUIRED: Final = (Tag.BOOLEAN, Tag.BYTE, Tag.SHORT, Tag.CHAR, Tag.SYMBOL)
#: Unsigned integers and times of day of other writers have these types as well.
_DOUBTFUL: Final = (int(Tag.INT), int(Tag.LONG))


def stored_as(
    snapshot: PmSnapshot, column: int, field: pa.Field | None, *, own: bool
) -> StoredColumn | None:
    """What the column at this position stores, ``None`` if it cannot answer; see the module.

    ``field`` is the table's; ``own``: the ``_pm`` was made without doubtful statistics.
    """
    pm = snapshot.pm
    described = pm.descriptor(column)
    if field is not None and not _same_id(field, described.id):
        return None
    element = element_of(described)
    if element is None:
        return None
    if field is None:
        return _stored(element) if own or as_questdb_writes(pm, column) else None
    wanted = indexable(field)
    if wanted is None:
        return None
    found = _stored(element)
    if found.form is Form.TIMESTAMP and wanted == TIMESTAMP_NTZ:
        found = _stored(_local(element))
    if found.type is None or found.type == wanted:
        # A type without an order still has null counts, which are right for any type.
        return found if found.type is not None or own or as_questdb_writes(pm, column) else None
    if described.type in _DOUBTFUL and not (own and _has_statistics(snapshot, column)):
        return None
    fits = widens(found.type, wanted) or (is_text(found.type) and is_text(wanted))
    return found if fits and (own or as_questdb_writes(pm, column)) else None


def as_questdb_writes(pm: Pm, column: int) -> bool:
    """Whether QuestDB itself may have written the column; see the module."""
    described = pm.descriptor(column)
    type = ColumnType.of(described.type)
    if type is None or described.id < 0 or described.max_rep_level:
        return False
    form, length = type.parquet, described.fixed_byte_len
    if described.physical_type != form.type or (form.length and length != form.length):
        return False
    if described.max_def_level == 1:
        return True
    return described.max_def_level == 0 and (
        column == pm.designated_timestamp or type.tag in _ONCE_REQUIRED
    )


def element_of(column: Descriptor | PmColumn) -> SchemaElement | None:
    """The schema element of a flat column, ``None`` for other columns and unknown types."""
    return _element(
        column.type,
        column.physical_type,
        column.fixed_byte_len,
        column.flags >> FIELD_REPETITION_SHIFT & 3,
        column.max_rep_level,
        column.max_def_level,
    )


@lru_cache(maxsize=4096)
def _element(
    code: int, physical: int, length: int, repetition: int, max_rep: int, max_def: int
) -> SchemaElement | None:
    type = ColumnType.of(code)
    if type is None or max_rep or max_def > 1 or repetition > 1:
        return None
    if repetition == FieldRepetitionType.REQUIRED and max_def and type.tag is not Tag.SYMBOL:
        return None  # an optional leaf below a required group
    if repetition == FieldRepetitionType.OPTIONAL and not max_def:
        return None
    fixed = physical == Type.FIXED_LEN_BYTE_ARRAY
    if (fixed and not 0 < length < 1 << 16) or type.tag is Tag.ARRAY:
        return None
    if not type.fits(physical, length if fixed else 0):
        return None
    form = type.parquet
    logical, converted = form.logical, form.converted
    precision = scale = None
    if type.is_decimal:
        precision, scale = type.precision, type.scale
        logical = LogicalType(DECIMAL=DecimalType(scale=scale, precision=precision))
    elif type.tag is Tag.DATE and physical == Type.INT32:
        logical, converted = None, ConvertedType.DATE
    elif physical == Type.INT96:
        logical = converted = None
    return SchemaElement(
        name="",
        type=Type(physical),
        type_length=length if fixed else None,
        repetition_type=FieldRepetitionType(1 if max_def else 0),
        logicalType=logical,
        converted_type=converted,
        precision=precision,
        scale=scale,
    )


@lru_cache(maxsize=4096)
def _stored(element: SchemaElement) -> StoredColumn:
    root = SchemaElement(name="schema", num_children=1)
    return StoredColumn.of(Schema.of((root, element)).leaves[0])


@lru_cache(maxsize=64)
def _local(element: SchemaElement) -> SchemaElement:
    """The same column as timestamps without a zone, as the table declares it."""
    assert element.logicalType is not None
    assert element.logicalType.TIMESTAMP is not None
    stamp = TimestampType(isAdjustedToUTC=False, unit=element.logicalType.TIMESTAMP.unit)
    return replace(element, logicalType=LogicalType(TIMESTAMP=stamp), converted_type=None)


def _has_statistics(snapshot: PmSnapshot, column: int) -> bool:
    """Whether any chunk has statistics. An own ``_pm`` has none for a doubtful column: then not
    even the range of its type may be used."""
    return bool(snapshot.chunks([column])["STAT_FLAGS"].any())


def _same_id(field: pa.Field, id: int) -> bool:
    kept = (field.metadata or {}).get(_FIELD_ID)
    return kept is None or id < 0 or kept == b"%d" % id
