"""The bit slices of a store's Bloom filters: one object ``slices-<uuid>`` per part ``part-<uuid>``.

The layout is in ``indexes/bloom_slices.py``. A compaction makes the slices of each part that has
none, from the filters in the part (``slice_upkeep.py``). So a part that a later compaction leaves
unchanged keeps its slices, and new facts only need slices of their own part.

Slices belong to a part by its name, which is the hash of its footer. A part is never changed, and
its rows are matched with the listing of files like those of any part, so slices are exactly as
fresh as the part. Slices of a part that is gone mean nothing: ``compact`` and ``drop`` remove them
with their part, and ``vacuum`` removes what a killed run left.

Slices are advice. If they are absent, damaged, of a newer version, or of another part, the filters
in the part are asked, with a reason. An encrypted index has no slices: unencrypted rows of bits
would reveal which values its files hold.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError, SkipstoneError
from skipstone.pruning import Reason
from skipstone.pruning.kind import Stored
from skipstone.storage import ByteRange

from .read_ahead import END

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from skipstone.indexes.bloom_slices import SliceColumn, SliceDirectory
    from skipstone.indexes.sliced_bloom import SlicedBloom
    from skipstone.storage import Storage

    from .location import Location
    from .match import FileMatch, Identities
    from .part_columns import FactField
    from .parts import Part
    from .read_ahead import ReadAhead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenSlices:
    """The slices of one part whose directory was read; ``size`` in bytes."""

    path: str
    size: int
    directory: SliceDirectory

    @property
    def subject(self) -> str:
        """Its name in reasons."""
        return _subject(self.directory.part)

    def column(self, name: str) -> SliceColumn | None:
        """The slices of the fact column ``name`` of the part."""
        return next((each for each in self.directory.columns if each.name == name), None)


def open_slices(
    parts: Sequence[Part],
    listed: Mapping[str, int],
    location: Location,
    storage: Storage | ReadAhead,
) -> tuple[dict[str, OpenSlices], list[Reason]]:
    """The slices of ``parts`` by the part's name, and why some are not used.

    ``listed`` has the size of each part's slices.
    """
    sizes = {part.name: listed[part.name] for part in parts if part.name in listed}
    if not sizes:
        return {}, []
    from skipstone.indexes.bloom_slices import SliceDirectory, directory_bytes

    rows = {part.name: part.rows for part in parts}
    found: dict[str, OpenSlices] = {}
    reasons: list[Reason] = []
    lengths = {name: min(size, END) for name, size in sizes.items()}
    for _ in range(2):  # a long directory is read again, whole
        asked = {
            name: ByteRange(location.slices(name), sizes[name] - length, length)
            for name, length in lengths.items()
        }
        lengths = {}
        try:
            got = storage.read_ranges(list(asked.values())) if asked else {}
        except Exception as error:  # slices are advice
            return {}, [Reason.of_error(_subject("all parts"), error)]
        for name, place in asked.items():
            try:
                if place not in got:
                    raise OSError(f"{place.length:,} bytes of {place.path} were not read")
                needed = directory_bytes(got[place], sizes[name], place.path)
                if needed > place.length:
                    lengths[name] = needed
                    continue
                directory = SliceDirectory.from_bytes(got[place], sizes[name], place.path)
                if (directory.part, directory.rows) != (name, rows[name]):
                    raise FormatError("slices of another part", file=place.path)
                found[name] = OpenSlices(path=place.path, size=sizes[name], directory=directory)
            except (OSError, SkipstoneError) as error:
                reasons.append(Reason.of_error(_subject(name), error))
    return found, reasons


def _subject(part: str) -> str:
    return f"bit slices of {part}"


def covered_parts(
    field: FactField, parts: Sequence[Part], opened: Mapping[str, OpenSlices]
) -> frozenset[str]:
    """The parts whose slices have the filters of ``field``."""
    return frozenset(
        part.name
        for part in parts
        if part.name in opened
        and field.key in part.by_key
        and opened[part.name].column(part.by_key[field.key].arrow.name) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlicedField:
    """The evidence of the slices of a field, the parts that they are of, and why some are not."""

    evidence: SlicedBloom | None = None
    parts: frozenset[str] = frozenset()
    reasons: tuple[Reason, ...] = ()


def read_back_sliced(
    field: FactField,
    opened: Mapping[str, OpenSlices],
    identities: Identities,
    match: FileMatch,
    nulls: Callable[[], NDArray[np.int64]],
    storage: Storage,
) -> SlicedField:
    """The evidence about the files of ``match``. ``nulls`` are counts over all fact rows."""
    covered = covered_parts(field, identities.parts, opened)
    if not covered:
        return SlicedField()
    from skipstone.indexes.sliced_bloom import AskedGroup, AskedPart, SlicedBloom, SlicedText
    from skipstone.indexes.text import TextIndex

    assert field.types is not None
    column, type_ = field.types.field(0).name, field.types.field(0).type
    parts: list[AskedPart] = []
    groups: list[AskedGroup] = []
    held: list[NDArray[np.int64]] = []
    reasons: list[Reason] = []
    first = 0
    for part in identities.parts:
        if part.name not in covered:
            continue
        name, slices = part.by_key[field.key].arrow.name, opened[part.name]
        sliced = slices.column(name)
        assert sliced is not None
        try:
            members, rest = load_members(slices, sliced, storage)
        except (OSError, SkipstoneError) as error:
            reasons.append(Reason.of_error(slices.subject, error))
            covered -= {part.name}
            continue
        for group, rows in zip(sliced.groups, members, strict=True):
            run = slice(first, first + part.rows) if rows is None else first + rows
            groups.append(AskedGroup(path=slices.path, part=len(parts), group=group, rows=run))
        asked = AskedPart(
            name=part.name,
            first=first,
            last=first + part.rows,
            nbytes=part.column_bytes.get(name, 0),
            read=partial(filters_of, part, name, storage),
            rest=rest,
        )
        parts.append(asked)
        held.append(identities.starts[part.name] + np.arange(part.rows))
        first += part.rows
    if not parts:
        return SlicedField(reasons=tuple(reasons))
    at = np.concatenate(held)
    stored = _without_values(type_, identities.rows[at], nulls()[at], len(match))
    if isinstance(field.index, TextIndex):
        made = SlicedText(field.index).sliced(stored, parts, groups)
    else:
        made = SlicedBloom(column).sliced(stored, parts, groups)
    file = match.file_of_row[at]
    usable = np.flatnonzero((file >= 0) & made.known(stored))
    stored.row_of_file[file[usable]] = usable  # NumPy keeps the last of equal ones: the newest
    return SlicedField(evidence=made, parts=covered, reasons=tuple(reasons))


def _without_values(
    type: pa.DataType, rows: NDArray[np.int64], nulls: NDArray[np.int64], files: int
) -> Stored:
    """``Stored`` for rows whose values are only in slices; no file is matched with them yet."""
    return Stored(
        type=type,
        values=pa.nulls(0, pa.binary()),
        rows=rows,
        nulls=nulls,
        row_of_file=np.full(files, -1, np.int64),
    )


def load_members(
    opened: OpenSlices, column: SliceColumn, storage: Storage
) -> tuple[list[NDArray[np.int64] | None], tuple[NDArray[np.int64], pa.Array] | None]:
    """The member rows of each group (``None``: all), and the rest, which is in no group."""
    from skipstone.indexes.bloom_slices import members_of, rest_of

    rows, path = opened.directory.rows, opened.path
    width = -(-rows // 8)
    asked = [ByteRange(path, g.members, width) for g in column.groups if g.members is not None]
    if column.rest is not None:
        asked.append(ByteRange(path, column.rest.at, column.rest.length))
    got = storage.read_ranges(asked) if asked else {}
    if len(got) < len(set(asked)):
        raise OSError(f"members of {path} were not read")
    taken = np.zeros(rows, np.bool_)
    members: list[NDArray[np.int64] | None] = []
    for group in column.groups:
        if group.members is None:
            members.append(None)
            continue
        found = members_of(group, rows, got[ByteRange(path, group.members, width)], path)
        if taken[found].any():
            raise FormatError("two groups have one member", file=path, offset=group.members)
        taken[found] = True
        members.append(found)
    rest = None
    if column.rest is not None:
        place = ByteRange(path, column.rest.at, column.rest.length)
        rest = rest_of(column.rest, rows, got[place], path)
        if taken[rest[0]].any():
            raise FormatError("a member is in the rest", file=path, offset=place.offset)
    return members, rest


def filters_of(part: Part, name: str, storage: Storage) -> pa.Array:
    """The filters in a part."""
    return part.read(storage, [name]).column(0).combine_chunks()
