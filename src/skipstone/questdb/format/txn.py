"""``_txn``: the partitions of a table and their sizes; two records, one of them current.

    BASE 64    0 i64 version   A: 8 i32 offset, 12 i32 symbol bytes, 16 i32 partition bytes
               B: the same at 32, 36, 40         even version: record A is current, odd: B
    RECORD     0 i64 txn = version   8 transient rows (of the last partition)   16 fixed rows
               24 min timestamp   32 max timestamp   40 structure version   48 data version
               56 partition table version   64 column version   72 truncate version   80 seqTxn
               88 i32 lag checksum   92 i32 lag txn count   96 i32 lag rows
               100 i64 lag min timestamp   108 i64 lag max timestamp   116..127 unused
               128 i32 symbol columns   132 (i32 count, i32 transient count) each
               then i32 bytes of the partition table, and 4 x i64 for each partition:
                   timestamp
                   bits 0-43 rows, 44-59 squash counter, 60 Parquet generated, 61 is Parquet,
                   62 read-only, 63 reserved
                   name txn: the directory ends in ``.<name txn>``, -1 = it does not
                   size of data.parquet, -1 = none

A commit writes the record that is not current, at byte 64 where it fits before the current one,
else right after it; then its place in BASE; then the version. So a reader takes the version, the
record, and the version again: if the version or the record's txn differs, it reads again (``read``
gives ``None``). Rows of the last partition are the transient rows, whatever its entry says. The
file never shrinks, and parts of older records lie between the two.

Never commit to the ``_txn`` of a live QuestDB: it holds a lock and other files in step with it.

A partition lies in the directory ``<name>[.<name txn>]``. Its name shows the unit of the
partitions, which is stored nowhere else::

    none  default     year  2024     month  2024-01     week  2024-W01     day  2024-01-05
    hour  2024-01-05T13

``_txn`` has only the timestamp of a partition, in microseconds or nanoseconds. A partition that was
split off does not begin at the start of its unit. Its name has the whole start, up to the last part
that is not zero (``2024-01-05T130510-000001``; in nanoseconds nine digits; in weeks
``2024-W01-5T13…``).

Source: QuestDB's TxReader and TxWriter, checked by running them.
"""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias, get_args

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .pm_header import Buffer


#: Timestamps of a table without rows.
NO_MIN: Final = (1 << 63) - 1
NO_MAX: Final = -(1 << 63)

