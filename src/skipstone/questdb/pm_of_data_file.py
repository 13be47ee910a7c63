"""Makes the ``_pm`` of a data file from its footer and its Bloom filters. No row is read.

``make_pm`` makes one for any file, in a build or a migration. Two rules keep a reader of the
``_pm`` alone from wrong conclusions. Leaves get no statistics if the reader would order them
wrongly: those of ``PmColumns.doubtful``, and dates and timestamps before the calendars agree in a
file that may use the old one. Leaves get no ID if the reader would give them
another type (unsigned integers, times of day, local timestamps, durations): a column without an ID
does not count as QuestDB's (``evidence/opened_pm``), and the footer is read for it.

``make_partition_pm`` makes the ``_pm`` of a partition in QuestDB's layout, with the bytes that
QuestDB's own migration writes. QuestDB's files may lack the bounds of the designated timestamp, by
which they are sorted. Then the first and the last value of a row group are the bounds, and are read
from two pages.

Headers of Bloom filters are read together, ``HEADER_BYTES`` each, because a ``_pm`` needs the place
of each bitset and the footer does not state it. ``inlined`` reads the filters whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.arrow.arrow_types import arrow_schema
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail, bytes_of_pairs
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import SchemaElement
from skipstone.parquet.format.schema import ColumnDescriptor, Schema
from skipstone.parquet.reading.file import ParquetFile
from skipstone.pruning.column_types import FIRST_DATE, FIRST_TIMESTAMP, proleptic
from skipstone.storage import ByteRange, Storage

from .evidence.opened_pm import element_of
from .format.footer_to_pm import HEADER_BYTES, BloomPlace, bloom_places, convert
from .format.pm import Pm, PmSnapshot
from .format.pm_columns import PmColumns
from .format.types import ColumnType, Tag
from .format.writer import PmFooter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skipstone.pruning import Fetched

    from .format.values import PmColumn


#: Bloom filters of a ``_pm``: their places in the data file, or their bitsets; "none": no ``_pm``.
PmMode: TypeAlias = Literal["external", "inlined", "none"]
Fetch: TypeAlias = "Callable[[Sequence[ByteRange]], Fetched]"
#: Filters of one file whose headers are read; a file with more has none in its ``_pm``.
MOST_FILTERS = 4_096


def make_pm(
    footer: FooterArrays,
    size: int,
    *,
    mode: PmMode = "external",
    path: str = "",
    fetch: Fetch | None = None,
) -> bytes:
    """The ``_pm`` of a file of ``size`` bytes with this footer.

    ``fetch`` reads parts of the file at ``path``: Bloom filters; without it there are none.
    ``FormatError`` where the footer contradicts itself, ``UnsupportedError`` where a ``_pm`` cannot
    hold its values.
    """
    tail = Tail(size, len(footer.data), encrypted=False)
    if footer.end != len(footer.data):
        raise UnsupportedError("the footer is signed: columns may be encrypted")
    footer.check_extent(tail.offset)
    columns = PmColumns.of(footer, on_stale="ignore")
    silent = {*columns.doubtful(footer.column_orders), *_ancient(footer)}
    blooms = {} if fetch is None else _blooms(footer, tail, path, fetch, mode, MOST_FILTERS)
    return convert(
        footer,
        replace(columns, columns=_identified(footer, columns.columns)),
        PmFooter.of_parquet(tail.size, tail.length),
        blooms=blooms,
        bloom_mode="inlined" if mode == "inlined" else "external",
        silent=silent,
    )


def make_partition_pm(source: ParquetSource, old: PmSnapshot | None = None) -> bytes:
    """The ``_pm`` of a partition in QuestDB's layout, with its Bloom filters in it. ``old`` is the
    ``_pm`` of the same snapshot that the new one replaces: values that only ``old`` has are kept.
    ``FormatError`` for JSON of another schema.
    """
    tail, data = source.tail(), source.footer()
    try:
        footer = FooterArrays.scan(data, tail.offset)
        columns = PmColumns.of(footer)
        end = PmFooter.of_parquet(tail.size, tail.length)
        if old is not None:
            before = PmFooter.of(old)
            end = replace(
                end,
                unused_bytes=before.unused_bytes,
                seq_txn=before.seq_txn,
                scratchpad=before.scratchpad,
            )
            if columns.squash_tracker is None:
                columns = replace(columns, squash_tracker=old.pm.squash_tracker)
        blooms = _blooms(footer, tail, source.path, source.fetch, "inlined")
        made = convert(footer, columns, end, blooms=blooms)
        lacking = _lacking(made)
        if not lacking:
            return made
        times = _first_and_last(source, footer, columns.designated, lacking)
        return convert(footer, columns, end, blooms=blooms, timestamps=times)
    except FormatError as error:
        raise error.in_file(source.path) from None


def made_as(data: bytes | memoryview) -> PmMode:
    """The mode in which a ``_pm`` was made, according to its flags."""
    pm = Pm(data)
    return "inlined" if pm.bloom_columns and not pm.bloom_external else "external"


def _identified(footer: FooterArrays, columns: tuple[PmColumn, ...]) -> tuple[PmColumn, ...]:
    """The columns, without the IDs of those to which a ``_pm`` alone would give another type."""
    having = [column.id >= 0 for column in columns]
    if not any(having):
        return columns
    elements = [
        element_of(column) if has and len(leaf.path) == 1 else None
        for column, has, leaf in zip(columns, having, footer.schema.leaves, strict=True)
    ]
    flat = [replace(each, name=f"c{at}") for at, each in enumerate(elements) if each is not None]
    whole = (SchemaElement(name="schema", num_children=len(flat)), *flat)
    alone = {each.name: each.type for each in arrow_schema(Schema.of(whole), whole)}
    read = arrow_schema(footer.schema, footer.schema_elements, footer.key_value_metadata)
    roots = {node.path[0]: at for at, node in enumerate(footer.schema.root.children)}
    found = []
    for at, (column, leaf) in enumerate(zip(columns, footer.schema.leaves, strict=True)):
        same = alone.get(f"c{at}") == read.field(roots[leaf.path[0]]).type
        found.append(column if same else replace(column, id=-1))
    return tuple(found)


def _blooms(
    footer: FooterArrays,
    tail: Tail,
    path: str,
    fetch: Fetch,
    mode: PmMode,
    most: int | None = None,
) -> dict[BloomPlace, bytes]:
    """The first bytes of each filter, or all of it to be inlined; none where there are more than
    ``most``."""
    places = [each for each in bloom_places(footer) if each.offset + each.length <= tail.offset]
    if not places or (most is not None and len(places) > most):
        return {}
    limit = max(place.length for place in places) if mode == "inlined" else HEADER_BYTES
    wanted = {place: ByteRange(path, place.offset, min(place.length, limit)) for place in places}
    got = fetch(list(wanted.values()))
    return {place: bytes(got[need]) for place, need in wanted.items() if need in got}


def _ancient(footer: FooterArrays) -> Iterator[int]:
    """Dates and timestamps whose minimum is another day in the other calendar."""
    if proleptic(bytes_of_pairs(footer.key_value_metadata), int96=False):
        return
    for leaf in footer.schema.leaves:
        first = _first(leaf)
        if first is None:
            continue
        width = 4 if leaf.type is Type.INT32 else 8
        starts, lengths = footer.bytes_of("min_value", slice(None), leaf.ordinal)
        known = starts[lengths == width]
        raw = footer.buffer[known[:, None] + np.arange(width)]
        values = np.ascontiguousarray(raw).view(f"<i{width}")
        if values.size and int(values.min()) < first:
            yield leaf.ordinal


def _first(leaf: ColumnDescriptor) -> int | None:
    """The first value that both calendars agree on, in the leaf's unit; ``None``: any."""
    logical = leaf.element.annotation
    if leaf.type is Type.INT32:
        return None if logical.DATE is None else FIRST_DATE
    if leaf.type is not Type.INT64 or logical.TIMESTAMP is None:
        return None
    unit = logical.TIMESTAMP.unit.arrow
    return {"ms": FIRST_TIMESTAMP // 1_000, "us": FIRST_TIMESTAMP}.get(unit or "")


_GUESS: Final = 64 * 1024


@dataclass(slots=True)
class ParquetSource:
    """The first ``size`` bytes of the data file at ``path``, which may be longer now."""

    storage: Storage
    path: str
    size: int
    bytes_read: int = 0
    _end: bytes = b""

    def _read(self, offset: int, length: int) -> bytes:
        need = ByteRange(self.path, offset, length)
        data = self.fetch([need]).get(need)
        if data is None:
            raise FormatError("the file is shorter", file=self.path, expected=self.size)
        return bytes(data)

    def tail(self) -> Tail:
        """The place of the footer."""
        if not self._end:
            # Reading a guessed length saves a request on a remote store.
            length = min(self.size, _GUESS if self.storage.remote else TAIL_LENGTH)
            self._end = self._read(self.size - length, length)
        try:
            return Tail.from_bytes(self._end[-TAIL_LENGTH:], self.size)
        except FormatError as error:
            raise error.in_file(self.path) from None

    def footer(self) -> bytes:
        """The bytes of the footer; ``UnsupportedError`` for an encrypted one."""
        tail = self.tail()
        if tail.encrypted:
            raise UnsupportedError(
                f"{self.path}: the footer is encrypted, and a _pm is not",
                hint="files with encrypted footers are read without a _pm",
            )
        footer = tail.footer_in(self._end)
        return self._read(tail.offset, tail.length) if footer is None else bytes(footer)

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """Reads ranges, and counts the bytes."""
        got = self.storage.read_ranges(ranges)
        self.bytes_read += sum(each.length for each in got)
        return dict(got)


def _lacking(made: bytes) -> list[int]:
    """Row groups without bounds of a designated timestamp that QuestDB itself declared.

    Another writer that declares an order may be wrong, and bounds made of it would lose rows.
    """
    snapshot = Pm(made).snapshot()
    ts = snapshot.pm.designated_timestamp
    if ts < 0:
        return []
    described = snapshot.pm.descriptors[ts]
    type = ColumnType.of(int(described["TYPE"]))
    if type is None or type.tag is not Tag.TIMESTAMP or described["PHYSICAL_TYPE"] != Type.INT64:
        return []
    if not type.designated or type.descending:
        return []
    stats = snapshot.stats([ts])
    known = stats.present("MIN")[:, 0] & stats.present("MAX")[:, 0]
    return np.flatnonzero((snapshot.num_rows > 0) & ~known).tolist()


def _first_and_last(
    source: ParquetSource, footer: FooterArrays, ts: int, lacking: list[int]
) -> dict[int, tuple[int, int]]:
    """The first and the last value of these row groups: two pages of each have them."""
    import pyarrow as pa

    try:
        file = ParquetFile(source.path, size=source.size)
        name = footer.schema.leaves[ts].name
        starts = file.row_starts.tolist()
        ends = [(starts[number], starts[number + 1] - 1) for number in lacking]
        rows = sorted({row for pair in ends for row in pair})
        before = file.bytes_read
        values = file.read_rows([name], [(row, row + 1) for row in rows])
        source.bytes_read += file.bytes_read - before
        at = dict(zip(rows, values.column(0).cast(pa.int64()).to_pylist(), strict=True))
        bounds = {
            number: (at[first], at[last])
            for number, (first, last) in zip(lacking, ends, strict=True)
        }
    except (SkipstoneError, OSError, pa.ArrowException):
        return {}  # without bounds nothing is skipped
    return {number: pair for number, pair in bounds.items() if pair[0] <= pair[1]}


def checked(data: bytes, size: int, *, file: str) -> PmSnapshot:
    """The snapshot of a file of ``size`` bytes, after a check of all its parts.

    ``FormatError`` if it is damaged or has no such snapshot.
    """
    snapshot = Pm(data, file=file).snapshot(size)
    snapshot.verify()
    assert len(snapshot.pm.names) == snapshot.pm.column_count
    snapshot.byte_ranges()
    stats = snapshot.stats()
    for end in ("MIN", "MAX"):
        stats.blobs(end)
    assert len(snapshot.bloom_places[0]) == snapshot.row_group_count
    return snapshot


def filters(snapshot: PmSnapshot) -> int:
    """Bloom filters that the snapshot has, here or in its Parquet file."""
    return int((snapshot.bloom_places[1] > 0).sum())
