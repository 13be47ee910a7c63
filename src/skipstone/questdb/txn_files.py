"""Files of a ``TxnSnapshot`` for readers without snapshots: pyarrow, and Spark.

``open_partition`` opens the first bytes of a file, up to the snapshot's size, as a file of its own
that ends with the snapshot's footer.

Spark reads the footer at the real end of a file, whatever length it is given, and of that footer
the row groups whose middle lies before the given length. A length thus selects exactly the
snapshot's row groups, as long as the newest footer still lists them all. ``ready_for_spark`` checks
that: a row group that was replaced since would be missing silently.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from skipstone.errors import SkipstoneError, StaleError

from .txn_snapshot import CommitPatience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from skipstone.storage import Storage

    from .txn_snapshot import PartitionFile, TxnListing


_MAGIC: Final = b"PAR1"
_GroupPlace: TypeAlias = "tuple[int, int, int]"


def open_partition(file: PartitionFile, storage: Storage) -> io.BufferedReader:
    """The file as the snapshot has it. ``StaleError`` where it is shorter by now."""
    source = storage.open(file.path)
    if source.seek(0, io.SEEK_END) < file.size:
        source.close()
        raise StaleError(
            f"{file.path} is shorter than its snapshot says",
            hint="the table was restored or written by something else: open it again",
        )
    return io.BufferedReader(_Beginning(source, file.size))


def opener(listing: TxnListing, storage: Storage) -> Callable[[str], io.BufferedReader]:
    """``open_partition`` by path."""
    files = {each.path: each for each in listing.files}
    return lambda path: open_partition(files[path], storage)


class _Beginning(io.RawIOBase):
    """The first ``size`` bytes of a file."""

    def __init__(self, source: Any, size: int) -> None:
        self._source, self._size, self._at = source, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view = view[: max(0, min(len(view), self._size - self._at))]
        self._source.seek(self._at)
        got = self._source.readinto(view) or 0
        self._at += got
        return int(got)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def ready_for_spark(files: Iterable[PartitionFile], storage: Storage) -> None:
    """Waits while an append is being written, and checks that Spark would read each file right.

    ``StaleError`` where it would not: a file that is gone, a row group that was replaced, an append
    that never ends.
    """
    for file in files:
        patience = CommitPatience()
        while not _reads_right(file, storage):
            # Until its footer is written, a file has none at its end.
            patience.wait(
                f"{file.path} has no footer at its end",
                hint="an append is being written, or was cut off: its writer cuts off the rest "
                "when it opens the table; the embedded engine reads the snapshot now",
            )


def _reads_right(file: PartitionFile, storage: Storage) -> bool:
    """False while a footer is being written. ``StaleError`` if waiting does not help."""
    try:
        length = storage.stat(file.path).size or 0
    except FileNotFoundError:
        raise StaleError(
            f"{file.path} is gone: its partition was rewritten", hint="read the table again"
        ) from None
    if length == file.size:
        return True
    try:
        with open_partition(file, storage) as source:
            wanted = _row_groups(source)
        with storage.open(file.path) as whole:
            whole.seek(-len(_MAGIC), io.SEEK_END)
            if whole.read() != _MAGIC:
                return False
            there = _row_groups(whole)
    except (SkipstoneError, OSError):
        raise
    except ValueError:
        return False
    if there[: len(wanted)] == wanted and all(at >= file.size for at, _, _ in there[len(wanted) :]):
        return True
    raise StaleError(
        f"row groups of {file.path} were replaced since the table was opened",
        hint="read the table again",
    )


def _row_groups(source: Any) -> list[_GroupPlace]:
    """First byte, bytes and rows of each row group; ``ValueError`` where there is no footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source.seek(0)
    try:
        footer = pq.read_metadata(source)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ValueError(str(error)) from error
    found = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        chunks = [group.column(at) for at in range(group.num_columns)]
        starts = [each.dictionary_page_offset or each.data_page_offset for each in chunks]
        sizes = sum(each.total_compressed_size for each in chunks)
        found.append((min(starts, default=0), sizes, group.num_rows))
    return found
