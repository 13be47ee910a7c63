"""``TxnSnapshot``: the Parquet partitions of a table with a ``_txn`` as one set of files.

    <root>/_txn                                  the partitions, each with its txn and size
    <root>/<partition>[.<name txn>]/data.parquet the rows; as long as ``_txn`` says, or longer
    <root>/<partition>[.<name txn>]/_pm          their metadata

Only ``_txn`` determines what is in the table: a directory that it does not name is of an older
snapshot, or of one that was never committed. Its size of a file limits the bytes that are read,
however long the file is now; ``stat`` only distinguishes versions of a file. The unit of the
partitions is only in the names of their directories, and is inferred from them (``format/txn``).

A commit may happen between any two steps. ``_txn`` is read until its version stays the same during
the read. If a directory is gone that the next commit no longer names, everything is read again.

A partition that is not Parquet has its rows in files that only QuestDB reads. A live table's last
one is always like that.

**Readers without snapshots**, pyarrow and Spark: ``open_partition`` opens the first bytes of a
file, up to the snapshot's size, as a file of its own that ends with the snapshot's footer.

Spark reads the footer at the real end of a file, whatever length it is given, and then the row
groups of that footer whose middle lies before the given length. So a length selects exactly the
snapshot's row groups, as long as the newest footer still lists them all. ``ready_for_spark`` checks
that: a row group that was replaced since would be missing silently.
"""

from __future__ import annotations

import io
import time
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

import numpy as np

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, StaleError, UnsupportedError
from skipstone.human import of_total
from skipstone.parquet.format.footer import read_footer
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.storage import ByteRange, Listing, Storage
from skipstone.storage.base import SeekableBytes

from . import TXN
from .format.txn import Partition, Partitioning, Txn, directory, infer_partitioning, read, unit_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from skipstone.identity import ObjectId, TimeUnit


DATA: Final = "data.parquet"
PM: Final = "_pm"

#: Seconds after which a reader gives up if commits keep interrupting it.
_PATIENCE: Final = 10.0
# Incomplete copies of an unchanged version, until the file counts as damaged: a network file system
# may briefly show the writes of another machine out of order.
_ATTEMPTS: Final = 5
# A million partitions take 32 MB, twice, and what lies between two records.
_LARGEST: Final = 1 << 29
# The smallest Parquet file: magic, a footer of some bytes, its length, magic.
_SMALLEST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFile:
    """One Parquet partition: ``size`` bytes of ``path`` hold ``rows`` rows.

    ``timestamp`` is that of its entry, ``directory`` its name below the root. Its rows are earlier
    than ``end``, in the same unit, which is ``None`` where there is no end. ``id`` is the file's
    identity when the snapshot was opened, with the snapshot's size; ``length`` is the file's own
    length at that time, which is more during an append.
    """

    path: str
    pm: str
    size: int
    rows: int
    timestamp: int
    end: int | None
    directory: str
    id: ObjectId
    length: int


@dataclass(frozen=True, kw_only=True)
class TxnSnapshot:
    """See the module. ``files`` are in the order of ``_txn``, by time.

    ``partitioning`` is ``None`` where there is no partition. ``left_out`` names the partitions that
    are not Parquet: ``len(files)`` of ``partitions_total`` are here.
    """

    root: str
    txn: Txn
    partitioning: Partitioning | None
    files: tuple[PartitionFile, ...]
    partitions_total: int
    left_out: tuple[str, ...] = ()

    @classmethod
    def open(cls, root: str, storage: Storage, *, partial: bool = False) -> TxnSnapshot:
        """The newest snapshot of the table at ``root``, a canonical path.

        ``UnsupportedError`` names a partition that is not Parquet, unless ``partial``: then it is
        left out. ``FormatError`` for a ``_txn`` that is damaged or does not fit its directories,
        ``StaleError`` where commits come faster than this reads.
        """
        patience = CommitPatience()
        while True:
            txn = read_txn(root, storage)
            try:
                return _opened(root, storage, txn, partial=partial)
            except (FormatError, FileNotFoundError) as error:
                # Files that a later commit replaced may be gone now.
                if read_txn(root, storage).txn == txn.txn:
                    if isinstance(error, FormatError):
                        raise
                    raise FormatError(
                        "a partition without its file",
                        file=f"{root}/{TXN}",
                        expected=error.filename,
                        got="no such file",
                    ) from error
                _too_busy(patience, root)

    @property
    def partial(self) -> bool:
        """True where some partitions are left out."""
        return bool(self.left_out)

    @property
    def coverage(self) -> str:
        """``2 of 3 partitions``."""
        return of_total(len(self.files), self.partitions_total, "partitions")

    @property
    def rows(self) -> int:
        """Rows of ``files``."""
        return sum(each.rows for each in self.files)

    def listing(self) -> TxnListing:
        """``files`` by path, with the sizes of the snapshot."""
        unit: TimeUnit = self.files[0].id.unit if self.files else "ns"
        plain = Listing.of(self.root, [each.id for each in self.files], unit=unit)
        return TxnListing._of(plain, self)


