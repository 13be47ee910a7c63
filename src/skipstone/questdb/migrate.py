"""``migrate`` writes a ``_pm`` for every data file that lacks a good one. It reads no rows.

In a table with QuestDB's layout (a directory with a ``_txn``), the ``_pm`` of each Parquet
partition lies next to ``data.parquet`` and belongs to the size in ``_txn``. For any other table the
``_pm`` files lie below a separate directory, with the names that ``export`` uses: ``_pm`` where a
directory has one data file, else ``<file>._pm``. Nothing is written into the directory of such a
table.

| the ``_pm`` | what happens |
|---|---|
| has this size, its CRC is right, nothing is missing | it stays |
| is older (no Bloom filters, ``upgrade``) | converted from the footer, or without the data file |
| belongs to another size, or is damaged | it is rewritten |
| is of a later version, with required flags | it stays, and the report says so |

A ``_pm`` is written under another name and then renamed. A reader that has the old file open keeps
it, and after a crash the file is the old or the new one. A file is never cut or changed in place. A
table that a running QuestDB or a writer of ours has open is refused, because that process appends
to the ``_pm`` files. The locks are those of QuestDB (``flock`` on ``tables.d.lock`` in the
directory of the table and on ``<table>.lock``) and our own ``_lock``.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError, UnsupportedError, in_words
from skipstone.human import FilesReport, Report, duration, size
from skipstone.identity import ObjectId, canonical_path
from skipstone.parquet.format.footer_arrays import FooterArrays
from skipstone.storage import Listing, Storage, open_storage, remove_left_overs

from . import TXN, is_txn_table
from .format.pm import Pm, PmSnapshot
from .format.txn import directory, infer_partitioning
from .format.writer import outdated, upgrade
from .pm_of_data_file import ParquetSource, checked, filters, make_partition_pm, make_pm
from .txn_snapshot import DATA, PM, TableFiles, read_txn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_WORKERS: Final = 8
_NOT_THERE: Final = "its data file is not there"


#: What happened to the ``_pm`` of a file. "made": there was none. "rewritten": it was damaged or of
#: another file. "upgraded": it was older. "valid": it was good. "left_out": none is needed.
Outcome: TypeAlias = Literal["made", "rewritten", "upgraded", "valid", "left_out", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMigration(Report):
    """One data file and its ``pm``; ``why`` says why it was written, or could not be.

    ``bytes_read`` are of the data file, ``bytes_written`` of the ``_pm``.
    """

    path: str
    pm: str
    outcome: Outcome
    why: str = ""
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport(FilesReport[FileMigration]):
    """What a migration did, or with ``dry_run`` would do, file by file.

    ``destination`` is where the ``_pm`` files went, ``None`` if next to their files; ``bytes_data``
    is the size of the data files, ``seconds`` the time it took.
    """

    table: str
    destination: str | None
    files: tuple[FileMigration, ...]
    dry_run: bool = False
    bytes_data: int = 0
    seconds: float = 0.0

    computed = ("bytes_read", "bytes_written", "ok")
    outcomes = get_args(Outcome)

    @property
    def bytes_read(self) -> int:
        """Bytes read of data files: footers and Bloom filters."""
        return sum(each.bytes_read for each in self.files)

    @property
    def bytes_written(self) -> int:
        """Bytes of the ``_pm`` files that were written."""
        return sum(each.bytes_written for each in self.files)

    def __str__(self) -> str:
        would = "would write" if self.dry_run else "wrote"
        kinds = {"made": "new", "rewritten": "invalid", "upgraded": "older"}
        written = ", ".join(f"{len(self.of(name)):,} {text}" for name, text in kinds.items())
        where = "next to their files" if self.destination is None else f"below {self.destination}"
        lines = [
            f"{would} the _pm of {self.counted(*kinds)} ({written}), {where}",
            f"{self.counted('valid')} had a good one already",
            f"{'needs' if self.dry_run else 'took'} {size(self.bytes_written)} and"
            f" {duration(1000 * self.seconds)}, read {size(self.bytes_read)} of"
            f" {size(self.bytes_data)} of data",
            *self.reasons("rewritten", "rewritten"),
            *self.reasons("upgraded", "brought up to date"),
            *self.reasons("left_out", "left out"),
            *self.reasons("failed", "failed"),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A data file and its ``pm``. ``size`` is the size of the snapshot, ``length`` that of the
    file, ``None`` if the file does not exist. A ``pm`` older than ``since`` is of another version.
    """

    path: str
    pm: str
    size: int
    length: int | None
    since: ObjectId | None = None

    @property
    def of_questdb(self) -> bool:
        """Whether the file lies in QuestDB's layout."""
        return self.since is None


