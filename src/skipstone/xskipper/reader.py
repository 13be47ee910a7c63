"""Reads the parts of a foreign store into plain values, from which a fact snapshot is made.

Dates before 1582-10-15 and timestamps before 1900 may have been read from files in the hybrid
calendar, as the session of then saw them. A row with such a value says nothing about its column.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.pruning import Cause, Reason
from skipstone.pruning.calendar import FIRST_DATE, FIRST_TIMESTAMP

from .directory import footer_at, open_file
from .format.part import read_part
from .format.rows import BloomRows, MinMaxRows, UnreadRows, ValueListRows, decode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from skipstone.pruning import BoolArray
    from skipstone.storage import Storage

    from .format.part import Footer, PartContents
    from .format.rows import IndexRows, StoreRows


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
    footer: Footer
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
        except Exception as error:  # whatever is wrong with a part, the query goes on
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
        return IndexValues(*stored_values(found, own=self.footer.own), reason)


def open_parts(
    storage: Storage, files: Mapping[str, tuple[int, int]], decryption: object | None
) -> list[StorePart | Reason]:
    """The parts at these paths (with size and mtime), or why one says nothing."""

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


def stored_values(rows: IndexRows, *, own: bool) -> tuple[list[pa.Array], BoolArray]:
    """The values as the kind stores them, in pieces, null where nothing is known; and a mask of the
    files without any value. ``own``: Skipstone wrote them, so no ancient value is doubtful.

    A column that was not understood gives no pieces.
    """
    if isinstance(rows, MinMaxRows):
        ends = [rows.minimum, rows.maximum]
        known = rows.empty | ~_nulls(ends[0]) | ~_nulls(ends[1])
        if not own:
            known &= ~_ancient(rows.minimum)
        fields = [pa.field(name, ends[0].type) for name in ("min", "max")]
        return [pa.StructArray.from_arrays(ends, fields=fields, mask=pa.array(~known))], rows.empty
    if isinstance(rows, ValueListRows):
        return [rows.values if own else _modern_lists(rows.values)], rows.empty
    if isinstance(rows, BloomRows):
        return rows.blobs.chunks, np.zeros(len(rows.blobs), np.bool_)
    return [], np.zeros(0, np.bool_)


def _ancient(values: pa.Array) -> BoolArray:
    if pa.types.is_date32(values.type):
        older = pc.less(values.view(pa.int32()), FIRST_DATE)
    elif pa.types.is_timestamp(values.type):
        older = pc.less(values.view(pa.int64()), FIRST_TIMESTAMP)
    else:
        return np.zeros(len(values), np.bool_)
    return np.asarray(pc.fill_null(older, False).to_numpy(zero_copy_only=False), np.bool_)


def _modern_lists(lists: pa.ListArray) -> pa.Array:
    """The lists, null where one of its values is ancient."""
    ancient = _ancient(lists.flatten())
    if not ancient.any():
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    doubtful = np.zeros(len(lists), np.bool_)
    doubtful[np.repeat(np.arange(len(lists)), lengths)[ancient]] = True
    return pc.if_else(pa.array(doubtful), pa.scalar(None, lists.type), lists)


def same_values(values: pa.Array, a: NDArray[np.int64], b: NDArray[np.int64]) -> BoolArray:
    """For each pair of positions: are the values surely equal? Nulls are; a NaN is not."""
    type_ = values.type
    if pa.types.is_struct(type_):
        children = [same_values(pc.struct_field(values, i), a, b) for i in range(len(type_))]
        both = _nulls(values)[a] == _nulls(values)[b]
        return np.asarray(np.all([both, *children], axis=0), np.bool_)
    left, right = values.take(pa.array(a)), values.take(pa.array(b))
    if not pa.types.is_list(type_):
        equal = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
        return np.asarray(equal | (_nulls(left) & _nulls(right)), np.bool_)
    lengths = [pc.list_value_length(each) for each in (left, right)]
    same = same_values(pa.concat_arrays(lengths), np.arange(len(a)), np.arange(len(a)) + len(a))
    at = np.flatnonzero(same & ~_nulls(left))
    flat = [each.take(pa.array(at)).flatten() for each in (left, right)]
    count = len(flat[0])
    apart = ~same_values(pa.concat_arrays(flat), np.arange(count), np.arange(count) + count)
    owner = np.repeat(at, lengths[0].take(pa.array(at)).to_numpy(zero_copy_only=False))
    same[owner[apart]] = False
    return same


def _nulls(array: pa.Array) -> BoolArray:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
