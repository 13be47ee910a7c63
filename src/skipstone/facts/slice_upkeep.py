"""Makes, checks and removes the bit slices of a store's Bloom filters (``slices.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.indexes.bloom import Bloom
from skipstone.indexes.bloom_slices import (
    LEAST_GROUP,
    MAGIC,
    TAIL,
    SliceDirectory,
    SliceWriter,
    directory_bytes,
    row_of,
)
from skipstone.indexes.text import NGrams, TextIndex, Tokens
from skipstone.pruning import Cause, Reason

from .slices import filters_of, load_members

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from skipstone.storage import Storage

    from .location import Location
    from .part_columns import FactField
    from .parts import Part
    from .slices import OpenSlices
    from .snapshot import Snapshot
    from .store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """Which filters get slices. Their column must have at least ``files`` filters in all parts,
    since reading fewer costs little. In a part, at least ``group`` of them must have the same size.
    Filters of texts are larger, so fewer suffice."""

    files: int = 1_024
    group: int = LEAST_GROUP
    text_files: int = 256
    text_group: int = 64


DEFAULT = Slicing()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedNow:
    """The slices after a compaction: ``files`` of ``filters`` filters have slices, of ``bytes``."""

    files: int = 0
    filters: int = 0
    bytes: int = 0


def write_slices(store: Store, slicing: Slicing = DEFAULT) -> SlicedNow:
    """Make the slices that parts lack, and count those that there are; see the module.

    ``SkipstoneError`` or ``OSError`` if a part cannot be read now: then its filters have no slices,
    and are asked one by one.
    """
    snapshot = store.snapshot()
    for reason in snapshot.reasons:
        if reason.cause is Cause.UNREADABLE:
            raise SkipstoneError(f"{reason}", hint="no bit slices were made: try again later")
    if snapshot.encryption is not None:
        return SlicedNow()
    wanted: dict[str, list[FactField]] = {}
    for field in filter(_is_filter, snapshot.fields):
        having = [part for part in snapshot.parts if field.key in part.by_key]
        count = sum(part.rows for part in having)
        least = slicing.text_files if _is_text(field) else slicing.files
        for part in having if count >= least else ():
            wanted.setdefault(part.name, []).append(field)
    made = False
    for part in snapshot.parts:
        if part.name in wanted and part.name not in snapshot.slices:
            try:
                data = _slices_of(part, wanted[part.name], store.storage, slicing)
            except FileNotFoundError:  # another compaction has replaced the part
                continue
            if data is not None:
                store.storage.put(store.location.slices(part.name), data, [part.path])
                made = True
    if made:
        snapshot = store.snapshot()
    opened = snapshot.slices.values()
    files = sum(column.files for each in opened for column in each.directory.columns)
    filters = sum(part.rows * len(wanted.get(part.name, ())) for part in snapshot.parts)
    return SlicedNow(
        files=files,
        filters=max(files, filters),  # a column may have had more filters
        bytes=sum(each.size for each in opened),
    )


def _is_filter(field: FactField) -> bool:
    """Whether these are our own filters."""
    if field.definition is None or field.arrow.type != pa.binary():
        return False
    own = {Bloom.name: Bloom, **dict.fromkeys(_TEXTS, TextIndex)}.get(field.definition.kind)
    return own is not None and isinstance(field.definition.index, own)


def _is_text(field: FactField) -> bool:
    return field.definition is not None and field.definition.kind in _TEXTS


_TEXTS = (NGrams.name, Tokens.name)


def _slices_of(
    part: Part, fields: Sequence[FactField], storage: Storage, slicing: Slicing
) -> memoryview | None:
    writer = SliceWriter(part.name, part.rows)
    for field in fields:
        name = part.by_key[field.key].arrow.name
        group = slicing.text_group if _is_text(field) else slicing.group
        try:
            writer.add(name, filters_of(part, name, storage), group)
        except FormatError:  # `check` reports the part
            continue
    return writer.finish()


def damaged_slices(snapshot: Snapshot) -> Iterator[Reason]:
    """Reads the slices of all parts completely, and says what is wrong with them."""
    yield from snapshot.slice_reasons
    for opened in snapshot.slices.values():
        try:
            data = memoryview(snapshot.storage.read(opened.path))
            _verify(opened, data)
            for column in opened.directory.columns:
                load_members(opened, column, snapshot.storage)
        except (OSError, SkipstoneError) as error:
            yield Reason.of_error(opened.subject, error)


def _verify(opened: OpenSlices, data: memoryview) -> None:
    if len(data) != opened.size or data[: len(MAGIC)] != MAGIC:
        raise FormatError("slices", file=opened.path, expected=opened.size, got=len(data))
    for column in opened.directory.columns:
        for group in column.groups:
            for row in range(group.bits):
                at = group.slices + row * group.stride
                if row_of(data[at : at + group.stride], group) is None:
                    text = "the checksum of a row is wrong"
                    raise FormatError(text, file=opened.path, offset=at)


def check_tail(storage: Storage, path: str) -> None:
    """``FormatError`` where the object at ``path`` does not end as slices do; ``OSError`` where it
    cannot be read."""
    version, end = storage.read_tail(path, TAIL.size)
    size = version.size or 0
    needed = directory_bytes(end, size, path)
    if needed > len(end):
        _, end = storage.read_tail(path, needed)
    SliceDirectory.from_bytes(end, size, path)


def unowned(paths: Collection[str], location: Location) -> list[str]:
    """The slices among ``paths`` whose part is not among them."""
    return [
        path
        for path in paths
        if location.is_slices(path) and location.part(location.part_of_slices(path)) not in paths
    ]
