"""The ``_pm`` of a data file, made when it is indexed: of the bytes of its footer, which were read.

Leaves whose order a reader of the ``_pm`` alone would take wrongly keep their statistics to
themselves: those that ``Described.doubtful`` names, and dates and timestamps before the calendars
agree in a file that may be of the old one (``index/calendar.py``).

Leaves that would be read as another type by the ``_pm`` alone (unsigned integers, times of day,
local timestamps, durations) get no ID: what has none is not taken for a column of QuestDB's
(``columns.py``), and the footer is read for it.

Where the file has Bloom filters, their headers are read too, ``HEADER_BYTES`` each, together: a
``_pm`` says where bitsets begin, and a footer does not. ``inlined`` reads the filters whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.arrow.arrow_types import arrow_schema
from skipstone.parquet.format.enums import ConvertedType, Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.metadata import FileMetaData, SchemaElement
from skipstone.parquet.format.schema import Schema
from skipstone.parquet.reading.file import ParquetFile
from skipstone.pruning.calendar import FIRST_DATE, FIRST_TIMESTAMP, proleptic
from skipstone.storage import ByteRange

from .evidence.columns import element_of_column
from .format.footer_arrays_to_pm import bloom_places_of, convert_arrays, describe
from .format.footer_to_pm import HEADER_BYTES, BloomPlace, bloom_places, convert
from .format.pm import Pm
from .format.types import ColumnType, Tag
from .format.writer import PmFooter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skipstone.parquet.format.schema import Leaf
    from skipstone.pruning import Fetched
    from skipstone.storage import Storage

    from .format.footer_to_pm import Converted
    from .format.pm import PmSnapshot
    from .format.values import PmColumn

__all__ = [
    "MOST_FILTERS",
    "PM",
    "ParquetSource",
    "PmMode",
    "checked",
    "filters",
    "made_apart",
    "made_as",
    "made_beside",
    "make_pm",
]

#: What a ``_pm`` says of Bloom filters: where they lie, their bitsets; or: no ``_pm`` at all.
PmMode: TypeAlias = Literal["external", "inlined", "none"]
#: what reasons call it
PM = "_pm"
#: Filters of one file whose headers are read; a file with more has none in its ``_pm``.
MOST_FILTERS = 4_096


def make_pm(
    data: bytes,
    size: int,
    *,
    mode: PmMode = "external",
    path: str = "",
    fetch: Callable[[Sequence[ByteRange]], Fetched] | None = None,
) -> bytes:
    """The ``_pm`` of a file of ``size`` bytes whose ``FileMetaData`` is ``data``.

    ``fetch`` reads parts of the file at ``path``: Bloom filters; without it there are none.
    ``FormatError`` where the footer contradicts itself, ``UnsupportedError`` where a ``_pm`` cannot
    hold what it says.
    """
    tail = Tail(size, len(data), encrypted=False)
    footer = FooterArrays.scan(data, tail.offset)
    if footer.end != len(data):
        raise UnsupportedError("the footer is signed: columns may be encrypted")
    footer.check_extent(tail.offset)
    described = describe(footer)
    silent = {*described.doubtful(footer.column_orders), *_ancient(footer)}
    described = replace(described, columns=_identified(footer, described.columns))
    blooms = _blooms(footer, mode, path, fetch)
    if mode == "inlined" and blooms:
        made = convert(footer.metadata, tail, blooms=blooms, silent=silent, on_stale="ignore")
        return replace(made, head=replace(made.head, columns=described.columns)).to_bytes()
    return convert_arrays(footer, tail, described, blooms=blooms, silent=silent)


def made_as(data: bytes | memoryview) -> PmMode:
    """In which mode a ``_pm`` was made, as far as it shows."""
    pm = Pm(data)
    return "inlined" if pm.bloom_columns and not pm.bloom_external else "external"


def _identified(footer: FooterArrays, columns: tuple[PmColumn, ...]) -> tuple[PmColumn, ...]:
    """The columns, without the IDs of those that a ``_pm`` alone would read as another type."""
    having = [column.id >= 0 for column in columns]
    if not any(having):
        return columns
    elements = [
        element_of_column(column) if has and len(leaf.path) == 1 else None
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
    mode: PmMode,
    path: str,
    fetch: Callable[[Sequence[ByteRange]], Fetched] | None,
) -> dict[BloomPlace, bytes]:
    places = bloom_places_of(footer)
    if fetch is None or not places or len(places) > MOST_FILTERS:
        return {}
    most = max(place.length for place in places) if mode == "inlined" else HEADER_BYTES
    wanted = {place: ByteRange(path, place.offset, min(place.length, most)) for place in places}
    got = fetch(list(wanted.values()))
    return {place: bytes(got[need]) for place, need in wanted.items() if need in got}


def _ancient(footer: FooterArrays) -> Iterator[int]:
    """Dates and timestamps with a minimum that means another day in the other calendar."""
    pairs = footer.key_value_metadata or ()
    said = {pair.key.encode(): (pair.value or "").encode() for pair in pairs}
    if proleptic(said, int96=False):
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


def _first(leaf: Leaf) -> int | None:
    """The first value that both calendars agree on, in the leaf's unit; ``None``: any."""
    logical, converted = leaf.element.logicalType, leaf.element.converted_type
    if leaf.type is Type.INT32:
        dated = logical is not None and logical.DATE is not None
        return FIRST_DATE if dated or converted == ConvertedType.DATE else None
    if leaf.type is not Type.INT64:
        return None
    if logical is not None and logical.TIMESTAMP is not None:
        unit = logical.TIMESTAMP.unit.arrow
        return {"ms": FIRST_TIMESTAMP // 1_000, "us": FIRST_TIMESTAMP}.get(unit or "")
    if converted == ConvertedType.TIMESTAMP_MILLIS:
        return FIRST_TIMESTAMP // 1_000
    return FIRST_TIMESTAMP if converted == ConvertedType.TIMESTAMP_MICROS else None


_GUESS: Final = 64 * 1024


@dataclass(slots=True)
class ParquetSource:
    """The first ``size`` bytes of the data file at ``path``, which may be longer by now."""

    storage: Storage
    path: str
    size: int
    bytes_read: int = 0
    _end: bytes = b""

    def ranges(self, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Bytes at (offset, length); ``None`` where the file has not so many."""
        wanted = [ByteRange(self.path, offset, length) for offset, length in places]
        got = self.storage.read_ranges(wanted) if wanted else {}
        found = [bytes(got[each]) if each in got else None for each in wanted]
        self.bytes_read += sum(len(each) for each in found if each is not None)
        return found

    def tail(self) -> Tail:
        """Where the footer lies."""
        if not self._end:
            # A guess saves a request, and reads what need not be read.
            length = min(self.size, _GUESS if self.storage.remote else TAIL_LENGTH)
            (end,) = self.ranges([(self.size - length, length)])
            if end is None:
                raise FormatError("the file is shorter", file=self.path, expected=self.size)
            self._end = end
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
        first = self.size - len(self._end)
        if tail.offset >= first:
            return self._end[tail.offset - first : -TAIL_LENGTH]
        (data,) = self.ranges([(tail.offset, tail.length)])
        if data is None:
            raise FormatError("the file is shorter", file=self.path, expected=self.size)
        return data

    def metadata(self) -> FileMetaData:
        """The footer."""
        try:
            return FileMetaData.from_bytes(self.footer(), base=self.tail().offset)
        except FormatError as error:
            raise error.in_file(self.path) from None

    def fetch(self, ranges: Sequence[ByteRange]) -> Fetched:
        """As the job that makes one wants it."""
        got = self.storage.read_ranges(ranges)
        self.bytes_read += sum(each.length for each in got)
        return dict(got)

    def blooms(self, metadata: FileMetaData) -> dict[BloomPlace, bytes]:
        """The Bloom filters of the file, their headers included."""
        end = self.tail().offset
        places = [each for each in bloom_places(metadata) if each.offset + each.length <= end]
        found = self.ranges([(each.offset, each.length) for each in places])
        return {place: data for place, data in zip(places, found, strict=True) if data is not None}


def made_beside(source: ParquetSource, old: PmSnapshot | None = None) -> bytes:
    """The ``_pm`` of a partition in QuestDB's layout, with its Bloom filters in it.

    ``old`` is the one of the same snapshot that it takes the place of; what only that knows is
    kept. ``FormatError`` for JSON of another schema.
    """
    metadata = source.metadata()
    blooms = source.blooms(metadata)

    def converted(timestamps: dict[int, tuple[int, int]] | None = None) -> Converted:
        try:
            return convert(metadata, source.tail(), blooms=blooms, timestamps=timestamps)
        except FormatError as error:
            raise error.in_file(source.path) from None

    found = converted()
    lacking = _lacking(found)
    if lacking:
        found = converted(_first_and_last(source, found, lacking))
    return (found if old is None else _renewed(found, old)).to_bytes()


def made_apart(source: ParquetSource) -> bytes:
    """The ``_pm`` of any other file, as the build makes them, with its Bloom filters in it."""
    tail = source.tail()
    try:
        return make_pm(
            source.footer(), tail.size, mode="inlined", path=source.path, fetch=source.fetch
        )
    except FormatError as error:
        raise error.in_file(source.path) from None


def _lacking(found: Converted) -> list[int]:
    """Row groups without bounds of a designated timestamp that QuestDB itself declared.

    Who else declares an order may be wrong, and bounds made of it would lose rows.
    """
    ts = found.head.designated_timestamp
    if ts < 0:
        return []
    column = found.head.columns[ts]
    type = ColumnType.of(column.type)
    if type is None or type.tag is not Tag.TIMESTAMP or column.physical_type != Type.INT64:
        return []
    if not type.designated or type.descending:
        return []
    return [
        number
        for number, group in enumerate(found.row_groups)
        if group.num_rows and (group.chunks[ts].min is None or group.chunks[ts].max is None)
    ]


def _first_and_last(
    source: ParquetSource, found: Converted, lacking: list[int]
) -> dict[int, tuple[int, int]]:
    import pyarrow as pa

    ts = found.head.designated_timestamp
    try:
        file = ParquetFile(source.path, size=source.size)
        name = file.footer.schema.leaves[ts].name
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
    """The snapshot of a file of ``size`` bytes, after everything in it was looked at.

    ``FormatError`` where it is damaged or has no such snapshot.
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


def _renewed(found: Converted, old: PmSnapshot) -> Converted:
    """``found`` with what a footer does not say."""
    before = PmFooter.of(old)
    footer = replace(
        found.footer,
        unused_bytes=before.unused_bytes,
        seq_txn=before.seq_txn,
        scratchpad=before.scratchpad,
    )
    head = found.head
    if head.squash_tracker is None:
        head = replace(head, squash_tracker=old.pm.squash_tracker)
    return replace(found, head=head, footer=footer)
