"""The ``_pm`` of one data file, from its footer and Bloom filters: no row is read.

But for one case: QuestDB's own files may lack the bounds of the designated timestamp, by which they
are sorted. The first and the last value of such a row group are those, and two pages have them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.parquet.format.enums import Type
from skipstone.parquet.format.footer import TAIL_LENGTH, Tail
from skipstone.parquet.format.metadata import FileMetaData
from skipstone.parquet.reading.file import ParquetFile
from skipstone.storage import ByteRange

from .format.footer_to_pm import BloomPlace, bloom_places, convert
from .format.pm import Pm
from .format.types import ColumnType, Tag
from .format.writer import Footer
from .pm_of_data_file import make_pm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning import Fetched
    from skipstone.storage import Storage

    from .format.footer_to_pm import Converted
    from .format.pm_snapshot import Snapshot

__all__ = ["ParquetSource", "checked", "filters", "made_apart", "made_beside"]

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


def made_beside(source: ParquetSource, old: Snapshot | None = None) -> bytes:
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


def checked(data: bytes, size: int, *, file: str) -> Snapshot:
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


def filters(snapshot: Snapshot) -> int:
    """Bloom filters that the snapshot has, here or in its Parquet file."""
    return int((snapshot.bloom_places[1] > 0).sum())


def _renewed(found: Converted, old: Snapshot) -> Converted:
    """``found`` with what a footer does not say."""
    before = Footer.of(old)
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
