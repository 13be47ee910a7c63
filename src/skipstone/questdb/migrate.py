"""``migrate``: a ``_pm`` for every data file that lacks a good one, without reading rows.

Of a table in QuestDB's layout (a directory with a ``_txn``), each Parquet partition gets its
``_pm`` beside ``data.parquet``, of the size that ``_txn`` says. Of any other table every file gets
one below a directory of its own, named as ``export`` names it: ``_pm`` where a directory has one
data file, else ``<file>._pm``. Nothing is written into the directory of such a table.

    there, of this size, CRC right, nothing missing     left as it is
    there, but older (no Bloom filters, ``upgrade``)    made of the footer, or without the data file
    there, of another size or damaged                   made anew
    of a later version, with required flags             left as it is, and said

A ``_pm`` is written under another name and renamed: whoever has the old one open keeps it, and
after a crash there is the old or the new one. What is there is never cut or changed in place. A
table that a running QuestDB has open, or a writer of ours, is refused: its ``_pm`` files are theirs
to append to. Locks are those of QuestDB, ``flock`` on ``tables.d.lock`` beside the table and on
``<table>.lock``; and our own ``_lock``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from skipstone.errors import FormatError, SkipstoneError, UnsupportedError
from skipstone.human import duration, of_total, size
from skipstone.identity import UNITS_PER_SECOND, canonical_path
from skipstone.storage import open_storage

from .format.partition_names import directory, infer_partitioning
from .format.pm import Pm
from .format.writer import outdated, upgrade
from .pm_of_data_file import ParquetSource, checked, filters, make_partition_pm, make_pm
from .txn_snapshot import DATA, PM, TXN, is_txn_table, read_txn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from skipstone.identity import ObjectId
    from skipstone.storage import Listing, Storage

    from .format.pm import PmSnapshot

__all__ = ["Fate", "FileMigration", "MigrateReport", "migrate"]

_WORKERS: Final = 8
_NOT_THERE: Final = "its data file is not there"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A data file and its ``pm``. ``size`` is the snapshot's, ``length`` what the file has,
    ``None`` where it is not there. ``since``: a ``pm`` that is older is of another version.
    """

    path: str
    pm: str
    size: int
    length: int | None
    since: ObjectId | None = None

    @property
    def of_questdb(self) -> bool:
        """Whether it lies in QuestDB's layout."""
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
    """Make what is missing; see the module.

    ``root`` is canonical: a table, or one ``_pm`` that is brought up to date by itself. ``listing``
    gives the files of a plain table, ``destination`` is where their ``_pm`` go (or those of a table
    in QuestDB's layout, which is then not touched). What is wrong with one file is in the report
    and does not stop the others. ``UnsupportedError`` for a destination within a plain table,
    ``SkipstoneError`` for a table that somebody has open.
    """
    started = time.perf_counter()
    target = storage
    home = None if destination is None else canonical_path(destination).rstrip("/")
    if home is not None:
        if f"{home}/".startswith(f"{root.rstrip('/')}/"):
            raise UnsupportedError(
                f"{destination} lies within the table",
                hint="name a directory outside, or none for the place beside the table",
            )
        target = open_storage(home, storage_options)
    with ExitStack() as held:
        done: list[FileMigration] = []
        if root.endswith(("/_pm", "._pm", ".pm")) and not storage.has_children(root):
            targets = [_Target(path=root, pm=root, size=-1, length=None)]
            beside = True
        elif is_txn_table(root, storage):
            beside = home is None
            if beside and not dry_run:
                held.enter_context(_alone(root))
            targets = list(_partitions(root, storage, home, done))
        else:
            beside = False
            if home is None:
                raise UnsupportedError(
                    f"{root} is no table of QuestDB: nothing is written into it",
                    hint="name the directory that the _pm files go to",
                )
            targets = list(_files(listing(), home))
        work = _Migration(storage, target, dry_run=dry_run)
        total = len(targets)
        with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
            for count, each in enumerate(pool.map(work.one, targets), 1):
                done.append(each)
                if progress is not None:
                    progress(count, total)
    return MigrateReport(
        table=root,
        destination=None if beside else home,
        files=tuple(done),
        dry_run=dry_run,
        bytes_data=sum(each.size for each in targets if each.length is not None),
        seconds=time.perf_counter() - started,
    )


