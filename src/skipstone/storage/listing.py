"""``Listing``: the files of a directory and their identities as parallel arrays, by Spark's rules.

Spark's rules for the name of a file or directory below the root (the root's own name is free):

    starts with "." or ends with "._COPYING_"      hidden
    starts with "_" and contains no "="            hidden (a partition column may be called "_x")
    "_metadata", "_common_metadata"                listed by Spark, but never read as data: hidden
    length 0                                       dropped

**Whether a listing still holds.** A table is listed for every query, and most times nothing has
changed. A ``Directory`` keeps what a walk of a local directory found. Comparing every name and
every file's state is cheaper than a new listing.

``os.stat`` takes about a microsecond in the system and two in Python. A compiled loop calls
statx(2) without the interpreter. Importing the compiler takes longer than most processes spend on
looking, so it is loaded only after that much time was spent, or when it is loaded already.

    offset  0 mask u32   28 mode u16   32 ino u64   40 size u64   96 ctime   112 mtime   of 256
    a timestamp: sec i64, nsec u32, 4 unused

Source: statx(2), linux/stat.h; the layout is the same on every architecture.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from skipstone._arrays import arrow_bytes
from skipstone._dataclasses import dataclass
from skipstone._numba import CompiledKernels
from skipstone.identity import ObjectId, TimeUnit, etag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray


#: a file with the footers of all files of a directory
SUMMARY: Final = "_metadata"

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def hidden_by_spark(name: str) -> bool:
    """True when Spark ignores a file or directory of this name."""
    return (
        (name.startswith("_") and "=" not in name)
        or name.startswith(".")
        or name.endswith("._COPYING_")
    )


def int64(value: int) -> int:
    """``value`` clamped to int64. The ends mean "out of range", and no fact matches there."""
    return min(max(value, _LEAST), _MOST)


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """Files below ``root``: canonical raw ``paths``, sorted by code point, and their identities.

    ``sizes`` in bytes and ``mtimes`` in ``unit`` since the epoch are int64 ``(n,)``; ``etags`` has
    one text or ``None`` per file, or is ``None`` where the source has none at all. ``empty`` counts
    files of 0 bytes, which are left out, as Spark does. ``recursive`` says that no folder gives a
    partition column (``files_of_table``), and ``outside`` counts the files below ``root`` that are
    not part of the table. ``top`` are the names directly below ``root``, hidden ones included,
    those of folders with a slash; ``None`` where the source does not report them. ``folder_values``
    has one Arrow array ``(n,)`` per partition column if a catalog gives the values, instead of the
    names of the folders.
    """

    #: whether the listing is a snapshot of a table with a ``_txn``
    is_snapshot: ClassVar[bool] = False

    root: str
    paths: list[str]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    unit: TimeUnit = "ns"
    etags: list[str | None] | None = None
    empty: int = 0
    recursive: bool = False
    outside: int = 0
    top: frozenset[str] | None = None
    folder_values: Mapping[str, pa.Array] | None = None

    def __post_init__(self) -> None:
        n = len(self.paths)
        etags = n if self.etags is None else len(self.etags)
        if not n == len(self.sizes) == len(self.mtimes) == etags:
            raise ValueError(
                f"{n} paths, {len(self.sizes)} sizes, {len(self.mtimes)} mtimes, {etags} etags"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"Listing({self.root!r}, {len(self):,} files, {self.total_bytes:,} bytes)"

    def same_files(self, other: Listing) -> bool:
        """Whether both list the same versions of the same files."""
        return self is other or (
            self.unit == other.unit
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.mtimes, other.mtimes)
            and self.paths == other.paths
            and self.etags == other.etags
        )

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum())

    def object_id(self, at: int) -> ObjectId:
        """The identity of the file at position ``at``."""
        return ObjectId(
            path=self.paths[at],
            size=int(self.sizes[at]),
            mtime=int(self.mtimes[at]),
            unit=self.unit,
            etag=None if self.etags is None else self.etags[at],
        )

    def where(self, keep: NDArray[np.bool_] | NDArray[np.int64] | Sequence[int]) -> Listing:
        """The files that ``keep`` (mask or positions) selects, in that order."""
        at = np.asarray(keep)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at.astype(np.int64)
        chosen = at.tolist()
        return Listing(
            root=self.root,
            paths=[self.paths[i] for i in chosen],
            sizes=self.sizes[at],
            mtimes=self.mtimes[at],
            unit=self.unit,
            etags=None if self.etags is None else [self.etags[i] for i in chosen],
            recursive=self.recursive,
            folder_values=None
            if self.folder_values is None
            else {name: values.take(at) for name, values in self.folder_values.items()},
        )

    @cached_property
    def folders(self) -> Folders:
        """The folders of the files."""
        return Folders.of(self.root, self.paths)

    @cached_property
    def path_array(self) -> pa.Array:
        """``paths`` as Arrow strings; null for a name that is not UTF-8, which no fact can have."""
        return _strings(self.paths)

    @cached_property
    def etag_array(self) -> pa.Array:
        """``etags`` as Arrow strings, all null where there are none."""
        import pyarrow as pa

        return (
            pa.nulls(len(self), pa.large_string()) if self.etags is None else _strings(self.etags)
        )

    @classmethod
    def of(cls, root: str, ids: Iterable[ObjectId], unit: TimeUnit = "ns") -> Listing:
        """The listing of these files, sorted; all of them in ``unit`` and of known size."""
        found = sorted(ids, key=lambda each: each.path)
        if any(each.unit != unit or each.size is None for each in found):
            raise ValueError(f"a listing has one unit, {unit}, and knows all sizes")
        count = len(found)
        etags = [each.etag for each in found]
        return cls(
            root=root,
            paths=[each.path for each in found],
            sizes=np.fromiter((each.size or 0 for each in found), np.int64, count),
            mtimes=np.fromiter((int64(each.mtime) for each in found), np.int64, count),
            unit=unit,
            etags=None if all(etag is None for etag in etags) else etags,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Folders:
    """The distinct folders of some files: ``names`` below their root, each with a slash at its end
    (the root is ``""``), and ``of_file``, the ordinal of each file's folder, int64 ``(files,)``."""

    names: list[str]
    of_file: NDArray[np.int64]

    @classmethod
    def of(cls, root: str, paths: Sequence[str]) -> Folders:
        """The folders of ``paths``, files below ``root``.

        In a sorted list the files of one folder are neighbours, unless folders in it are between
        them: most folders cost a bisection, and no file is checked one by one.
        """
        cut = len(root.rstrip("/")) + 1
        if sorted(paths) != paths:
            each = [path[cut : path.rfind("/") + 1] for path in paths]
            ordinals = {name: at for at, name in enumerate(dict.fromkeys(each))}
            of_file = np.fromiter(map(ordinals.__getitem__, each), np.int64, len(each))
            return cls(list(ordinals), of_file)
        ordinals, mixed = {}, set[str]()
        of_file = np.empty(len(paths), np.int64)
        at = 0
        while at < len(paths):
            folder = paths[at][: paths[at].rfind("/") + 1]
            stop = at + 1
            if stop < len(paths) and paths[stop].startswith(folder) and folder not in mixed:
                # "0" is the character after "/".
                below = bisect_left(paths, f"{folder[:-1]}0", stop)
                if "".join(paths[at:below]).count("/") == folder.count("/") * (below - at):
                    stop = below
                else:
                    mixed.add(folder)
            of_file[at:stop] = ordinals.setdefault(folder[cut:], len(ordinals))
            at = stop
        return cls(list(ordinals), of_file)


