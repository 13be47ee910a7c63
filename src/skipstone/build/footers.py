"""Reads the footers of files for a build, of one file or of many at once; makes what facts keep of
them; and waits until a file is settled.

A footer is read only from a file that nothing has changed for some seconds by the store's clock.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.facts.part_columns import LONGEST_CHUNK
from skipstone.identity import UNITS_PER_SECOND, ObjectId
from skipstone.indexes.text_groups import LARGE
from skipstone.parquet.evidence.indexed_file import chunk_bytes
from skipstone.parquet.format.column_files import KEY as COLUMN_FILES
from skipstone.parquet.format.footer import Tail, read_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.parquet.format.footer_lanes import scan_many
from skipstone.parquet.reading.chunk_pages import header_at
from skipstone.parquet.reading.selection import Selection
from skipstone.parquet.thrift.kernel_lanes import FEW
from skipstone.predicate.types import column_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skipstone.pruning.kind import Index
    from skipstone.pruning.table_schema import FileSchema
    from skipstone.storage import Storage

    from .column_indexes import BuildSettings


_SECOND = 1_000_000_000
# Seconds. For a file older than this, the store's clock is not read.
_SURELY_OLD = 86_400 * _SECOND
# Filesystems of this machine, with times of its kernel: two changes more than a tick apart, at most
# 10 ms, have different times. A server has its own clock.
_OWN_CLOCK = frozenset({"btrfs", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
# The seconds for these filesystems: ten of the longest ticks.
_SOON = 0.1
# The most bytes of a page header, which may hold the least and the greatest text of its page.
_LONGEST_HEADER = 1 << 16


def settled(object: ObjectId, storage: Storage, seconds: float) -> bool:
    """Waits until the file is ``seconds`` old; False if it is still too young after that.

    A tenth of a second is enough if every later change gives the file another time.
    """
    ripe = _ripe(object, seconds)
    if ripe + _SURELY_OLD < time.time_ns():
        return True
    wait = ripe - storage.now()
    if wait <= 0:
        return True
    if seconds > _SOON and not storage.remote and has_fine_times(object):
        return settled(object, storage, _SOON)
    longest = ripe - object.mtime_ns
    if wait > longest:
        return _settled_in_future(object, storage, longest)
    time.sleep(wait / _SECOND)
    return storage.now() >= ripe


def has_fine_times(object: ObjectId) -> bool:
    """Whether the file lies on this machine, under times finer than a millisecond."""
    if object.unit != "ns" or not object.mtime % 1_000_000:
        return False
    try:
        device = Path(object.path).stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # 36 35 98:0 /root /mnt options optional… - ext4 /dev/sda1 options
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {
        line.partition(" - ")[2].split(" ", 1)[0]
        for line in mounts.splitlines()
        if line.split(" ", 3)[2:3] == [number]
    }
    return bool(kinds) and kinds <= _OWN_CLOCK


def _ripe(object: ObjectId, seconds: float) -> int:
    """When the file is ``seconds`` old, in nanoseconds."""
    tick = _SECOND // UNITS_PER_SECOND[object.unit]
    # A coarse mtime is rounded down: the true time may be up to a tick later.
    return object.mtime_ns + (tick if tick > 1 else 0) + round(seconds * _SECOND)


def _settled_in_future(object: ObjectId, storage: Storage, wait: int) -> bool:
    """Whether a file whose time is in the future stays as it is for ``wait`` nanoseconds.

    A clock was wrong, or a user set the time. The next change gives the file another time in any
    case, if it comes more than a tick after the last one.
    """
    try:
        # The time of the last change of any kind, which no user can set.
        changed = 0 if storage.remote else Path(object.path).stat().st_ctime_ns
        if storage.remote or time.time_ns() - changed <= wait:
            time.sleep(wait / _SECOND)
        return storage.stat(object.path).same_version(object)
    except OSError:
        return False


# Bytes read from the end of a file first; most footers are shorter.
_GUESS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Footer:
    """The checked footer of a file in the clear, its bytes, and the ``size`` of the file."""

    arrays: FooterArrays
    data: bytes
    size: int


class EncryptedError(OSError):
    """The footer, or columns under it, are encrypted."""


def read_checked(source: BinaryIO) -> Footer:
    """The footer; ``EncryptedError`` also where columns are encrypted under a footer in clear."""
    tail, read = read_footer(source, guess=_GUESS)
    if tail.encrypted:
        raise EncryptedError("the footer is encrypted")
    data = bytes(read)
    return _checked(FooterArrays.scan(data, tail.offset), data, tail.size)


def _checked(footer: FooterArrays, data: bytes, size: int) -> Footer:
    # A signature follows a footer in clear whose columns are encrypted.
    if footer.end != len(data) or footer.encryption_algorithm is not None:
        raise EncryptedError("columns are encrypted under a signed footer")
    if COLUMN_FILES.encode() in data or (footer.places("file_path")[0] >= 0).any():
        raise UnsupportedError("its columns lie in other files")
    return Footer(footer, data, size)


def known_footers(
    files: Sequence[ObjectId], storage: Storage, settings: BuildSettings
) -> list[Footer | None]:
    """The footers of many local files, read and scanned together; ``None`` where ``build_file``
    must read it: of files that are too fresh or have changed, and of unusual ones."""
    found: list[Footer | None] = [None] * len(files)
    if storage.remote or len(files) < FEW:
        return found
    now = storage.now()
    read: list[tuple[int, Tail, bytes]] = []
    for at, each in enumerate(files):
        if _ripe(each, settings.settle) > now:
            continue
        try:
            version, end = storage.read_tail(each.path, _GUESS)
            tail = Tail.from_bytes(end, version.size or 0)
        except (OSError, FormatError):
            continue
        data = tail.footer_in(end)
        if data is not None and not tail.encrypted and version.same_version(each):
            read.append((at, tail, bytes(data)))
    scanned = scan_many([data for _, _, data in read], [tail.offset for _, tail, _ in read])
    for (at, tail, footer), arrays in zip(read, scanned, strict=True):
        if arrays is not None:
            with suppress(UnsupportedError, EncryptedError):
                found[at] = _checked(arrays, footer, tail.size)
    return found


def short_chunks(footer: FooterArrays, definitions: Sequence[Index]) -> dict[str, tuple[int, int]]:
    """Offset and length of the short chunks of columns whose only index is a Bloom filter, in a
    file of one row group. A query for a value reads the whole chunk, as no bounds exclude pages."""
    kinds: dict[str, set[str]] = {}
    for index in definitions:
        kinds.setdefault(index.column, set()).add(index.name)
    wanted = {column for column, names in kinds.items() if names == {"bloomfilter"}}
    if footer.num_row_groups != 1 or not wanted:
        return {}
    found = {}
    for leaf in footer.schema.leaves:
        column = column_name(leaf.path)
        start, stop = (int(footer.chunk(name)[0, leaf.ordinal]) for name in ("start", "stop"))
        if column in wanted and 0 <= start < stop <= start + LONGEST_CHUNK:
            found[column] = start, stop - start
    return found


def page_rows(source: BinaryIO, footer: Footer, leaf: int) -> list[int]:
    """About how many rows a page of a leaf has in each row group: those of the first data page. 0
    for small row groups, and where the page is not found. The leaf must not be repeated."""
    sizes = footer.arrays.chunk("total_uncompressed_size")[:, leaf].tolist()
    found = [0] * len(sizes)
    for group, size in enumerate(sizes):
        if size >= LARGE:
            with suppress(FormatError, OSError):  # the reader of the column reports the error
                found[group] = _first_page(
                    source, *chunk_bytes(footer.arrays, group, leaf, footer.size)
                )
    return found


def _first_page(source: BinaryIO, at: int, stop: int) -> int:
    """The values of the first data page of a chunk; a dictionary may lie before it."""
    for first in (True, False):
        source.seek(at)
        data = source.read(min(_LONGEST_HEADER, stop - at))
        header, length = header_at(data, at, None, 0, first)
        page = header.data_page_header or header.data_page_header_v2
        if page is not None:
            return page.num_values
        at += length
        size = header.compressed_page_size
        if not 0 <= size < stop - at:
            raise FormatError(
                "a page ends beyond its chunk", offset=at, expected=stop - at, got=size
            )
        at += size
    return 0


def schema_of(object: ObjectId, footer: Footer) -> FileSchema | None:
    """The columns of a file with this footer; ``None`` if they are unknown: then readers of the
    table open the file."""
    try:
        return Selection(footer.arrays, object.path).file_schema
    except SkipstoneError:
        return None