def _partitions(
    root: str, storage: Storage, home: str | None, done: list[FileMigration]
) -> Iterator[_Target]:
    """The Parquet partitions of the newest snapshot; others go into ``done``."""
    txn = read_txn(root, storage)
    if not txn.partitions:
        return
    try:
        partitioning = infer_partitioning(txn.partitions, _directories(root, storage))
    except FormatError as error:
        raise error.in_file(f"{root}/{TXN}") from None
    for each in txn.partitions:
        name = directory(each, partitioning)
        path = f"{root}/{name}/{DATA}"
        pm = f"{home or root}/{name}/{PM}"
        if not each.parquet_format:
            why = "the partition is not Parquet"
            done.append(FileMigration(path=path, pm=pm, fate="left_out", why=why))
            continue
        try:
            length = storage.stat(path).size
        except FileNotFoundError:
            length = None
        yield _Target(path=path, pm=pm, size=each.parquet_file_size, length=length)


def _directories(root: str, storage: Storage) -> set[str]:
    if "://" not in root:
        return {each.name for each in Path(root).iterdir() if each.is_dir()}
    cut = len(root) + 1
    found = (path[cut:] for path in storage.list_all(root).paths)
    return {path.partition("/")[0] for path in found if "/" in path}


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
    """What is done with each file."""

    def __init__(self, storage: Storage, target: Storage, *, dry_run: bool) -> None:
        self.storage, self.target, self.dry_run = storage, target, dry_run

    def one(self, target: _Target) -> FileMigration:
        """One file; its trouble is its own."""
        source = ParquetSource(self.storage, target.path, target.size)
        try:
            found = self._one(target, source)
        except (SkipstoneError, OSError) as error:
            text = error.message if isinstance(error, SkipstoneError) else str(error)
            for known in (target.path, target.pm):
                text = text.removeprefix(f"{known}: ")
            found = FileMigration(path=target.path, pm=target.pm, fate="failed", why=text)
        return replace(found, bytes_read=source.bytes_read)

    def _one(self, target: _Target, source: ParquetSource) -> FileMigration:
        def outcome(fate: Fate, why: str = "", data: bytes | None = None) -> FileMigration:
            if data is not None and not self.dry_run:
                self._put(target, data)
            written = 0 if data is None else len(data)
            return FileMigration(
                path=target.path, pm=target.pm, fate=fate, why=why, bytes_written=written
            )

        try:
            old = self.target.read(target.pm)
        except FileNotFoundError:
            if target.length is None:
                return outcome("failed", _NOT_THERE)
            return outcome("made", "", self._made(target, source))
        try:
            snapshot = self._judged(target, source, old)
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
        """A good one: brought up to date, where the data file has more to say."""
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
            return make_pm(
                source.footer(), source.size, mode="inlined", path=source.path, fetch=source.fetch
            )
        except FormatError as error:
            raise error.in_file(source.path) from None

    def _judged(self, target: _Target, source: ParquetSource, data: bytes) -> PmSnapshot:
        """The snapshot of what is there; ``FormatError`` where it is not of the data file."""
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
        if target.since is not None and _older(self.target.stat(target.pm), target.since):
            raise FormatError("older than its data file", file=target.pm)
        return snapshot

    def _put(self, target: _Target, data: bytes) -> None:
        """Write it, unless the data file is no longer the one that it is of."""
        if target.since is not None and not self.storage.stat(target.path).same_version(
            target.since
        ):
            raise FormatError("the data file changed meanwhile", file=target.path)
        self.target.put(target.pm, data)


def _older(one: ObjectId, other: ObjectId) -> bool:
    """Whether ``one`` was written before ``other``."""
    mine, theirs = UNITS_PER_SECOND[one.unit], UNITS_PER_SECOND[other.unit]
    return one.mtime * theirs < other.mtime * mine