def _strings(texts: Sequence[str | None]) -> pa.Array:
    """Arrow strings of Python ones; null for ``None`` and for undecodable names."""
    import pyarrow as pa

    try:
        # In ASCII, offsets follow from lengths: several times faster than converting one by one.
        whole = "".join(texts).encode("ascii")  # type: ignore[arg-type]
    except (UnicodeEncodeError, TypeError):
        return arrow_bytes(map(_utf8, texts)).cast(pa.large_string())
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])  # type: ignore[arg-type]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(whole)]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


def _utf8(text: str | None) -> bytes | None:
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError:
        return None


# -- whether a listing still holds -----------------------------------------------------------------

IntArray: TypeAlias = "NDArray[np.int64]"

# Directories with fewer files use os.stat.
_MANY = 64
_TIME: Final = np.dtype([("sec", "<i8"), ("nsec", "<u4"), ("", "<i4")])
_STATX: Final = np.dtype(
    {
        "names": ["mask", "mode", "ino", "size", "ctime", "mtime"],
        "formats": ["<u4", "<u2", "<u8", "<u8", _TIME, _TIME],
        "offsets": [0, 28, 32, 40, 96, 112],
        "itemsize": 256,
    }
)
# Type, mode, mtime, ctime, inode and size: all are needed to compare.
_WANTED: Final = 0x3C3
# Files per thread, and the most threads.
_EACH: Final = 2048
_MOST_THREADS: Final = 8
# Seconds whose nanoseconds fit into int64.
_MOST_SECONDS: Final = 9_223_372_035