def migrate(
    root: str,
    storage: Storage,
    *,
    listing: Callable[[], Listing],
    destination: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MigrateReport:
    """Write the missing ``_pm`` files; see the module.

    ``root`` is canonical: a table, or one ``_pm``, which is then upgraded by itself. ``listing``
    gives the files of a plain table. ``destination`` is the directory of the ``_pm`` files; with
    it, a table in QuestDB's layout is not changed. An error with one file is in the report and does
    not stop the others. ``UnsupportedError`` for a destination within a plain table,
    ``SkipstoneError`` for a table that another process has open.
    """
    started = time.perf_counter()
    home = None if destination is None else _outside(root, destination)
    target = storage if home is None else open_storage(home, storage_options)
    with ExitStack() as held:
        done: list[FileMigration] = []
        if root.endswith(("/_pm", "._pm", ".pm")) and not storage.has_children(root):
            targets = [_Target(path=root, pm=root, size=-1, length=None)]
            in_place = True
        elif is_txn_table(root, storage):
            in_place = home is None
            if in_place and not dry_run:
                held.enter_context(_alone(root))
            targets = list(_partitions(root, storage, home, done))
        else:
            in_place = False
            if home is None:
                raise UnsupportedError(
                    f"{root} is not a table of QuestDB: nothing is written into it",
                    hint="name the directory that the _pm files go to",
                )
            targets = list(_files(listing(), home))
        if not dry_run:
            for directory in {each.pm.rpartition("/")[0] for each in targets}:
                remove_left_overs(target, directory)
        work = _Migration(storage, target, dry_run=dry_run)
        with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
            for count, each in enumerate(pool.map(work.one, targets), 1):
                done.append(each)
                if progress is not None:
                    progress(count, len(targets))
    return MigrateReport(
        table=root,
        destination=None if in_place else home,
        files=tuple(done),
        dry_run=dry_run,
        bytes_data=sum(each.size for each in targets if each.length is not None),
        seconds=time.perf_counter() - started,
    )


def _outside(root: str, destination: str) -> str:
    """The canonical directory ``destination``, which must not lie within the table."""
    home = canonical_path(destination).rstrip("/")
    if f"{home}/".startswith(f"{root.rstrip('/')}/"):
        raise UnsupportedError(
            f"{destination} lies within the table",
            hint="name a directory outside, or none for the place next to the table",
        )
    return home


def _partitions(
    root: str, storage: Storage, home: str | None, done: list[FileMigration]
) -> Iterator[_Target]:
    """The Parquet partitions of the newest snapshot. Other partitions are added to ``done``."""
    txn = read_txn(root, storage)
    if not txn.partitions:
        return
    try:
        partitioning = infer_partitioning(txn.partitions, TableFiles(root, storage).directories)
    except FormatError as error:
        raise error.in_file(f"{root}/{TXN}") from None
    for each in txn.partitions:
        name = directory(each, partitioning)
        path = f"{root}/{name}/{DATA}"
        pm = f"{home or root}/{name}/{PM}"
        if not each.parquet_format:
            why = "the partition is not Parquet"
            done.append(FileMigration(path=path, pm=pm, outcome="left_out", why=why))
            continue
        try:
            length = storage.stat(path).size
        except FileNotFoundError:
            length = None
        yield _Target(path=path, pm=pm, size=each.parquet_file_size, length=length)


def _files(listing: Listing, home: str) -> Iterator[_Target]:
    """The files of a plain table, each with a place below ``home``."""
    inside = len(listing.root.rstrip("/")) + 1
    folders = [path.rpartition("/")[0] for path in listing.paths]
    counts: dict[str, int] = {}
    for folder in folders:
        counts[folder] = counts.get(folder, 0) + 1
    for at, (path, folder) in enumerate(zip(listing.paths, folders, strict=True)):
        id = listing.object_id(at)
        below = path[inside:] or path.rpartition("/")[2]
        if counts[folder] == 1:
            above = below.rpartition("/")[0]
            name = f"{above}/{PM}" if above else PM
        else:
            name = f"{below}._pm"
        size = id.size or 0
        yield _Target(path=path, pm=f"{home}/{name}", size=size, length=size, since=id)


class _Migration:
    """Migrates single files; several threads may use it at once."""

    def __init__(self, storage: Storage, target: Storage, *, dry_run: bool) -> None:
        self.storage, self.target, self.dry_run = storage, target, dry_run

    def one(self, target: _Target) -> FileMigration:
        """One file. Its errors do not stop the others."""
        source = ParquetSource(self.storage, target.path, target.size)
        try:
            found = self._one(target, source)
        except Exception as error:  # one file must not end the migration of the others
            text = in_words(error)
            if not isinstance(error, SkipstoneError | OSError):
                text = f"{type(error).__name__}: {text}"
            for known in (target.path, target.pm):
                text = text.removeprefix(f"{known}: ")
            found = FileMigration(path=target.path, pm=target.pm, outcome="failed", why=text)
        return replace(found, bytes_read=source.bytes_read)

    def _one(self, target: _Target, source: ParquetSource) -> FileMigration:
        def outcome(name: Outcome, why: str = "", data: bytes | None = None) -> FileMigration:
            if data is not None and not self.dry_run:
                self._put(target, data)
            written = 0 if data is None else len(data)
            return FileMigration(
                path=target.path, pm=target.pm, outcome=name, why=why, bytes_written=written
            )

        try:
            old = self.target.read(target.pm)
        except FileNotFoundError:
            if target.length is None:
                return outcome("failed", _NOT_THERE)
            return outcome("made", "", self._made(target, source))
        try:
            snapshot = self._checked(target, source, old)
        except UnsupportedError as error:
            return outcome("left_out", error.message.removeprefix(f"{target.pm}: "))
        except FormatError as error:
            if target.length is None:
                raise
            why = error.message.removeprefix(f"{target.pm}: ")
            return outcome("rewritten", why, self._made(target, source))
        older = outdated(snapshot)
        if target.length is None:
            if older:
                return outcome("upgraded", "; ".join(older), upgrade(snapshot))
            return outcome("valid", "" if target.size < 0 else _NOT_THERE)
        return self._renewed(target, source, snapshot, older, outcome)

    def _renewed(
        self,
        target: _Target,
        source: ParquetSource,
        snapshot: PmSnapshot,
        older: tuple[str, ...],
        outcome: Callable[..., FileMigration],
    ) -> FileMigration:
        """A valid ``_pm``, upgraded where the data file holds more than it."""
        try:
            data = self._made(target, source, snapshot)
        except SkipstoneError:
            if not older:
                return outcome("valid")
            return outcome("upgraded", "; ".join(older), upgrade(snapshot))
        lacking = filters(Pm(data).snapshot()) - filters(snapshot)
        whys = [*older, *([f"{lacking:,} Bloom filters of its data file"] if lacking > 0 else [])]
        return outcome("upgraded", "; ".join(whys), data) if whys else outcome("valid")

    def _made(self, target: _Target, source: ParquetSource, old: PmSnapshot | None = None) -> bytes:
        assert target.length is not None
        if target.size > target.length:
            raise FormatError(
                "the data file is shorter than its snapshot",
                file=target.path,
                expected=target.size,
                got=target.length,
            )
        if target.of_questdb:
            return make_partition_pm(source, old)
        try:
            footer = FooterArrays.scan(source.footer(), source.tail().offset)
            return make_pm(
                footer, source.size, mode="inlined", path=source.path, fetch=source.fetch
            )
        except FormatError as error:
            raise error.in_file(source.path) from None

    def _checked(self, target: _Target, source: ParquetSource, data: bytes) -> PmSnapshot:
        """The snapshot in ``data``; ``FormatError`` where it does not belong to the data file."""
        size = target.size
        if size < 0:
            size = Pm(data, file=target.pm).snapshot().parquet_size
        snapshot = checked(data, size, file=target.pm)
        if target.length is None or target.size > target.length:
            return snapshot
        length = source.tail().length
        if snapshot.parquet_footer_length != length:
            raise FormatError(
                "the footer of its data file",
                file=target.pm,
                expected=f"{length} bytes",
                got=snapshot.parquet_footer_length,
            )
        since = target.since
        if since is not None and self.target.stat(target.pm).mtime_ns < since.mtime_ns:
            raise FormatError("older than its data file", file=target.pm)
        return snapshot

    def _put(self, target: _Target, data: bytes) -> None:
        """Write ``data``, unless the data file has changed since it was read."""
        if target.since is not None and not self.storage.stat(target.path).same_version(
            target.since
        ):
            raise FormatError("the data file changed meanwhile", file=target.path)
        self.target.put(target.pm, data, [target.path])


@contextmanager
def _alone(root: str) -> Iterator[None]:
    """Hold those locks of the table's writers that exist."""
    if "://" in root:
        yield
        return
    from fcntl import LOCK_EX, LOCK_NB, flock

    above, name = root.rpartition("/")[::2]
    owners = {
        f"{above}/tables.d.lock": "a QuestDB server",
        f"{above}/{name}.lock": "a QuestDB server",
        f"{root}/_lock": "a writer",
    }
    with ExitStack() as held:
        for path, owner in owners.items():
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            held.callback(os.close, descriptor)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise SkipstoneError(
                    f"{owner} has {root} open ({path} is locked) and may append to its _pm files",
                    hint="stop it first, or name a directory outside the table to write them to",
                ) from None
        yield
