"""An opened ``_pm`` with the data file that it belongs to, and bounds of its columns.

>>> snapshot = open_pm(data, parquet_size=size)          # CRC verified once, here
>>> file = OpenedPm.of(snapshot, path=path, schema=schema, own=True)
>>> file.columns["price"]                                # position in the _pm, if it can answer

Nothing is done per column before it is queried. The size of the Parquet file selects the snapshot.
A ``_pm`` without a snapshot of that size belongs to another version, which is a ``FormatError``.

``chunk_bounds`` concludes bounds and null counts of one column over the row groups of many ``_pm``
files at once, by the rules for Parquet footers: a chunk without one value per row contradicts
itself, and so does one that has bounds but only nulls; decimals in byte arrays count only with
exact bounds. Bounds are in Parquet's own order of the type, and NaN is not counted. Files that
store the column in the same way form one array; only out-of-line values are gathered file by file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from skipstone._cache import LruCache
from skipstone.errors import FormatError
from skipstone.parquet.encodings.values import ByteArrays
from skipstone.parquet.evidence.stored_values import Form, no_keys
from skipstone.parquet.evidence.value_bounds import Order, ValueBounds
from skipstone.parquet.format.enums import Type
from skipstone.predicate.types import column_name, column_path
from skipstone.questdb.format.pm import Pm
from skipstone.questdb.format.statistics import ChunkStats

from .columns import named, stored_as

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import pyarrow as pa

    from skipstone.parquet.evidence.stored_values import Stored
    from skipstone.predicate.literals import Keys
    from skipstone.questdb.format.layout import Bools, Bytes, Ints
    from skipstone.questdb.format.pm import PmSnapshot
    from skipstone.questdb.format.pm_header import Buffer
    from skipstone.questdb.format.statistics import End


_KEPT = 1_024
_KEPT_BYTES = 256 << 20


def open_pm(
    data: Buffer, *, parquet_size: int | None, verify: bool = True, file: str | None = None
) -> PmSnapshot:
    """The snapshot of the Parquet file of ``parquet_size`` bytes, ``None`` the newest.

    ``verify`` checks the CRC in one pass. ``FormatError`` if it is damaged or has no snapshot of
    that size, ``UnsupportedError`` if it has unknown required flags.
    """
    snapshot = Pm(data, file=file).snapshot(parquet_size)
    if verify:
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
        verify: bool = True,
        file: str | None = None,
    ) -> PmSnapshot:
        """The snapshot of this key; ``load`` gives its bytes if it is not open yet.

        Raises as ``open_pm`` and ``load`` do; then nothing is kept.
        """
        whole = (key, parquet_size)
        known = self._kept.get(whole)
        if known is not None:
            return known
        made = open_pm(load(), parquet_size=parquet_size, verify=verify, file=file)
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
    _asked: dict[str, tuple[int, Stored] | None] = field(default_factory=dict, repr=False)

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
        """See ``columns`` for ``schema`` (the table's, or the data file's) and ``own`` (the ``_pm``
        was made without doubtful statistics). ``ids`` are the IDs of columns that the reader of the
        data finds by ID; all others are found by name.

        ``FormatError`` where the row groups have more rows than can be.
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

    def stored(self, column: str) -> tuple[int, Stored] | None:
        """Position of a predicate column and what it stores; ``None`` if it cannot answer.

        ``FormatError`` where the names or IDs of the ``_pm`` are damaged.
        """
        if column not in self._asked:
            self._asked[column] = self._find(column)
        return self._asked[column]

    def _find(self, column: str) -> tuple[int, Stored] | None:
        path = column_path(column)
        if len(path) != 1:
            return None  # the names of nested leaves are not kept
        pm, known = self.snapshot.pm, None
        if self.schema is not None:
            at = self.schema.get_all_field_indices(path[0])
            if len(at) != 1:
                return None
            known = self.schema.field(at[0])
        place = pm.with_id(self.ids[column]) if column in self.ids else named(pm, path[0])
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
        names = dict.fromkeys((*self.file.ids, *map(_quoted, self.file.snapshot.pm.names)))
        return (name for name in names if self.file.stored(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _quoted(name: str) -> str:
    return column_name((name,))


_WIDTHS = {Type.BOOLEAN: 1, Type.INT32: 4, Type.INT64: 8, Type.FLOAT: 4, Type.DOUBLE: 8}
_BYTES = (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY)


def chunk_bounds(stored: Stored, parts: Sequence[ChunkStats], rows: Ints) -> ValueBounds:
    """Bounds of the row groups of all ``parts``, in their order; each part is one column of a file,
    of shape (row groups, 1). ``rows`` int64 are those of all row groups.

    ``FormatError`` where a statistic lies outside its file.
    """
    whole = parts[0] if len(parts) == 1 else _side_by_side(parts)
    chunks = whole.chunks
    one_each = chunks["NUM_VALUES"][:, 0] == rows.astype(np.uint64)
    counts, counted = whole.null_count()
    nulls = counts[:, 0].astype(np.int64)
    if not stored.column.max_definition_level:
        nulls = np.zeros_like(rows)
        counted = np.ones_like(counted)
    sure = counted[:, 0] & one_each
    if not sure.all():
        nulls = np.where(sure, nulls, -1)
    low, known_low = _bytes(stored, "MIN", whole, parts)
    high, known_high = _bytes(stored, "MAX", whole, parts)
    if stored.form is Form.DECIMAL and stored.column.type in _BYTES:
        known_low &= whole.exact("MIN")[:, 0]
        known_high &= whole.exact("MAX")[:, 0]
    odd = (nulls == rows) & (rows > 0) & (known_low | known_high)
    if odd.any():
        nulls = np.where(odd, -1, nulls)
    sound = one_each & ~odd
    known_low, known_high = known_low & sound, known_high & sound
    return ValueBounds.of(
        stored,
        Order.TYPE,
        lo=_keys(stored, low, known_low, upper=False),
        hi=_keys(stored, high, known_high, upper=True),
        rows=rows,
        nulls=nulls,
        nans=np.full(len(rows), -1, np.int64),
    )


def _side_by_side(parts: Sequence[ChunkStats]) -> ChunkStats:
    """The chunks of all parts, without their out-of-line regions."""
    chunks = np.concatenate([part.chunks for part in parts])
    none = np.zeros(len(chunks), np.int64)
    return ChunkStats(chunks=chunks, out_of_line=none, data=memoryview(b""), end=0)


def _keys(stored: Stored, found: ByteArrays | Bytes, known: Bools, *, upper: bool) -> Keys:
    if isinstance(found, ByteArrays):
        return stored.keys(found, known, upper=upper)
    if stored.form is Form.NONE:
        return no_keys(stored.type, len(found))
    return stored.fixed_keys(found, known, upper=upper)


def _bytes(
    stored: Stored, end: End, whole: ChunkStats, parts: Sequence[ChunkStats]
) -> tuple[ByteArrays | Bytes, Bools]:
    """The bytes of one bound of each row group, ``(row groups, width)`` for a fixed width, and
    where there is one."""
    width = _WIDTHS.get(stored.column.type, 0)
    if stored.column.type is Type.FIXED_LEN_BYTE_ARRAY and stored.column.type_length <= 8:
        width = stored.column.type_length
    if width:
        slots, valid = whole.fixed_bytes(end, width)
        if stored.column.type is not Type.FIXED_LEN_BYTE_ARRAY:
            return np.ascontiguousarray(slots[:, 0]), valid[:, 0]
        offsets = np.arange(0, width * len(valid) + 1, width, dtype=np.int64)
        return ByteArrays(np.ascontiguousarray(slots).reshape(-1), offsets), valid[:, 0]
    found = [part.blobs(end) for part in parts]
    joined = ByteArrays.concat([ByteArrays(data, offsets) for data, offsets, _ in found])
    return joined, np.concatenate([valid[:, 0] for _, _, valid in found])