@contextmanager
def _alone(root: str) -> Iterator[None]:
    """Hold the locks that writers of the table take, as far as they are there."""
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
                    f"{owner} has {root} open ({path} is locked): its _pm files are not ours to"
                    " replace",
                    hint="stop it first, or name a directory outside the table to write them to",
                ) from None
        yield


#: What became of the ``_pm`` of a file: it was not there and is now; it was of another file or
#: damaged, and was made anew; it was older, and brought up to date; it was good already; none was
#: made, because there need not be one; none could be made.
Fate: TypeAlias = Literal["made", "rewritten", "upgraded", "valid", "left_out", "failed"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMigration:
    """One data file and its ``pm``; ``why`` it had to be written, or could not be.

    ``bytes_read`` are of the data file, ``bytes_written`` are those of the ``_pm``.
    """

    path: str
    pm: str
    fate: Fate
    why: str = ""
    bytes_read: int = 0
    bytes_written: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport:
    """What a migration did, or with ``dry_run`` would do, file by file.

    ``destination`` is where the ``_pm`` files went, ``None`` for beside their files; ``bytes_data``
    is the size of the data files, ``seconds`` what it took.
    """

    table: str
    destination: str | None
    files: tuple[FileMigration, ...]
    dry_run: bool = False
    bytes_data: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """How many files met each fate."""
        return dict(Counter(each.fate for each in self.files))

    @property
    def ok(self) -> bool:
        """True when none failed."""
        return not any(each.fate == "failed" for each in self.files)

    @property
    def bytes_read(self) -> int:
        """Bytes of data files that were read: footers and Bloom filters."""
        return sum(each.bytes_read for each in self.files)

    @property
    def bytes_written(self) -> int:
        """Bytes of the ``_pm`` files that were written."""
        return sum(each.bytes_written for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        counts = self.counts
        return {
            "table": self.table,
            "destination": self.destination,
            "dry_run": self.dry_run,
            "files_total": len(self.files),
            **{
                name: counts.get(name, 0)
                for name in ("made", "rewritten", "upgraded", "valid", "left_out", "failed")
            },
            "bytes_data": self.bytes_data,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds,
            "ok": self.ok,
            "files": [each.to_dict() for each in self.files],
        }

    def __str__(self) -> str:
        counts, total = self.counts, len(self.files)
        would = "would write" if self.dry_run else "wrote"
        written = sum(counts.get(fate, 0) for fate in ("made", "rewritten", "upgraded"))
        kinds = [
            f"{counts.get(fate, 0):,} {text}"
            for fate, text in (("made", "new"), ("rewritten", "invalid"), ("upgraded", "older"))
        ]
        where = "beside their files" if self.destination is None else f"below {self.destination}"
        lines = [
            f"{would} the _pm of {of_total(written, total, 'files')} ({', '.join(kinds)}), {where}",
            f"{of_total(counts.get('valid', 0), total, 'files')} had a good one already",
            f"{'needs' if self.dry_run else 'took'} {size(self.bytes_written)} and"
            f" {duration(1000 * self.seconds)}, read {size(self.bytes_read)} of"
            f" {size(self.bytes_data)} of data",
        ]
        for fate, title in (
            ("rewritten", "made anew"),
            ("upgraded", "brought up to date"),
            ("left_out", "left out"),
            ("failed", "failed"),
        ):
            lines += _some(title, [each for each in self.files if each.fate == fate], total)
        return "\n".join(lines)


def _some(title: str, files: Iterable[FileMigration], total: int) -> list[str]:
    """The title, and the first of the files with the reason."""
    listed = list(files)
    if not listed:
        return []
    shown = [f"  {each.path}: {each.why}" for each in listed[:_SHOWN]]
    rest = len(listed) - _SHOWN
    return [
        f"{title}, {of_total(len(listed), total, 'files')}:",
        *shown,
        *([f"  and {rest:,} more"] if rest > 0 else []),
    ]