#: The unit of work is a second spent on os.stat.
COMPILED: Final[CompiledKernels[Callable[..., Any]]] = CompiledKernels(
    module=f"{__package__}.statx_jit", total=0.5, share=0.0
)


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names of one directory as statx(2) takes them: ``text`` has a zero byte after each name, and
    ``starts`` the offset of each."""

    text: NDArray[np.uint8]
    starts: IntArray

    @classmethod
    def of(cls, names: Sequence[str]) -> Names:
        """The names in this order. File names contain no zero byte."""
        text = np.frombuffer(b"".join(os.fsencode(name) + b"\0" for name in names), np.uint8)
        ends = np.flatnonzero(text == 0)
        return cls(text, np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]))

    def look(self, directory: int, call: Callable[..., Any]) -> IntArray | None:
        """Mode, size, mtime (ns), inode and ctime (ns), int64 ``(5, n)``, of the files below the
        open ``directory``; ``None`` when a file is gone or its state cannot be represented."""
        found = np.zeros(len(self.starts), _STATX)
        count = len(found)
        parts = max(min(count // _EACH, os.cpu_count() or 1, _MOST_THREADS), 1)
        cuts = [count * part // parts for part in range(parts + 1)]
        failed: list[int] = []

        def look(first: int, stop: int) -> None:
            bytes_ = found[first:stop].view(np.uint8)
            if call(directory, self.text, self.starts[first:stop], bytes_):
                failed.append(first)

        # The loop runs without the GIL.
        others = [Thread(target=look, args=cut) for cut in pairwise(cuts[1:])]
        for thread in others:
            thread.start()
        look(*cuts[:2])
        for thread in others:
            thread.join()
        if failed or np.any(found["mask"] & _WANTED != _WANTED):
            return None
        state = np.empty((5, len(found)), np.int64)
        state[0] = found["mode"]
        state[1] = found["size"]
        state[3] = found["ino"]
        for row, at in ((2, found["mtime"]), (4, found["ctime"])):
            if np.any(np.abs(at["sec"]) > _MOST_SECONDS):
                return None
            state[row] = at["sec"] * 10**9 + at["nsec"]
        return state


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """One directory. ``names`` are all entries in its order, ``visible`` those that are not hidden,
    with their ``etags``; ``state`` holds int64 rows as in ``_state``."""

    path: str
    names: list[str]
    visible: list[str]
    etags: list[str]
    state: IntArray
    #: ``visible`` as statx(2) takes them, once they were used
    _names: list[Names] = field(default_factory=list)

    @classmethod
    def of(cls, path: str, names: list[str], visible: list[str], states: list[int]) -> Directory:
        """``states`` has the five numbers of ``state_of`` for each of ``visible``."""
        etags = list(map(etag_of, states[3::5], states[4::5]))
        return cls(path, names, names if visible == names else visible, etags, _state(states))

    def is_unchanged(self) -> bool:
        """Whether the directory still has the same entries, with the same versions of the files."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.listdir(descriptor) != self.names:  # noqa: PTH208 - of a descriptor
                return False
            found = self._look(descriptor)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return bool(np.array_equal(found, self.state))

    def _look(self, descriptor: int) -> IntArray:
        """The state of the files now, below the open directory; ``OSError`` when one is gone."""
        many = len(self.visible) >= _MANY
        if many and (call := COMPILED.for_work(0.0)) is not None:
            if not self._names:
                self._names.append(Names.of(self.visible))
            found = self._names[0].look(descriptor, call)
            if found is not None:
                found[1:, (found[0] & 0o170000) == 0o040000] = 0
                return found
        started = time.perf_counter()
        # Names below an open directory take a third less time than whole paths.
        states: list[int] = []
        for name in self.visible:
            states += state_of(os.stat(name, dir_fd=descriptor))
        state = _state(states)
        COMPILED.spent += time.perf_counter() - started
        return state


def state_of(found: os.stat_result) -> tuple[int, int, int, int, int]:
    """Mode, size, mtime, inode and change time: they tell one version of a file from another."""
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def _state(states: list[int]) -> IntArray:
    """The numbers of ``state_of``, given file after file, as int64 ``(5, files)``.

    For a directory only the mode counts: its entries have a state of their own.
    """
    try:
        made = np.array(states, np.int64)
    except OverflowError:  # times or inodes beyond int64
        made = np.array(
            [hash(each) if at % 5 == 3 else int64(each) for at, each in enumerate(states)], np.int64
        )
    made = made.reshape(-1, 5).T.copy()
    made[1:, (made[0] & 0o170000) == 0o040000] = 0
    return made