_VERSION: Final = struct.Struct("<q")
_PLACE: Final = struct.Struct("<iii")
_FIXED: Final = struct.Struct("<11q3i2q12xi")
_I32: Final = struct.Struct("<i")
_ENTRY: Final = struct.Struct("<qQqq")
# Fields of a record in their order: before its checksum, and after it.
_COUNTERS: Final = (
    "txn",
    "transient_row_count",
    "fixed_row_count",
    "min_timestamp",
    "max_timestamp",
    "structure_version",
    "data_version",
    "partition_table_version",
    "column_version",
    "truncate_version",
    "seq_txn",
)
_LAG: Final = ("lag_txn_count", "lag_row_count", "lag_min_timestamp", "lag_max_timestamp")
_BASE: Final = 64
_ROWS: Final = (1 << 44) - 1
_GENERATED, _PARQUET, _READ_ONLY, _RESERVED = (1 << bit for bit in range(60, 64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition: ``timestamp`` of its directory, ``row_count`` as in its entry.

    ``parquet_file_size`` is the valid size if ``parquet_format``, else -1 or the size of a
    ``data.parquet`` that was only generated.
    """

    timestamp: int
    row_count: int
    name_txn: int = -1
    parquet_file_size: int = -1
    parquet_format: bool = False
    parquet_generated: bool = False
    read_only: bool = False
    squash_count: int = 0
    reserved: bool = False

    def to_bytes(self) -> bytes:
        """The four words."""
        if not (0 <= self.row_count <= _ROWS and 0 <= self.squash_count < 1 << 16):
            raise ValueError(f"{self.row_count} rows, squash counter {self.squash_count}")
        size = self.row_count | self.squash_count << 44
        size |= _GENERATED if self.parquet_generated else 0
        size |= _PARQUET if self.parquet_format else 0
        size |= _READ_ONLY if self.read_only else 0
        size |= _RESERVED if self.reserved else 0
        return _ENTRY.pack(self.timestamp, size, self.name_txn, self.parquet_file_size)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, offset: int = 0) -> Self:
        """From the four words at ``offset``."""
        timestamp, size, name_txn, parquet_file_size = _ENTRY.unpack_from(data, offset)
        return cls(
            timestamp=timestamp,
            row_count=size & _ROWS,
            name_txn=name_txn,
            parquet_file_size=parquet_file_size,
            parquet_format=bool(size & _PARQUET),
            parquet_generated=bool(size & _GENERATED),
            read_only=bool(size & _READ_ONLY),
            squash_count=size >> 44 & 0xFFFF,
            reserved=bool(size & _RESERVED),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn:
    """One record. ``symbols`` are (count, transient count); "lag" are rows that are not committed
    to a partition yet and that no reader sees. A negative ``lag_txn_count`` means unordered.
    """

    txn: int
    transient_row_count: int = 0
    fixed_row_count: int = 0
    min_timestamp: int = NO_MIN
    max_timestamp: int = NO_MAX
    structure_version: int = 0
    data_version: int = 0
    partition_table_version: int = 0
    column_version: int = 0
    truncate_version: int = 0
    seq_txn: int = 0
    lag_txn_count: int = 0
    lag_row_count: int = 0
    lag_min_timestamp: int = NO_MIN
    lag_max_timestamp: int = NO_MAX
    symbols: tuple[tuple[int, int], ...] = ()
    partitions: tuple[Partition, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows of the table."""
        return self.fixed_row_count + self.transient_row_count

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Rows of each partition."""
        counts = [partition.row_count for partition in self.partitions]
        return (*counts[:-1], self.transient_row_count) if counts else ()

    @property
    def lag_checksum(self) -> int:
        """The checksum over the lag fields, which overflows as Java's ints do."""
        total = self.lag_min_timestamp
        for value in (
            self.lag_max_timestamp,
            self.txn,
            self.seq_txn,
            self.lag_row_count,
            self.lag_txn_count,
        ):
            total = total * 31 + value
        total &= (1 << 64) - 1
        folded = (total ^ total >> 32) & 0xFFFF_FFFF
        return folded - (1 << 32) if folded >> 31 else folded

    def to_bytes(self) -> bytes:
        """The record."""
        flat = [count for pair in self.symbols for count in pair]
        table = b"".join([partition.to_bytes() for partition in self.partitions])
        return b"".join(
            [
                _FIXED.pack(
                    *(getattr(self, name) for name in _COUNTERS),
                    self.lag_checksum,
                    *(getattr(self, name) for name in _LAG),
                    len(self.symbols),
                ),
                struct.pack(f"<{len(flat)}i", *flat),
                _I32.pack(len(table)),
                table,
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, symbol_bytes: int, partition_bytes: int) -> Self:
        """From a record with the two lengths in BASE; ``FormatError`` if they contradict it."""
        expected = _FIXED.size + symbol_bytes + _I32.size + partition_bytes
        if len(data) != expected:
            raise FormatError("a record of _txn", expected=f"{expected} bytes", got=len(data))
        *fields, columns = _FIXED.unpack_from(data)
        del fields[len(_COUNTERS)]  # the checksum follows from the others
        known = dict(zip((*_COUNTERS, *_LAG), fields, strict=True))
        (table,) = _I32.unpack_from(data, _FIXED.size + symbol_bytes)
        if (columns * 8, table) != (symbol_bytes, partition_bytes) or table % _ENTRY.size:
            raise FormatError(
                "lengths of a record of _txn",
                expected=(symbol_bytes, partition_bytes),
                got=(columns * 8, table),
            )
        counts = struct.unpack_from(f"<{2 * columns}i", data, _FIXED.size)
        first = _FIXED.size + symbol_bytes + _I32.size
        partitions = tuple(
            [Partition.from_bytes(data, first + at) for at in range(0, table, _ENTRY.size)]
        )
        rows = known["transient_row_count"], known["fixed_row_count"]
        if min(rows) < 0:
            raise FormatError("rows of _txn", expected="0 or more", got=rows)
        return cls(
            **known,
            symbols=tuple(zip(counts[::2], counts[1::2], strict=True)),
            partitions=partitions,
        )


class Write(NamedTuple):
    """Bytes to put at an offset."""

    offset: int
    data: bytes


def read(data: Buffer, *, file: str | None = None) -> Txn | None:
    """The current record of a ``_txn`` that may be written to meanwhile (an mmap of it).

    ``None`` where a commit came in between, or the buffer is shorter than the file is now: map the
    file and read again. ``FormatError`` for a state that no commit leaves.
    """
    view = memoryview(data)
    if len(view) < _BASE:
        raise FormatError("too short for a _txn", file=file, expected=_BASE, got=len(view))
    (version,) = _VERSION.unpack_from(view)
    offset, symbol_bytes, partition_bytes = _PLACE.unpack_from(view, _slot(version))
    whole = min(symbol_bytes, partition_bytes) >= 0 and offset >= _BASE
    size = _FIXED.size + symbol_bytes + _I32.size + partition_bytes
    # Copied at once; the version then shows whether it changed meanwhile.
    record = bytes(view[offset : offset + size]) if whole else b""
    if _VERSION.unpack_from(view)[0] != version:
        return None
    if version < 0 or not whole:
        raise FormatError(
            "the place of the current record of _txn",
            file=file,
            offset=_slot(version),
            expected=f"at {_BASE} or later",
            got=(offset, symbol_bytes, partition_bytes),
        )
    if len(record) < size or _VERSION.unpack_from(record)[0] != version:
        return None
    try:
        return Txn.from_bytes(record, symbol_bytes, partition_bytes)
    except FormatError as error:
        raise FormatError(
            error.message, file=file, offset=offset, expected=error.expected, got=error.got
        ) from None


def created(txn: Txn) -> bytes:
    """A whole new file with this record."""
    record = txn.to_bytes()
    base = bytearray(_BASE)
    _VERSION.pack_into(base, 0, txn.txn)
    _PLACE.pack_into(base, _slot(txn.txn), _BASE, 8 * len(txn.symbols), _table_bytes(txn))
    return bytes(base) + record


def commit(data: Buffer, txn: Txn) -> tuple[Write, Write, Write]:
    """The three writes that commit ``txn`` to the file that ``data`` holds, in this order.

    The record, its place, the version; each must have reached the file before the next one begins.
    ``txn.txn`` is one more than that of the file; ``FormatError`` where the file has no valid
    record, ``ValueError`` where the number is another.
    """
    view = memoryview(data)
    current = read(view)
    if current is None:
        raise FormatError("a _txn without a current record")
    if txn.txn != current.txn + 1:
        raise ValueError(f"txn {txn.txn} does not follow {current.txn}")
    offset, symbol_bytes, partition_bytes = _PLACE.unpack_from(view, _slot(current.txn))
    record = txn.to_bytes()
    end = offset + _FIXED.size + symbol_bytes + _I32.size + partition_bytes
    at = _BASE if _BASE + len(record) <= offset else end
    return (
        Write(at, record),
        Write(_slot(txn.txn), _PLACE.pack(at, 8 * len(txn.symbols), _table_bytes(txn))),
        Write(0, _VERSION.pack(txn.txn)),
    )


def _slot(version: int) -> int:
    return 32 if version & 1 else 8


def _table_bytes(txn: Txn) -> int:
    return _ENTRY.size * len(txn.partitions)


PartitionUnit: TypeAlias = Literal["none", "year", "month", "week", "day", "hour"]

_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The unit, and whether timestamps count nanoseconds (else microseconds)."""

    unit: PartitionUnit
    nanos: bool = False


def directory(partition: Partition, partitioning: Partitioning) -> str:
    """The directory of a partition; ``FormatError`` for a time beyond the year 9999."""
    name, _ = _name(partition.timestamp, partitioning)
    return name if partition.name_txn < 0 else f"{name}.{partition.name_txn}"


def unit_end(timestamp: int, partitioning: Partitioning) -> int | None:
    """Where the unit ends that ``timestamp`` lies in: rows of its partition are all earlier.

    In the timestamp's own unit; ``None`` where there is no end.
    """
    scale = 10**9 if partitioning.nanos else 10**6
    try:
        at = _EPOCH + timedelta(seconds=timestamp // scale)
        day = datetime(at.year, at.month, at.day)
        match partitioning.unit:
            case "none":
                return None
            case "year":
                end = datetime(at.year + 1, 1, 1)
            case "month":
                end = datetime(at.year + at.month // 12, at.month % 12 + 1, 1)
            case "week":
                end = day + timedelta(days=7 - at.weekday())
            case "day":
                end = day + timedelta(days=1)
            case "hour":
                end = day + timedelta(hours=at.hour + 1)
    except (OverflowError, ValueError):
        return None
    return int((end - _EPOCH) // timedelta(seconds=1)) * scale


def infer_partitioning(
    partitions: Sequence[Partition], directories: Collection[str]
) -> Partitioning:
    """The unit by which ``directories`` has a directory for every partition.

    Where several units fit, the one with the fewest split partitions wins: ``2024-01-05T13`` may be
    an hour, or a day split at one o'clock. ``FormatError`` where none fits, or still more than one.
    """
    if not partitions:
        raise FormatError("a table without partitions does not show their unit")
    there = set(directories)
    fitting: list[tuple[int, Partitioning]] = []
    missing: list[str] = []
    for nanos in (False, True):
        for unit in get_args(PartitionUnit):
            partitioning = Partitioning(unit, nanos)
            if unit == "none" and (nanos or len(partitions) > 1):
                continue
            try:
                names = [directory(partition, partitioning) for partition in partitions]
            except FormatError:
                continue
            absent = [name for name in names if name not in there]
            if not absent:
                split = sum(_name(each.timestamp, partitioning)[1] for each in partitions)
                fitting.append((split, partitioning))
            elif len(absent) < len(names) or not missing:
                missing = absent
    fewest = min((split for split, _ in fitting), default=0)
    found = [partitioning for split, partitioning in fitting if split == fewest]
    # The epoch has the same name in both units; microseconds are the default.
    if any(not each.nanos for each in found):
        found = [each for each in found if not each.nanos]
    if len(found) == 1:
        return found[0]
    if found:
        raise FormatError(
            "several partition units fit the directories",
            got=", ".join(each.unit for each in found),
            hint="name the unit",
        )
    raise FormatError(
        "no partition unit fits the directories",
        expected=f"a directory for each of {len(partitions)} partitions",
        got=f"{len(missing)} missing, as {missing[0]!r}" if missing else "none that fits",
    )


def _name(timestamp: int, partitioning: Partitioning) -> tuple[str, bool]:
    """The name without its txn, and whether the partition was split off."""
    unit = partitioning.unit
    if unit == "none":
        return "default", False
    scale, digits = (10**9, 9) if partitioning.nanos else (10**6, 6)
    seconds, fraction = divmod(timestamp, scale)
    try:
        at = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise FormatError(
            "the timestamp of a partition", expected="up to the year 9999", got=timestamp
        ) from None
    midnight = not (at.hour or at.minute or at.second or fraction)
    week = at.isocalendar()
    whole = {
        "year": midnight and (at.month, at.day) == (1, 1),
        "month": midnight and at.day == 1,
        "week": midnight and week.weekday == 1,
        "day": midnight,
        "hour": not (at.minute or at.second or fraction),
    }[unit]
    day = f"{at.year:04}-{at.month:02}-{at.day:02}"
    if unit == "week":
        day = f"{week.year:04}-W{week.week:02}"
        if not whole:
            day += f"-{week.weekday}"
    if whole:
        names = {"year": day[:4], "month": day[:7], "week": day, "day": day}
        return names.get(unit, f"{day}T{at.hour:02}"), False
    if midnight:
        return day, True
    name = f"{day}T{at.hour:02}"
    if at.minute or at.second or fraction:
        name += f"{at.minute:02}{at.second:02}"
        name += f"-{fraction:0{digits}}" if fraction else ""
    return name, True
