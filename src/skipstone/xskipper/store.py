"""The directory of a store: how it is found, and how its parts are read and replaced.

A directory that the user names is a store of Xskipper when it is

- a base path that holds ``<sha256 of the table's identifier>/``, under any of the rules for
  identifiers (``format/naming.py``);
- a directory with parts of such a store.

**Replacing parts while others read them.** A reader takes one part's schema for all parts, and a
null in ``minmax`` or ``valuelist`` for "no value in this file". So parts with different index
columns must never lie in one directory: a column that one part lacks would read as null, and files
would be skipped.

- Same version and index columns before and after: the new parts are written first, then the old
  ones are deleted. In between a file has two equal rows.
- Otherwise the new parts are first written under names that readers ignore, then the old ones are
  deleted, then the new ones get their names. In between there are no rows, and every file is read.
  Where that is cut off, the next upgrade or export goes on from the names (``finish``).

Each part appears completely or not at all (``Storage.put``), under its own name.

**Reading.** ``StorePart`` gives a part as plain values, from which a fact snapshot is made. Dates
before 1582-10-15 and timestamps before 1900 may have been read from files in the hybrid calendar,
as the session at that time read them. A row with such a value proves nothing about its column.
"""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from skipstone import _compute as pc
from skipstone._dataclasses import dataclass
from skipstone.errors import KeyUnavailableError, SkipstoneError, UnsupportedError
from skipstone.pruning import BoolArray, Cause, Reason
from skipstone.storage import Storage, hidden_by_spark, remove_left_overs