@dataclass(frozen=True, eq=False, kw_only=True)
class TxnListing(Listing):
    """A listing that knows its snapshot; a listing of only some of the files does not."""

    is_snapshot: ClassVar[bool] = True

    snapshot: TxnSnapshot

    def where(self, keep: NDArray[np.bool_] | NDArray[np.int64] | Sequence[int]) -> TxnListing:
        """The files that ``keep`` selects, of the same snapshot."""
        return TxnListing._of(super().where(keep), self.snapshot)

    @classmethod
    def _of(cls, plain: Listing, snapshot: TxnSnapshot) -> TxnListing:
        known = {each.name: getattr(plain, each.name) for each in fields(Listing)}
        return cls(**known, snapshot=snapshot)

    @cached_property
    def files(self) -> list[PartitionFile]:
        """The partitions in the order of the listing."""
        by_path = {each.path: each for each in self.snapshot.files}
        return [by_path[path] for path in self.paths]

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Rows of each file, according to ``_txn``."""
        return np.fromiter((each.rows for each in self.files), np.int64, len(self))


def read_txn(root: str, storage: Storage) -> Txn:
    """The current record of the ``_txn`` at ``root``, consistent during commits.

    ``FileNotFoundError`` where there is none, ``FormatError`` for a damaged one, ``StaleError``
    where commits come faster than it can be read.
    """
    path = f"{root}/{TXN}"
    version = ByteRange(path, 0, 8)
    patience, broken = CommitPatience(), 0
    while True:
        size = storage.stat(path).size or 0
        if not version.length <= size <= _LARGEST:
            limits = f"{version.length} to {_LARGEST:,} bytes"
            raise FormatError("the size of a _txn", file=path, expected=limits, got=size)
        before = storage.read_ranges([version]).get(version)
        data = storage.read(path)
        after = storage.read_ranges([version]).get(version)
        # A commit overwrites the record that is not current, and writes its version last. So a copy
        # is consistent if the version is the same before and after it.
        if before is not None and after is not None and before == after == data[:8]:
            found = read(data, file=path)
            if found is not None:
                return found
            broken += 1
            if broken == _ATTEMPTS:
                raise FormatError(
                    "the current record of _txn",
                    file=path,
                    expected="whole, and of its version",
                    got="cut short, or of another",
                )
        _too_busy(patience, root)


def _opened(root: str, storage: Storage, txn: Txn, *, partial: bool) -> TxnSnapshot:
    rows = txn.row_counts
    partitions = txn.partitions
    if not partitions and txn.row_count:
        # Without partitions QuestDB keeps no table of them: all rows are in one.
        partitions, rows = (Partition(timestamp=0, row_count=txn.row_count),), (txn.row_count,)
    known = TableFiles(root, storage)
    partitioning = None
    if partitions:
        try:
            partitioning = infer_partitioning(partitions, known.directories)
        except FormatError as error:
            raise error.in_file(f"{root}/{TXN}") from None
    files: list[PartitionFile] = []
    left_out: list[str] = []
    for partition, count in zip(partitions, rows, strict=True):
        assert partitioning is not None
        name = directory(partition, partitioning)
        if not partition.parquet_format:
            if not partial:
                raise _not_parquet(root, name, len(left_out), partition is partitions[-1])
            left_out.append(name)
            continue
        files.append(_file(known, partitioning, partition, count))
    return TxnSnapshot(
        root=root,
        txn=txn,
        partitioning=partitioning,
        files=tuple(files),
        partitions_total=len(partitions),
        left_out=tuple(left_out),
    )


def _file(
    known: TableFiles, partitioning: Partitioning, partition: Partition, rows: int
) -> PartitionFile:
    name = directory(partition, partitioning)
    path = f"{known.root}/{name}/{DATA}"
    found = known.identity(path)
    size, length = partition.parquet_file_size, found.size or 0
    if not _SMALLEST <= size <= length:
        raise FormatError(
            f"the size of {path}",
            file=f"{known.root}/{TXN}",
            expected=f"{_SMALLEST} to {length} bytes",
            got=size,
            hint="the partition was not restored completely, or is of an older copy",
        )
    return PartitionFile(
        path=path,
        pm=f"{known.root}/{name}/{PM}",
        size=size,
        rows=rows,
        timestamp=partition.timestamp,
        end=unit_end(partition.timestamp, partitioning),
        directory=name,
        id=replace(found, size=size),
        length=length,
    )


def _not_parquet(root: str, name: str, before: int, last: bool) -> UnsupportedError:
    why = "; the last partition of a live table never is" if last and not before else ""
    return UnsupportedError(
        f"partition {name} of {root} is not Parquet{why}",
        hint="convert it (ALTER TABLE … CONVERT PARTITION TO PARQUET), or open the table with "
        "partial=True (--partial) to read the partitions that are Parquet and no others",
    )


class TableFiles:
    """The directories and the data files below a table's root.

    Local files are looked up one by one; an object store is listed once.
    """

    def __init__(self, root: str, storage: Storage) -> None:
        self.root, self.storage = root, storage
        self._listed: dict[str, ObjectId] | None = None
        if "://" in root:
            found = storage.list_all(root)
            self._listed = {path: found.object_id(at) for at, path in enumerate(found.paths)}

    @property
    def directories(self) -> Collection[str]:
        """Names of the directories below the root."""
        if self._listed is not None:
            cut = len(self.root) + 1
            return {path[cut:].partition("/")[0] for path in self._listed if "/" in path[cut:]}
        self.storage.requests += 1
        return {each.name for each in Path(self.root).iterdir() if each.is_dir()}

    def identity(self, path: str) -> ObjectId:
        """The identity of a file; ``FileNotFoundError`` if it does not exist."""
        if self._listed is None:
            return self.storage.stat(path)
        if path not in self._listed:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self._listed[path]


class CommitPatience:
    """Waits longer and longer between attempts, and gives up in the end."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _PATIENCE
        self._pause = 0.0

    def wait(self, what: str, *, hint: str) -> None:
        """Before the next attempt; ``StaleError`` about ``what`` after too many attempts."""
        if time.monotonic() > self._until:
            raise StaleError(what, hint=hint)
        time.sleep(self._pause)
        self._pause = min(0.05, self._pause * 2 or 0.0005)


def _too_busy(patience: CommitPatience, root: str) -> None:
    patience.wait(
        f"{root}/{TXN} changes faster than it can be read",
        hint="try again when there are fewer commits",
    )


def open_partition(file: PartitionFile, storage: Storage) -> io.BufferedReader:
    """The file as of the snapshot. ``StaleError`` where it is shorter now."""
    source = storage.open(file.path)
    if source.seek(0, io.SEEK_END) < file.size:
        source.close()
        raise StaleError(
            f"{file.path} is shorter than its snapshot",
            hint="the table was restored or written by something else: open it again",
        )
    return io.BufferedReader(_Beginning(source, file.size))


class _Beginning(SeekableBytes):
    """The first ``size`` bytes of a file."""

    def __init__(self, source: Any, size: int) -> None:
        super().__init__(size)
        self._source = source

    def _fetch(self, offset: int, length: int) -> bytes:
        self._source.seek(offset)
        return bytes(self._source.read(length))

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def ready_for_spark(files: Iterable[PartitionFile], storage: Storage) -> None:
    """Waits while an append is being written, and checks that Spark would read each file right.

    ``StaleError`` where it would not: a file is gone, a row group was replaced, or an append does
    not end.
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
            there = _row_groups(whole)
    except FormatError:
        return False
    if there[: len(wanted)] == wanted and all(at >= file.size for at, _, _ in there[len(wanted) :]):
        return True
    raise StaleError(
        f"row groups of {file.path} were replaced since the table was opened",
        hint="read the table again",
    )


def _row_groups(source: BinaryIO) -> list[tuple[int, int, int]]:
    """First byte, bytes and rows of each row group; ``FormatError`` where there is no footer."""
    tail, data = read_footer(source)
    if tail.encrypted:
        raise FormatError("the footer is encrypted", offset=tail.offset)
    footer = FooterArrays.scan(data, tail.offset)
    dictionary, pages = footer.chunk("dictionary_page_offset"), footer.chunk("data_page_offset")
    starts = np.where(dictionary > 0, dictionary, pages).min(axis=1, initial=tail.offset)
    sizes = footer.chunk("total_compressed_size").sum(axis=1)
    rows = footer.group("num_rows")
    return list(zip(starts.tolist(), sizes.tolist(), rows.tolist(), strict=True))