from .format.naming import directory_names
from .format.part import PartContents, PartFooter, part_name, read_footer, read_part
from .format.rows import (
    BloomRows,
    IndexRows,
    MinMaxRows,
    StoreRows,
    UnreadRows,
    ValueListRows,
    ancient,
    decode,
    lists_without,
    nulls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from .format.schema import StoreSchema


_NEXT = re.compile(r"_next-([0-9a-f]{32})-\d+-of-(\d+)")
# Parts to open before a directory counts as something else.
_LOOKS = 4


def open_file(storage: Storage, path: str) -> pa.NativeFile:
    """The file at ``path`` as Arrow reads it."""
    return pa.PythonFile(storage.open(path), mode="r")


def footer_at(storage: Storage, path: str, decryption: object | None = None) -> PartFooter:
    """The footer of the part at ``path``; errors as for ``read_footer``."""
    with open_file(storage, path) as file:
        return read_footer(file, file=path, decryption=decryption)


def part_files(storage: Storage, directory: str) -> dict[str, tuple[int, int]]:
    """Size and mtime (ns) of every part of the store at ``directory``, by its path."""
    listing = storage.list_all(directory)
    start = len(directory) + 1
    found = {}
    for each in map(listing.object_id, range(len(listing))):
        name = each.path[start:]
        if "/" not in name and name.endswith(".parquet") and not hidden_by_spark(name):
            found[each.path] = (each.size or 0, each.mtime_ns)
    return found


def find_directory(storage: Storage, base: str, table: str) -> str | None:
    """The directory of the Xskipper store of ``table`` at or below ``base``, if there is one."""
    for name in directory_names(table):
        if storage.has_children(f"{base}/{name}"):
            return f"{base}/{name}"
    if not storage.has_children(base) or storage.has_children(f"{base}/facts"):
        return None
    for path in list(part_files(storage, base))[:_LOOKS]:
        try:
            footer_at(storage, path)
        except (KeyUnavailableError, UnsupportedError):
            return base
        except (SkipstoneError, OSError):
            continue
        return base
    return None


def replace_parts(
    storage: Storage,
    directory: str,
    parts: Sequence[pa.Buffer],
    schema: StoreSchema,
    decryption: object | None = None,
    sources: Sequence[str] = (),
) -> int:
    """Make ``parts``, all of ``schema``, the parts of the store at ``directory``; their bytes.

    ``decryption`` as for ``read_footer``, for the parts of an encrypted store; ``sources`` are the
    files that the parts are made from.
    """
    finish(storage, directory)
    before = list(part_files(storage, directory))
    described = _described(schema)
    alike = all(_described_at(storage, path, decryption) == described for path in before)
    group, made = uuid.uuid4().hex, list[str]()
    try:
        for number, data in enumerate(parts):
            name = part_name(number) if alike else f"_next-{group}-{number}-of-{len(parts)}"
            made.append(f"{directory}/{name}")
            storage.put(made[-1], memoryview(data), sources)
    except BaseException:
        with suppress(OSError):
            storage.delete(*made)
        raise
    if alike:
        storage.delete(*before)
    else:
        finish(storage, directory)
    return sum(part.size for part in parts)


def finish(storage: Storage, directory: str) -> None:
    """Put the parts in place that ``replace_parts`` wrote for parts with other index columns, if
    all of them are there; else remove them. What killed writers left is removed."""
    remove_left_overs(storage, directory)
    groups: dict[tuple[str, int], list[str]] = {}
    for path in sorted(storage.list_all(directory).paths):
        if found := _NEXT.fullmatch(path.removeprefix(f"{directory}/")):
            groups.setdefault((found[1], int(found[2])), []).append(path)
    for (_, count), paths in groups.items():
        if len(paths) == count:
            storage.delete(*part_files(storage, directory))
            for number, path in enumerate(paths):
                storage.put(f"{directory}/{part_name(number)}", storage.read(path), [path])
        storage.delete(*paths)


def _described(schema: StoreSchema) -> tuple[int, frozenset[tuple[str, str, str | None]]]:
    """The version and the index columns."""
    indexes = frozenset((index.name, index.type, index.key_metadata) for index in schema.indexes)
    return schema.version, indexes


def _described_at(
    storage: Storage, path: str, decryption: object | None
) -> tuple[int, frozenset[tuple[str, str, str | None]]] | None:
    try:
        return _described(footer_at(storage, path, decryption).schema)
    except (SkipstoneError, OSError):
        return None


def remove_plaintext(
    storage: Storage, base: str, is_secret: Callable[[str], bool]
) -> tuple[str, ...]:
    """Remove the parts below ``base`` that hold an index over a column that ``is_secret`` in the
    clear; their paths. An unreadable part counts as such a part."""

    def reveals(path: str) -> bool:
        try:
            schema = footer_at(storage, path).schema
        except KeyUnavailableError:
            return False
        except SkipstoneError:
            return True
        if schema.encryption is not None:
            return False
        return any(is_secret(name) for index in schema.indexes for name in index.columns)

    listed = storage.list_all(base).paths
    gone = tuple(path for path in listed if path.endswith(".parquet") and reveals(path))
    storage.delete(*gone)
    return gone


class IndexValues(NamedTuple):
    """One index column of a part: ``pieces`` of values as the kind stores them, null where nothing
    is known; ``empty`` marks the files without any value; ``reason`` why it could not be read."""

    pieces: list[pa.Array]
    empty: BoolArray
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StorePart:
    """A part whose footer was read: ``size`` in bytes, ``mtime`` in ns, ``decryption`` as in
    ``read_part``."""

    path: str
    size: int
    mtime: int
    footer: PartFooter
    decryption: object | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    def read(self, storage: Storage, columns: Collection[str] | None) -> PartContents:
        """The part with these columns and ``obj_name``; errors as ``read_part`` has them."""
        with open_file(storage, self.path) as file:
            return read_part(file, columns=columns, file=self.path, decryption=self.decryption)

    def rows(self, storage: Storage) -> StoreRows:
        """Path and time of every row; errors as ``read_part`` has them."""
        return decode(self.read(storage, ()))

    def index_values(self, storage: Storage, name: str) -> IndexValues:
        """The index column ``name``. Never raises for what it reads."""
        try:
            part = self.read(storage, [name])
            rows = decode(part)
        except Exception as error:  # whatever is wrong with a part, the query continues
            failed = Reason.of_error(f"part {self.name}", error)
            return IndexValues([], np.zeros(0, np.bool_), failed)
        found = next(each for each in rows.indexes if each.index.name == name)
        reason = None
        if isinstance(found, UnreadRows):
            locked = name in dict(part.unreadable) and found.index.key_metadata is not None
            reason = Reason(
                cause=Cause.UNDECRYPTABLE if locked else Cause.UNSUPPORTED,
                subject=f"{found.index.kind}({', '.join(found.index.columns)})",
                text=found.reason,
            )
        return IndexValues(*_values(found, own=self.footer.own), reason)


def open_parts(
    storage: Storage, files: Mapping[str, tuple[int, int]], decryption: object | None
) -> list[StorePart | Reason]:
    """The parts at these paths (with size and mtime), or why one proves nothing."""

    def open_part(path: str) -> StorePart | Reason:
        try:
            footer = footer_at(storage, path, decryption)
            footer.schema.require_usable()
        except Exception as error:  # foreign bytes, and the caller's key service
            return Reason.of_error(f"part {path.rpartition('/')[2]}", error)
        size, mtime = files[path]
        return StorePart(path=path, size=size, mtime=mtime, footer=footer, decryption=decryption)

    # The caller's key service may not be made for threads.
    if decryption is not None or len(files) < 2:
        return list(map(open_part, files))
    with ThreadPoolExecutor(min(8, len(files))) as pool:
        return list(pool.map(open_part, files))


def _values(rows: IndexRows, *, own: bool) -> tuple[list[pa.Array], BoolArray]:
    """``pieces`` and ``empty`` of ``IndexValues``; ``own``: no ancient value is doubtful."""
    match rows:
        case MinMaxRows(minimum=low, maximum=high, empty=empty):
            known = empty | ~nulls(low) | ~nulls(high)
            if not own:
                known &= ~ancient(low)
            fields = [pa.field(name, low.type) for name in ("min", "max")]
            return [
                pa.StructArray.from_arrays([low, high], fields=fields, mask=pa.array(~known))
            ], empty
        case ValueListRows(values=lists, empty=empty):
            return [lists if own else lists_without(lists, ancient(lists.flatten()))], empty
        case BloomRows(blobs=blobs):
            return blobs.chunks, np.zeros(len(blobs), np.bool_)
    return [], np.zeros(0, np.bool_)


def same_values(values: pa.Array, a: NDArray[np.int64], b: NDArray[np.int64]) -> BoolArray:
    """Whether the values at each pair of positions are surely equal: nulls are, a NaN is not."""
    type_ = values.type
    if pa.types.is_struct(type_):
        children = [same_values(pc.struct_field(values, i), a, b) for i in range(len(type_))]
        both = nulls(values)[a] == nulls(values)[b]
        return np.asarray(np.all([both, *children], axis=0), np.bool_)
    left, right = values.take(pa.array(a)), values.take(pa.array(b))
    if not pa.types.is_list(type_):
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
        return np.asarray(equal | (nulls(left) & nulls(right)), np.bool_)
    lengths = [pc.list_value_length(each) for each in (left, right)]
    same = same_values(pa.concat_arrays(lengths), np.arange(len(a)), np.arange(len(a)) + len(a))
    at = np.flatnonzero(same & ~nulls(left))
    flat = [each.take(pa.array(at)).flatten() for each in (left, right)]
    count = len(flat[0])
    apart = ~same_values(pa.concat_arrays(flat), np.arange(count), np.arange(count) + count)
    owner = np.repeat(at, lengths[0].take(pa.array(at)).to_numpy(zero_copy_only=False))
    same[owner[apart]] = False
    return same
